# SPDX-License-Identifier: Apache-2.0
"""Arguments of driver calls in generated C have the names that the driver's header gives them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umakit import compile_model, tir, tvm_api
from umakit.backend.registry import find_backend
from umakit.codegen.driver_headers import (
    Argument,
    DriverHeaders,
    driver_headers,
    named_arguments,
    read_headers,
)
from umakit.codegen.kernel_source import print_kernel
from umakit.codegen.listing import WIDTH, wrapped_call
from umakit.lower.kernels import make_kernel
from umakit.operators.kernels import loops
from umakit.registration.backend import Backend
from umakit.registration.registered import Driver

DIGITS = Path(__file__).parents[1] / "examples" / "digits"

HEADER = """
#ifndef NPU_H
#define NPU_H
#include <stdint.h>
#define NPU_API __attribute__((warn_unused_result))
#ifdef __cplusplus
extern "C" {
#endif
/* enum npu_comment { NPU_NOT_THIS }; */
enum npu_tensor { NPU_DATA, NPU_WEIGHTS = 0x10, NPU_BIAS, NPU_RESULT = -(2 + 3), NPU_LAST };
typedef enum { NPU_KEEP = 1u << 0, NPU_ADD = 1u << 1, NPU_WAIT = NPU_ADD << 1 } npu_flags_t;
typedef enum npu_order { NPU_ROWS = 010, NPU_PLANES = sizeof(char) + 1, NPU_TILES } npu_order_t;
NPU_API int npu_load(enum npu_tensor tensor, const void *source, uint32_t place, int bytes,
                     npu_flags_t flags, int32_t const rows[], npu_order_t order);
int npu_wait(void), npu_two(enum npu_tensor, int);
static inline int npu_inner(int level) { int other(int inside); return other(level); }
#if NPU_VERSION > 1
int npu_either(int first);
#else
int npu_either(int second);
#endif
#ifdef __cplusplus
}
#endif
#endif
"""


def test_what_a_header_declares(tmp_path: Path) -> None:
    headers = read_headers([HEADER.encode()])
    named = {name: [p.name for p in each] for name, each in headers.functions.items()}
    assert named == {
        "npu_load": ["tensor", "source", "place", "bytes", "flags", "rows", "order"],
        "npu_wait": [],
        "npu_two": ["", ""],
        "npu_inner": ["level"],
    }
    enumerations = [p.enumeration for p in headers.functions["npu_load"] if p.enumeration]
    assert [each.type for each in enumerations] == ["enum npu_tensor", "npu_flags_t", "npu_order_t"]
    # The oracle is a compiler. What is not computed, like a sizeof, has no name.
    assert [*enumerations[2].enumerators.values()] == ["NPU_ROWS"]
    checks = [
        f"typedef char check_{name}[{name} == {value} ? 1 : -1];"
        for each in enumerations
        for value, name in each.enumerators.items()
    ]
    assert len(checks) == 9
    (tmp_path / "npu.h").write_text(HEADER, encoding="utf-8")
    source = tmp_path / "check.c"
    source.write_text("\n".join(['#include "npu.h"', *checks]), encoding="utf-8")
    subprocess.run(["cc", "-std=c99", "-fsyntax-only", str(source)], check=True)


@pytest.mark.parametrize(
    "text", [b"", b"\xff\x00((( enum {", b"int f(int a, ((", b"enum e { A = B };", b"#if 1\nint f("]
)
def test_a_header_that_is_no_c_names_nothing(text: bytes) -> None:
    headers = read_headers([text])
    assert all(not p.name for p in headers.parameters("f", 2))


class Npu(Backend):
    @property
    def target_name(self) -> str:
        return "npu"


def test_headers_that_are_missing_are_left_out(tmp_path: Path) -> None:
    backend = Npu()
    backend.driver = Driver(headers=("absent.h", str(tmp_path)))
    assert driver_headers(backend) == driver_headers(None) == DriverHeaders()


def printed(arguments: list[Any], hook: Any = None) -> str:
    """C of a kernel with a loop around a call of npu_load, for the header above."""
    data = loops.buffer("npu_data", [4], "int8")
    step = tvm_api.tirx.Var("step", "int32")
    values = [step if each == "step" else each for each in arguments]
    values = [tir.pointer(data) if each == "data" else each for each in values]
    loop = tvm_api.tirx.For(step, 0, 4, 0, tir.driver_call("npu_load", values))
    function = tvm_api.tirx.PrimFunc([data], loop)
    kernel = make_kernel("kernel", "npu", function, 0)
    headers = read_headers([HEADER.encode()])
    body = print_kernel(kernel, hook, headers=headers).body
    return " ".join(re.search(r"status = ([^;]+;)", body)[1].split())  # type: ignore[index]


def test_arguments_are_enumerators_flags_and_named_numbers() -> None:
    arguments = [-5, "data", "step", 7, 5, "data", 8]
    assert printed(arguments) == (
        "npu_load(NPU_RESULT, /*source=*/input, /*place=*/step, /*bytes=*/7, NPU_KEEP | NPU_WAIT, "
        "/*rows=*/input, NPU_ROWS);"
    )
    # Values that the enumeration does not name stay numbers, others are converted.
    arguments = [3, "data", 0, "step", 8, "data", "step"]
    assert printed(arguments) == (
        "npu_load(/*tensor=*/3, /*source=*/input, /*place=*/0, /*bytes=*/step, /*flags=*/8, "
        "/*rows=*/input, /*order=*/(npu_order_t)step);"
    )
    # With other arguments than declared it is another function.
    assert printed([1, 2]) == "npu_load(1, 2);"


def test_a_hook_gets_arguments_without_names() -> None:
    seen: list[str] = []

    def hook(texts: list[str]) -> str:
        seen.extend(texts)
        return "other(1)"

    assert printed([-5, "data", 0, 7, 5, "data", 8], hook) == "other(1);"
    assert seen == ["npu_load", "-5", "input", "0", "7", "5", "input", "8"]


@given(st.lists(st.sampled_from(["1", "/*rows=*/16", "a * (b - c) + 4096", "f(x, y)"])))
def test_lines_are_filled_with_whole_arguments(arguments: list[str]) -> None:
    lines = wrapped_call("    status = npu_load(", arguments).split("\n")
    text = f"status = npu_load({', '.join(arguments)});"
    assert " ".join(line.strip() for line in lines) == text
    assert all(len(line) <= WIDTH and line.endswith((",", ");")) for line in lines)


def test_a_call_of_few_arguments_names_numbers_only() -> None:
    parameters = read_headers([b"int f(int rows, int bytes);"]).functions["f"]
    arguments = [Argument("height"), Argument("16", 16)]
    assert named_arguments(arguments, parameters) == ["height", "/*bytes=*/16"]


def test_an_exported_layer_names_its_arguments(tmp_path: Path) -> None:
    backends = [find_backend("strawberry_accelerator")]
    library = compile_model(DIGITS / "digits_int8.onnx", backends, tmp_path / "library")
    folder = library.path / "codegen/host/src"
    text = (folder / "tvmgen_digits_int8.c").read_text(encoding="utf-8")
    (header,) = find_backend("strawberry_accelerator").folder.glob("*.h")
    declared = re.search(r"_calculate\(([^)]*)\);", header.read_text(encoding="utf-8"))
    assert declared is not None
    names = [each.split()[-1] for each in declared[1].split(",")]
    calls = re.findall(r"status = strawberry_accelerator_calculate\(([^;]*)\);", text)
    assert calls
    for call in calls:
        arguments = [each.strip() for each in call.split(",")]
        assert len(arguments) == len(names)
        for name, argument in zip(names, arguments, strict=True):
            comment = re.match(r"/\*(\w+)=\*/", argument)
            assert comment is None or comment[1] == name
            assert not re.fullmatch(r"-?\d+", argument)
        assert "STRAWBERRY_ACCELERATOR_CONVOLUTION" in arguments
        assert "STRAWBERRY_ACCELERATOR_OUTPUT_STATIONARY" in arguments
