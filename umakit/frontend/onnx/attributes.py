# SPDX-License-Identifier: Apache-2.0
"""What becomes of each attribute of each ONNX operator: honoured, refused or without meaning here.

`DECISIONS` has every operator that the importer takes, and for each of them every attribute of
every version of its schema in the package onnx; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx

from umakit.errors import ModelError
from umakit.frontend.onnx.checks import all_nodes
from umakit.frontend.onnx.node import opset_of


@dataclass(frozen=True)
class Decision:
    """About the attributes of one operator.

    Attributes:
        honoured: names, separated by spaces: every value has its effect, or the operator's
            converter refuses it.
        only: values by name that may be given; every other one is refused. `ABSENT` means that
            the attribute must be left out.
        ignored: reasons by name why every value has the same result here.
    """

    honoured: str = ""
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    ignored: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> frozenset[str]:
        """Every attribute that this decides about."""
        return frozenset([*self.honoured.split(), *self.only, *self.ignored])


ABSENT = None
"""Among the values of `Decision.only`: the attribute is left out and has no default."""

EVERYWHERE = {"consumed_inputs": "which inputs may be overwritten; the memory plan decides that"}
"""Attributes that all operators of the first opset have, and why they are ignored."""

FLOAT8 = "says how float8 is rounded, which is refused as a type"
STASH = "precision of sums of float16, which is refused as a type; others are at least as precise"

WINDOW = "auto_pad kernel_shape pads strides dilations"
REDUCTION = Decision("axes keepdims noop_with_empty_axes")
BROADCAST = Decision("axis broadcast")
AXIS = Decision("axis")
NONE = Decision()

DECISIONS: Mapping[str, Decision] = {
    **dict.fromkeys(
        "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil "
        "Cos Cosh DynamicQuantizeLinear Erf Exp Expand Floor GlobalAveragePool GlobalMaxPool "
        "GreaterOrEqual HardSwish Identity IsNaN LessOrEqual Log MatMul MatMulInteger Max Mean "
        "Min Mish Neg NonZero Not OptionalGetElement OptionalHasElement PRelu Reciprocal Relu "
        "Round SequenceAt SequenceConstruct SequenceErase SequenceInsert SequenceLength Sigmoid "
        "Sign Sin Sinh Size Softplus Softsign Sqrt Sum Tan Tanh Tile Where".split(),
        NONE,
    ),
    **dict.fromkeys("Add And Div Equal Greater Less Mul Or Pow Sub Xor".split(), BROADCAST),
    **dict.fromkeys(
        "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd "
        "ReduceSum ReduceSumSquare".split(),
        REDUCTION,
    ),
    **dict.fromkeys(
        "Compress Concat Flatten Gather GatherElements Hardmax LogSoftmax OneHot Scatter "
        "Softmax".split(),
        AXIS,
    ),
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
    "BitShift": Decision("direction"),
    "Cast": Decision("to", ignored={"saturate": FLOAT8, "round_mode": FLOAT8}),
    "CastLike": Decision(ignored={"saturate": FLOAT8, "round_mode": FLOAT8}),
    "Clip": Decision("min max"),
    "ConcatFromSequence": Decision("axis new_axis"),
    "Constant": Decision(
        "sparse_value value value_float value_floats value_int value_ints",
        only={"value_string": (ABSENT,), "value_strings": (ABSENT,)},
    ),
    "ConstantOfShape": Decision("value"),
    "Conv": Decision(f"{WINDOW} group"),
    "ConvTranspose": Decision(f"{WINDOW} group output_padding output_shape"),
    "CumSum": Decision("exclusive reverse"),
    "DepthToSpace": Decision("blocksize mode"),
    "DequantizeLinear": Decision("axis output_dtype", only={"block_size": (0,)}),
    "Dropout": Decision(
        "ratio",
        only={"is_test": (1,)},
        ignored={"seed": "used in training only, which is refused unless nothing is dropped"},
    ),
    "Einsum": Decision("equation"),
    "Elu": Decision("alpha"),
    "EyeLike": Decision("dtype k"),
    "GatherND": Decision("batch_dims"),
    "Gelu": Decision("approximate"),
    "Gemm": Decision(
        "alpha beta transA transB",
        ignored={"broadcast": "the sizes of the third input say it"},
    ),
    "GlobalLpPool": Decision("p"),
    "GridSample": Decision("align_corners mode padding_mode"),
    "GroupNormalization": Decision("epsilon num_groups", ignored={"stash_type": STASH}),
    "HardSigmoid": Decision("alpha beta"),
    "If": Decision("else_branch then_branch"),
    "InstanceNormalization": Decision("epsilon"),
    "IsInf": Decision("detect_negative detect_positive"),
    "LRN": Decision("alpha beta bias size"),
    "LayerNormalization": Decision("axis epsilon", ignored={"stash_type": STASH}),
    "LeakyRelu": Decision("alpha"),
    "LpPool": Decision(f"{WINDOW} ceil_mode p"),
    "MaxPool": Decision(f"{WINDOW} ceil_mode storage_order"),
    "MaxRoiPool": Decision("pooled_shape spatial_scale"),
    "MaxUnpool": Decision("kernel_shape pads strides"),
    "MeanVarianceNormalization": Decision("axes"),
    "Mod": Decision("fmod"),
    "NonMaxSuppression": Decision("center_point_box"),
    "Optional": Decision("type"),
    "Pad": Decision("mode pads value", only={"paddings": (ABSENT,)}),
    "QuantizeLinear": Decision(
        "axis output_dtype",
        only={"block_size": (0,), "precision": (0, onnx.TensorProto.FLOAT)},
        ignored={"saturate": FLOAT8},
    ),
    "RMSNormalization": Decision("axis epsilon", ignored={"stash_type": STASH}),
    "Range": Decision(ignored={"stash_type": STASH}),
    "Reshape": Decision("allowzero", only={"shape": (ABSENT,)}),
    "Resize": Decision(
        "antialias axes coordinate_transformation_mode cubic_coeff_a exclude_outside "
        "extrapolation_value keep_aspect_ratio_policy mode nearest_mode"
    ),
    "RoiAlign": Decision(
        "coordinate_transformation_mode mode output_height output_width sampling_ratio "
        "spatial_scale"
    ),
    "ScatterElements": Decision("axis reduction"),
    "ScatterND": Decision("reduction"),
    "Selu": Decision("alpha gamma"),
    "SequenceEmpty": Decision(ignored={"dtype": "what is inserted says it"}),
    "Shape": Decision("start end"),
    "Shrink": Decision("bias lambd"),
    "Slice": Decision(only={"starts": (ABSENT,), "ends": (ABSENT,), "axes": (ABSENT,)}),
    "SpaceToDepth": Decision("blocksize mode"),
    "Split": Decision("axis num_outputs split"),
    "SplitToSequence": Decision("axis keepdims"),
    "Squeeze": Decision("axes"),
    "ThresholdedRelu": Decision("alpha"),
    "TopK": Decision("axis k largest sorted"),
    "Transpose": Decision("perm"),
    "Trilu": Decision("upper"),
    "Unique": Decision("axis sorted"),
    "Unsqueeze": Decision("axes"),
    "Upsample": Decision("height_scale mode scales width_scale"),
}
"""By operator of the standard domain; what is not here is refused."""

NOT_TAKEN: Mapping[str, str] = {
    "Attention": "TVM knows the operator of that name of ONNX Runtime only",
    **dict.fromkeys(
        "AllClassNMS BiasGelu EmbedLayerNormalization FastGelu MatMulInteger16 "
        "SkipLayerNormalization".split(),
        "no operator of the standard domain",
    ),
}
"""Operators that TVM's importer has a converter for and this one does not take, and why."""


def settle_attributes(proto: onnx.ModelProto, path: Path) -> None:
    """Write out the defaults of every node's opset, and refuse what `DECISIONS` refuses.

    TVM's converters have one default for all opsets, which is not always that of the schema.

    Args:
        proto: a checked model; its nodes have names.
        path: of the model, for messages.

    Raises:
        ModelError: names the operator, the node, the attribute and the file.
    """
    opset = opset_of(proto)
    for node in all_nodes(proto.graph):
        given = {attribute.name for attribute in node.attribute}
        for name, attribute in _schema_attributes(node.op_type, opset).items():
            if name not in given and attribute.default_value.name:
                node.attribute.append(attribute.default_value)
        _check_attributes(node, str(path))


def _check_attributes(node: onnx.NodeProto, where: str) -> None:
    decision = DECISIONS.get(node.op_type, Decision())
    for attribute in node.attribute:
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


def _schema_attributes(operator: str, opset: int) -> Mapping[str, Any]:
    try:
        schema = onnx.defs.get_schema(operator, opset, "")
    except onnx.defs.SchemaError:
        return {}
    attributes: Mapping[str, Any] = schema.attributes
    return attributes
