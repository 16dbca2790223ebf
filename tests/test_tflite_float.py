# SPDX-License-Identifier: Apache-2.0
"""Single float operators of TensorFlow Lite files, and files with several inputs and outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_networks import Array, TfliteFile, micro_interpreter, tflite_micro

import umakit

IMAGE = (1, 6, 7, 4)
TOLERANCE = 1e-5

POOL = {"StrideH": 2, "StrideW": 1, "FilterHeight": 3, "FilterWidth": 2}
STEPS = {"StrideH": 1, "StrideW": 2, "DilationHFactor": 2, "DilationWFactor": 1}


def values(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def integers(*numbers: int) -> Array:
    return np.array(numbers, np.int32)


def case(
    code: str, options: str, result: tuple[int, ...], *constants: Array, **fields: Any
) -> tuple[str, str, tuple[int, ...], tuple[Array, ...], dict[str, Any]]:
    return code, options, result, constants, fields


PADS = np.array([[0, 0], [1, 0], [2, 3], [0, 0]], np.int32)
CASES = {
    "conv": case(
        "CONV_2D", "Conv2DOptions", (1, 6, 4, 5), values(5, 3, 3, 4), values(5), **STEPS,
        FusedActivationFunction=3,
    ),
    "depthwise": case(
        "DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions", (1, 2, 3, 8), values(1, 3, 3, 8), values(8),
        **STEPS, Padding=1, DepthMultiplier=2, FusedActivationFunction=1,
    ),
    "dense": case(
        "FULLY_CONNECTED", "FullyConnectedOptions", (6, 9), values(9, 28), values(9),
        FusedActivationFunction=2,
    ),
    "add": case("ADD", "AddOptions", IMAGE, values(4), FusedActivationFunction=1),
    "sub": case("SUB", "SubOptions", IMAGE, values(*IMAGE)),
    "mul": case("MUL", "MulOptions", IMAGE, values(1, 6, 1, 1), FusedActivationFunction=3),
    "average pool": case("AVERAGE_POOL_2D", "Pool2DOptions", (1, 3, 7, 4), **POOL),
    "max pool": case(
        "MAX_POOL_2D", "Pool2DOptions", (1, 3, 7, 4), **POOL, FusedActivationFunction=1
    ),
    "softmax": case("SOFTMAX", "SoftmaxOptions", IMAGE, Beta=1.0),
    "reshape": case("RESHAPE", "ReshapeOptions", (4, 42), np.array([4, 42], np.int32)),
    "pad": case("PAD", "PadOptions", (1, 7, 12, 4), PADS),
    "concatenation": case(
        "CONCATENATION", "ConcatenationOptions", (1, 6, 7, 6), values(1, 6, 7, 2), Axis=3
    ),
    "relu": case("RELU", "", IMAGE),
    "relu6": case("RELU6", "", IMAGE),
    "logistic": case("LOGISTIC", "", IMAGE),
    "tanh": case("TANH", "", IMAGE),
    "elu": case("ELU", "", IMAGE),
    "leaky relu": case("LEAKY_RELU", "LeakyReluOptions", IMAGE, Alpha=0.3),
    "prelu": case("PRELU", "", IMAGE, values(1, 1, 4)),
    "hard swish": case("HARD_SWISH", "", IMAGE),
    "mean": case("MEAN", "ReducerOptions", (1, 4), integers(1, 2)),
    "sum": case("SUM", "ReducerOptions", (1, 6, 1, 4), integers(-2), KeepDims=True),
    "batch matmul": case(
        "BATCH_MATMUL", "BatchMatMulOptions", (1, 6, 7, 5), values(6, 5, 4), AdjY=True
    ),
    "resize bilinear": case(
        "RESIZE_BILINEAR", "ResizeBilinearOptions", (1, 9, 4, 4), integers(9, 4),
        HalfPixelCenters=True,
    ),
    "resize bilinear to the corners": case(
        "RESIZE_BILINEAR", "ResizeBilinearOptions", (1, 9, 11, 4), integers(9, 11),
        AlignCorners=True,
    ),
    "resize nearest": case(
        "RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions", (1, 9, 4, 4), integers(9, 4)
    ),
    "maximum": case("MAXIMUM", "MaximumMinimumOptions", IMAGE, values(4)),
    "minimum": case("MINIMUM", "MaximumMinimumOptions", IMAGE, values(*IMAGE)),
    "padv2": case("PADV2", "PadV2Options", (1, 7, 12, 4), PADS, np.array([2.5], np.float32)),
    "transpose": case("TRANSPOSE", "TransposeOptions", (4, 7, 1, 6), integers(3, 2, 0, 1)),
    "squeeze": case("SQUEEZE", "SqueezeOptions", (6, 7, 4)),
    "expand dims": case("EXPAND_DIMS", "ExpandDimsOptions", (1, 1, 6, 7, 4), integers(1)),
    "slice": case(
        "SLICE", "SliceOptions", (1, 2, 7, 3), integers(0, 3, 0, 1), integers(1, 2, -1, 3)
    ),
    "strided slice": case(
        "STRIDED_SLICE", "StridedSliceOptions", (1, 3, 7, 2), integers(0, 5, 0, 1),
        integers(1, 0, 7, 4), integers(1, -2, 1, 2), EndMask=2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_float_operators(name: str, tmp_path: Path) -> None:
    code, options, result, constants, fields = CASES[name]
    file = TfliteFile()
    x = file.tensor(IMAGE, "float32", name="x")
    others = [file.tensor(c.shape, str(c.dtype), data=c, name="constant") for c in constants]
    y = file.tensor(result, "float32", name="y")
    file.operator(code, [x, *others], [y], options, **fields)
    content = file.finish([x], [y])
    path = tmp_path / "float.tflite"
    path.write_bytes(content)
    inputs = 3 * values(4, *IMAGE)
    expected = tflite_micro(content, inputs)
    library = umakit.compile_model(path, [], tmp_path / "library")
    output = umakit.run_library(library.path, {"x": inputs}).outputs["y"]
    scale = float(np.abs(expected).max())
    np.testing.assert_allclose(output, expected, rtol=TOLERANCE, atol=TOLERANCE * scale)


def compare(content: bytes, inputs: Array, folder: Path, outputs: int = 1) -> None:
    """Outputs of a file with one input `x` and those of TensorFlow Lite Micro."""
    path = folder / "float.tflite"
    path.write_bytes(content)
    interpreter = micro_interpreter(content)
    interpreter.set_input(inputs, 0)
    interpreter.invoke()
    library = umakit.compile_model(path, [], folder / "library")
    found = umakit.run_library(library.path, {"x": inputs}).outputs
    assert len(found) == outputs
    for number, output in enumerate(found.values()):
        expected = interpreter.get_output(number)
        assert output.dtype == expected.dtype
        np.testing.assert_allclose(output, expected, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("padding", "steps", "window", "size", "bias", "activation"),
    [
        (0, (1, 1), (3, 3), (4, 5), "given", 0), (0, (2, 3), (3, 3), (8, 15), "given", 1),
        (0, (2, 2), (4, 3), (7, 9), "left out", 3), (0, (3, 2), (2, 1), (12, 10), "given", 0),
        (1, (1, 2), (3, 2), (6, 10), "omitted", 0), (1, (2, 3), (3, 3), (9, 15), "given", 3),
        (1, (2, 2), (3, 3), (10, 12), "given", 0),
    ],
)  # fmt: skip
def test_transposed_convolutions(
    padding: int, steps: tuple[int, int], window: tuple[int, int], size: tuple[int, int],
    bias: str, activation: int, tmp_path: Path,
) -> None:  # fmt: skip
    """Same and valid padding, with results that are smaller and larger than the windows' reach."""
    file = TfliteFile()
    shape = np.array([2, *size, 7], np.int32)
    x = file.tensor([2, 4, 5, 3], "float32", name="x")
    inputs = [
        file.tensor([4], "int32", data=shape, name="shape"),
        file.tensor([7, *window, 3], "float32", data=values(7, *window, 3), name="weights"),
        x,
    ]
    if bias != "left out":
        inputs.append(file.tensor([7], "float32", data=values(7), name="bias"))
    if bias == "omitted":
        inputs[3] = -1
    y = file.tensor(shape, "float32", name="y")
    file.operator(
        "TRANSPOSE_CONV", inputs, [y], "TransposeConvOptions", Padding=padding, StrideH=steps[0],
        StrideW=steps[1], FusedActivationFunction=activation,
    )  # fmt: skip
    compare(file.finish([x], [y]), 2 * values(2, 4, 5, 3), tmp_path)


