# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite files as input.

TVM's importer converts the operators; here the file is checked first, operators whose results are
not known to be TensorFlow Lite's are refused, and every call keeps its operator's name: that of
the tensor it writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.frontend.model import (
    InputShapes,
    Meaning,
    Model,
    Quantization,
    TensorSpecification,
    last_line,
)
from umakit.frontend.relax_modules import rename_operators
from umakit.frontend.simplify import quiet
from umakit.frontend.tflite_converter import Converter
from umakit.frontend.tflite_graph import TfliteGraph, TfliteOperator, TfliteTensor, read_graph
from umakit.names import symbol_part

MOVEMENTS = frozenset(
    "RESHAPE PAD PADV2 CONCATENATION SQUEEZE EXPAND_DIMS TRANSPOSE STRIDED_SLICE SLICE SPLIT "
    "SPLIT_V RESIZE_NEAREST_NEIGHBOR MAXIMUM MINIMUM".split()
)
"""Operators that yield numbers of their operands."""

FLOAT_OPERATORS = MOVEMENTS | frozenset(
    "CONV_2D DEPTHWISE_CONV_2D FULLY_CONNECTED ADD SUB MUL AVERAGE_POOL_2D MAX_POOL_2D SOFTMAX "
    "RELU RELU6 LOGISTIC TANH".split()
)
INTEGER_OPERATORS = MOVEMENTS | frozenset(
    "CONV_2D DEPTHWISE_CONV_2D TRANSPOSE_CONV FULLY_CONNECTED ADD SUB MUL AVERAGE_POOL_2D "
    "MAX_POOL_2D MEAN SOFTMAX RELU RELU6 LEAKY_RELU HARD_SWISH LOGISTIC TANH QUANTIZE "
    "DEQUANTIZE".split()
)
SAME_SCALE_OPERATORS = MOVEMENTS | frozenset("AVERAGE_POOL_2D MAX_POOL_2D RELU6".split())
"""Operators that leave the scale alone: their kernels do not look at it."""

EVERYTHING = FLOAT_OPERATORS | INTEGER_OPERATORS
INTEGER_DTYPES = {
    "int8": EVERYTHING,
    "uint8": frozenset(["QUANTIZE", "DEQUANTIZE"]),
    "int16": MOVEMENTS
    | frozenset(
        "CONV_2D DEPTHWISE_CONV_2D FULLY_CONNECTED ADD SUB MUL AVERAGE_POOL_2D MAX_POOL_2D MEAN "
        "RELU RELU6 QUANTIZE DEQUANTIZE".split()
    ),
}
"""Dtypes of quantized tensors, and which operators take them."""

QUANTIZATIONS = {
    ("float32", "int8"), ("float32", "int16"), ("int8", "int8"), ("int8", "uint8"),
    ("int8", "int16"), ("uint8", "int8"), ("int16", "int8"), ("int16", "int16"),
}  # fmt: skip
"""(operand, result) of QUANTIZE, which also changes scales."""

BINARY_OPERATORS = frozenset("ADD SUB MUL MAXIMUM MINIMUM CONCATENATION".split())
"""Operators whose operands all have one dtype."""

DATA_INPUTS = {"SPLIT": 1, "TRANSPOSE_CONV": 2}
"""Which input is the data, where it is not the first one."""

LINEAR_OPERATORS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV")


