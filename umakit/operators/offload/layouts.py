# SPDX-License-Identifier: Apache-2.0
"""Layouts of weights: the order and the blocks of an array's axes.

A layout names axes from the outermost to the innermost: `OHWI`, `HWIO`. A number and a small letter
is an inner block of an axis: `O/8 HWI 8o` has groups of eight output channels outermost, then rows,
columns, input channels, and the eight channels innermost. `OHWI8o`, TVM's notation, is the same
layout.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit import tvm_api
from umakit.errors import BackendError
from umakit.tvm_api import tirx

Array = npt.NDArray[Any]
Shape = tuple[int, ...]


CONVOLUTION = "OHWI"
DENSE = "OI"
_PART = re.compile(r"\s*(?:([A-Z])(?:/(\d+))?|(\d+)([a-z]))")


@dataclass(frozen=True)
class WeightLayout:
    """The order of the axes and blocks of an array.

    Attributes:
        axes: axes of umakit's array, for example `OHWI`.
        parts: (axis, block) from the outermost; block 0 stands for the axis itself, or, for a
            blocked axis, for the number of blocks.
        text: the backend's text of the layout.
    """

    axes: str
    parts: tuple[tuple[str, int], ...]
    text: str

    @property
    def blocks(self) -> dict[str, int]:
        """Size of the inner block by axis, for blocked axes."""
        return {axis: block for axis, block in self.parts if block}

    def stored_shape(self, shape: Sequence[int]) -> Shape:
        """Return the shape of an array in this layout; axes are padded to whole blocks."""
        extents = dict(zip(self.axes, shape, strict=True))
        return tuple(
            block or -(-extents[axis] // self.blocks.get(axis, 1)) for axis, block in self.parts
        )

    def stored(self, array: Array) -> Array:
        """Return an array in this layout; axes are padded with zeros to whole blocks."""
        missing = [-extent % self.blocks.get(axis, 1) for axis, extent in self._extents(array)]
        filled = np.pad(array, [(0, count) for count in missing])
        split: list[int] = []
        names: list[tuple[str, bool]] = []
        for axis, extent in self._extents(filled):
            block = self.blocks.get(axis)
            split += [extent // block, block] if block else [extent]
            names += [(axis, False), (axis, True)] if block else [(axis, False)]
        order = [names.index((axis, block > 0)) for axis, block in self.parts]
        return np.ascontiguousarray(filled.reshape(split).transpose(order))

    def index(self, *indices: tvm_api.PrimExpr) -> list[tvm_api.PrimExpr]:
        """Return the indices in this layout, as TIR, of an element of the plain array."""
        place = dict(zip(self.axes, indices, strict=True))
        result = []
        for axis, block in self.parts:
            if block:
                result.append(tirx.floormod(place[axis], tirx.IntImm("int32", block)))
            elif axis in self.blocks:
                result.append(tirx.floordiv(place[axis], tirx.IntImm("int32", self.blocks[axis])))
            else:
                result.append(place[axis])
        return result

    def _extents(self, array: Array) -> list[tuple[str, int]]:
        return list(zip(self.axes, array.shape, strict=True))


def weight_layout(text: str, axes: str) -> WeightLayout:
    """Parse a layout.

    Args:
        text: for example `O/8 HWI 8o`.
        axes: axes of the array, for example `OHWI`.

    Raises:
        BackendError: an axis is missing, named twice, unknown, or blocked in two sizes.
    """
    found = list(_PART.finditer(text))
    parts = [(m[1], 0) if m[1] else (m[4].upper(), int(m[3])) for m in found]
    outer = [axis for axis, block in parts if not block]
    inner = [axis for axis, block in parts if block]
    blocks = dict(part for part in parts if part[1])
    said = {m[1]: int(m[2]) for m in found if m[2]}
    wrong = (
        "".join(m[0] for m in found) != text.rstrip()
        or sorted(outer) != sorted(axes)
        or len(set(inner)) != len(inner)
        or not set(inner) <= set(axes)
        or any(m[3] and int(m[3]) < 1 for m in found)
        or any(blocks.get(axis) != size for axis, size in said.items())
    )
    if wrong:
        raise BackendError(
            f"weight layout {text!r} does not order the axes {', '.join(axes)}",
            fix=f"name each once, blocks with their size, for example {axes!r} or "
            f"'O/8 {axes[1:]} 8o'",
        )
    return WeightLayout(axes, tuple(parts), text)
