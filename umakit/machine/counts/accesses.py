# SPDX-License-Identifier: Apache-2.0
"""Accesses of a systolic array's commands to its memories, in closed form.

The first comment of `sim/src/umakit_systolic_accesses.c` describes the model. The scratchpad is as
wide as the bus, the accumulator memory as the sums of a row of cells.
"""

from __future__ import annotations

from dataclasses import dataclass

from umakit.machine.costs import TileSizes
from umakit.machine.counts.events import NO_ACCESSES, MemoryCounts
from umakit.machine.hardware import Hardware
from umakit.machine.layer import Kind, Layer
from umakit.machine.requirements import Job
from umakit.machine.systolic import Dataflow, SystolicArray, systolic_cycles


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
    array = SystolicArray(
        hardware.rows, hardware.columns, sizes.dataflow, pack_columns=hardware.pack_columns
    )
    found = systolic_cycles(sizes.product, array)
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
