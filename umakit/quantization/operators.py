# SPDX-License-Identifier: Apache-2.0
"""Integer operators: Relax operators of our own, `relax.quantized.*`, and their parameters.

Each takes and yields integers and says as attributes all there is to know about it, so that CPU
kernels, a backend's patterns (`is_op("relax.quantized.conv2d")`), its predicates and its operator
strategies read the same thing. Data is NHWC unless `layout` says NCHW; weights are then
[O, I/groups, KH, KW]. Weights are int16 where a zero point was taken off that needs more bits.

    conv2d         (data, weights int8[O, KH, KW, I/groups], bias int32[O], multipliers, shifts)
    dense          (data [rows, I], weights int8[O, I], bias int32[O], multipliers, shifts)
    add, subtract  (left, right), of shapes that broadcast
    multiply       (left, right), of shapes that broadcast
    avg_pool2d     (data)
    max_pool2d     (data)
    softmax        (data [rows, n], table int32[256])
    requantize     (data)
    quantize       (data float32, scale float32[1])

Multipliers (int32) and shifts (int8) have one element or one for each output channel; see
`fixed_point`. For data of int16 the bias may be int64; then sums have 64 bits and multipliers 15.
More operators are in `further_operators`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, TypeVar

from umakit import tvm_api
from umakit.quantization.fixed_point import Rounding

P = TypeVar("P", bound="Parameters")
Pair = tuple[int, int]

PREFIX = "quantized."
"""What operators' names start with, where Relax's own `relax.` is left out."""


@dataclass(frozen=True)
class Parameters:
    """What is common to all: how results become integers.

    Attributes:
        output_shape: of the result.
        output_dtype: of the result, `int8` or `uint8`.
        output_zero_point: the integer that stands for 0 in the result.
        clip: least and largest result; the range of the dtype, or less for a fused activation.
        rounding: a value of `Rounding`.
    """

    operator: ClassVar[str] = ""

    output_shape: tuple[int, ...]
    output_dtype: str
    output_zero_point: int
    clip: Pair
    rounding: str

    @property
    def rounding_mode(self) -> Rounding:
        """How products are rounded."""
        return Rounding(self.rounding)

    @classmethod
    def of(cls: type[P], call: Any) -> P:
        """The parameters of a call of this operator."""
        return cls(**{item.name: _plain(call.attrs[item.name]) for item in fields(cls)})

    def call(self, operands: Sequence[Any], span: Any) -> Any:
        """A call of the operator.

        Args:
            operands: Relax expressions.
            span: of the call, with the name of the node in the user's model.
        """
        return tvm_api.operator_call(f"{PREFIX}{self.operator}", operands, asdict(self), span)


@dataclass(frozen=True)
class WindowParameters(Parameters):
    """What convolutions and pools have in common.

    Attributes:
        strides: rows, columns.
        padding: top, left, bottom, right; padded places stand for 0.
        layout: of data and result, `NHWC` or `NCHW`.
    """

    strides: Pair
    padding: tuple[int, int, int, int]
    layout: str = field(default="NHWC", kw_only=True)


@dataclass(frozen=True)
class Conv2d(WindowParameters):
    """A convolution; depthwise if there are as many groups as input channels.

    Attributes:
        dilation: rows, columns.
        groups: of channels.
        input_zero_point: the integer that stands for 0 in the data.
    """

    operator: ClassVar[str] = "conv2d"

    dilation: Pair
    groups: int
    input_zero_point: int


@dataclass(frozen=True)
class Dense(Parameters):
    """A fully connected layer.

    Attributes:
        input_zero_point: the integer that stands for 0 in the data.
    """

    operator: ClassVar[str] = "dense"

    input_zero_point: int


@dataclass(frozen=True)
class Pool2d(WindowParameters):
    """A pool whose input and output have the same scale and zero point; padding is left out.

    Attributes:
        window: rows, columns.
    """

    window: Pair


@dataclass(frozen=True)
class AveragePool2d(Pool2d):
    """The mean of each window, ties rounded away from zero."""

    operator: ClassVar[str] = "avg_pool2d"


@dataclass(frozen=True)
class MaxPool2d(Pool2d):
    """The largest of each window."""

    operator: ClassVar[str] = "max_pool2d"


@dataclass(frozen=True)
class Add(Parameters):
    """The sum of two tensors: both are brought to a common scale, added, and rescaled.

    Attributes:
        zero_points: of the operands.
        left_shift: by which operands are shifted first, for precision.
        multipliers, shifts: of left operand, right operand and result.
    """

    operator: ClassVar[str] = "add"

    zero_points: Pair
    left_shift: int
    multipliers: tuple[int, int, int]
    shifts: tuple[int, int, int]


@dataclass(frozen=True)
class Subtract(Add):
    """The difference of two tensors, computed as `Add`."""

    operator: ClassVar[str] = "subtract"


@dataclass(frozen=True)
class Multiply(Parameters):
    """The product of two tensors.

    Attributes:
        zero_points: of the operands.
        multiplier, shift: of the result.
    """

    operator: ClassVar[str] = "multiply"

    zero_points: Pair
    multiplier: int
    shift: int


@dataclass(frozen=True)
class Softmax(Parameters):
    """Softmax over the last axis, with a table of exponentials (`softmax_table`)."""

    operator: ClassVar[str] = "softmax"


@dataclass(frozen=True)
class Requantize(Parameters):
    """The same numbers with another scale and zero point, perhaps clipped.

    Attributes:
        input_zero_point: the integer that stands for 0 in the data.
        multiplier, shift: of the ratio of the scales.
    """

    operator: ClassVar[str] = "requantize"

    input_zero_point: int
    multiplier: int
    shift: int


@dataclass(frozen=True)
class Quantize(Parameters):
    """Real numbers as integers: divided by the scale, rounded with ties away from zero.

    Relax's own quantize rounds ties to even.
    """

    operator: ClassVar[str] = "quantize"


OPERATORS: tuple[type[Parameters], ...] = (
    Conv2d, Dense, AveragePool2d, MaxPool2d, Add, Subtract, Multiply, Softmax, Requantize, Quantize,
)  # fmt: skip


def _plain(value: Any) -> Any:
    """An attribute as Python's own int, str or tuple."""
    if isinstance(value, str):
        return str(value)
    if hasattr(value, "__len__"):
        return tuple(_plain(item) for item in value)
    return int(value)


def _result_type(call: Any, builder: Any) -> Any:
    return tvm_api.tensor_type(
        [int(extent) for extent in call.attrs["output_shape"]], str(call.attrs["output_dtype"])
    )


def register(kinds: Sequence[type[Parameters]]) -> None:
    """Make Relax operators of kinds of parameters."""
    infer: Callable[[Any, Any], Any] = _result_type
    for kind in kinds:
        tvm_api.register_operator(f"{PREFIX}{kind.operator}", str(kind.__doc__), infer)


register(OPERATORS)
