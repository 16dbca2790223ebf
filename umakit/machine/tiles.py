# SPDX-License-Identifier: Apache-2.0
"""A layer cut into tiles: their number, requirements, and places in the scratchpad.

A tile is a part of the result: some rows, columns and output channels. A tile is computed from the
region of the data inside its windows, halos included, in steps over parts of the input channels;
the accumulator adds the partial sums of the steps. Tiles at the edges are smaller.

All coordinates are expressions of the tile's number along each axis, see `index_arithmetic`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from umakit.machine.costs import TileSizes
from umakit.machine.layer import Layer
from umakit.machine.requirements import (
    Buffer,
    Job,
    Number,
    Transfer,
    floor_div,
    floor_mod,
    maximum,
    minimum,
    named,
    times,
)
from umakit.machine.systolic import Dataflow
from umakit.machine.tile_machine import TileMachine

IMAGES = "images"
ROWS = "rows"
COLUMNS = "columns"
OUTPUT_CHANNELS = "output_channels"
INPUT_CHANNELS = "input_channels"

AXES = (OUTPUT_CHANNELS, ROWS, COLUMNS)
"""Axes whose loops may be in any order. The loop over images is outside of them, the loop over
input channels inside."""

LOADED = ("data", "weights", "addend")
"""Tensors whose tiles are loaded."""

SINGULAR = {
    ROWS: "row",
    COLUMNS: "column",
    OUTPUT_CHANNELS: "output_channel",
    INPUT_CHANNELS: "input_channel",
}
"""Singular of each axis name."""

BUFFERS = (1, 2, 4)
"""Valid values of `Tiling.buffers`."""

T = TypeVar("T")

Position = Mapping[str, Number]
"""The index of a tile along each axis."""


class Axes(dict[str, T]):
    """Values by axis; unknown axes are refused by name."""

    def __missing__(self, axis: str) -> T:
        raise KeyError(f"there is no axis {axis}; axes are {', '.join(self)}")


@dataclass(frozen=True)
class Tiling:
    """Tile sizes of a layer, and the order of its tiles.

    Attributes:
        dataflow: dataflow of the jobs.
        rows, columns, output_channels: size of a tile of the result.
        input_channels: number of input channels of one step.
        order: loops over tiles, outermost first: a permutation of `AXES`. A tile that does not
            depend on the inner loops stays in the scratchpad during these loops.
        buffers: number of tiles of a tensor in the scratchpad at a time: 1; 2 to load the next tile
            during a job; 4 to load more tiles ahead and hide latencies.
    """

    dataflow: Dataflow
    rows: int
    columns: int
    output_channels: int
    input_channels: int
    order: tuple[str, ...] = AXES
    buffers: int = 2


@dataclass(frozen=True)
class _Span:
    """A range of an axis; `is_cut` unless all tiles have the same range."""

    start: Number
    size: Number
    is_cut: bool = False


class Tiles:
    """A layer cut into tiles.

    Args:
        tiling: tile sizes and loop order; a size larger than the layer means the whole axis.
        machine: blocks of weights, and bytes, memories and alignment of tiles.
    """

    def __init__(self, layer: Layer, tiling: Tiling, machine: TileMachine) -> None:
        self.layer = layer
        self.tiling = tiling
        self._block = machine.block_channels
        self._machine = machine
        # Spans by axis and number of the tile: an axis has few, and commands ask for each often.
        self._output_spans: dict[tuple[str, int], _Span] = {}
        self._input_spans: dict[tuple[str, int], tuple[_Span, Number]] = {}
        self._depths: dict[str, int] = {}

    # --- axes and loops -------------------------------------------------------------------------

    @cached_property
    def extents(self) -> Axes[int]:
        """The number of tiles along each axis, in the order of the loops, outermost first."""
        sizes = {
            OUTPUT_CHANNELS: (self.layer.output_channels, self.tiling.output_channels),
            ROWS: (self.layer.output_size[0], self.tiling.rows),
            COLUMNS: (self.layer.output_size[1], self.tiling.columns),
        }
        tiles = {axis: math.ceil(all_ / tile) for axis, (all_, tile) in sizes.items()}
        steps = 1
        if not self.layer.per_channel:
            steps = math.ceil(self.layer.input_channels / self.tiling.input_channels)
        inner = {axis: tiles[axis] for axis in self.tiling.order}
        return Axes({IMAGES: self.layer.images, **inner, INPUT_CHANNELS: steps})

    @cached_property
    def loops(self) -> tuple[str, ...]:
        """The axes with more than one tile, in the order of the loops, outermost first."""
        return tuple(axis for axis, extent in self.extents.items() if extent > 1)

    def axes_of(self, tensor: str) -> tuple[str, ...]:
        """Return the axes along which a tensor is cut."""
        if tensor == "parameters":
            return ()
        if tensor == "weights":
            return (OUTPUT_CHANNELS, INPUT_CHANNELS)
        if tensor == "data":
            channels = OUTPUT_CHANNELS if self.layer.per_channel else INPUT_CHANNELS
            return (IMAGES, ROWS, COLUMNS, channels)
        return (IMAGES, *AXES)

    def depth(self, tensor: str) -> int:
        """Return the number of loops around the copies of a tensor's tiles."""
        if tensor not in self._depths:
            axes = self.axes_of(tensor)
            inside = [number for number, axis in enumerate(self.loops) if axis in axes]
            self._depths[tensor] = max(inside) + 1 if inside else 0
        return self._depths[tensor]

    def copies(self, tensor: str) -> int:
        """Return the total number of tile copies of a tensor."""
        return math.prod(self.extents[axis] for axis in self.loops[: self.depth(tensor)])

    # --- memory ---------------------------------------------------------------------------------

    @cached_property
    def buffers(self) -> dict[str, Buffer]:
        """The buffers of data, weights, parameters, addend and result in the accelerator, by
        tensor."""
        layer, machine = self.layer, self._machine
        names = ["data"]
        names += [] if layer.is_pool else ["weights", "parameters"]
        names += ["addend"] if layer.adds else []
        found = {}
        sizes, covered = self.largest, self.largest_input
        steps = self.extents[INPUT_CHANNELS]
        for name in (*names, "result"):
            unit = machine.tile_alignment_of(name)
            size = -(-machine.tile_bytes(name, sizes, covered, steps) // unit) * unit
            found[name] = Buffer(size, min(self.tiling.buffers, self.copies(name)))
        return found

    @property
    def scratchpad_bytes(self) -> int:
        """The total size of all buffers in bytes."""
        return sum(buffer.size for buffer in self.buffers.values())

    @cached_property
    def _sizes(self) -> dict[str, tuple[int, int]]:
        """The extent of each axis and the tile size along the axis."""
        layer, tiling = self.layer, self.tiling
        return {
            ROWS: (layer.output_size[0], tiling.rows),
            COLUMNS: (layer.output_size[1], tiling.columns),
            OUTPUT_CHANNELS: (layer.output_channels, tiling.output_channels),
            INPUT_CHANNELS: (layer.input_channels, tiling.input_channels),
        }

    def _largest(self, axis: str) -> int:
        return min(self._sizes[axis])

    @cached_property
    def largest(self) -> TileSizes:
        """The sizes of the largest tile."""
        return TileSizes(
            self.layer, self.tiling.dataflow, self._largest(ROWS), self._largest(COLUMNS),
            self._largest(OUTPUT_CHANNELS), self._largest_input_channels,
        )  # fmt: skip

    @property
    def largest_input(self) -> tuple[int, int]:
        """Rows and columns of the data that the largest tile reads."""
        layer = self.layer
        rows, columns = (
            min((self._largest(name) - 1) * stride + (kernel - 1) * dilation + 1, size)
            for name, stride, kernel, dilation, size in zip(
                (ROWS, COLUMNS), layer.strides, layer.kernel, layer.dilation, layer.input_size,
                strict=True,
            )
        )  # fmt: skip
        return rows, columns

    @property
    def _largest_input_channels(self) -> int:
        if self.layer.per_channel:
            return self._largest(OUTPUT_CHANNELS) // self.layer.multiplier
        return self._largest(INPUT_CHANNELS)

    def _place(self, tensor: str, position: Position) -> Number:
        """Return the byte offset of a tile in its buffer; the slots of a buffer are used in
        rotation."""
        buffer = self.buffers[tensor]
        if buffer.tiles == 1:
            return 0
        copy: Number = 0
        for axis in self.loops[: self.depth(tensor)]:
            copy = copy * self.extents[axis] + position[axis]
        if isinstance(copy, int):
            return copy % buffer.tiles * buffer.tile_bytes
        number = floor_mod(copy, buffer.tiles)
        size = f"{tensor}_place_bytes".upper()
        return named(f"{tensor}_place", times(number, size, buffer.tile_bytes))

    # --- parts of axes --------------------------------------------------------------------------

    def _number(self, axis: str, position: Position) -> Number:
        """Return the number of a tile along an axis; 0 for an uncut axis."""
        size, tile = self._sizes[axis]
        return 0 if tile >= size else position[axis]

    def _outputs(self, axis: str, position: Position) -> _Span:
        number = self._number(axis, position)
        if not isinstance(number, int):
            return self._outputs_of(axis, number)
        if (axis, number) not in self._output_spans:
            self._output_spans[axis, number] = self._outputs_of(axis, number)
        return self._output_spans[axis, number]

    def _outputs_of(self, axis: str, number: Number) -> _Span:
        size, tile = self._sizes[axis]
        if tile >= size:
            return _Span(0, size)
        # A tile of one element starts at its own number.
        start = number * tile
        start = start if tile == 1 else named(f"first_{SINGULAR[axis]}", start)
        is_even = size % tile == 0
        return _Span(start, tile if is_even else named(axis, minimum(tile, size - start)), True)

    def _input_channels(self, position: Position) -> _Span:
        if not self.layer.per_channel:
            return self._outputs(INPUT_CHANNELS, position)
        outputs, multiplier = self._outputs(OUTPUT_CHANNELS, position), self.layer.multiplier
        start, size = (floor_div(part, multiplier) for part in (outputs.start, outputs.size))
        return _Span(start, size, outputs.is_cut)

    def _inputs(self, axis: str, position: Position) -> tuple[_Span, Number]:
        """Return the rows or columns of the data inside a tile's windows, and the padding."""
        number = self._number(axis, position)
        if not isinstance(number, int):
            return self._inputs_of(axis, position)
        if (axis, number) not in self._input_spans:
            self._input_spans[axis, number] = self._inputs_of(axis, position)
        return self._input_spans[axis, number]

    def _inputs_of(self, axis: str, position: Position) -> tuple[_Span, Number]:
        number = (ROWS, COLUMNS).index(axis)
        layer, outputs = self.layer, self._outputs(axis, position)
        size, stride = layer.input_size[number], layer.strides[number]
        window = (layer.kernel[number] - 1) * layer.dilation[number] + 1
        first = outputs.start * stride - layer.padding[number]
        end = minimum(first + (outputs.size - 1) * stride + window, size)
        start, before = first, 0
        if layer.padding[number]:
            start = maximum(first, 0)
            before = named(f"padding_{'above' if axis == ROWS else 'left'}", maximum(0 - first, 0))
        start = named(f"first_input_{SINGULAR[axis]}", start)
        inputs = named(f"input_{axis}", end - start)
        return _Span(start, inputs, outputs.is_cut), before

    # --- commands -------------------------------------------------------------------------------

    def load(self, tensor: str, position: Position) -> Transfer:
        """Return the transfer of a tile of `data`, `weights` or `addend` into the scratchpad.

        Raises:
            KeyError: the tensor is another one.
        """
        if tensor not in LOADED:
            raise KeyError(f"there is no load of {tensor}; loads are those of {', '.join(LOADED)}")
        if tensor == "weights":
            return self._weights(position)
        if tensor == "addend":
            return self._result("addend", position)
        rows, _ = self._inputs(ROWS, position)
        columns, _ = self._inputs(COLUMNS, position)
        channels = self._input_channels(position)
        return self._image(
            "data", position, self.layer.input_size, self.layer.input_channels,
            (rows, columns, channels),
        )  # fmt: skip

    def copy(self, tensor: str, position: Position) -> Transfer:
        """Return the load of a tile, or the store of a tile of `result`."""
        return self.store(position) if tensor == "result" else self.load(tensor, position)

    def store(self, position: Position) -> Transfer:
        """Return the transfer of a tile of the result out of the scratchpad."""
        return self._result("result", position)

    def _result(self, tensor: str, position: Position) -> Transfer:
        spans = tuple(self._outputs(axis, position) for axis in (ROWS, COLUMNS, OUTPUT_CHANNELS))
        layer = self.layer
        return self._image(tensor, position, layer.output_size, layer.output_channels, spans)

    def _image(
        self,
        tensor: str,
        position: Position,
        size: tuple[int, int],
        channels: int,
        spans: Sequence[_Span],
    ) -> Transfer:
        """Return the transfer of a part of an image; contiguous bytes form one row."""
        height, width = size
        image = position[IMAGES] * (height * width * channels)
        if self.layer.channels_first:
            spans, extents = (spans[2], spans[0], spans[1]), (channels, height, width)
        else:
            extents = (height, width, channels)
        strides = (extents[1] * extents[2], extents[2], 1)
        offset = image + sum(
            span.start * stride for span, stride in zip(spans, strides, strict=True)
        )
        return _merged(offset, self._place(tensor, position), spans, extents)

    def _weights(self, position: Position) -> Transfer:
        layer, place = self.layer, self._place("weights", position)
        outputs = self._outputs(OUTPUT_CHANNELS, position)
        if layer.per_channel:
            spans = (_Span(0, 1), _Span(0, layer.window), outputs)
            return _merged(outputs.start, place, spans, (1, layer.window, layer.output_channels))
        inputs, block = self._outputs(INPUT_CHANNELS, position), self._block
        row = layer.input_channels * block
        blocks = floor_div(outputs.size + (block - 1), block)
        offset = floor_div(outputs.start, block) * (layer.window * row) + inputs.start * block
        spans = (
            _Span(0, blocks, outputs.is_cut),
            _Span(0, layer.window),
            _Span(0, inputs.size * block, inputs.is_cut),
        )
        extents = (layer.stored_channels // block, layer.window, row)
        return _merged(offset, place, spans, extents)

    def job(self, position: Position) -> Job:
        """Return the job that computes one step of a tile."""
        layer = self.layer
        rows, above = self._inputs(ROWS, position)
        columns, left = self._inputs(COLUMNS, position)
        outputs = self._outputs(OUTPUT_CHANNELS, position)
        per_scale = outputs.start if layer.scales > 1 else 0
        multipliers = 4 * layer.stored_channels
        steps, step = self.extents[INPUT_CHANNELS], position[INPUT_CHANNELS]
        return Job(
            data=self._place("data", position),
            weights=0 if layer.is_pool else self._place("weights", position),
            bias=outputs.start * 4,
            multipliers=per_scale * 4 + multipliers,
            shifts=per_scale + (multipliers + 4 * layer.stored_scales),
            result=self._place("result", position),
            addend=self._place("addend", position) if layer.adds else 0,
            input_size=(rows.size, columns.size),
            input_channels=self._input_channels(position).size,
            output_size=(
                self._outputs(ROWS, position).size, self._outputs(COLUMNS, position).size
            ),
            output_channels=outputs.size,
            padding=(above, left),
            scales=outputs.size if layer.scales > 1 else 1,
            continues=minimum(step, 1) if steps > 1 else 0,
            keeps=minimum(steps - 1 - step, 1) if steps > 1 else 0,
        )  # fmt: skip


def _merged(
    offset: Number, place: Number, spans: Sequence[_Span], extents: Sequence[int]
) -> Transfer:
    """Return the transfer of a part of a dense 3-D array with as few rows as possible.

    Whole rows of whole planes are one row. The choice must not depend on the tile, as the generated
    code has one call for all tiles: a tile of a cut axis is never whole, even if its halo happens
    to reach both ends.
    """
    (planes, rows, elements), (_, height, width) = spans, extents
    plane_stride, row_stride = height * width, width
    if _is_all(elements, width):
        if _is_all(rows, height):
            return Transfer(offset, place, 1, 1, planes.size * plane_stride, 0, 0)
        return Transfer(offset, place, 1, planes.size, rows.size * width, 0, plane_stride)
    if _is_all(rows, height):  # rows of all planes are evenly spaced
        return Transfer(offset, place, 1, planes.size * height, elements.size, 0, row_stride)
    return Transfer(offset, place, planes.size, rows.size, elements.size, plane_stride, row_stride)


def _is_all(span: _Span, extent: int) -> bool:
    return not span.is_cut and span.size == extent
