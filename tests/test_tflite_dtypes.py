# SPDX-License-Identifier: Apache-2.0
"""Quantized operators of 16 bits, and changes of type: every output equals TFLM's."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from comparisons import SANITIZED, examples
from hypothesis import example, given
from hypothesis import strategies as st
from tflite_cases import Case, Tensor, assert_equals_micro
from tflite_exactness import (
    EXAMPLES,
    activations,
    channels,
    paddings,
    scales,
    seeds,
    sizes,
    ties,
    weights_and_bias,
)
from tflite_exactness import assert_exact as assert_exact_with
from tflite_networks import TfliteFile

assert_exact = partial(assert_exact_with, flags=SANITIZED)


def zero_point(dtype: str, share: float) -> int:
    """A zero point somewhere in a dtype; 16 bits have none."""
    limits = np.iinfo(dtype)
    return 0 if dtype == "int16" else round(limits.min + share * (limits.max - limits.min))


@EXAMPLES
@given(
    st.sampled_from([("int8", "uint8"), ("uint8", "int8"), ("int8", "int16"), ("int16", "int8"),
                     ("int16", "int16")]),
    scales, st.one_of(st.floats(0.01, 30.0), ties, st.just(1.0)), st.floats(0, 1), st.floats(0, 1),
    seeds,
)  # fmt: skip
def test_quantize_of_integers(
    dtypes: tuple[str, str], scale: float, ratio: float, zero: float, result_zero: float, seed: int
) -> None:
    source, result = dtypes
    file = TfliteFile()
    x = file.tensor((1, 400), source, scale=scale, zero_point=zero_point(source, zero), name="x")
    y = file.tensor(
        (1, 400), result, scale=scale * ratio, zero_point=zero_point(result, result_zero), name="y"
    )
    file.operator("QUANTIZE", [x], [y], "QuantizeOptions")
    assert_exact(file.finish([x], [y]), (1, 400), seed, dtype=source)


@examples(4)
@given(
    st.sampled_from(["int8", "int16"]), scales, st.floats(0.001, 30.0), st.floats(0, 1), seeds
)  # fmt: skip
def test_quantize_to_32_bits(
    source: str, scale: float, ratio: float, zero: float, seed: int
) -> None:
    point = round(np.iinfo(source).min * zero)
    x = Tensor((60,), source, scale, point)
    y = Tensor((60,), "int32", scale * ratio)
    assert_equals_micro([Case("QUANTIZE", [x], [y], "QuantizeOptions")], seed)


@pytest.mark.parametrize("zero", [-128, 3])
def test_unsigned_integers_that_differ_in_their_highest_bit(zero: int) -> None:
    file = TfliteFile()
    x = file.tensor((1, 400), scale=0.3, zero_point=zero, name="x")
    y = file.tensor((1, 400), "uint8", scale=0.3, zero_point=zero + 128, name="y")
    file.operator("QUANTIZE", [x], [y], "QuantizeOptions")
    assert_exact(file.finish([x], [y]), (1, 400))


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("scale", [0.5, 0.1])
def test_quantize_of_real_numbers(dtype: str, scale: float) -> None:
    """Ties between two integers too, and numbers outside the range."""
    ties_and_noise = np.concatenate([
        np.arange(-300, 300) * np.float32(scale) / 2,
        np.random.default_rng(3).normal(0, 100 * scale, 600),
        [1e6, -1e6, 0.0, -0.0, 0.49999997 * np.float32(scale)],
    ]).astype(np.float32)  # fmt: skip
    file = TfliteFile()
    x = file.tensor((1, 1205), "float32", name="x")
    y = file.tensor((1, 1205), dtype, scale=scale, zero_point=zero_point(dtype, 0.6), name="y")
    file.operator("QUANTIZE", [x], [y], "QuantizeOptions")
    inputs = ties_and_noise.reshape(1, 1, 1205)
    assert_exact(file.finish([x], [y]), (1, 1205), inputs=inputs, floats=True)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_dequantize(dtype: str) -> None:
    file = TfliteFile()
    x = file.tensor((1, 400), dtype, scale=0.0137, zero_point=zero_point(dtype, 0.3), name="x")
    y = file.tensor((1, 400), "float32", name="y")
    file.operator("DEQUANTIZE", [x], [y], "DequantizeOptions")
    assert_exact(file.finish([x], [y]), (1, 400), dtype=dtype, floats=True)


@EXAMPLES
@given(
    st.sampled_from(["ADD", "SUB", "MUL"]), st.booleans(), activations, scales, scales,
    st.floats(0.6, 20.0), seeds,
)  # fmt: skip
def test_arithmetic_of_16_bits(
    code: str, broadcast: bool, activation: int, left: float, right: float, ratio: float, seed: int
) -> None:
    shape = (1, 32, 32, 12)  # many elements: 16 bits seldom show how operands were rounded
    other = (12,) if broadcast else shape
    data = np.random.default_rng(seed).integers(-(2**15), 2**15, other).astype(np.int16)
    file = TfliteFile()
    x = file.tensor(shape, "int16", scale=left, name="x")
    c = file.tensor(other, "int16", scale=right, data=data, name="c")
    y = file.tensor(
        shape, "int16", name="y",
        scale=ratio * (left * right * 2000 if code == "MUL" else max(left, right)),
    )  # fmt: skip
    options = {"ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions"}[code]
    file.operator(code, [x, c], [y], options, FusedActivationFunction=activation)
    assert_exact(file.finish([x], [y]), shape, seed, dtype="int16")


LINEAR = {
    "CONV_2D": "Conv2DOptions",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions",
    "FULLY_CONNECTED": "FullyConnectedOptions",
}


@EXAMPLES
@example("CONV_2D", 3, 3, 3, 5, (2, 3), 1, 0, 0, 0.1, 500.0, True, "int64", 1)
@example("FULLY_CONNECTED", 3, 1, 9, 16, (1, 1), 1, 0, 0, 0.1, 300.0, False, "int32", 2)
@given(
    st.sampled_from(sorted(LINEAR)), sizes, sizes, channels, channels,
    st.tuples(st.integers(1, 3), st.integers(1, 4)), st.integers(1, 2), paddings, activations,
    scales, st.floats(20.0, 2e4), st.booleans(), st.sampled_from(["int64", "int32", ""]), seeds,
)  # fmt: skip
def test_linear_operators_of_16_bits(
    code: str, height: int, width: int, inputs: int, outputs: int, window: tuple[int, int],
    step: int, padding: int, activation: int, scale: float, ratio: float, per_channel: bool,
    bias: str, seed: int,
) -> None:  # fmt: skip
    """Sums of 64 bits, or of 32 with a bias of 32; depthwise ones always have 64."""
    dense, depthwise = code == "FULLY_CONNECTED", code == "DEPTHWISE_CONV_2D"
    if depthwise:
        outputs, bias = 2 * inputs, "int64" if bias else ""
    shape = (height, inputs) if dense else (1, height + 2, width + 3, inputs)
    rows, columns = (
        -(-size // step) if padding == 0 else (size - extent) // step + 1
        for size, extent in zip((height + 2, width + 3), window, strict=True)
    )
    file = TfliteFile()
    x = file.tensor(shape, "int16", scale=scale, name="x")
    weights = (1 if depthwise else outputs, *window, outputs if depthwise else inputs)
    constants, product = weights_and_bias(
        file, (outputs, inputs) if dense else weights, outputs, 3 if depthwise else 0, scale, seed,
        per_channel, bias or "int64",
    )  # fmt: skip
    result = (height, outputs) if dense else (1, rows, columns, outputs)
    y = file.tensor(result, "int16", scale=product * ratio, name="y")
    options = {"FusedActivationFunction": activation}
    if not dense:
        options |= {"Padding": padding, "StrideH": step, "StrideW": step, "DilationHFactor": 1,
                    "DilationWFactor": 1}  # fmt: skip
    if depthwise:
        options["DepthMultiplier"] = 2
    file.operator(code, [x, *(constants if bias else constants[:1])], [y], LINEAR[code], **options)
    assert_exact(file.finish([x], [y]), shape, seed, dtype="int16")


@EXAMPLES
@given(
    st.sampled_from(["AVERAGE_POOL_2D", "MAX_POOL_2D"]), sizes, sizes, channels, paddings,
    activations, scales, seeds,
)  # fmt: skip
def test_pool_of_16_bits(
    code: str, height: int, width: int, count: int, padding: int, activation: int, scale: float,
    seed: int,
) -> None:  # fmt: skip
    rows, columns = (size + padding for size in (height, width))
    file = TfliteFile()
    x = file.tensor([1, rows, columns, count], "int16", scale=scale, name="x")
    y = file.tensor([1, height, width, count], "int16", scale=scale, name="y")
    file.operator(
        code, [x], [y], "Pool2DOptions", Padding=padding, StrideH=1, StrideW=1,
        FilterHeight=2, FilterWidth=2, FusedActivationFunction=activation,
    )  # fmt: skip
    assert_exact(file.finish([x], [y]), (1, rows, columns, count), seed, dtype="int16")


@EXAMPLES
@given(
    st.sampled_from(["RELU", "RELU6", "MEAN"]), scales, st.one_of(st.floats(0.6, 3.0), ties), seeds
)
def test_unary_operators_of_16_bits(code: str, scale: float, ratio: float, seed: int) -> None:
    if code == "RELU6":
        scale, ratio = scale / 4, 1.0
    shape = (1, 50, 40, 3)  # many elements: scales in float32 would show in few
    file = TfliteFile()
    x = file.tensor(shape, "int16", scale=scale, name="x")
    result = (1, 3) if code == "MEAN" else shape
    y = file.tensor(result, "int16", scale=scale * ratio, name="y")
    axes = file.tensor([2], "int32", data=np.array([1, 2], np.int32), name="axes")
    mean = code == "MEAN"
    file.operator(code, [x, axes] if mean else [x], [y], "ReducerOptions" if mean else "")
    assert_exact(file.finish([x], [y]), shape, seed, dtype="int16")


def test_movements_of_16_bits() -> None:
    """PAD, TRANSPOSE, SPLIT, MAXIMUM, CONCATENATION, STRIDED_SLICE one after the other."""
    file = TfliteFile()

    def tensor(shape: tuple[int, ...], name: str) -> int:
        return file.tensor(shape, "int16", scale=0.01, name=name)

    def integers(values: object, name: str) -> int:
        array = np.array(values, np.int32)
        return file.tensor(array.shape, "int32", data=array, name=name)

    x, padded, turned = tensor((3, 4), "x"), tensor((4, 6), "padded"), tensor((6, 4), "turned")
    file.operator("PAD", [x, integers([[1, 0], [0, 2]], "widths")], [padded], "PadOptions")
    file.operator("TRANSPOSE", [padded, integers([1, 0], "order")], [turned], "TransposeOptions")
    parts = [tensor((6, 2), f"part{number}") for number in range(2)]
    file.operator("SPLIT", [integers(1, "axis"), turned], parts, "SplitOptions", NumSplits=2)
    largest, both, y = tensor((6, 2), "largest"), tensor((12, 2), "both"), tensor((4, 1), "y")
    file.operator("MAXIMUM", parts, [largest], "MaximumMinimumOptions")
    file.operator("CONCATENATION", [largest, parts[1]], [both], "ConcatenationOptions", Axis=0)
    bounds = [integers(values, name) for values, name in
              (([11, 1], "begin"), ([0, 2], "end"), ([-3, 1], "steps"))]  # fmt: skip
    file.operator("STRIDED_SLICE", [both, *bounds], [y], "StridedSliceOptions")
    assert_exact(file.finish([x], [y]), (3, 4), dtype="int16")
