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

    def reference_kernel(self) -> tvm_api.PrimFunc:
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
