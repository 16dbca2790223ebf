# SPDX-License-Identifier: Apache-2.0
"""The requirements of a tile: memory, transfers, and a job of the array.

Numbers are integers, or TIR expressions of the tile's coordinates; see `index_arithmetic`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from umakit import tir, tvm_api

Number = Any
"""An int or a TIR expression of int32."""


def minimum(left: Number, right: Number) -> Number:
    """Return the smaller operand."""
    if isinstance(left, int) and isinstance(right, int):
        return min(left, right)
    return tvm_api.tirx.min(left, right)


def maximum(left: Number, right: Number) -> Number:
    """Return the larger operand."""
    if isinstance(left, int) and isinstance(right, int):
        return max(left, right)
    return tvm_api.tirx.max(left, right)


def floor_div(left: Number, right: int) -> Number:
    """Return the quotient left / right, rounded down."""
    if isinstance(left, int) or right == 1:
        return left // right if isinstance(left, int) else left
    return tvm_api.tirx.floordiv(left, right)


def floor_mod(left: Number, right: int) -> Number:
    """Return the remainder left - right * floor_div(left, right)."""
    return left % right if isinstance(left, int) else tvm_api.tirx.floormod(left, right)


def times(value: Number, name: str, factor: int) -> Number:
    """Return value * factor; the factor gets a name in generated C."""
    return value * (factor if isinstance(value, int) else tir.constant(name, factor))


def named(name: str, value: Number) -> Number:
    """Return a value with a name in generated C; an int stays as it is."""
    return value if isinstance(value, int) else tir.named(name, value)


@dataclass(frozen=True)
class Transfer:
    """A DMA command: planes of rows of bytes, contiguous in the scratchpad.

    Attributes:
        offset: byte offset of the first byte in the tensor.
        place: byte offset of the first byte in the tile's buffer.
        planes, rows, row_bytes: number of planes, of rows per plane and of bytes per row.
        plane_stride, row_stride: distance in bytes from one plane or row to the next in the tensor.
    """

    offset: Number
    place: Number
    planes: Number
    rows: Number
    row_bytes: Number
    plane_stride: int
    row_stride: int

    @property
    def arguments(self) -> list[Number]:
        """All fields in their order, as the arguments of a driver call."""
        return [
            self.offset, self.place, self.planes, self.rows, self.row_bytes, self.plane_stride,
            self.row_stride,
        ]  # fmt: skip


@dataclass(frozen=True)
class Job:
    """A command of the array. Places are byte offsets in the buffer of the same name.

    Attributes:
        data, weights, result, addend: places of the tile's operands.
        bias, multipliers, shifts: places in the buffer of parameters.
        input_size, output_size: height and width, without padding.
        input_channels, output_channels: channels of the tile.
        padding: rows above and columns left of the tile's data.
        scales: number of requantization multipliers of the tile.
        continues: 1 if the accumulator holds partial sums of an earlier step, else 0.
        keeps: 1 if partial sums stay in the accumulator for the next step, else 0.
    """

    data: Number
    weights: Number
    bias: Number
    multipliers: Number
    shifts: Number
    result: Number
    addend: Number
    input_size: tuple[Number, Number]
    input_channels: Number
    output_size: tuple[Number, Number]
    output_channels: Number
    padding: tuple[Number, Number]
    scales: Number
    continues: Number
    keeps: Number

    @property
    def arguments(self) -> list[Number]:
        """All fields in their order, as the arguments of a driver call."""
        return [
            self.data, self.weights, self.bias, self.multipliers, self.shifts, self.result,
            self.addend, *self.input_size, self.input_channels, *self.output_size,
            self.output_channels, *self.padding, self.scales, self.continues, self.keeps,
        ]  # fmt: skip


@dataclass(frozen=True)
class Buffer:
    """A scratchpad buffer for the tiles of one tensor.

    Attributes:
        tile_bytes: size of the largest tile, rounded up to whole banks or the alignment of tiles.
        tiles: number of tiles in the buffer, at least 2 with double buffering.
    """

    tile_bytes: int
    tiles: int

    @property
    def size(self) -> int:
        """The size of the buffer in bytes."""
        return self.tile_bytes * self.tiles
