# SPDX-License-Identifier: Apache-2.0
"""Layers: products of matrices, convolutions of any rank, pools and normalizations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.frontend.torch.quantization import in_front_of_dequantize
from umakit.frontend.torch.registry import (
    Arguments,
    Conversion,
    Expr,
    Graph,
    Node,
    constant,
    converts,
    left_to_tvm,
    moments,
    op,
)
from umakit.tvm_api import relax


@converts("mm.default bmm.default", "self mat2")
def _product(graph: Graph, node: Node, given: Arguments) -> Expr:
    return op.matmul(graph.value(given["self"]), graph.value(given["mat2"]))


@converts("linear.default", "input weight bias", decomposed=False)
def _linear(graph: Graph, node: Node, given: Arguments) -> Expr:
    """Rows times matrix. Torch's decomposition would depend on the input's strides."""
    shape, result = graph.type_of(given["input"])[0], graph.type_of(node)[0]
    emit, rows = graph.block_builder.emit, graph.value(given["input"])
    if len(shape) != 2:
        rows = emit(op.reshape(rows, [math.prod(shape[:-1]), shape[-1]]))
        rows = emit(in_front_of_dequantize(graph, rows))
    product = emit(op.matmul(rows, emit(op.permute_dims(graph.value(given["weight"])))))
    if given["bias"] is not None:
        product = emit(op.add(product, graph.value(given["bias"])))
    return product if len(shape) == 2 else op.reshape(product, list(result))


@converts("addmm.default", "self mat1 mat2 alpha beta")
@converts("baddbmm.default", "self batch1 batch2 alpha beta")
def _affine(graph: Graph, node: Node, given: Arguments) -> Expr:
    """beta * self + alpha * (left @ right). beta = 0 ignores self, even NaN."""
    dtype = graph.type_of(node)[1]
    names = ("mat1", "mat2") if "mat1" in given else ("batch1", "batch2")
    result = op.matmul(*(graph.value(given[name]) for name in names))
    if given["alpha"] != 1:
        result = op.multiply(result, constant(given["alpha"], dtype))
    if given["beta"] == 0:
        return result
    bias = graph.value(given["self"])
    if given["beta"] != 1:
        bias = op.multiply(bias, constant(given["beta"], dtype))
    return op.add(result, bias)


left_to_tvm(
    "convolution.default",
    "input weight bias stride padding dilation transposed output_padding groups",
)


left_to_tvm("max_pool2d_with_indices.default", "self kernel_size stride padding dilation ceil_mode")


def _average_pool(rank: int) -> Conversion:
    function = getattr(op.nn, f"avg_pool{rank}d")

    def convert(graph: Graph, node: Node, given: Arguments) -> Expr:
        if given["ceil_mode"] and any(given["padding"]):
            raise graph.refuse(node, "has ceil_mode with padding, which is not supported")
        shape = graph.type_of(given["self"])[0]
        value = graph.value(given["self"])
        batched = value if len(shape) == rank + 2 else op.expand_dims(value, 0)
        pooled = function(
            batched,
            pool_size=list(given["kernel_size"]),
            strides=list(given["stride"] or given["kernel_size"]),
            padding=list(given["padding"]),
            ceil_mode=bool(given["ceil_mode"]),
            count_include_pad=bool(given["count_include_pad"]),
        )
        return pooled if batched is value else op.squeeze(pooled, [0])

    return convert


POOL_ARGUMENTS = "self kernel_size stride padding ceil_mode count_include_pad"
converts("avg_pool2d.default", POOL_ARGUMENTS)(_average_pool(2))
converts("avg_pool3d.default", POOL_ARGUMENTS)(_average_pool(3))


@converts("_adaptive_avg_pool2d.default", "self output_size")
def _adaptive_average_pool(graph: Graph, node: Node, given: Arguments) -> Expr:
    """Windows of equal size become an average pool, which has an integer form."""
    shape, outputs = graph.type_of(given["self"])[0], graph.type_of(node)[0]
    if len(shape) != 4 or any(n % m for n, m in zip(shape[2:], outputs[2:], strict=True)):
        return graph.by_tvm(node)
    window = [n // m for n, m in zip(shape[2:], outputs[2:], strict=True)]
    return op.nn.avg_pool2d(graph.value(given["self"]), pool_size=window, strides=window)


def _standardized(value: Expr, axes: Sequence[int], epsilon: float, graph: Graph) -> Expr:
    centred, variance = moments(value, axes, graph.block_builder)
    dtype = tvm_api.dtype_of(value)
    deviation = op.sqrt(op.add(variance, constant(epsilon, dtype)))
    return op.divide(centred, deviation)


def _scaled(value: Expr, graph: Graph, given: Arguments, shape: Sequence[int]) -> Expr:
    """Return value * weight + bias; `shape` makes both broadcast."""
    for name, function in (("weight", op.multiply), ("bias", op.add)):
        if given.get(name) is not None:
            value = function(value, op.reshape(graph.value(given[name]), list(shape)))
    return value


@converts("native_layer_norm.default", "input normalized_shape weight bias eps")
def _layer_norm(graph: Graph, node: Node, given: Arguments) -> Expr:
    inner = list(given["normalized_shape"])
    value = graph.value(given["input"])
    value = _standardized(value, range(-len(inner), 0), given["eps"], graph)
    return _scaled(value, graph, given, inner)


@converts("native_group_norm.default", "input weight bias N C HxW group eps")
def _group_norm(graph: Graph, node: Node, given: Arguments) -> Expr:
    shape = graph.type_of(given["input"])[0]
    grouped = op.reshape(graph.value(given["input"]), [given["N"], given["group"], -1])
    value = op.reshape(_standardized(grouped, [2], given["eps"], graph), list(shape))
    return _scaled(value, graph, given, [-1, *[1] * (len(shape) - 2)])


@converts("_native_batch_norm_legit.no_stats", "input weight bias training momentum eps")
def _statistics_norm(graph: Graph, node: Node, given: Arguments) -> Expr:
    if not given["training"]:
        raise graph.refuse(node, "has no statistics")
    rank = len(graph.type_of(given["input"])[0])
    axes = [0, *range(2, rank)]
    value = _standardized(graph.value(given["input"]), axes, given["eps"], graph)
    return _scaled(value, graph, given, [-1, *[1] * (rank - 2)])


@converts(
    "_native_batch_norm_legit_no_training.default",
    "input weight bias running_mean running_var momentum eps",
)
def _batch_norm(graph: Graph, node: Node, given: Arguments) -> Expr:
    """input * alpha + beta with per-channel constants, as in torch."""
    shape, dtype = graph.type_of(given["input"])
    statistics: dict[str, Any] = {"weight": np.float64(1), "bias": np.float64(0)}
    for name in ("weight", "bias", "running_mean", "running_var"):
        if given[name] is not None:
            value = graph.fake(given[name])
            if graph.depends_on_inputs(given[name]):
                raise graph.refuse(node, f"has a {name} that is computed from the inputs")
            statistics[name] = value.detach().double().numpy()
    alpha = statistics["weight"] / np.sqrt(statistics["running_var"] + given["eps"])
    beta = statistics["bias"] - statistics["running_mean"] * alpha
    per_channel = [shape[1], *[1] * (len(shape) - 2)]
    factor, offset = (relax.const(v.reshape(per_channel).astype(dtype), dtype)
                      for v in (alpha, beta))  # fmt: skip
    return op.add(op.multiply(graph.value(given["input"]), factor), offset)
