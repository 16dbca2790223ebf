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
from umakit.frontend.model import Meaning
from umakit.operators.islands import Island, Network, Result
from umakit.operators.leaky_relu import LeakyRelu
from umakit.operators.lookup import Lookup
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.registry import recognitions
from umakit.operators.requantize import Requantize
from umakit.operators.tensors import (
    INTEGERS,
    Array,
    FloatInTheModel,
    NotAnIsland,
    Quantized,
    Scale,
    Weights,
    dequantized_weights,
    scale_of,
)
from umakit.quantization import activation_parameters, further_parameters, parameters
from umakit.quantization.activation_expressions import (
    by_sign,
    hard_swish_argument,
    prelu_slopes,
)
from umakit.quantization.further_operators import FURTHER_OPERATORS, ArgMax, ArgMin
from umakit.quantization.onnx_islands import OnnxIslands
from umakit.quantization.onnx_operators import Float32Product, Float32Sum
from umakit.quantization.onnx_parameters import rounding_of
from umakit.quantization.operators import (
    OPERATORS,
    PREFIX,
    MaxPool2d,
    Parameters,
    Quantize,
)
from umakit.quantization.windows import on_images

TFLITE_INTEGERS = ("int8", "uint8", "int16")

LIMITED: tuple[type[Parameters], ...] = (
    *OPERATORS, *FURTHER_OPERATORS, Float32Sum, Float32Product, Requantize, Lookup, LeakyRelu,
)  # fmt: skip
"""Operators whose results may be limited further."""

KINDS = {f"{PREFIX}{kind.operator}": kind for kind in LIMITED}

LINEAR = (
    "nn.conv1d",
    "nn.conv2d",
    "nn.conv1d_transpose",
    "nn.conv2d_transpose",
    "matmul",
)

