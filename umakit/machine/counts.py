# SPDX-License-Identifier: Apache-2.0
"""Predicted counts of events of a tiled layer."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

from umakit.machine.clock import ASKED, Run
from umakit.machine.costs import TileSizes
from umakit.machine.energy import ACCUMULATOR, NO_ACCESSES, EventCounts, MemoryCounts
from umakit.machine.hardware import Hardware, array_of
from umakit.machine.layer import Kind, Layer
from umakit.machine.planner import Prediction, TilePlanner
from umakit.machine.requirements import Job, Transfer
from umakit.machine.systolic import Dataflow, systolic_cycles
from umakit.machine.tile_machine import TileMachine
from umakit.machine.tiles import Tiles

Taken = TypeVar("Taken")


def tiled_counts(
    planner: TilePlanner, tiles: Tiles, prediction: Prediction, scratchpad: str | None = None
) -> EventCounts:
    """Return the predicted counts of a tiled layer.

    Register accesses, cycles and idle cycles come from the clock that predicts the cycles.

    Args:
        planner: the planner.
        tiles: the tiles of the layer.
        prediction: the prediction for these tiles.
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
    wasted: int | None = None
    memories: dict[str, MemoryCounts] | None = _copied(machine, transfers) or None
    array = array_of(machine)
    if scratchpad is not None and array is not None:
        wasted, memories = _array(array, tiles, transfers, scratchpad)
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
    hardware: Hardware, tiles: Tiles, transfers: list[tuple[str, Transfer, int]], scratchpad: str
) -> tuple[int, dict[str, MemoryCounts]]:
    total, sums, wasted = NO_ACCESSES, NO_ACCESSES, 0
    for tensor, each, count in transfers:
        total = total.plus(_copy(hardware.bytes_per_cycle, tensor, each, count))
    for job, count in _jobs(tiles):
        found = job_counts(hardware, tiles.layer, tiles.tiling.dataflow, job)
        wasted += count * found.wasted_macs
        total = total.plus(_times(found.scratchpad, count))
        sums = sums.plus(_times(found.accumulator, count))
    memories = {scratchpad: total}
    return wasted, {**memories, ACCUMULATOR: sums} if hardware.accumulator_bytes else memories


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
    accesses, size = transfer_accesses(width, count * _rows(moved), int(moved.row_bytes))
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
    """Return the register accesses of a driver that sleeps while it waits, like umakit's drivers.

    The driver arms the interrupt, which takes no cycle of its own because engines work, and waits.

    Returns:
        None for other machines than umakit's systolic array, and for a driver that polls.
    """
    hardware = array_of(planner.described)
    if hardware is None or hardware.completion == "polling":
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


@dataclass(frozen=True)
class JobCounts:
    """Counts of a job of the array.

    Attributes:
        wasted_macs: multiply-accumulate slots of the folds that the job does not use.
        scratchpad, accumulator: accesses to these memories.
    """

    wasted_macs: int
    scratchpad: MemoryCounts
    accumulator: MemoryCounts


