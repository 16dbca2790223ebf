# SPDX-License-Identifier: Apache-2.0
"""NumPy as the judge between umakit's kernels and a runtime, or without a runtime.

NumPy computes an operator in float64, as the model file defines. umakit's integers equal a
runtime's bit by bit, and differ from NumPy's by the runtime's rounding. NumPy therefore decides
against a runtime only if rounding explains the result of umakit and not the result of the runtime.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from umakit.testing.differences import Tolerance, distances

Array = npt.NDArray[Any]


class NotDecided(Exception):
    """NumPy does not know an operator."""


@dataclass(frozen=True)
class Expected:
    """The numbers of a tensor according to the model file.

    Attributes:
        numbers: unrounded numbers in units of the tensor's integers, within their range.
        slack: largest distance of a correct integer; for real numbers the tolerance applies.
        is_exact: whether only the runtime's result is correct within the slack: for integers that
            runtimes compute in integers.
    """

    numbers: Array
    slack: float = 0.0
    is_exact: bool = True

    def nearest(self, dtype: Any) -> Array:
        kind = np.dtype(dtype).kind
        if kind == "f" or kind == "b" or self.numbers.dtype.kind != "f":
            return self.numbers.astype(dtype)
        return np.rint(self.numbers).astype(dtype)


class Decider(Protocol):
    """A model file that NumPy computes operator by operator."""

    def expected(self, tensor: Any, known: Mapping[Any, Array]) -> Expected:
        """Return a tensor's values by the file from known ones; raise NotDecided if NumPy
        cannot."""


def decided(
    own: Array, theirs: Array | None, expected: Expected, tolerance: Tolerance
) -> tuple[Array, bool, bool]:
    """Return the correct values of a tensor, and two facts about the runtime's values `theirs`.

    The facts are whether some differ from the runtime's, and whether the runtime is correct too, as
    both integers next to a tie are.
    """
    is_own = _is_right(own, expected, tolerance)
    nearest = expected.nearest(own.dtype)
    if theirs is None:
        return np.where(is_own, own, nearest), True, False
    is_theirs = _is_right(theirs, expected, tolerance)
    differ = distances(own, theirs) > tolerance.limit(theirs)
    is_umakits = differ & is_own & (~is_theirs | (not expected.is_exact))
    right = np.where(is_umakits, own, theirs)
    right = np.where(differ & ~is_own & ~is_theirs, nearest, right)
    return right, bool(is_umakits.any()), bool(is_theirs.all())


def _is_right(values: Array, expected: Expected, tolerance: Tolerance) -> Array:
    numbers = expected.numbers
    if values.shape != numbers.shape:
        raise NotDecided(f"NumPy has shape {numbers.shape}")
    if values.dtype.kind == "f":
        return distances(values, numbers) <= tolerance.limit(numbers)
    if numbers.dtype.kind != "f":
        return distances(values, numbers.astype(values.dtype)) <= tolerance.limit(values)
    return distances(values.astype(np.float64), numbers) <= expected.slack + tolerance.lsb


def in_range(numbers: Array, dtype: Any, slack: float, *, is_exact: bool = True) -> Expected:
    """Return expected values for integers of a dtype, which saturate."""
    limits = np.iinfo(dtype)
    return Expected(np.clip(numbers, limits.min, limits.max), slack, is_exact)


QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"

HALF = 0.505
"""Distance from the real number within which an integer is rounded correctly."""
TIMES = 4.0
"""Further distance: a multiple of the difference between float32 and float64 results."""
MOST = 1.0

WINDOWS = ("AveragePool", "ConvTranspose", "GlobalMaxPool", "MaxPool")
"""Operators that the evaluator supports for two-dimensional images in their plain form only."""
PLAIN: Mapping[str, Any] = {"ceil_mode": 0, "group": 1, "auto_pad": b"NOTSET"}


class OnnxDecider:
    """An ONNX model that is computed operator by operator, with real numbers in float64."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        self._producers = {name: node for node in proto.graph.node for name in node.output if name}
        self._constants = {item.name: item for item in proto.graph.initializer}
        self._opsets = {item.domain: item.version for item in proto.opset_import}

    def expected(self, tensor: str, known: Mapping[str, Array]) -> Expected:
        node = self._producers.get(tensor)
        if node is None:
            raise NotDecided(tensor)
        values = self._values_before(node, known, np.float64)
        if node.op_type != QUANTIZE:
            self._compute(node, values, np.float64)
            return Expected(values[tensor])
        numbers, zero_point = _quantized(node, values)
        limits = np.iinfo(zero_point.dtype)
        numbers = np.clip(numbers, limits.min, limits.max)
        # Runtimes without integer kernels compute in float32.
        in_short, _ = _quantized(node, self._values_before(node, known, np.float32))
        changed = np.abs(np.clip(in_short, limits.min, limits.max) - numbers).max(initial=0.0)
        slack = min(HALF + TIMES * float(changed), MOST)
        return Expected(numbers, slack, is_exact=zero_point.dtype.itemsize == 1)

    def _values_before(
        self, node: onnx.NodeProto, known: Mapping[str, Array], dtype: Any
    ) -> dict[str, Array]:
        """Return values by name, including the inputs of a node, real numbers in `dtype`."""
        values = {name: array for name, array in known.items() if name not in node.output}
        self._compute_before(node, values, dtype)
        return values

    def _compute_before(self, last: onnx.NodeProto, values: dict[str, Array], dtype: Any) -> None:
        open_nodes = [last]
        while open_nodes:
            node = open_nodes[-1]
            missing = [name for name in node.input if name and not self._is_there(name, values)]
            if not missing:
                open_nodes.pop()
                if node is not last and node.output[0] not in values:
                    self._compute(node, values, dtype)
                continue
            for name in missing:
                if name not in self._producers:
                    raise NotDecided(name)
                open_nodes.append(self._producers[name])

    def _is_there(self, name: str, values: dict[str, Array]) -> bool:
        if name not in values and name in self._constants:
            values[name] = numpy_helper.to_array(self._constants[name])
        return name in values

    def _compute(self, node: onnx.NodeProto, values: dict[str, Array], dtype: Any) -> None:
        if node.op_type == DEQUANTIZE:
            values[node.output[0]] = _dequantized(node, values, dtype)
            return
        _check_known(node, values)
        given = {name: _real(values[name], dtype) for name in node.input if name}
        try:
            with np.errstate(all="ignore"):
                results = ReferenceEvaluator(node, opsets=self._opsets).run(None, given)
        except Exception as error:  # the evaluator lacks an operator, or its float64 version
            raise NotDecided(f"{node.op_type}: {error}") from None
        for name, result in zip(node.output, results, strict=False):
            if name:
                values[name] = np.asarray(result)


