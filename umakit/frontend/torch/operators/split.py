# SPDX-License-Identifier: Apache-2.0
"""Splits."""

from __future__ import annotations

import numpy as np

from umakit import tvm_api
from umakit.frontend.torch.quantization import in_front_of_dequantize, single_grid
from umakit.frontend.torch.registry import Arguments, Expr, Graph, Node, converts

relax = tvm_api.relax


@converts("split_with_sizes.default", "self split_sizes dim")
def _split(graph: Graph, node: Node, given: Arguments) -> Expr:
    """Split. Dequantized integers become slices, each of which stays a data movement."""
    value = graph.value(given["self"])
    if single_grid(graph.definition(value)) is None:
        return graph.by_tvm(node)
    ends = np.cumsum(given["split_sizes"]).tolist()
    axis = given["dim"] % len(graph.type_of(given["self"])[0])
    emit = graph.block_builder.emit
    slices = [
        emit(relax.op.strided_slice(value, [axis], [end - size], [end]))
        for size, end in zip(given["split_sizes"], ends, strict=True)
    ]
    return relax.Tuple([emit(in_front_of_dequantize(graph, part)) for part in slices])
