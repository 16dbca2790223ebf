# SPDX-License-Identifier: Apache-2.0
"""Parameters of an offloaded operator with weights, and the layouts of weights.

A layout names axes from the outermost to the innermost: `OHWI`, `HWIO`. A number and a small letter
is an inner block of an axis: `O/8 HWI 8o` has groups of eight output channels outermost, then rows,
columns, input channels, and the eight channels innermost. `OHWI8o`, TVM's notation, is the same
layout."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from umakit.errors import BackendError, LoweringError
from umakit.operators.offload.composite import Composite, Image, Shape, window_arguments
from umakit.operators.parameters import ConvolutionParameters
from umakit.tvm_api import PrimExpr, PrimFunc, tirx

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

    def index(self, *indices: PrimExpr) -> list[PrimExpr]:
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


Array = npt.NDArray[Any]

ARRAYS = ("weights", "bias", "multipliers", "shifts")
"""Names of the constants of an operator with weights, in the order of its operands."""

SUMS = "weight_sums"
"""Name of the pointer to the sums of the weights of each output channel."""

MORE_BITS = 16
"""Bits by which multipliers of 15 bits are shifted left to have 31."""


@dataclass(frozen=True, kw_only=True)
class Weighted(Composite):
    """Parameters common to convolutions and fully connected layers.

    Attributes:
        weights_shape: (output channels, rows, columns, input channels of a group), or (outputs,
            inputs), whatever the layout.
        stored_layout: layout of the driver's weights.
        scales: number of multipliers and of shifts: 1, or one per output channel.
        expanded: whether multipliers and shifts have an element per output channel even if the
            model has one scale for all.
        fill: number of padding zeros in arrays with an element per output channel, for whole blocks
            of weights.
        zero_point_in_bias: whether the bias includes -input_zero_point * sum(weights). The
            accelerator then multiplies the data without subtracting the zero point, and pads with
            the zero point.
        stored_dtypes: (name, dtype) of arrays with another dtype for the driver.
        wide_multipliers: whether the driver gets multipliers of 15 bits as 31 bits, times 65536.
        sums: whether the driver gets the sums of the weights of each output channel.
        weights: int8 of `weights_shape`.
        bias: int32[output channels] of the model; int64 for int16 data.
        multipliers: int32[scales].
        shifts: int8[scales].

    In predicates and TIR passes, the four arrays are the model's; `stored_arrays` are the driver's.
    In operator strategies the four arrays are None.
    """

    POINTERS: ClassVar[tuple[str, ...]] = (
        "data", "weights", "bias", "multipliers", "shifts", "result",
    )  # fmt: skip
    AXES: ClassVar[str] = CONVOLUTION

    weights_shape: Shape
    stored_layout: str
    scales: int
    expanded: bool
    fill: int
    zero_point_in_bias: bool
    stored_dtypes: tuple[tuple[str, str], ...] = ()
    wide_multipliers: bool = False
    sums: bool = False
    weights: Array | None = field(default=None, compare=False, repr=False)
    bias: Array | None = field(default=None, compare=False, repr=False)
    multipliers: Array | None = field(default=None, compare=False, repr=False)
    shifts: Array | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.sums:
            *pointers, result = type(self).POINTERS
            object.__setattr__(self, "POINTERS", (*pointers, SUMS, result))

    @property
    def pointer_types(self) -> dict[str, str]:
        own = {SUMS: "int32"} if self.sums else {}
        types = super().pointer_types | own | dict(self.stored_dtypes)
        return {name: types[name] for name in self.POINTERS}

    @property
    def weight_layout(self) -> WeightLayout:
        """The layout of the driver's weights."""
        return weight_layout(self.stored_layout, self.AXES)

    @property
    def per_channel(self) -> bool:
        """Whether each output channel has a scale of its own."""
        return self.scales > 1

    @property
    def stored_shapes(self) -> dict[str, Shape]:
        """Shapes of the driver's arrays, by name."""
        many = self.weights_shape[0] + self.fill
        scales = many if self.scales > 1 or self.expanded else 1
        weights = self.weight_layout.stored_shape(self.weights_shape)
        found: dict[str, Shape] = {"weights": weights, "bias": (many,)}
        found |= {"multipliers": (scales,), "shifts": (scales,)}
        return found | ({SUMS: (many,)} if self.sums else {})

    @property
    def operand_shapes(self) -> dict[str, Shape]:
        ends = super().operand_shapes
        return {"data": ends["data"], **self.stored_shapes, "result": ends["result"]}

    def reference_kernel(self) -> PrimFunc:
        """The prim func of the composite as loops, with its `POINTERS` as parameters."""
        raise NotImplementedError

    def stored_arrays(self) -> dict[str, Array]:
        """The driver's arrays, by name.

        Weights are in `weight_layout`, the bias includes the zero point if `zero_point_in_bias`,
        and all arrays are padded with zeros to whole blocks of output channels. Sums of weights are
        of the model's weights.

        Raises:
            LoweringError: there are no arrays, because the parameters are an operator strategy's.
        """
        weights, bias, multipliers, shifts = (getattr(self, name) for name in ARRAYS)
        if weights is None or bias is None:
            raise LoweringError(
                "the arrays of a layer are not known in an operator strategy",
                fix="read them in a TIR pass, or use the strategy's inputs",
            )
        if self.zero_point_in_bias:
            bias = _with_zero_point(bias, weights, self.input_zero_point)  # type: ignore[attr-defined]
        plain = {"bias": bias, "multipliers": multipliers, "shifts": shifts}
        if self.wide_multipliers:
            plain["multipliers"] = multipliers << MORE_BITS
        if self.sums:
            plain[SUMS] = weights.reshape(len(bias), -1).sum(axis=1, dtype=np.int32)
        stored = {"weights": self.weight_layout.stored(weights)}
        for name, array in plain.items():
            (wanted,) = self.stored_shapes[name]
            padded = np.pad(array, (0, wanted - len(array)))
            stored[name] = padded.astype(self.pointer_types[name])
        return stored


@dataclass(frozen=True, kw_only=True)
class QConvolution(ConvolutionParameters, Weighted, Image):
    """Parameters common to all convolutions, including depthwise and transposed convolutions."""

    @property
    def kernel(self) -> tuple[int, int]:
        """Rows and columns of the window."""
        return self.weights_shape[1], self.weights_shape[2]

    @property
    def depthwise(self) -> bool:
        """Whether each group has one input channel, and there are several."""
        return self.groups > 1 and self.weights_shape[3] == 1

    @property
    def scalars(self) -> dict[str, int]:
        return {
            **self.size_arguments(),
            "kernel_height": self.kernel[0],
            "kernel_width": self.kernel[1],
            **window_arguments(self),
            "dilation_y": self.dilation[0],
            "dilation_x": self.dilation[1],
            "groups": self.groups,
            "scales": self.scales,
            "input_zero_point": self.input_zero_point,
            **self.ending(),
        }


def _with_zero_point(bias: Array, weights: Array, zero_point: int) -> Array:
    """sum((x - z) w) + b = sum(x w) + (b - z sum(w)), in wrapping integers."""
    sums = weights.reshape(len(bias), -1).astype(np.int64).sum(axis=1)
    moved: Array = bias.astype(np.int64) - zero_point * sums
    return moved.astype(bias.dtype)
