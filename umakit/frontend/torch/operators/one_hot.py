# SPDX-License-Identifier: Apache-2.0
"""One-hot vectors."""

from __future__ import annotations

import numpy as np

from umakit.frontend.torch.operands import check_index, op, relax
from umakit.frontend.torch.registry import Arguments, Expr, Graph, Node, converts


@converts("one_hot.default", "self num_classes", decomposed=False)
def _one_hot(graph: Graph, node: Node, given: Arguments) -> Expr:
    """One-hot int64[..., classes]. A class out of range ends a run with a status."""
    numbers, count = graph.value(given["self"]), graph.type_of(node)[0][-1]
    check_index(graph, node, numbers, (0, count))
    classes = relax.const(np.arange(count, dtype=np.int64), "int64")
    # The table lookup checks the range of each class.
    looked_up = graph.block_builder.emit(op.take(classes, numbers, axis=0, mode="fast"))
    return op.astype(op.equal(op.expand_dims(looked_up, [-1]), classes), "int64")
