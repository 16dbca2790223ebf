# SPDX-License-Identifier: Apache-2.0
"""Evaluation of ONNX files by ONNX's own reference evaluator, in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from umakit.tools.diff.decider import Expected, NotDecided

Array = npt.NDArray[Any]

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"

HALF = 0.505
"""Distance from the real number within which an integer is rounded correctly."""
TIMES = 4.0
"""Further distance: a multiple of the difference between float32 and float64 results."""
MOST = 1.0
"""Largest distance."""

WINDOWS = ("AveragePool", "ConvTranspose", "GlobalMaxPool", "MaxPool")
"""Operators that the evaluator supports for two-dimensional images in their plain form only."""
PLAIN: Mapping[str, Any] = {"ceil_mode": 0, "group": 1, "auto_pad": b"NOTSET"}


class OnnxDecider:
    """An ONNX model that is computed operator by operator, with real numbers in float64.

    Args:
        proto: the model, with its weights.
    """

    def __init__(self, proto: onnx.ModelProto) -> None:
        self._producers = {name: node for node in proto.graph.node for name in node.output if name}
        self._constants = {item.name: item for item in proto.graph.initializer}
        self._opsets = {item.domain: item.version for item in proto.opset_import}

    def expected(self, tensor: str, known: Mapping[str, Array]) -> Expected:
        """Return the expected values of a tensor, as `Decider.expected` describes."""
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
    """Return scales or zero points in a shape that broadcasts with a tensor."""
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
