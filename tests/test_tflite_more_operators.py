# SPDX-License-Identifier: Apache-2.0
"""ELU, products of matrices, bilinear resizing, places of extremes: every output equals TFLM's."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparisons import SANITIZED
from hypothesis import example, given
from hypothesis import strategies as st
from tflite_exactness import (
    EXAMPLES,
    activations,
    channels,
    scales,
    seeds,
    sizes,
    ties,
    weights_and_bias,
    zero_points,
)
from tflite_exactness import assert_exact as assert_exact_with
from tflite_networks import TfliteFile

import umakit

assert_exact = partial(assert_exact_with, flags=SANITIZED)
ALL_INTEGERS = np.arange(-128, 128).astype(np.int8).reshape(1, 1, 256)


@EXAMPLES
@given(scales, zero_points, st.one_of(st.floats(0.05, 60.0), ties), zero_points)
def test_elu_of_all_integers(scale: float, zero_point: int, ratio: float, result_zero: int) -> None:
    file = TfliteFile()
    x = file.tensor([1, 256], scale=scale, zero_point=zero_point, name="x")
    y = file.tensor([1, 256], scale=scale * ratio, zero_point=result_zero, name="y")
    file.operator("ELU", [x], [y])
    assert_exact(file.finish([x], [y]), (1, 256), inputs=ALL_INTEGERS)


# --- products of matrices -----------------------------------------------------------------------

BATCHES = [((), ()), ((3,), (3,)), ((2, 3), (2, 3)), ((2, 1), (1, 3)), ((3,), (2, 3)), ((2, 3), ())]


@EXAMPLES
@example("int8", ((), ()), 1, 1, 1, (False, False), 1.0, -128, 0.5, 127, 9.0, 0, True, 1)
@given(
    st.sampled_from(["int8", "int16"]), st.sampled_from(BATCHES), sizes, sizes, st.integers(1, 40),
    st.tuples(st.booleans(), st.booleans()), scales, zero_points, scales, zero_points,
    st.floats(10.0, 300.0), zero_points, st.booleans(), seeds,
)  # fmt: skip
def test_batch_matmul(
    dtype: str, batches: tuple[tuple[int, ...], tuple[int, ...]], rows: int, columns: int,
    depth: int, adjoint: tuple[bool, bool], left: float, left_zero: int, right: float,
    right_zero: int, ratio: float, result_zero: int, constant: bool, seed: int,
) -> None:  # fmt: skip
    """The right matrices are a constant, or the left ones once more."""
    wide = dtype == "int16"
    if wide:
        left_zero = right_zero = result_zero = 0
        ratio *= 500
    if not constant:
        batches, right, right_zero = (batches[0], batches[0]), left, left_zero
        columns, adjoint = rows, (False, True)
    first, second = (
        (*batch, *(shape[::-1] if turned else shape))
        for batch, shape, turned in zip(
            batches, ((rows, depth), (depth, columns)), adjoint, strict=True
        )
    )
    file = TfliteFile()
    x = other = file.tensor(first, dtype, scale=left, zero_point=left_zero, name="x")
    if constant:
        limits = np.iinfo(dtype)
        data = np.random.default_rng(seed).integers(limits.min, limits.max + 1, second)
        other = file.tensor(
            second, dtype, scale=right, zero_point=right_zero, data=data.astype(dtype), name="c"
        )
    result = (*np.broadcast_shapes(*batches), rows, columns)
    y = file.tensor(result, dtype, scale=left * right * ratio, zero_point=result_zero, name="y")
    file.operator(
        "BATCH_MATMUL", [x, other], [y], "BatchMatMulOptions", AdjX=adjoint[0], AdjY=adjoint[1]
    )
    assert_exact(file.finish([x], [y]), first, seed, dtype=dtype)


@pytest.mark.parametrize("bias", [True, False])
def test_fully_connected_whose_weights_have_a_zero_point(bias: bool) -> None:
    file = TfliteFile()
    random = np.random.default_rng(4)
    x = file.tensor([3, 40], scale=0.05, zero_point=-9, name="x")
    values = random.integers(-128, 128, (7, 40)).astype(np.int8)
    weights = file.tensor([7, 40], scale=0.02, zero_point=-101, data=values, name="weights")
    added = random.integers(-5000, 5000, 7).astype(np.int32)
    biases = file.tensor([7], "int32", scale=0.05 * 0.02, data=added, name="bias")
    y = file.tensor([3, 7], scale=0.3, zero_point=4, name="y")
    inputs = [x, weights, *([biases] if bias else [])]
    file.operator("FULLY_CONNECTED", inputs, [y], "FullyConnectedOptions")
    assert len(np.unique(assert_exact(file.finish([x], [y]), (3, 40)))) > 20


# --- left shifts --------------------------------------------------------------------------------


@EXAMPLES
@given(
    st.sampled_from(["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"]),
    st.floats(1.0, 2.0), st.integers(0, 6), activations, zero_points, zero_points, seeds,
)  # fmt: skip
def test_results_of_a_smaller_scale_than_the_products(
    code: str, fraction: float, shift: int, activation: int, zero_point: int, result_zero: int,
    seed: int,
) -> None:  # fmt: skip
    """Multipliers above 1 shift to the left; some channels' are, some are not."""
    file = TfliteFile()
    random = np.random.default_rng(seed)
    outputs, depthwise = 6, code == "DEPTHWISE_CONV_2D"
    weight_scales = np.float32(0.01) * 2.0 ** random.integers(-2, 3, outputs)
    if code == "FULLY_CONNECTED":
        shape, weights, result = (2, 6), (outputs, 6), (2, outputs)
    else:
        shape, result = (1, 5, 6, 6), (1, 5, 6, outputs)
        weights = (1, 2, 3, outputs) if depthwise else (outputs, 2, 3, 6)
    x = file.tensor(shape, scale=0.1, zero_point=zero_point, name="x")
    w = file.tensor(
        weights, scale=weight_scales, axis=3 if depthwise else 0, name="weights",
        data=random.integers(-2, 3, weights).astype(np.int8),
    )  # fmt: skip
    bias = file.tensor(
        [outputs], "int32", scale=np.float32(0.1) * weight_scales, name="bias",
        data=random.integers(-3, 4, outputs).astype(np.int32),
    )  # fmt: skip
    y = file.tensor(result, scale=0.001 / fraction / 2.0**shift, zero_point=result_zero, name="y")
    options: dict[str, Any] = {"FusedActivationFunction": activation}
    kind = "FullyConnectedOptions"
    if code != "FULLY_CONNECTED":
        options |= {"Padding": 0, "StrideH": 1, "StrideW": 1}
        kind = {"CONV_2D": "Conv2DOptions", "TRANSPOSE_CONV": "TransposeConvOptions"}.get(
            code, "DepthwiseConv2DOptions"
        )
    if code in ("CONV_2D", "DEPTHWISE_CONV_2D"):
        options |= {"DilationHFactor": 1, "DilationWFactor": 1}
    inputs = [x, w, bias]
    if depthwise:
        options["DepthMultiplier"] = 1
    if code == "TRANSPOSE_CONV":
        size = file.tensor([4], "int32", data=np.array(result, np.int32), name="shape")
        inputs = [size, w, x, bias]
    file.operator(code, inputs, [y], kind, **options)
    inputs_close_to_zero = np.clip(
        zero_point + random.integers(-3, 4, (6, *shape)), -128, 127
    ).astype(np.int8)
    assert_exact(file.finish([x], [y]), shape, inputs=inputs_close_to_zero)


