# SPDX-License-Identifier: Apache-2.0
"""The driver's accesses for some layers, as written by the recording device."""

from __future__ import annotations

import os
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from umakit import sim, tvm_api
from umakit.devices.catalogue import RTL
from umakit.devices.cosimulation import build_with_models
from umakit.devices.designs import designs_for
from umakit.devices.inputs import write_inputs
from umakit.devices.simulators import simulators_of
from umakit.errors import DeviceError
from umakit.pipeline import ExportOptions, compile_model
from umakit.registration.backend import Backend
from umakit.testing.programs.accesses import Access, Map, Read, Rest, Unmap, Wait, Write
from umakit.text.rendering import render

MOST_ACCESSES, MOST_BYTES = 600, 1 << 14
"""Maximum number of a layer's accesses, and bytes of its buffers, for making programs."""

MOST_CYCLES = 1_000_000
"""The same for cycles of the model's clock."""


@dataclass(frozen=True)
class Recording:
    """Register accesses of layers.

    Attributes:
        values: values written to each register, by offset.
        cycles: cycles of the model's clock for each layer; 0 without a clock.
        counts_work: whether the model's counter of busy cycles grew whenever the driver waited.
    """

    layers: tuple[tuple[Access, ...], ...]
    values: Mapping[int, tuple[int, ...]]
    read: frozenset[int]
    cycles: tuple[int, ...] = ()
    counts_work: bool = False


def read_recording(text: str) -> Recording:
    """Return the recording in a text, in the form of `sim/programs/umakit_programs.h`.

    Accesses before the first mapped buffer belong to each layer: they bring the device out of its
    power-on state. Of consecutive reads of one register, only the last is kept, after a rest,
    because a polling driver reads until the device is at rest. An unfinished layer is omitted.
    """
    layers: list[list[Access]] = [[]]
    cycles: list[int] = []
    counts: set[str] = set()
    for line in text.splitlines():
        if line.startswith("l"):
            _, text_of_cycles, is_live = line.split()
            layers.append([])
            cycles.append(int(text_of_cycles, 16))
            counts.add(is_live)
        elif line:
            layers[-1].append(_access(line))
    layers.pop()  # the layer is unfinished
    initial: list[Access] = []
    for access in (each for layer in layers for each in layer):
        if isinstance(access, Map):
            break
        initial.append(access)
    values: dict[int, dict[int, None]] = defaultdict(dict)
    kept: dict[tuple[Access, ...], int] = {}
    used = [each for each in zip(layers, cycles, strict=True) if each[0]]
    for number, (layer, took) in enumerate(used):
        short = tuple(_without_polls(layer if number == 0 else [*initial, *layer]))
        size = sum(len(each.data) for each in short if isinstance(each, Map))
        if len(short) <= MOST_ACCESSES and size <= MOST_BYTES and took <= MOST_CYCLES:
            kept.setdefault(short, took)
        for access in short:
            if isinstance(access, Write):
                values[access.offset].setdefault(access.value)
    read = {each.offset for layer in layers for each in layer if isinstance(each, Read)}
    return Recording(
        tuple(kept),
        {offset: tuple(found) for offset, found in values.items()},
        frozenset(read),
        tuple(kept.values()),
        "1" in counts and "0" not in counts,
    )


def _access(line: str) -> Access:
    kind, *words = line.split()
    numbers = [int(word, 16) for word in words[:3]]
    if kind == "w":
        return Write(numbers[0], numbers[1])
    if kind == "r":
        return Read(numbers[0], numbers[1])
    if kind == "i":
        return Wait(numbers[0])
    if kind == "m":
        return Map(numbers[0], numbers[2], bytes.fromhex(words[3]))
    return Unmap(numbers[0])


def _without_polls(accesses: Iterable[Access]) -> list[Access]:
    found: list[Access] = []
    for access in accesses:
        last = found[-1] if found else None
        if isinstance(access, Read) and isinstance(last, Read) and last.offset == access.offset:
            found.pop()
            before = found.pop() if found and isinstance(found[-1], Rest) else Rest()
            changed = last.value ^ access.value
            found.append(
                Rest(access.offset, changed, access.value & changed) if changed else before
            )
        found.append(access)
    return found


PARTS = sim.source_directory() / "programs"
"""Folder with the C that records and replays."""

RECORDING = "recording.txt"
SECONDS = 120.0
"""Time limit of the recording."""


def build_programs(
    backend: Backend,
    network: tvm_api.IRModule,
    inputs: Mapping[str, npt.NDArray[Any]],
    folder: Path,
    *,
    is_traced: bool = False,
) -> tuple[Path, Recording]:
    """Build the program that records and replays; return it with the recorded layers."""
    options = ExportOptions(keep_layout=True)
    library = compile_model(
        network, [backend], folder / "library", name="programs", options=options
    )
    name = backend.target_name

    # A team's simulator has a table with the backend's name. Without one, the design has the same
    # object as in other programs.
    table = f"{name}_rtl" if simulators_of(library.path) else name

    def generated(into: Path, interface: str) -> list[Path]:
        text = render(
            "rtl/programs_main.c.j2",
            interface=interface,
            name=name,
            table=table,
            is_traced=is_traced,
            main=str((library.path / "runtime" / "main.c").absolute()),
        )
        (into / "programs_main.c").write_text(text, encoding="utf-8")
        return [into / "programs_main.c"]

    program = folder / "programs"
    designs = designs_for([backend], RTL)
    tables = {name: table}
    build_with_models(
        library.path, designs, PARTS, generated, program, tables=tables, is_traced=is_traced
    )
    description = library.metadata["umakit"]
    return program, _recorded(program, library.path, description, inputs, folder)


def _recorded(
    program: Path,
    library: Path,
    description: Mapping[str, Any],
    arrays: Mapping[str, npt.NDArray[Any]],
    folder: Path,
) -> Recording:
    ordered = [arrays[each["name"]] for each in description["inputs"]]
    write_inputs(folder / "inputs", library, description, ordered)
    environment = {**os.environ, "UMAKIT_PROGRAMS_RECORD": str(folder / RECORDING)}
    try:
        ended = subprocess.run(
            [str(program), "inputs", "outputs", "1", "1"], cwd=folder, env=environment,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise DeviceError(f"the driver does not end within {SECONDS:g} s on the model") from None
    path = folder / RECORDING
    found = read_recording(path.read_text(encoding="ascii") if path.exists() else "")
    if ended.returncode != 0 and not found.layers:
        said = f"{ended.stdout}\n{ended.stderr}".strip() or "it printed nothing"
        raise DeviceError(f"the driver failed on the model: {said.splitlines()[-1]}")
    return found
