# SPDX-License-Identifier: Apache-2.0
"""Pools."""

from __future__ import annotations

from umakit.frontend.torch.operands import op
from umakit.frontend.torch.registry import (
    Arguments,
    Conversion,
    Expr,
    Graph,
    Node,
    converts,
    left_to_tvm,
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
