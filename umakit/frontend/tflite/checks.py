# SPDX-License-Identifier: Apache-2.0
"""Which operators of a TensorFlow Lite file are imported, with which dtypes and scales."""

from __future__ import annotations

import numpy as np

from umakit.errors import ModelError
from umakit.frontend.tflite.graph import TfliteGraph, TfliteOperator, TfliteTensor

MOVEMENTS = frozenset(
    "RESHAPE PAD PADV2 CONCATENATION SQUEEZE EXPAND_DIMS TRANSPOSE STRIDED_SLICE SLICE SPLIT "
    "SPLIT_V PACK UNPACK RESIZE_NEAREST_NEIGHBOR MAXIMUM MINIMUM".split()
)
"""Operators that yield numbers of their operands."""

FLOAT_OPERATORS = MOVEMENTS | frozenset(
    "CONV_2D DEPTHWISE_CONV_2D FULLY_CONNECTED BATCH_MATMUL ADD SUB MUL AVERAGE_POOL_2D "
    "MAX_POOL_2D MEAN SUM SOFTMAX RELU RELU6 LEAKY_RELU PRELU ELU HARD_SWISH LOGISTIC TANH "
    "RESIZE_BILINEAR ARG_MAX ARG_MIN".split()
)
INTEGER_OPERATORS = FLOAT_OPERATORS | frozenset("TRANSPOSE_CONV QUANTIZE DEQUANTIZE".split())
SAME_SCALE_OPERATORS = MOVEMENTS | frozenset("AVERAGE_POOL_2D MAX_POOL_2D RELU6".split())
"""Operators that leave the scale alone: their kernels do not look at it."""

INTEGER_DTYPES = {
    "int8": INTEGER_OPERATORS,
    "uint8": MOVEMENTS
    | frozenset(
        "CONV_2D DEPTHWISE_CONV_2D FULLY_CONNECTED ADD SUB MUL AVERAGE_POOL_2D MAX_POOL_2D SOFTMAX "
        "RELU RELU6 LEAKY_RELU LOGISTIC TANH ARG_MAX ARG_MIN QUANTIZE DEQUANTIZE".split()
    ),
    "int16": MOVEMENTS
    | frozenset(
        "CONV_2D DEPTHWISE_CONV_2D TRANSPOSE_CONV FULLY_CONNECTED BATCH_MATMUL ADD SUB MUL "
        "AVERAGE_POOL_2D MAX_POOL_2D MEAN SUM SOFTMAX RELU RELU6 LEAKY_RELU PRELU LOGISTIC TANH "
        "QUANTIZE DEQUANTIZE".split()
    ),
}
"""Dtypes of quantized tensors, and which operators take them.

TensorFlow Lite Micro has no kernels of uint8 any more. Those of TensorFlow Lite's reference
(`depthwiseconv_uint8.h`, `conv.h`, `softmax.h`, ...) do what today's do for int8, but that
weights have zero points. Operators whose arithmetic differed between releases are left out.
"""

CONVERSIONS: dict[str, set[tuple[str, str]]] = {
    "QUANTIZE": {
        ("float32", "int8"), ("float32", "int16"), ("int8", "int8"), ("int8", "uint8"),
        ("int8", "int16"), ("uint8", "int8"), ("int16", "int8"), ("int16", "int16"),
        ("float32", "uint8"), ("uint8", "uint8"),
    },
    "DEQUANTIZE": {(dtype, "float32") for dtype in ("int8", "uint8", "int16")},
    "SOFTMAX": {
        ("float32", "float32"), ("int8", "int8"), ("int8", "int16"), ("int16", "int16"),
        ("uint8", "uint8"),
    },
    "ARG_MAX": {(dtype, "int32") for dtype in ("float32", "int8", "uint8")},
    "ARG_MIN": {(dtype, "int32") for dtype in ("float32", "int8", "uint8")},
}  # fmt: skip
"""Dtypes (operand, result) of operators where these may differ."""

SAME_DTYPE_OPERATORS = frozenset(
    "ADD SUB MUL MAXIMUM MINIMUM CONCATENATION PACK BATCH_MATMUL".split()
)
"""Operators whose operands all have one dtype."""

DATA_INPUTS = {"SPLIT": 1, "TRANSPOSE_CONV": 2}
"""Which input is the data, where it is not the first one."""

LINEAR_OPERATORS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV")


