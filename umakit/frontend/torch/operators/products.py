# SPDX-License-Identifier: Apache-2.0
"""Products of matrices, convolutions of any rank, and pools."""

from __future__ import annotations

import math

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
    op,
)


@converts("mm.default bmm.default", "self mat2")
def _product(graph: Graph, node: Node, given: Arguments) -> Expr:
    return op.matmul(graph.value(given["self"]), graph.value(given["mat2"]))


@converts("linear.default", "input weight bias", decomposed=False)
def _linear(graph: Graph, node: Node, given: Arguments) -> Expr:
    """Rows times matrix, converted directly: torch's decomposition depends on the input's
    strides."""
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
def _add_product(graph: Graph, node: Node, given: Arguments) -> Expr:
    return _affine(graph, node, given, "mat1", "mat2")


@converts("baddbmm.default", "self batch1 batch2 alpha beta")
def _add_batched_product(graph: Graph, node: Node, given: Arguments) -> Expr:
    return _affine(graph, node, given, "batch1", "batch2")


def _affine(graph: Graph, node: Node, given: Arguments, left: str, right: str) -> Expr:
    """beta * self + alpha * (left @ right). beta = 0 ignores self, even NaN."""
    dtype = graph.type_of(node)[1]
    result = op.matmul(graph.value(given[left]), graph.value(given[right]))
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
    """Adaptive average pool. Windows of equal size become an average pool, which has an integer
    form."""
    shape, outputs = graph.type_of(given["self"])[0], graph.type_of(node)[0]
    if len(shape) != 4 or any(n % m for n, m in zip(shape[2:], outputs[2:], strict=True)):
        return graph.by_tvm(node)
    window = [n // m for n, m in zip(shape[2:], outputs[2:], strict=True)]
    return op.nn.avg_pool2d(graph.value(given["self"]), pool_size=window, strides=window)
