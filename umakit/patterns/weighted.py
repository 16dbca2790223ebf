# SPDX-License-Identifier: Apache-2.0
"""What a backend is told about an operator with weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from umakit.errors import LoweringError
from umakit.operators.add import Add
from umakit.operators.conv2d import Conv2d
from umakit.operators.dense import Dense
from umakit.operators.parameters import register_relax_operators
from umakit.patterns.layouts import CONVOLUTION, DENSE, WeightLayout, weight_layout
from umakit.patterns.parameters import Composite, Image, Shape, window_arguments

Array = npt.NDArray[Any]

ARRAYS = ("weights", "bias", "multipliers", "shifts")
"""Names of the constants of an operator with weights, in the order of its operands."""


@dataclass(frozen=True, kw_only=True)
class Weighted(Composite):
    """What convolutions and fully connected layers have in common.

    Attributes:
        weights_shape: (output channels, rows, columns, input channels of a group), or (outputs,
            inputs), whatever the layout.
        stored_layout: the layout in which the driver gets the weights.
        scales: number of multipliers and of shifts: 1, or one for each output channel.
        expanded: whether multipliers and shifts have an element for each output channel even
            where the model has one for all.
        fill: how many zeros stand behind the elements of the output channels in arrays that have
            one for each, so that they end with the last block of weights.
        zero_point_in_bias: whether the bias holds -input_zero_point * sum(weights) already. The
            accelerator multiplies the data as they are, and pads with the zero point.
        weights: int8, of `weights_shape`.
        bias: int32[output channels], as the model has it; int64 for data of int16.
        multipliers: int32[scales].
        shifts: int8[scales].

    The four arrays are the layer's own, as the model has them, in predicates and TIR passes;
    `stored_arrays` makes of them what the driver gets. In operator strategies they are None.
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
    weights: Array | None = field(default=None, compare=False, repr=False)
    bias: Array | None = field(default=None, compare=False, repr=False)
    multipliers: Array | None = field(default=None, compare=False, repr=False)
    shifts: Array | None = field(default=None, compare=False, repr=False)

    @property
    def weight_layout(self) -> WeightLayout:
        """The layout in which the driver gets the weights."""
        return weight_layout(self.stored_layout, self.AXES)

    @property
    def per_channel(self) -> bool:
        """Whether each output channel has a scale of its own."""
        return self.scales > 1

    @property
    def stored_shapes(self) -> dict[str, Shape]:
        """Shapes of the arrays that the driver gets, by name."""
        many = self.weights_shape[0] + self.fill
        scales = many if self.scales > 1 or self.expanded else 1
        weights = self.weight_layout.stored_shape(self.weights_shape)
        return {"weights": weights, "bias": (many,), "multipliers": (scales,), "shifts": (scales,)}

    @property
    def operand_shapes(self) -> dict[str, Shape]:
        ends = super().operand_shapes
        return {"data": ends["data"], **self.stored_shapes, "result": ends["result"]}

    def stored_arrays(self) -> dict[str, Array]:
        """The arrays as the driver gets them, by name.

        Weights are in `weight_layout`, the bias holds the zero point if `zero_point_in_bias`, and
        all are filled with zeros up to whole blocks of output channels.

        Raises:
            LoweringError: there are none: these are the parameters of an operator strategy.
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
        stored = {"weights": self.weight_layout.stored(weights)}
        for name, array in plain.items():
            (wanted,) = self.stored_shapes[name]
            stored[name] = np.pad(array, (0, wanted - len(array)))
        return stored


@dataclass(frozen=True, kw_only=True)
class QConv2d(Conv2d, Weighted, Image):
    """A convolution with bias, activation and change of scale."""

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


@dataclass(frozen=True, kw_only=True)
class QDepthwise(QConv2d):
    """A depthwise convolution: as many groups as input channels; output channel o reads input
    channel o / (output channels / input channels)."""


@dataclass(frozen=True, kw_only=True)
class QConv2dAdd(QConv2d):
    """A convolution, and the sum of its result and another tensor of the same shape and dtype.

    `output_zero_point` and `clip` are those of the convolution's result, before the addition.

    Attributes:
        addition: how both are added. Its left operand is the convolution's result and its right
            one the addend, on whichever side the model has them; its first zero point is
            `output_zero_point`. Zero point and clip of the sum are `addition.output_zero_point`
            and `addition.clip`.
    """

    operator: ClassVar[str] = "conv2d_add"
    POINTERS: ClassVar[tuple[str, ...]] = (
        "data", "addend", "weights", "bias", "multipliers", "shifts", "result",
    )  # fmt: skip

    addition: Add

    @property
    def pointer_types(self) -> dict[str, str]:
        return super().pointer_types | {"addend": self.output_dtype}

    @property
    def operand_shapes(self) -> dict[str, Shape]:
        shapes = super().operand_shapes | {"addend": self.output_shape}
        return {name: shapes[name] for name in self.POINTERS}

    def ending(self) -> dict[str, int]:
        """The last arguments of the driver: those of the convolution's result, then the sum's."""
        added = self.addition
        convolution, addend, total = zip(added.multipliers, added.shifts, strict=True)
        return {
            **self._result_arguments(),
            "add_left_shift": added.left_shift,
            "convolution_multiplier": convolution[0],
            "convolution_shift": convolution[1],
            "addend_zero_point": added.zero_points[1],
            "addend_multiplier": addend[0],
            "addend_shift": addend[1],
            "sum_multiplier": total[0],
            "sum_shift": total[1],
            "sum_zero_point": added.output_zero_point,
            "sum_lowest": added.clip[0],
            "sum_highest": added.clip[1],
            **self._then_arguments(),
        }


@dataclass(frozen=True, kw_only=True)
class QDense(Dense, Weighted):
    """A fully connected layer with bias, activation and change of scale."""

    AXES: ClassVar[str] = DENSE

    @property
    def rows(self) -> int:
        """Of the data."""
        return self.data_shape[0]

    @property
    def inputs(self) -> int:
        """Elements of a row of the data."""
        return self.weights_shape[1]

    @property
    def outputs(self) -> int:
        """Elements of a row of the result."""
        return self.weights_shape[0]

    @property
    def scalars(self) -> dict[str, int]:
        return {
            "rows": self.rows,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "scales": self.scales,
            "input_zero_point": self.input_zero_point,
            **self.ending(),
        }


def _with_zero_point(bias: Array, weights: Array, zero_point: int) -> Array:
    """sum((x - z) w) + b = sum(x w) + (b - z sum(w)), in integers that wrap around."""
    sums = weights.reshape(len(bias), -1).astype(np.int64).sum(axis=1)
    moved: Array = bias.astype(np.int64) - zero_point * sums
    return moved.astype(bias.dtype)


# No network has it: it stands in the place of both operators of a composite, so that an operator
# strategy of convolutions is not asked for it.
register_relax_operators([QConv2dAdd])
