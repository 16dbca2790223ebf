# SPDX-License-Identifier: Apache-2.0
"""Quantized operators of uint8, as files of the first years have them.

TensorFlow Lite Micro has no kernels of uint8 any more. Two oracles take its place: NumPy with the
reference arithmetic of TensorFlow Lite (gemmlowp's rounding, written here anew), and TensorFlow
Lite Micro on a twin of the file whose integers are all 128 less, where nothing but differences to
zero points counts. The same cases were compared with LiteRT 2.3.0's reference kernels: all equal,
but that those of FULLY_CONNECTED round once, and LiteRT's optimized ones twice, as here.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from comparisons import SANITIZED
from hypothesis import given
from hypothesis import strategies as st
from tflite_exactness import (
    EXAMPLES,
    activations,
    channels,
    kernels,
    paddings,
    random_integers,
    scales,
    seeds,
    sizes,
    strides,
)
from tflite_exactness import assert_exact as assert_exact_with
from tflite_networks import Array, TfliteFile, tflite_micro

assert_exact = partial(assert_exact_with, flags=SANITIZED, dtype="uint8")
bytes_ = st.integers(0, 255)
OFFSET = 128


# --- the reference's arithmetic -----------------------------------------------------------------


def rescaled(sums: Array, factor: float) -> Array:
    """`MultiplyByQuantizedMultiplier` of int64 sums that have 32 bits."""
    fraction, exponent = math.frexp(factor)
    multiplier = math.floor(fraction * 2**31 + 0.5)
    if multiplier == 2**31:
        multiplier, exponent = multiplier // 2, exponent + 1
    products = (sums * 2 ** max(exponent, 0)).astype(object) * multiplier
    high = ((products + 2**30) // 2**31).astype(np.int64)
    divisor = 2 ** max(-exponent, 0)
    nearest = (2 * np.abs(high) + divisor) // (2 * divisor)  # ties away from zero
    return np.sign(high) * nearest


def clipped(values: Array, scale: float, zero_point: int, activation: int) -> Array:
    """Integers after the zero point was added and a fused activation applied."""
    bounds = {0: (-math.inf, math.inf), 1: (0, math.inf), 2: (-1, 1), 3: (0, 6)}[activation]
    limits = []
    for bound, border in zip(bounds, (0, 255), strict=True):
        quotient = float(np.float32(bound) / np.float32(scale))
        finite = math.isfinite(quotient)
        rounded = math.copysign(math.floor(abs(quotient) + 0.5), quotient) if finite else 0
        limits.append(min(max(zero_point + int(rounded), 0), 255) if finite else border)
    return np.clip(values + zero_point, *limits).astype(np.uint8)


def windows_of(
    images: Array, window: tuple[int, int], step: tuple[int, int], padding: int, fill: int
) -> Array:
    """int64 [N, Y, X, KH, KW, C] of images [N, H, W, C]; outside them is `fill`."""
    widths = []
    for size, extent, stride in zip(images.shape[1:3], window, step, strict=True):
        result = -(-size // stride)
        missing = max((result - 1) * stride + extent - size, 0) if padding == 0 else 0
        widths.append((missing // 2, missing - missing // 2))
    padded = np.pad(images.astype(np.int64), [(0, 0), *widths, (0, 0)], constant_values=fill)
    views = np.lib.stride_tricks.sliding_window_view(padded, window, (1, 2))
    return views[:, :: step[0], :: step[1]].transpose(0, 1, 2, 4, 5, 3)


# --- operators with NumPy -----------------------------------------------------------------------


@EXAMPLES
@given(
    st.sampled_from(["CONV_2D", "DEPTHWISE_CONV_2D"]), sizes, sizes, channels, st.integers(1, 9),
    st.tuples(kernels, kernels), st.tuples(strides, strides), paddings, activations, scales,
    bytes_, bytes_, st.floats(20.0, 3000.0), bytes_, st.booleans(), seeds,
)  # fmt: skip
def test_convolution(
    code: str, height: int, width: int, inputs: int, outputs: int, window: tuple[int, int],
    step: tuple[int, int], padding: int, activation: int, scale: float, zero: int, weight_zero: int,
    ratio: float, result_zero: int, bias: bool, seed: int,
) -> None:  # fmt: skip
    height, width = height + 3, width + 3
    depthwise = code == "DEPTHWISE_CONV_2D"
    outputs = 2 * inputs if depthwise else outputs
    random = np.random.default_rng(seed)
    shape = (1, *window, outputs) if depthwise else (outputs, *window, inputs)
    weights = random.integers(0, 256, shape).astype(np.uint8)
    biases = random.integers(-(2**14), 2**14, outputs).astype(np.int32) * bias
    product = np.float32(scale) * np.float32(0.013)
    given_ = random_integers((1, height, width, inputs), seed, "uint8")
    views = windows_of(given_[:, 0], window, step, padding, zero) - zero
    centred = weights.astype(np.int64) - weight_zero
    if depthwise:
        sums = np.einsum("nyxhwc,hwc->nyxc", np.repeat(views, 2, axis=-1), centred[0])
    else:
        sums = np.einsum("nyxhwc,ohwc->nyxo", views, centred)
    result_scale = np.float32(product * ratio)
    factor = float(product) / float(result_scale)
    expected = clipped(rescaled(sums + biases, factor), result_scale, result_zero, activation)

    file = TfliteFile()
    x = file.tensor((1, height, width, inputs), "uint8", scale=scale, zero_point=zero, name="x")
    w = file.tensor(shape, "uint8", scale=0.013, zero_point=weight_zero, data=weights, name="w")
    b = file.tensor([outputs], "int32", scale=product, data=biases, name="b") if bias else -1
    result = (1, *expected.shape[1:])
    y = file.tensor(result, "uint8", scale=result_scale, zero_point=result_zero, name="y")
    options: dict[str, Any] = {"DepthMultiplier": 2} if depthwise else {}
    file.operator(
        code, [x, w, b], [y], "DepthwiseConv2DOptions" if depthwise else "Conv2DOptions",
        Padding=padding, StrideH=step[0], StrideW=step[1], DilationHFactor=1, DilationWFactor=1,
        FusedActivationFunction=activation, **options,
    )  # fmt: skip
    assert_exact(
        file.finish([x], [y]), (1, height, width, inputs), inputs=given_, expected=expected[:, None]
    )


@EXAMPLES
@given(
    st.integers(1, 3), st.integers(1, 80), st.integers(1, 9), activations, scales, bytes_, bytes_,
    st.floats(20.0, 3000.0), bytes_, seeds,
)  # fmt: skip
def test_fully_connected(
    rows: int, inputs: int, outputs: int, activation: int, scale: float, zero: int,
    weight_zero: int, ratio: float, result_zero: int, seed: int,
) -> None:  # fmt: skip
    random = np.random.default_rng(seed)
    weights = random.integers(0, 256, (outputs, inputs)).astype(np.uint8)
    biases = random.integers(-(2**14), 2**14, outputs).astype(np.int32)
    product = np.float32(scale) * np.float32(0.013)
    given_ = random_integers((rows, inputs), seed, "uint8")
    sums = (given_.astype(np.int64) - zero) @ (weights.astype(np.int64) - weight_zero).T + biases
    result_scale = np.float32(product * ratio)
    factor = float(product) / float(result_scale)
    expected = clipped(rescaled(sums, factor), result_scale, result_zero, activation)
    file = TfliteFile()
    x = file.tensor((rows, inputs), "uint8", scale=scale, zero_point=zero, name="x")
    w = file.tensor(
        weights.shape, "uint8", scale=0.013, zero_point=weight_zero, data=weights, name="w"
    )
    b = file.tensor([outputs], "int32", scale=product, data=biases, name="b")
    y = file.tensor((rows, outputs), "uint8", scale=result_scale, zero_point=result_zero, name="y")
    file.operator(
        "FULLY_CONNECTED", [x, w, b], [y], "FullyConnectedOptions",
        FusedActivationFunction=activation,
    )  # fmt: skip
    assert_exact(file.finish([x], [y]), (rows, inputs), inputs=given_, expected=expected)


@EXAMPLES
@given(
    st.sampled_from(["AVERAGE_POOL_2D", "MAX_POOL_2D"]), sizes, sizes, channels,
    st.tuples(kernels, kernels), st.tuples(strides, strides), paddings, activations, scales,
    bytes_, seeds,
)  # fmt: skip
def test_pool(
    code: str, height: int, width: int, count: int, window: tuple[int, int],
    step: tuple[int, int], padding: int, activation: int, scale: float, zero: int, seed: int,
) -> None:  # fmt: skip
    """Means of the integers themselves, ties up: 128 less would round the other way."""
    height, width = height + 3, width + 3
    given_ = random_integers((1, height, width, count), seed, "uint8")
    views = windows_of(given_[:, 0], window, step, padding, -1)
    inside = views >= 0
    if code == "MAX_POOL_2D":
        values = views.max((3, 4))
    else:
        terms = inside.sum((3, 4))
        values = (np.where(inside, views, 0).sum((3, 4)) + terms // 2) // terms
    expected = clipped(values - zero, scale, zero, activation)
    file = TfliteFile()
    quantization = {"scale": scale, "zero_point": zero}
    x = file.tensor((1, height, width, count), "uint8", **quantization, name="x")
    y = file.tensor((1, *expected.shape[1:]), "uint8", **quantization, name="y")
    file.operator(
        code, [x], [y], "Pool2DOptions", Padding=padding, StrideH=step[0], StrideW=step[1],
        FilterHeight=window[0], FilterWidth=window[1], FusedActivationFunction=activation,
    )  # fmt: skip
    assert_exact(
        file.finish([x], [y]), (1, height, width, count), inputs=given_, expected=expected[:, None]
    )


# --- operators with a twin ----------------------------------------------------------------------


class Twins:
    """One operator of uint8, or with the same differences to zero points of int8."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.less = OFFSET if dtype == "int8" else 0
        self.file = TfliteFile()

    def tensor(
        self, shape: tuple[int, ...], scale: float, zero: int, name: str, data: Any = None
    ) -> int:
        values = None if data is None else (data.astype(np.int32) - self.less).astype(self.dtype)
        return self.file.tensor(
            shape, self.dtype, scale=scale, zero_point=zero - self.less, data=values, name=name
        )


