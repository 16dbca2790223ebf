# SPDX-License-Identifier: Apache-2.0
"""`umakit/requantize.h`: exact for all arguments, by Python's integers and NumPy's float32."""

from __future__ import annotations

import ctypes
import math
import re
import subprocess
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from umakit import sim, tvm_api
from umakit.lower import expand_requantize
from umakit.operators.kernels import loops
from umakit.operators.numeric import requantize
from umakit.patterns import ROUNDINGS

INT32_MAX, INT32_MIN = 2**31 - 1, -(2**31)
FUNCTIONS = {
    "high_product": ("int32", "int32 int32"),
    "divide_by_power_of_two": ("int32", "int32 int32"),
    "requantize_tflm": ("int32", "int32 int32 int32"),
    "requantize_tflm_int64": ("int32", "int64 int32 int32"),
    "requantize_ort": ("int32", "int32 int32 int32"),
    "requantize_even": ("int32", "int64 int32 int32"),
    "requantize": ("int32", "int32 int32 int32 int32"),
    "leading_zeros": ("int32", "int32"),
    "reciprocal": ("int32", "int32"),
    "saturate": ("int32", "int64"),
    "divide_to_even": ("int64", "int64 int32"),
    "round_to_float32": ("int64", "int64"),
    "add_and_clamp": ("int32", "int32 int32 int32 int32"),
}
FLAGS = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-shared", "-fPIC", "-O3")

Array = npt.NDArray[Any]
Header = dict[str, Callable[..., int]]
THOROUGH = settings(max_examples=400, deadline=None)


@pytest.fixture(scope="module", params=["builtins", "plain"])
def header(request: Any, tmp_path_factory: Any) -> Iterator[Header]:
    """The functions of the header, by name without prefix; with gcc's builtins and without."""
    folder: Path = tmp_path_factory.mktemp("requantize")
    path = sim.source_directory() / "include/umakit/requantize.h"
    text = path.read_text(encoding="utf-8")
    assert "defined(__GNUC__)" in text
    if request.param == "plain":
        text = text.replace("defined(__GNUC__)", "0")
    (folder / "requantize.h").write_text(text, encoding="utf-8")
    lines = ['#include "requantize.h"', '#include "requantize.h"']
    for name, (result, arguments) in FUNCTIONS.items():
        types = arguments.split()
        declared = ", ".join(f"{dtype}_t {'abcd'[i]}" for i, dtype in enumerate(types))
        call = f"umakit_{name}({', '.join('abcd'[: len(types)])})"
        lines += [f"{result}_t exported_{name}({declared});"]
        lines += [f"{result}_t exported_{name}({declared})", "{", f"    return {call};", "}"]
    (folder / "exported.c").write_text("\n".join([*lines, ""]), encoding="utf-8")
    command = ["cc", *FLAGS, "exported.c", "-o", "exported.so"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    library = ctypes.CDLL(str(folder / "exported.so"))
    functions: Header = {}
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, f"exported_{name}")
        function.argtypes = [getattr(ctypes, f"c_{dtype}") for dtype in arguments.split()]
        function.restype = getattr(ctypes, f"c_{result}")
        functions[name] = function
    yield functions


# --- what is expected ---------------------------------------------------------------------------


def nearest(value: Fraction, ties: str) -> int:
    """The nearest integer; ties `up`, `away` from zero or `even`."""
    if ties == "even":
        return round(value)
    if ties == "away" and value < 0:
        return -nearest(-value, ties)
    return math.floor(value + Fraction(1, 2))


def tflm(value: int, multiplier: int, shift: int) -> int:
    left, right = max(shift, 0), max(-shift, 0)
    high = nearest(Fraction((value << left) * multiplier, 2**31), "up")
    return nearest(Fraction(high, 2**right), "away")


def ort(value: int, multiplier: int, shift: int) -> int:
    factor = np.float32(math.ldexp(multiplier, shift - 31))
    assert float(factor) == math.ldexp(multiplier, shift - 31)
    result = np.rint(np.float32(value) * factor)
    return int(min(max(int(result), INT32_MIN), INT32_MAX))


def saturated(value: int) -> int:
    return min(max(value, INT32_MIN), INT32_MAX)


def gemmlowp_reciprocal(value: int) -> int:
    """`one_over_one_plus_x_for_x_in_0_1` after `GetReciprocal` took the leading zeros off."""

    def product(left: int, right: int) -> int:
        return nearest(Fraction(left * right, 2**31), "up")

    shifted = value << (32 - value.bit_length())
    half = ((shifted - 2**31) + INT32_MAX + 1) // 2
    x = nearest(Fraction(48 * 2**29, 17), "away") + product(
        half, nearest(Fraction(-32 * 2**29, 17), "away")
    )
    for _ in range(3):
        x += saturated(product(x, 2**29 - product(half, x)) * 4)
    return saturated(x * 2)


# --- arguments ----------------------------------------------------------------------------------