@pytest.mark.parametrize("code", ["SPLIT", "SPLIT_V", "UNPACK"])
def test_parts_are_outputs_in_their_order(code: str, tmp_path: Path) -> None:
    file = TfliteFile()
    x = file.tensor([4, 6], "float32", name="x")
    sizes = {"SPLIT": [(4, 3)] * 2, "SPLIT_V": [(4, 1), (4, 5)], "UNPACK": [(6,)] * 4}[code]
    parts = [file.tensor(shape, "float32") for shape in sizes]
    axis = file.tensor([1], "int32", data=integers(1), name="axis")
    if code == "UNPACK":
        file.operator(code, [x], parts, "UnpackOptions", Num=4, Axis=0)
    elif code == "SPLIT":
        file.operator(code, [axis, x], parts, "SplitOptions", NumSplits=2)
    else:
        extents = file.tensor([2], "int32", data=integers(1, 5), name="sizes")
        file.operator(code, [x, extents, axis], parts, "SplitVOptions", NumSplits=2)
    compare(file.finish([x], parts), values(4, 6), tmp_path, len(parts))


@pytest.mark.parametrize("code", ["ARG_MAX", "ARG_MIN"])
def test_the_place_of_an_extreme(code: str, tmp_path: Path) -> None:
    file = TfliteFile()
    x = file.tensor([5, 7], "float32", name="x")
    axis = file.tensor([1], "int32", data=integers(1), name="axis")
    y = file.tensor([5], "int32", name="y")
    file.operator(code, [x, axis], [y], "ArgMaxOptions" if code == "ARG_MAX" else "ArgMinOptions")
    compare(file.finish([x], [y]), np.round(values(5, 7)), tmp_path)


