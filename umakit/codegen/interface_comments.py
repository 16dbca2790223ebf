# SPDX-License-Identifier: Apache-2.0
"""Comments of a model's public header for callers of its functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from umakit.codegen.driver_names import is_simulated
from umakit.codegen.listing import comment
from umakit.program.program import Program
from umakit.registration.backend import Backend
from umakit.registration.buffer_alignment import buffer_alignment


def dma_alignments(backends: Mapping[str, Backend]) -> dict[str, int]:
    """Return the alignment in bytes of each accelerator's accesses to shared memory."""
    return {name: buffer_alignment(backend) for name, backend in sorted(backends.items())}


def interface_alignments(program: Program, backends: Mapping[str, Backend]) -> dict[str, int]:
    """Return the alignment in bytes of inputs and outputs of accelerators.

    The run function checks the alignments, so that a host refuses the same runs as a board. For a
    driver without a simulated device, only the configuration states the alignment.
    """
    found = dict.fromkeys([*program.inputs, *program.outputs], 1)
    for call in program.calls:
        backend = backends.get(call.target)
        if backend is None:
            continue
        alignment = backend.configuration.dma.alignment
        if is_simulated(backend):
            alignment = buffer_alignment(backend)
        for name in (*call.inputs, *call.outputs):
            if name in found:
                found[name] = max(found[name], alignment)
    return {name: alignment for name, alignment in found.items() if alignment > 1}


def dma_constants(program: Program, backends: Mapping[str, Backend]) -> dict[str, int]:
    """Return the alignment in bytes of each constant that an accelerator reads."""
    alignments = dma_alignments(backends)
    found: dict[str, int] = {}
    for call in program.calls:
        for name in call.inputs:
            if name in program.constants and call.target in alignments:
                found[name] = max(found.get(name, 1), alignments[call.target])
    return found


def constants_of_backends(
    program: Program, backends: Mapping[str, Backend]
) -> dict[str, list[str]]:
    """Return the constants that only one backend's layers read, by the backend's target name."""
    readers: dict[str, set[str]] = {}
    for call in program.calls:
        for name in call.inputs:
            if name in program.constants:
                readers.setdefault(name, set()).add(call.target)
    return {
        target: found
        for target in sorted(backends)
        if (found := [name for name, targets in readers.items() if targets == {target}])
    }


def failure_comment(values: Mapping[str, Any], backends: Mapping[str, Backend]) -> str:
    """Return a C comment on the state after a run with a status other than 0.

    Args:
        values: template values of the model, see `common_values`, with its `locks`.
        backends: backends of the program's kernels by target name.
    """
    prefix = values["prefix_upper"]
    first = [f"{prefix}_INVALID_ARGUMENT", f"{prefix}_WORKSPACE_TOO_SMALL"]
    first += [f"{prefix}_BUSY"] if values["locks"] else []
    text = f"After {', '.join(first[:-1])} or {first[-1]} nothing has been written."
    if backends or values["index_checks"]:
        kept = "inputs and weights" if values["blob"] else "inputs"
        text += (
            " After any other status than 0 the outputs and the working memory hold nothing of"
            f" use; the {kept} are unchanged. Another run may start"
            f"{', except as said next.' if any(map(is_simulated, backends.values())) else '.'}"
        )
    if any(map(is_simulated, backends.values())):
        text += (
            " Positive statuses are of enum umakit_status in umakit/status.h: the driver has told"
            " the accelerator to stop. After UMAKIT_STUCK_BUSY reset it first: it did not stop, and"
            " may still write to the memory of the run."
        )
    others = sorted(name for name, backend in backends.items() if not is_simulated(backend))
    if others:
        text += (
            f" What the driver of {' and '.join(others)} returns, and what state it then leaves the"
            " accelerator in, its header says."
        )
    return comment(text)
