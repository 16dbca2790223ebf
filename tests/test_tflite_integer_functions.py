# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite's integer arithmetic of single operators: equal to TFLM bit by bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from comparisons import examples
from hypothesis import given
from hypothesis import strategies as st
from tflite_cases import INFERENCES, Case, Tensor, assert_equals_micro, file_of, of, run

from umakit.errors import ModelError
from umakit.frontend import import_model

scales = st.floats(0.005, 0.9)
zero_points = st.integers(-128, 127)
seeds = st.integers(0, 2**32 - 1)
ALL = np.arange(-128, 128).astype(np.int8).reshape(1, 256).repeat(INFERENCES, 0)
TOLERANCE = 1e-5


@st.composite
def quantized(draw: st.DrawFn) -> tuple[float, int]:
    """A scale and a zero point of int8."""
    return draw(scales), draw(zero_points)


def int8(shape: tuple[int, ...], of_tensor: tuple[float, int]) -> Tensor:
    return Tensor(shape, "int8", *of_tensor)


@examples(2)
@given(quantized(), quantized(), seeds)
def test_functions_of_one(source: tuple[float, int], result: tuple[float, int], seed: int) -> None:
    every = Tensor((256,), "int8", *source, ALL)
    random = np.random.default_rng(seed)
    positive = random.integers(source[1], 128, (INFERENCES, 256)).astype(np.int8)
    at_least_0 = Tensor((256,), "int8", *source, positive)
    real = Tensor((9,), values=random.uniform(1e-3, 9, (INFERENCES, 9)).astype(np.float32))
    cases = [
        Case("ABS", [every], [int8((256,), result)], "AbsOptions"),
        Case("ABS", [every], [int8((256,), (source[0], result[1]))], "AbsOptions"),
        Case("ABS", [Tensor((99,), "int16", source[0])], [Tensor((99,), "int16", result[0])],
             "AbsOptions"),
        Case("ABS", [Tensor((99,))], [Tensor((99,))], "AbsOptions"),
        Case("RSQRT", [at_least_0], [int8((256,), result)]),
        Case("RSQRT", [real], [Tensor((9,))]),
    ]  # fmt: skip
    assert_equals_micro(cases, seed, tolerance=TOLERANCE)


COMPARISONS = {
    "EQUAL": "EqualOptions", "NOT_EQUAL": "NotEqualOptions", "GREATER": "GreaterOptions",
    "GREATER_EQUAL": "GreaterEqualOptions", "LESS": "LessOptions",
    "LESS_EQUAL": "LessEqualOptions",
}  # fmt: skip


@examples(2)
@given(quantized(), quantized(), seeds)
def test_comparisons(left: tuple[float, int], right: tuple[float, int], seed: int) -> None:
    cases = []
    for code, options in COMPARISONS.items():
        truth = Tensor((4, 16), "bool")
        pairs = [(int8((4, 16), left), int8((4, 1), other)) for other in (left, right)]
        dtypes = ["float32", "int32", "int64", *(["bool"] if code[-5:] == "EQUAL" else [])]
        if code in ("GREATER_EQUAL", "LESS_EQUAL"):
            dtypes.remove("bool")
        pairs += [(Tensor((4, 16), dtype), Tensor((16,), dtype)) for dtype in dtypes]
        cases += [Case(code, pair, [truth], options) for pair in pairs]
    assert_equals_micro(cases, seed)


@examples(2)
@given(quantized(), quantized(), quantized(), st.integers(1, 5), seeds)
def test_differences_and_sums(
    left: tuple[float, int],
    right: tuple[float, int],
    result: tuple[float, int],
    terms: int,
    seed: int,
) -> None:
    square = max(left[0], right[0]) ** 2
    wide = [Tensor((9, 11), "int16", scale) for scale in (left[0], right[0], square * 9e3)]
    cases = [
        Case("SQUARED_DIFFERENCE", [int8((9, 11), left), int8((1, 11), right)],
             [int8((9, 11), (square * 20, result[1]))]),
        Case("SQUARED_DIFFERENCE", wide[:2], wide[2:]),
        Case("SQUARED_DIFFERENCE", [Tensor((9, 11)), Tensor((11,))], [Tensor((9, 11))]),
        Case("ADD_N", [int8((3, 7), left)] * (terms + 1), [int8((3, 7), (left[0] * 2, result[1]))],
             "AddNOptions"),
        Case("ADD_N", [Tensor((3, 7))] * (terms + 1), [Tensor((3, 7))], "AddNOptions"),
    ]  # fmt: skip
    shape = (2, terms, 3)
    for flags in range(4):
        options = {"Exclusive": flags & 1, "Reverse": flags >> 1}
        axis = of([flags % 3 - 3])
        cases.append(
            Case("CUMSUM", [int8(shape, left), axis], [int8(shape, (left[0] * 3, result[1]))],
                 "CumsumOptions", options)
        )  # fmt: skip
        cases.append(
            Case("CUMSUM", [Tensor(shape), axis], [Tensor(shape)], "CumsumOptions", options)
        )
    assert_equals_micro(cases, seed, tolerance=TOLERANCE)


