# SPDX-License-Identifier: Apache-2.0
"""Islands of ONNX networks whose integers are computed otherwise than TensorFlow Lite's.

Which operators ONNX Runtime computes in integers between DequantizeLinear and QuantizeLinear, and
how, is said in its `qdq_selector_action_transformer.cc` and the kernels named below. Operators
that it computes in float32 element by element become tables with the same results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.floats import resampling
from umakit.operators.lookup import Lookup
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.tables.functions import (
    FunctionOfOne,
    all_integers,
    conversion,
    is_identity,
    quantized,
)
from umakit.operators.tables.straight_lines import interpolation_table
from umakit.operators.tensors import Definition, NotAnIsland, Quantized, scale_of
from umakit.quantization import (
    float32_pairs,
    further_parameters,
    onnx_parameters,
    parameters,
)
from umakit.quantization.onnx_operators import (
    Float32Pair,
    Float32Product,
    Float32Sum,
    Interpolation,
)
from umakit.quantization.onnx_parameters import rounding_of
from umakit.quantization.operators import Parameters
from umakit.quantization.parameters import Result
from umakit.quantization.windows import on_images

relax = tvm_api.relax
ORT = Arithmetic.ORT

MOVEMENTS = frozenset(
    "reshape permute_dims squeeze expand_dims concat nn.pad strided_slice broadcast_to "
    "flatten image.resize2d resample take tile repeat flip".split()
)
"""Operators that only move numbers, and may add zeros."""

HALF_A_STEP = 0.51
"""How far an exact result is from its integer, with room for float32's rounding."""


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
        table = quantized(function.values, scale)
        if is_identity(table, function.source.scale):
            return function.source.integers
        shape = tvm_api.static_shape(call) or ()
        result = Result(call, scale, scale.limits, False, shape, call.span)
        if function.source.scale.bits > 8:
            return self._interpolated(function, table, result)
        operands = [function.source.integers, relax.const(table)]
        return Lookup(**result.common(ORT)).call(operands, call.span)

    def handler(self, operator: str) -> Callable[[Result], Any] | None:
        """What makes an island of an operator, if it is not made as for TensorFlow Lite."""
        if operator in MOVEMENTS:
            return self._movement
        return {
            "add": self._sum,
            "multiply": self._product,
            "subtract": self._difference,
            "mean": self._mean,
            "max": self._maximum,
            "nn.max_pool1d": self._max_pool,
            "nn.max_pool2d": self._max_pool,
            "nn.avg_pool1d": self._average_pool,
            "nn.avg_pool2d": self._average_pool,
            "nn.softmax": self._softmax,
        }.get(operator)

    def part(self, split: Any, index: int) -> Any:
        """One result of a split call as a slice of its operand."""
        axis, places = int(split.attrs.axis), split.attrs.indices_or_sections
        size = (tvm_api.static_shape(split.args[0]) or ())[axis]
        if hasattr(places, "__len__"):
            ends = [*(int(place) for place in places), size]
        else:
            length = -(-size // int(places))
            ends = [min(length * (part + 1), size) for part in range(int(places))]
        begin = ends[index - 1] if index else 0
        part = relax.op.strided_slice(split.args[0], [axis], [begin], [ends[index]])
        return tvm_api.make_call(part, span=split.span)

    def multiplies_data(self, call: Any) -> bool:
        """Whether a call is a product of two matrices that are both dequantized data."""
        if tvm_api.operator_name(call) != "matmul":
            return False
        right = self._definition(call.args[1])
        if tvm_api.operator_name(right) != "dequantize":
            return False
        return tvm_api.constant_array(self._definition(right.args[0])) is None

    def matmul(self, result: Result) -> Any:
        """A product of two matrices that are both data."""
        left, right = (self._dequantized(argument) for argument in result.call.args)
        known = onnx_parameters.matmul(result, left, right)
        return known.call([left.integers, right.integers], result.span)

    # --- operators ----------------------------------------------------------------------------

    def _sum(self, result: Result) -> Any:
        return self._pair(result, Float32Sum, float32_pairs.float32_sum)

    def _product(self, result: Result) -> Any:
        return self._pair(result, Float32Product, float32_pairs.float32_product)

    def _difference(self, result: Result) -> Any:
        return self._pair(result, Float32Sum, None)

    def _pair(
        self, result: Result, kind: type[Float32Pair], fused: Callable[..., Float32Pair] | None
    ) -> Any:
        """A sum, difference or product; ONNX Runtime fuses it if all types are the same."""
        operands = [self._dequantized(argument) for argument in result.call.args]
        scales = [operand.scale for operand in operands]
        dtypes = {scale.dtype for scale in (*scales, result.scale)}
        rounding = rounding_of(*scales, result.scale)
        if fused is not None and len(dtypes) == 1 and rounding is ORT:
            shapes = [tvm_api.static_shape(operand.integers) or () for operand in operands]
            known = fused(result.common(ORT), scales, result.scale, shapes)
        else:
            common = result.common(rounding)
            sign = -1 if tvm_api.operator_name(result.call) == "subtract" else 1
            known = float32_pairs.nearest_pair(kind, common, scales, result.scale, sign)
        return known.call([operand.integers for operand in operands], result.span)

    def _mean(self, result: Result) -> Any:
        """ONNX Runtime's pool of whole images, or a mean over any axes."""
        source = self._dequantized(result.call.args[0])
        rank = len(tvm_api.static_shape(source.integers) or ())
        axes = sorted(int(axis) % rank for axis in result.call.attrs.axis or range(rank))
        rounding = rounding_of(source.scale, result.scale)
        if rank >= 3 and axes == list(range(2, rank)) and rounding is ORT:
            return onnx_parameters.global_average_pool(result, source)
        return further_parameters.mean(result, source, rounding)

    def _softmax(self, result: Result) -> Any:
        return onnx_parameters.softmax(result, self._dequantized(result.call.args[0]))

    def _average_pool(self, result: Result) -> Any:
        return self._on_images(result, onnx_parameters.average_pool)

    def _max_pool(self, result: Result) -> Any:
        return self._largest(result, onnx_parameters.max_pool)

    def _maximum(self, result: Result) -> Any:
        """The largest of whole images."""
        shape = tvm_api.static_shape(result.call.args[0]) or ()
        axes = sorted(int(axis) % len(shape) for axis in result.call.attrs.axis or ())
        if len(shape) < 3 or axes != list(range(2, len(shape))) or len(result.shape) < len(shape):
            raise NotAnIsland("the maximum is not over all positions of a channel")
        return self._largest(result, onnx_parameters.global_max_pool)

    def _largest(self, result: Result, known_of: Callable[[Result, Any], Parameters]) -> Any:
        def pool(result: Result, source: Quantized) -> Any:
            integers = self._converted(source, result)
            return known_of(result, integers).call([integers], result.span)

        return self._on_images(result, pool)

    def _on_images(self, result: Result, make: Callable[[Result, Quantized], Any]) -> Any:
        """A pool of images, or of rows as images of one row."""
        source = self._dequantized(result.call.args[0])
        return on_images(
            self._builder, result.shape, source, result.span,
            lambda data, shape: make(replace(result, shape=shape), data),
        )  # fmt: skip

    def _movement(self, result: Result) -> Any:
        """An operator that moves numbers, applied to integers of the result's scale."""
        call = result.call
        first = call.args[0]
        together = first.fields if isinstance(first, tvm_api.RelaxTuple) else None
        sources = [self._dequantized(item) for item in (together or [first])]
        integers = [self._converted(source, result) for source in sources]
        moved = relax.Tuple(integers) if together else integers[0]
        operator = tvm_api.operator_name(call)
        if operator == resampling.OPERATOR and not resampling.moves_only(call):
            raise NotAnIsland("ONNX Runtime interpolates in floating point")
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
        if source.scale == result.scale and result.clip == result.scale.limits:
            return source.integers
        shape = tvm_api.static_shape(source.integers) or ()
        there = replace(result, shape=shape)
        if source.scale.bits > 8:
            known = parameters.requantize(there, source, Arithmetic.EVEN)
            return self._builder.emit(known.call([source.integers], result.span))
        table = conversion(source.scale, result.scale, result.clip)
        if is_identity(table, source.scale):
            return source.integers
        fields = there.common(ORT)
        call = Lookup(**fields).call([source.integers, relax.const(table)], result.span)
        return self._builder.emit(call)

    def _interpolated(self, function: FunctionOfOne, table: Any, result: Result) -> Any:
        """A function of 16 bits: a change of scale with limits, or a table with straight lines."""
        source, target = function.source.scale, result.scale
        clip = int(table.min()), int(table.max())
        there = replace(result, clip=clip)
        distances = all_integers(source.dtype) - source.zero_point
        straight = distances * (float(source.scale) / float(target.scale)) + target.zero_point
        if np.abs(np.clip(straight, *clip) - table.astype(np.int64)).max() <= HALF_A_STEP:
            known = parameters.requantize(there, function.source, Arithmetic.EVEN)
            return known.call([function.source.integers], result.span)
        reals = function.values.astype(np.float64) / float(target.scale) + target.zero_point
        short, bits = interpolation_table(table, np.clip(reals, *target.limits))
        lines = Interpolation(**there.common(Arithmetic.EVEN), step_bits=bits)
        return lines.call([function.source.integers, relax.const(short)], result.span)
