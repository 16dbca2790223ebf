# SPDX-License-Identifier: Apache-2.0
"""Registry of the importable operators of TensorFlow Lite files.

An operator's file registers the conversion to Relax, with supported dtypes and scales. The import
asks this registry; there is no other list of operators. Files read the model through the protocol
`TfliteConverter`, so that no file depends on the import or on the package for flatbuffers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict, TypeVar, Unpack

import numpy as np
import numpy.typing as npt

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.tvm_api import Expr

QUANTIZED = ("int8", "uint8", "int16")
"""Dtypes whose tensors have scales. TensorFlow Lite Micro has no uint8 kernels any more. The uint8
kernels of TensorFlow Lite's reference (`depthwiseconv_uint8.h`, `conv.h`, `softmax.h`, ...) equal
today's int8 kernels, except for zero points of weights. Operators whose arithmetic differed between
releases do not support uint8."""

WHOLE = ("int32", "int64")
"""Integers that stand for themselves."""

ANY = ("float32", *QUANTIZED, *WHOLE, "bool")
"""Dtypes of operators that only move elements."""

PADDING_SAME = 0
"""Value of the schema's enumeration `Padding`; 1 is VALID."""

TYPE_INT32 = 2
"""Value of the schema's enumeration `TensorType`."""

MOST_STEPS = 2**15
"""Largest stride, dilation or window."""


@dataclass(frozen=True)
class TfliteTensor:
    """A tensor of the graph.

    Attributes:
        name: unique name in the graph; the name in the file if it is unique.
        dtype: NumPy's name, or `type <number>` for types without a C type.
        dynamic: axes of variable size in the file.
        scales: float32 scales of quantization; empty without quantization.
        variable: whether the tensor keeps its values from one inference to the next.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    constant: bool
    dynamic: tuple[int, ...]
    scales: npt.NDArray[Any]
    zero_points: npt.NDArray[Any]
    variable: bool = False


@dataclass(frozen=True)
class TfliteOperator:
    """An operator of the graph.

    Attributes:
        inputs: tensor numbers; -1 for an omitted optional input.
        table: object of the flatbuffer.
    """

    code: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    table: Any


class TfliteConverter(Protocol):
    """The importer of a TensorFlow Lite file, which `TfliteNode` calls with numbers of tensors."""

    def value(self, number: int) -> Expr: ...
    def tensor(self, number: int) -> TfliteTensor: ...
    def constant(self, operator: TfliteOperator, position: int) -> npt.NDArray[Any]: ...
    def integers(self, operator: TfliteOperator, position: int) -> list[int]: ...
    def options(self, operator: TfliteOperator, kind: str) -> Any: ...
    def emit(self, value: Expr) -> tvm_api.Var: ...
    def dequantized(self, number: int) -> Expr: ...
    def quantized(self, operator: TfliteOperator, value: Expr, activation: int = 0) -> Expr: ...
    def clip(self, operator: TfliteOperator, activation: int = 0) -> tuple[int, int]: ...
    def imported(self, operator: TfliteOperator, values: Mapping[int, Expr] = ...) -> Expr: ...


@dataclass(frozen=True)
class TfliteNode:
    """An operator, as conversions read it and build its result; inputs go by their position."""

    converter: TfliteConverter
    operator: TfliteOperator

    @property
    def inputs(self) -> tuple[int, ...]:
        """The tensor numbers of the inputs; -1 for an omitted one."""
        return self.operator.inputs

    def has(self, position: int) -> bool:
        """Whether there is an input."""
        return position < len(self.inputs) and self.inputs[position] >= 0

    def tensor(self, position: int) -> TfliteTensor:
        """The description of an input in the file."""
        return self.converter.tensor(self.inputs[position])

    @property
    def tensors(self) -> list[TfliteTensor]:
        """The descriptions of all inputs."""
        return [self.converter.tensor(number) for number in self.inputs]

    @property
    def results(self) -> list[TfliteTensor]:
        """The descriptions of all results."""
        return [self.converter.tensor(number) for number in self.operator.outputs]

    @property
    def result(self) -> TfliteTensor:
        """The description of the first result."""
        return self.converter.tensor(self.operator.outputs[0])

    def shape(self, position: int) -> tuple[int, ...]:
        """The shape of an input."""
        return self.tensor(position).shape

    def value(self, position: int) -> Expr:
        """The Relax expression of an input, possibly a constant."""
        return self.converter.value(self.inputs[position])

    def values(self) -> list[Expr]:
        """The Relax expressions of all inputs."""
        return [self.converter.value(number) for number in self.inputs]

    def constant(self, position: int) -> npt.NDArray[Any]:
        """The values of an input; raises ModelError for omitted and non-constant inputs."""
        return self.converter.constant(self.operator, position)

    def integers(self, position: int) -> list[int]:
        """The values of a constant input of integers, in one row; raises ModelError."""
        return self.converter.integers(self.operator, position)

    def options(self, kind: str) -> Any:
        """The operator's options, for example of the kind `Conv2DOptions`; raises ModelError."""
        return self.converter.options(self.operator, kind)

    def emit(self, value: Expr) -> tvm_api.Var:
        """A variable bound to an expression."""
        return self.converter.emit(value)

    def dequantized(self, position: int) -> Expr:
        """The real numbers of an input, bound to a variable."""
        return self.converter.dequantized(self.inputs[position])

    def quantized(self, value: Expr, activation: int = 0) -> Expr:
        """Real numbers as the operator's result, after a fused activation of the schema."""
        return self.converter.quantized(self.operator, value, activation)

    def clip(self, activation: int = 0) -> tuple[int, int]:
        """Least and largest integer of the result after a fused activation."""
        return self.converter.clip(self.operator, activation)

    def island(self, function: Callable[[Expr], Expr]) -> Expr:
        """A function of the first input's real numbers, as the operator's result."""
        return self.quantized(function(self.dequantized(0)))

    def imported(self, values: Mapping[int, Expr] | None = None) -> Expr:
        """The result of TVM's own converter; `values` replaces some inputs."""
        given = {self.inputs[position]: value for position, value in (values or {}).items()}
        return self.converter.imported(self.operator, given)


