# SPDX-License-Identifier: Apache-2.0
"""Notes of backends on their devices on a board, for the README of an export."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from umakit.codegen.driver_names import is_simulated
from umakit.machine.layer import Layer
from umakit.machine.planner import prediction_of
from umakit.machine.space import accumulator_bytes
from umakit.operators.offload.composite import Composite
from umakit.program.descriptions import tiles_of
from umakit.program.program import Program
from umakit.registration.backend import Backend
from umakit.registration.code import called_board_notes
from umakit.registration.registered import BoardNotes, DeviceUse

TIME_LIMIT = (
    "`-D{macro}=...` for its driver, in cycles of the device; {cycles} by default, which is "
    "{seconds:g} seconds at 100 MHz. It holds for each wait, and anew after each wake of the "
    "processor without an event, `{name}_WAKES` times at most where its driver has that limit: "
    "give an interrupt line of its own to the device. Below a watchdog's period, choose less than "
    "it in cycles, but more than the longest layer takes: `uma run --profile` prints the cycles"
)
"""Default note for a driver that defines `NAME_TIMEOUT_CYCLES` without a note of its own."""

HERTZ = 100_000_000

NUMBER = re.compile(r"^#define (\w+) (\d+)[uU]?[lL]*\b", re.MULTILINE)


def board_notes(
    program: Program, backends: Mapping[str, Backend], metadata: Mapping[str, Any]
) -> dict[str, BoardNotes]:
    """Return the notes of backends with notes, by name."""
    scratchpads = metadata["umakit"]["memory"]["scratchpads"]
    return {
        name: called_board_notes(backend, hook, _use_of(name, program, backend, scratchpads))
        for name, backend in backends.items()
        if (hook := backend.board_notes) is not None
    }


def time_limits(backends: Mapping[str, Backend], notes: Mapping[str, BoardNotes]) -> dict[str, str]:
    """Return a sentence on the waiting time of each driver with a known limit, by backend."""
    found = {}
    for name, backend in backends.items():
        macro = f"{name.upper()}_TIMEOUT_CYCLES"
        cycles = _macros(backend).get(macro)
        if name in notes and notes[name].time_limit:
            found[name] = " ".join(notes[name].time_limit.split())
        elif is_simulated(backend) and cycles is not None:
            found[name] = TIME_LIMIT.format(
                macro=macro, name=name.upper(), cycles=cycles, seconds=cycles / HERTZ
            )
    return found


def _use_of(
    name: str, program: Program, backend: Backend, scratchpads: Iterable[Mapping[str, Any]]
) -> DeviceUse:
    used = [
        pool["used_bytes"]
        for pool in scratchpads
        if pool["reachable_by"] is None or name in pool["reachable_by"]
    ]
    composites = [
        program.kernels[call.kernel].composite
        for call in program.calls
        if call.kernel and call.target == name
    ]
    found = [tiles for each in composites if (tiles := tiles_of(program, each, backend))]
    cut = tuple({(tiles.layer, tiles.tiling): tiles for tiles in found}.values())
    planner, sums, cycles = backend.tiling, None, None
    if planner is not None and len(found) == len(composites):
        convolutions = (tiles for tiles in cut if not tiles.layer.is_pool)
        sums = max((accumulator_bytes(tiles, planner.machine) for tiles in convolutions), default=0)
        cycles = max((prediction_of(planner, tiles).cycles for tiles in cut), default=0)
    layers = tuple(map(_layer, composites))
    return DeviceUse(layers, cut, max(used, default=0), sums, cycles, _macros(backend))


def _layer(composite: Composite | None) -> Layer | None:
    try:
        return None if composite is None else Layer.of(composite)
    except TypeError:
        return None


def _macros(backend: Backend) -> dict[str, int]:
    found: dict[str, int] = {}
    for source in backend.driver.sources:
        text = (backend.folder / source).read_text(encoding="utf-8", errors="replace")
        found |= {name: int(number) for name, number in NUMBER.findall(text)}
    return found