UNARY: dict[str, Callable[[Result, Quantized, Arithmetic], Any]] = {
    "mean": further_parameters.mean,
    "sum": further_parameters.mean,
    "image.resize2d": further_parameters.resize_bilinear,
    "nn.avg_pool2d": parameters.pool,
    "nn.max_pool2d": parameters.pool,
    "nn.softmax": activation_parameters.softmax,
}
"""Calls of operators with one operand of data, from parameters of the result and the operand."""

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
        meaning: of quantized operators. Where they mean integers, an island must come from a
            single node of the user's model: in TensorFlow Lite, explicit dequantize and quantize
            operators surround operators that compute in floating point. Where they mean reals, an
            operator without an integer form in one arithmetic takes that of the other.
    """

    def __init__(self, module: Any, rounding: Arithmetic, meaning: Meaning) -> None:
        super().__init__(module)
        self._means_reals = meaning is Meaning.REALS
        self._within_nodes = meaning is Meaning.INTEGERS
        self._rounding = rounding
        others = [other for other in (Arithmetic.TFLM, Arithmetic.ORT) if other is not rounding]
        self._roundings = [rounding, *(others if self._means_reals else [])]
        self._onnx_islands = OnnxIslands(self.builder_, self._definition)
        self.left: list[LeftInFloat] = []
        self.rounded_biases: list[str] = []

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
        dtype = tvm_api.dtype_of(call.args[0]) if operator == "nn.max_pool2d" else None
        if dtype in TFLITE_INTEGERS:
            return self._max_pool_of_integers(call)
        if operator in ("argmax", "argmin"):
            return further_parameters.arg_max(call, self._rounding)
        if operator == "astype":
            return self._place_as_int32(call)
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

    def _place_as_int32(self, cast: Any) -> Any:
        """An argmax or argmin whose result is cast to int32 has that dtype itself."""
        call = self._definition(cast.args[0])
        kind = KINDS.get(tvm_api.operator_name(call))
        if kind not in (ArgMax, ArgMin) or tvm_api.dtype_of(cast) != "int32":
            return cast
        return replace(kind.of(call), output_dtype="int32").call(list(call.args), cast.span)

    # --- islands ------------------------------------------------------------------------------

    @property
    def _onnx(self) -> OnnxIslands | None:
        """Islands of ONNX Runtime, where its results are to be met."""
        return self._onnx_islands if self._rounding is Arithmetic.ORT else None

    def _quantize(self, call: Any) -> Any:
        reasons: list[NotAnIsland] = []
        for rounding in self._roundings:
            self._rounding = rounding
            try:
                return self._integer_form(call)
            except NotAnIsland as reason:
                reasons.append(reason)
            finally:
                self._rounding = self._roundings[0]
        inner = self._definition(call.args[0])
        operator = tvm_api.operator_name(inner) or "quantize"
        name = tvm_api.name_of(call) or str(call.args[0])
        intended = isinstance(reasons[0], FloatInTheModel)
        self.left.append(LeftInFloat(name, operator, str(reasons[0]), intended))
        # ONNX Runtime and PyTorch round ties to even, as Relax does.
        return self._quantize_floats(call) if intended else call

    def _integer_form(self, call: Any) -> Any:
        table = None if self._onnx is None else self._onnx.function_of_one(call)
        return self._island(self._result(call)) if table is None else table

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
        if not tvm_api.operator_name(value):
            raise NotAnIsland("an input or constant of the network is float here")
        if shape is None:
            raise NotAnIsland("the quantized value has no static shape")
        return Result(value, scale, (low, high), activation, shape, call.span)

    def _island(self, result: Result) -> Any:
        operator = tvm_api.operator_name(result.call)
        network = Network(
            self.builder_, self._definition, self._rounding, self._within_nodes,
            self._means_reals, self.rounded_biases,
        )  # fmt: skip
        for recognition in recognitions(operator, self._rounding):
            found = recognition.derive(Island(result, network))
            if found is not None:
                return found
        if self._onnx is not None and self._onnx.multiplies_data(result.call):
            return self._onnx.matmul(result)
        if self._onnx is not None and not self._adds_bias(result.call):
            handler = self._onnx.handler(operator)
            if handler is not None:
                return handler(result)
        if operator in MOVEMENTS:
            return self._movement(result)
        handlers: dict[str, Callable[[Result], Any]] = {
            **dict.fromkeys(LINEAR, self._linear),
            "matmul": self._matmul,
            "add": self._sum_or_linear,
            "subtract": self._elementwise,
            "multiply": self._product_or_lookup,
            "sigmoid": self._activation,
            "tanh": self._activation,
        }
        if operator in UNARY:
            source = self._dequantized(result.call.args[0], result)
            return UNARY[operator](result, source, self._rounding_for(source, result))
        if operator not in handlers:
            raise NotAnIsland(f"there is no integer form of {operator}")
        return handlers[operator](result)

    def _activation(self, result: Result) -> Any:
        """An activation function of the only argument of the island."""
        name = activation_parameters.NAMES[tvm_api.operator_name(result.call)]
        source = self._dequantized(result.call.args[0], result)
        return activation_parameters.activation(name, result, source, self._rounding)

    def _product_or_lookup(self, result: Result) -> Any:
        argument = hard_swish_argument(result.call, self._definition)
        if argument is None:
            return self._elementwise(result)
        source = self._dequantized(argument, result)
        return activation_parameters.activation("hard_swish", result, source, self._rounding)

    def _elu_or_prelu(self, result: Result, argument: Any, negative: Any) -> Any:
        """relu(x) + y, where y is 0 for positive x."""
        source = self._dequantized(argument, result)
        slopes = prelu_slopes(negative, argument, self._definition)
        if slopes is None:
            return activation_parameters.activation("elu", result, source, self._rounding)
        return activation_parameters.prelu(
            result, source, self._dequantized(slopes, result), self._rounding
        )

    def _elementwise(self, result: Result) -> Any:
        operands = [self._dequantized(argument, result) for argument in result.call.args]
        known = parameters.elementwise(result, operands, self._rounding)
        return known.call([operand.integers for operand in operands], result.span)

    def _sum_or_linear(self, result: Result) -> Any:
        if self._adds_bias(result.call):
            first = self._definition(result.call.args[0])
            return self._linear(replace(result, call=first), bias=result.call.args[1])
        parts = by_sign(result.call, self._definition)
        if parts is not None:
            return self._elu_or_prelu(result, *parts)
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
        operator = tvm_api.operator_name(result.call)
        # Kernels of TensorFlow Lite Micro's convolutions take zero points of weights for 0.
        unsigned = source.scale.dtype == "uint8"
        symmetric = (operator != "matmul" and not unsigned) or source.scale.dtype == "int16"
        weights = self._weights(result.call.args[1], symmetric)
        biases = None if bias is None else self._bias(bias)
        if isinstance(biases, np.ndarray):
            self.rounded_biases.append(tvm_api.span_name(result.span) or operator)
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

    def _rounding_for(self, source: Quantized, result: Result) -> Arithmetic:
        """How products become integers."""
        if self._rounding is Arithmetic.TFLM:
            return self._rounding
        return rounding_of(source.scale, result.scale)

    def _matmul(self, result: Result) -> Any:
        """A fully connected layer, or a product of matrices that are both data."""
        if self._onnx is not None or self._has_weights(result.call):
            return self._linear(result)
        (left, left_adjoint), (right, right_adjoint) = (
            self._matrix(argument, result) for argument in result.call.args
        )
        return further_parameters.batch_matmul(
            result, (left, right), (left_adjoint, right_adjoint), self._rounding
        )

    def _has_weights(self, call: Any) -> bool:
        """Whether the right operand of a product is one constant matrix, and the left is data."""
        if tvm_api.operator_name(self._definition(call.args[0])) != "dequantize":
            return False
        right = self._definition(call.args[1])
        while tvm_api.operator_name(right) in ("permute_dims", "reshape", "dequantize"):
            right = self._definition(right.args[0])
        weights = tvm_api.constant_array(right)
        return weights is not None and weights.ndim == 2

    def _matrix(self, expression: Any, result: Result) -> tuple[Quantized, int]:
        """A dequantized tensor, and 1 if its last two axes are exchanged."""
        call = self._definition(expression)
        if tvm_api.operator_name(call) != "permute_dims":
            return self._dequantized(expression, result), 0
        self._check_node(call, result.span)
        rank = len(tvm_api.static_shape(call) or ())
        order = list(range(rank))[::-1] if call.attrs.axes is None else list(call.attrs.axes)
        if [int(axis) for axis in order] != [*range(rank - 2), rank - 1, rank - 2]:
            raise NotAnIsland("axes of an operand of a product change their order")
        return self._dequantized(call.args[0], result), 1

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

    def _weights(self, expression: Any, symmetric: bool) -> Weights:
        symmetric = symmetric and self._rounding is Arithmetic.TFLM
        return dequantized_weights(expression, self._definition, symmetric=symmetric)

    def _bias(self, expression: Any) -> Weights | Array:
        """Dequantized integers, or the real numbers of a constant."""
        array = tvm_api.constant_array(self._definition(expression))
        is_real = self._means_reals and array is not None and array.dtype == np.float32
        return array if array is not None and is_real else self._weights(expression, True)

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
        tflm = self._rounding is Arithmetic.TFLM
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
    module: Any, rounding: Arithmetic, meaning: Meaning
) -> tuple[Any, list[LeftInFloat], list[str]]:
    """Rewrite the islands of `main` as integer operators.

    Returns:
        The module, the islands that have no integer form here, and the layers whose float bias
        became integers.
    """
    recognizer = IslandRecognizer(module, rounding, meaning)
    main = module.get_global_var("main")
    recognizer.builder_.update_func(main, recognizer.visit_expr(module["main"]))
    clean = tvm_api.relax_transform.DeadCodeElimination()(recognizer.builder_.get())
    return clean, recognizer.left, recognizer.rounded_biases