edges = [
    0,
    *(sign * (2**bit + step) for bit in range(32) for step in (-1, 0, 1) for sign in (1, -1)),
]
int32s = st.integers(INT32_MIN, INT32_MAX) | st.sampled_from(
    [edge for edge in edges if INT32_MIN <= edge <= INT32_MAX]
)
"""Any int32, of any magnitude, and those next to powers of two."""
values = int32s | st.integers(0, 31).flatmap(lambda bits: st.integers(-(2**bits), 2**bits - 1))
multipliers = st.integers(2**30, INT32_MAX) | st.sampled_from([0, 2**30, INT32_MAX])
float32_multipliers = st.integers(2**23, 2**24 - 1).map(lambda bits: bits << 7) | st.just(0)


# --- tests --------------------------------------------------------------------------------------


@THOROUGH
@given(values, multipliers, st.integers(-31, 30))
@example(INT32_MIN, INT32_MAX, -1)
@example(INT32_MAX, INT32_MAX, -1)
@example(-3, 2**30, 0)
def test_double_rounding(header: Header, value: int, multiplier: int, shift: int) -> None:
    value >>= max(shift, 0)  # what a left shift needs 32 bits for is refused
    expected = tflm(value, multiplier, shift)
    assert header["requantize_tflm"](value, multiplier, shift) == expected
    assert header["requantize"](0, value, multiplier, shift) == expected


@THOROUGH
@given(values, float32_multipliers, st.integers(-31, 30))
@example(INT32_MIN, 0x7FFFFF80, 0)
@example(2**24 + 1, 2**30, 1)
def test_onnx_runtimes_float32(header: Header, value: int, multiplier: int, shift: int) -> None:
    expected = ort(value, multiplier, shift)
    assert header["requantize_ort"](value, multiplier, shift) == expected
    assert header["requantize"](1, value, multiplier, shift) == expected


@THOROUGH
@given(st.integers(-(10**5), 10**5), st.integers(-120, 120), st.integers(-3, 3))
def test_products_next_to_ties(header: Header, value: int, tie: int, steps: int) -> None:
    """Factors whose product with the value is next to half an integer, where rounding shows."""
    if value == 0:
        return
    bits = np.float32(abs((tie + 0.5) / value)).view(np.int32) + np.int32(steps)
    factor = np.array(bits, np.int32).view(np.float32)
    fraction, shift = math.frexp(float(factor))
    multiplier = int(fraction * 2**31)
    if -31 <= shift <= 30:
        assert header["requantize_ort"](value, multiplier, shift) == ort(value, multiplier, shift)
    if -31 <= shift <= 0:
        assert header["requantize_tflm"](value, multiplier, shift) == tflm(value, multiplier, shift)


@THOROUGH
@given(st.integers(-(2**47) + 1, 2**47 - 1), st.integers(0, 2**15 - 1), st.integers(-31, 14))
def test_sums_of_64_bits(header: Header, value: int, multiplier: int, shift: int) -> None:
    expected = nearest(Fraction(value * multiplier, 2 ** (15 - shift)), "up")
    if INT32_MIN <= expected <= INT32_MAX:
        assert header["requantize_tflm_int64"](value, multiplier, shift) == expected


@THOROUGH
@given(
    st.integers(20, 31).flatmap(
        lambda bits: st.tuples(
            st.integers(0, 2**bits - 1), st.integers(-(2 ** (62 - bits)), 2 ** (62 - bits))
        )
    ),
    st.integers(-31, 30),
)
@example((2**31 - 1, INT32_MIN), 30)
@example((2**30, 3), -1)
@example((2**30, -3), -1)
def test_exact_products(header: Header, factors: tuple[int, int], shift: int) -> None:
    """Multipliers of as many bits as the sums leave."""
    multiplier, value = factors
    expected = saturated(nearest(Fraction(value * multiplier, 2 ** (31 - shift)), "even"))
    assert header["requantize_even"](value, multiplier, shift) == expected
    if INT32_MIN <= value <= INT32_MAX:
        assert header["requantize"](2, value, multiplier, shift) == expected


@THOROUGH
@given(values, values, st.integers(1, 32))
def test_products_and_divisions(header: Header, left: int, right: int, exponent: int) -> None:
    if (left, right) != (INT32_MIN, INT32_MIN):
        expected = nearest(Fraction(left * right, 2**31), "up")
        assert header["high_product"](left, right) == expected
    expected = nearest(Fraction(left, 2**exponent), "away")
    assert header["divide_by_power_of_two"](left, exponent) == expected


@THOROUGH
@given(st.integers(0, 62).flatmap(lambda b: st.integers(-(2**b), 2**b)), st.integers(1, 62))
def test_rounding_to_even(header: Header, value: int, exponent: int) -> None:
    assert header["divide_to_even"](value, exponent) == round(Fraction(value, 2**exponent))
    assert header["round_to_float32"](value) == int(np.float32(np.int64(value)))


