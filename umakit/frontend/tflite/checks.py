# SPDX-License-Identifier: Apache-2.0
"""Refusal of TensorFlow Lite operators whose dtypes or scales the kernels do not support."""

from __future__ import annotations

import numpy as np

from umakit.errors import ModelError
from umakit.frontend.tflite.graph import TfliteGraph
from umakit.operators.tflite import (
    CONVERSIONS,
    QUANTIZED,
    TfliteConversion,
    TfliteOperator,
    TfliteTensor,
)

BIASED = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
"""Operators whose third input is a bias."""

ZERO_FOR_ZERO = ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV")
"""Operators whose kernels of TensorFlow Lite Micro know no zero points of weights."""


def check_operator(graph: TfliteGraph, operator: TfliteOperator, where: str) -> None:
    """Refuse an operator that cannot be imported exactly."""
    tensors = [graph.tensors[n] for n in (*operator.inputs, *operator.outputs) if n >= 0]
    if not operator.outputs or not operator.inputs or operator.inputs[0] < 0:
        raise ModelError(f"operator {operator.code} has no input or no output", where=where)
    label = operator_label(graph, operator)
    quantized = [tensor for tensor in tensors if tensor.dtype in QUANTIZED]
    conversion = _conversion(operator, bool(quantized), label, where)
    _check_states(graph, operator, conversion, label, where)
    for tensor in tensors:
        taken = conversion.takes(tensor.dtype) or tensor.dtype in conversion.operand_dtypes
        foreign = tensor.dtype in QUANTIZED and not taken
        if tensor.dtype.startswith("type") or foreign:
            raise ModelError(
                f"{label}: tensor {tensor.name!r} is {tensor.dtype}, which it does not take",
                where=where,
                fix=f"convert it to one of {_shown(conversion)}",
            )
    source, result = _check_dtypes(graph, operator, conversion, label, where)
    if conversion.scaled:
        symmetric = (source.dtype, result.dtype) not in conversion.asymmetric
        for tensor in quantized:
            _check_scale(tensor, symmetric, label, where)
    if conversion.weights:
        _check_weights(graph, operator, source.dtype, label, where)
    if conversion.same_scale:
        for tensor in quantized:
            if not _same_quantization(tensor, result):
                raise ModelError(
                    f"{label} would change the scale of tensor {tensor.name!r}",
                    where=where,
                    fix="quantize its input and output with the same scale and zero point",
                )


def _conversion(
    operator: TfliteOperator, quantized: bool, label: str, where: str
) -> TfliteConversion:
    conversion = CONVERSIONS.get(operator.code)
    if conversion is None or (quantized and not conversion.takes_quantized):
        kind = "a quantized operator" if quantized else "an operator"
        raise ModelError(
            f"{label} is not supported as {kind}",
            where=where,
            fix="docs/tflite.md of umakit lists the supported operators and their dtypes",
        )
    return conversion


def _check_states(
    graph: TfliteGraph,
    operator: TfliteOperator,
    conversion: TfliteConversion,
    label: str,
    where: str,
) -> None:
    for position, number in enumerate(operator.inputs):
        if number < 0 or graph.tensors[number].variable == (position in conversion.states):
            continue
        name = graph.tensors[number].name
        if position in conversion.states:
            raise ModelError(
                f"{label}: its state {name!r} is not a variable tensor",
                where=where,
                fix="convert the model with TensorFlow Lite's own converter",
            )
        raise ModelError(
            f"{label}: tensor {name!r} is a variable, which outlives an inference",
            where=where,
            fix="make the state an input and an output of the model",
        )
    for position in conversion.states:
        if position >= len(operator.inputs) or operator.inputs[position] < 0:
            raise ModelError(f"{label} lacks its state, input {position}", where=where)