Convert = Callable[[TfliteNode], Expr | list[Expr]]
"""From an operator to the expression of its result, a list for several results.

New values of the variable tensors that it changes follow, in the order of
`TfliteConversion.states`.
"""

C = TypeVar("C", bound=Convert)

Dtypes = str | tuple[str, str]
"""Dtypes of data and result; one name if both are equal."""


@dataclass(frozen=True)
class TfliteConversion:
    """The conversion of an operator, and the dtypes and scales that it supports.

    Attributes:
        data: position of the input that is the data.
        same_dtype: whether all inputs must have the dtype of the data.
        same_scale: whether the kernel ignores scales, so that inputs and results must have the same
            scale.
        weights: whether input 1 is weights, with 8 bits for 16-bit data.
        scaled: whether tensors of 8 and 16 bits must have a scale.
        asymmetric: pairs of dtypes in which int16 may have a zero point.
        states: positions of variable input tensors that the operator updates.
    """

    code: str
    convert: Convert
    dtypes: tuple[Dtypes, ...]
    data: int = 0
    same_dtype: bool = False
    same_scale: bool = False
    weights: bool = False
    scaled: bool = True
    asymmetric: tuple[tuple[str, str], ...] = ()
    operand_dtypes: tuple[str, ...] = ()
    states: tuple[int, ...] = ()

    @property
    def pairs(self) -> frozenset[tuple[str, str]]:
        """The supported pairs of dtypes of data and first result."""
        return frozenset((item, item) if isinstance(item, str) else item for item in self.dtypes)

    def takes(self, dtype: str) -> bool:
        """Whether data or result may have a dtype."""
        return any(dtype in pair for pair in self.pairs)

    @property
    def takes_quantized(self) -> bool:
        """Whether data or result may be quantized."""
        return any(self.takes(dtype) for dtype in QUANTIZED)


class Facts(TypedDict, total=False):
    """Fields of `TfliteConversion` besides the dtypes."""

    data: int
    same_dtype: bool
    same_scale: bool
    weights: bool
    scaled: bool
    asymmetric: tuple[tuple[str, str], ...]
    operand_dtypes: tuple[str, ...]
    states: tuple[int, ...]


_CONVERSIONS: dict[str, TfliteConversion] = {}


def converts(codes: str, *dtypes: Dtypes, **facts: Unpack[Facts]) -> Callable[[C], C]:
    """Register a function that converts operators.

    Args:
        codes: `CONV_2D`, ..., separated by spaces.
        dtypes, facts: as in `TfliteConversion`.
    """

    def register(convert: C) -> C:
        for code in codes.split():
            assert code not in _CONVERSIONS, code
            _CONVERSIONS[code] = TfliteConversion(code, convert, dtypes, **facts)
        return convert

    return register


CONVERSIONS: Mapping[str, TfliteConversion] = _CONVERSIONS
"""All conversions by code; the package imports every file that registers some."""


def imported(node: TfliteNode) -> Expr:
    """Convert an operator by TVM's converter, for converters that agree with TensorFlow Lite."""
    return node.imported()


def check_steps(options: Any, *names: str) -> None:
    """Refuse strides, dilations and windows that are not positive, to avoid divisions by zero.

    Args:
        names: names of the options, for example `StrideH`.
    """
    for name in names:
        step = getattr(options, name)()
        if not 1 <= step <= MOST_STEPS:
            raise ModelError(f"its {name} is {step}")


def one_axis(axes: list[int], rank: int) -> int:
    """Return the only axis of an input, counted from the front."""
    if len(axes) != 1 or not -rank <= axes[0] < rank:
        raise ModelError(f"its axis is {axes}")
    return axes[0] % rank


def float32(value: float) -> Expr:
    """A float32 scalar for Relax operators."""
    return tvm_api.relax.const(np.float32(value))


def check_wide_bias(node: TfliteNode, data: int = 0, bias: int = 2, options: Any = None) -> None:
    """Refuse biases of 16-bit data with another dtype than the kernel's accumulators.

    Accumulators have 64 bits, or the dtype of the bias if the kernel supports both, as in
    TensorFlow Lite Micro's conv.cc, fully_connected.cc, depthwise_conv.cc and transpose_conv.cc.

    Args:
        node: a linear operator.
        data, bias: positions of the inputs.
        options: options with `QuantizedBiasType`, if the kernel has a choice.
    """
    if node.tensor(data).dtype != "int16":
        return
    dtype = node.tensor(bias).dtype if node.has(bias) else "int64"
    allowed = ("int64",) if options is None else ("int64", "int32")
    if dtype not in allowed:
        raise ModelError(f"its bias is {dtype}, not {' or '.join(allowed)}")
    if options is not None and not node.has(bias) and options.QuantizedBiasType() == TYPE_INT32:
        raise ModelError("it has no bias but accumulators of 32 bits")