SHAPE = (1, 4, 5, 6)
UNARY = {
    "SOFTMAX": ("SoftmaxOptions", {"Beta": 1.0}, (1 / 256, 0)),
    "LOGISTIC": ("", {}, (1 / 256, 0)),
    "TANH": ("", {}, (1 / 128, OFFSET)),
    "LEAKY_RELU": ("LeakyReluOptions", {"Alpha": 0.3}, (0.11, 77)),
    "RELU": ("", {}, (0.11, 77)),
    "QUANTIZE": ("QuantizeOptions", {}, (0.11, 77)),
}


@pytest.mark.parametrize("zero", [0, 128, 201])
@pytest.mark.parametrize("code", UNARY)
def test_functions_of_one_tensor(code: str, zero: int) -> None:
    options, values, result = UNARY[code]

    def build(dtype: str) -> bytes:
        twin = Twins(dtype)
        x, y = twin.tensor(SHAPE, 0.07, zero, "x"), twin.tensor(SHAPE, *result, "y")
        twin.file.operator(code, [x], [y], options, **values)
        return twin.file.finish([x], [y])

    assert_twins(build)


def test_real_numbers_become_unsigned_integers() -> None:
    """Results are those of int8 plus 128, for multiples of 1/8 LSB and values out of range."""
    steps = np.arange(-2000, 2000, dtype=np.float32) * np.float32(0.1) / 8
    inputs = np.append(steps, np.float32([1e6, -1e6])).reshape(1, 1, -1).astype(np.float32)
    shape = inputs.shape[1:]

    def build(dtype: str) -> bytes:
        twin = Twins(dtype)
        x = twin.file.tensor(shape, "float32", name="x")
        y = twin.tensor(shape, 0.1, 131, "y")
        twin.file.operator("QUANTIZE", [x], [y], "QuantizeOptions")
        return twin.file.finish([x], [y])

    expected = tflite_micro(build("int8"), inputs).astype(np.int32) + OFFSET
    assert_exact_with(
        build("uint8"), shape, inputs=inputs, expected=expected.astype(np.uint8), floats=True
    )


