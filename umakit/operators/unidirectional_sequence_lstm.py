# SPDX-License-Identifier: Apache-2.0
"""UNIDIRECTIONAL_SEQUENCE_LSTM of TensorFlow Lite: `quantized.lstm`, or the float layer of ONNX.

The source is `unidirectional_sequence_lstm.cc` and `lstm_eval_common.cc` of TensorFlow Lite Micro.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.floats.recurrent import Activation, Cell, recurrent
from umakit.operators.lstm import CELL_LIMITS, FUNCTION_SCALE, GATE_SCALE, GATES, Lstm
from umakit.operators.multipliers import reduced_multipliers
from umakit.operators.numeric.fixed_point import Array, fixed_point, quantize_multiplier
from umakit.operators.parameters import Pair
from umakit.operators.tables.sixteen_bits import power_of_two, sigmoid_table
from umakit.operators.tflite import TfliteNode, TfliteTensor, converts
from umakit.operators.tflite_integers import (
    as_refusals,
    bias_without_zero_point,
    result_fields,
    scale_of,
)
from umakit.tvm_api import Expr, relax

INPUT_WEIGHTS, RECURRENT_WEIGHTS, BIASES = (1, 2, 4, 3), (5, 6, 8, 7), (12, 13, 15, 14)
"""Inputs of the operator by gate: input, forget, output, cell."""

HIDDEN, CELL = 18, 19
"""Positions of the input tensors that are the hidden state and the cell state."""

ABSENT = (9, 10, 11, 16, 17, 20, 21, 22, 23)
"""Inputs that kernels do not take: peepholes, projection, normalization."""

TANH = 4
"""Value of the schema's enumeration `ActivationFunctionType`."""

BIAS_DTYPES = {"float32": "float32", "int8": "int32", "int16": "int64"}
"""Dtype of the biases by dtype of the data."""

MOST_SHIFTS = 14
"""To the left, of the cell state: three times 16 bits have to fit into 32."""


@converts(
    "UNIDIRECTIONAL_SEQUENCE_LSTM",
    "float32",
    "int8",
    "int16",
    operand_dtypes=("int8", "int16"),
    states=(HIDDEN, CELL),
)
def convert(node: TfliteNode) -> list[Expr]:
    """Return the outputs of all steps, and the hidden and cell state after the last step."""
    options = node.options("UnidirectionalSequenceLSTMOptions")
    if len(node.inputs) != 24 or any(map(node.has, ABSENT)):
        raise ModelError("it has peepholes, a projection or a normalization")
    if not all(map(node.has, (*INPUT_WEIGHTS, *RECURRENT_WEIGHTS, *BIASES))):
        raise ModelError("weights or biases of a gate are omitted")
    if options.FusedActivationFunction() != TANH:
        raise ModelError(
            f"its fused activation {options.FusedActivationFunction()} is not supported"
        )
    if options.DiagonalRecurrentTensors():
        raise ModelError("its recurrent weights are diagonal")
    time_major = bool(options.TimeMajor())
    _check_shapes(node, time_major=time_major)
    clip = float(options.CellClip())
    dtype = node.tensor(0).dtype
    floats = dtype == "float32"
    of_weights = "float32" if floats else "int8"
    weights, recurrent_weights, biases = (
        _of_gates(node, places, each)
        for places, each in (
            (INPUT_WEIGHTS, of_weights),
            (RECURRENT_WEIGHTS, of_weights),
            (BIASES, BIAS_DTYPES[dtype]),
        )
    )
    layer = _Layer(weights, recurrent_weights, biases, time_major, clip)
    make = _floats if floats else _integers
    return make(node, layer)


@dataclass(frozen=True)
class _Layer:
    """Constants of a layer, concatenated over its gates, and its options."""

    weights: Array
    recurrent_weights: Array
    biases: Array
    time_major: bool
    clip: float


def _check_shapes(node: TfliteNode, *, time_major: bool) -> None:
    data, result = node.shape(0), node.result.shape
    hidden, cell = (node.shape(place) for place in (HIDDEN, CELL))
    if len(data) != 3 or len(hidden) != 2 or 0 in data or 0 in hidden:
        raise ModelError("its data is not a sequence of rows, or its state is not a matrix")
    batch = data[1] if time_major else data[0]
    fits = hidden[0] == batch and cell == hidden and result == (*data[:2], hidden[1])
    shapes = {INPUT_WEIGHTS: (hidden[1], data[2]), RECURRENT_WEIGHTS: (hidden[1], hidden[1])}
    for places, shape in (*shapes.items(), (BIASES, (hidden[1],))):
        fits = fits and all(node.shape(i) == shape for i in places)
    if not fits:
        raise ModelError("the shapes of its tensors do not fit each other")


def _of_gates(node: TfliteNode, places: tuple[int, ...], dtype: str) -> Array:
    """Return the constants of all gates, concatenated along axis 0."""
    arrays = [np.asarray(node.constant(place)) for place in places]
    if any(array.dtype != np.dtype(dtype) for array in arrays):
        found = ", ".join(str(array.dtype) for array in arrays)
        raise ModelError(f"weights or biases of its gates are {found}, not {dtype}")
    return np.concatenate(arrays)


