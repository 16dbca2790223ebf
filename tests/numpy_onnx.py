# SPDX-License-Identifier: Apache-2.0
"""Quantized ONNX files (QDQ) run by NumPy: an oracle that shares no code with umakit.

Operators between DequantizeLinear and QuantizeLinear are computed as ONNX Runtime's integer
kernels say it (MLAS: `qgemm`, `qladd.cpp`, `qlmul.cpp`, `qlgavgpool.cpp`), in float32 and int64.
All others are the ONNX specification's own reference (`onnx.reference`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy_fixed_point import Array
from onnx.reference import ReferenceEvaluator

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"


@dataclass(frozen=True)
class Quantized:
    """An integer tensor with its scale (float32) and zero point, along an axis or for all."""

    integers: Array
    scale: Array
    zero_point: Array

    @property
    def distances(self) -> Array:
        """Differences from the zero point; float64 holds sums of their products exactly."""
        return self.integers.astype(np.float64) - self.zero_point

    def limited(self, values: Array) -> Array:
        """Float32 distances from the zero point as integers: nearest, ties to even."""
        assert values.dtype == np.float32
        limits = np.iinfo(self.zero_point.dtype)
        zero = self.zero_point.astype(np.int64)
        clipped = np.clip(values, np.float32(limits.min - zero), np.float32(limits.max - zero))
        return np.asarray(np.rint(clipped).astype(np.int64) + zero, self.zero_point.dtype)


class NumpyOnnx:
    """A model, ready to run one inference after the other."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._graph = model.graph
        opsets = {item.domain: item.version for item in model.opset_import}
        self._producers = {name: node for node in model.graph.node for name in node.output}
        self._references = {}
        for node in model.graph.node:
            if node.op_type in (QUANTIZE, DEQUANTIZE):
                continue
            self._references[node.output[0]] = ReferenceEvaluator(node, opsets=opsets)
        self._constants = {
            tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer
        }

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by name; inputs by name."""
        self._values = {**self._constants, **inputs}
        self._dequantized: dict[str, Quantized] = {}
        with np.errstate(over="ignore"):
            for node in self._graph.node:
                self._run(node)
        return {value.name: self._value(value.name) for value in self._graph.output}

    def _run(self, node: onnx.NodeProto) -> None:
        if node.op_type == DEQUANTIZE:
            self._dequantized[node.output[0]] = self._quantized(node)
        elif node.op_type == QUANTIZE:
            self._values[node.output[0]] = self._integers(node)

    def _quantized(self, node: onnx.NodeProto) -> Quantized:
        """Operand of a DequantizeLinear, or an empty result of a QuantizeLinear."""
        integers = self._values.get(node.input[0], np.zeros(0))
        scale, zero_point = (self._values[name] for name in node.input[1:3])
        if scale.size > 1:
            shape = [1] * integers.ndim
            shape[_attribute(node, "axis", 1)] = -1
            scale, zero_point = scale.reshape(shape), zero_point.reshape(shape)
        return Quantized(integers, scale, zero_point)

    def _integers(self, node: onnx.NodeProto) -> Array:
        scale, zero_point = (self._values[name] for name in node.input[1:3])
        result = Quantized(np.zeros(0), scale, zero_point)
        producer = self._producers.get(node.input[0])
        kernel = KERNELS.get(producer.op_type) if producer is not None else None
        if producer is not None and kernel is not None:
            operands = [self._dequantized.get(name) for name in producer.input]
            known = [operand for operand in operands if operand is not None]
            if len(known) == len(operands) and _in_integers(producer, known, result):
                return kernel(producer, operands, result)
        return result.limited((self._value(node.input[0]) / scale).astype(np.float32))

    def _value(self, name: str) -> Array:
        """A tensor of any kind; real ones are computed when they are asked for."""
        if name not in self._values and name in self._dequantized:
            known = self._dequantized[name]
            distances = known.distances.astype(np.float32)
            self._values[name] = np.asarray(distances * known.scale, np.float32)
        elif name not in self._values:
            node = self._producers[name]
            given = {operand: self._value(operand) for operand in node.input if operand}
            results = self._references[node.output[0]].run(None, given)
            self._values.update(zip(node.output, map(np.asarray, results), strict=True))
        return np.asarray(self._values[name])


def numpy_onnx(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs by name; inputs and outputs have one row for each inference."""
    network = NumpyOnnx(model)
    count = len(next(iter(inputs.values())))
    results = [
        network.run({name: values[number] for name, values in inputs.items()})
        for number in range(count)
    ]
    return {name: np.stack([result[name] for result in results]) for name in results[0]}


