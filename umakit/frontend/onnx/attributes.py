# SPDX-License-Identifier: Apache-2.0
"""Decision on each attribute of each ONNX operator: honoured, refused or without effect here.

`DECISIONS` has every operator that the importer takes, and for each of them every attribute of
every version of its schema in the package onnx; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx
import onnx.numpy_helper

from umakit.errors import ModelError
from umakit.frontend.onnx.checks import all_nodes
from umakit.frontend.onnx.operators import CONVERTER_DECISIONS
from umakit.frontend.onnx.refusals import schema_of
from umakit.frontend.onnx.registry import ABSENT, FLOAT8, STASH, Decision, opset_of
from umakit.frontend.onnx.rewriting import constant_tensors

EVERYWHERE = {"consumed_inputs": "which inputs may be overwritten; the memory plan decides that"}
"""Attributes that all operators of the first opset have, and why they are ignored."""

WIDE = frozenset("starts ends start end value_int value_ints".split())
"""Attributes that may be any 64-bit integer: values, and ends beyond the size of tensors."""

WINDOW = "auto_pad kernel_shape pads strides dilations"
AXIS = Decision("axis")
NONE = Decision()

BY_TVM: Mapping[str, Decision] = {
    **dict.fromkeys(
        "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil Cos "
        "Cosh Erf Exp Expand Floor GlobalAveragePool GlobalMaxPool "
        "GreaterOrEqual HardSwish Identity IsNaN LessOrEqual Log MatMul MatMulInteger Max "
        "Min Mish Neg NonZero Not OptionalGetElement OptionalHasElement Reciprocal Relu Round "
        "Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Tan Tanh Tile Where".split(),
        NONE,
    ),
    **dict.fromkeys("Compress Concat Flatten Hardmax LogSoftmax Softmax".split(), AXIS),
    "AffineGrid": Decision("align_corners"),
    "ArgMax": Decision("axis keepdims select_last_index"),
    "ArgMin": Decision("axis keepdims select_last_index"),
    "AveragePool": Decision(f"{WINDOW} ceil_mode count_include_pad"),
    "BatchNormalization": Decision(
        "epsilon",
        only={"spatial": (1,), "training_mode": (0,)},
        ignored={
            "momentum": "used in training only",
            "is_test": "an operator with one output is one of inference",
        },
    ),
    "Cast": Decision("to", ignored={"saturate": FLOAT8, "round_mode": FLOAT8}),
    "CastLike": Decision(ignored={"saturate": FLOAT8, "round_mode": FLOAT8}),
    "Constant": Decision(
        "sparse_value value value_float value_floats value_int value_ints",
        only={"value_string": (ABSENT,), "value_strings": (ABSENT,)},
    ),
    "ConstantOfShape": Decision("value"),
    "Conv": Decision(f"{WINDOW} group"),
    "DequantizeLinear": Decision("axis output_dtype", only={"block_size": (0,)}),
    "Einsum": Decision("equation"),
    "EyeLike": Decision("dtype k"),
    "Gemm": Decision(
        "alpha beta transA transB", ignored={"broadcast": "the sizes of the third input say it"}
    ),
    "GlobalLpPool": Decision("p"),
    "GridSample": Decision("align_corners mode padding_mode"),
    "HardSigmoid": Decision("alpha beta"),
    "If": Decision("else_branch then_branch"),
    "InstanceNormalization": Decision("epsilon"),
    "LRN": Decision("alpha beta bias size"),
    "LeakyRelu": Decision("alpha"),
    "LpPool": Decision(f"{WINDOW} ceil_mode p"),
    "MaxPool": Decision(f"{WINDOW} ceil_mode storage_order"),
    "MaxRoiPool": Decision("pooled_shape spatial_scale"),
    "MeanVarianceNormalization": Decision("axes"),
    "NonMaxSuppression": Decision("center_point_box"),
    "Optional": Decision("type"),
    "QuantizeLinear": Decision(
        "axis output_dtype",
        only={"block_size": (0,), "precision": (0, onnx.TensorProto.FLOAT)},
        ignored={"saturate": FLOAT8},
    ),
    "RMSNormalization": Decision("axis epsilon", ignored={"stash_type": STASH}),
    "Range": Decision(ignored={"stash_type": STASH}),
    "Reshape": Decision("allowzero", only={"shape": (ABSENT,)}),
    "Selu": Decision("alpha gamma"),
    "SequenceEmpty": Decision(ignored={"dtype": "what is inserted says it"}),
    "Squeeze": Decision("axes"),
    "Transpose": Decision("perm"),
    "Trilu": Decision("upper"),
    "Unique": Decision("axis sorted"),
    "Unsqueeze": Decision("axes"),
}
"""Decisions by name, for the standard operators that only TVM's importer converts."""

