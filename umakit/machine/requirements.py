# SPDX-License-Identifier: Apache-2.0
"""What a tile requires: memory, transfers, and a job of the array.

Numbers are integers, or TIR expressions of the tile's coordinates; see `index_arithmetic`.
"""

from __future__ import annotations

from dataclasses import dataclass

from umakit.machine.index_arithmetic import Number


@dataclass(frozen=True)
class Transfer:
    """A DMA command: planes of rows of bytes, which lie close together in the scratchpad.

    Attributes:
        offset: of the first byte, from the start of the tensor.
        place: of the first byte, from the start of the tile's buffer.
        planes, rows, row_bytes: how many.
        plane_stride, row_stride: bytes from one to the next, in the tensor.
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
    """A command of the array. Places are bytes from the start of the buffer of that name.

    Attributes:
        data, weights, result, addend: places of the tile's operands.
        bias, multipliers, shifts: places in the buffer of parameters.
        input_size, output_size: height and width; without padding.
        input_channels, output_channels: of the tile.
        padding: above and left of the tile's data.
        scales: number of multipliers.
        continues: whether partial sums of an earlier step are in the accumulator, 0 or 1.
        keeps: whether partial sums are left there for the next step, 0 or 1.
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
    """Memory in the scratchpad for tiles of one tensor.

    Attributes:
        tile_bytes: of the largest tile, up to whole banks.
        tiles: how many lie there: at least 2 with double buffering.
    """

    tile_bytes: int
    tiles: int

    @property
    def size(self) -> int:
        """Bytes of all tiles."""
        return self.tile_bytes * self.tiles