@pytest.mark.parametrize(
    ("code", "activation"),
    [
        ("ADD", 0),
        ("ADD", 3),
        ("SUB", 1),
        ("MUL", 0),
        ("MUL", 1),
        ("MAXIMUM", 0),
        ("CONCATENATION", 0),
    ],
)
def test_functions_of_two_tensors(code: str, activation: int) -> None:
    arithmetic = code in ("ADD", "SUB", "MUL")
    quantization = (0.11, 77)
    result = (8.0, 120) if code == "MUL" else (0.05 if activation else 0.6, 120)
    data = np.random.default_rng(1).integers(0, 256, SHAPE)
    options = {"MAXIMUM": "MaximumMinimumOptions"}.get(code, f"{code.capitalize()}Options")
    shape = (1, 4, 5, 12) if code == "CONCATENATION" else SHAPE
    values = {"Axis": 3} if code == "CONCATENATION" else {}
    if arithmetic:
        values = {"FusedActivationFunction": activation}

    def build(dtype: str) -> bytes:
        twin = Twins(dtype)
        x = twin.tensor(SHAPE, *quantization, "x")
        c = twin.tensor(SHAPE, *((0.4, 3) if arithmetic else quantization), "c", data)
        y = twin.tensor(shape, *(result if arithmetic else quantization), "y")
        twin.file.operator(code, [x, c], [y], options, **values)
        return twin.file.finish([x], [y])

    assert_twins(build)