def _real(array: Array, dtype: Any) -> Array:
    return array.astype(dtype) if array.dtype.kind == "f" else array


def _quantized(node: onnx.NodeProto, values: Mapping[str, Array]) -> tuple[Array, Array]:
    """Return the result of a QuantizeLinear before rounding, and its zero point."""
    data = values[node.input[0]].astype(np.float64)
    if len(node.input) < 3 or not node.input[2]:
        raise NotDecided("QuantizeLinear without a zero point")
    scale, zero_point = (values[name] for name in node.input[1:3])
    if zero_point.dtype.kind not in "iu":
        raise NotDecided(f"QuantizeLinear to {zero_point.dtype}")
    scale, start = (_along(node, x.astype(np.float64), data.shape) for x in (scale, zero_point))
    return data / scale + start, zero_point


def _dequantized(node: onnx.NodeProto, values: Mapping[str, Array], dtype: Any) -> Array:
    integers, scale = (values[name] for name in node.input[:2])
    numbers = integers.astype(dtype)
    if len(node.input) > 2 and node.input[2]:
        zero_point = values[node.input[2]].astype(dtype)
        numbers = numbers - _along(node, zero_point, numbers.shape)
    return np.asarray(numbers * _along(node, scale.astype(dtype), numbers.shape))


def _along(node: onnx.NodeProto, array: Array, shape: tuple[int, ...]) -> Array:
    axis = _attribute(node, "axis", 1) % max(1, len(shape))
    block = _attribute(node, "block_size", 0)
    if block and array.ndim == len(shape):
        repeated = np.repeat(array, block, axis)
        return repeated.take(np.arange(shape[axis]), axis)
    if array.size <= 1:
        return array.reshape(())
    return array.reshape([-1 if number == axis else 1 for number in range(len(shape))])


def _check_known(node: onnx.NodeProto, values: Mapping[str, Array]) -> None:
    if node.op_type not in WINDOWS:
        return
    is_plain = all(_attribute(node, name, value) == value for name, value in PLAIN.items())
    spread = set(_attribute(node, "dilations", [1]))
    if values[node.input[0]].ndim != 4 or not is_plain or spread != {1}:
        raise NotDecided(f"{node.op_type} of this form")


def _attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    found = [onnx.helper.get_attribute_value(item) for item in node.attribute if item.name == name]
    return found[0] if found else default
