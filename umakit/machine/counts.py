# SPDX-License-Identifier: Apache-2.0
"""Predicted counts of events of a tiled layer."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from itertools import product
from typing import TypeVar

from umakit.machine.clock import ASKED, Run
from umakit.machine.energy import ACCUMULATOR, NO_ACCESSES, EventCounts, MemoryCounts
from umakit.machine.hardware import Hardware
from umakit.machine.planner import Prediction, TilePlanner
from umakit.machine.requirements import Job, Transfer
from umakit.machine.tile_machine import TileMachine
from umakit.machine.tiles import Tiles

Taken = TypeVar("Taken")


def tiled_counts(
    planner: TilePlanner, tiles: Tiles, prediction: Prediction, scratchpad: str | None = None
) -> EventCounts:
    """Return the predicted counts of a tiled layer.

    Register accesses, cycles and idle cycles come from the clock that predicts the cycles.

    Args:
        scratchpad: name of the scratchpad of umakit's systolic array; None for another machine:
            only the effect of copies on its memories is known.
    """
    machine, layer, run = planner.described, tiles.layer, prediction.run
    transfers = list(_transfers(tiles))
    moved = {
        is_store: sum(
            count * _rows(each) * int(each.row_bytes)
            for tensor, each, count in transfers
            if (tensor == "result") is is_store
        )
        for is_store in (False, True)
    }
    of_array = None if scratchpad is None else _array(machine, tiles, transfers, scratchpad)
    wasted, memories = of_array or (None, _copied(machine, transfers) or None)
    is_predicted = run is not None and prediction.cycles == run.cycles + planner.driver.finish
    return EventCounts(
        macs=layer.macs,
        wasted_macs=wasted,
        bus_read_bytes=moved[False],
        bus_written_bytes=moved[True],
        register_accesses=_register_accesses(run, planner) if run and is_predicted else None,
        cycles=prediction.cycles,
        idle_cycles=prediction.cycles - _working(run) if run and is_predicted else None,
        memories=memories,
    )


def _array(
    machine: TileMachine, tiles: Tiles, transfers: list[tuple[str, Transfer, int]], scratchpad: str
) -> tuple[int, dict[str, MemoryCounts]] | None:
    """Return the wasted multiply-accumulates, and the accesses to memories by name; None if the
    counts of jobs are unknown."""
    total, sums, wasted = NO_ACCESSES, NO_ACCESSES, 0
    for tensor, each, count in transfers:
        total = total.plus(_copy(machine.bytes_per_cycle, tensor, each, count))
    for job, count in _jobs(tiles):
        found = machine.job_counts(tiles.layer, tiles.tiling.dataflow, job)
        if found is None:
            return None
        wasted += count * found.wasted_macs
        total = total.plus(_times(found.scratchpad, count))
        sums = sums.plus(_times(found.accumulator, count))
    memories = {scratchpad: total}
    return wasted, {**memories, ACCUMULATOR: sums} if machine.sum_bytes else memories


def _copied(
    machine: TileMachine, transfers: list[tuple[str, Transfer, int]]
) -> dict[str, MemoryCounts]:
    """Return the known accesses of copies to the memories of a machine.

    Jobs do not write memories of loaded tensors, and read the memory of the result only for sums.
    """
    held: dict[str, set[str]] = {}
    for tensor, _, _ in transfers:
        held.setdefault(machine.memory_of(tensor), set()).add(tensor)
    found = {}
    for name, tensors in held.items():
        width = next(each.row_bytes for each in machine.machine.memories if each.name == name)
        total = NO_ACCESSES
        for tensor, each, count in transfers:
            if machine.memory_of(tensor) == name:
                total = total.plus(_copy(width, tensor, each, count))
        is_loaded = "result" not in tensors
        is_result = tensors == {"result"} and not machine.sums_in_result
        has_width = width > 1
        found[name] = MemoryCounts(
            total.reads if is_result and has_width else None,
            total.read_bytes if is_result else None,
            total.writes if is_loaded and has_width else None,
            total.written_bytes if is_loaded else None,
        )
    return {name: counts for name, counts in found.items() if counts != MemoryCounts()}


def _copy(width: int, tensor: str, moved: Transfer, count: int) -> MemoryCounts:
    """Return the accesses of `count` equal transfers to the memory of a tensor's tiles."""
    rows, row_bytes = count * _rows(moved), int(moved.row_bytes)
    accesses, size = rows * -(-row_bytes // width), rows * row_bytes
    is_store = tensor == "result"
    return MemoryCounts(accesses, size, 0, 0) if is_store else MemoryCounts(0, 0, accesses, size)


def _rows(moved: Transfer) -> int:
    return int(moved.planes) * int(moved.rows)


def _times(counts: MemoryCounts, factor: int) -> MemoryCounts:
    values = (counts.reads, counts.read_bytes, counts.writes, counts.written_bytes)
    return MemoryCounts(*(None if each is None else factor * each for each in values))


# --- commands that differ in places only --------------------------------------------------------


def _transfers(tiles: Tiles) -> Iterator[tuple[str, Transfer, int]]:
    """Yield one transfer of each size by tensor, with the number of such transfers."""
    for name in tiles.buffers:
        if name == "parameters":
            for size in tiles.layer.parameter_sizes:
                yield name, Transfer(0, 0, 1, 1, size, 0, 0), 1
            continue
        axes = tiles.loops[: tiles.depth(name)]

        def moved(position: dict[str, int], name: str = name) -> Transfer:
            return tiles.copy(name, position)

        for transfer, count in _different(
            tiles, axes, moved, lambda each: (each.planes, each.rows, each.row_bytes)
        ):
            yield name, transfer, count


def _jobs(tiles: Tiles) -> Iterator[tuple[Job, int]]:
    """Yield one job of each size, with the number of such jobs."""
    yield from _different(
        tiles,
        tiles.loops,
        tiles.job,
        lambda job: (
            job.input_size, job.output_size, job.input_channels, job.output_channels,
            job.padding, job.scales, job.continues, job.keeps,
        ),
    )  # fmt: skip


def _different(
    tiles: Tiles,
    axes: tuple[str, ...],
    take: Callable[[dict[str, int]], Taken],
    key: Callable[[Taken], Hashable],
) -> Iterator[tuple[Taken, int]]:
    """Yield one transfer or job of each size, and the number of such transfers or jobs.

    Each size depends on the tile's number along one axis only: looking at each axis alone is
    enough.
    """
    origin = dict.fromkeys(tiles.extents, 0)
    groups: list[list[tuple[int, int]]] = []
    for axis in axes:
        found: dict[Hashable, list[int]] = {}
        for number in range(tiles.extents[axis]):
            found.setdefault(key(take({**origin, axis: number})), []).append(number)
        groups.append([(numbers[0], len(numbers)) for numbers in found.values()])
    for chosen in product(*groups):
        count = 1
        for _, many in chosen:
            count *= many
        position = {
            **origin,
            **{axis: number for axis, (number, _) in zip(axes, chosen, strict=True)},
        }
        yield take(position), count


# --- the clock ------------------------------------------------------------------------------------


def _register_accesses(run: Run, planner: TilePlanner) -> int | None:
    """Return the register accesses of a driver that sleeps while it waits, like umakit's drivers;
    None for other machines, and for a driver that polls."""
    hardware = planner.described
    if not isinstance(hardware, Hardware) or hardware.completion == "polling":
        return None
    issued = sum(command.issue for command in run.commands)
    if not run.machine.has_queues:
        return issued + len(run.commands) + planner.driver.finish
    asked, schedule, before = 0, run.schedule, 0
    for index, command in enumerate(run.commands):
        if schedule.stalled_by[index] < 0:
            asked += schedule.enqueued[index] - before - command.issue
        else:
            asked += sum(ASKED[hardware.completion])
        before = schedule.enqueued[index]
    return issued + asked + 1 + planner.driver.finish


def _working(run: Run) -> int:
    """Return the cycles in which an engine works, from start to completion of commands."""
    schedule, until, total = run.schedule, 0, 0
    ends = schedule.completions
    for start, end in sorted(zip(schedule.starts, ends[: len(schedule.starts)], strict=False)):
        if end > until:
            total += end - max(start, until)
            until = end
    return total
