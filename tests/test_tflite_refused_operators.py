# SPDX-License-Identifier: Apache-2.0
"""Quantized operators that are refused: messages name the operator, its tensor and the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusal_sites import faults_of
from tflite_networks import TfliteFile

from umakit.errors import ModelError
from umakit.frontend import import_model
from umakit.quantized import quantize_to_integers


def one(
    code: str,
    options: str = "",
    *,
    source: str = "int8",
    result: str = "int8",
    shape: tuple[int, ...] = (1, 4),
    result_shape: tuple[int, ...] | None = None,
    source_scale: float = 0.1,
    result_scale: float = 0.1,
    result_zero: int = 0,
    extra: tuple[Any, ...] = (),
    first: bool = False,
    position: int = 0,
    **values: Any,
) -> bytes:
    """One operator: `x` and constants become `y`.

    Args:
        code: of the operator.
        options: name of its options.
        source, result: dtypes.
        shape, result_shape: of `x` and `y`.
        source_scale, result_scale, result_zero: of `x` and `y`.
        extra: more inputs, arrays or (array, scale) of quantized ones; None is another input.
        first: whether constants come before `x`.
        position: of `x` among the inputs, where it is neither first nor last.
        values: of the options.
    """
    file = TfliteFile()
    quantization: dict[str, Any] = {} if source == "int32" else {"scale": source_scale}
    x = file.tensor(shape, source, **quantization, name="x")
    more, inputs = [], [x]
    for number, item in enumerate(extra):
        array, quantization = (
            (item[0], {"scale": item[1]}) if isinstance(item, tuple) else (item, {})
        )
        if array is None:
            more.append(file.tensor([1], "int32", name="given"))
            inputs.append(more[-1])
            continue
        name = f"constant{number}"
        more.append(
            file.tensor(array.shape, str(array.dtype), data=array, name=name, **quantization)
        )
    y = file.tensor(
        result_shape or shape, result, scale=result_scale, zero_point=result_zero, name="y"
    )
    place = len(more) if first else position
    file.operator(code, [*more[:place], x, *more[place:]], [y], options, **values)
    return file.finish(inputs, [y])


def integers(*values: Any) -> Any:
    return np.array(values, np.int32)


WEIGHTS = (np.ones((1, 1, 1, 4), np.int8), 0.1)
IMAGE = (1, 2, 2, 4)

REFUSED = {
    "a depthwise convolution of 16 bits with a bias of 32": (
        one(
            "DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions", source="int16", result="int16",
            shape=IMAGE, StrideH=1, StrideW=1, DilationHFactor=1, DilationWFactor=1,
            DepthMultiplier=1, extra=(WEIGHTS, (integers(1, 2, 3, 4), 0.01)),
        ),
        "DEPTHWISE_CONV_2D that writes 'y': its bias is int32, not int64",
    ),
    "a bias of more than 32 bits": (
        one(
            "CONV_2D", "Conv2DOptions", source="int16", result="int16", shape=IMAGE,
            result_shape=(1, 2, 2, 1), StrideH=1, StrideW=1, DilationHFactor=1, DilationWFactor=1,
            extra=(WEIGHTS, (np.array([2**40], np.int64), 0.01)),
        ),
        "CONV_2D that writes 'y': its bias needs more than 32 bits",
    ),
    "accumulators of 32 bits without a bias that says so": (
        one(
            "CONV_2D", "Conv2DOptions", source="int16", result="int16", shape=IMAGE,
            result_shape=(1, 2, 2, 1), StrideH=1, StrideW=1, DilationHFactor=1, DilationWFactor=1,
            QuantizedBiasType=2, extra=(WEIGHTS,),
        ),
        "CONV_2D that writes 'y': it has no bias but accumulators of 32 bits",
    ),
    "RELU_N1_TO_1, which TFLM lacks": (
        one("RELU_N1_TO_1"), "RELU_N1_TO_1 that writes 'y' is not supported as a quantized"
    ),
    "LOG_SOFTMAX of another scale": (
        one("LOG_SOFTMAX"), "LOG_SOFTMAX that writes 'y': its result has another scale than 1/16"
    ),
    "a convolution of uint8 with weights of int8": (
        one("CONV_2D", source="uint8", result="uint8", shape=IMAGE, extra=(WEIGHTS,)),
        "CONV_2D that writes 'y' has dtypes .* uint8, int8 to uint8",
    ),
    "MEAN of uint8, which differed between releases": (
        one("MEAN", "ReducerOptions", source="uint8", result="uint8", extra=(integers(1),)),
        "MEAN that writes 'y': tensor 'x' is uint8",
    ),
    "HARD_SWISH of 16 bits, which TFLM lacks": (
        one("HARD_SWISH", source="int16", result="int16"),
        "HARD_SWISH that writes 'y': tensor 'x' is int16",
    ),
    "LOGISTIC of 16 bits of another scale": (
        one("LOGISTIC", source="int16", result="int16"), "LOGISTIC .* another scale than 3.05"
    ),
    "TANH of 16 bits of a large scale": (
        one("TANH", source="int16", result="int16", source_scale=2.7, result_scale=2**-15),
        "scale 2.7.* is too large for 16 bits",
    ),
    "SOFTMAX of 16 bits of another scale": (
        one("SOFTMAX", "SoftmaxOptions", source="int16", result="int16", Beta=1.0),
        "a scale other than 1/32768",
    ),
    "LEAKY_RELU of 16 bits of a tiny scale": (
        one("LEAKY_RELU", "LeakyReluOptions", source="int16", result="int16", Alpha=0.5,
            result_scale=1e-8),
        "scale is too small",
    ),
    "PRELU of 16 bits with slopes of 16": (
        one("PRELU", source="int16", result="int16", extra=((np.ones(4, np.int16), 0.1),)),
        "PRELU that writes 'y' has dtypes .* int16, int16 to int16",
    ),
    "ARG_MAX of 16 bits, which TFLM lacks": (
        one("ARG_MAX", "ArgMaxOptions", source="int16", result="int32", result_shape=(1,),
            extra=(integers(1),)),
        "ARG_MAX that writes 'y': tensor 'x' is int16",
    ),
    "ARG_MAX along an axis that is not there": (
        one("ARG_MAX", "ArgMaxOptions", result="int32", result_shape=(1,), extra=(integers(2),)),
        r"'y': its axis is \[2\]",
    ),
    "BATCH_MATMUL of vectors": (
        one("BATCH_MATMUL", "BatchMatMulOptions", shape=(4,), result_shape=(1,),
            extra=((np.ones((4, 1), np.int8), 0.1),)),
        "'y': an operand has 1 axes",
    ),
    "RESIZE_BILINEAR of another scale": (
        one("RESIZE_BILINEAR", "ResizeBilinearOptions", shape=IMAGE, result_scale=0.2,
            extra=(integers(2, 2),)),
        "an image of int8 keeps its scale",
    ),
    "RESIZE_BILINEAR with two kinds of corners": (
        one("RESIZE_BILINEAR", "ResizeBilinearOptions", shape=IMAGE, AlignCorners=True,
            HalfPixelCenters=True, extra=(integers(2, 2),)),
        "'y': it aligns corners and has half-pixel centers",
    ),
    "RESIZE_BILINEAR to so many rows that positions leave the image": (
        one("RESIZE_BILINEAR", "ResizeBilinearOptions", shape=(1, 3, 1, 1),
            result_shape=(1, 2000, 1, 1), extra=(integers(2000, 1),)),
        "positions of 2000 elements are too coarse for 3",
    ),
    "PACK along an axis that is not there": (
        one("PACK", "PackOptions", Axis=3, result_shape=(1, 1, 4)), "'y': its axis is 3"
    ),
    "UNPACK of too few results": (
        one("UNPACK", "UnpackOptions", Axis=1, Num=1, result_shape=(1,)),
        "'y': its axis is 1, with 1 results",
    ),
    "a transposed convolution of 16 bits with a bias of 32": (
        one("TRANSPOSE_CONV", "TransposeConvOptions", source="int16", result="int16", StrideH=1,
            StrideW=1, shape=IMAGE, result_shape=(1, 2, 2, 1), position=2,
            extra=(integers(1, 2, 2, 1), WEIGHTS, (integers(1), 0.01))),
        "TRANSPOSE_CONV that writes 'y': its bias is int32, not int64",
    ),
    "LOGISTIC of another scale": (one("LOGISTIC"), "LOGISTIC .* another scale than 0.0039"),
    "TANH of another zero point": (
        one("TANH", result_scale=1 / 128, result_zero=2), "TANH .* another zero point than 0"
    ),
    "HARD_SWISH of a tiny scale": (
        one("HARD_SWISH", result_scale=1e-5), "too far apart for 16 bits"
    ),
    "LEAKY_RELU of a tiny scale": (
        one("LEAKY_RELU", "LeakyReluOptions", Alpha=0.5, result_scale=1e-9), "scale is too small"
    ),
    "LEAKY_RELU of no number": (
        one("LEAKY_RELU", "LeakyReluOptions", Alpha=float("nan")), "'y': its alpha is nan"
    ),
    "16 bits with a zero point": (
        one("RELU", source="int16", result="int16", result_zero=3),
        "RELU that writes 'y': tensor 'y' has a zero point that is not int16",
    ),
    "a sum of 8 and 16 bits": (
        one("ADD", "AddOptions", extra=((np.ones(4, np.int16), 0.1),)), "int8, int16 to int8"
    ),
    "a product of 16 bits that needs more than 32": (
        one("MUL", "MulOptions", source="int16", result="int16", result_scale=1e-4,
            extra=((np.ones(4, np.int16), 0.1),)),
        "the result's scale is too small",
    ),
    "a change of scale that needs more than 32 bits": (
        one("QUANTIZE", result_scale=1e-9), "the result's scale is too small"
    ),
    "uint8 from 16 bits": (
        one("QUANTIZE", source="int16", result="uint8"), "QUANTIZE .* int16 to uint8"
    ),
    "CONCATENATION of another scale": (
        one("CONCATENATION", "ConcatenationOptions", result_scale=0.2),
        "CONCATENATION that writes 'y' would change the scale of tensor 'x'",
    ),
    "MAXIMUM of another scale": (
        one("MAXIMUM", extra=((np.ones(4, np.int8), 0.3),)),
        "MAXIMUM that writes 'y' would change the scale of tensor 'constant0'",
    ),
    "PADV2 with a value of another scale": (
        one("PADV2", extra=(integers([0, 0], [0, 0]), (np.ones(1, np.int8), 0.3))),
        "PADV2 that writes 'y' would change the scale of tensor 'constant1'",
    ),
    "PAD by less than nothing": (
        one("PAD", extra=(integers([0, -1], [0, 0]),)), r"'y': its paddings are \[0, -1, 0, 0\]"
    ),
    "MEAN over axes that are not constant": (
        one("MEAN", "ReducerOptions", extra=(None,)), "MEAN that writes 'y': its input 1 is not a c"
    ),
    "MEAN over an axis that is not there": (
        one("MEAN", "ReducerOptions", extra=(integers(2),)), r"'y': its axes are \[2\]"
    ),
    "TRANSPOSE that repeats an axis": (
        one("TRANSPOSE", extra=(integers(0, 0),)), r"'y': its permutation is \[0, 0\]"
    ),
    "STRIDED_SLICE with an ellipsis": (
        one("STRIDED_SLICE", "StridedSliceOptions", EllipsisMask=1,
            extra=(integers(0, 0), integers(1, 4), integers(1, 1))),
        "'y': it has an ellipsis",
    ),
    "STRIDED_SLICE of nothing": (
        one("STRIDED_SLICE", "StridedSliceOptions",
            extra=(integers(0, 3), integers(1, 3), integers(1, 1))),
        "STRIDED_SLICE that writes 'y': it takes range",
    ),
    "SLICE outside": (
        one("SLICE", extra=(integers(0, 3), integers(1, 4))), "'y': it takes range"
    ),
    "SPLIT into unequal parts": (
        one("SPLIT", "SplitOptions", NumSplits=1, first=True, result_shape=(1, 3),
            extra=(integers(1),)),
        "'y': its results have 3 of the 4 elements",
    ),
    "RESIZE_NEAREST_NEIGHBOR to another size": (
        one("RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions", shape=IMAGE,
            extra=(integers(3, 3),)),
        "'y': its result has the shape",
    ),
    "TRANSPOSE_CONV that reaches too little": (
        one("TRANSPOSE_CONV", "TransposeConvOptions", Padding=1, StrideH=1, StrideW=1, first=True,
            shape=IMAGE, result_shape=(1, 9, 9, 1), extra=(integers(1, 9, 9, 1), WEIGHTS)),
        "'y': its result of 9 rows or columns is larger",
    ),
    "SPACE_TO_BATCH_ND of blocks that do not divide": (
        one("SPACE_TO_BATCH_ND", "SpaceToBatchNDOptions", shape=IMAGE,
            extra=(integers(2, 2), integers([0, 1], [0, 0]))),
        r"SPACE_TO_BATCH_ND that writes 'y': its blocks \[2, 2\] do not divide \[3, 2\]",
    ),
    "SPACE_TO_BATCH_ND of blocks of 0": (
        one("SPACE_TO_BATCH_ND", "SpaceToBatchNDOptions", shape=IMAGE,
            extra=(integers(2, 0), integers([0, 0], [0, 0]))),
        r"'y': its blocks are \[2, 0\] and its borders \[0, 0, 0, 0\]",
    ),
    "BATCH_TO_SPACE_ND of too few blocks": (
        one("BATCH_TO_SPACE_ND", "BatchToSpaceNDOptions", shape=(4, 2, 2, 4),
            extra=(integers(2), integers([0, 0]))),
        r"'y': its blocks are \[2\] and its borders \[0, 0\]",
    ),
    "BATCH_TO_SPACE_ND of batches that are no blocks": (
        one("BATCH_TO_SPACE_ND", "BatchToSpaceNDOptions", shape=(6, 2, 2, 4),
            extra=(integers(2, 2), integers([0, 0], [0, 0]))),
        r"'y': its blocks \[2, 2\] do not divide 6 batches",
    ),
    "BATCH_TO_SPACE_ND that crops everything": (
        one("BATCH_TO_SPACE_ND", "BatchToSpaceNDOptions", shape=(4, 2, 2, 4),
            extra=(integers(2, 2), integers([0, 0], [1, 3]))),
        r"'y': its crops \[\(0, 0\), \(1, 3\)\] leave nothing",
    ),
    "FULLY_CONNECTED of shuffled weights": (
        one("FULLY_CONNECTED", "FullyConnectedOptions", WeightsFormat=1,
            extra=((np.ones((4, 4), np.int8), 0.1),)),
        "FULLY_CONNECTED that writes 'y': its weights are shuffled",
    ),
    "FULLY_CONNECTED of other rows": (
        one("FULLY_CONNECTED", "FullyConnectedOptions",
            extra=((np.ones((4, 3), np.int8), 0.1),)),
        r"'y': its data of shape \[1, 4\] is not rows of 3",
    ),
    "TRANSPOSE_CONV with a stride of 0": (
        one("TRANSPOSE_CONV", "TransposeConvOptions", first=True, shape=IMAGE,
            extra=(integers(1, 2, 2, 1), WEIGHTS)),
        "'y': its StrideH is 0",
    ),
    "ADD_N of several shapes": (
        one("ADD_N", extra=((np.ones((1, 2), np.int8), 0.1),)), "'y': its inputs have different sh"
    ),
    "BROADCAST_TO another shape": (
        one("BROADCAST_TO", extra=(integers(2, 4),)), r"'y': its result has the shape \[1, 4\]"
    ),
    "BROADCAST_ARGS that do not": (
        one("BROADCAST_ARGS", source="int32", result="int32", source_scale=(), result_scale=(),
            shape=(2,), extra=(integers(2, 3), integers(4, 3)), position=9),
        "BROADCAST_ARGS that writes 'y'",
    ),
    "PACK of other shapes": (
        one("PACK", "PackOptions", Axis=0, ValuesCount=1, result_shape=(1, 2, 2)),
        r"'y': its result has the shape \[1, 2, 2\]",
    ),
    "TRANSPOSE_CONV of other weights": (
        one("TRANSPOSE_CONV", "TransposeConvOptions", StrideH=1, StrideW=1, first=True,
            shape=IMAGE, extra=(integers(1, 2, 2, 1), (np.ones((1, 1, 1, 3), np.int8), 0.1))),
        r"'y': weights of shape \[1, 1, 1, 3\] do not fit",
    ),
    "DEPTH_TO_SPACE of few channels": (
        one("DEPTH_TO_SPACE", "DepthToSpaceOptions", BlockSize=3, shape=IMAGE),
        "'y': its blocks of 3 do not divide 4 channels",
    ),
    "SPACE_TO_DEPTH of rows": (
        one("SPACE_TO_DEPTH", "SpaceToDepthOptions", BlockSize=1), "'y': its input has the shape"
    ),
    "DIV of a tiny scale": (
        one("DIV", "DivOptions", result_scale=1e-9, extra=((np.ones((1, 4), np.int8), 0.1),)),
        "'y': the result's scale is too small",
    ),
    "FILL of another shape": (
        one("FILL", shape=(), result_shape=(1, 4), first=True, extra=(integers(2),)),
        r"'y': its result has the shape \[1, 4\]",
    ),
    "GATHER of more batches than indices": (
        one("GATHER", "GatherOptions", Axis=1, BatchDims=2, extra=(integers(1),)),
        "'y': its batch dimensions are 2",
    ),
    "L2_NORMALIZATION with an activation": (
        one("L2_NORMALIZATION", "L2NormOptions", FusedActivationFunction=1),
        "'y': it has a fused activation",
    ),
    "LOG_SOFTMAX of a tiny scale": (
        one("LOG_SOFTMAX", source_scale=1e-12, result_scale=1 / 16, result_zero=127),
        "'y': its input's scale is below",
    ),
    "PADV2 with two values": (
        one("PADV2", extra=(integers([0, 0], [0, 0]), (np.ones(2, np.int8), 0.1))),
        "'y': it pads with 2 values",
    ),
    "QUANTIZE to 32 bits with a zero point": (
        one("QUANTIZE", result="int32", result_zero=3), "'y': its result of 32 bits has a zero"
    ),
    "RESIZE_BILINEAR to another size": (
        one("RESIZE_BILINEAR", "ResizeBilinearOptions", shape=IMAGE, extra=(integers(3, 3),)),
        "'y': its result has the shape",
    ),
    "REVERSE_V2 along an axis that is not there": (
        one("REVERSE_V2", extra=(integers(2),)), r"'y': its axes are \[2\]"
    ),
    "SELECT_V2 of other dtypes": (
        one("SELECT_V2", first=True,
            extra=(np.ones((1, 4), bool), np.ones((1, 4), np.int32))),
        "SELECT_V2 that writes 'y'",
    ),
    "RESHAPE to more elements": (
        one("RESHAPE", result_shape=(1, 5)), r"'y': its result of shape \[1, 5\] has another"
    ),
    "STRIDED_SLICE by steps of 0": (
        one("STRIDED_SLICE", "StridedSliceOptions",
            extra=(integers(0, 0), integers(1, 4), integers(1, 0))),
        "'y': its bounds and steps are",
    ),
    "SLICE of few dimensions": (
        one("SLICE", extra=(integers(0), integers(1))), r"'y': it begins at \[0\] and has"
    ),
    "SPLIT into another rank": (
        one("SPLIT", "SplitOptions", NumSplits=1, first=True, result_shape=(4,),
            extra=(integers(1),)),
        r"'y': a result has the shape \[4\]",
    ),
    "a tensor of several scales": (
        one("ADD_N", shape=(4,), extra=((np.ones(4, np.int8), (0.1, 0.2, 0.1, 0.2)),)),
        "'y': tensor 'constant0' has 4 scales",
    ),
    "positions that are no integers": (
        one("TRANSPOSE", extra=(np.ones(2, np.float32),)), "'y': its input 1 is float32, not int"
    ),
    "an unknown activation": (
        one("DIV", "DivOptions", FusedActivationFunction=4, result_scale=1e-3,
            extra=((np.ones((1, 4), np.int8), 0.1),)),
        "'y': its fused activation 4 is not supported",
    ),
    "a channel of scale 0": (
        one("FULLY_CONNECTED", "FullyConnectedOptions", result_shape=(1, 2),
            extra=((np.ones((2, 4), np.int8), (0.1, 0.0)),)),
        "tensor 'constant0' has the scale 0 at 1",
    ),
    "a bias without a scale": (
        one("FULLY_CONNECTED", "FullyConnectedOptions", result_shape=(1, 2),
            extra=((np.ones((2, 4), np.int8), 0.1), integers(1, 2))),
        "'y': its bias 'constant1' has no scale",
    ),
    "an operator without its data": (one("SPLIT", "SplitOptions"), "'y' lacks its input 1"),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_operators_are_refused_by_name(why: str, tmp_path: Path) -> None:
    content, message = REFUSED[why]
    path = tmp_path / "net.tflite"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=message) as refused:
        quantize_to_integers(import_model(path))
    assert "'y'" in str(refused.value) and faults_of(refused.value, path) == []
