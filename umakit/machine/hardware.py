# SPDX-License-Identifier: Apache-2.0
"""The parameters of a systolic array that determine the cycles of a tile."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from umakit.errors import AcceleratorConfigError, InputError
from umakit.machine.accelerator_config import AcceleratorConfig
from umakit.machine.costs import Copy, Cost, TileSizes
from umakit.machine.description import Engine, Machine, Memory, Queue, Stream
from umakit.machine.layer import Kind, Layer
from umakit.machine.systolic import Dataflow, Product, SystolicArray, systolic_cycles
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
            return pool_cost(self, sizes.positions, layer.window, sizes.output_channels)
        depthwise = layer.kind is Kind.DEPTHWISE
        return array_cost(self, sizes.dataflow, sizes.product, depthwise=depthwise)

    def copy(self, copied: Copy) -> Cost:
        return transfer_cost(self, copied.planes, copied.rows, copied.row_bytes)

    @property
    def other_costs(self) -> str:  # type: ignore[override]
        """The reason why costs are not those of folds; empty unless a subclass has its own."""
        has_own = type(self).job is not Hardware.job or type(self).copy is not Hardware.copy
        return "the backend has costs of its own" if has_own else ""

    def cells_in(self, dataflow: Dataflow) -> SystolicArray:
        """Return the array in a dataflow, for its cycles in closed form."""
        return SystolicArray(
            self.rows, self.columns, dataflow, self.drain_cycles, self.preload, self.pack_columns,
            self.preload_rows,
        )  # fmt: skip

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


def array_of(machine: TileMachine) -> Hardware | None:
    """Return a machine as the systolic array that it is; None for any other machine."""
    return machine if isinstance(machine, Hardware) else None


def array_cost(
    hardware: Hardware, dataflow: Dataflow, product: Product, *, depthwise: bool = False
) -> Cost:
    """Return the cost of a convolution or dense layer, or of a tile.

    Args:
        product: m = positions of the result, n = output channels and k = kernel rows * kernel
            columns * input channels, or kernel rows * kernel columns of a depthwise convolution.
        depthwise: whether each channel has its own input.

    Raises:
        InputError: the hardware does not support the dataflow or depthwise convolutions.
    """
    if dataflow not in hardware.dataflows:
        names = ", ".join(each.value for each in hardware.dataflows)
        raise InputError(f"the array cannot be {dataflow.value}", fix=f"choose {names}")
    if depthwise and not hardware.depthwise:
        raise InputError("the array has no depthwise mode", fix="set depthwise = true in [array]")
    if depthwise and dataflow is Dataflow.INPUT_STATIONARY:
        raise InputError(
            "depthwise convolutions cannot be input_stationary: each input meets one weight only",
            fix="choose another dataflow",
        )
    found = systolic_cycles(product, hardware.cells_in(dataflow))
    busy = hardware.array_setup_cycles + found.cycles - found.tail_cycles
    return Cost(busy, found.tail_cycles, found.macs)


def pool_cost(hardware: Hardware, positions: int, window: int, channels: int) -> Cost:
    """Return the cost of a pooling layer, or of a tile.

    Args:
        positions: rows * columns of the result.
        window: kernel rows * kernel columns.

    Raises:
        InputError: the hardware has no pooling stage.
    """
    if not hardware.pooling_lanes:
        raise InputError("there is no pooling stage", fix="set pooling_lanes in [array]")
    cycles = positions * window * -(-channels // hardware.pooling_lanes)
    return Cost(hardware.array_setup_cycles + cycles, 0)


def transfer_cost(hardware: Hardware, planes: int, rows: int, row_bytes: int) -> Cost:
    """Return the cost of a transfer between the bus and the scratchpad.

    Args:
        planes: number of planes of `rows` rows, each of `row_bytes` contiguous bytes.
    """
    setup, row_cycles = hardware.dma_setup_cycles, -(-row_bytes // hardware.bytes_per_cycle)
    if hardware.outstanding:
        return Cost(setup + planes * rows * row_cycles, hardware.latency_cycles)
    bursts = -(-row_bytes // (hardware.burst_bytes or row_bytes))
    return Cost(setup + planes * rows * (bursts * hardware.latency_cycles + row_cycles), 0)


@dataclass(frozen=True)
class ArrayBound:
    """A lower bound of a layer's cycles on a systolic array.

    Attributes:
        dataflow: name of the dataflow whose bound is the smallest; None for pools, which use none.
        folds: the fewest folds in it; 0 for pools.
        array: the fewest cycles that jobs occupy the array, or the pooling stage, in it.
        first_load: the fewest cycles until the first job can start.
        drain: the fewest cycles from the end of the last job's folds until its results have left.
        last_store: the fewest cycles from there until the last tile of the result is stored.
        bus: the fewest cycles that the traffic on the bus takes.
        cycles: the bound.
    """

    dataflow: str | None
    folds: int
    array: int
    first_load: int
    drain: int
    last_store: int
    bus: int
    cycles: int


@dataclass(frozen=True)
class ArrayWork:
    """The least array cycles of a layer in one dataflow.

    Attributes:
        dataflow: the dataflow; None for pools.
        folds: folds of all images.
        busy: cycles that jobs occupy the array.
        tail: cycles from the end of a job until the results have left the array.
        smallest: cycles of the smallest job without the tail.
    """

    dataflow: Dataflow | None
    folds: int
    busy: int
    tail: int
    smallest: int


def array_bound(hardware: Hardware, layer: Layer) -> ArrayBound:
    """Return the bound of a layer on a systolic array, in cycles.

    Raises:
        ValueError: no dataflow of the array computes the layer.
    """
    bounds = [_bound(hardware, layer, work) for work in works_of(hardware, layer)]
    return min(bounds, key=lambda bound: bound.cycles)


def works_of(hardware: Hardware, layer: Layer) -> list[ArrayWork]:
    """Return the least array work of a layer, in each dataflow that can compute the layer."""
    if layer.is_pool:
        lanes = hardware.pooling_lanes or 1
        smallest = layer.window
        busy = _positions(layer) * layer.window * -(-layer.output_channels // lanes)
        return [ArrayWork(None, 0, layer.images * busy, 0, smallest)]
    per_channel = layer.kind is Kind.DEPTHWISE
    flows = [
        flow
        for flow in hardware.dataflows
        if not (per_channel and flow is Dataflow.INPUT_STATIONARY)
    ]
    return [_work(hardware, layer, flow) for flow in flows]


def _positions(layer: Layer) -> int:
    return layer.output_size[0] * layer.output_size[1]


def _work(hardware: Hardware, layer: Layer, flow: Dataflow) -> ArrayWork:
    rows, columns = hardware.rows, hardware.columns
    positions, channels = _positions(layer), layer.output_channels
    least = _least_products(hardware, layer)
    products = layer.window * (layer.input_channels if layer.kind is Kind.CONVOLUTION else 1)
    if flow is Dataflow.OUTPUT_STATIONARY:
        folds, through, smallest = _output_folds(hardware, positions, channels), products, least
        enters = 0
    elif flow is Dataflow.WEIGHT_STATIONARY:
        folds = _parts(products, rows) * _parts(channels, columns)
        through, smallest, enters = positions, 1, rows
    else:
        folds = _parts(products, rows) * _parts(positions, columns)
        through, smallest, enters = channels, 1, rows
    if hardware.preload:
        enters = _parts(enters, hardware.preload_rows)
    tail = enters + rows + columns - 2 + hardware.drain_cycles
    folds *= layer.images
    if hardware.preload:
        least_fold = max(smallest, enters)
        return ArrayWork(flow, folds, folds * max(through, enters), tail, least_fold)
    return ArrayWork(flow, folds, folds * (tail + through), 0, tail + smallest)


def _output_folds(hardware: Hardware, positions: int, channels: int) -> int:
    """Return the fewest folds of one image with the output stationary."""
    blocks, rest = divmod(channels, hardware.columns)
    folds = blocks * _parts(positions, hardware.rows)
    if rest:
        groups = hardware.columns // rest if hardware.pack_columns else 1
        folds += _parts(positions, hardware.rows * groups)
    return folds


def _least_products(hardware: Hardware, layer: Layer) -> int:
    """Return the fewest products per result element of one job: the products of one input channel
    where a memory keeps partial sums, else all products."""
    cut = hardware.accumulator_bytes > 0 or layer.kind is not Kind.CONVOLUTION
    return layer.window * (1 if cut else layer.input_channels)


def _bound(hardware: Hardware, layer: Layer, work: ArrayWork) -> ArrayBound:
    # The last block of channels may be the smallest tile; of data it may need a single byte.
    block = layer.output_channels % hardware.columns or hardware.columns
    smallest = [1]
    if not layer.is_pool:
        smallest += [_least_products(hardware, layer) * block, 4 * block]
    latency = hardware.latency_cycles if hardware.outstanding else 0
    first_load = sum(_copy(hardware, size) for size in smallest) + latency
    last_store = _copy(hardware, block) + latency
    loads = [size for name, size in layer.compulsory.items() if size and name != "result"]
    loaded = sum(_copy(hardware, size) for size in loads)
    stored = _copy(hardware, layer.result_bytes)
    if not hardware.command_queue:
        array = work.busy + work.tail
        bus = loaded + stored + (len(loads) + 1) * latency
        cycles = array + bus
    else:
        array = first_load + work.busy + work.tail + last_store
        last = loaded + latency + work.smallest + work.tail + last_store
        bus = max(loaded + stored + latency, last)
        cycles = max(array, bus)
    name = work.dataflow.value if work.dataflow else None
    return ArrayBound(name, work.folds, work.busy, first_load, work.tail, last_store, bus, cycles)


def _copy(hardware: Hardware, size: int) -> int:
    """Return the fewest cycles that copies of so many bytes occupy the DMA engine."""
    cycles = _parts(size, hardware.bytes_per_cycle)
    if hardware.outstanding:
        return cycles
    return cycles + hardware.latency_cycles * _parts(size, hardware.burst_bytes or size)


def _parts(size: int, part: int) -> int:
    return -(-size // part)