def check_operator(graph: TfliteGraph, operator: TfliteOperator, where: str) -> None:
    """Refuse an operator that would not be imported exactly."""
    tensors = [graph.tensors[n] for n in (*operator.inputs, *operator.outputs) if n >= 0]
    if not operator.outputs or not operator.inputs or operator.inputs[0] < 0:
        raise ModelError(f"operator {operator.code} has no input or no output", where=where)
    label = operator_label(graph, operator)
    quantized = [tensor for tensor in tensors if tensor.dtype in INTEGER_DTYPES]
    for tensor in tensors:
        allowed = INTEGER_DTYPES.get(tensor.dtype, INTEGER_OPERATORS)
        # Unsupported operators are named as such below, whatever they work on.
        known = operator.code in INTEGER_OPERATORS
        if tensor.dtype.startswith("type") or (known and operator.code not in allowed):
            raise ModelError(
                f"{label}: tensor {tensor.name!r} is {tensor.dtype}",
                where=where,
                fix="quantize to int8",
            )
    supported = INTEGER_OPERATORS if quantized else FLOAT_OPERATORS
    if operator.code not in supported:
        kind = "a quantized operator" if quantized else "an operator"
        raise ModelError(
            f"{label} is not supported as {kind}",
            where=where,
            fix=f"supported are {', '.join(sorted(supported))}",
        )
    # Only the result of a softmax of 8 bits has 16 that are not symmetric.
    symmetric = operator.code != "DEQUANTIZE" and not (
        operator.code == "SOFTMAX" and tensors[0].dtype == "int8"
    )
    for tensor in quantized:
        _check_scale(tensor, symmetric, label, where)
    _check_kinds(graph, operator, label, where)


def _check_scale(tensor: TfliteTensor, symmetric: bool, label: str, where: str) -> None:
    """Refuse integers without a scale, and zero points that kernels do not take."""
    if tensor.scales.size == 0 or (tensor.scales == 0).any():
        raise ModelError(f"{label}: tensor {tensor.name!r} has no scale", where=where)
    limits = np.iinfo(tensor.dtype)
    low, high = (0, 0) if tensor.dtype == "int16" and symmetric else (limits.min, limits.max)
    if ((tensor.zero_points < low) | (tensor.zero_points > high)).any():
        raise ModelError(
            f"{label}: tensor {tensor.name!r} has a zero point that is no {tensor.dtype}"
            + (" of symmetric quantization" if low == high else ""),
            where=where,
        )


def _check_kinds(graph: TfliteGraph, operator: TfliteOperator, label: str, where: str) -> None:
    """Refuse mixtures of dtypes, and changes of scale that kernels do not make."""
    position = DATA_INPUTS.get(operator.code, 0)
    if len(operator.inputs) <= position or operator.inputs[position] < 0:
        raise ModelError(f"{label} lacks its input {position}", where=where)
    source, result = graph.tensors[operator.inputs[position]], graph.tensors[operator.outputs[0]]
    if not _known_dtypes(graph, operator, source.dtype, result.dtype):
        dtypes = [graph.tensors[number].dtype for number in operator.inputs if number >= 0]
        raise ModelError(
            f"{label} has dtypes that its kernel does not take together: "
            f"{', '.join(dtypes)} to {result.dtype}",
            where=where,
            fix="quantize weights and activations to int8, or neither",
        )
    if operator.code not in SAME_SCALE_OPERATORS:
        return
    for number in (*operator.inputs, *operator.outputs):
        tensor = graph.tensors[number]
        if tensor.dtype in INTEGER_DTYPES and not _same_quantization(tensor, result):
            raise ModelError(
                f"{label} would change the scale of tensor {tensor.name!r}",
                where=where,
                fix="quantize its input and output with the same scale and zero point",
            )


def _known_dtypes(graph: TfliteGraph, operator: TfliteOperator, source: str, result: str) -> bool:
    """Whether an operator's kernel takes its dtypes together.

    Args:
        graph: of the operator.
        operator: the operator.
        source: dtype of its data.
        result: dtype of its first result.
    """
    if operator.code in CONVERSIONS:
        allowed = (source, result) in CONVERSIONS[operator.code]
    else:
        allowed = source == result
    dtypes = [graph.tensors[number].dtype for number in operator.inputs if number >= 0]
    if operator.code in SAME_DTYPE_OPERATORS:
        allowed = allowed and set(dtypes) == {source}
    if operator.code in (*LINEAR_OPERATORS, "PRELU"):
        weights = "int8" if source == "int16" else source
        allowed = allowed and len(dtypes) > 1 and dtypes[1] == weights
    return allowed


def _same_quantization(one: TfliteTensor, other: TfliteTensor) -> bool:
    return np.array_equal(one.scales, other.scales) and np.array_equal(
        one.zero_points, other.zero_points
    )


def operator_label(graph: TfliteGraph, operator: TfliteOperator) -> str:
    """How messages call an operator."""
    names = [graph.tensors[number].name for number in operator.outputs]
    return f"operator {operator.code} that writes {', '.join(map(repr, names)) or 'nothing'}"
