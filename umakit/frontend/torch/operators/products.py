# SPDX-License-Identifier: Apache-2.0
"""Products of matrices."""

from __future__ import annotations

import math

from umakit.frontend.torch.operands import constant, op
from umakit.frontend.torch.quantization import in_front_of_dequantize
from umakit.frontend.torch.registry import Arguments, Expr, Graph, Node, converts


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
