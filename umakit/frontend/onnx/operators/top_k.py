# SPDX-License-Identifier: Apache-2.0
"""TopK."""

from __future__ import annotations

from umakit import tvm_api
from umakit.frontend.onnx.node import Node
from umakit.frontend.onnx.registry import converts

relax = tvm_api.relax

K_IS_AN_INPUT_SINCE = 10
"""First opset with k as an input instead of an attribute."""


@converts("TopK", "axis k largest sorted")
def top_k(node: Node) -> list[tvm_api.Expr]:
    """Return the k largest or smallest elements along an axis and their indices, for constant k.

    Equal elements are in the order of their indices. `sorted=0` allows any order; results are
    sorted too.
    """
    shape, axis = node.shape(0), int(node.attribute("axis", -1))
    if node.opset < K_IS_AN_INPUT_SINCE:
        count = int(node.attribute("k", 0))
    else:
        given = node.constant_input(1, "K")
        count = int(given.reshape(-1)[0]) if given is not None and given.size == 1 else 0
    if not -len(shape) <= axis < len(shape):
        raise node.refuse(f"has axis={axis}, but its input has {len(shape)} dimensions")
    if not 1 <= count <= shape[axis]:
        raise node.refuse(f"takes {count} of {shape[axis]} elements")
    largest = bool(node.attribute("largest", 1))
    both = node.emit(
        relax.op.topk(node.inputs[0], count, axis, "both", largest=largest, dtype="int64")
    )
    return [relax.TupleGetItem(both, number) for number in range(2)]
