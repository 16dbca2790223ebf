# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite files as input.

TVM's importer converts the operators. This module first checks the file and refuses operators whose
results would differ from TensorFlow Lite's. Every call keeps its operator's name, which is the name
of the result tensor.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.frontend.checks import check_wanted_sizes
from umakit.frontend.model import (
    READABLE,
    InputShapes,
    Model,
    Quantization,
    QuantizedSemantics,
    TensorSpecification,
)
from umakit.frontend.relax_modules import name_calls
from umakit.frontend.simplify import quiet
from umakit.frontend.tflite.checks import check_operator, operator_label
from umakit.frontend.tflite.converter import Converter
from umakit.frontend.tflite.graph import TfliteGraph, read_graph
from umakit.operators.tflite import CONVERSIONS, TfliteOperator, TfliteTensor
from umakit.text.identities import SourceOperator
from umakit.text.names import symbol_part, unique
from umakit.tvm_api import IRModule, relax


def import_tflite(path: Path, name: str | None, input_shapes: InputShapes) -> Model:
    """Import a TensorFlow Lite file, by default under its stem. Weights become constants."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(
            f"cannot be read: {error.strerror}", where=str(path), fix=READABLE
        ) from None
    graph = read_graph(data, str(path))
    for operator in graph.operators:
        check_operator(graph, operator, str(path))
    notices = _check_inputs(graph, input_shapes, str(path))
    inputs, outputs = (
        [_specification(graph.tensors[number], str(path)) for number in numbers]
        for numbers in (graph.inputs, graph.outputs)
    )
    module = _module(graph, str(path))
    old, new, sentences = _states(graph, str(path))
    return Model(
        symbol_part(name or path.stem),
        module,
        (*inputs, *old),
        (*outputs, *new),
        (*notices, *sentences),
        arithmetic="tflm",
        semantics=QuantizedSemantics.INTEGERS,
        sources=_sources(graph),
    )


def _specification(tensor: TfliteTensor, where: str) -> TensorSpecification:
    if 0 in tensor.shape:
        raise ModelError(
            f"tensor {tensor.name!r} of shape {list(tensor.shape)} has no elements", where=where
        )
    if tensor.dtype.startswith("type"):
        raise ModelError(
            f"tensor {tensor.name!r} has the unsupported {tensor.dtype}",
            where=where,
            fix="convert the model with inputs and outputs of float32 or int8",
        )
    quantization = None
    if tensor.scales.size == 1:
        quantization = Quantization(float(tensor.scales[0]), int(tensor.zero_points[0]))
    return TensorSpecification(tensor.name, tensor.shape, tensor.dtype, quantization)


def _states(
    graph: TfliteGraph, where: str
) -> tuple[list[TensorSpecification], list[TensorSpecification], list[str]]:
    """Return inputs and outputs for variable tensors, and a notice that names them.

    A library keeps no state between inferences: the caller passes each state from output to input.
    """
    taken = {tensor.name.lower() for tensor in graph.tensors}
    inputs, outputs, notices = [], [], []
    for number in graph.states:
        state = _specification(graph.tensors[number], where)
        name = unique(f"{state.name}_next", taken)
        inputs.append(replace(state, next_state=name))
        outputs.append(replace(state, name=name))
    if inputs:
        names = ", ".join(repr(state.name) for state in inputs)
        notices.append(
            f"TensorFlow Lite keeps {names} between inferences: here they are inputs, their next "
            "values outputs; `uma run` passes them on"
        )
    return inputs, outputs, notices


def _check_inputs(graph: TfliteGraph, wanted: InputShapes, where: str) -> list[str]:
    inputs = {graph.tensors[number].name: graph.tensors[number] for number in graph.inputs}
    check_wanted_sizes(wanted, dict.fromkeys(inputs), where)
    for name, shape in wanted.items():
        if tuple(shape) != inputs[name].shape:
            raise ModelError(
                f"input {name!r} has the shape {list(inputs[name].shape)}, not {list(shape)}",
                where=where,
                fix="a TensorFlow Lite file keeps the shape that it was exported with",
            )
    return [
        f"input {name!r}: dimension {axis} has no fixed size; it is {tensor.shape[axis]}, as stored"
        for name, tensor in inputs.items()
        for axis in tensor.dynamic
        if axis < len(tensor.shape)
    ]


def short_names(graph: TfliteGraph) -> dict[int, str]:
    """Return the names of operators by the number of their result.

    TensorFlow joins the names of fused operators with semicolons. The first name belongs to the
    result and is used alone if no other operator has it.
    """
    results = [number for operator in graph.operators for number in operator.outputs]
    first = {number: graph.tensors[number].name.split(";")[0] for number in results}
    counts = Counter(first.values())
    return {
        number: name if name and counts[name] == 1 else graph.tensors[number].name
        for number, name in first.items()
    }


def _sources(graph: TfliteGraph) -> dict[str, SourceOperator]:
    names = short_names(graph)
    return {
        names[number]: SourceOperator(
            names[number], graph.tensors[operator.outputs[0]].name, position, kind=operator.code
        )
        for position, operator in enumerate(graph.operators)
        for number in operator.outputs
    }


def _module(graph: TfliteGraph, where: str) -> IRModule:
    builder = relax.BlockBuilder()
    converter = Converter(graph, builder)
    numbers = (*graph.inputs, *graph.states)
    parameters = [
        relax.Var(
            f"input{position}",
            tvm_api.tensor_type(graph.tensors[number].shape, graph.tensors[number].dtype),
        )
        for position, number in enumerate(numbers)
    ]
    for number, parameter in zip(numbers, parameters, strict=True):
        converter.values[number] = parameter
    ends: dict[str, str] = {}
    error: ModelError | None = None
    with quiet(), builder.function("main", parameters):
        with builder.dataflow():
            try:
                result = _convert_all(converter, graph, ends, where)
            except ModelError as raised:
                # TVM prints a warning about an unfinished builder.
                error, result = raised, relax.const(0.0)
            result = builder.emit_output(result)
        builder.emit_func_output(result)
    if error is not None:
        raise error
    return name_calls(builder.get(), ends)


def _convert_all(
    converter: Converter, graph: TfliteGraph, ends: dict[str, str], where: str
) -> tvm_api.Expr:
    names = short_names(graph)
    for position, operator in enumerate(graph.operators):
        variables = _convert(converter, graph, operator, position, where)
        for variable in variables:
            ends[str(variable.name)] = names[operator.outputs[0]]
        for number, variable in zip(operator.outputs, variables, strict=False):
            ends[str(variable.name)] = names[number]
    values = [converter.value(number) for number in (*graph.outputs, *graph.states)]
    return values[0] if len(values) == 1 else relax.Tuple(values)


def _convert(
    converter: Converter, graph: TfliteGraph, operator: TfliteOperator, position: int, where: str
) -> list[Any]:
    """Convert an operator and bind its results to variables, which mark the operator's end.

    The variable tensors of the operator take their new values.
    """
    label = operator_label(graph, operator)
    try:
        value = converter.convert(operator)
    except ModelError as error:
        raise ModelError(f"{label}: {error.what}", where=where, fix=error.fix) from None
    except Exception as error:  # TVM's converters raise arbitrary exceptions
        raise ModelError(
            f"{label} is not supported for its inputs and options", where=where
        ) from error
    values = value if isinstance(value, list) else [value]
    states = [operator.inputs[place] for place in CONVERSIONS[operator.code].states]
    if len(values) != len(operator.outputs) + len(states):
        raise ModelError(
            f"{label} has {len(operator.outputs)} outputs, not {len(values)}", where=where
        )
    variables = []
    for number, item in zip((*operator.outputs, *states), values, strict=True):
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