@examples(2)
@given(quantized(), quantized(), quantized(), st.floats(1.1, 5.5), seeds)
def test_quotients(
    left: tuple[float, int],
    right: tuple[float, int],
    result: tuple[float, int],
    exponent: float,
    seed: int,
) -> None:
    random = np.random.default_rng(seed)
    ratio = 128 * 10 ** (exponent - 1.1)
    divisors = random.integers(-128, 128, (INFERENCES, 1, 64)).astype(np.int8)
    divisors[divisors == right[1]] = right[1] - 1 if right[1] > 0 else right[1] + 1
    whole = Tensor((1, 64), "int8", *right, divisors)
    cases = [
        Case("DIV", [int8((16, 64), (ratio * right[0] * result[0], left[1])), whole],
             [int8((16, 64), result)], "DivOptions", {"FusedActivationFunction": activation})
        for activation in (0, 1, 3)
    ]  # fmt: skip
    real = Tensor((1, 8), values=random.uniform(0.1, 3, (INFERENCES, 1, 8)).astype(np.float32))
    cases += [
        Case("DIV", [Tensor((4, 8)), real], [Tensor((4, 8))], "DivOptions",
             {"FusedActivationFunction": activation})
        for activation in (0, 3)
    ]  # fmt: skip
    assert_equals_micro(cases, seed, tolerance=TOLERANCE)


def test_division_by_0_is_defined() -> None:
    """A divisor that stands for 0 counts as 1 LSB; TensorFlow Lite leaves it undefined."""
    case = Case("DIV", [int8((3,), (1.0, 0)), int8((1,), (0.1, 7))], [int8((3,), (0.01, 0))],
                "DivOptions")  # fmt: skip
    values = np.array([[-5, 0, 5]], np.int8)
    (found,) = run(file_of([case])[0], {"x0_0": values, "x0_1": np.array([[7]], np.int8)}).values()
    np.testing.assert_array_equal(found, [[-128, 0, 127]])


@examples(2)
@given(quantized(), st.integers(1, 40), seeds)
def test_norms(source: tuple[float, int], length: int, seed: int) -> None:
    shape = (2, 3, length)
    unit = Tensor(shape, "int8", 1 / 128, 0)
    flat = np.full((INFERENCES, *shape), source[1], np.int8)
    cases = [
        Case("L2_NORMALIZATION", [int8(shape, source)], [unit], "L2NormOptions"),
        Case("L2_NORMALIZATION", [Tensor(shape, "int8", *source, flat)], [unit], "L2NormOptions"),
        Case("L2_NORMALIZATION", [Tensor(shape)], [Tensor(shape)], "L2NormOptions"),
    ]
    assert_equals_micro(cases, seed, tolerance=TOLERANCE)


@examples(2)
@given(st.floats(0.01, 4.0), zero_points, st.integers(1, 60), st.floats(1, 80), seeds)
def test_logarithms_of_softmax(
    scale: float, zero_point: int, length: int, spread: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    values = random.normal(0, spread, (INFERENCES, 7, length))
    near = np.clip(values, -128, 127).astype(np.int8)
    result = Tensor((7, length), "int8", 1 / 16, 127)
    cases = [
        Case("LOG_SOFTMAX", [Tensor((7, length), "int8", scale, zero_point, drawn)], [result],
             "LogSoftmaxOptions")
        for drawn in (near, None)
    ]  # fmt: skip
    cases += [Case("LOG_SOFTMAX", [Tensor((7, length))], [Tensor((7, length))],
                   "LogSoftmaxOptions")]  # fmt: skip
    assert_equals_micro(cases, seed, tolerance=TOLERANCE)


def tensor(scale: float, zero_point: int = 0, shape: tuple[int, ...] = (4,)) -> Tensor:
    return Tensor(shape, "int8", scale, zero_point)


REFUSED = {
    "a quotient that the kernel shifts too far": (
        Case("DIV", [tensor(0.1), tensor(0.1)], [tensor(0.1)], "DivOptions"),
        "DIV that writes 'y0_0': TensorFlow Lite's kernel yields other numbers than quotients",
    ),
    "a comparison of a large scale": (
        Case("LESS", [tensor(1.0), tensor(0.5)], [Tensor((4,), "bool")], "LessOptions"),
        "the scale of 'x0_0' is 1, which its kernel does not take",
    ),
    "a comparison of 16 bits, for which TensorFlow Lite Micro has no scales": (
        Case("LESS", [Tensor((4,), "int16", 0.1)] * 2, [Tensor((4,), "bool")], "LessOptions"),
        "LESS that writes 'y0_0': tensor 'x0_0' is int16",
    ),
    "a norm of another scale": (
        Case("L2_NORMALIZATION", [tensor(0.1)], [tensor(0.1)], "L2NormOptions"),
        "another scale than 1/128",
    ),
    "a norm of too many elements": (
        Case("L2_NORMALIZATION", [tensor(0.1, -128, (9000,))], [tensor(1 / 128, 0, (9000,))],
             "L2NormOptions"),
        "it normalizes 9000 elements",
    ),
    "a logarithm of another scale": (
        Case("LOG_SOFTMAX", [tensor(0.1)], [tensor(0.1, 127)], "LogSoftmaxOptions"),
        "another scale than 1/16",
    ),
    "a logarithm of a sum that overflows": (
        Case("LOG_SOFTMAX", [tensor(0.1, 0, (4096,))], [tensor(1 / 16, 127, (4096,))],
             "LogSoftmaxOptions"),
        "it normalizes 4096 elements, more than 4095",
    ),
    "a long running sum": (
        Case("CUMSUM", [tensor(0.1, -128, (20,)), of([0])], [tensor(0.9, 0, (20,))],
             "CumsumOptions"),
        "sums of 20 integers overflow",
    ),
    "terms of different scales": (
        Case("ADD_N", [tensor(0.1), tensor(0.2)], [tensor(0.9)], "AddNOptions"),
        "its inputs have different scales",
    ),
    "a tiny scale": (
        Case("SQUARED_DIFFERENCE", [tensor(0.5), tensor(0.5)], [tensor(1e-9)]),
        "the result's scale is too small",
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_refusals(why: str, tmp_path: Path) -> None:
    case, message = REFUSED[why]
    path = tmp_path / "net.tflite"
    path.write_bytes(file_of([case])[0])
    with pytest.raises(ModelError, match=message):
        import_model(path)