def _check_scale(tensor: TfliteTensor, symmetric: bool, label: str, where: str) -> None:
    """Refuse integers without a scale, and zero points that kernels do not support."""
    if tensor.scales.size == 0:
        raise ModelError(
            f"{label}: tensor {tensor.name!r} has no scale",
            where=where,
            fix="quantize all tensors of the operator, or none",
        )
    if (tensor.scales == 0).any():
        raise ModelError(
            f"{label}: tensor {tensor.name!r} has the scale 0 at {int(tensor.scales.argmin())}",
            where=where,
            fix="give a channel whose weights are all 0 the scale 1",
        )
    limits = np.iinfo(tensor.dtype)
    low, high = (0, 0) if tensor.dtype == "int16" and symmetric else (limits.min, limits.max)
    if ((tensor.zero_points < low) | (tensor.zero_points > high)).any():
        raise ModelError(
            f"{label}: tensor {tensor.name!r} has a zero point that is not {tensor.dtype}"
            + (" of symmetric quantization" if low == high else ""),
            where=where,
            fix=f"quantize with zero points from {low} to {high}",
        )


def _check_weights(
    graph: TfliteGraph, operator: TfliteOperator, dtype: str, label: str, where: str
) -> None:
    """Refuse zero points of weights for kernels that assume 0, and biases without a scale."""
    weights = graph.tensors[operator.inputs[1]]
    if dtype in ("int8", "int16") and operator.code in ZERO_FOR_ZERO and weights.zero_points.any():
        raise ModelError(
            f"{label}: its weights {weights.name!r} have the zero point "
            f"{weights.zero_points[weights.zero_points != 0][0]}, which kernels take for 0",
            where=where,
            fix="quantize weights symmetrically, with zero points of 0",
        )
    for number in operator.inputs[2:] if operator.code in BIASED else ():
        bias = graph.tensors[number] if number >= 0 else None
        if dtype in QUANTIZED and bias is not None and not bias.scales.size:
            raise ModelError(
                f"{label}: its bias {bias.name!r} has no scale",
                where=where,
                fix="give it the scale of the data times that of the weights",
            )


def _check_dtypes(
    graph: TfliteGraph,
    operator: TfliteOperator,
    conversion: TfliteConversion,
    label: str,
    where: str,
) -> tuple[TfliteTensor, TfliteTensor]:
    """Return data and first result of an operator, after a check of their dtypes."""
    position = conversion.data
    if len(operator.inputs) <= position or operator.inputs[position] < 0:
        raise ModelError(f"{label} lacks its input {position}", where=where)
    source, result = graph.tensors[operator.inputs[position]], graph.tensors[operator.outputs[0]]
    dtypes = [graph.tensors[number].dtype for number in operator.inputs if number >= 0]
    taken = (source.dtype, result.dtype) in conversion.pairs
    if conversion.same_dtype:
        taken = taken and set(dtypes) == {source.dtype}
    if conversion.weights:
        weights = "int8" if source.dtype == "int16" else source.dtype
        taken = taken and len(dtypes) > 1 and dtypes[1] == weights
    if not taken:
        raise ModelError(
            f"{label} has dtypes that its kernel does not take together: "
            f"{', '.join(dtypes)} to {result.dtype}",
            where=where,
            fix=f"let data and result be one of {_shown(conversion)}"
            + (", and weights the same, or int8 for data of int16" if conversion.weights else ""),
        )
    return source, result


def _shown(conversion: TfliteConversion) -> str:
    return ", ".join(
        each if isinstance(each, str) else " to ".join(each) for each in conversion.dtypes
    )


def _same_quantization(one: TfliteTensor, other: TfliteTensor) -> bool:
    return np.array_equal(one.scales, other.scales) and np.array_equal(
        one.zero_points, other.zero_points
    )


def operator_label(graph: TfliteGraph, operator: TfliteOperator) -> str:
    names = [graph.tensors[number].name for number in operator.outputs]
    return f"operator {operator.code} that writes {', '.join(map(repr, names)) or 'nothing'}"
