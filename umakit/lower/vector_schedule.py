# SPDX-License-Identifier: Apache-2.0
"""Loop schedules for CPUs with vector registers: tiles of sums that stay in registers.

A convolution in NHWC, depthwise or not, and a matrix product are computed in tiles of some
positions by some channels. The sums of a tile are a local array, whose accesses are vectors at
constant indices, so that compilers keep it in registers; each product loads a vector of weights
once for all positions of the tile, and a number of the data once for all its channels:

    for row, column tile, channel tile:
        sums = 0
        for kernel row, kernel column, input channel:
            for position of the tile (unrolled), vector of channels:
                sums += data * weights
        result = what follows, element by element

The tile is chosen by the number of vector registers: the loads for each product are fewest where
`(positions + vectors) / (positions * vectors)` is, as in the analysis of K. Goto and R. van de
Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 34(3), 2008.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from umakit import tvm_api
from umakit.lower.schedule import (
    attempt,
    inline_elementwise,
    is_padding,
    is_reduction,
    reductions_of,
    schedule_reduction,
)
from umakit.machine.cpu import Cpu

LARGEST_ROW = 128
"""Channels of a matrix product's tile: enough for a cache line of each row of weights."""


@dataclass(frozen=True)
class Tile:
    """The sums that a kernel keeps in registers.

    Attributes:
        positions: positions of the result.
        channels: channels of each, a multiple of `lanes`.
        lanes: channels of a vector; 1 for none.
    """

    positions: int
    channels: int
    lanes: int


def choose_tile(cpu: Cpu, positions: int, row: int, channels: int) -> Tile:
    """Return the tile with the fewest loads for each product that fits the registers.

    Args:
        cpu: the CPU.
        positions: positions along the loop that is cut, of which a tile takes a divisor.
        row: positions of a row of the result. A tile lies within a row or takes whole rows.
        channels: output channels, of which a tile takes a divisor.
    """
    lanes = next((n for n in _halves(cpu.float_lanes) if channels % n == 0), 1)
    best, fewest = Tile(1, lanes, lanes), 2.0
    for width in _divisors(channels):
        vectors = width // lanes
        if width % lanes or vectors > 4:
            continue
        for length in _divisors(positions):
            if row % length and length % row:
                continue
            registers = length * vectors + vectors + 1
            if registers > cpu.vector_registers:
                continue
            loads = (length + vectors) / (length * vectors)
            if length * vectors < 8:  # too few sums to hide the latency of a multiply-add
                loads += 0.5
            if loads < fewest:
                best, fewest = Tile(length, width, lanes), loads
    return best


def _halves(number: int) -> list[int]:
    found = []
    while number > 1:
        found.append(number)
        number //= 2
    return found


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, min(number, 64) + 1) if number % n == 0]


def schedule_with_vectors(
    function: tvm_api.PrimFunc, cpu: Cpu, constants: Collection[int] = ()
) -> tvm_api.PrimFunc:
    """Schedule a prim func of fused operators for a CPU with vector registers.

    Kernels without a rule here are scheduled as those of any CPU.

    Args:
        function: the prim func.
        cpu: the CPU.
        constants: parameters that are constants in all calls. Weights among them are read tile by
            tile, `Facts.packed` says which.
    """
    attributes = function.attrs
    schedule = tvm_api.Schedule(tvm_api.IRModule({"main": function}))
    if not attempt(schedule.get_sblock, "root"):
        return function  # written as loops, not as blocks
    inline_elementwise(schedule)
    reductions = reductions_of(schedule)
    packing = _Packing(function, constants)
    is_tiled = len(reductions) == 1 and _tile_reduction(schedule, reductions[0], cpu, packing)
    if not is_tiled:
        for reduction in reductions:
            schedule_reduction(schedule, reduction)
    scheduled = schedule.mod["main"]
    scheduled = scheduled.with_attrs(dict(attributes)) if attributes else scheduled
    facts = Facts(cpu.register_bytes, packing.packed)
    return scheduled.with_attr(FACTS, facts.text) if is_tiled else scheduled


FACTS = "umakit.vector_schedule"
"""Attribute of a prim func that was scheduled with vectors: its `Facts` as text."""


@dataclass(frozen=True)
class Facts:
    """What later stages have to know of a prim func that was scheduled with vectors.

    Attributes:
        register_bytes: most bytes of an array of sums that becomes a local variable.
        packed: parameters that are weights [KH, KW, I, O] in their type and are read as
            [O / channels, KH, KW, I, channels], with these channels.
    """

    register_bytes: int = 0
    packed: tuple[tuple[int, int], ...] = ()

    @property
    def text(self) -> str:
        """The facts as text."""
        return json.dumps([self.register_bytes, self.packed])

    @classmethod
    def of(cls, function: tvm_api.PrimFunc) -> Facts:
        """Return the facts of a prim func; those of another one are empty."""
        text = tvm_api.function_attribute(function, FACTS)
        if text is None:
            return cls()
        register_bytes, packed = json.loads(str(text))
        return cls(register_bytes, tuple((number, channels) for number, channels in packed))


