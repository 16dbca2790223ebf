# SPDX-License-Identifier: Apache-2.0
"""Computations on the sizes of tensors, which are known when a network is imported.

Exporters write shapes of reshapes, resizes and slices as arithmetic on `Shape`. This module
evaluates these nodes, so that all sizes are constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from umakit.frontend.onnx.checks import STANDARD_DOMAINS

Array = npt.NDArray[Any]

SOURCES = frozenset(("Shape", "Size"))
"""Operators whose results are sizes."""

COMPUTED = frozenset(
    "Abs Add And Cast Ceil Concat ConstantOfShape CumSum Div Equal Expand Flatten Floor Gather "
    "GatherElements GatherND Greater GreaterOrEqual Identity Less LessOrEqual Max Min Mod Mul Neg "
    "NonZero Not Or Range ReduceMax ReduceMin ReduceProd ReduceSum Reshape Round ScatterElements "
    "ScatterND Sign Size Shape Slice Split Squeeze Sub Tile Transpose Unsqueeze Where".split()
)
"""Operators whose results have no rounding that depends on who computes them."""

MOST_ELEMENTS = 4096
"""Maximum number of elements of an operand or result; larger tensors are not sizes."""

BROADCAST_SINCE = 7
"""First opset that broadcasts operands of different shapes."""


def computed(
    node: onnx.NodeProto, operands: Sequence[Array | None], opset: int, *, of_sizes: bool
) -> list[Array] | None:
    """Return the results of a node with constant operands; None for nodes to leave to the importer.

    Args:
        node: node of the standard domain.
        operands: values of the inputs; None for omitted inputs.
        opset: opset of the model.
        of_sizes: whether an operand derives from a tensor's size. Otherwise only int64 and bool
            nodes are computed: indices and sizes in the file itself.
    """
    given = [operand for operand in operands if operand is not None]
    if node.op_type not in COMPUTED or node.domain not in STANDARD_DOMAINS or not given:
        return None
    if opset < BROADCAST_SINCE or any(operand.size > MOST_ELEMENTS for operand in given):
        return None
    if not of_sizes and any(str(operand.dtype) not in ("int64", "bool") for operand in given):
        return None
    if _is_undefined(node, given) or not _expected_elements(node, given) <= MOST_ELEMENTS:
        return None
    results = _evaluated(node, operands, opset)
    if results is None or any(result.size > MOST_ELEMENTS for result in results):
        return None
    return results


def _is_undefined(node: onnx.NodeProto, operands: Sequence[Array]) -> bool:
    """Return whether NumPy gives a node another result than ONNX, or none.

    These are divisions by 0, conversions of out-of-range numbers, and slices with negative steps
    that start before the first element.
    """
    if node.op_type in ("Div", "Mod"):
        return bool(operands[1].dtype.kind in "iu" and not operands[1].all())
    if node.op_type == "Cast" and operands[0].dtype.kind == "f":
        return bool((np.abs(operands[0]) >= 2.0**31).any() or np.isnan(operands[0]).any())
    if node.op_type == "Slice" and len(operands) > 4:
        return bool((operands[4] < 0).any() and (operands[1] < -operands[0].size).any())
    return False


def _expected_elements(node: onnx.NodeProto, operands: Sequence[Array]) -> float:
    """Return an upper bound of the result's elements if operand values set its size, else 0."""
    values = operands[-1].astype(np.float64)
    if node.op_type in ("ConstantOfShape", "Expand", "Tile"):
        others = operands[0].size if node.op_type != "ConstantOfShape" else 1
        return others * float(np.prod(np.maximum(np.abs(values), 1)))
    if node.op_type == "Range" and len(operands) == 3:
        start, limit, step = (float(operand.reshape(-1)[0]) for operand in operands)
        return abs((limit - start) / step) if step else np.inf
    return 0.0


def _evaluated(
    node: onnx.NodeProto, operands: Sequence[Array | None], opset: int
) -> list[Array] | None:
    # Most networks need no evaluator, so it is imported late.
    from onnx.reference import ReferenceEvaluator

    inputs = {
        name: operand
        for name, operand in zip(node.input, operands, strict=True)
        if operand is not None
    }
    undefined = onnx.TensorProto.UNDEFINED
    graph = onnx.helper.make_graph(
        [node],
        "sizes",
        [onnx.helper.make_tensor_value_info(name, undefined, None) for name in inputs],
        [onnx.helper.make_tensor_value_info(name, undefined, None) for name in node.output if name],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    try:
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(model).run(None, inputs)
    except Exception:  # the importer reports the error
        return None
    return [np.asarray(result) for result in results]
