# SPDX-License-Identifier: Apache-2.0
"""The cycles of a layer above its bound, by cause. The causes add up to the difference.

The bound of a layer is either the array's or the bus's. Losses are counted on the bounding
resource: cycles in which the array does less than its peak, or cycles in which the bus copies
nothing that every tiling has to copy. Idle cycles are attributed along the critical path that ends
with the next command, as in `umakit.machine.stalls`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from umakit.machine.bounds import Bound
from umakit.machine.clock import Run
from umakit.machine.stalls import CycleBreakdown, Waits, cycle_breakdown

Resource = Literal["array", "bus"]

CAUSES: Mapping[str, str] = {
    "folds": "folds in every tiling: edges leave cells idle, and each may be filled and drained",
    "cuts": "more folds than the fewest, from cuts or the dataflow",
    "work": "the engine that computes is below its peak",
    "drain": "the last results leave the array and nothing enters",
    "first_load": "the array waits for its first operands",
    "loads": "the array waits for later operands",
    "stores": "the array waits for a store that holds memory or the bus",
    "last_store": "the last results go to main memory",
    "fill": "zeros that fill blocks of weights up to the columns of the array are copied",
    "again": "bytes are copied more than once",
    "width": "copies do not fill the width of the bus, as ends of rows, or pay for bursts",
    "computing": "the bus waits for the array",
    "latency": "the bus waits for bytes on their way",
    "driver": "the driver accesses registers meanwhile",
    "other": "the array waits for another engine that computes",
    "not_predicted": "simulated beyond what was predicted; negative if it was less",
}
"""Descriptions of the causes. Array-bound layers have `folds` to `last_store`, `driver` and
`other`; bus-bound layers have `fill` to `driver`."""


@dataclass(frozen=True)
class Loss:
    """Cycles above a bound from one cause of `CAUSES`."""

    cause: str
    cycles: int


@dataclass(frozen=True)
class Losses:
    """The cycles of a layer above its bound.

    Attributes:
        bound_by: the bounding resource: the array, or the bus.
        parts: cycles by cause, without causes of 0 cycles; largest first.
    """

    bound_by: Resource
    bound: int
    parts: tuple[Loss, ...]

    @property
    def cycles(self) -> int:
        """Cycles of the layer: the bound and all parts."""
        return self.bound + sum(part.cycles for part in self.parts)

    def as_json(self) -> dict[str, Any]:
        """Return all fields by name; `held_by` is an older name of `bound_by`."""
        return {**asdict(self), "held_by": self.bound_by}


def losses_of(
    run: Run,
    bound: Bound,
    finish: int,
    *,
    least_array: int | None = None,
    fill: int = 0,
    bytes_again: int = 0,
    width: int = 1,
    simulated: int | None = None,
) -> Losses | None:
    """Return the cycles of a layer above its bound, by cause.

    Args:
        finish: cycles after the last command in which the driver closes the layer.
        least_array: the fewest cycles that the layer's jobs occupy the array in any tiling; None if
            unknown: `folds` and `cuts` are then one cause, `work`.
        fill: bus cycles of the padding of blocks of weights.
        bytes_again: bytes that the layer copies beyond the bound and `fill`.
        width: bytes per cycle of all copying engines together.
        simulated: simulated cycles, if they may differ from the predicted cycles.

    Returns:
        None if commands are shorter than the machine's peak and widths allow, so that the bound
        does not hold.
    """
    if bound.compute >= bound.memory:
        bound_by: Resource = "array"
        parts = _of_array(run, bound.compute, least_array)
    else:
        bound_by = "bus"
        parts = _of_bus(run, bound.memory, fill, -(-bytes_again // width))
    if any(cycles < 0 for cycles in parts.values()):
        return None
    parts["driver"] += finish
    if simulated is not None:
        parts["not_predicted"] = simulated - run.cycles - finish
    ordered = sorted(parts.items(), key=lambda part: -part[1])
    return Losses(bound_by, bound.cycles, tuple(Loss(*part) for part in ordered if part[1]))


def _of_array(run: Run, peak: int, least: int | None) -> dict[str, int]:
    """Return the cycles in which the array does less than its peak."""
    computing = {each.name for each in run.machine.streams if each.does == "compute"}
    jobs = [number for number, each in enumerate(run.commands) if each.stream in computing]
    streams, busy = _streams(run), [each.busy for each in run.commands]
    layers_own = streams[jobs[0]]
    whole = cycle_breakdown(streams, busy, run.schedule, run.machine, layers_own)
    waits = _waits(run)
    waits.explain(jobs[0], 0)
    first, last = waits.breakdown, _after(run, run.schedule.completions[jobs[-1]])
    working = whole.compute - peak
    if least is None:
        parts = {"work": working}
    else:
        parts = {"folds": least - peak, "cuts": whole.compute - least}
    return {
        **parts,
        "drain": whole.drain,
        "first_load": first.load,
        "loads": whole.load - first.load,
        "last_store": last.store,
        "stores": whole.store - last.store,
        "driver": whole.driver,
        "other": whole.other,
    }


def _of_bus(run: Run, least: int, fill: int, again: int) -> dict[str, int]:
    """Return the cycles in which the bus copies nothing that every tiling has to copy."""
    waits, busy, idle_from = _waits(run), 0, 0
    starts = run.schedule.starts
    copying = {each.name for each in run.machine.streams if each.does != "compute"}
    copies = [n for n, each in enumerate(run.commands) if each.stream in copying]
    for number in sorted(copies, key=lambda each: starts[each]):
        start = starts[number]
        if start > idle_from:
            waits.explain(number, idle_from)
            idle_from = start
        end = start + run.commands[number].busy
        busy, idle_from = busy + max(0, end - idle_from), max(idle_from, end)
    found = [waits.breakdown, _after(run, idle_from)]
    fill = min(fill, busy - least)
    again = min(again, busy - least - fill)
    return {
        "fill": fill,
        "again": again,
        "width": busy - least - fill - again,
        "computing": sum(each.other for each in found),
        "latency": sum(each.load + each.store for each in found),
        "driver": sum(each.driver for each in found),
    }


def _after(run: Run, idle_from: int) -> CycleBreakdown:
    """Return the causes of the cycles after an engine became idle at `idle_from`."""
    waits, ends = _waits(run), run.schedule.completions
    last = max(range(len(run.commands)), key=ends.__getitem__)
    if ends[last] > idle_from:
        waits.add(last, ends[last] - max(run.schedule.starts[last], idle_from))
        waits.explain(last, idle_from)
    return waits.breakdown


def _waits(run: Run) -> Waits:
    return Waits(_streams(run), [each.busy for each in run.commands], run.schedule, run.machine)


def _streams(run: Run) -> list[str]:
    return [command.stream for command in run.commands]