def _floats(node: TfliteNode, layer: _Layer) -> list[Expr]:
    """Build the float32 layer with the kernel of ONNX's LSTM: gates input, output, forget, cell."""
    op, emit = relax.op, node.emit
    data, hidden, cell = (node.value(i) for i in (0, HIDDEN, CELL))
    if (tvm_api.dtype_of(hidden), tvm_api.dtype_of(cell)) != ("float32", "float32"):
        raise ModelError("its states are not float32")

    def ordered(array: Array) -> Array:
        inputs, forget, output, candidate = np.split(array, GATES)
        return np.concatenate([inputs, output, forget, candidate])

    if not layer.time_major:
        data = emit(op.permute_dims(data, [1, 0, 2]))
    gates = emit(op.matmul(data, relax.const(ordered(layer.weights).T.copy())))
    gates = emit(op.add(gates, relax.const(ordered(layer.biases))))
    tanh = Activation("tanh")
    lstm = Cell(
        "LSTM", (Activation("sigmoid"), tanh, tanh),
        cell_clip=layer.clip if layer.clip > 0 else None,
    )  # fmt: skip
    weights = relax.const(ordered(layer.recurrent_weights))
    both = emit(recurrent(lstm, [gates, weights, hidden], {"cell": cell}))
    outputs, *states = (emit(relax.TupleGetItem(both, place)) for place in range(3))
    if not layer.time_major:
        outputs = emit(op.permute_dims(outputs, [1, 0, 2]))
    return [outputs, *states]


def _integers(node: TfliteNode, layer: _Layer) -> list[Expr]:
    data, hidden, cell, result = (
        scale_of(tensor)
        for tensor in (*(node.tensor(place) for place in (0, HIDDEN, CELL)), node.result)
    )
    if hidden.dtype != data.dtype or cell.dtype != "int16":
        raise ModelError(f"its states are {hidden.dtype} and {cell.dtype}")
    if (result.scale, result.zero_point) != (hidden.scale, hidden.zero_point):
        raise ModelError("its result has another scale or zero point than its hidden state")
    factors = [
        _gate_factor(node.tensor(place), source.scale)
        for source, places in ((data, INPUT_WEIGHTS), (hidden, RECURRENT_WEIGHTS))
        for place in places
    ]
    with as_refusals():
        gates = fixed_point(factors)
        gates = reduced_multipliers(gates) if data.dtype == "int16" else gates
    cell_scale, hidden_scale = float(cell.scale), float(hidden.scale)
    with as_refusals():
        forget = quantize_multiplier(FUNCTION_SCALE * cell_scale / cell_scale)
        update = quantize_multiplier(FUNCTION_SCALE * FUNCTION_SCALE / cell_scale)
        output = quantize_multiplier(FUNCTION_SCALE * FUNCTION_SCALE / hidden_scale)
    parameters = Lstm(
        **result_fields(node),
        time_major=int(layer.time_major),
        cell_argument=_cell_argument(cell_scale),
        cell_clip=_quantized_clip(layer.clip, cell_scale),
        forget=forget,
        update=update,
        result=output,
    )
    zeros = np.zeros_like(layer.biases)
    constants = [
        layer.weights, bias_without_zero_point(layer.biases, layer.weights, data.zero_point),
        layer.recurrent_weights,
        bias_without_zero_point(zeros, layer.recurrent_weights, hidden.zero_point),
        gates.multipliers, gates.shifts, sigmoid_table(),
    ]  # fmt: skip
    operands = [relax.const(array, str(array.dtype)) for array in constants]
    first, *states = (node.value(place) for place in (0, HIDDEN, CELL))
    both = node.emit(parameters.call([first, *operands, *states], None))
    return [node.emit(relax.TupleGetItem(both, place)) for place in range(3)]


def _gate_factor(tensor: TfliteTensor, scale: np.float32) -> float:
    """Return the factor from products of weights to a gate; scales are multiplied in float32."""
    weights = scale_of(tensor)
    if weights.zero_point:
        raise ModelError(f"tensor {tensor.name!r} has a zero point")
    return float(scale * weights.scale) / GATE_SCALE


def _cell_argument(scale: float) -> Pair:
    """Return multiplier and shift from the cell state to the argument of tanh."""
    exponent = power_of_two(scale)
    if exponent is None or not -31 < exponent + 12 <= MOST_SHIFTS:
        raise ModelError(f"the scale {scale:.6g} of its cell state is not a power of two in range")
    left = exponent + 12
    return (3 << left, 0) if left >= 0 else (3, -left)


def _quantized_clip(clip: float, scale: float) -> Pair:
    """Return the least and largest cell state for a clip limit; 0 for no limit."""
    if not clip > 0:
        return int(CELL_LIMITS.min), int(CELL_LIMITS.max)
    limit = int(min(clip / scale, CELL_LIMITS.max))
    return -limit, limit