DECISIONS: Mapping[str, Decision] = {**BY_TVM, **CONVERTER_DECISIONS}
"""Decisions by name, for all supported standard operators; other operators are refused."""

NOT_TAKEN: Mapping[str, str] = {
    "Attention": "TVM knows the operator of that name of ONNX Runtime only",
    **dict.fromkeys(
        ("BiasGelu", "DynamicQuantizeLinear", "FastGelu"), "written as other operators before"
    ),
    **dict.fromkeys(
        "AllClassNMS EmbedLayerNormalization MatMulInteger16 SkipLayerNormalization".split(),
        "no operator of the standard domain",
    ),
}
"""Operators that TVM's importer has a converter for and this one does not take, and why."""


MOST_STEP = 2**30
"""Largest step of a Slice: place and step together stay in 31 bits."""


def settle_attributes(proto: onnx.ModelProto, path: Path) -> None:
    """Write out the defaults of every node's opset, and apply the refusals of `DECISIONS`.

    TVM's converters use one default for all opsets, which may differ from the schema's default.
    """
    opset, constants = opset_of(proto), constant_tensors(proto.graph)
    for node in all_nodes(proto.graph):
        given = {attribute.name for attribute in node.attribute}
        schema = schema_of(node, opset)
        for name, attribute in ({} if schema is None else schema.attributes).items():
            if name not in given and attribute.default_value.name:
                node.attribute.append(attribute.default_value)
        _check_attributes(node, str(path))
        if node.op_type == "Slice" and len(node.input) > 4:
            _check_steps(node, constants.get(node.input[4]), str(path))


def _check_steps(node: onnx.NodeProto, tensor: onnx.TensorProto | None, where: str) -> None:
    """Refuse constant steps of a Slice that the inference of the package onnx adds up beyond the
    range of its integers, without an end."""
    steps = [] if tensor is None else onnx.numpy_helper.to_array(tensor).reshape(-1).tolist()
    wide = [step for step in steps if abs(step) > MOST_STEP]
    if wide:
        raise ModelError(
            f"operator Slice of node {node.name!r} has the step {wide[0]}, for which no tensor is "
            "large enough",
            where=where,
            fix=f"give steps of at most {MOST_STEP}",
        )


def _check_attributes(node: onnx.NodeProto, where: str) -> None:
    decision = DECISIONS.get(node.op_type, Decision())
    for attribute in node.attribute:
        wide = [n for n in (attribute.i, *attribute.ints) if not -(2**31) <= n < 2**31]
        if wide and attribute.name not in WIDE:  # TVM would take the lower 32 bits
            raise ModelError(
                f"operator {node.op_type} of node {node.name!r} has the attribute "
                f"{attribute.name}={wide[0]}, for which no tensor is large enough",
                where=where,
                fix="correct it, or export the model again",
            )
        if attribute.name not in decision.only:
            continue
        value = onnx.helper.get_attribute_value(attribute)
        if value not in decision.only[attribute.name]:
            number = isinstance(value, (int, float))
            shown = f"{attribute.name}={value}" if number else attribute.name
            raise ModelError(
                f"operator {node.op_type} of node {node.name!r} has the attribute {shown}, "
                "which is not supported",
                where=where,
                fix="export the model without it, or for a newer opset",
            )
