# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite files that NumPy computes: one operator at a time, in real numbers.

TensorFlow Lite Micro rounds several times on the way to an integer, and umakit as it does. So NumPy
decides only where a result is off by more than that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tflite

from umakit.frontend.tflite.graph import TfliteGraph
from umakit.operators.tflite import TfliteOperator, TfliteTensor
from umakit.tools.diff.decider import Expected, NotDecided, in_range
from umakit.tools.diff.numpy_tflite_operators import MOVING, OPERATORS

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
        code: its name.
        operands: float64 of quantized and real operands, integers of others; None for omitted ones.
        stored: operands as they are in the file or in memory.
        scales: scale of each operand, along its last axis for weights; 0 for none.
        shapes: shapes of the results.
        options: the table of the operator's options, of the flatbuffer; None if there is none.
    """

    code: str
    operands: Sequence[Any]
    stored: Sequence[Any]
    scales: Sequence[Any]
    shapes: Sequence[tuple[int, ...]]
    options: Any

    def option(self, name: str, default: Any = 0) -> Any:
        """Return an option, or a default if the operator has no options."""
        return default if self.options is None else getattr(self.options, name)()


class TfliteDecider:
    """A TensorFlow Lite model that is computed operator by operator.

    Args:
        graph: the model; tensors are called by their numbers.
    """

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
    """Return the real values of an operand."""
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
    """Return the options of an operator as the flatbuffer's own object."""
    kind = table.BuiltinOptionsType()
    name = next((n for n, v in vars(tflite.BuiltinOptions).items() if v == kind and kind), "")
    if not name:
        return None
    given = table.BuiltinOptions()
    options = getattr(tflite, name)()
    options.Init(given.Bytes, given.Pos)
    return options
