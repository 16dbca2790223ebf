# SPDX-License-Identifier: Apache-2.0
"""The inline functions of generated C: defined for every value, and what NumPy makes of them."""

from __future__ import annotations

import ctypes
import re
import subprocess
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from comparisons import LINKER, examples
from hypothesis import given
from hypothesis import strategies as st
from strict import WARNINGS

from umakit.codegen.c_types import c_type
from umakit.codegen.helpers import helper_definition
from umakit.text.names import HELPER, is_reserved

Array = npt.NDArray[Any]

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
FLOATS = ["float32", "float64"]
HELPERS = {
    **dict.fromkeys([f"absolute_{d}" for d in INTEGERS if d[0] != "u"], ("x",)),
    **{f"{op}_{d}": ("a", "b") for op in ("quotient", "remainder") for d in INTEGERS},
    **{f"{op}_{d}": ("a", "b") for op in ("shift_left", "shift_right") for d in INTEGERS},
    **{f"{op}_{d}": ("a", "b") for op in ("maximum", "minimum") for d in (*INTEGERS, *FLOATS)},
    **{f"{op}_{d}": ("a", "b") for op in ("at_least", "at_most") for d in FLOATS},
    **{f"{to}_from_{d}": ("x",) for to in INTEGERS for d in FLOATS},
}
FLAGS = (
    "-std=c99", "-O1", "-shared", "-fPIC", *WARNINGS,
    "-fsanitize=undefined,float-cast-overflow", *LINKER,
)  # fmt: skip


def types(name: str) -> tuple[str, str]:
    """dtypes of a helper's arguments and of its result."""
    known = HELPER.fullmatch(name)
    assert known is not None
    return known["type"], known["target"] or known["type"]


def loop_over(name: str) -> str:
    """A C function that applies a helper to arrays."""
    argument, result = map(c_type, types(name))
    pointers = ", ".join(f"const {argument} *{p}" for p in HELPERS[name])
    call = ", ".join(f"{p}[i]" for p in HELPERS[name])
    head = f"void apply_{name}({pointers}, {result} *out, int count)"
    return (
        f"{head};\n{head}\n{{\n    int i;\n\n    for (i = 0; i < count; ++i) {{\n"
        f"        out[i] = {name}({call});\n    }}\n}}\n"
    )


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("helpers")
    text = "#include <math.h>\n#include <stdbool.h>\n#include <stdint.h>\n"
    text += "".join(helper_definition(name) + loop_over(name) for name in HELPERS)
    source, binary = folder / "helpers.c", folder / "helpers.so"
    source.write_text(text, encoding="utf-8")
    subprocess.run(["cc", *FLAGS, source, "-o", binary, "-lm"], check=True)
    return ctypes.CDLL(str(binary))


@pytest.fixture
def apply(library: ctypes.CDLL, capfd: pytest.CaptureFixture[str]) -> Any:
    def run(name: str, *arrays: Array) -> Array:
        result = np.zeros(len(arrays[0]), types(name)[1])
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*arrays, result)]
        getattr(library, f"apply_{name}")(*pointers, len(result))
        assert "runtime error" not in capfd.readouterr().err
        return result

    return run


def drawn(dtype: str) -> st.SearchStrategy[Array]:
    """Arrays of eight numbers, those where arithmetic ends among them."""
    if dtype in FLOATS:
        limits = np.finfo(dtype)
        edges = [np.nan, np.inf, -np.inf, 0.0, -0.0, float(limits.max), float(limits.tiny) / 4]
        edges += [sign * 2.0**bits for sign in (1, -1) for bits in (7, 8, 15, 16, 31, 32, 63, 64)]
        number, infinity = np.dtype(dtype).type, np.dtype(dtype).type(np.inf)
        with np.errstate(over="ignore"):
            near = [
                float(np.nextafter(number(v), to)) for v in edges for to in (infinity, -infinity)
            ]
        numbers = st.one_of(
            st.just(np.nan),
            st.sampled_from([*edges, *near]),
            st.floats(width=int(dtype[-2:]), allow_nan=False),
            st.floats(-300, 300, width=32),
        )
    else:
        least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
        around = range(max(-2, least), 3)
        edges = [least, least + 1, most, most - 1, *around, 7, 8, 15, 16, 31, 32, 63, 64]
        always = [0, least, max(-1, least)]
        numbers = st.one_of(
            st.sampled_from(always), st.sampled_from(edges), st.integers(int(least), int(most))
        )
    return st.lists(numbers, min_size=8, max_size=8).map(lambda v: np.array(v, dtype))


