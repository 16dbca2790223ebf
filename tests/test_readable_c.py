# SPDX-License-Identifier: Apache-2.0
"""Integer C that an engineer can review: short lines, no needless casts, nothing unused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from umakit import compile_model, tvm_api
from umakit.codegen.expressions import ExpressionPrinter
from umakit.codegen.integer_ranges import IntegerRanges
from umakit.codegen.listing import WIDTH, wrapped
from umakit.operators.kernels import loops
from umakit.operators.numeric.fixed_point import high_product, shift_right_rounding
from umakit.operators.numeric.requantize import header_call

tirx = tvm_api.tirx
DIGITS = Path(__file__).parents[1] / "examples" / "digits"

words = st.sampled_from(["sum", "data[y * 96 + x]", "f(a, b)", "(int8_t)x", "127", "weights[o]"])
operators = st.sampled_from([" + ", " - ", " * ", ", ", " < ", " ? ", " : "])


@given(st.lists(st.tuples(words, operators), min_size=1, max_size=40), st.integers(0, 8))
def test_breaks_change_nothing_but_spaces(parts: list[tuple[str, str]], depth: int) -> None:
    line = "    " * depth + "g(" + "".join(word + operator for word, operator in parts) + "0);"
    lines = wrapped(line).split("\n")
    assert "".join(" ".join(lines).split()) == "".join(line.split())
    assert all(len(part) <= WIDTH for part in lines)
    indents = [len(part) - len(part.lstrip()) for part in lines]
    assert indents[0] == 4 * depth and all(indent > 4 * depth for indent in indents[1:])
    assert (len(lines) == 1) == (len(line) <= WIDTH)


def text_of(build: Any, *dtypes: str) -> str:
    """C text of an expression of elements of buffers x, y, ..."""
    printer = ExpressionPrinter("test")
    buffers = [loops.buffer(name, [4], dtype) for name, dtype in zip("xy", dtypes, strict=False)]
    for buffer in buffers:
        printer.declare(buffer)
    return printer.text(build(*(buffer[tirx.IntImm("int32", 2)] for buffer in buffers)))


def test_c_promotes_by_itself() -> None:
    def product(x: Any, y: Any) -> Any:
        return (x.astype("int32") - tirx.IntImm("int32", -128)) * y.astype("int32")

    assert text_of(product, "int8", "int8") == "(x[2] + 128) * y[2]"
    # Where int has 16 bits only, this would overflow in it.
    assert text_of(product, "int16", "int8") == "((int32_t)x[2] + 128) * y[2]"
    assert text_of(lambda x: x.astype("int32") * x.astype("int32"), "uint8") == (
        "(int32_t)x[2] * x[2]"
    )
    assert text_of(lambda x: x + tirx.IntImm("int8", 1), "int8") == "(int8_t)(x[2] + 1)"
    assert text_of(lambda x: x.astype("int64"), "int8") == "(int64_t)x[2]"
    assert text_of(lambda x: x.astype("uint32"), "int8") == "(uint32_t)x[2]"
    assert text_of(lambda x: x.astype("int8"), "int32") == "(int8_t)x[2]"


def test_the_c_of_an_integer_network(tmp_path: Path) -> None:
    library = compile_model(DIGITS / "digits_int8.onnx", [], tmp_path / "library")
    folder = library.path / "codegen/host/src"
    text = (folder / "tvmgen_digits_int8.c").read_text(encoding="utf-8")
    table, code = text.split("*/\n#include", 1)
    assert max(map(len, code.splitlines())) <= WIDTH
    assert len(re.findall(r"^ \* +\d+  ", table, re.MULTILINE)) == len(
        library.metadata["umakit"]["layers"]
    )
    assert "umakit_requantize_ort(sum[" in text
    assert "const int8_t *restrict weights," in text and "int32_t sum[" in text
    unsigned = ("(uint32_t)", "could overflow")
    unreadable = (*unsigned, "(int16_t)", "- -", "[1];", "cse_v", "common", "string.h", "INT64_C")
    for needless in unreadable:
        assert needless not in text, needless
    # Loops and values are called after what they are; a number tells equal things apart.
    loops = {"position", "channel", "product", "row", "column"}
    parts = {"first_kernel_row", "row_count", "first_kernel_column", "column_count"}
    places = {"output_row", "first_column", "first_channel", "weights_index", "windows_base"}
    names = set(re.findall(r"\b(?:const )?int(?:16|32)_t (\w+) =\s", text))
    assert loops | parts | places | {"element_int32"} <= names
    numbered = {name for name in names if re.search(r"_\d+$", name)}
    assert {name.rpartition("_")[0] for name in numbered} == {"element", "weights_index"}
    helpers = re.findall(r"^static inline \w+ (\w+)\(", text, re.MULTILINE)
    assert helpers and all(len(re.findall(rf"\b{name}\(", text)) > 1 for name in helpers)
    # The input arrives as float32 and is rounded by a function of math.h; constants need none.
    assert "nearbyintf(" in text and "#include <math.h>" in text
    assert "math.h" not in (folder / "tvmgen_digits_int8_constants.c").read_text(encoding="utf-8")


@pytest.mark.parametrize("value", [-(2**31), -(2**28), -1, 0, 255 << 20, 2**31 - 1])
@pytest.mark.parametrize("shift", range(-31, 7))
def test_ranges_of_results_hold(value: int, shift: int) -> None:
    multiplier = 2**31 - 128
    arguments = [tirx.IntImm("int32", number) for number in (value, multiplier, shift)]
    low, high = IntegerRanges().of(header_call("requantize_tflm", *arguments))
    if abs(value) << max(shift, 0) < 2**31:
        high_half = high_product(value << max(shift, 0), multiplier)
        assert low <= shift_right_rounding(high_half, max(-shift, 0)) <= high
    low, high = IntegerRanges().of(header_call("requantize_ort", *arguments))
    product = np.rint(np.float32(value) * np.float32(multiplier * 2.0 ** (shift - 31)))
    assert low <= min(max(int(product), -(2**31)), 2**31 - 1) <= high
    assert IntegerRanges().of(header_call("add_and_clamp", arguments[0], 3, shift, 9)) == (shift, 9)