def import_tflite(path: Path, name: str | None, input_shapes: InputShapes) -> Model:
    """Import a TensorFlow Lite file with weights as constants.

    Args:
        path: the `.tflite` file.
        name: of the model in C; default: the file's stem.
        input_shapes: sizes by input name; they must be those of the file.

    Raises:
        ModelError: the file is damaged, or holds an operator that is not supported; names the
            operator, its tensor and the file.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(f"cannot be read: {error.strerror}", where=str(path)) from None
    graph = read_graph(data, str(path))
    for operator in graph.operators:
        _check_operator(graph, operator, str(path))
    notices = _check_inputs(graph, input_shapes, str(path))
    module = _module(graph, str(path))
    return Model(
        symbol_part(name or path.stem),
        module,
        tuple(_specification(graph.tensors[number], str(path)) for number in graph.inputs),
        tuple(_specification(graph.tensors[number], str(path)) for number in graph.outputs),
        tuple(notices),
        arithmetic="tflm",
        meaning=Meaning.INTEGERS,
    )


def _specification(tensor: TfliteTensor, where: str) -> TensorSpecification:
    if 0 in tensor.shape:
        raise ModelError(f"{tensor.name!r} has no elements", where=where)
    if tensor.dtype.startswith("type"):
        raise ModelError(f"{tensor.name!r} has the unsupported {tensor.dtype}", where=where)
    known = None
    if tensor.scales.size == 1:
        known = Quantization(float(tensor.scales[0]), int(tensor.zero_points[0]))
    return TensorSpecification(tensor.name, tensor.shape, tensor.dtype, known)


def _check_inputs(graph: TfliteGraph, wanted: InputShapes, where: str) -> list[str]:
    """Compare shapes with what the user wants, and say which sizes were decided."""
    known: Mapping[str, TfliteTensor] = {
        graph.tensors[number].name: graph.tensors[number] for number in graph.inputs
    }
    for name, shape in wanted.items():
        if name not in known:
            raise ModelError(
                f"there is no input {name!r}", where=where, fix=f"inputs are {', '.join(known)}"
            )
        if tuple(shape) != known[name].shape:
            raise ModelError(
                f"input {name!r} has the shape {list(known[name].shape)}, not {list(shape)}",
                where=where,
                fix="a TensorFlow Lite file keeps the shape that it was exported with",
            )
    return [
        f"input {name!r}: dimension {axis} has no fixed size; it is {tensor.shape[axis]}, as stored"
        for name, tensor in known.items()
        for axis in tensor.dynamic
        if axis < len(tensor.shape)
    ]


# --- what is supported --------------------------------------------------------------------------


def _check_operator(graph: TfliteGraph, operator: TfliteOperator, where: str) -> None:
    """Refuse an operator that would not be imported exactly."""
    tensors = [graph.tensors[n] for n in (*operator.inputs, *operator.outputs) if n >= 0]
    if not operator.outputs or not operator.inputs or operator.inputs[0] < 0:
        raise ModelError(f"operator {operator.code} has no input or no output", where=where)
    label = operator_label(graph, operator)
    quantized = [tensor for tensor in tensors if tensor.dtype in INTEGER_DTYPES]
    for tensor in tensors:
        allowed = INTEGER_DTYPES.get(tensor.dtype, EVERYTHING)
        # Unsupported operators are named as such below, whatever they work on.
        known = operator.code in EVERYTHING
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
    for tensor in quantized:
        _check_scale(tensor, label, where)
    _check_kinds(graph, operator, label, where)


def _check_scale(tensor: TfliteTensor, label: str, where: str) -> None:
    """Refuse integers without a scale, and zero points that kernels do not take."""
    if tensor.scales.size == 0 or (tensor.scales == 0).any():
        raise ModelError(f"{label}: tensor {tensor.name!r} has no scale", where=where)
    limits = np.iinfo(tensor.dtype)
    low, high = (0, 0) if tensor.dtype == "int16" else (limits.min, limits.max)
    if ((tensor.zero_points < low) | (tensor.zero_points > high)).any():
        raise ModelError(
            f"{label}: tensor {tensor.name!r} has a zero point that is no {tensor.dtype}"
            + (" of symmetric quantization" if low == high else ""),
            where=where,
        )


def _check_kinds(graph: TfliteGraph, operator: TfliteOperator, label: str, where: str) -> None:
    """Refuse mixtures of integers and floats, and changes of scale that kernels do not make."""
    position = DATA_INPUTS.get(operator.code, 0)
    if len(operator.inputs) <= position or operator.inputs[position] < 0:
        raise ModelError(f"{label} lacks its input {position}", where=where)
    source, result = graph.tensors[operator.inputs[position]], graph.tensors[operator.outputs[0]]
    if operator.code == "QUANTIZE":
        allowed = (source.dtype, result.dtype) in QUANTIZATIONS
    elif operator.code == "DEQUANTIZE":
        allowed = source.dtype in INTEGER_DTYPES and result.dtype == "float32"
    else:
        allowed = source.dtype == result.dtype
    if operator.code in BINARY_OPERATORS:
        kinds = {graph.tensors[number].dtype for number in operator.inputs if number >= 0}
        allowed = allowed and kinds == {source.dtype}
    if operator.code in LINEAR_OPERATORS:
        allowed = (
            allowed
            and len(operator.inputs) > 1
            and graph.tensors[operator.inputs[1]].dtype
            == ("int8" if source.dtype == "int16" else source.dtype)
        )
    if not allowed:
        raise ModelError(
            f"{label} mixes integers and floating point: {source.dtype} becomes {result.dtype}",
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


def _same_quantization(one: TfliteTensor, other: TfliteTensor) -> bool:
    return np.array_equal(one.scales, other.scales) and np.array_equal(
        one.zero_points, other.zero_points
    )


def short_names(graph: TfliteGraph) -> dict[int, str]:
    """What operators are called, by the number of their result.

    TensorFlow joins the names of all operators that became one, with semicolons: the first, which
    is the one whose result it is, says enough if no other operator has it.
    """
    results = [number for operator in graph.operators for number in operator.outputs]
    first = {number: graph.tensors[number].name.split(";")[0] for number in results}
    counts = Counter(first.values())
    return {
        number: name if name and counts[name] == 1 else graph.tensors[number].name
        for number, name in first.items()
    }


def operator_label(graph: TfliteGraph, operator: TfliteOperator) -> str:
    """How messages call an operator."""
    names = [graph.tensors[number].name for number in operator.outputs]
    return f"operator {operator.code} that writes {', '.join(map(repr, names)) or 'nothing'}"


# --- conversion ---------------------------------------------------------------------------------


def _module(graph: TfliteGraph, where: str) -> Any:
    """The Relax module of a checked graph; calls carry the name of the tensor they write."""
    builder = tvm_api.relax.BlockBuilder()
    converter = Converter(graph, builder)
    parameters = [
        tvm_api.relax.Var(
            f"input{position}",
            tvm_api.tensor_type(graph.tensors[number].shape, graph.tensors[number].dtype),
        )
        for position, number in enumerate(graph.inputs)
    ]
    for number, parameter in zip(graph.inputs, parameters, strict=True):
        converter.values[number] = parameter
    ends: dict[str, str] = {}
    error: ModelError | None = None
    with quiet(), builder.function("main", parameters):
        with builder.dataflow():
            try:
                result = _convert_all(converter, graph, ends, where)
            except ModelError as raised:
                # TVM warns on the terminal about a builder that is left in the middle.
                error, result = raised, tvm_api.relax.const(0.0)
            result = builder.emit_output(result)
        builder.emit_func_output(result)
    if error is not None:
        raise error
    return _named(builder.get(), ends)


def _convert_all(converter: Converter, graph: TfliteGraph, ends: dict[str, str], where: str) -> Any:
    """Convert all operators; returns the graph's result.

    Args:
        converter: knows the inputs.
        graph: the graph.
        ends: gets the name of each operator by the variable of its result.
        where: the file, for messages.
    """
    names = short_names(graph)
    for position, operator in enumerate(graph.operators):
        variables = _convert(converter, graph, operator, position, where)
        for number, variable in zip(operator.outputs, variables, strict=True):
            ends[str(variable.name)] = names[number]
    values = [converter.value(number) for number in graph.outputs]
    return values[0] if len(values) == 1 else tvm_api.relax.Tuple(values)


def _convert(
    converter: Converter, graph: TfliteGraph, operator: TfliteOperator, position: int, where: str
) -> list[Any]:
    """Convert an operator and bind its results to variables that mark where they end."""
    label = operator_label(graph, operator)
    try:
        value = converter.convert(operator)
    except ModelError as error:
        raise ModelError(f"{label}: {error.what}", where=where, fix=error.fix) from None
    except Exception as error:  # TVM raises whatever its converters stumble over
        raise ModelError(f"{label} cannot be imported: {last_line(error)}", where=where) from error
    values = value if isinstance(value, list) else [value]
    if len(values) != len(operator.outputs):
        raise ModelError(f"{label} has {len(operator.outputs)} outputs", where=where)
    variables = []
    for number, item in zip(operator.outputs, values, strict=True):
        expected = graph.tensors[number]
        shape, dtype = tvm_api.static_shape(item), tvm_api.dtype_of(item)
        if (shape, dtype) != (expected.shape, expected.dtype):
            raise ModelError(
                f"{label} yields {expected.dtype}{list(expected.shape)} by the file, but TVM "
                f"imports it as {dtype}{list(shape or ())}",
                where=where,
            )
        variable = converter.bb.emit(item, name_hint=f"result{position}")
        converter.values[number] = variable
        variables.append(variable)
    return variables


def _named(module: Any, ends: Mapping[str, str]) -> Any:
    """Name each call after the operator whose result follows it."""
    names: dict[str, str] = {}
    pending: list[str] = []
    for binding in tvm_api.bindings_of(module["main"]):
        pending.append(str(binding.var.name))
        if binding.var.name in ends:
            names.update(dict.fromkeys(pending, ends[binding.var.name]))
            pending = []
    return rename_operators(module, lambda b: names.get(b.var.name, str(b.var.name)))
