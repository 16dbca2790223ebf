# SPDX-License-Identifier: Apache-2.0
"""TVM's TensorFlow Lite converters, corrected where their results are not TensorFlow Lite's."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tflite

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.frontend.tflite.checks import DATA_INPUTS
from umakit.frontend.tflite.graph import (
    TfliteGraph,
    TfliteOperator,
    TfliteTensor,
    quantized_axis,
)
from umakit.frontend.tflite.operators import CONVERTERS

frontend = tvm_api.tflite_frontend()
OperatorConverter: Any = frontend.OperatorConverter
relax = tvm_api.relax

ACTIVATIONS = {
    tflite.ActivationFunctionType.NONE: None,
    tflite.ActivationFunctionType.RELU: (0.0, math.inf),
    tflite.ActivationFunctionType.RELU_N1_TO_1: (-1.0, 1.0),
    tflite.ActivationFunctionType.RELU6: (0.0, 6.0),
}
"""Least and largest value that a fused activation lets through."""

STEPS = ("StrideH", "StrideW", "DilationHFactor", "DilationWFactor", "FilterHeight", "FilterWidth")
MOST_STEPS = 2**15


class Converter(OperatorConverter):  # type: ignore[misc]
    """Converts one operator at a time; values are known by tensor numbers, not by names.

    Attributes:
        values: Relax expressions by tensor number.
    """

    def __init__(self, graph: TfliteGraph, builder: Any) -> None:
        super().__init__(graph.model, graph.subgraph, frontend.ExprTable(), builder)
        self._graph = graph
        self.values: dict[int, Any] = {}

    def convert(self, operator: TfliteOperator) -> Any:
        """The Relax expression of an operator's result; a list for several results.

        Raises:
            ModelError: an option that is not supported.
            Exception: whatever TVM's converter raises.
        """
        converters = {
            "FULLY_CONNECTED": self._fully_connected,
            "AVERAGE_POOL_2D": self._average_pool,
            "SOFTMAX": self._softmax,
        }
        self._check_steps(operator)
        self._check_wide_bias(operator)
        if operator.code in CONVERTERS:
            value = CONVERTERS[operator.code](self, operator)
            if isinstance(value, list):
                return [self.bb.normalize(item) for item in value]
        elif operator.code in converters:
            value = converters[operator.code](operator)
        else:
            value = self.convert_map[operator.code](op=operator.table)
        return self.bb.normalize(value)

    def value(self, number: int) -> Any:
        """The expression of a tensor, which may be a constant."""
        if number not in self.values:
            (wrapper,) = self.get_tensors([number])
            values = self.get_tensor_value(wrapper)
            self.values[number] = relax.const(values, str(values.dtype))
        return self.values[number]

    def tensor(self, number: int) -> TfliteTensor:
        """What the file says about a tensor."""
        return self._graph.tensors[number]

    def shape(self, number: int) -> tuple[int, ...]:
        """The shape of a tensor."""
        return self._graph.tensors[number].shape

    def constant(self, operator: TfliteOperator, position: int) -> Any:
        """The values of an input that must be a constant.

        Raises:
            ModelError: it is not, or is left out.
        """
        number = operator.inputs[position] if position < len(operator.inputs) else -1
        if number < 0 or not self._graph.tensors[number].constant:
            raise ModelError(f"its input {position} is no constant")
        (wrapper,) = self.get_tensors([number])
        return self.get_tensor_value(wrapper)

    def integers(self, operator: TfliteOperator, position: int) -> list[int]:
        """The values of a constant input of integers, in one row.

        Raises:
            ModelError: it is no constant, or holds no integers.
        """
        values = self.constant(operator, position)
        if values.dtype.kind != "i":
            raise ModelError(f"its input {position} is {values.dtype}, not integer")
        return [int(value) for value in values.reshape(-1)]

    def options(self, operator: TfliteOperator, kind: Any) -> Any:
        """The operator's options of a kind, which must be there."""
        table = operator.table.BuiltinOptions()
        number = getattr(tflite.BuiltinOptions, kind.__name__)
        if table is None or operator.table.BuiltinOptionsType() != number:
            raise ModelError("its options are missing")
        options = kind()
        options.Init(table.Bytes, table.Pos)
        return options

    def dequantized(self, number: int) -> Any:
        """The real numbers of a tensor, bound to a variable."""
        if not self._graph.tensors[number].scales.size:
            return self.value(number)
        (wrapper,) = self.get_tensors([number])
        return self.bb.emit(self.dequantize(self.value(number), wrapper))

    def quantized(self, operator: TfliteOperator, value: Any, activation: int = 0) -> Any:
        """Real numbers as the operator's result, after a fused activation."""
        bounds = _activation_bounds(activation)
        if bounds is not None:
            low, high = (tvm_api.float_value(bound) for bound in bounds)
            value = relax.op.clip(value, low, high)
        (wrapper,) = self.get_tensors(operator.outputs[:1])
        if not self._graph.tensors[operator.outputs[0]].scales.size:
            return value
        return self.quantize(self.bb.emit(value), wrapper)

    def island(self, operator: TfliteOperator, function: Callable[[Any], Any]) -> Any:
        """A function of the first input's real numbers, as the operator's result."""
        return self.quantized(operator, function(self.dequantized(operator.inputs[0])))

    # --- TVM's hooks --------------------------------------------------------------------------

    def get_expr(self, input_tensor_idx: int) -> Any:
        """The value of a tensor that is no constant."""
        return self.values[int(input_tensor_idx)]

    def has_expr(self, input_tensor_idx: int) -> bool:
        """Whether a tensor was computed, and is no constant of the file."""
        number = int(input_tensor_idx)
        return number in self.values and not self._graph.tensors[number].constant

    def get_tensors(self, tensors_idx_list: Any) -> Any:
        """TVM's wrappers of tensors, with the axis of scales that `quantized_axis` says."""
        wrappers = super().get_tensors(tensors_idx_list)
        for wrapper in wrappers:
            if getattr(wrapper, "qnn_params", None):
                known = wrapper.tensor.Quantization()
                wrapper.qnn_params["axis"] = quantized_axis(known, wrapper.tensor.ShapeLength())
        return wrappers

    def get_input_tensors(self, op: Any) -> Any:
        """TVM's wrappers of an operator's inputs, without optional ones left out at the end."""
        wrappers = super().get_input_tensors(op)
        while wrappers and wrappers[-1].tensor_idx < 0:
            wrappers.pop()
        return wrappers

    def dequantize(self, expr: Any, tensor: Any) -> Any:
        """Real numbers; a bias of 64 bits is converted to 32 first, as TVM dequantizes no more.

        Raises:
            ModelError: its values need more than 32 bits.
        """
        values = tvm_api.constant_array(expr)
        if values is not None and values.dtype == np.int64:
            if values.size and (values.min() < -(2**31) or values.max() >= 2**31):
                raise ModelError("its bias needs more than 32 bits")
            expr = relax.op.astype(expr, "int32")
        return super().dequantize(expr, tensor)

    def is_prefetched(self, input_tensor_idx: int) -> bool:
        """No values are kept aside."""
        return False

    def convert_qnn_fused_activation_function(
        self, expr: Any, fused_activation_fn: int, scale: float, zero_point: int, dtype: str
    ) -> Any:
        """A clip of integers; bounds are rounded as TensorFlow Lite does, ties away from zero."""
        bounds = _activation_bounds(fused_activation_fn)
        if bounds is None:
            return expr
        limits = np.iinfo(dtype)
        low, high = (
            int(np.clip(_quantized(bound, scale, zero_point), limits.min, limits.max))
            for bound in bounds
        )
        return relax.op.clip(expr, float(low), float(high))

    # --- operators ----------------------------------------------------------------------------

    def _check_steps(self, operator: TfliteOperator) -> None:
        """Strides, dilations and windows must be positive: others divide by zero."""
        options = self._options(operator)
        for name in STEPS:
            step = getattr(options, name, lambda: 1)()
            if not 1 <= step <= MOST_STEPS:
                raise ModelError(f"its {name} is {step}")

    def _check_wide_bias(self, operator: TfliteOperator) -> None:
        """Sums of 16-bit data have 64 bits, or those of the bias where the kernel has a choice.

        So it is in TensorFlow Lite Micro (conv.cc, fully_connected.cc, depthwise_conv.cc,
        transpose_conv.cc).
        """
        positions = {
            "CONV_2D": 2,
            "DEPTHWISE_CONV_2D": 2,
            "FULLY_CONNECTED": 2,
            "TRANSPOSE_CONV": 3,
        }
        if operator.code not in positions:
            return
        position = positions[operator.code]
        if self.tensor(operator.inputs[DATA_INPUTS.get(operator.code, 0)]).dtype != "int16":
            return
        number = operator.inputs[position] if len(operator.inputs) > position else -1
        dtype = self.tensor(number).dtype if number >= 0 else "int64"
        chooses = operator.code in ("CONV_2D", "FULLY_CONNECTED")
        allowed = ("int64", "int32") if chooses else ("int64",)
        if dtype not in allowed:
            raise ModelError(f"its bias is {dtype}, not {' or '.join(allowed)}")
        kind = getattr(self._options(operator), "QuantizedBiasType", None)
        if chooses and number < 0 and kind is not None and kind() == tflite.TensorType.INT32:
            raise ModelError("it has no bias but sums of 32 bits")

    def _options(self, operator: TfliteOperator) -> Any:
        """The operator's options, None when it has none that matter here."""
        kinds = {
            "CONV_2D": tflite.Conv2DOptions,
            "DEPTHWISE_CONV_2D": tflite.DepthwiseConv2DOptions,
            "FULLY_CONNECTED": tflite.FullyConnectedOptions,
            "AVERAGE_POOL_2D": tflite.Pool2DOptions,
            "MAX_POOL_2D": tflite.Pool2DOptions,
            "SOFTMAX": tflite.SoftmaxOptions,
            "TRANSPOSE_CONV": tflite.TransposeConvOptions,
        }
        if operator.code not in kinds:
            return None
        return self.options(operator, kinds[operator.code])

    def _result_shape(self, operator: TfliteOperator) -> tuple[int, ...]:
        return self._graph.tensors[operator.outputs[0]].shape

    def _fully_connected(self, operator: TfliteOperator) -> Any:
        """Rows of inputs: TVM does not flatten data of more dimensions."""
        options = self._options(operator)
        if options.WeightsFormat() != tflite.FullyConnectedOptionsWeightsFormat.DEFAULT:
            raise ModelError("its weights are shuffled")
        inputs = self._graph.tensors[operator.inputs[1]].shape[-1]
        data = self.value(operator.inputs[0])
        shape = tvm_api.static_shape(data) or ()
        rows = math.prod(shape) // inputs
        result_shape = self._result_shape(operator)
        if rows * inputs != math.prod(shape):
            raise ModelError(f"its data of shape {list(shape)} is not rows of {inputs}")
        if shape != (rows, inputs):
            flat = self.bb.normalize(relax.op.reshape(data, (rows, inputs)))
            self.values[operator.inputs[0]] = self.bb.emit(flat)
        try:
            result = self.bb.normalize(self.convert_fully_connected(op=operator.table))
        finally:
            self.values[operator.inputs[0]] = data
        if tvm_api.static_shape(result) == result_shape:
            return result
        return relax.op.reshape(self.bb.emit(result), result_shape)

    def _average_pool(self, operator: TfliteOperator) -> Any:
        """Between dequantize and quantize: TVM's own truncates where the mean is rounded."""
        if self._graph.tensors[operator.inputs[0]].dtype == "float32":
            return self.convert_pool2d(operator.table, "average")
        data = self.value(operator.inputs[0])
        options = self._options(operator)
        padding = [0, 0, 0, 0]
        extents = (tvm_api.static_shape(data) or ())[1:3]
        window = (options.FilterHeight(), options.FilterWidth())
        strides = (options.StrideH(), options.StrideW())
        if options.Padding() == tflite.Padding.SAME:
            (top, bottom), (left, right) = (
                frontend.get_pad_value(*item) for item in zip(extents, window, strides, strict=True)
            )
            padding = [top, left, bottom, right]
        pooled = relax.op.nn.avg_pool2d(
            self.dequantized(operator.inputs[0]), window, strides, padding, layout="NHWC"
        )
        return self.quantized(operator, pooled, options.FusedActivationFunction())

    def _softmax(self, operator: TfliteOperator) -> Any:
        beta = self._options(operator).Beta()
        if beta != 1.0:
            raise ModelError(f"its beta is {beta}, only 1 is supported")
        return self.convert_softmax(op=operator.table)


def _activation_bounds(activation: int) -> tuple[float, float] | None:
    """Least and largest value after a fused activation, None if there is none.

    Raises:
        ModelError: an activation that kernels do not fuse.
    """
    if activation not in ACTIVATIONS:
        raise ModelError(f"its fused activation {activation} is not supported")
    return ACTIVATIONS[activation]


def _quantized(value: float, scale: float, zero_point: int) -> float:
    """The integer for a real number, not limited to a dtype; infinities stay."""
    quotient = float(np.float32(value) / np.float32(scale))
    return (
        zero_point + math.copysign(math.floor(abs(quotient) + 0.5), quotient)
        if (math.isfinite(quotient))
        else quotient
    )