# --- images and places --------------------------------------------------------------------------


@EXAMPLES
@given(
    st.integers(1, 2), sizes, sizes, st.integers(1, 20), st.integers(1, 20), channels,
    st.sampled_from([(False, False), (True, False), (False, True)]), zero_points, seeds,
)  # fmt: skip
@example(1, 4, 3, 8, 6, 5, (False, True), 3, 1)
@example(1, 4, 3, 8, 6, 5, (True, False), 3, 1)
def test_resize_bilinear(
    batch: int, height: int, width: int, rows: int, columns: int, count: int,
    mode: tuple[bool, bool], zero_point: int, seed: int,
) -> None:  # fmt: skip
    quantization = {"scale": 0.3, "zero_point": zero_point}
    file = TfliteFile()
    shape = (batch, height, width, count)
    x = file.tensor(shape, **quantization, name="x")
    size = file.tensor([2], "int32", data=np.array([rows, columns], np.int32), name="size")
    y = file.tensor((batch, rows, columns, count), **quantization, name="y")
    file.operator(
        "RESIZE_BILINEAR", [x, size], [y], "ResizeBilinearOptions", AlignCorners=mode[0],
        HalfPixelCenters=mode[1],
    )  # fmt: skip
    assert_exact(file.finish([x], [y]), shape, seed)