def assert_twins(build: Any) -> None:
    inputs = random_integers(SHAPE, 5, "uint8")
    shifted = (inputs.astype(np.int32) - OFFSET).astype(np.int8)
    expected = tflite_micro(build("int8"), shifted).astype(np.int32) + OFFSET
    output = assert_exact(build("uint8"), SHAPE, inputs=inputs, expected=expected.astype(np.uint8))
    assert len(np.unique(output)) > 5


def test_movements_and_a_classifier() -> None:
    """PAD with the zero point, RESHAPE, and the largest of each row."""
    file = TfliteFile()
    quantization = {"scale": 0.1, "zero_point": 90}
    x = file.tensor((3, 4), "uint8", **quantization, name="x")
    widths = np.array([[1, 0], [0, 2]], np.int32)
    padded = file.tensor((4, 6), "uint8", **quantization, name="padded")
    file.operator("PAD", [x, file.tensor((2, 2), "int32", data=widths)], [padded], "PadOptions")
    shape = file.tensor((2,), "int32", data=np.array([6, 4], np.int32))
    rows = file.tensor((6, 4), "uint8", **quantization, name="rows")
    file.operator("RESHAPE", [padded, shape], [rows], "ReshapeOptions")
    y = file.tensor((6,), "int32", name="y")
    axis = file.tensor((1,), "int32", data=np.array([1], np.int32))
    file.operator("ARG_MAX", [rows, axis], [y], "ArgMaxOptions")
    inputs = random_integers((3, 4), 7, "uint8")
    padded_inputs = np.pad(inputs, [(0, 0), (1, 0), (0, 2)], constant_values=90)
    expected = padded_inputs.reshape(-1, 6, 4).argmax(2).astype(np.int32)
    assert_exact(file.finish([x], [y]), (3, 4), inputs=inputs, expected=expected)
