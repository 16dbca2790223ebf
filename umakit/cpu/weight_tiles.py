# SPDX-License-Identifier: Apache-2.0
"""Weights of float convolutions, stored in the tiles of the schedule."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import astuple, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit import tvm_api
from umakit.cpu.schedule import attempt


@dataclass(frozen=True)
class WeightTiles:
    """The storage of a convolution's weights.

    Attributes:
        axes: axes of the weights in the model: `HWIO` or `OIHW`.
        channels: output channels of a tile, the last axis.
        inputs: input channels of a block, for tiles of `HWIO`; 0 without blocks.
    """

    axes: str
    channels: int
    inputs: int = 0

    @property
    def layout(self) -> str:
        """TVM's name of the layout: `OHWI16o` or `OIHW32i16o`, and for `OIHW` weights `OIHW16o`."""
        if self.axes == "OIHW":
            return f"OIHW{self.channels}o"
        block = f"{self.inputs}i" if self.inputs else ""
        return f"{'OIHW' if self.inputs else 'OHWI'}{block}{self.channels}o"

    def stored(self, weights: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return weights in their stored order.

        Args:
            weights: [KH, KW, I, O] or, with the axes `OIHW`, [O, I, KH, KW].

        Returns:
            [O / channels, KH, KW, I, channels]; with blocks [O / channels, I / inputs, KH, KW,
            inputs, channels]; of `OIHW` [O / channels, I, KH, KW, channels].
        """
        if self.axes == "OIHW":
            outputs, *rest = weights.shape
            tiled = weights.reshape(outputs // self.channels, self.channels, *rest)
            return np.ascontiguousarray(np.moveaxis(tiled, 1, -1))
        height, width, all_inputs, outputs = weights.shape
        size = self.inputs or all_inputs
        shape = (height, width, all_inputs // size, size, outputs // self.channels, self.channels)
        tiled = weights.reshape(shape).transpose(4, 2, 0, 1, 3, 5)
        return np.ascontiguousarray(tiled if self.inputs else tiled[:, 0])

    def keeps(self, shape: tuple[int, ...]) -> bool:
        """Whether weights of a shape keep their order, because there is only one tile."""
        return self.axes == "HWIO" and not self.inputs and self.channels == shape[3]

    def index(self, row: Any, column: Any, i: Any, o: Any) -> list[Any]:
        """Return the stored indices of a weight."""
        tile, channel = o // self.channels, o % self.channels
        if self.axes == "OIHW":
            return [tile, i, row, column, channel]
        if self.inputs:
            return [tile, i // self.inputs, row, column, i % self.inputs, channel]
        return [tile, row, column, i, channel]


class Packing:
    """Lets convolutions read constant weights tile by tile.

    The rows of a tile are then contiguous, and not in the same few sets of a cache.

    Args:
        constants: numbers of the parameters that are constants in all calls.

    Attributes:
        packed: storage of the packed parameters, by number.
    """

    def __init__(self, function: tvm_api.PrimFunc, constants: Collection[int]) -> None:
        names = [str(parameter.name) for parameter in function.params]
        self._numbers = {name: n for n, name in enumerate(names) if n in constants}
        self.packed: dict[int, WeightTiles] = {}

    def pack(self, schedule: tvm_api.Schedule, block: Any, tiles: WeightTiles) -> bool:
        """Let a convolution read constant weights in tiles; return whether it does."""
        reads = [region.source for region in schedule.get(block).reads]
        found = [n for n, buffer in enumerate(reads) if str(buffer.name) in self._numbers]
        if len(found) != 1:
            return False
        shape = tvm_api.buffer_shape(reads[found[0]])
        if len(shape) != 4 or tiles.keeps(shape):
            return False

        def of_oihw(o: Any, i: Any, row: Any, column: Any) -> list[Any]:
            return tiles.index(row, column, i, o)

        index = of_oihw if tiles.axes == "OIHW" else tiles.index
        if not attempt(schedule.transform_layout, block, ("read", found[0]), index):
            return False
        self.packed[self._numbers[str(reads[found[0]].name)]] = tiles
        return True


FACTS = "umakit.kernel_facts"
"""Attribute of a prim func that was scheduled in tiles: its `Facts` as text."""


@dataclass(frozen=True)
class Facts:
    """Facts of a prim func with a tiled schedule, for later stages.

    Attributes:
        register_bytes: most bytes of an array of sums that becomes a local variable.
        layouts: layouts of weights that legalization reordered, by the number of the parameter.
    """

    register_bytes: int = 0
    packed: Mapping[int, WeightTiles] = field(default_factory=dict)
    layouts: Mapping[int, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        tiles = [(number, astuple(each)) for number, each in self.packed.items()]
        return json.dumps([self.register_bytes, tiles, list(self.layouts.items())])

    @classmethod
    def of(cls, function: tvm_api.PrimFunc) -> Facts:
        """Return the facts of a prim func; empty for functions without facts."""
        text = tvm_api.function_attribute(function, FACTS)
        if text is None:
            return cls()
        register_bytes, tiles, layouts = json.loads(str(text))
        packed = {number: WeightTiles(*each) for number, each in tiles}
        return cls(register_bytes, packed, dict(layouts))
