# SPDX-License-Identifier: Apache-2.0
"""Evaluation of TensorFlow Lite files by NumPy: one operator at a time, in real numbers.

TensorFlow Lite Micro rounds several times on the way to an integer, and umakit does the same. So
NumPy decides only if a result is off by more than these roundings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tflite

from umakit.frontend.tflite.graph import TfliteGraph
from umakit.operators.tflite import TfliteOperator, TfliteTensor
from umakit.tools.diff.decider import Expected, NotDecided, in_range

Array = npt.NDArray[Any]

MOVED = 0.51
"""Slack of operators that move or select numbers."""
ROUNDINGS = 2.0
"""Slack of other operators in LSB, and further for each step of the range of integers."""
PER_STEP = 1e-3


@dataclass(frozen=True)
class Call:
    """An operator with its operands as real numbers.

    Attributes:
        operands: float64 for quantized and real operands, integers for others; None if omitted.
        scales: scale of each operand, along its last axis for weights; 0 for none.
        options: the operator's options table of the flatbuffer; None if there is none.
    """

    code: str
    operands: Sequence[Any]
    stored: Sequence[Any]
    scales: Sequence[Any]
    shapes: Sequence[tuple[int, ...]]
    options: Any

    def option(self, name: str, default: Any = 0) -> Any:
        return default if self.options is None else getattr(self.options, name)()


class TfliteDecider:
    """A TensorFlow Lite model that is computed operator by operator."""

    def __init__(self, graph: TfliteGraph) -> None:
        self._graph = graph
        self._producers = {
            number: operator for operator in graph.operators for number in operator.outputs
        }

    def expected(self, tensor: int, known: Mapping[int, Array]) -> Expected:
        """Return the expected values of a tensor from the known inputs of its operator."""
        operator = self._producers.get(tensor)
        if operator is None or operator.code not in OPERATORS:
            raise NotDecided(operator.code if operator else str(tensor))
        call = self._call(operator, known)
        with np.errstate(all="ignore"):
            results = OPERATORS[operator.code](call)
        results = results if isinstance(results, list) else [results]
        place = operator.outputs.index(tensor)
        item = self._graph.tensors[tensor]
        numbers = np.asarray(results[place]).reshape(item.shape)
        if np.dtype(item.dtype).kind not in "iu" or not item.scales.size:
            return Expected(numbers)
        if numbers.dtype.kind != "f":
            raise NotDecided(f"{operator.code} of integers without a scale")
        numbers = numbers / float(item.scales[0]) + int(item.zero_points[0])
        limits = np.iinfo(item.dtype)
        slack = ROUNDINGS + PER_STEP * (int(limits.max) - int(limits.min))
        scales = {float(one) for of_one in call.scales for one in np.atleast_1d(of_one) if one}
        is_moved = operator.code in MOVING and scales <= {float(item.scales[0])}
        return in_range(numbers, item.dtype, MOVED if is_moved else slack)

    def _call(self, operator: TfliteOperator, known: Mapping[int, Array]) -> Call:
        operands: list[Any] = []
        stored: list[Any] = []
        scales: list[Any] = []
        for number in operator.inputs:
            item = self._graph.tensors[number] if number >= 0 else None
            array = None if item is None else self._array(number, item, known)
            stored.append(array)
            operands.append(None if item is None else _real(item, array, operator))
            scales.append(0.0 if item is None or not item.scales.size else item.scales)
        shapes = [self._graph.tensors[number].shape for number in operator.outputs]
        return Call(operator.code, operands, stored, scales, shapes, _options(operator.table))

    def _array(self, number: int, item: TfliteTensor, known: Mapping[int, Array]) -> Array:
        if number in known:
            return known[number]
        if not item.constant:
            raise NotDecided(f"tensor {item.name!r} is not known")
        table = self._graph.subgraph.Tensors(number)
        data = self._graph.model.Buffers(table.Buffer()).DataAsNumpy()
        return np.asarray(data.view(item.dtype).reshape(item.shape))


def _real(item: TfliteTensor, array: Any, operator: TfliteOperator) -> Array:
    if item.dtype == "float32":
        return np.asarray(array, np.float64)
    if not item.scales.size:
        return np.asarray(array)
    axis = -1 if operator.code == "DEPTHWISE_CONV_2D" else 0
    shape = [1] * max(1, array.ndim)
    shape[axis] = -1
    scales, zeros = (
        np.asarray(x, np.float64).reshape(shape) for x in (item.scales, item.zero_points)
    )
    numbers = (array.astype(np.float64) - zeros) * scales
    return np.asarray(numbers.reshape(array.shape))


def _options(table: Any) -> Any:
    kind = table.BuiltinOptionsType()
    name = next((n for n, v in vars(tflite.BuiltinOptions).items() if v == kind and kind), "")
    if not name:
        return None
    given = table.BuiltinOptions()
    options = getattr(tflite, name)()
    options.Init(given.Bytes, given.Pos)
    return options


ACTIVATIONS = {0: (-np.inf, np.inf), 1: (0.0, np.inf), 2: (-1.0, 1.0), 3: (0.0, 6.0)}
"""Bounds by `ActivationFunctionType`."""
SAME = 0
"""Value of `Padding`."""


def _activated(call: Any, numbers: Array) -> Array:
    activation = call.option("FusedActivationFunction")
    return np.clip(numbers, *ACTIVATIONS[activation]) if activation else numbers


# --- windows ------------------------------------------------------------------------------------


def _padded(
    call: Any, data: Array, window: Sequence[int], spread: Sequence[int], value: float
) -> Array:
    widths = [(0, 0)]
    for axis, step in enumerate(_steps(call)):
        extent = (window[axis] - 1) * spread[axis] + 1
        missing = (call.shapes[0][axis + 1] - 1) * step + extent - data.shape[axis + 1]
        before = max(missing, 0) // 2 if call.option("Padding") == SAME else 0
        widths.append((before, max(missing, 0) - before))
    return np.pad(data, [*widths, (0, 0)], constant_values=value)


def _steps(call: Any) -> tuple[int, int]:
    return int(call.option("StrideH")), int(call.option("StrideW"))


def _part(call: Any, padded: Array, place: Sequence[int], spread: Sequence[int]) -> Array:
    """Return the input elements under one position of the window, for each result element."""
    rows, columns = (
        slice(at * far, at * far + (count - 1) * step + 1, step)
        for at, far, count, step in zip(
            place, spread, call.shapes[0][1:3], _steps(call), strict=True
        )
    )
    return padded[:, rows, columns]


def _with_bias(call: Any, sums: Array) -> Array:
    """Add a bias; its integers have the scale of the products, whatever the file says."""
    if len(call.operands) > 2 and call.operands[2] is not None:
        is_real = call.stored[2].dtype == np.float32
        scale = 1.0 if is_real else np.multiply(call.scales[0], call.scales[1], dtype=np.float64)
        sums = sums + call.stored[2] * scale
    return _activated(call, sums)


def convolution(call: Any) -> Array:
    data, weights = call.operands[:2]
    window = weights.shape[1:3]
    spread = [max(int(call.option(f"Dilation{axis}Factor")), 1) for axis in "HW"]
    padded = _padded(call, data, window, spread, 0.0)
    sums = np.zeros(call.shapes[0])
    for place in np.ndindex(*window):
        part, taps = _part(call, padded, place, spread), weights[:, place[0], place[1]]
        if call.code == "DEPTHWISE_CONV_2D":
            sums += np.repeat(part, sums.shape[3] // part.shape[3], 3) * taps[0]
        else:
            groups = part.shape[3] // taps.shape[1]
            parts = zip(np.split(part, groups, 3), np.split(taps, groups), strict=True)
            sums += np.concatenate([one @ other.T for one, other in parts], 3)
    return _with_bias(call, sums)


def fully_connected(call: Any) -> Array:
    data, weights = call.operands[:2]
    return _with_bias(
        call, (data.reshape(-1, weights.shape[1]) @ weights.T).reshape(call.shapes[0])
    )


def pool(call: Any) -> Array:
    data = call.operands[0]
    window = int(call.option("FilterHeight")), int(call.option("FilterWidth"))
    is_maximum = call.code == "MAX_POOL_2D"
    padded = _padded(call, data, window, (1, 1), -np.inf if is_maximum else 0.0)
    parts = [_part(call, padded, place, (1, 1)) for place in np.ndindex(*window)]
    if is_maximum:
        return _activated(call, np.max(parts, 0))
    inside = _padded(call, np.ones(data.shape), window, (1, 1), 0.0)
    counts = sum(_part(call, inside, place, (1, 1)) for place in np.ndindex(*window))
    return _activated(call, np.sum(parts, 0) / counts)


# --- numbers ------------------------------------------------------------------------------------


def _binary(function: Callable[[Array, Array], Array]) -> Callable[[Any], Array]:
    return lambda call: _activated(call, function(call.operands[0], call.operands[1]))


def _unary(function: Callable[[Array], Array]) -> Callable[[Any], Array]:
    return lambda call: np.asarray(function(call.operands[0]))


def _plain(function: Callable[[Array, Array], Array]) -> Callable[[Any], Array]:
    return lambda call: np.asarray(function(call.operands[0], call.operands[1]))


def _reduced(function: Callable[..., Array]) -> Callable[[Any], Array]:
    def compute(call: Any) -> Array:
        axes = {int(axis) % call.operands[0].ndim for axis in call.stored[1].reshape(-1)}
        return np.asarray(function(call.operands[0], axis=tuple(axes)))

    return compute


def matrix_product(call: Any) -> Array:
    one, other = call.operands
    one = one.swapaxes(-1, -2) if call.option("AdjX", False) else one
    other = other.swapaxes(-1, -2) if call.option("AdjY", False) else other
    return np.asarray(one @ other)


def softmax(call: Any) -> Array:
    data = call.operands[0] * float(call.option("Beta", 1.0))
    powers = np.exp(data - data.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def log_softmax(call: Any) -> Array:
    data = call.operands[0] - call.operands[0].max(-1, keepdims=True)
    return np.asarray(data - np.log(np.exp(data).sum(-1, keepdims=True)))


def reciprocal_root(call: Any) -> Array:
    """Return the reciprocal square root; numbers of 0 and below yield the largest result."""
    data = call.operands[0]
    return np.asarray(np.where(data > 0, 1 / np.sqrt(data), np.inf))


def leaky_relu(call: Any) -> Array:
    data = call.operands[0]
    return np.asarray(np.where(data >= 0, data, data * float(np.float32(call.option("Alpha")))))


# --- places -------------------------------------------------------------------------------------


def _reshaped(call: Any) -> Array:
    return np.asarray(call.operands[0].reshape(call.shapes[0]))


def pad(call: Any) -> Array:
    value = call.operands[2].item() if len(call.operands) > 2 else 0
    return np.pad(call.operands[0], call.stored[1], constant_values=value)


def space_to_batch(call: Any) -> Array:
    data, block, widths = call.operands[0], call.stored[1], call.stored[2]
    padded = np.pad(data, [(0, 0), *widths.tolist(), (0, 0)])
    shape = [padded.shape[0]]
    for size, step in zip(padded.shape[1:-1], block, strict=True):
        shape += [size // int(step), int(step)]
    inner = list(range(2, 2 * len(block) + 1, 2))
    outer = list(range(1, 2 * len(block), 2))
    moved = padded.reshape(*shape, padded.shape[-1])
    moved = moved.transpose(*inner, 0, *outer, moved.ndim - 1)
    return np.asarray(moved.reshape(call.shapes[0]))


def batch_to_space(call: Any) -> Array:
    data, block, crops = call.operands[0], call.stored[1], call.stored[2]
    count = len(block)
    moved = data.reshape(*block.tolist(), -1, *data.shape[1:])
    order = [count]
    for axis in range(count):
        order += [count + 1 + axis, axis]
    moved = moved.transpose(*order, moved.ndim - 1)
    sizes = [size * int(step) for size, step in zip(data.shape[1:-1], block, strict=True)]
    whole = moved.reshape(-1, *sizes, data.shape[-1])
    kept = [
        slice(int(first), size - int(last))
        for (first, last), size in zip(crops, sizes, strict=True)
    ]
    return np.asarray(whole[(slice(None), *kept)])


def concatenation(call: Any) -> Array:
    return _activated(call, np.concatenate(call.operands, call.option("Axis")))


def split(call: Any) -> list[Array]:
    axis = int(call.stored[0].item())
    return np.split(call.operands[1], len(call.shapes), axis)


def slice_(call: Any) -> Array:
    starts = zip(call.stored[1].tolist(), call.shapes[0], strict=True)
    return np.asarray(call.operands[0][tuple(slice(at, at + size) for at, size in starts)])


Operator = Callable[[Any], Any]
"""From a `Call` to its result, or to a list of its results."""

MOVING: dict[str, Operator] = {
    "BATCH_TO_SPACE_ND": batch_to_space, "CONCATENATION": concatenation, "EXPAND_DIMS": _reshaped,
    "MAXIMUM": _plain(np.maximum), "MAX_POOL_2D": pool, "MINIMUM": _plain(np.minimum), "PAD": pad,
    "PADV2": pad, "REDUCE_MAX": _reduced(np.max), "REDUCE_MIN": _reduced(np.min),
    "RESHAPE": _reshaped, "SLICE": slice_, "SPACE_TO_BATCH_ND": space_to_batch, "SPLIT": split,
    "SQUEEZE": _reshaped,
    "TRANSPOSE": lambda call: call.operands[0].transpose(call.stored[1]),
}  # fmt: skip

UNARY: dict[str, Callable[[Array], Array]] = {
    "ABS": np.abs, "CEIL": np.ceil, "COS": np.cos, "DEQUANTIZE": np.asarray,
    "ELU": lambda x: np.where(x > 0, x, np.expm1(x)), "EXP": np.exp, "FLOOR": np.floor,
    "HARD_SWISH": lambda x: x * np.clip(x + 3, 0, 6) / 6, "LOG": np.log,
    "LOGISTIC": lambda x: 1 / (1 + np.exp(-x)), "NEG": np.negative, "QUANTIZE": np.asarray,
    "RELU": lambda x: np.maximum(x, 0), "RELU6": lambda x: np.clip(x, 0, 6),
    "RELU_0_TO_1": lambda x: np.clip(x, 0, 1), "RELU_N1_TO_1": lambda x: np.clip(x, -1, 1),
    "SIN": np.sin, "SQRT": np.sqrt, "SQUARE": np.square, "TANH": np.tanh,
}  # fmt: skip

OPERATORS: dict[str, Operator] = MOVING | {
    "ADD": _binary(np.add), "AVERAGE_POOL_2D": pool, "BATCH_MATMUL": matrix_product,
    "CONV_2D": convolution, "DEPTHWISE_CONV_2D": convolution, "DIV": _binary(np.divide),
    "FULLY_CONNECTED": fully_connected, "LEAKY_RELU": leaky_relu, "LOG_SOFTMAX": log_softmax,
    "MEAN": _reduced(np.mean), "MUL": _binary(np.multiply), "RSQRT": reciprocal_root,
    "SOFTMAX": softmax, "SQUARED_DIFFERENCE": _plain(lambda x, y: (x - y) ** 2),
    "SUB": _binary(np.subtract), "SUM": _reduced(np.sum),
    **{code: _unary(function) for code, function in UNARY.items()},
}  # fmt: skip
