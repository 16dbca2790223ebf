# SPDX-License-Identifier: Apache-2.0
"""A lower bound of a layer's cycles on a systolic array: folds, drain, first load and last store.

The bound holds for every tiling of a layer that starts on an idle machine and ends with its result
in main memory, in the best dataflow of the array. R and C are rows and columns of cells. Per image,
M is the number of positions, N the number of channels of the result, and K the number of products
per result element.

**Folds.** A fold holds at most R positions x one block of C channels (output stationary), R
products x one block (weight stationary), or R products x C positions (input stationary). Blocks are
the blocks of stored weights. In any tiling, each block meets M positions, which takes at least
ceil(M / R) folds. So the layer takes ceil(M / R) * ceil(N / C) folds; weight stationary takes
ceil(K / R) * ceil(N / C), and input stationary ceil(K / R) * ceil(M / C). If further positions use
the free columns of the last block, this block needs ceil(M / (R * floor(C / rest))) folds instead.
Operands move through the folds of a block at one step per cycle, independent of the tiling. With
`preload`, a fold lasts at least as long as the load of the next stationary operand; without, each
fold is filled and drained.

**Ways in and out.** The array starts after the operands of the smallest job have arrived. The last
job leaves the array (fill, drain) before the smallest tile of the result is stored:

    first load + folds + drain + last store

**The bus.** All bytes cross the bus. The last operand feeds at least one job, whose result is
stored afterwards:

    max(all copies + latency, all loads + latency + smallest job + drain + last store)

The larger value is the bound of a dataflow. The smallest bound over all dataflows is the bound of
the layer. Without a command queue nothing overlaps, and all copies and jobs add up. Cycles of a
fold follow SCALE-Sim (A. Samajdar et al., ISPASS 2020) with the options of `[array]`. Register
accesses of the driver are free.
"""

from __future__ import annotations

from dataclasses import dataclass

from umakit.machine.hardware import Hardware
from umakit.machine.layer import Kind, Layer
from umakit.machine.systolic import Dataflow


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
