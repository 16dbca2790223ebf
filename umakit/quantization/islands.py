# SPDX-License-Identifier: Apache-2.0
"""Recognition of quantized operators: quantize(operator(dequantize(...))) becomes integers only.

Importers write a quantized operator as an island of real arithmetic between dequantize and
quantize. What an island computes in integers is said by the parameters that `parameters` derives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.quantization import further_parameters, parameters
from umakit.quantization.fixed_point import Rounding
from umakit.quantization.further_operators import FURTHER_OPERATORS, Lookup
from umakit.quantization.onnx_islands import OnnxIslands
from umakit.quantization.onnx_parameters import rounding_of
from umakit.quantization.operators import OPERATORS, PREFIX, MaxPool2d, Quantize
from umakit.quantization.parameters import Result
from umakit.quantization.tensors import (
    INTEGERS,
    FloatInTheModel,
    NotAnIsland,
    Quantized,
    Scale,
    Weights,
    dequantized_weights,
    scale_of,
)
from umakit.quantization.windows import on_images

TFLITE_INTEGERS = ("int8", "uint8", "int16")

KINDS = {f"{PREFIX}{kind.operator}": kind for kind in (*OPERATORS, *FURTHER_OPERATORS)}

LINEAR = (
    "nn.conv1d",
    "nn.conv2d",
    "nn.conv1d_transpose",
    "nn.conv2d_transpose",
    "matmul",
)

MOVEMENTS = ("reshape", "permute_dims", "squeeze", "expand_dims", "concat")
"""Operators that only move numbers: on integers they do the same if all have one scale."""


@dataclass(frozen=True)
class LeftInFloat:
    """An operator that still computes in floating point.

    Attributes:
        name: of the node in the user's model.
        operator: for example `nn.conv2d`.
        reason: why.
        intended: whether the model itself asks for floating point there.
    """

    name: str
    operator: str
    reason: str
    intended: bool


@tvm_api.mutator
class IslandRecognizer(tvm_api.PyExprMutator):  # type: ignore[misc]
    """Rewrites `main`; afterwards dead code is left over.

    Args:
        module: the network.
        rounding: of integer products.
        within_nodes: whether an island must come from a single node of the user's model. So it is
            in TensorFlow Lite, where explicit dequantize and quantize operators surround
            operators that compute in floating point.
    """

    def __init__(self, module: Any, rounding: Rounding, within_nodes: bool) -> None:
        super().__init__(module)
        self._rounding = rounding
        self._within_nodes = within_nodes
        self._onnx = (
            OnnxIslands(self.builder_, self._definition) if rounding is Rounding.ORT else None
        )
        self.left: list[LeftInFloat] = []

    def visit_var_binding_(self, binding: Any) -> None:
        value = self.visit_expr(binding.value)
        emitted = tvm_api.emit_like(self.builder_, binding.var, value)
        self.set_var_remap(binding.var, emitted)

    def visit_tuple_getitem_(self, item: Any) -> Any:
        """A part of a split tensor, as a slice; it needs no tuple."""
        item = self.visit_expr_post_order(item)
        split = self._definition(item.tuple_value)
        if self._onnx is None or tvm_api.operator_name(split) != "split":
            return item
        return self._onnx.part(split, int(item.index))

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        operator = tvm_api.operator_name(call)
        if operator == "quantize":
            return self._quantize(call)
        if operator == "clip":
            return self._clip_integers(call)
        if operator == "nn.max_pool2d" and tvm_api.dtype_of(call.args[0]) in (
            "int8",
            "uint8",
            "int16",
        ):
            return self._max_pool_of_integers(call)
        return call

    # --- integers -----------------------------------------------------------------------------

    def _clip_integers(self, call: Any) -> Any:
        """A clip of an integer operator's result becomes part of that operator."""
        value = self._definition(call.args[0])
        name = tvm_api.operator_name(value)
        kind = KINDS.get(name)
        if kind is None:
            return call
        known = kind.of(value)
        low, high = (round(tvm_api.float_argument(argument)) for argument in call.args[1:3])
        clip = max(known.clip[0], low), min(known.clip[1], high)
        operands = list(value.args)
        if kind is Lookup:
            table = tvm_api.constant_array(operands[1])
            assert table is not None
            operands[1] = tvm_api.relax.const(np.clip(table, *clip))
        return replace(known, clip=clip).call(operands, call.span)

    def _max_pool_of_integers(self, call: Any) -> Any:
        scale = Scale(parameters.ONE, 0, tvm_api.dtype_of(call.args[0]))
        shape = tvm_api.static_shape(call) or ()
        result = Result(call, scale, scale.limits, False, shape, call.span)
        try:
            pool = parameters.pool2d(MaxPool2d, result, call, self._rounding)
        except NotAnIsland:
            return call
        return pool.call([call.args[0]], call.span)

    # --- islands ------------------------------------------------------------------------------

    def _quantize(self, call: Any) -> Any:
        try:
            table = None if self._onnx is None else self._onnx.function_of_one(call)
            return self._island(self._result(call)) if table is None else table
        except NotAnIsland as reason:
            inner = self._definition(call.args[0])
            operator = tvm_api.operator_name(inner) or "quantize"
            name = tvm_api.name_of(call) or str(call.args[0])
            intended = isinstance(reason, FloatInTheModel)
            self.left.append(LeftInFloat(name, operator, str(reason), intended))
            # ONNX Runtime rounds ties to even, as Relax does.
            away = intended and self._rounding is Rounding.TFLM
            return self._quantize_floats(call) if away else call

    def _quantize_floats(self, call: Any) -> Any:
        """A quantize of what the model computes in float, with TensorFlow Lite's rounding."""
        scale = self._scale(call, tvm_api.dtype_of(call))
        shape = tvm_api.static_shape(call) or ()
        result = Result(call, scale, scale.limits, False, shape, call.span)
        divisor = tvm_api.relax.const(np.array([scale.scale], np.float32))
        return Quantize(**result.common(self._rounding)).call([call.args[0], divisor], call.span)

    def _result(self, call: Any) -> Result:
        """The value that a quantize rounds."""
        scale = self._scale(call, tvm_api.dtype_of(call))
        (low, high), activation = scale.limits, False
        value = self._definition(call.args[0])
        self._check_node(value, call.span)
        while tvm_api.operator_name(value) in ("nn.relu", "nn.relu6", "clip"):
            activation = True
            bounds = _activation_bounds(value)
            low = max(low, scale.integer(bounds[0]))
            high = min(high, scale.integer(bounds[1]))
            value = self._definition(value.args[0])
        shape = tvm_api.static_shape(call)
        if shape is None or not tvm_api.operator_name(value):
            raise NotAnIsland("the quantized value is no operator's result, or has no shape")
        return Result(value, scale, (low, high), activation, shape, call.span)

    def _island(self, result: Result) -> Any:
        operator = tvm_api.operator_name(result.call)
        if self._onnx is not None and self._onnx.multiplies_data(result.call):
            return self._onnx.matmul(result)
        if self._onnx is not None and not self._adds_bias(result.call):
            handler = self._onnx.handler(operator)
            if handler is not None:
                return handler(result)
        if operator == "dequantize":
            source = self._dequantized_call(result.call, result)
            rounding = self._rounding_for(source, result)
            known = parameters.requantize(result, source, rounding)
            return known.call([source.integers], result.span)
        if operator in MOVEMENTS:
            return self._movement(result)
        handlers: dict[str, Callable[[Result], Any]] = {
            **dict.fromkeys(LINEAR, self._linear),
            "add": self._sum_or_linear,
            "subtract": self._elementwise,
            "multiply": self._product_or_lookup,
            "sigmoid": self._lookup,
            "tanh": self._lookup,
            "nn.leakyrelu": self._lookup,
            "mean": self._mean,
            "nn.avg_pool2d": self._unary,
            "nn.max_pool2d": self._unary,
            "nn.softmax": self._unary,
        }
        if operator not in handlers:
            raise NotAnIsland(f"there is no integer form of {operator}")
        return handlers[operator](result)

    def _unary(self, result: Result) -> Any:
        source = self._dequantized(result.call.args[0], result)
        return parameters.unary(result, source, self._rounding)

    def _mean(self, result: Result) -> Any:
        source = self._dequantized(result.call.args[0], result)
        return further_parameters.mean(result, source, self._rounding)

    def _lookup(self, result: Result, argument: Any = None) -> Any:
        """An activation function of the only argument of the island, or of another expression."""
        if argument is None:
            argument = result.call.args[0]
        source = self._dequantized(argument, result)
        return further_parameters.lookup(result, source, self._rounding)

    def _product_or_lookup(self, result: Result) -> Any:
        argument = further_parameters.hard_swish_argument(result.call, self._definition)
        if argument is None:
            return self._elementwise(result)
        return self._lookup(result, argument)

    def _elementwise(self, result: Result) -> Any:
        operands = [self._dequantized(argument, result) for argument in result.call.args]
        known = parameters.elementwise(result, operands, self._rounding)
        return known.call([operand.integers for operand in operands], result.span)

    def _sum_or_linear(self, result: Result) -> Any:
        if self._adds_bias(result.call):
            first = self._definition(result.call.args[0])
            return self._linear(replace(result, call=first), bias=result.call.args[1])
        return self._elementwise(result)

    def _adds_bias(self, call: Any) -> bool:
        if tvm_api.operator_name(call) != "add":
            return False
        first = self._definition(call.args[0])
        return tvm_api.operator_name(first) in LINEAR

    def _linear(self, result: Result, bias: Any = None) -> Any:
        """A convolution or fully connected layer, with its bias if there is one."""
        source = self._dequantized(result.call.args[0], result)
        self._check_node(self._definition(result.call.args[1]), result.span)
        weights = self._weights(result.call.args[1])
        biases = None if bias is None else self._weights(bias)
        operator = tvm_api.operator_name(result.call)
        rounding = self._rounding_for(source, result)
        if operator == "matmul":
            return parameters.dense(self.builder_, result, source, weights, biases, rounding)
        transposed = operator.endswith("transpose")
        convolution = further_parameters.conv2d_transpose if transposed else parameters.conv2d
        return on_images(
            self.builder_, result.shape, source, result.span,
            lambda data, shape: convolution(
                replace(result, shape=shape), data, weights, biases, rounding
            ),
        )  # fmt: skip

    def _rounding_for(self, source: Quantized, result: Result) -> Rounding:
        """How products become integers."""
        if self._rounding is Rounding.TFLM:
            return self._rounding
        return rounding_of(source.scale, result.scale)

    def _movement(self, result: Result) -> Any:
        """An operator that moves numbers, applied to the integers themselves."""
        call = result.call
        first = call.args[0]
        together = first.fields if isinstance(first, tvm_api.RelaxTuple) else None
        sources = [self._dequantized(item, result) for item in (together or [first])]
        if result.activation or any(source.scale != result.scale for source in sources):
            raise NotAnIsland("it changes the scale or clips")
        integers = [source.integers for source in sources]
        moved = tvm_api.relax.Tuple(integers) if together else integers[0]
        return tvm_api.relax.Call(call.op, [moved, *call.args[1:]], call.attrs, None, result.span)

    # --- reading ------------------------------------------------------------------------------

    def _weights(self, expression: Any) -> Weights:
        symmetric = self._rounding is Rounding.TFLM
        return dequantized_weights(expression, self._definition, symmetric=symmetric)

    def _definition(self, expression: Any) -> Any:
        """What a variable is bound to; anything else is its own definition."""
        if isinstance(expression, tvm_api.Var):
            bound = self.lookup_binding(expression)
            if isinstance(bound, tvm_api.Var):
                return self._definition(bound)
            return expression if bound is None else bound
        return expression

    def _dequantized(self, expression: Any, result: Result) -> Quantized:
        call = self._definition(expression)
        if tvm_api.operator_name(call) != "dequantize":
            raise NotAnIsland("an operand is no dequantized integer tensor")
        return self._dequantized_call(call, result)

    def _dequantized_call(self, call: Any, result: Result) -> Quantized:
        self._check_node(call, result.span)
        return Quantized(call.args[0], self._scale(call, tvm_api.dtype_of(call.args[0])))

    def _scale(self, call: Any, dtype: str) -> Scale:
        """The scale of a quantize or dequantize call."""
        tflm = self._rounding is Rounding.TFLM
        return scale_of(call, dtype, TFLITE_INTEGERS if tflm else INTEGERS)

    def _check_node(self, call: Any, span: Any) -> None:
        if self._within_nodes and tvm_api.name_of(call) != tvm_api.span_name(span):
            raise FloatInTheModel("the model computes it in floating point")


def _activation_bounds(call: Any) -> tuple[float, float]:
    """Least and largest value that an activation lets through.

    Raises:
        NotAnIsland: bounds that are no constants.
    """
    operator = tvm_api.operator_name(call)
    if operator == "nn.relu":
        return 0.0, float("inf")
    if operator == "nn.relu6":
        return 0.0, 6.0
    try:
        low, high = (tvm_api.float_argument(argument) for argument in call.args[1:3])
    except ValueError as error:
        raise NotAnIsland(str(error)) from None
    return low, high


def recognize_islands(
    module: Any, rounding: Rounding, *, within_nodes: bool
) -> tuple[Any, list[LeftInFloat]]:
    """Rewrite the islands of `main` as integer operators.

    Returns:
        The module, and the islands that have no integer form here.
    """
    recognizer = IslandRecognizer(module, rounding, within_nodes)
    main = module.get_global_var("main")
    recognizer.builder_.update_func(main, recognizer.visit_expr(module["main"]))
    clean = tvm_api.relax_transform.DeadCodeElimination()(recognizer.builder_.get())
    return clean, recognizer.left