class _Packing:
    """Weights that are read tile by tile: rows of a tile lie next to each other then, and not in
    the same few sets of a cache."""

    def __init__(self, function: tvm_api.PrimFunc, constants: Collection[int]) -> None:
        names = [str(parameter.name) for parameter in function.params]
        self._numbers = {name: n for n, name in enumerate(names) if n in constants}
        self.packed: tuple[tuple[int, int], ...] = ()

    def pack(
        self, schedule: tvm_api.Schedule, block: Any, channels: int, all_channels: int
    ) -> None:
        """Let a convolution read its weights in tiles of some channels."""
        reads = [str(region.source.name) for region in schedule.get(block).reads]
        found = [n for n, name in enumerate(reads) if name in self._numbers]
        if len(found) != 1 or channels == all_channels:
            return

        def tiled(row: Any, column: Any, i: Any, o: Any) -> list[Any]:
            return [o // channels, row, column, i, o % channels]

        if attempt(schedule.transform_layout, block, ("read", found[0]), tiled):
            self.packed = ((self._numbers[reads[found[0]]], channels),)


def _extent(schedule: tvm_api.Schedule, loop: Any) -> int:
    return tvm_api.integer_value(schedule.get(loop).extent) or 0


def _tile_reduction(schedule: tvm_api.Schedule, block: Any, cpu: Cpu, packing: _Packing) -> bool:
    """Tile a convolution or a matrix product; whether it is one."""
    name = str(schedule.get(block).name_hint)
    if "float32" not in str(tvm_api.buffer_dtype(schedule.get(block).writes[0].source)):
        return False
    loops = schedule.get_loops(block)
    axes = schedule.get(block).iter_vars
    if len(loops) != len(axes):
        return False
    outer = [n for n, axis in zip(loops, axes, strict=True) if int(axis.iter_type) == 0]
    inner = [n for n, axis in zip(loops, axes, strict=True) if int(axis.iter_type) != 0]
    consumers = list(schedule.get_consumers(block))
    if len(consumers) > 1 or (consumers and is_reduction(schedule, consumers[0])):
        return False
    if not outer or not _is_contiguous(schedule, block, axes[len(outer) - 1].var):
        return False
    if "conv2d_nhwc" in name and len(outer) == 4:
        return _tile_convolution(schedule, block, outer, inner, cpu, packing)
    if "matmul" in name and len(inner) == 1:
        return _tile_product(schedule, block, outer, inner, cpu)
    return False


def _is_contiguous(schedule: tvm_api.Schedule, block: Any, channel: Any) -> bool:
    """Whether what a sum reads for several channels lies next to each other.

    That is not so for data of groups, or for a matrix that is read transposed.
    """
    for load in tvm_api.collect(schedule.get(block).body, tvm_api.TensorLoad):
        *others, last = list(load.indices)
        if any(channel in tvm_api.collect(index, tvm_api.Var) for index in others):
            return False
        terms = [last.a, last.b] if isinstance(last, tvm_api.tirx.Add) else [last]
        of_channel = [term for term in terms if channel in tvm_api.collect(term, tvm_api.Var)]
        if of_channel and not (len(of_channel) == 1 and of_channel[0].same_as(channel)):
            return False
    return True


def _tile_convolution(
    schedule: tvm_api.Schedule,
    block: Any,
    outer: list[Any],
    inner: list[Any],
    cpu: Cpu,
    packing: _Packing,
) -> bool:
    image, row, column, channel = outer
    paddings = [p for p in schedule.get_producers(block) if is_padding(schedule, p)]
    width, rows = _extent(schedule, column), _extent(schedule, row)
    is_pointwise = not paddings and all(_extent(schedule, n) == 1 for n in inner[:2])
    weights = _weight_bytes(schedule, inner, channel)
    tile = choose_tile(
        cpu, width * rows if is_pointwise else width, width, _extent(schedule, channel)
    )
    if tile.lanes == 1:
        return False
    packing.pack(schedule, block, tile.channels, _extent(schedule, channel))
    result = _result_of(schedule, block)
    around = [image]
    if is_pointwise:
        column = schedule.fuse(row, column)
    else:
        around.append(row)
    columns, position = schedule.split(column, [None, tile.positions])
    channels, lane = schedule.split(channel, [None, tile.channels])
    order = [*around, columns, channels]
    if weights > cpu.cache_bytes // 2:
        order = [channels, *around, columns]  # each weight is loaded from memory once
    schedule.reorder(*order, *inner, position, lane)
    for padding in paddings:
        schedule.compute_at(padding, around[-1])
        _split_padding(schedule, padding, around[-1])
    schedule.reverse_compute_at(result, order[-1])
    _vectorize_result(schedule, result, tile.lanes)
    _use_registers(schedule, block, inner[0], position, lane, tile.lanes)
    return True


def _split_padding(schedule: tvm_api.Schedule, padding: Any, place: Any) -> None:
    """Fill padding with its value first and copy what is inside then, without conditions."""
    loops = schedule.get_loops(padding)
    inside = [n for n, each in enumerate(loops) if schedule.get(each).same_as(schedule.get(place))]
    if inside and inside[0] + 1 < len(loops):
        attempt(schedule.decompose_padding, padding, loops[inside[0] + 1])


def _tile_product(
    schedule: tvm_api.Schedule, block: Any, outer: list[Any], inner: list[Any], cpu: Cpu
) -> bool:
    *around, channel = outer
    channels_count = _extent(schedule, channel)
    positions = _extent(schedule, around[-1]) if around else 1
    tile = choose_tile(cpu, positions, positions, channels_count)
    if tile.lanes == 1:
        return False
    result = _result_of(schedule, block)
    position = None
    if around and positions > 1:
        last, position = schedule.split(around[-1], [None, tile.positions])
        around = [*around[:-1], last]
        size = tile.channels
    else:
        most = min(LARGEST_ROW, (cpu.vector_registers - 2) * tile.lanes)
        size = max(n for n in range(tile.lanes, most + 1) if channels_count % n == 0
                   and n % tile.lanes == 0)  # fmt: skip
    channels, lane = schedule.split(channel, [None, size])
    order = [*around, channels]
    between = [] if position is None else [position]
    schedule.reorder(*order, *inner, *between, lane)
    schedule.reverse_compute_at(result, order[-1])
    _vectorize_result(schedule, result, tile.lanes)
    _use_registers(schedule, block, inner[0], position, lane, tile.lanes)
    return True


PLAIN = ("Add", "Sub", "Mul", "Max", "Min", "TensorLoad", "FloatImm", "IntImm", "Var")
"""Expressions that are the same for vectors; indices are of these, too."""


def _vectorize_result(schedule: tvm_api.Schedule, result: Any, lanes: int) -> None:
    """Let what follows the sums compute vectors, if it consists of operators that vectors have.

    Where the last tile has channels that the result has not, vectors are so narrow that all of
    each are in it.
    """
    store = schedule.get(result).body
    axes, loops = schedule.get(result).iter_vars, schedule.get_loops(result)
    if not isinstance(store, tvm_api.tirx.BufferStore) or not axes:
        return
    expressions = [store.value, *store.indices]
    kinds = {type(each).__name__ for each in tvm_api.collect(expressions, tvm_api.PrimExpr)}
    if not kinds <= set(PLAIN) or not _is_last_index(store, axes[-1].var):
        return
    shape = tvm_api.buffer_shape(store.buffer)
    width = lanes
    while width > 1 and (shape[-1] % width or _extent(schedule, loops[-1]) % width):
        width //= 2
    if width > 1:
        _, lane = schedule.split(loops[-1], [None, width])
        schedule.vectorize(lane)


def _is_last_index(store: tvm_api.Stmt, channel: Any) -> bool:
    """Whether channels are the last axis of all that is read and written, and of nothing else."""
    loads = tvm_api.collect(store.value, tvm_api.TensorLoad)
    accesses = [list(store.indices), *(list(load.indices) for load in loads)]
    for indices in accesses:
        *others, last = indices
        if any(channel in tvm_api.collect(index, tvm_api.Var) for index in others):
            return False
        if not last.same_as(channel) and channel in tvm_api.collect(last, tvm_api.Var):
            return False
    return True


def _weight_bytes(schedule: tvm_api.Schedule, inner: list[Any], channel: Any) -> int:
    size = 4 * _extent(schedule, channel)
    for loop in inner:
        size *= _extent(schedule, loop)
    return size


def _result_of(schedule: tvm_api.Schedule, block: Any) -> Any:
    """Return the block that stores the result: what follows the sums, or a copy of them."""
    consumers = list(schedule.get_consumers(block))
    return consumers[0] if consumers else schedule.cache_write(block, 0, "global")


def _use_registers(
    schedule: tvm_api.Schedule, block: Any, first: Any, position: Any | None, lane: Any, lanes: int
) -> None:
    """Make the innermost loops vectors at constant indices."""
    if _extent(schedule, lane) > lanes:
        vectors, lane = schedule.split(lane, [None, lanes])
        schedule.unroll(vectors)
    schedule.vectorize(lane)
    if position is not None:
        schedule.unroll(position)
    schedule.decompose_reduction(block, first)
