# SPDX-License-Identifier: Apache-2.0
"""Parameters of integer operators: attributes of Relax operators of our own, `relax.quantized.*`.

Operands and results are integers, and attributes describe the operator completely, so that CPU
kernels, a backend's patterns (`is_op("relax.quantized.conv2d")`), predicates and operator
strategies read the same attributes. Data is NHWC unless `layout` is NCHW; weights are then [O,
I/groups, KH, KW]. Weights are int16 if the difference to a zero point needs more than 8 bits.
Multipliers (int32) and shifts (int8) have one element, or one per output channel; see
`numeric.fixed_point`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar, TypedDict, TypeVar

import numpy as np

from umakit import tvm_api
from umakit.operators.numeric.fixed_point import Arithmetic, Rounding, rounding_named
from umakit.tvm_api import Call, Expr

P = TypeVar("P", bound="Parameters")
Pair = tuple[int, int]

PREFIX = "quantized."
"""Prefix of the operators' names, after Relax's own `relax.`."""

BIAS_DTYPES = {"int16": "int64"}
"""Bias dtype by data dtype, where it is not int32. Accumulators have as many bits; multipliers of
accumulators of 64 bits have 15 if they are rounded as `tflm`:
result = (accumulator * multiplier + 2**(14 - shift)) >> (15 - shift);
else see `umakit_requantize_even`."""

LEFT_SHIFTS = {"int8": 20, "uint8": 20, "int16": 15}
"""TensorFlow Lite's left shift of the operands of an addition."""


class CommonFields(TypedDict):
    """The fields of `Parameters`."""

    output_shape: tuple[int, ...]
    output_dtype: str
    output_zero_point: int
    clip: Pair
    rounding: str


def whole_range(
    shape: tuple[int, ...], dtype: str, rounding: Arithmetic = Arithmetic.TFLM, zero_point: int = 0
) -> CommonFields:
    """Return the fields of a result of all integers of its dtype, of int8 for floats."""
    limits = np.iinfo(dtype if "int" in dtype else "int8")
    return {
        "output_shape": shape,
        "output_dtype": dtype,
        "output_zero_point": zero_point,
        "clip": (int(limits.min), int(limits.max)),
        "rounding": rounding.value,
    }


@dataclass(frozen=True)
class Parameters:
    """Parameters common to all operators: the rounding of results to integers.

    Attributes:
        output_shape: shape of the result.
        output_dtype: dtype of the result, `int8` or `uint8`.
        output_zero_point: zero point of the result.
        clip: least and largest result; the range of the dtype, or less for a fused activation.
        rounding: rounding of products to integers, a value of `Arithmetic` or of `OwnRounding`.
    """

    operator: ClassVar[str] = ""

    output_shape: tuple[int, ...]
    output_dtype: str
    output_zero_point: int
    clip: Pair
    rounding: str

    @property
    def arithmetic(self) -> Rounding:
        """The rounding of products."""
        return rounding_named(self.rounding)

    @classmethod
    def of(cls: type[P], call: Call) -> P:
        """The parameters of a call of this operator."""
        return cls(**{item.name: _plain(call.attrs[item.name]) for item in fields(cls)})

    @classmethod
    def result_type(cls, call: Call, builder: tvm_api.BlockBuilder) -> tvm_api.Type:
        """The Relax type of a call's result, for Relax's operator registry."""
        return tvm_api.tensor_type(
            [int(extent) for extent in call.attrs["output_shape"]], str(call.attrs["output_dtype"])
        )

    def call(self, operands: Sequence[Expr], span: tvm_api.Span | None) -> Call:
        """A call of the operator.

        Args:
            span: span of the call, with the name of the node in the user's model.
        """
        return tvm_api.operator_call(f"{PREFIX}{self.operator}", operands, asdict(self), span)

    def clipped(self: P, operands: Sequence[Expr], clip: Pair) -> tuple[P, list[Expr]]:
        """The operator and its operands with another clip of the result.

        Args:
            clip: least and largest result, within the present bounds.
        """
        return replace(self, clip=clip), list(operands)


class WindowFields(TypedDict):
    """The fields of `WindowParameters` beyond the fields of `Parameters`."""

    strides: Pair
    padding: tuple[int, int, int, int]
    layout: str


@dataclass(frozen=True)
class WindowParameters(Parameters):
    """Parameters common to convolutions and pools.

    Attributes:
        strides: rows, columns.
        padding: top, left, bottom, right; padded places have the real value 0.
        layout: layout of data and result, `NHWC` or `NCHW`.
    """

    strides: Pair
    padding: tuple[int, int, int, int]
    layout: str = field(default="NHWC", kw_only=True)


@dataclass(frozen=True)
class CommonScaleParameters(Parameters):
    """Parameters common to sums and differences, which first convert both operands to one scale.

    Attributes:
        zero_points: zero points of the operands.
        left_shift: left shift of the operands before rescaling, for precision.
        multipliers, shifts: multipliers and shifts of left operand, right operand and result.
    """

    zero_points: Pair
    left_shift: int
    multipliers: tuple[int, int, int]
    shifts: tuple[int, int, int]


@dataclass(frozen=True)
class ConvolutionParameters(WindowParameters):
    """Parameters common to convolutions and transposed convolutions.

    Attributes:
        dilation: rows, columns.
        groups: number of channel groups.
        input_zero_point: zero point of the data.
    """

    dilation: Pair
    groups: int
    input_zero_point: int


@dataclass(frozen=True)
class Pool2d(WindowParameters):
    """A pool with the same scale and zero point for data and result; padding is left out.

    Attributes:
        window: rows, columns.
    """

    window: Pair


def _plain(value: Any) -> Any:
    """An attribute, untyped in TVM, as Python's int, str or tuple."""
    if isinstance(value, str):
        return str(value)
    if hasattr(value, "__len__"):
        return tuple(_plain(item) for item in value)
    return int(value)


def register_relax_operators(kinds: Sequence[type[Parameters]]) -> None:
    """Make Relax operators for parameter classes."""
    for kind in kinds:
        tvm_api.register_operator(f"{PREFIX}{kind.operator}", str(kind.__doc__), kind.result_type)