def transfer_accesses(width: int, rows: int, row_bytes: int) -> tuple[int, int]:
    """Return accesses and bytes of a transfer of `rows` rows in words of `width` bytes."""
    return rows * -(-row_bytes // width), rows * row_bytes


def job_counts(hardware: Hardware, layer: Layer, dataflow: Dataflow, job: Job) -> JobCounts:
    """Return the counts of a job, all of whose numbers are integers."""
    scratchpad = _Scratchpad(hardware, layer, dataflow, job)
    if layer.is_pool:
        return JobCounts(0, scratchpad.counts(hardware.pooling_lanes), NO_ACCESSES)
    rows, columns = (int(each) for each in job.output_size)
    sizes = TileSizes(
        layer, dataflow, rows, columns, int(job.output_channels), int(job.input_channels)
    )
    return JobCounts(
        wasted_macs(hardware, sizes),
        scratchpad.counts(hardware.columns),
        _sums(hardware, sizes, job),
    )


def wasted_macs(hardware: Hardware, sizes: TileSizes) -> int:
    """Return the multiply-accumulate slots that the folds of a tile do not use."""
    if sizes.layer.is_pool:
        return 0
    found = systolic_cycles(sizes.product, hardware.cells_in(sizes.dataflow))
    return found.slots - found.macs


def _sums(hardware: Hardware, sizes: TileSizes, job: Job) -> MemoryCounts:
    """Return the accesses to the accumulator memory."""
    if not hardware.accumulator_bytes:
        return NO_ACCESSES
    product, folds = sizes.product, 1
    if sizes.dataflow is not Dataflow.OUTPUT_STATIONARY:
        folds = -(-product.k // hardware.rows)
    places = product.m * -(-product.n // hardware.columns)
    size = 4 * product.m * product.n
    reads, writes = folds - 1 + int(job.continues), folds - 1 + int(job.keeps)
    return MemoryCounts(reads * places, reads * size, writes * places, writes * size)


class _Scratchpad:
    """Accesses of a job to the scratchpad."""

    def __init__(self, hardware: Hardware, layer: Layer, dataflow: Dataflow, job: Job) -> None:
        self._hardware, self._layer, self._dataflow, self._job = hardware, layer, dataflow, job
        self._outputs = int(job.output_channels)
        self._inputs = int(job.input_channels)
        rows, columns = (int(each) for each in job.output_size)
        height, width = (int(each) for each in job.input_size)
        self._positions = rows * columns
        # Channels of a single position lie side by side in any layout.
        self._data_is_dense = not layer.channels_first or height * width == 1
        self._result_is_dense = not layer.channels_first or self._positions == 1
        self._taps = self._taps_along(0, rows, height) * self._taps_along(1, columns, width)

    def counts(self, lanes: int) -> MemoryCounts:
        """Return all accesses of a job that computes `lanes` channels at a time."""
        reads = read = writes = written = 0
        for first in range(0, self._outputs, lanes):
            count = min(lanes, self._outputs - first)
            more_reads, more_read = self._block(first, count)
            reads, read = reads + more_reads, read + more_read
            if not self._job.keeps:
                writes += self._positions * self._words(count, self._result_is_dense)
                written += self._positions * count
        for size in self._parameters():
            reads, read = reads + self._words(size), read + size
        return MemoryCounts(reads, read, writes, written)

    def _block(self, first: int, count: int) -> tuple[int, int]:
        """Return accesses and bytes that the array reads for a block of output channels."""
        inputs = self._inputs_of(first, count)
        reads = self._taps * self._words(inputs, self._data_is_dense)
        read = self._taps * inputs
        if not self._layer.is_pool:
            entering = self._depth * self._weight_passes(count)
            reads, read = reads + entering * self._words(count), read + entering * count
        if self._layer.adds and not self._job.keeps:
            reads += self._positions * self._words(count, self._result_is_dense)
            read += self._positions * count
        return reads, read

    def _words(self, size: int, is_dense: bool = True) -> int:
        return -(-size // self._hardware.bytes_per_cycle) if is_dense else size

    def _parameters(self) -> tuple[int, ...]:
        if self._layer.is_pool:
            return ()
        bias = 0 if self._job.continues else 4 * self._outputs
        scales = 0 if self._job.keeps else int(self._job.scales)
        return bias, 4 * scales, scales

    @property
    def _depth(self) -> int:
        """Return the number of products of each sum."""
        is_depthwise = self._layer.kind is Kind.DEPTHWISE
        return self._layer.window * (1 if is_depthwise else self._inputs)

    def _inputs_of(self, first: int, count: int) -> int:
        if self._layer.per_channel:
            multiplier = self._outputs // self._inputs
            return (first + count - 1) // multiplier - first // multiplier + 1
        if self._dataflow is Dataflow.INPUT_STATIONARY and first:
            return 0  # the inputs are in the array
        return self._inputs

    def _weight_passes(self, count: int) -> int:
        """Return the number of passes of a block's weights into the array."""
        if self._dataflow is Dataflow.WEIGHT_STATIONARY:
            return 1
        if self._dataflow is Dataflow.INPUT_STATIONARY:
            return -(-self._positions // self._hardware.columns)
        groups = self._hardware.columns // count if self._hardware.pack_columns else 1
        return -(-self._positions // (self._hardware.rows * groups))

    def _taps_along(self, axis: int, outputs: int, inputs: int) -> int:
        """Return the number of pairs of an output and a kernel position that meet an input."""
        layer, before = self._layer, int(self._job.padding[axis])
        return sum(
            0 <= output * layer.strides[axis] - before + tap * layer.dilation[axis] < inputs
            for output in range(outputs)
            for tap in range(layer.kernel[axis])
        )
