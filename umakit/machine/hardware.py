# SPDX-License-Identifier: Apache-2.0
"""umakit's systolic array as a machine: the cycles, bounds and accesses of its jobs and copies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from umakit.errors import AcceleratorConfigError, InputError
from umakit.machine.accelerator_config import AcceleratorConfig
from umakit.machine.costs import Copy, Cost, TileSizes
from umakit.machine.description import Engine, Machine, Memory, Queue, Stream
from umakit.machine.energy import NO_ACCESSES, JobCounts, MemoryCounts
from umakit.machine.layer import Kind, Layer
from umakit.machine.requirements import Job
from umakit.machine.systolic import (
    ArrayBound,
    ArrayWork,
    Dataflow,
    Product,
    SystolicArray,
    SystolicCycles,
    systolic_cycles,
)
from umakit.machine.tile_machine import SUM_BYTES, TileMachine


@dataclass(frozen=True)
class Hardware(TileMachine):
    """A systolic array with a banked scratchpad, a DMA engine and a command queue.

    Attributes have the meaning and the defaults of the sections `[array]` (`array_setup_cycles` is
    its `setup_cycles`), `[dma]` (`dma_setup_cycles`) and `[device]` of `accel.toml`, see
    `umakit.machine.accelerator_config`. With `preload` operands of the next job enter too.

    Attributes:
        scratchpad_bytes: total size of all banks.
        scratchpad_banks: number of banks of equal size; each serves either the array or the DMA
            engine at a time.
    """

    rows: int
    columns: int
    scratchpad_bytes: int
    scratchpad_banks: int = 1
    dataflows: tuple[Dataflow, ...] = (Dataflow.OUTPUT_STATIONARY,)
    drain_cycles: int = 0
    preload: bool = False
    preload_rows: int = 1
    pack_columns: bool = False
    depthwise: bool = False
    pooling_lanes: int = 0
    accumulator_bytes: int = 0
    array_setup_cycles: int = 0
    bytes_per_cycle: int = 4
    latency_cycles: int = 0
    burst_bytes: int = 0
    outstanding: bool = False
    dma_setup_cycles: int = 0
    alignment: int = 1
    command_queue: int = 0
    completion: Literal["interrupt", "polling"] = "interrupt"

    most_positions = 0xFFFF  # size registers have 16 bits

    @property
    def cells(self) -> int:
        """The number of multiply-accumulate units; each does one operation per cycle."""
        return self.rows * self.columns

    @property
    def bank_bytes(self) -> int:
        """The size of one bank of the scratchpad in bytes."""
        return self.scratchpad_bytes // self.scratchpad_banks

    @cached_property
    def machine(self) -> Machine:
        """The array and the DMA engine as a machine, with the streams array, load and store."""
        transfers = (Stream("load", "load"), Stream("store", "store"))
        return Machine(
            (Memory("scratchpad", self.scratchpad_bytes, self.scratchpad_banks),),
            (
                Engine("array", (Stream("array", "compute"),), "commands", 1 + self.preload),
                Engine("dma", transfers, "commands", 1 + self.outstanding),
            ),
            (Queue("commands", self.command_queue, self.completion),),
        )

    @property
    def block_channels(self) -> int:  # type: ignore[override]  # the channels of a fold
        return self.columns

    @property
    def macs_per_cycle(self) -> int:  # type: ignore[override]
        return self.cells

    @property
    def sum_bytes(self) -> int:  # type: ignore[override]
        return self.accumulator_bytes

    def sums(self, sizes: TileSizes, steps: int) -> int:
        """Return the bytes of accumulators that a tile needs.

        A tile in several steps needs all of its sums, other tiles only the sums that the array
        cannot hold.
        """
        positions, channels = sizes.positions, sizes.output_channels
        if steps > 1:
            return SUM_BYTES * positions * channels
        if self.accumulator_bytes == 0 or sizes.dataflow is Dataflow.OUTPUT_STATIONARY:
            return 0
        if sizes.dataflow is Dataflow.WEIGHT_STATIONARY:
            return SUM_BYTES * positions * min(channels, self.columns)
        return SUM_BYTES * min(positions, self.columns) * channels

    def job(self, sizes: TileSizes) -> Cost:
        layer = sizes.layer
        if layer.is_pool:
            return self.pool_cost(sizes.positions, layer.window, sizes.output_channels)
        depthwise = layer.kind is Kind.DEPTHWISE
        return self.array_cost(sizes.dataflow, sizes.product, depthwise=depthwise)

    def copy(self, copied: Copy) -> Cost:
        return self.transfer_cost(copied.planes, copied.rows, copied.row_bytes)

    def array_cost(self, dataflow: Dataflow, product: Product, *, depthwise: bool = False) -> Cost:
        """Return the cost of the product of a convolution or dense layer, or of a tile.

        Raises:
            InputError: the array does not support the dataflow or depthwise convolutions.
        """
        if dataflow not in self.dataflows:
            names = ", ".join(each.value for each in self.dataflows)
            raise InputError(f"the array cannot be {dataflow.value}", fix=f"choose {names}")
        if depthwise and not self.depthwise:
            raise InputError(
                "the array has no depthwise mode", fix="set depthwise = true in [array]"
            )
        if depthwise and dataflow is Dataflow.INPUT_STATIONARY:
            raise InputError(
                "depthwise convolutions cannot be input_stationary: each input meets one weight "
                "only",
                fix="choose another dataflow",
            )
        found = self._cycles(dataflow, product)
        return Cost(self.array_setup_cycles + found.busy_cycles, found.tail_cycles, found.macs)

    def pool_cost(self, positions: int, window: int, channels: int) -> Cost:
        """Return the cost of a pooling layer, or of a tile, with windows of `window` elements.

        Raises:
            InputError: the hardware has no pooling stage.
        """
        if not self.pooling_lanes:
            raise InputError("there is no pooling stage", fix="set pooling_lanes in [array]")
        cycles = positions * window * -(-channels // self.pooling_lanes)
        return Cost(self.array_setup_cycles + cycles, 0)

    def transfer_cost(self, planes: int, rows: int, row_bytes: int) -> Cost:
        """Return the cost of a copy of planes of rows of contiguous bytes."""
        setup, row_cycles = self.dma_setup_cycles, -(-row_bytes // self.bytes_per_cycle)
        if self.outstanding:
            return Cost(setup + planes * rows * row_cycles, self.latency_cycles)
        bursts = -(-row_bytes // (self.burst_bytes or row_bytes))
        return Cost(setup + planes * rows * (bursts * self.latency_cycles + row_cycles), 0)

    def _cycles(self, dataflow: Dataflow, product: Product) -> SystolicCycles:
        array = SystolicArray(
            self.rows, self.columns, dataflow, self.drain_cycles, self.preload, self.pack_columns,
            self.preload_rows,
        )  # fmt: skip
        return systolic_cycles(product, array)

    @property
    def other_costs(self) -> str:  # type: ignore[override]
        """The reason why costs are not those of folds; empty unless a subclass has its own."""
        has_own = type(self).job is not Hardware.job or type(self).copy is not Hardware.copy
        return "the backend has costs of its own" if has_own else ""

    # --- bounds ---------------------------------------------------------------------------------

    def array_works(self, layer: Layer) -> list[ArrayWork]:
        if self.other_costs:
            return []
        if layer.is_pool:
            lanes = self.pooling_lanes or 1
            busy = layer.product.m * layer.window * -(-layer.output_channels // lanes)
            return [ArrayWork(None, 0, layer.images * busy, 0, layer.window)]
        never = Dataflow.INPUT_STATIONARY if layer.kind is Kind.DEPTHWISE else None
        works = []
        for flow in self.dataflows:
            if flow is not never:
                whole = self._cycles(flow, layer.product)
                is_summed = flow is Dataflow.OUTPUT_STATIONARY
                smallest = Product(1, 1, self._least_products(layer) if is_summed else 1)
                works.append(
                    ArrayWork(
                        flow, layer.images * whole.folds, layer.images * whole.busy_cycles,
                        whole.tail_cycles, self._cycles(flow, smallest).busy_cycles,
                    )
                )  # fmt: skip
        return works

    def array_bound(self, layer: Layer) -> ArrayBound | None:
        bounds = [self._bound(layer, work) for work in self.array_works(layer)]
        return min(bounds, key=lambda bound: bound.cycles, default=None)

    def _least_products(self, layer: Layer) -> int:
        """Return the fewest products per result element of one job: the products of one input
        channel where a memory keeps partial sums, else all products."""
        return layer.window if self.accumulator_bytes else layer.product.k

    def _bound(self, layer: Layer, work: ArrayWork) -> ArrayBound:
        # The last block of channels may be the smallest tile; of data it may need a single byte.
        block = layer.output_channels % self.columns or self.columns
        smallest = [1]
        if not layer.is_pool:
            smallest += [self._least_products(layer) * block, 4 * block]
        latency = self.latency_cycles if self.outstanding else 0
        first_load = sum(map(self._copy_cycles, smallest)) + latency
        last_store = self._copy_cycles(block) + latency
        loads = [size for name, size in layer.compulsory.items() if size and name != "result"]
        loaded = sum(map(self._copy_cycles, loads))
        stored = self._copy_cycles(layer.result_bytes)
        if not self.command_queue:
            array = work.busy + work.tail
            bus = loaded + stored + (len(loads) + 1) * latency
            cycles = array + bus
        else:
            array = first_load + work.busy + work.tail + last_store
            last = loaded + latency + work.smallest + work.tail + last_store
            bus = max(loaded + stored + latency, last)
            cycles = max(array, bus)
        name = work.dataflow.value if work.dataflow else None
        return ArrayBound(
            name, work.folds, work.busy, first_load, work.tail, last_store, bus, cycles
        )

    def _copy_cycles(self, size: int) -> int:
        """Return the fewest cycles that copies of so many bytes occupy the DMA engine."""
        return self.transfer_cost(1, 1, size).busy - self.dma_setup_cycles

    # --- counts ---------------------------------------------------------------------------------

    def job_counts(self, layer: Layer, dataflow: Dataflow, job: Job) -> JobCounts | None:
        lanes = self.pooling_lanes if layer.is_pool else self.columns
        accesses = _Scratchpad(self, layer, dataflow, job).counts(lanes)
        if layer.is_pool:
            return JobCounts(0, accesses, NO_ACCESSES)
        rows, columns = map(int, job.output_size)
        sizes = TileSizes(
            layer, dataflow, rows, columns, int(job.output_channels), int(job.input_channels)
        )
        return JobCounts(self.wasted_macs(sizes), accesses, self._sum_accesses(sizes, job))

    def wasted_macs(self, sizes: TileSizes) -> int:
        """Return the multiply-accumulate slots that the folds of a tile do not use."""
        if sizes.layer.is_pool:
            return 0
        found = self._cycles(sizes.dataflow, sizes.product)
        return found.slots - found.macs

    def _sum_accesses(self, sizes: TileSizes, job: Job) -> MemoryCounts:
        if not self.accumulator_bytes:
            return NO_ACCESSES
        product, folds = sizes.product, 1
        if sizes.dataflow is not Dataflow.OUTPUT_STATIONARY:
            folds = -(-product.k // self.rows)
        places = product.m * -(-product.n // self.columns)
        size = 4 * product.m * product.n
        reads, writes = folds - 1 + int(job.continues), folds - 1 + int(job.keeps)
        return MemoryCounts(reads * places, reads * size, writes * places, writes * size)

    @classmethod
    def of(cls, config: AcceleratorConfig) -> Hardware:
        """Return the parameters of an `accel.toml`.

        Raises:
            AcceleratorConfigError: the file declares no array, or not exactly one scratchpad.
        """
        array, dma, device = config.array, config.dma, config.device
        if not config.has_array:
            raise AcceleratorConfigError(
                "tiles need an [array]",
                where=config.accelerator.name,
                fix="add its rows and columns, or cut the layers without umakit's planner",
            )
        if len(config.scratchpads) != 1:
            raise AcceleratorConfigError(
                f"tiles need one scratchpad, not {len(config.scratchpads)}",
                where=config.accelerator.name,
                fix='add a [[memory]] with address = "offset"',
            )
        (scratchpad,) = config.scratchpads
        assert scratchpad.size is not None  # the configuration checks the size
        return cls(
            **array.model_dump(exclude={"dataflow", "dataflows", "setup_cycles"}),
            **dma.model_dump(exclude={"setup_cycles"}),
            **device.model_dump(exclude={"simulator"}),
            scratchpad_bytes=scratchpad.size,
            scratchpad_banks=scratchpad.banks,
            dataflows=tuple(map(Dataflow, array.allowed_dataflows)),
            array_setup_cycles=array.setup_cycles,
            dma_setup_cycles=dma.setup_cycles,
        )


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
