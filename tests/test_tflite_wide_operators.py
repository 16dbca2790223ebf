# SPDX-License-Identifier: Apache-2.0
"""Activations, softmax and transposed convolutions of 16 bits: every output equals TFLM's."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from comparisons import SANITIZED
from hypothesis import example, given
from hypothesis import strategies as st
from tflite_exactness import (
    EXAMPLES,
    activations,
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
from tflite_exactness import assert_exact as assert_exact_with
from tflite_networks import TfliteFile

assert_exact = partial(assert_exact_with, flags=SANITIZED)

ALL_INTEGERS = np.arange(-(2**15), 2**15).astype(np.int16).reshape(1, 1, 2**16)
SHAPE = (1, 2**16)
POWERS = st.sampled_from([2.0**-12, 2.0**-11, 2.0**-13, 2.0**-12 * 1.0003])
"""Scales that need no multiplier, and others close to them."""


@EXAMPLES
@example("LOGISTIC", 2.0**-12)
@example("TANH", 2.0**-11)
@example("TANH", 2.6)
@given(
    st.sampled_from(["LOGISTIC", "TANH"]),
    st.one_of(POWERS, st.floats(1e-5, 0.1), st.floats(0.1, 2.6)),
)  # fmt: skip
def test_logistic_and_tanh_of_all_integers(code: str, scale: float) -> None:
    file = TfliteFile()
    x = file.tensor(SHAPE, "int16", scale=scale, name="x")
    y = file.tensor(SHAPE, "int16", scale=2.0**-15, name="y")
    file.operator(code, [x], [y])
    assert_exact(file.finish([x], [y]), SHAPE, inputs=ALL_INTEGERS)


@EXAMPLES
@given(
    scales, st.one_of(st.floats(0.3, 60.0), ties),
    st.one_of(st.sampled_from([0.0, 0.5, 1.0, -0.5]), st.floats(-2.0, 2.0)),
)  # fmt: skip
def test_leaky_relu_of_all_integers(scale: float, ratio: float, slope: float) -> None:
    file = TfliteFile()
    x = file.tensor(SHAPE, "int16", scale=scale, name="x")
    y = file.tensor(SHAPE, "int16", scale=scale * ratio, name="y")
    file.operator("LEAKY_RELU", [x], [y], "LeakyReluOptions", Alpha=slope)
    assert_exact(file.finish([x], [y]), SHAPE, inputs=ALL_INTEGERS)


@EXAMPLES
@given(
    st.sampled_from(["int8", "int16"]),
    st.sampled_from([((1, 5, 4, 3), (1, 1, 3)), ((1, 5, 4, 3), (5, 4, 3)), ((2, 7), (7,)),
                     ((1, 40, 9, 2), (1,))]),
    scales, zero_points, st.floats(0.01, 0.5), zero_points, st.floats(0.3, 20.0), zero_points,
    seeds,
)  # fmt: skip
def test_prelu(
    dtype: str, shapes: tuple[tuple[int, ...], tuple[int, ...]], scale: float, zero_point: int,
    slope: float, slope_zero: int, ratio: float, result_zero: int, seed: int,
) -> None:  # fmt: skip
    shape, other = shapes
    if dtype == "int16":
        zero_point = result_zero = 0
    slopes = np.random.default_rng(seed).integers(-128, 128, other).astype(np.int8)
    file = TfliteFile()
    x = file.tensor(shape, dtype, scale=scale, zero_point=zero_point, name="x")
    a = file.tensor(other, scale=slope, zero_point=slope_zero, data=slopes, name="slopes")
    y = file.tensor(shape, dtype, scale=scale * ratio, zero_point=result_zero, name="y")
    file.operator("PRELU", [x, a], [y])
    assert_exact(file.finish([x], [y]), shape, seed, dtype=dtype)


@EXAMPLES
@example((40, 30), 2e-5, 1)
@example((1, 1), 0.1, 1)
@given(
    st.sampled_from([(1, 10), (30, 7), (1, 2, 3, 4), (1, 2000), (9, 100)]),
    st.one_of(st.floats(1e-6, 1e-2), st.floats(1e-4, 0.9)), seeds,
)  # fmt: skip
def test_softmax(shape: tuple[int, ...], scale: float, seed: int) -> None:
    file = TfliteFile()
    x = file.tensor(shape, "int16", scale=scale, name="x")
    y = file.tensor(shape, "int16", scale=1 / 32768, name="y")
    file.operator("SOFTMAX", [x], [y], "SoftmaxOptions", Beta=1.0)
    assert_exact(file.finish([x], [y]), shape, seed, dtype="int16")


@EXAMPLES
@given(st.sampled_from([(1, 10), (50, 7), (1, 2, 3, 4)]), st.floats(1e-3, 2.0), zero_points, seeds)
def test_softmax_of_8_bits_to_16(
    shape: tuple[int, ...], scale: float, zero_point: int, seed: int
) -> None:
    file = TfliteFile()
    x = file.tensor(shape, scale=scale, zero_point=zero_point, name="x")
    y = file.tensor(shape, "int16", scale=1 / 65536, zero_point=-32768, name="y")
    file.operator("SOFTMAX", [x], [y], "SoftmaxOptions", Beta=1.0)
    assert_exact(file.finish([x], [y]), shape, seed)


@EXAMPLES
@given(
    st.integers(1, 2), sizes, sizes, channels, channels, st.tuples(kernels, kernels),
    st.tuples(strides, strides), paddings, activations, scales, st.floats(20.0, 2e4), st.booleans(),
    st.booleans(), seeds,
)  # fmt: skip
def test_transposed_convolution(
    batch: int, height: int, width: int, inputs: int, outputs: int, window: tuple[int, int],
    step: tuple[int, int], padding: int, activation: int, scale: float, ratio: float,
    per_channel: bool, bias: bool, seed: int,
) -> None:  # fmt: skip
    rows, columns = (
        size * stride if padding == 0 else (size - 1) * stride + extent
        for size, extent, stride in zip((height, width), window, step, strict=True)
    )
    file = TfliteFile()
    shape = np.array([batch, rows, columns, outputs], np.int32)
    size = file.tensor([4], "int32", data=shape, name="shape")
    x = file.tensor([batch, height, width, inputs], "int16", scale=scale, name="x")
    (weights, biases), product = weights_and_bias(
        file, (outputs, *window, inputs), outputs, 0, scale, seed, per_channel, "int64"
    )
    y = file.tensor(shape, "int16", scale=product * ratio, name="y")
    file.operator(
        "TRANSPOSE_CONV", [size, weights, x, *([biases] if bias else [])], [y],
        "TransposeConvOptions", Padding=padding, StrideH=step[0], StrideW=step[1],
        FusedActivationFunction=activation,
    )  # fmt: skip
    assert_exact(file.finish([x], [y]), (batch, height, width, inputs), seed, dtype="int16")


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("keep", [True, False])
def test_sum(dtype: str, keep: bool) -> None:
    file = TfliteFile()
    zero, result_zero = (0, 0) if dtype == "int16" else (-7, 20)
    x = file.tensor([2, 5, 6, 3], dtype, scale=0.1, zero_point=zero, name="x")
    axes = file.tensor([2], "int32", data=np.array([1, -2], np.int32), name="axes")
    shape = [2, 1, 1, 3] if keep else [2, 3]
    y = file.tensor(shape, dtype, scale=0.7, zero_point=result_zero, name="y")
    file.operator("SUM", [x, axes], [y], "ReducerOptions", KeepDims=keep)
    assert_exact(file.finish([x], [y]), (2, 5, 6, 3), dtype=dtype)
