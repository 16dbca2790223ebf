# SPDX-License-Identifier: Apache-2.0
"""Single quantized operators: every output equals TensorFlow Lite Micro's."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparisons import SANITIZED
from compiler_flags import OPTIMIZED
from hypothesis import given
from hypothesis import strategies as st
from tflite_exactness import (
    EXAMPLES,
    activations,
    assert_exact,
    channels,
    kernels,
    paddings,
    scales,
    seeds,
    sizes,
    strides,
    ties,
    weights_and_bias,
    zero_points,
)
from tflite_networks import TfliteFile

import umakit


def out_size(size: int, kernel: int, stride: int, dilation: int, padding: int) -> int:
    """TensorFlow's output size; may be 0 or less."""
    if padding == 0:
        return -(-size // stride)
    return (size - (kernel - 1) * dilation - 1) // stride + 1


def compiled(content: bytes) -> dict[str, Any]:
    """What the metadata of a model's library say."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        path.write_bytes(content)
        metadata = umakit.compile_model(path, [], Path(folder) / "library").metadata
    return dict(metadata["umakit"])


def convolution_options(
    stride: Sequence[int], dilation: Sequence[int], padding: int, activation: int
) -> dict[str, Any]:
    return {
        "Padding": padding,
        "StrideH": stride[0],
        "StrideW": stride[1],
        "DilationHFactor": dilation[0],
        "DilationWFactor": dilation[1],
        "FusedActivationFunction": activation,
    }


windows = st.tuples(kernels, kernels)
steps = st.tuples(strides, strides)
dilations = st.tuples(st.integers(1, 3), st.integers(1, 3))


@EXAMPLES
@given(
    st.integers(1, 2), sizes, sizes, channels, channels, windows, steps, dilations, paddings,
    activations, scales, zero_points, st.floats(0.5, 300.0), zero_points, st.booleans(), seeds,
)  # fmt: skip
def test_convolution(
    batch: int, height: int, width: int, inputs: int, outputs: int, window: tuple[int, int],
    step: tuple[int, int], dilation: tuple[int, int], padding: int, activation: int,
    scale: float, zero_point: int, ratio: float, output_zero_point: int, per_channel: bool,
    seed: int,
) -> None:  # fmt: skip
    rows, columns = (
        out_size(size, *rest, padding)
        for size, *rest in zip((height, width), window, step, dilation, strict=True)
    )
    if rows < 1 or columns < 1:
        return
    file = TfliteFile()
    x = file.tensor([batch, height, width, inputs], scale=scale, zero_point=zero_point, name="x")
    constants, product = weights_and_bias(
        file, (outputs, *window, inputs), outputs, 0, scale, seed, per_channel
    )
    y = file.tensor(
        [batch, rows, columns, outputs], scale=product * ratio, zero_point=output_zero_point,
        name="y",
    )  # fmt: skip
    options = convolution_options(step, dilation, padding, activation)
    file.operator("CONV_2D", [x, *constants], [y], "Conv2DOptions", **options)
    assert_exact(file.finish([x], [y]), (batch, height, width, inputs), seed)


@EXAMPLES
@given(
    sizes, sizes, channels, st.integers(1, 3), windows, steps, dilations, paddings, activations,
    scales, zero_points, st.floats(0.5, 100.0), zero_points, st.booleans(), seeds,
)  # fmt: skip
def test_depthwise_convolution(
    height: int, width: int, inputs: int, multiplier: int, window: tuple[int, int],
    step: tuple[int, int], dilation: tuple[int, int], padding: int, activation: int,
    scale: float, zero_point: int, ratio: float, output_zero_point: int, per_channel: bool,
    seed: int,
) -> None:  # fmt: skip
    rows, columns = (
        out_size(size, *rest, padding)
        for size, *rest in zip((height, width), window, step, dilation, strict=True)
    )
    if rows < 1 or columns < 1:
        return
    outputs = inputs * multiplier
    file = TfliteFile()
    x = file.tensor([1, height, width, inputs], scale=scale, zero_point=zero_point, name="x")
    constants, product = weights_and_bias(
        file, (1, *window, outputs), outputs, 3, scale, seed, per_channel
    )
    y = file.tensor(
        [1, rows, columns, outputs], scale=product * ratio, zero_point=output_zero_point, name="y"
    )
    options = convolution_options(step, dilation, padding, activation)
    file.operator(
        "DEPTHWISE_CONV_2D", [x, *constants], [y], "DepthwiseConv2DOptions",
        DepthMultiplier=multiplier, **options,
    )  # fmt: skip
    assert_exact(file.finish([x], [y]), (1, height, width, inputs), seed)


def test_depthwise_convolution_of_more_channels_than_a_tile() -> None:
    """Each channel is rescaled by its own factor, those of the second tile too."""
    file = TfliteFile()
    x = file.tensor([1, 3, 3, 35], scale=0.2, zero_point=-7, name="x")
    constants, product = weights_and_bias(file, (1, 2, 2, 70), 70, 3, 0.2, 5, True)
    y = file.tensor([1, 2, 2, 70], scale=product * 9, zero_point=3, name="y")
    file.operator(
        "DEPTHWISE_CONV_2D", [x, *constants], [y], "DepthwiseConv2DOptions",
        DepthMultiplier=2, **convolution_options((1, 1), (1, 1), 1, 0),
    )  # fmt: skip
    assert_exact(file.finish([x], [y]), (1, 3, 3, 35))


@pytest.mark.parametrize(("groups", "outputs"), [(2, 6), (6, 6), (6, 12), (3, 3)])
def test_grouped_convolution(groups: int, outputs: int) -> None:
    file = TfliteFile()
    x = file.tensor([1, 5, 6, 6], scale=0.2, zero_point=11, name="x")
    constants, product = weights_and_bias(
        file, (outputs, 3, 2, 6 // groups), outputs, 0, 0.2, groups, True
    )
    y = file.tensor([1, 5, 6, outputs], scale=product * 20, zero_point=-4, name="y")
    options = convolution_options((1, 1), (1, 1), 0, 0)
    file.operator("CONV_2D", [x, *constants], [y], "Conv2DOptions", **options)
    assert len(np.unique(assert_exact(file.finish([x], [y]), (1, 5, 6, 6)))) > 20


@pytest.mark.parametrize("flags", [OPTIMIZED, SANITIZED], ids=["optimized", "sanitized"])
@pytest.mark.parametrize(
    ("inputs", "outputs", "window", "step", "dilation", "padding", "in_arena"),
    [
        (16, 6, (3, 3), (1, 1), (1, 1), 0, False),
        (17, 7, (3, 3), (1, 1), (1, 1), 0, True),
        (40, 4, (2, 2), (2, 1), (2, 3), 0, True),
        (150, 5, (1, 1), (1, 1), (1, 1), 1, True),
        (9, 9, (1, 1), (2, 2), (1, 1), 0, False),
    ],
)  # fmt: skip
def test_windows_of_a_convolution(
    inputs: int, outputs: int, window: tuple[int, int], step: tuple[int, int],
    dilation: tuple[int, int], padding: int, in_arena: bool, flags: Sequence[str],
) -> None:  # fmt: skip
    """Two at once are copied: up to 576 bytes to the stack, more to the arena.

    Positions and output channels are odd in number: the last ones are computed twice.
    """
    file = TfliteFile()
    x = file.tensor([1, 5, 5, inputs], scale=0.2, zero_point=-77, name="x")
    constants, product = weights_and_bias(
        file, (outputs, *window, inputs), outputs, 0, 0.2, inputs, True
    )
    rows, columns = (
        out_size(5, *rest, padding) for rest in zip(window, step, dilation, strict=True)
    )
    y = file.tensor([1, rows, columns, outputs], scale=product * 40, zero_point=3, name="y")
    options = convolution_options(step, dilation, padding, 0)
    file.operator("CONV_2D", [x, *constants], [y], "Conv2DOptions", **options)
    content = file.finish([x], [y])
    assert len(np.unique(assert_exact(content, (1, 5, 5, inputs), flags=flags))) > 20
    copies = 4 * inputs * window[0] * window[1] if in_arena else 0
    assert copies <= compiled(content)["memory"]["arena_bytes"] < copies + 16


def test_equal_layers_are_one_kernel() -> None:
    """x -> a -> b -> y with three sets of weights, scales and biases."""
    file = TfliteFile()
    x, a, b, y = (
        file.tensor([1, 4, 4, 8], scale=0.1 * 30**number, zero_point=5, name=name)
        for number, name in enumerate("xaby")
    )
    options = convolution_options((1, 1), (1, 1), 0, 0)
    for number, (source, target) in enumerate(((x, a), (a, b), (b, y))):
        constants, _ = weights_and_bias(file, (8, 3, 3, 8), 8, 0, 0.1 * 30**number, number, True)
        file.operator("CONV_2D", [source, *constants], [target], "Conv2DOptions", **options)
    content = file.finish([x], [y])
    assert_exact(content, (1, 4, 4, 8))
    layers = compiled(content)["layers"]
    assert len(layers) == 3
    assert len({layer["function"] for layer in layers}) == 1


def test_an_addition_overwrites_an_input_that_ends_there() -> None:
    """x -> a -> b, then a + b: three tensors of 192 bytes in the room of two."""
    file = TfliteFile()
    shape = [1, 8, 8, 3]
    x, a, b, c, y = (
        file.tensor(shape, scale=0.1 * (number + 1), zero_point=number, name=name)
        for number, name in enumerate("xabcy")
    )
    file.operator("QUANTIZE", [x], [a], "QuantizeOptions")
    file.operator("QUANTIZE", [a], [b], "QuantizeOptions")
    file.operator("ADD", [a, b], [c], "AddOptions")
    file.operator("RELU", [c], [y])
    content = file.finish([x], [y])
    assert_exact(content, (1, 8, 8, 3))
    assert compiled(content)["memory"]["arena_bytes"] == 2 * 192


@EXAMPLES
@given(
    st.lists(st.integers(1, 3), max_size=2), st.integers(1, 3), st.integers(1, 80), channels,
    activations, scales, zero_points, st.floats(0.5, 300.0), zero_points, st.booleans(), seeds,
)  # fmt: skip
def test_fully_connected(
    outer: list[int], rows: int, inputs: int, outputs: int, activation: int, scale: float,
    zero_point: int, ratio: float, output_zero_point: int, keep: bool, seed: int,
) -> None:  # fmt: skip
    shape = (*outer, rows, inputs)
    kept = shape[:-1] if keep else (int(np.prod(shape[:-1])),)
    file = TfliteFile()
    x = file.tensor(shape, scale=scale, zero_point=zero_point, name="x")
    constants, product = weights_and_bias(file, (outputs, inputs), outputs, 0, scale, seed, False)
    y = file.tensor([*kept, outputs], scale=product * ratio, zero_point=output_zero_point, name="y")
    file.operator(
        "FULLY_CONNECTED", [x, *constants], [y], "FullyConnectedOptions",
        FusedActivationFunction=activation, KeepNumDims=keep,
    )  # fmt: skip
    assert_exact(file.finish([x], [y]), shape, seed)


def test_fully_connected_with_a_scale_for_each_channel_and_without_bias() -> None:
    file = TfliteFile()
    x = file.tensor([1, 12], scale=0.3, zero_point=-5, name="x")
    (weights, _), product = weights_and_bias(file, (7, 12), 7, 0, 0.3, 1, True)
    y = file.tensor([1, 7], scale=product * 30, zero_point=9, name="y")
    file.operator("FULLY_CONNECTED", [x, weights, -1], [y], "FullyConnectedOptions")
    assert len(np.unique(assert_exact(file.finish([x], [y]), (1, 12)))) > 5


@EXAMPLES
@given(
    st.sampled_from(["ADD", "SUB", "MUL"]),
    st.sampled_from([((1, 4, 5, 3), (1, 4, 5, 3)), ((2, 7), (2, 7)), ((1, 4, 5, 3), (3,)),
                     ((1, 4, 5, 3), (1, 1, 1, 3)), ((1, 4, 1, 3), (1, 1, 5, 1))]),
    activations, scales, scales, st.floats(0.2, 20.0), zero_points, zero_points, zero_points, seeds,
)  # fmt: skip
def test_arithmetic_with_a_constant(
    code: str, shapes: tuple[tuple[int, ...], tuple[int, ...]], activation: int, left: float,
    right: float, ratio: float, left_zero: int, right_zero: int, zero_point: int, seed: int,
) -> None:  # fmt: skip
    shape, other = shapes
    data = np.random.default_rng(seed).integers(-128, 128, other).astype(np.int8)
    file = TfliteFile()
    x = file.tensor(shape, scale=left, zero_point=left_zero, name="x")
    c = file.tensor(other, scale=right, zero_point=right_zero, data=data, name="c")
    y = file.tensor(
        np.broadcast_shapes(shape, other), zero_point=zero_point, name="y",
        scale=ratio * (left * right * 20 if code == "MUL" else max(left, right)),
    )  # fmt: skip
    options = {"ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions"}[code]
    file.operator(code, [x, c], [y], options, FusedActivationFunction=activation)
    assert_exact(file.finish([x], [y]), shape, seed)


@pytest.mark.parametrize("code", ["ADD", "SUB", "MUL"])
@pytest.mark.parametrize(("left", "right", "result"), [(0.1, 0.07, 0.151), (0.02, 0.41, 0.92)])
def test_arithmetic_of_all_pairs_of_integers(
    code: str, left: float, right: float, result: float
) -> None:
    numbers = np.arange(-128, 128).astype(np.int8)
    file = TfliteFile()
    x = file.tensor([256, 256], scale=left, zero_point=-3, name="x")
    c = file.tensor([256, 1], scale=right, zero_point=9, data=numbers, name="c")
    y = file.tensor(
        [256, 256], scale=result * (20 * min(left, right) if code == "MUL" else 1), zero_point=5,
        name="y",
    )  # fmt: skip
    options = {"ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions"}[code]
    file.operator(code, [x, c], [y], options)
    inputs = np.broadcast_to(numbers, (1, 256, 256))
    assert len(np.unique(assert_exact(file.finish([x], [y]), (256, 256), inputs=inputs))) > 100


@EXAMPLES
@given(
    st.sampled_from(["AVERAGE_POOL_2D", "MAX_POOL_2D"]), sizes, sizes, channels, windows, steps,
    paddings, activations, scales, zero_points, seeds,
)  # fmt: skip
def test_pool(
    code: str, height: int, width: int, count: int, window: tuple[int, int],
    step: tuple[int, int], padding: int, activation: int, scale: float, zero_point: int, seed: int,
) -> None:  # fmt: skip
    rows, columns = (
        out_size(size, extent, stride, 1, padding)
        for size, extent, stride in zip((height, width), window, step, strict=True)
    )
    if rows < 1 or columns < 1:
        return
    file = TfliteFile()
    x = file.tensor([1, height, width, count], scale=scale, zero_point=zero_point, name="x")
    y = file.tensor([1, rows, columns, count], scale=scale, zero_point=zero_point, name="y")
    file.operator(
        code, [x], [y], "Pool2DOptions", Padding=padding, StrideH=step[0], StrideW=step[1],
        FilterHeight=window[0], FilterWidth=window[1], FusedActivationFunction=activation,
    )  # fmt: skip
    assert_exact(file.finish([x], [y]), (1, height, width, count), seed)


@EXAMPLES
@given(
    st.sampled_from([(1, 10), (1, 1), (3, 7), (1, 2, 3, 4), (1, 300)]), st.floats(1e-3, 2.0),
    zero_points, seeds,
)  # fmt: skip
def test_softmax(shape: tuple[int, ...], scale: float, zero_point: int, seed: int) -> None:
    file = TfliteFile()
    x = file.tensor(shape, scale=scale, zero_point=zero_point, name="x")
    y = file.tensor(shape, scale=1 / 256, zero_point=-128, name="y")
    file.operator("SOFTMAX", [x], [y], "SoftmaxOptions", Beta=1.0)
    assert_exact(file.finish([x], [y]), shape, seed)


@pytest.mark.parametrize(("scale", "columns"), [(0.05, 30), (0.2, 9), (0.005, 300)])
def test_softmax_of_many_rows(scale: float, columns: int) -> None:
    file = TfliteFile()
    x = file.tensor([600, columns], scale=scale, zero_point=7, name="x")
    y = file.tensor([600, columns], scale=1 / 256, zero_point=-128, name="y")
    file.operator("SOFTMAX", [x], [y], "SoftmaxOptions", Beta=1.0)
    assert_exact(file.finish([x], [y]), (600, columns), 3)


@EXAMPLES
@given(
    st.sampled_from(["RELU", "RELU6", "QUANTIZE"]), scales, zero_points,
    st.one_of(st.floats(0.3, 3.0), ties), zero_points, seeds,
)  # fmt: skip
def test_change_of_scale(
    code: str, scale: float, zero_point: int, ratio: float, output_zero_point: int, seed: int
) -> None:
    if code == "RELU6":
        ratio, output_zero_point = 1.0, zero_point
    file = TfliteFile()
    x = file.tensor([1, 8, 16, 3], scale=scale, zero_point=zero_point, name="x")
    y = file.tensor([1, 8, 16, 3], scale=scale * ratio, zero_point=output_zero_point, name="y")
    file.operator(code, [x], [y], "QuantizeOptions" if code == "QUANTIZE" else "")
    assert_exact(file.finish([x], [y]), (1, 8, 16, 3), seed)


@pytest.mark.parametrize("zero_point", [-128, 5])
def test_movements_of_integers(zero_point: int) -> None:
    """PAD with the zero point, CONCATENATION, RESHAPE: one after the other."""
    file = TfliteFile()
    quantization = {"scale": 0.25, "zero_point": zero_point}
    x = file.tensor([1, 3, 4, 2], **quantization, name="x")
    pads = np.array([[0, 0], [1, 2], [0, 1], [0, 0]], np.int32)
    amounts = file.tensor([4, 2], "int32", data=pads, name="pads")
    padded = file.tensor([1, 6, 5, 2], **quantization, name="padded")
    file.operator("PAD", [x, amounts], [padded], "PadOptions")
    both = file.tensor([1, 6, 5, 4], **quantization, name="both")
    file.operator("CONCATENATION", [padded, padded], [both], "ConcatenationOptions", Axis=3)
    y = file.tensor([2, 60], **quantization, name="y")
    shape = file.tensor([2], "int32", data=np.array([2, 60], np.int32), name="shape")
    file.operator("RESHAPE", [both, shape], [y], "ReshapeOptions")
    assert_exact(file.finish([x], [y]), (1, 3, 4, 2))
