# SPDX-License-Identifier: Apache-2.0
"""Parameters of an offloaded operator with weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from umakit import tvm_api
from umakit.errors import LoweringError
from umakit.operators.offload.composite import Composite, Image, Shape, window_arguments
from umakit.operators.offload.layouts import CONVOLUTION, WeightLayout, weight_layout
from umakit.operators.parameters import ConvolutionParameters

Array = npt.NDArray[Any]

ARRAYS = ("weights", "bias", "multipliers", "shifts")
"""Names of the constants of an operator with weights, in the order of its operands."""

SUMS = "weight_sums"
"""Name of the pointer to the sums of the weights of each output channel."""

MORE_BITS = 16
"""Bits by which multipliers of 15 bits are shifted left to have 31."""


@dataclass(frozen=True, kw_only=True)
class Weighted(Composite):
    """Parameters that convolutions and fully connected layers have.

    Attributes:
        weights_shape: (output channels, rows, columns, input channels of a group), or (outputs,
            inputs), whatever the layout.
        stored_layout: the layout in which the driver gets the weights.
        scales: number of multipliers and of shifts: 1, or one for each output channel.
        expanded: whether multipliers and shifts have an element for each output channel even
            where the model has one for all.
        fill: number of zeros that pad arrays with an element for each output channel to whole
            blocks of weights.
        zero_point_in_bias: whether the bias includes -input_zero_point * sum(weights). The
            accelerator then multiplies the data without subtracting its zero point, and pads with
            the zero point.
        stored_dtypes: (name, dtype) of arrays whose dtype is another one for the driver.
        wide_multipliers: whether the driver gets multipliers of 15 bits as ones of 31, times 65536.
        sums: whether the driver gets the sums of the weights of each output channel.
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
        found: dict[str, Shape] = {"weights": weights, "bias": (many,)}
        found |= {"multipliers": (scales,), "shifts": (scales,)}
        return found | ({SUMS: (many,)} if self.sums else {})

    @property
    def operand_shapes(self) -> dict[str, Shape]:
        ends = super().operand_shapes
        return {"data": ends["data"], **self.stored_shapes, "result": ends["result"]}

    def reference_kernel(self) -> tvm_api.PrimFunc:
        """The prim func of the composite as loops, with its `POINTERS` as parameters."""
        raise NotImplementedError

    def stored_arrays(self) -> dict[str, Array]:
        """The arrays as the driver gets them, by name.

        Weights are in `weight_layout`, the bias holds the zero point if `zero_point_in_bias`, and
        all are filled with zeros up to whole blocks of output channels. Sums of weights are those
        of the model's weights.

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
    """What convolutions have in common, depthwise and transposed ones too."""

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
    """sum((x - z) w) + b = sum(x w) + (b - z sum(w)), in integers that wrap around."""
    sums = weights.reshape(len(bias), -1).astype(np.int64).sum(axis=1)
    moved: Array = bias.astype(np.int64) - zero_point * sums
    return moved.astype(bias.dtype)
