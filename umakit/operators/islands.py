# SPDX-License-Identifier: Apache-2.0
"""Islands: real arithmetic between dequantize and quantize, the source of integer operators.

Importers write a quantized operator as `quantize(operator(dequantize(x), ...))`. An operator's file
has a `Recognition` of its islands. Its derivation gets an `Island` and returns the call of the
integer operator, None for another operator's island, or raises `NoIntegerForm` with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from umakit import tvm_api
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.parameters import CommonFields
from umakit.operators.tensors import (
    INTEGERS,
    Array,
    Definition,
    FloatInTheModel,
    NoIntegerForm,
    Quantized,
    Scale,
    Weights,
    dequantized_weights,
    scale_of,
)
from umakit.tvm_api import Call, Expr

TFLITE_INTEGERS = ("int8", "uint8", "int16")

ACTIVATIONS = ("nn.relu", "nn.relu6", "clip")
"""Relax operators that limit an operator's result and become part of it; see `clipping`."""


@dataclass(frozen=True)
class Result:
    """The value before a quantize, and before an activation in front of the quantize.

    Attributes:
        clip: least and largest integer after the activation.
        span: span of the operator; names the quantize's node as the node of the result.
    """

    call: Call
    scale: Scale
    clip: tuple[int, int]
    activation: bool
    shape: tuple[int, ...]
    span: tvm_api.Span | None

    def common(self, arithmetic: Arithmetic) -> CommonFields:
        """The fields that all `Parameters` have."""
        return {
            "output_shape": self.shape,
            "output_dtype": self.scale.dtype,
            "output_zero_point": self.scale.zero_point,
            "clip": self.clip,
            "rounding": arithmetic.value,
        }

    @classmethod
    def of(cls, call: Call, scale: Scale) -> Result:
        """Return the result for a call without an activation."""
        shape = tvm_api.static_shape(call) or ()
        return cls(call, scale, scale.limits, False, shape, call.span)


@dataclass(frozen=True)
class Network:
    """The network around an island, for derivations.

    Attributes:
        arithmetic: runtime of the reproduced rounding, `TFLM` or `ORT`.
        within_nodes: whether an island must come from a single node of the user's model. In
            TensorFlow Lite, operators between explicit dequantize and quantize operators compute in
            floating point.
        means_reals: whether the model defines its results in real arithmetic, so that biases may
            be real numbers.
        rounded_biases: names of layers with real biases rounded to integers; derivations append.
        weights: weights of layers, by name of the node of the layer's result; derivations add.
    """

    builder: tvm_api.BlockBuilder
    definition: Definition
    arithmetic: Arithmetic
    within_nodes: bool = False
    means_reals: bool = False
    rounded_biases: list[str] = field(default_factory=list)
    weights: dict[str, Weights] = field(default_factory=dict)

    def scale(self, call: Expr, dtype: str) -> Scale:
        """The scale of a quantize or dequantize call.

        Raises:
            NoIntegerForm: the arithmetic does not have the dtype, or the scale is not a constant.
        """
        tflm = self.arithmetic is Arithmetic.TFLM
        return scale_of(call, dtype, TFLITE_INTEGERS if tflm else INTEGERS)

    def check_node(self, call: Expr, span: tvm_api.Span | None) -> None:
        """Refuse a call of another node than the island's, if an island must be a single node."""
        if self.within_nodes and tvm_api.name_of(call) != tvm_api.result_name(span):
            raise FloatInTheModel("the model computes it in floating point")

    def clipping(self, value: Expr) -> tuple[float, float] | None:
        """Return the least and largest value of an activation; None for other operators."""
        operator = tvm_api.operator_name(value)
        if operator == "nn.relu":
            return 0.0, float("inf")
        if operator == "nn.relu6":
            return 0.0, 6.0
        if operator != "clip":
            return None
        try:
            low, high = (tvm_api.float_argument(argument) for argument in value.args[1:3])
        except ValueError as error:
            raise NoIntegerForm(str(error)) from None
        return low, high