@THOROUGH
@given(values, st.integers(-(2**15), 2**16), st.integers(-(2**15), 2**16), st.integers(0, 2**16))
def test_clamping(header: Header, value: int, zero_point: int, lowest: int, width: int) -> None:
    expected = min(max(value + zero_point, lowest), lowest + width)
    assert header["add_and_clamp"](value, zero_point, lowest, lowest + width) == expected


@THOROUGH
@given(st.integers(1, 31).flatmap(lambda bits: st.integers(2 ** (bits - 1), 2**bits - 1)))
@example(1)
@example(INT32_MAX)
def test_reciprocals(header: Header, value: int) -> None:
    assert header["reciprocal"](value) == gemmlowp_reciprocal(value)


def test_the_choices_of_rounding_have_the_numbers_that_drivers_get(tmp_path: Path) -> None:
    lines = [
        f"typedef char {name}[UMAKIT_ROUNDING_{name.upper()} == {number} ? 1 : -1];"
        for number, name in enumerate(ROUNDINGS)
    ]
    source = tmp_path / "numbers.c"
    source.write_text("\n".join(['#include "umakit/requantize.h"', *lines, ""]))
    include = sim.source_directory() / "include"
    subprocess.run(["cc", "-std=c99", f"-I{include}", "-fsyntax-only", source], check=True)


def test_the_header_knows_no_floating_point() -> None:
    path = sim.source_directory() / sim.ARITHMETIC_HEADER
    assert not re.search(r"\b(float|double)\b", path.read_text(encoding="utf-8"))


# --- the same in TIR ----------------------------------------------------------------------------


def random_integers(dtype: str, bits: int, count: int = 3000) -> Array:
    """Integers of all magnitudes of up to so many bits."""
    random = np.random.default_rng(bits)
    magnitudes = random.integers(0, 2**62, count) >> (62 - random.integers(0, bits + 1, count))
    return np.asarray(magnitudes * random.choice([-1, 1], count)).astype(dtype)


def arguments_of(function: str) -> list[Array]:
    """Random arguments in the ranges that the header documents."""
    random, count = np.random.default_rng(0), 3000
    value = random_integers("int32", 31)
    multiplier = random.integers(2**23, 2**24, count).astype(np.int32) << 7
    return {
        "requantize_tflm": lambda: [value >> 6, multiplier, random.integers(-31, 6, count)],
        "requantize_ort": lambda: [value, multiplier, random.integers(-31, 30, count)],
        "requantize_tflm_int64": lambda: [
            random_integers("int64", 40), multiplier >> 16, random.integers(-31, -8, count)
        ],
        "requantize_even": lambda: [
            random_integers("int64", 40), multiplier >> 9, random.integers(-31, 1, count)
        ],
        "high_product": lambda: [value, multiplier],
        "divide_by_power_of_two": lambda: [value, random.integers(1, 32, count)],
        "leading_zeros": lambda: [abs(value)],
        "reciprocal": lambda: [abs(value) + 1],
        "round_to_float32": lambda: [random_integers("int64", 62)],
        "divide_to_even": lambda: [random_integers("int64", 62), random.integers(1, 63, count)],
        "saturate": lambda: [random_integers("int64", 62)],
        "add_and_clamp": lambda: [
            value, random.integers(-128, 128, count), np.full(count, -128), np.full(count, 99)
        ],
    }[function]()  # fmt: skip


def kernel_of(function: str, arguments: list[Array]) -> Any:
    """A prim func that calls a function of the header for each element."""
    count = len(arguments[0])
    inputs = [loops.buffer(f"a{i}", [count], str(a.dtype)) for i, a in enumerate(arguments)]
    output = loops.buffer("output", [count], requantize.RESULTS[f"umakit_{function}"])

    def one(i: Any) -> Any:
        value = requantize.header_call(function, *(operand[i] for operand in inputs))
        return tvm_api.tirx.BufferStore(output, value, [i])

    made = loops.kernel([*inputs, output], loops.loop("i", count, one))
    return made.with_attr("global_symbol", "main")


@pytest.mark.parametrize("name", requantize.RESULTS)
def test_plain_tir_takes_the_place_of_the_header(header: Header, name: str) -> None:
    function = name.removeprefix("umakit_")
    arguments = [a if a.dtype == np.int64 and i == 0 else a.astype(np.int32)
                 for i, a in enumerate(arguments_of(function))]  # fmt: skip
    module = tvm_api.IRModule({"main": kernel_of(function, arguments)})
    assert tvm_api.collect(module["main"].body, tvm_api.StringImm)
    expanded = expand_requantize(module)
    assert not tvm_api.collect(expanded["main"].body, tvm_api.StringImm)
    result = np.zeros(len(arguments[0]), requantize.RESULTS[name])
    tensors = [tvm_api.to_device(array) for array in (*arguments, result)]
    tvm_api.tvm.compile(expanded, target="llvm")["main"](*tensors)
    expected = [header[function](*map(int, row)) for row in zip(*arguments, strict=True)]
    np.testing.assert_array_equal(tensors[-1].numpy(), expected)
    assert len(np.unique(expected)) > 20
