# SPDX-License-Identifier: Apache-2.0
"""Shapes of an ONNX graph, given and inferred, and arithmetic of sizes that is known at import."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.shape_inference

from umakit.errors import ModelError
from umakit.frontend.checks import check_wanted_sizes
from umakit.frontend.model import InputShapes, check_element_count, symbolic_notice
from umakit.frontend.onnx.checks import STANDARD_DOMAINS

Types = dict[str, tuple[str, tuple[int, ...] | None]]
"""dtype and, where it is known, shape of tensors by name."""


def graph_inputs(proto: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Return the inputs that a caller passes, without initializers."""
    constants = {tensor.name for tensor in proto.graph.initializer}
    return [value for value in proto.graph.input if value.name not in constants]


def static_input_shapes(
    proto: onnx.ModelProto, path: Path, wanted: InputShapes
) -> tuple[dict[str, list[int]], list[str]]:
    """Return every input's shape with symbolic dimensions bound, and the notices for the user."""
    inputs, notices = graph_inputs(proto), list[str]()
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in inputs}
    check_wanted_sizes(wanted, ranks, str(path))
    shapes = {v.name: _bound_shape(v, path, wanted.get(v.name), notices) for v in inputs}
    return shapes, notices


def _bound_shape(
    value: onnx.ValueInfoProto, path: Path, wanted: Sequence[int] | None, notices: list[str]
) -> list[int]:
    shape: list[int] = []
    for axis, dimension in enumerate(value.type.tensor_type.shape.dim):
        fixed = dimension.dim_value if dimension.HasField("dim_value") else 0
        if wanted is not None:
            if fixed > 0 and fixed != wanted[axis]:
                raise ModelError(
                    f"dimension {axis} of input {value.name!r} is {fixed}, not {wanted[axis]}",
                    where=str(path),
                    fix=f"give --input-shapes {fixed} there, or export it with a symbolic one",
                )
            shape.append(int(wanted[axis]))
        elif fixed > 0:
            shape.append(int(fixed))
        elif dimension.HasField("dim_value"):
            raise ModelError(
                f"dimension {axis} of input {value.name!r} is {fixed}",
                where=str(path),
                fix="give its size with --input-shapes",
            )
        else:
            notices.append(symbolic_notice(value.name, dimension.dim_param or "?"))
            shape.append(1)
    return shape


def set_input_shapes(proto: onnx.ModelProto, shapes: dict[str, list[int]]) -> None:
    """Write static input shapes into the graph and delete the shapes derived from symbolic ones."""
    for value in graph_inputs(proto):
        dimensions = value.type.tensor_type.shape
        del dimensions.dim[:]
        for size in shapes[value.name]:
            dimensions.dim.add().dim_value = size
    del proto.graph.value_info[:]
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")


def inferred_types(proto: onnx.ModelProto) -> tuple[Types, str]:
    """Return the types that the package onnx infers, and its message about a contradiction.

    The message is empty without a contradiction of the operators' specifications.
    """
    fault = ""
    try:
        inferred = onnx.shape_inference.infer_shapes(proto, strict_mode=True, data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError) as error:
        fault = str(error) if isinstance(error, onnx.shape_inference.InferenceError) else ""
        try:
            inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True)
        except (onnx.shape_inference.InferenceError, ValueError):
            return {}, fault
    types: Types = {}
    for value in [*inferred.graph.value_info, *inferred.graph.output]:
        tensor = value.type.tensor_type
        if not tensor.elem_type:
            continue
        dtype = str(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
        sizes = [d.dim_value if d.HasField("dim_value") else -1 for d in tensor.shape.dim]
        is_static = tensor.HasField("shape") and min(sizes, default=0) >= 0
        types[value.name] = (dtype, tuple(sizes) if is_static else None)
    return types, fault


def check_extents(proto: onnx.ModelProto, types: Types, path: Path) -> None:
    """Refuse results with too many elements before any step allocates them."""
    for node in proto.graph.node:
        for name in node.output:
            _, shape = types.get(name, ("", None))
            label = f"operator {node.op_type} of node {node.name!r}: its result"
            check_element_count(shape or (), label, str(path))


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

    Unless an operand derives from a tensor's size (`of_sizes`), only int64 and bool nodes are
    computed: indices and sizes in the file itself.
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