@pytest.mark.parametrize("name", [n for n in HELPERS if re.match("max|min|at_", n)])
@examples(10)
@given(st.data())
def test_extremes_are_those_of_numpy(name: str, apply: Any, data: st.DataObject) -> None:
    dtype = types(name)[0]
    a, b = data.draw(drawn(dtype)), data.draw(drawn(dtype))
    if name.startswith("at_"):
        a = np.where(np.isnan(a), np.inf, a).astype(dtype)  # the limit is a number
    function = np.maximum if name.startswith(("max", "at_least")) else np.minimum
    np.testing.assert_array_equal(apply(name, a, b), function(a, b))


@pytest.mark.parametrize("name", [n for n in HELPERS if "_from_" in n])
@examples(10)
@given(st.data())
def test_conversions_cut_off_limit_and_make_nan_0(
    name: str, apply: Any, data: st.DataObject
) -> None:
    source, target = types(name)
    x, limits = data.draw(drawn(source)), np.iinfo(target)

    def converted(value: float) -> int:
        if np.isnan(value):
            return 0
        if np.isinf(value):
            return int(limits.max if value > 0 else limits.min)
        return max(int(limits.min), min(int(limits.max), int(value)))

    np.testing.assert_array_equal(
        apply(name, x), np.array([converted(float(v)) for v in x], target)
    )


@pytest.mark.parametrize("name", [n for n in HELPERS if re.match("quot|rem", n)])
@examples(10)
@given(st.data())
def test_division_by_0_is_0_and_the_lowest_number_wraps(
    name: str, apply: Any, data: st.DataObject
) -> None:
    dtype = types(name)[0]
    a, b = data.draw(drawn(dtype)), data.draw(drawn(dtype))

    def divided(left: int, right: int) -> int:
        if right == 0:
            return 0
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return quotient if name.startswith("quotient") else left - quotient * right

    wanted = [divided(int(left), int(right)) for left, right in zip(a, b, strict=True)]
    np.testing.assert_array_equal(apply(name, a, b), wrapped(wanted, dtype))


def wrapped(values: list[int], dtype: str) -> Array:
    """Integers of any size in two's complement."""
    bits = np.iinfo(dtype).bits
    unsigned = np.array([value % 2**bits for value in values], f"uint{bits}")
    return unsigned.view(dtype)


@pytest.mark.parametrize("name", [n for n in HELPERS if n.startswith("shift")])
@examples(10)
@given(st.data())
def test_shifts_beyond_the_width_shift_all_bits_out(
    name: str, apply: Any, data: st.DataObject
) -> None:
    dtype = types(name)[0]
    x, amount = data.draw(drawn(dtype)), data.draw(drawn(dtype))
    bits = np.iinfo(dtype).bits

    def moved(value: int, by: int) -> int:
        by = by if 0 <= by < bits else bits
        return value << by if name.startswith("shift_left") else value >> by

    wanted = [moved(int(value), int(by)) for value, by in zip(x, amount, strict=True)]
    np.testing.assert_array_equal(apply(name, x, amount), wrapped(wanted, dtype))


@pytest.mark.parametrize("name", [n for n in HELPERS if n.startswith("absolute")])
def test_the_lowest_number_has_no_absolute_value(name: str, apply: Any) -> None:
    dtype = types(name)[0]
    limits = np.iinfo(dtype)
    x = np.array([limits.min, limits.min + 1, -1, 0, limits.max], dtype)
    np.testing.assert_array_equal(apply(name, x), np.abs(x))


@pytest.mark.parametrize("name", [*HELPERS, "maximum_bool", "complement_uint8", "sigmoid_float32"])
def test_no_variable_of_a_kernel_is_called_like_a_helper(name: str) -> None:
    assert is_reserved(name)