@dataclass(frozen=True)
class Island:
    """A quantize and its operand: the input of a derivation."""

    result: Result
    network: Network

    @property
    def call(self) -> Call:
        """The call of the operator whose result is quantized."""
        return self.result.call

    @property
    def arithmetic(self) -> Arithmetic:
        """Runtime of the reproduced rounding, `TFLM` or `ORT`."""
        return self.network.arithmetic

    def with_result(
        self, *, call: Call | None = None, shape: tuple[int, ...] | None = None
    ) -> Island:
        """Return the island with another call, whose node names it, or another shape."""
        result = self.result
        span = result.span if call is None else tvm_api.span_with_result(call.span, result.span)
        call = result.call if call is None else call
        shape = result.shape if shape is None else shape
        return replace(self, result=replace(result, call=call, shape=shape, span=span))

    def arithmetic_of(self, *sources: Quantized) -> Arithmetic:
        """Return the rounding of products of operands to the result; see `arithmetic_of`."""
        if self.arithmetic is Arithmetic.TFLM:
            return self.arithmetic
        return arithmetic_of(*(source.scale for source in sources), self.result.scale)

    def definition(self, expression: Expr) -> Expr:
        """Return the bound expression of a variable; other expressions unchanged."""
        return self.network.definition(expression)

    def emit(self, call: Call) -> tvm_api.Var:
        """Add a call to the network and return its variable."""
        return self.network.builder.emit(call)

    def operand(self, position: int = 0) -> Quantized:
        """Return an operand of the operator as integers."""
        return self.dequantized(self.call.args[position])

    def operands(self) -> list[Quantized]:
        """Return all operands of the operator as integers."""
        return [self.dequantized(argument) for argument in self.call.args]

    def dequantized(self, expression: Expr) -> Quantized:
        """Return the integers behind a dequantized expression."""
        call = self.definition(expression)
        if tvm_api.operator_name(call) != "dequantize":
            raise NoIntegerForm("an operand is not a dequantized integer tensor")
        return self.integers_of(call)

    def integers_of(self, call: Expr) -> Quantized:
        """Return the integers of a dequantize call."""
        self.check_node(call)
        scale = self.network.scale(call, tvm_api.dtype_of(call.args[0]))
        return Quantized(call.args[0], scale)

    def check_node(self, call: Expr) -> None:
        """Refuse a call of another node if an island must be a single node."""
        self.network.check_node(call, self.result.span)

    def weights(self, expression: Expr, *, symmetric: bool) -> Weights:
        """Return the integers and scales of a constant, dequantized tensor.

        Args:
            symmetric: whether TensorFlow Lite Micro's kernel assumes that zero points are 0.
        """
        symmetric = symmetric and self.arithmetic is Arithmetic.TFLM
        return dequantized_weights(expression, self.definition, symmetric=symmetric)

    def bias(self, expression: Expr) -> Weights | Array:
        """Return the integers of a dequantized bias, or the real numbers of a constant bias."""
        array = tvm_api.constant_array(self.definition(expression))
        if self.network.means_reals and array is not None and array.dtype == np.float32:
            return array
        symmetric = self.arithmetic is Arithmetic.TFLM
        return dequantized_weights(
            expression, self.definition, symmetric=symmetric, what="the bias"
        )


def arithmetic_of(*scales: Scale) -> Arithmetic:
    """Return ONNX Runtime's rounding of products; the last scale is the result's."""
    return Arithmetic.EVEN if any(scale.bits > 8 for scale in scales) else Arithmetic.ORT


def check_tflm(arithmetic: Arithmetic) -> None:
    """Refuse another arithmetic than TensorFlow Lite Micro's."""
    if arithmetic is not Arithmetic.TFLM:
        raise NoIntegerForm("integers are known only as TensorFlow Lite Micro computes them")
