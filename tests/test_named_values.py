# SPDX-License-Identifier: Apache-2.0
"""Values that a backend's TIR pass names are variables of generated C, and stay what they are."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from umakit import tir, tvm_api
from umakit.codegen.kernel_source import print_kernel
from umakit.lower.kernels import make_kernel
from umakit.lower.phases import lower_prim_func

tirx = tvm_api.tirx

RECORDER = """#include <stdint.h>
#include <stdio.h>
static int npu_record(int32_t a, int32_t b, int32_t c)
{
    printf("%d %d %d\\n", (int)a, (int)b, (int)c);
    return 0;
}
static inline int32_t maximum_int32(int32_t a, int32_t b)
{
    return a > b ? a : b;
}
"""


def lowered(arguments: Callable[[Any, Any], list[Any]]) -> str:
    """C of a kernel of two loops, over 3 rows and 2 columns, around a driver call."""
    row, column = (tirx.Var(name, "int32") for name in ("row", "column"))
    call = tir.driver_call("npu_record", arguments(row, column))
    body = tirx.For(row, 0, 3, 0, tirx.For(column, 0, 2, 0, call))
    function = lower_prim_func("kernel", tirx.PrimFunc([], body), None)
    return print_kernel(make_kernel("kernel", "npu", function, 0)).definition("kernel")


def test_named_values_are_bound_where_they_change(tmp_path: Path) -> None:
    def arguments(row: Any, column: Any) -> list[Any]:
        first = tir.named("first_row", tirx.max(row * 4 - 1, 0))
        start = tir.named("start", first * 16 + column)
        return [first, start * 2 + tir.named("start", first * 16 + column), start - first]

    text = lowered(arguments)
    outer, inner = text.split("for (int32_t row", 1)[1].split("for (int32_t column", 1)
    assert outer.count("const int32_t first_row = maximum_int32(row * 4 - 1, 0);") == 1
    assert inner.count("const int32_t start = first_row * 16 + column;") == 1
    assert text.count("const int32_t") == 2 and "common" not in text
    # The oracle is the same arithmetic in Python.
    source = tmp_path / "record.c"
    main = "int main(void)\n{\n    return (int)kernel();\n}\n"
    source.write_text(RECORDER + text.replace("kernel()", "kernel(void)") + main, encoding="utf-8")
    command = ["cc", "-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]
    subprocess.run([*command, str(source), "-o", str(tmp_path / "record")], check=True)
    printed = subprocess.run([str(tmp_path / "record")], check=True, stdout=subprocess.PIPE)
    expected = []
    for row in range(3):
        for column in range(2):
            first = max(row * 4 - 1, 0)
            start = first * 16 + column
            expected.append(f"{first} {start * 3} {start - first}")
    assert printed.stdout.decode().splitlines() == expected


def test_constants_and_plain_variables_have_no_second_name() -> None:
    assert tir.named("rows", 3) == 3
    text = lowered(lambda row, column: [tir.named("number", row), tir.named("zero", row - row), 1])
    assert "const int32_t" not in text
    assert re.search(r"npu_record\(row, 0, 1\)", text)


def test_named_constants_are_enumerators() -> None:
    def arguments(row: Any, column: Any) -> list[Any]:
        place = tir.named("place", row * tir.constant("PLACE_BYTES", 64))
        other = column * tir.constant("PLACE_BYTES", 32)
        return [place, other + tir.constant("PLACE_BYTES", 64), 1]

    text = lowered(arguments)
    assert "    enum { PLACE_BYTES = 64, PLACE_BYTES_2 = 32 };\n" in text
    assert "const int32_t place = row * PLACE_BYTES;" in text
    assert "npu_record(place, column * PLACE_BYTES_2 + PLACE_BYTES, 1)" in text


def test_a_value_of_no_loop_is_bound_before_all() -> None:
    size = tirx.Var("size", "int32")
    call = tir.driver_call("npu_record", [tir.named("twice", size * 2), 0, 0])
    loop = tirx.For(tirx.Var("row", "int32"), 0, 3, 0, call)
    function = tirx.PrimFunc([size], loop)
    text = str(lower_prim_func("kernel", function, None))
    assert text.index("twice") < text.index("for row")