def _in_integers(node: onnx.NodeProto, operands: list[Quantized], result: Quantized) -> bool:
    """Whether ONNX Runtime has an integer kernel for these types; images have two dimensions."""
    data = operands if node.op_type in ("Add", "Mul") else operands[:1]
    dtypes = {operand.zero_point.dtype for operand in (*data, result)}
    flat = node.op_type == "Conv" and operands[0].integers.ndim != 4
    return len(dtypes) == 1 and dtypes.pop().itemsize == 1 and not flat


def _attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    found = [onnx.helper.get_attribute_value(item) for item in node.attribute if item.name == name]
    return found[0] if found else default


# --- integer kernels ----------------------------------------------------------------------------


def _rescaled(sums: Array, factors: Array, result: Quantized) -> Array:
    """`MlasRequantizeOutput`: an int32 sum times a factor, both float32."""
    return result.limited(sums.astype(np.float32) * factors.astype(np.float32))


def _convolution(node: onnx.NodeProto, operands: list[Any], result: Quantized) -> Array:
    x, weights, *bias = operands
    window = weights.integers.shape[2:]
    steps = _attribute(node, "strides", [1, 1])
    dilation = _attribute(node, "dilations", [1, 1])
    extents = [(extent - 1) * far + 1 for extent, far in zip(window, dilation, strict=True)]
    widths = _padding(node, x.integers.shape[2:], extents, steps)
    padded = np.pad(x.distances, [(0, 0), (0, 0), *widths])
    rows, columns = (
        (size - extent) // step + 1
        for size, extent, step in zip(padded.shape[2:], extents, steps, strict=True)
    )
    groups, taps = _attribute(node, "group", 1), weights.distances
    outputs, inputs = taps.shape[:2]
    sums = np.zeros((len(padded), groups, outputs // groups, rows, columns))
    for ky, kx in np.ndindex(*window):
        part = padded[
            :, :,
            ky * dilation[0] : ky * dilation[0] + (rows - 1) * steps[0] + 1 : steps[0],
            kx * dilation[1] : kx * dilation[1] + (columns - 1) * steps[1] + 1 : steps[1],
        ].reshape(-1, groups, inputs, rows * columns)  # fmt: skip
        tap = taps[:, :, ky, kx].reshape(groups, outputs // groups, inputs)
        sums += (tap @ part).reshape(sums.shape)
    sums = sums.reshape(len(padded), outputs, rows, columns)
    if bias:
        sums += bias[0].integers.reshape(-1, 1, 1)
    factors = x.scale * weights.scale / result.scale
    return _rescaled(sums, factors.reshape(-1, 1, 1), result)


def _padding(
    node: onnx.NodeProto, sizes: Sequence[int], extents: Sequence[int], steps: Sequence[int]
) -> list[tuple[int, int]]:
    """Padding before and behind each axis, given or automatic."""
    automatic = _attribute(node, "auto_pad", b"NOTSET")
    if automatic not in (b"SAME_UPPER", b"SAME_LOWER"):
        top, left, bottom, right = _attribute(node, "pads", [0, 0, 0, 0])
        return [(top, bottom), (left, right)]
    widths = []
    for size, extent, step in zip(sizes, extents, steps, strict=True):
        missing = max((-(-size // step) - 1) * step + extent - size, 0)
        less, more = missing // 2, missing - missing // 2
        widths.append((less, more) if automatic == b"SAME_UPPER" else (more, less))
    return widths


def _matrix_product(node: onnx.NodeProto, operands: list[Any], result: Quantized) -> Array:
    x, weights, *bias = operands
    taps = weights.distances.T if _attribute(node, "transB", 0) else weights.distances
    sums = x.distances @ taps
    if bias:
        sums = sums + bias[0].integers
    return _rescaled(sums, (x.scale * weights.scale / result.scale).reshape(-1), result)


def _mean(node: onnx.NodeProto, operands: list[Any], result: Quantized) -> Array:
    (x,) = operands
    axes = tuple(range(2, x.integers.ndim))
    count = np.float32(np.prod(x.integers.shape[2:]))
    sums = x.distances.sum(axes, keepdims=True)
    return _rescaled(sums, x.scale / (result.scale * count), result)


def _product(node: onnx.NodeProto, operands: list[Any], result: Quantized) -> Array:
    """Distances times a ratio plus the zero point; int8 is moved to uint8 first."""
    left, right = operands
    offset, zero = _unsigned(result)
    ratio = (left.scale * right.scale) / result.scale
    product = (left.distances * right.distances).astype(np.float32) * ratio
    return _stored((product + zero).astype(np.float32), offset, result)


def _sum(node: onnx.NodeProto, operands: list[Any], result: Quantized) -> Array:
    """a A / C + (b B / C + constant), with fused multiply-adds; int8 is moved to uint8 first.

    What repeats along the innermost axis is multiplied before, without fusing.
    """
    offset, zero = _unsigned(result)
    ratios = [operand.scale / result.scale for operand in operands]
    zeros = [np.float32(operand.zero_point.astype(int) + offset) for operand in operands]
    values = [(operand.integers.astype(int) + offset).astype(np.float32) for operand in operands]
    constant = zero - _fused(ratios[0], zeros[0], np.float32(ratios[1] * zeros[1]))
    repeats = _repeats(*(operand.integers.shape for operand in operands))
    inner, outer = (0, 1) if repeats == 0 else (1, 0)
    if repeats is None:
        part = _fused(values[inner], ratios[inner], constant)
    else:
        part = np.float32(values[inner] * ratios[inner]) + constant
    return _stored(_fused(values[outer], ratios[outer], part), offset, result)


def _unsigned(result: Quantized) -> tuple[int, np.float32]:
    """What is added to integers to make them uint8, and the result's zero point then."""
    offset = 128 if result.zero_point.dtype == np.int8 else 0
    return offset, np.float32(int(result.zero_point) + offset)


def _stored(values: Array, offset: int, result: Quantized) -> Array:
    """float32 results of uint8 as integers of the result."""
    integers = np.rint(np.clip(values, 0, 255)).astype(np.int64) - offset
    return np.asarray(integers, result.zero_point.dtype)


def _fused(left: Any, right: Any, added: Any) -> Any:
    """left * right + added, rounded once: a long double holds more bits than the sum has."""
    return (np.longdouble(left) * np.longdouble(right) + np.longdouble(added)).astype(np.float32)


def _repeats(left: tuple[int, ...], right: tuple[int, ...]) -> int | None:
    """Which of two shapes that broadcast repeats one number along the innermost real axis."""
    rank = max(len(left), len(right))
    pairs = zip(*((1,) * (rank - len(shape)) + shape for shape in (left, right)), strict=True)
    inner = [pair for pair in pairs if pair != (1, 1)]
    if not inner or inner[-1][0] == inner[-1][1]:
        return None
    return inner[-1].index(1)


def _softmax(node: onnx.NodeProto, operands: list[Any], result: Quantized) -> Array:
    """`QLinearSoftmax`: the reciprocal of the result's scale has no fraction."""
    (x,) = operands
    axis = _attribute(node, "axis", -1)
    reals = x.distances * np.float64(x.scale)
    powers = np.exp(reals - reals.max(axis, keepdims=True))
    parts = powers / powers.sum(axis, keepdims=True) * np.floor(np.float32(1) / result.scale)
    return result.limited(parts.astype(np.float32))


Kernel = Callable[[onnx.NodeProto, list[Any], Quantized], Array]

UNKNOWN = frozenset({"AveragePool", "ConvTranspose", "GlobalMaxPool", "MaxPool"})
"""Operators of which `onnx.reference` does not know groups, dilations, sizes rounded up, or images
of one dimension."""


def knows(model: onnx.ModelProto) -> bool:
    """Whether all operators of a model are known here."""
    return UNKNOWN.isdisjoint(node.op_type for node in model.graph.node)


KERNELS: dict[str, Kernel] = {
    "Conv": _convolution, "Gemm": _matrix_product, "MatMul": _matrix_product, "Add": _sum,
    "Mul": _product, "GlobalAveragePool": _mean, "Softmax": _softmax,
}  # fmt: skip
"""Operators that ONNX Runtime computes in integers: (node, operands, scale of the result)."""
