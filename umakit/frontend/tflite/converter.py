# SPDX-License-Identifier: Apache-2.0
"""TVM's TensorFlow Lite converters, corrected where their results are not TensorFlow Lite's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tflite

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.frontend.tflite.graph import TfliteGraph, quantized_axis
from umakit.operators.tflite import CONVERSIONS, TfliteNode, TfliteOperator, TfliteTensor
from umakit.tvm_api import Expr, relax

frontend = tvm_api.tflite_frontend()
OperatorConverter: Any = frontend.OperatorConverter

ACTIVATIONS = {
    tflite.ActivationFunctionType.NONE: None,
    tflite.ActivationFunctionType.RELU: (0.0, math.inf),
    tflite.ActivationFunctionType.RELU_N1_TO_1: (-1.0, 1.0),
    tflite.ActivationFunctionType.RELU6: (0.0, 6.0),
}
"""Least and largest value that a fused activation lets through."""


class Converter(OperatorConverter):  # type: ignore[misc]
    """Converter of one operator at a time. Values are looked up by tensor number.

    The methods of `operators.tflite.TfliteConverter` are for the conversions.
    """

    def __init__(self, graph: TfliteGraph, builder: tvm_api.BlockBuilder) -> None:
        super().__init__(graph.model, graph.subgraph, frontend.ExprTable(), builder)
        self._graph = graph
        self.bb: tvm_api.BlockBuilder = builder
        self.values: dict[int, Expr] = {}

    def convert(self, operator: TfliteOperator) -> Expr | list[Expr]:
        value = CONVERSIONS[operator.code].convert(TfliteNode(self, operator))
        if isinstance(value, list):
            return [self.bb.normalize(item) for item in value]
        return self.bb.normalize(value)

    def imported(self, operator: TfliteOperator, values: Mapping[int, Any] | None = None) -> Expr:
        before = dict(self.values)
        self.values.update(values or {})
        try:
            converted: Expr = self.convert_map[operator.code](op=operator.table)
            return self.bb.normalize(converted)
        finally:
            self.values = before

    def emit(self, value: Expr) -> tvm_api.Var:
        return self.bb.emit(value)

    def value(self, number: int) -> Expr:
        if number not in self.values:
            (wrapper,) = self.get_tensors([number])
            values = self.get_tensor_value(wrapper)
            self.values[number] = relax.const(values, str(values.dtype))
        return self.values[number]

    def tensor(self, number: int) -> TfliteTensor:
        return self._graph.tensors[number]

    def constant(self, operator: TfliteOperator, position: int) -> npt.NDArray[Any]:
        number = operator.inputs[position] if position < len(operator.inputs) else -1
        if number < 0 or not self._graph.tensors[number].constant:
            raise ModelError(f"its input {position} is not a constant")
        (wrapper,) = self.get_tensors([number])
        values: npt.NDArray[Any] = self.get_tensor_value(wrapper)
        return values

    def integers(self, operator: TfliteOperator, position: int) -> list[int]:
        values = self.constant(operator, position)
        if values.dtype.kind != "i":
            raise ModelError(f"its input {position} is {values.dtype}, not integer")
        return [int(value) for value in values.reshape(-1)]

    def options(self, operator: TfliteOperator, kind: str) -> Any:
        table = operator.table.BuiltinOptions()
        number = getattr(tflite.BuiltinOptions, kind)
        if table is None or operator.table.BuiltinOptionsType() != number:
            raise ModelError("its options are missing")
        options = getattr(tflite, kind)()
        options.Init(table.Bytes, table.Pos)
        return options

    def dequantized(self, number: int) -> Expr:
        if not self._graph.tensors[number].scales.size:
            return self.value(number)
        (wrapper,) = self.get_tensors([number])
        return self.bb.emit(self.dequantize(self.value(number), wrapper))

    def quantized(self, operator: TfliteOperator, value: Expr, activation: int = 0) -> Expr:
        bounds = _activation_bounds(activation)
        if bounds is not None:
            low, high = (tvm_api.float_value(bound) for bound in bounds)
            value = relax.op.clip(value, low, high)
        (wrapper,) = self.get_tensors(operator.outputs[:1])
        if not self._graph.tensors[operator.outputs[0]].scales.size:
            return value
        rounded: Expr = self.quantize(self.bb.emit(value), wrapper)
        return rounded

    def clip(self, operator: TfliteOperator, activation: int = 0) -> tuple[int, int]:
        tensor = self.tensor(operator.outputs[0])
        bounds = _activation_bounds(activation) or (-math.inf, math.inf)
        scale, zero_point = float(tensor.scales[0]), int(tensor.zero_points[0])
        return _quantized(bounds, scale, zero_point, tensor.dtype)

    # --- TVM's hooks --------------------------------------------------------------------------

    def get_expr(self, input_tensor_idx: int) -> Expr:
        return self.value(int(input_tensor_idx))

    def has_expr(self, input_tensor_idx: int) -> bool:
        """Return whether a tensor is computed, in contrast to a constant of the file."""
        number = int(input_tensor_idx)
        return number in self.values and not self._graph.tensors[number].constant

    def get_tensors(self, tensors_idx_list: Any) -> Any:
        """Return TVM's tensor wrappers, with the scale axis corrected by `quantized_axis`."""
        wrappers = super().get_tensors(tensors_idx_list)
        for wrapper in wrappers:
            if getattr(wrapper, "qnn_params", None):
                wrapper.qnn_params["axis"] = quantized_axis(
                    wrapper.tensor.Quantization(), wrapper.tensor.ShapeLength()
                )
        return wrappers

    def get_input_tensors(self, op: Any) -> Any:
        """Return TVM's wrappers of an operator's inputs, without omitted inputs at the end."""
        wrappers = super().get_input_tensors(op)
        while wrappers and wrappers[-1].tensor_idx < 0:
            wrappers.pop()
        return wrappers

    def dequantize(self, expr: Expr, tensor: Any) -> Expr:
        """Dequantize a tensor. A 64-bit bias is first converted to 32 bits, TVM's limit."""
        values = tvm_api.constant_array(expr)
        if values is not None and values.dtype == np.int64:
            if values.size and (values.min() < -(2**31) or values.max() >= 2**31):
                raise ModelError("its bias needs more than 32 bits")
            expr = relax.op.astype(expr, "int32")
        reals: Expr = super().dequantize(expr, tensor)
        return reals

    def is_prefetched(self, input_tensor_idx: int) -> bool:
        return False

    def convert_qnn_fused_activation_function(
        self, expr: Expr, fused_activation_fn: int, scale: float, zero_point: int, dtype: str
    ) -> Expr:
        """Clip integers. Bounds are rounded half away from zero, as in TensorFlow Lite."""
        bounds = _activation_bounds(fused_activation_fn)
        if bounds is None:
            return expr
        low, high = _quantized(bounds, scale, zero_point, dtype)
        return relax.op.clip(expr, float(low), float(high))


def _activation_bounds(activation: int) -> tuple[float, float] | None:
    """Return the bounds of a fused activation; None without bounds."""
    if activation not in ACTIVATIONS:
        raise ModelError(f"its fused activation {activation} is not supported")
    return ACTIVATIONS[activation]


def _quantized(
    bounds: tuple[float, float], scale: float, zero_point: int, dtype: str
) -> tuple[int, int]:
    """Quantize real bounds, which may be infinite, with saturation."""

    def quantized(value: float) -> int:
        quotient = float(np.float32(value) / np.float32(scale))
        if math.isfinite(quotient):
            quotient = zero_point + math.copysign(math.floor(abs(quotient) + 0.5), quotient)
        return int(np.clip(quotient, np.iinfo(dtype).min, np.iinfo(dtype).max))

    return quantized(bounds[0]), quantized(bounds[1])
