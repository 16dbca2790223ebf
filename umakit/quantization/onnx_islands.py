# SPDX-License-Identifier: Apache-2.0
"""Islands of ONNX networks whose integers are computed otherwise than TensorFlow Lite's.

Which operators ONNX Runtime computes in integers between DequantizeLinear and QuantizeLinear, and
how, is said in its `qdq_selector_action_transformer.cc` and the kernels named below. Operators
that it computes in float32 element by element become tables with the same results.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.quantization import float32_pairs, parameters
from umakit.quantization.fixed_point import Rounding, fixed_point
from umakit.quantization.float32 import LARGEST_FACTOR
from umakit.quantization.further_operators import Lookup
from umakit.quantization.lookup_tables import FunctionOfOne, conversion, is_identity, quantized
from umakit.quantization.onnx_operators import GlobalAveragePool
from umakit.quantization.operators import MaxPool2d
from umakit.quantization.parameters import Result
from umakit.quantization.tensors import Definition, NotAnIsland, Quantized, Scale, scale_of

relax = tvm_api.relax
ORT = Rounding.ORT

MOVEMENTS = frozenset(
    "reshape permute_dims squeeze expand_dims concat nn.pad strided_slice broadcast_to "
    "flatten image.resize2d take tile repeat flip".split()
)
"""Operators that only move numbers, and may add zeros."""


def nearest_places(size: int, result: int, mode: str, rounding: str) -> Any:
    """Which elements of an axis a nearest-neighbour resize takes, int64[result].

    Raises:
        NotAnIsland: a mode, or a ratio of sizes, whose rounding is not known to be exact.
    """
    if mode not in ("half_pixel", "asymmetric") or result % size:
        raise NotAnIsland("a resize is not by a whole number, or in an uncommon mode")
    factor = result // size
    # Twice the coordinate times the factor: exact.
    doubled = np.arange(result) * 2 + (1 - factor if mode == "half_pixel" else 0)
    whole = 2 * factor
    rounded = {
        "floor": doubled // whole,
        "ceil": -(-doubled // whole),
        "round": -((factor - doubled) // whole),
        "round_prefer_floor": -((factor - doubled) // whole),
        "round_prefer_ceil": (doubled + factor) // whole,
    }.get(rounding)
    if rounded is None:
        raise NotAnIsland(f"a resize rounds by {rounding}")
    return np.clip(rounded, 0, size - 1).astype(np.int64)


class OnnxIslands:
    """Integer operators with ONNX Runtime's results.

    Args:
        builder: where several operators take the place of one.
        definition: finds what variables are bound to.
    """

    def __init__(self, builder: Any, definition: Definition) -> None:
        self._builder = builder
        self._definition = definition

    def function_of_one(self, call: Any) -> Any | None:
        """A quantize call as a table of one integer tensor, None if it is none.

        Constants, which an exporter may leave as quantize(weights), are folded.
        """
        scale = scale_of(call, tvm_api.dtype_of(call))
        constant = tvm_api.constant_array(self._definition(call.args[0]))
        if constant is not None:
            return relax.const(quantized(constant, scale))
        try:
            function = FunctionOfOne(call.args[0], self._definition)
        except NotAnIsland:
            return None
        return self._looked_up(function.source, quantized(function.values, scale), scale, call)

    def handler(self, operator: str) -> Callable[[Result], Any] | None:
        """What makes an island of an operator, if it is not made as for TensorFlow Lite."""
        if operator in MOVEMENTS:
            return self._movement
        return {
            "add": self._sum,
            "multiply": self._product,
            "mean": self._global_average_pool,
            "nn.max_pool2d": self._max_pool,
            "nn.avg_pool2d": self._average_pool,
            "nn.softmax": self._softmax,
            "subtract": self._difference,
        }.get(operator)

    # --- operators ----------------------------------------------------------------------------

    def _sum(self, result: Result) -> Any:
        return self._pair(result, float32_pairs.float32_sum)

    def _product(self, result: Result) -> Any:
        return self._pair(result, float32_pairs.float32_product)

    def _pair(self, result: Result, parameters_of: Callable[..., Any]) -> Any:
        operands = [self._dequantized(argument) for argument in result.call.args]
        if any(operand.scale.dtype != result.scale.dtype for operand in operands):
            raise NotAnIsland("operands and result are of different integer types")
        shapes = [tvm_api.static_shape(operand.integers) or () for operand in operands]
        scales = [operand.scale for operand in operands]
        known = parameters_of(result.common(ORT), scales, result.scale, shapes)
        return known.call([operand.integers for operand in operands], result.span)

    def _global_average_pool(self, result: Result) -> Any:
        """`MlasQLinearGlobalAveragePoolNchw`: a sum, rescaled as that of a convolution."""
        attributes, source = result.call.attrs, self._dequantized(result.call.args[0])
        shape = tvm_api.static_shape(source.integers) or ()
        axes = sorted(int(axis) % len(shape) for axis in attributes.axis or ())
        if len(shape) < 3 or axes != list(range(2, len(shape))):
            raise NotAnIsland("the mean is not over all positions of a channel")
        count = math.prod(shape[2:])
        factor = source.scale.scale / np.float32(result.scale.scale * np.float32(count))
        if not factor < LARGEST_FACTOR or count >= 2**23:
            raise NotAnIsland("the result's scale is too small for the data's")
        scaled = fixed_point([float(factor)])
        known = GlobalAveragePool(
            **result.common(ORT),
            input_zero_point=source.scale.zero_point,
            multiplier=int(scaled.multipliers[0]),
            shift=int(scaled.shifts[0]),
        )
        return known.call([source.integers], result.span)

    def _max_pool(self, result: Result) -> Any:
        source = self._converted(self._dequantized(result.call.args[0]), result)
        return parameters.pool2d(MaxPool2d, result, result.call, ORT).call([source], result.span)

    def _average_pool(self, result: Result) -> Any:
        raise NotAnIsland("ONNX Runtime adds up its window in floating point")

    def _softmax(self, result: Result) -> Any:
        raise NotAnIsland("ONNX Runtime's quantized softmax is in floating point")

    def _difference(self, result: Result) -> Any:
        raise NotAnIsland("ONNX Runtime subtracts in floating point")

    def _movement(self, result: Result) -> Any:
        """An operator that moves numbers, applied to integers of the result's scale."""
        call = result.call
        first = call.args[0]
        together = first.fields if isinstance(first, tvm_api.RelaxTuple) else None
        sources = [self._dequantized(item) for item in (together or [first])]
        integers = [self._converted(source, result) for source in sources]
        moved = relax.Tuple(integers) if together else integers[0]
        operator = tvm_api.operator_name(call)
        if operator == "nn.pad":
            return self._padded(call, moved, result)
        if operator == "image.resize2d":
            return self._resized(call, moved, result)
        return relax.Call(call.op, [moved, *call.args[1:]], call.attrs, None, result.span)

    def _padded(self, call: Any, moved: Any, result: Result) -> Any:
        """A pad with the integer of the value that the model pads with."""
        attributes = call.attrs
        value = tvm_api.float_argument(call.args[1]) if len(call.args) > 1 else None
        if value is None:
            value = float(getattr(attributes, "pad_value", 0.0))
        integer = int(quantized(np.array(value), result.scale, result.clip))
        widths = [int(width) for width in attributes.pad_width]
        padded = relax.op.nn.pad(moved, widths, pad_value=integer)
        return tvm_api.make_call(padded, span=result.span)

    def _resized(self, call: Any, moved: Any, result: Result) -> Any:
        """A nearest-neighbour resize as two gathers, without coordinates in floating point."""
        attributes, shape = call.attrs, tvm_api.static_shape(call.args[0]) or ()
        if str(attributes.method) != "nearest_neighbor" or str(attributes.layout) != "NCHW":
            raise NotAnIsland("ONNX Runtime interpolates in floating point")
        mode = str(attributes.coordinate_transformation_mode)
        rounding = str(attributes.rounding_method)
        for axis in (2, 3):
            places = nearest_places(shape[axis], result.shape[axis], mode, rounding)
            moved = relax.op.take(moved, relax.const(places), axis=axis)
            moved = tvm_api.make_call(moved, span=result.span)
            moved = self._builder.emit(moved) if axis == 2 else moved
        return moved

    # --- integers -----------------------------------------------------------------------------

    def _dequantized(self, expression: Any) -> Quantized:
        call = self._definition(expression)
        if tvm_api.operator_name(call) != "dequantize":
            raise NotAnIsland("an operand is no dequantized integer tensor")
        return Quantized(call.args[0], scale_of(call, tvm_api.dtype_of(call.args[0])))

    def _converted(self, source: Quantized, result: Result) -> Any:
        """Integers of the result's scale, within what its activation lets through."""
        table = conversion(source.scale, result.scale, result.clip)
        if is_identity(table, source.scale):
            return source.integers
        shape = tvm_api.static_shape(source.integers)
        fields = result.common(ORT) | {"output_shape": shape}
        call = Lookup(**fields).call([source.integers, relax.const(table)], result.span)
        return self._builder.emit(call)

    def _looked_up(self, source: Quantized, table: Any, scale: Scale, call: Any) -> Any:
        if is_identity(table, source.scale):
            return source.integers
        shape = tvm_api.static_shape(call)
        result = Result(call, scale, scale.limits, False, shape or (), call.span)
        return Lookup(**result.common(ORT)).call([source.integers, relax.const(table)], call.span)