@EXAMPLES
@given(
    st.sampled_from(["ARG_MAX", "ARG_MIN"]), st.lists(st.integers(1, 6), min_size=2, max_size=4),
    st.data(), seeds,
)  # fmt: skip
def test_place_of_an_extreme(code: str, shape: list[int], data: st.DataObject, seed: int) -> None:
    """Numbers of few values, so that several are the largest; the first counts."""
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    result = [extent for place, extent in enumerate(shape) if place != axis % len(shape)]
    file = TfliteFile()
    x = file.tensor(shape, scale=0.3, zero_point=9, name="x")
    along = file.tensor([1], "int32", data=np.array([axis], np.int32), name="axis")
    y = file.tensor(result, "int32", name="y")
    file.operator(code, [x, along], [y], "ArgMaxOptions" if code == "ARG_MAX" else "ArgMinOptions")
    values = np.random.default_rng(seed).integers(-2, 2, (6, *shape)).astype(np.int8)
    values[0], values[1] = -128, 127
    assert_exact(file.finish([x], [y]), tuple(shape), inputs=values)


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_unpack_and_pack_in_another_order(dtype: str, axis: int) -> None:
    shape = (3, 4, 5)
    quantization = {"scale": 0.25, "zero_point": 0 if dtype == "int16" else -3}
    count = shape[axis]
    rest = [extent for place, extent in enumerate(shape) if place != axis % 3]
    file = TfliteFile()
    x = file.tensor(shape, dtype, **quantization, name="x")
    parts = [
        file.tensor(rest, dtype, **quantization, name=f"part{number}") for number in range(count)
    ]
    file.operator("UNPACK", [x], parts, "UnpackOptions", Num=count, Axis=axis)
    y = file.tensor(shape, dtype, **quantization, name="y")
    file.operator("PACK", parts[::-1], [y], "PackOptions", ValuesCount=count, Axis=axis)
    assert_exact(file.finish([x], [y]), shape, dtype=dtype)


def matrices_of(file: TfliteFile, x: int, shape: tuple[int, ...], scale: float) -> int:
    """A fully connected layer on x, as one factor of a product."""
    (weights, bias), product = weights_and_bias(file, (8, 6), 8, 0, scale, 2, False)
    y = file.tensor((*shape[:-1], 8), scale=product * 60, zero_point=3)
    file.operator(
        "FULLY_CONNECTED", [x, weights, bias], [y], "FullyConnectedOptions", KeepNumDims=True
    )
    return y


def test_attention() -> None:
    """Two layers, the product of one with the other's transpose, softmax, and a product again."""
    shape = (1, 5, 6)
    file = TfliteFile()
    x = file.tensor(shape, scale=0.1, zero_point=-7, name="x")
    queries, values = (matrices_of(file, x, shape, 0.1) for _ in range(2))
    scores = file.tensor((1, 5, 5), scale=2.0, zero_point=1)
    file.operator("BATCH_MATMUL", [queries, values], [scores], "BatchMatMulOptions", AdjY=True)
    weights = file.tensor((1, 5, 5), scale=1 / 256, zero_point=-128)
    file.operator("SOFTMAX", [scores], [weights], "SoftmaxOptions", Beta=1.0)
    y = file.tensor((1, 5, 8), scale=1.5, zero_point=2, name="y")
    file.operator("BATCH_MATMUL", [weights, values], [y], "BatchMatMulOptions")
    assert len(np.unique(assert_exact(file.finish([x], [y]), shape))) > 8


# --- multiply-accumulates -----------------------------------------------------------------------


def multiply_accumulates(content: bytes, folder: Path) -> int:
    path = folder / "single.tflite"
    path.write_bytes(content)
    return umakit.compile_model(path, [], folder / "library").report.total_macs


@pytest.mark.parametrize("padding", [0, 1])
def test_macs_of_a_transposed_convolution(padding: int, tmp_path: Path) -> None:
    """Every element of the data meets every weight of its channel, wherever the window lies."""
    rows, columns = (8, 15) if padding == 0 else (9, 15)
    file = TfliteFile()
    shape = np.array([2, rows, columns, 7], np.int32)
    size = file.tensor([4], "int32", data=shape, name="shape")
    x = file.tensor([2, 4, 5, 3], scale=0.1, name="x")
    (weights, bias), product = weights_and_bias(file, (7, 3, 3, 3), 7, 0, 0.1, 1, True)
    y = file.tensor(shape, scale=product * 60, name="y")
    file.operator(
        "TRANSPOSE_CONV", [size, weights, x, bias], [y], "TransposeConvOptions", Padding=padding,
        StrideH=2, StrideW=3,
    )  # fmt: skip
    products = sum(1 for _ in np.ndindex(2, 4, 5, 3, 7, 3, 3))
    assert multiply_accumulates(file.finish([x], [y]), tmp_path) == products


@pytest.mark.parametrize("adjoint", [False, True])
def test_macs_of_a_product_of_matrices(adjoint: bool, tmp_path: Path) -> None:
    file = TfliteFile()
    x = file.tensor([3, 5, 4] if adjoint else [3, 4, 5], scale=0.1, name="x")
    other = file.tensor([3, 5, 6], scale=0.1, data=np.ones((3, 5, 6), np.int8), name="other")
    y = file.tensor([3, 4, 6], scale=1.0, name="y")
    file.operator("BATCH_MATMUL", [x, other], [y], "BatchMatMulOptions", AdjX=adjoint)
    assert multiply_accumulates(file.finish([x], [y]), tmp_path) == 3 * 4 * 5 * 6
