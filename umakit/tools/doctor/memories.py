# SPDX-License-Identifier: Apache-2.0
"""Comparison of the memories in `accel.toml` with those that a backend's code uses."""

from __future__ import annotations

import re

from umakit.errors import short_path
from umakit.machine.costs import TENSORS
from umakit.registration.backend import Backend
from umakit.registration.python_sources import texts_in
from umakit.text.spelling import closest
from umakit.tools.doctor.checks import Check, doubtful, failed, ok
from umakit.tools.doctor.probes import Probes

MEMORIES = "memories"

OFFSET = 'address = "offset" and reachable_by = ["accelerator"]'
"""Settings that make a memory a scratchpad."""


def memory_checks(backend: Backend, probes: Probes) -> list[Check]:
    """Check that scratchpads that code names are described, and that described ones are used."""
    path = backend.folder / "accel.toml"
    described = {memory.name: memory for memory in backend.configuration.memory}
    texts = texts_in(backend.folder)
    faults = []
    for name, patterns in sorted(probes.memories.items()):
        if name in described and described[name].address == "offset":
            continue
        unused = [each for each in described if each not in probes.memories]
        other = closest(name, described) or next(iter(unused or described), "")
        place = texts.get(name) or "the code"
        if name in described:
            message, mend = f"{name} is a scratchpad for the code", f"write {OFFSET}"
        else:
            message = f"{', '.join(sorted(patterns))} use a scratchpad {name!r}, which it lacks"
            mend = f'describe it: [[memory]] with name = "{name}", size and {OFFSET}'
            if other:
                mend = f"name {other} in {place}"
            if other in unused:
                mend += f', or write name = "{name}" in place of {other}'
        faults.append(failed(MEMORIES, message, where=short_path(path), mend=mend))
    if not faults:
        faults = _without_tiles(backend, probes)
    if not faults and probes.first is not None:
        faults = [
            doubtful(
                MEMORIES,
                f"no pattern uses the scratchpad {name!r}",
                where=_place(backend, name),
                mend="remove it, or allocate buffers in it: tir.scratchpad_buffer",
            )
            for name, memory in described.items()
            if memory.address == "offset" and name not in probes.memories and name not in texts
        ]
    if faults:
        return faults
    used = ", ".join(sorted(probes.memories))
    return [ok(MEMORIES, f"{used}: as the code uses it" if used else "code uses no scratchpad")]


def _without_tiles(backend: Backend, probes: Probes) -> list[Check]:
    """Return warnings of memories of a `[machine]` that hold no tensor while others do."""
    memories = backend.configuration.scratchpads
    held = {tensor for memory in memories for tensor in memory.holds}
    if backend.configuration.machine is None or not held:
        return []
    others = memories if held >= set(TENSORS) else memories[1:]  # the rest lies in the first
    return [
        doubtful(
            MEMORIES,
            f"no tensor lies in {memory.name!r}: it has no holds, other memories have",
            where=_place(backend, memory.name),
            mend=f"set holds, a list of {', '.join(TENSORS)}, or remove the memory",
        )
        for memory in others
        if not memory.holds and memory.name not in probes.memories
    ]


def _place(backend: Backend, name: str) -> str:
    path = backend.folder / "accel.toml"
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if re.match(rf"""\s*name\s*=\s*["']{name}["']""", line):
            return f"{short_path(path)}:{number}"
    return short_path(path)