@pytest.mark.parametrize(("scale", "zero_point"), [(0.5, 3), (0.1, -7), (0.037, 100)])
def test_quantize_and_dequantize_at_the_border(
    scale: float, zero_point: int, tmp_path: Path
) -> None:
    """Every eighth of a step: ties go away from zero, as in TensorFlow Lite."""
    file = TfliteFile()
    shape = [1, 4096]
    x = file.tensor(shape, "float32", name="x")
    integers = file.tensor(shape, scale=scale, zero_point=zero_point, name="integers")
    y = file.tensor(shape, "float32", name="y")
    file.operator("QUANTIZE", [x], [integers], "QuantizeOptions")
    file.operator("DEQUANTIZE", [integers], [y], "DequantizeOptions")
    content = file.finish([x], [integers, y])
    path = tmp_path / "border.tflite"
    path.write_bytes(content)
    inputs = (np.arange(-2048, 2048) * np.float32(scale) / 8).astype(np.float32).reshape(1, *shape)
    interpreter = micro_interpreter(content)
    interpreter.set_input(inputs[0], 0)
    interpreter.invoke()
    library = umakit.compile_model(path, [], tmp_path / "library")
    outputs = umakit.run_library(library.path, {"x": inputs[0]}).outputs
    assert len(np.unique(outputs["integers"])) > 150
    for number, name in enumerate(("integers", "y")):
        np.testing.assert_array_equal(outputs[name], interpreter.get_output(number))


def test_several_inputs_and_outputs_keep_their_order(tmp_path: Path) -> None:
    """b - a and its ReLU, of which one is read again and the other one is a result only."""
    file = TfliteFile()
    a, b, difference, positive = (
        file.tensor([1, 50], scale=scale, zero_point=zero_point, name=name)
        for name, scale, zero_point in (("a", 0.1, 3), ("b", 0.2, 0), ("d", 0.3, 5), ("p", 0.1, -9))
    )
    file.operator("SUB", [b, a], [difference], "SubOptions")
    file.operator("RELU", [difference], [positive])
    content = file.finish([b, a], [positive, difference])
    path = tmp_path / "two.tflite"
    path.write_bytes(content)
    given = np.random.default_rng(0).integers(-128, 128, (2, 1, 50)).astype(np.int8)
    interpreter = micro_interpreter(content)
    for number in range(2):
        interpreter.set_input(given[number], number)
    interpreter.invoke()
    library = umakit.compile_model(path, [], tmp_path / "library")
    outputs = umakit.run_library(library.path, {"b": given[0], "a": given[1]}).outputs
    assert list(outputs) == ["p", "d"]
    for number, name in enumerate(outputs):
        np.testing.assert_array_equal(outputs[name], interpreter.get_output(number))
