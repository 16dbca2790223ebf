# SPDX-License-Identifier: Apache-2.0
"""ONNX `If` whose condition is known only at run time: both branches are computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.frontend.onnx.refusals import described
from umakit.tvm_api import relax

DIVISIONS = ("Div", "Mod")
INDEXED = {
    **dict.fromkeys(("Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"), 1),
    "Scatter": 1,
    "OneHot": 0,
    "RoiAlign": 2,
}
"""Operators that fail for indices outside of a tensor, with the number of the index input."""


def check_conditional(node: onnx.NodeProto, inputs: Sequence[Any], file: str) -> None:
    """Refuse a node that could fail in the branch that is not taken.

    Args:
        node: node of a branch.
        inputs: Relax expressions of the node's inputs.
        file: path of the model.

    Raises:
        ModelError: the node divides integers or uses indices computed at run time.
    """
    what = ""
    if node.op_type in DIVISIONS and "int" in tvm_api.dtype_of(inputs[1]):
        divisor = tvm_api.constant_array(inputs[1])
        if divisor is None or not np.all(divisor):
            what = "divides integers"
    elif (position := INDEXED.get(node.op_type)) is not None:
        constant = tvm_api.constant_array(inputs[position]) is not None
        what = "" if constant else "has indices that are computed at run time"
    if what:
        raise ModelError(
            f"operator {node.op_type} of node {node.name!r} {what} in a branch of an If whose "
            "condition is computed at run time; both branches are computed here, and it could fail",
            where=file,
            fix="make the condition a constant, or move the operator out of the branch",
        )


def chosen(
    builder: tvm_api.BlockBuilder,
    node: onnx.NodeProto,
    condition: tvm_api.Expr,
    branches: tuple[Sequence[Any], Sequence[Any]],
    file: str,
) -> list[Any]:
    """Return the results of the branch that the condition selects.

    Args:
        builder: block builder.
        node: the If node.
        condition: tensor with one bool.
        branches: results of `then_branch` and of `else_branch`.
        file: path of the model.

    Raises:
        ModelError: the branches yield tensors of different shapes or dtypes, or no tensors.
    """
    flag = builder.emit(relax.op.reshape(condition, ()))
    results = []
    for name, then, otherwise in zip(node.output, *branches, strict=True):
        kinds = [described(value) for value in (then, otherwise)]
        if kinds[0] != kinds[1] or tvm_api.static_shape(then) is None:
            raise ModelError(
                f"operator If of node {node.name!r} has a condition that is computed at run time, "
                f"and its result {name!r} is {kinds[0]} in one branch and {kinds[1]} in the other",
                where=file,
                fix="make the condition a constant, or the results alike",
            )
        results.append(builder.emit(relax.op.where(flag, then, otherwise)))
    return results
