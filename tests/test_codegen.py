# SPDX-License-Identifier: Apache-2.0
"""C text: literals and constants to the last bit, TIR constructs, what an export may contain."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import operator
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from comparisons import LINKER
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.special import erf

from umakit import tvm_api
from umakit.backend.registry import find_backend
from umakit.codegen import constants
from umakit.codegen.c_types import C_TYPES, float_literal, hexadecimal_floats, integer_literal
from umakit.codegen.helpers import helper_definition
from umakit.codegen.kernel_source import print_kernel
from umakit.devices.run import load_inputs, select_inputs
from umakit.errors import LoweringError
from umakit.library.export import Library
from umakit.lower.kernels import make_kernel
from umakit.lower.phases import lower_prim_func
from umakit.pipeline import compile_model

te, tirx, relax = tvm_api.te, tvm_api.tirx, tvm_api.relax
Array = npt.NDArray[Any]

EXAMPLES = Path(__file__).parents[1] / "examples" / "digits"
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
CC = shutil.which("cc") or ""
PRELUDE = (
    "#include <math.h>\n#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n"
    "#include <string.h>\n"
)
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")


def cc(compiler: str, *arguments: str | Path, cwd: Path | None = None) -> None:
    """Call a C compiler, which must not say anything."""
    command = [compiler, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    assert (result.returncode, result.stderr) == (0, "")


def shared_object(text: str, folder: Path, *flags: str) -> ctypes.CDLL:
    """C text as a loaded library, after every compiler here has accepted it."""
    # A name of its own each time: a library is loaded once for each path.
    source = folder / f"source{len(list(folder.glob('*.c')))}.c"
    source.write_text(PRELUDE + text, encoding="utf-8")
    for compiler in COMPILERS:
        if os.path.realpath(shutil.which(compiler) or "") != os.path.realpath(CC):
            cc(compiler, *STRICT, "-fsyntax-only", source)
    library = source.with_suffix(".so")
    cc("cc", *STRICT, "-shared", "-fPIC", *flags, source, "-o", library, "-lm")
    return ctypes.CDLL(str(library))


# --- literals -----------------------------------------------------------------------------------


def float32(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def float64(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<Q", bits))[0])


FLOAT32_EDGES = [0x0, 0x80000000, 0x1, 0x80000001, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0x3F800001]
FLOAT64_EDGES = [0, 1 << 63, 1, (1 << 52) - 1, 1 << 52, 0x7FEFFFFFFFFFFFFF, 0x3FF0000000000001]


def read_back(literal: str, dtype: str) -> bytes:
    """The bits that a C literal stands for, by Python's reading of it."""
    assert literal.endswith("f") == (dtype == "float32") or "INF" in literal or "NAN" in literal
    text = literal.removesuffix("f") if dtype == "float32" else literal
    text = text.replace("(double)", "").replace("INFINITY", "inf").replace("NAN", "nan")
    value = float.fromhex(text) if "0x" in text else float(text)
    return np.dtype(dtype).type(value).tobytes()


def hexadecimal_float(value: float, dtype: str) -> str:
    return hexadecimal_floats(np.array([value], dtype))[0]


@given(st.integers(0, 2**32 - 1))
@example(0x7F800000)
@example(0xFF800000)
@pytest.mark.parametrize("literal", [float_literal, hexadecimal_float])
def test_a_float32_literal_reads_back_to_the_same_bits(
    literal: Callable[[float, str], str], bits: int
) -> None:
    value = float32(bits)
    if not math.isnan(value):
        assert read_back(literal(value, "float32"), "float32") == struct.pack("<I", bits)


@given(st.integers(0, 2**64 - 1))
@example(0x7FF0000000000000)
@example(0xFFF0000000000000)
@pytest.mark.parametrize("literal", [float_literal, hexadecimal_float])
def test_a_float64_literal_reads_back_to_the_same_bits(
    literal: Callable[[float, str], str], bits: int
) -> None:
    value = float64(bits)
    if not math.isnan(value):
        assert read_back(literal(value, "float64"), "float64") == struct.pack("<Q", bits)


@pytest.mark.parametrize("literal", [float_literal, hexadecimal_float])
def test_compilers_read_float_literals_to_the_same_bits(
    literal: Callable[[float, str], str], tmp_path: Path
) -> None:
    random = np.random.default_rng(0)
    bits32 = [*FLOAT32_EDGES, 0x7F800000, 0xFF800000, *random.integers(0, 2**32, 3000)]
    bits64 = [*FLOAT64_EDGES, 0x7FF << 52, *random.integers(0, 2**64, 3000, dtype=np.uint64)]
    values = {
        "float32": [v for v in (float32(int(b)) for b in bits32) if not math.isnan(v)],
        "float64": [v for v in (float64(int(b)) for b in bits64) if not math.isnan(v)],
    }
    text = "".join(
        f"const {C_TYPES[dtype]} {dtype}[] = {{ {', '.join(literal(v, dtype) for v in items)} }};\n"
        for dtype, items in values.items()
    )
    library = shared_object(text, tmp_path)
    for dtype, items in values.items():
        wanted = np.array(items, dtype)
        assert symbol_bytes(library, dtype, wanted.nbytes) == wanted.tobytes()


def test_nan_is_printed_as_the_macro() -> None:
    assert float_literal(math.nan, "float32") == "NAN"
    assert hexadecimal_float(math.nan, "float64") == "(double)NAN"


def symbol_bytes(library: ctypes.CDLL, symbol: str, size: int) -> bytes:
    return ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(library, symbol)), size)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_literals_at_the_ends_of_their_type(dtype: str, tmp_path: Path) -> None:
    limits = np.iinfo(dtype)
    values = sorted({int(limits.min), int(limits.min) + 1, 0, 1, int(limits.max) - 1, limits.max})
    literals = ", ".join(integer_literal(value, dtype) for value in values)
    text = f"const {C_TYPES[dtype]} numbers[] = {{ {literals} }};\n"
    wanted = np.array(values, dtype)
    assert symbol_bytes(shared_object(text, tmp_path), "numbers", wanted.nbytes) == wanted.tobytes()


# --- constants ----------------------------------------------------------------------------------


def constant_of(dtype: str, shape: tuple[int, ...]) -> Array:
    """Values of every kind that a dtype has."""
    count, random = math.prod(shape), np.random.default_rng(1)
    if dtype == "bool":
        return random.integers(0, 2, count).astype(bool).reshape(shape)
    if dtype.startswith("float"):
        special = [0.0, -0.0, math.inf, -math.inf, np.finfo(dtype).max, np.finfo(dtype).tiny / 8]
        values = np.array([*special, *random.standard_normal(count)], dtype)[:count]
    else:
        limits = np.iinfo(dtype)
        draws = random.integers(limits.min, limits.max, count, dtype, endpoint=True)
        values = np.array([limits.min, limits.max, 0, *draws], dtype)[:count]
    return np.resize(values, count).reshape(shape)


def compiled_constant(array: Array, folder: Path) -> bytes:
    """The constant's bytes after a C compiler has read it."""
    text = (
        f"{constants.declaration('constant', array)}\n{constants.definition('constant', array)}\n"
        f"const void *address(void);\n"
        f"const void *address(void) {{ return {constants.reference('constant', array)}; }}\n"
    )
    library = shared_object(text, folder)
    library.address.restype = ctypes.c_void_p
    return ctypes.string_at(library.address(), array.nbytes)


@pytest.mark.parametrize("dtype", C_TYPES)
@pytest.mark.parametrize("large", [False, True], ids=["elements", "string"])
def test_constants_of_every_dtype_keep_every_bit(dtype: str, large: bool, tmp_path: Path) -> None:
    array = constant_of(
        dtype, (constants.LARGE // np.dtype(dtype).itemsize + 3,) if large else (37,)
    )
    assert constants.is_large(array) is large
    assert compiled_constant(array, tmp_path) == array.tobytes()


def test_each_byte_keeps_its_value_behind_each_other_one(tmp_path: Path) -> None:
    """In string literals an octal code ends where no octal digit follows."""
    pairs = np.array([(a, b) for a in range(256) for b in range(256)], np.uint8).reshape(-1)
    assert constants.is_large(pairs)
    assert compiled_constant(pairs, tmp_path) == pairs.tobytes()


@pytest.mark.parametrize("shape", [(), (1,), (2, 3, 4), (constants.LARGE // 4,)])
def test_constants_of_any_shape(shape: tuple[int, ...], tmp_path: Path) -> None:
    array = constant_of("float32", shape)
    assert compiled_constant(array, tmp_path) == array.tobytes()


def test_a_nan_constant_stays_nan(tmp_path: Path) -> None:
    data = compiled_constant(np.array([1, math.nan], "float32"), tmp_path)
    assert math.isnan(np.frombuffer(data, "float32")[1])


@pytest.mark.parametrize("dtype", ["float16", "complex64"])
def test_a_constant_without_a_c_type_is_refused(dtype: str) -> None:
    with pytest.raises(LoweringError, match=f"dtype {dtype} has no C99 type"):
        constants.declaration("constant", np.zeros(2, dtype))


# --- TIR constructs -----------------------------------------------------------------------------


def kernel_texts(functions: Sequence[Any]) -> tuple[list[Any], str]:
    """Kernels of prim funcs with one result and their C text, callable from outside."""
    kernels, texts, helpers = [], [], set()
    for number, function in enumerate(functions):
        name = f"kernel{number}"
        kernels.append(make_kernel(name, "cpu", lower_prim_func(name, function, None), 1))
        source = print_kernel(kernels[-1])
        definition = source.definition(name).removeprefix("static ")
        prototype = definition.split("\n{", 1)[0]
        texts.append(f"{prototype};\n{definition}")
        helpers |= source.helpers
    return kernels, "".join([*map(helper_definition, sorted(helpers)), *texts])


Run = Callable[..., Array]
"""Computes the result of a kernel from its inputs."""


def compiled(functions: Sequence[Any], folder: Path) -> list[Run]:
    """The C of prim funcs in one library, with undefined behaviour reported on stderr."""
    kernels, text = kernel_texts(functions)
    library = shared_object(text, folder, "-O1", "-fsanitize=undefined", *LINKER)

    def run(kernel: Any, *arrays: Array) -> Array:
        result = np.zeros(kernel.outputs[0].elements, kernel.outputs[0].dtype)
        scratch = [np.zeros(item.elements, item.dtype) for item in kernel.scratch]
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*arrays, result, *scratch)]
        getattr(library, kernel.name)(*pointers)
        return result

    return [functools.partial(run, kernel) for kernel in kernels]


Call = tuple[Callable[..., Any], tuple[Array, ...]]
"""A TIR expression and the arrays that it is applied to."""


def prim_func(call: Call) -> Any:
    """The function that applies an expression to arrays, element by element."""
    expression, arrays = call
    tensors = [
        te.placeholder(array.shape, str(array.dtype), f"x{number}")
        for number, array in enumerate(arrays)
    ]
    result = te.compute(arrays[0].shape, lambda i: expression(*(x[i] for x in tensors)))
    return te.create_prim_func([*tensors, result])


def recorded(item: pytest.Function) -> list[Call]:
    """What a test asks `elementwise` for, before it looks at an answer."""
    calls: list[Call] = []

    def record(expression: Callable[..., Any], *arrays: Array) -> Array:
        calls.append((expression, arrays))
        return np.full(arrays[0].shape, np.nan)

    with contextlib.suppress(AssertionError):
        item.obj(**item.callspec.params if hasattr(item, "callspec") else {}, elementwise=record)
    return calls


@pytest.fixture(scope="module")
def batches(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], dict[str, list[Run]]]:
    """Compile what all parameters of a test ask `elementwise` for, in one library."""

    @functools.cache
    def batch(test: str) -> dict[str, list[Run]]:
        items = [
            item
            for item in request.session.items
            if isinstance(item, pytest.Function)
            and (item.module, item.originalname) == (request.module, test)
        ]
        calls = {item.name: recorded(item) for item in items}
        folder = tmp_path_factory.mktemp("kernels")
        functions = {name: list(map(prim_func, asked)) for name, asked in calls.items()}
        try:
            runs = iter(compiled([f for some in functions.values() for f in some], folder))
            return {name: [next(runs) for _ in some] for name, some in functions.items()}
        except (AssertionError, LoweringError):
            return {}  # Each alone: those fail that do not compile.

    return batch


@pytest.fixture
def elementwise(
    request: pytest.FixtureRequest,
    batches: Callable[[str], dict[str, list[Run]]],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> Callable[..., Array]:
    """Apply a TIR expression to arrays, element by element."""
    runs = iter(batches(request.node.originalname).get(request.node.name, []))

    def run(expression: Callable[..., Any], *arrays: Array) -> Array:
        known = next(runs, None)
        answer = (known or compiled([prim_func((expression, arrays))], tmp_path)[0])(*arrays)
        assert "runtime error" not in capfd.readouterr().err
        return answer

    return run


def integers(dtype: str, *values: int) -> Array:
    return np.array(values).astype(dtype)


LEFT = (-7, -1, 0, 5, 7, -8, 127, -128, 100)
RIGHT = (3, -2, 5, -3, 2, 4, 7, 3, -100)
POSITIVE = (3, 2, 5, 3, 7, 4, 9, 1, 100)


@pytest.mark.parametrize("dtype", ["int8", "int16", *UNSIGNED])
@pytest.mark.parametrize("operation", [operator.add, operator.sub, operator.mul])
def test_arithmetic_wraps_around_in_its_type(
    dtype: str, operation: Any, elementwise: Callable[..., Array]
) -> None:
    limits = np.iinfo(dtype)
    x = np.array([limits.min, limits.max, 1, limits.max, limits.max // 2 + 1, 0], dtype)
    y = np.array([limits.max, limits.max, 1, 2, 2, limits.max], dtype)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(elementwise(operation, x, y), operation(x, y))


@pytest.mark.skipif("clang" not in COMPILERS, reason="GCC does not see it: it folds the cast first")
@pytest.mark.parametrize("dtype", UNSIGNED)
def test_a_product_of_unsigned_integers_is_defined_behaviour(dtype: str, tmp_path: Path) -> None:
    tensors = [te.placeholder((1,), dtype, name) for name in "xy"]
    product = te.compute((1,), lambda i: tensors[0][i] * tensors[1][i])
    _, text = kernel_texts([te.create_prim_func([*tensors, product])])
    type_ = C_TYPES[dtype]
    main = (
        f"int main(void)\n{{\n    const {type_} largest = ({type_})-1;\n    {type_} result;\n"
        "    kernel0(&largest, &largest, &result);\n    return result == 1 ? 0 : 1;\n}\n"
    )
    source, program = tmp_path / "main.c", tmp_path / "main"
    source.write_text(PRELUDE + text + main, encoding="utf-8")
    cc("clang", *STRICT, "-fsanitize=undefined", "-fno-sanitize-recover", source, "-o", program)
    result = subprocess.run([program], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("operation", ["floordiv", "floormod"])
def test_floor_division_by_a_variable(
    dtype: str, operation: str, elementwise: Callable[..., Array]
) -> None:
    x, y = integers(dtype, *LEFT), integers(dtype, *RIGHT)
    wanted = np.floor_divide(x, y) if operation == "floordiv" else np.mod(x, y)
    np.testing.assert_array_equal(elementwise(getattr(tirx, operation), x, y), wanted)


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_floor_division_of_unsigned_integers(dtype: str, elementwise: Callable[..., Array]) -> None:
    x, y = integers(dtype, *LEFT), integers(dtype, *POSITIVE)
    quotient, remainder = (elementwise(f, x, y) for f in (tirx.floordiv, tirx.floormod))
    np.testing.assert_array_equal(quotient, x // y)
    np.testing.assert_array_equal(remainder, x % y)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
@pytest.mark.parametrize("divisor", [1, 2, 3, 4, 7, 8, -3])
def test_floor_division_by_a_constant(
    dtype: str, divisor: int, elementwise: Callable[..., Array]
) -> None:
    x = integers(dtype, *LEFT)
    constant = tirx.const(divisor, dtype)
    quotient = elementwise(lambda v: tirx.floordiv(v, constant), x)
    total = elementwise(lambda v: v + tirx.floormod(v, constant), x)
    np.testing.assert_array_equal(quotient, x // divisor)
    np.testing.assert_array_equal(total, (x + np.mod(x, divisor)).astype(dtype))


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_truncating_division(dtype: str, elementwise: Callable[..., Array]) -> None:
    x, y = integers(dtype, *LEFT), integers(dtype, *RIGHT)
    quotient, remainder = (elementwise(f, x, y) for f in (tirx.truncdiv, tirx.truncmod))
    wanted = np.trunc(x / y).astype(dtype)
    np.testing.assert_array_equal(quotient, wanted)
    np.testing.assert_array_equal(remainder, x - wanted * y)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_shifts(dtype: str, elementwise: Callable[..., Array]) -> None:
    x, amount = integers(dtype, *LEFT), integers(dtype, 0, 1, 3, 4, 2, 7, 5, 1, 6)
    left = elementwise(lambda v, n: v << n, x, amount)
    right = elementwise(lambda v, n: v >> n, x, amount)
    np.testing.assert_array_equal(left, x << amount)
    np.testing.assert_array_equal(right, x >> amount)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_bitwise_operations(dtype: str, elementwise: Callable[..., Array]) -> None:
    x, y = integers(dtype, *LEFT), integers(dtype, *RIGHT)
    answer = elementwise(lambda v, w: (v & w) | (v ^ w) + ~v, x, y)
    np.testing.assert_array_equal(answer, (x & y) | ((x ^ y) + ~x))


@pytest.mark.parametrize("dtype", [*INTEGERS, "float32", "float64"])
def test_minimum_maximum_and_magnitude(dtype: str, elementwise: Callable[..., Array]) -> None:
    x, y = (integers("int8", *values).astype(dtype) for values in (LEFT[:7], RIGHT[:7]))
    answer = elementwise(lambda v, w: tirx.max(v, w) - tirx.min(v, tirx.abs(w)), x, y)
    np.testing.assert_array_equal(answer, np.maximum(x, y) - np.minimum(x, np.abs(y)))


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_a_comparison_that_always_holds_compiles_without_a_warning(
    dtype: str, elementwise: Callable[..., Array]
) -> None:
    x, zero = integers(dtype, 0, 1, 200), tirx.const(0, dtype)
    answer = elementwise(lambda v: tirx.Select(v >= zero, v, zero), x)
    np.testing.assert_array_equal(answer, x)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (source, target)
        for source in ("int8", "uint32", "int64", "bool", "float32", "float64")
        for target in ("int8", "uint8", "int32", "int64", "float32", "float64", "bool")
        if source != target
    ],
)
def test_casts(source: str, target: str, elementwise: Callable[..., Array]) -> None:
    x = integers(source, -128, -1, 0, 1, 5, 127)
    if source.startswith("float"):
        # Fractions are cut off; a negative float has no unsigned value.
        x = (np.abs(x) if target == "uint8" else x) + x.dtype.type(0.25) * np.sign(x)
    answer = elementwise(lambda v: v.astype(target), x)
    np.testing.assert_array_equal(answer, x.astype(target))


def test_select_and_if_then_else_nest(elementwise: Callable[..., Array]) -> None:
    x, y = integers("int32", *LEFT), integers("int32", *RIGHT)
    inner = elementwise(
        lambda v, w: tirx.if_then_else(
            v > w, v - (w - v), tirx.Select(tirx.Select(v < 0, v, w) == w, v * (w + 1), -w)
        ),
        x,
        y,
    )
    wanted = np.where(x > y, x - (y - x), np.where(np.where(x < 0, x, y) == y, x * (y + 1), -y))
    np.testing.assert_array_equal(inner, wanted)


def test_if_then_else_guards_what_it_reads(elementwise: Callable[..., Array]) -> None:
    x, y = integers("int32", 6, 7, 8), integers("int32", 2, 0, 3)
    answer = elementwise(lambda v, w: tirx.if_then_else(w != 0, tirx.truncdiv(v, w), -1), x, y)
    np.testing.assert_array_equal(answer, [3, -1, 2])


Truth = Callable[[Any, Any], Any]
CONDITIONS: dict[str, tuple[Truth, Truth]] = {
    "and in or": (
        lambda v, w: tirx.any(tirx.all(v > w, v > 0), w == 2),
        lambda v, w: ((v > w) & (v > 0)) | (w == 2),
    ),
    "or in and": (
        lambda v, w: tirx.all(tirx.any(v > w, v > 0), w == 2),
        lambda v, w: ((v > w) | (v > 0)) & (w == 2),
    ),
    "not": (
        lambda v, w: tirx.Not(tirx.all(v > w, tirx.Not(w > 0))),
        lambda v, w: ~((v > w) & ~(w > 0)),
    ),
    "equal truths": (lambda v, w: tirx.EQ(v > w, w > 0), lambda v, w: (v > w) == (w > 0)),
    "unequal truths": (lambda v, w: tirx.NE(v == w, w == 2), lambda v, w: (v == w) != (w == 2)),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_conditions(name: str, elementwise: Callable[..., Array]) -> None:
    x, y = integers("int32", *LEFT, 2, 2), integers("int32", *RIGHT, 2, 1)
    condition, wanted = CONDITIONS[name]
    answer = elementwise(lambda v, w: tirx.Select(condition(v, w), v, w - 1), x, y)
    np.testing.assert_array_equal(answer, np.where(wanted(x, y), x, y - 1))


TRUTHS: dict[str, tuple[Truth, Truth]] = {
    "and": (tirx.all, np.logical_and),
    "or": (tirx.any, np.logical_or),
    "not": (lambda v, w: tirx.all(tirx.Not(v), w), lambda v, w: ~v & w),
    "bitwise and": (tirx.bitwise_and, np.bitwise_and),
    "bitwise xor": (tirx.bitwise_xor, np.bitwise_xor),
    "bitwise not": (lambda v, w: tirx.all(tirx.bitwise_not(v), w), lambda v, w: ~v & w),
    "maximum": (tirx.max, np.maximum),
    "equal to a negation": (lambda v, w: tirx.EQ(tirx.Not(v), w), lambda v, w: ~v == w),
}


@pytest.mark.parametrize("name", TRUTHS)
def test_truth_values(name: str, elementwise: Callable[..., Array]) -> None:
    x, y = np.array([True, True, False, False]), np.array([True, False, True, False])
    expression, wanted = TRUTHS[name]
    np.testing.assert_array_equal(elementwise(expression, x, y), wanted(x, y))


Formula = Callable[[Any, Any, Any], Any]
"""An expression over (library, v, w): of TIR with `tirx`, of values with `np`."""


def in_tir(library: Any, in_tir_name: str, in_numpy_name: str) -> Any:
    return getattr(library, in_tir_name if library is tirx else in_numpy_name)


def literal(library: Any, value: int, dtype: str) -> Any:
    return tirx.const(value, dtype) if library is tirx else np.asarray(value).astype(dtype)


def formula(random: np.random.Generator, dtype: str, depth: int = 4) -> Formula:
    """A random integer expression whose values are defined in every integer type."""
    if depth == 0:
        return [lambda lib, v, w: v, lambda lib, v, w: w][random.integers(2)]
    a, b = formula(random, dtype, depth - 1), formula(random, dtype, depth - 1)
    number = int(random.integers(1, 9))
    compare = [operator.lt, operator.le, operator.eq, operator.ne, operator.ge]
    less, same = compare[random.integers(5)], compare[random.integers(5)]

    def small(part: Formula) -> Formula:
        """Small enough for the product of two to fit; TIR leaves overflow of int32 undefined."""
        return lambda lib, v, w: part(lib, v, w) & literal(lib, 15, dtype)

    def choose(lib: Any, v: Any, w: Any) -> Any:
        x, y = a(lib, v, w), b(lib, v, w)
        pick, both = in_tir(lib, "Select", "where"), in_tir(lib, "any", "logical_or")
        return pick(both(less(x, y), same(y, literal(lib, number, dtype))), x, y)

    kinds: list[Formula] = [
        choose,
        lambda lib, v, w: small(a)(lib, v, w) + small(b)(lib, v, w),
        lambda lib, v, w: small(a)(lib, v, w) * small(b)(lib, v, w) & literal(lib, 127, dtype),
        lambda lib, v, w: a(lib, v, w) ^ b(lib, v, w) & literal(lib, number, dtype),
        lambda lib, v, w: a(lib, v, w) | ~b(lib, v, w),
        lambda lib, v, w: a(lib, v, w) >> literal(lib, number % 7, dtype),
        lambda lib, v, w: small(a)(lib, v, w) << literal(lib, number % 4, dtype),
        lambda lib, v, w: in_tir(lib, "max", "maximum")(a(lib, v, w), b(lib, v, w)),
        lambda lib, v, w: in_tir(lib, "floordiv", "floor_divide")(
            a(lib, v, w), literal(lib, number, dtype)
        ),
        lambda lib, v, w: in_tir(lib, "floormod", "mod")(a(lib, v, w), literal(lib, number, dtype)),
        lambda lib, v, w: a(lib, v, w).astype("int8").astype(dtype),
    ]
    return kinds[random.integers(len(kinds))]


def at(expression: Formula, x: Any, y: Any) -> Callable[[Any], Any]:
    """The expression of two tensors at a place."""

    def element(i: Any) -> Any:
        return expression(tirx, x[i], y[i])

    return element


@pytest.mark.parametrize("dtype", INTEGERS)
def test_random_expressions_agree_with_numpy(
    dtype: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Precedences, casts and helpers in all combinations; all kernels are compiled at once."""
    random = np.random.default_rng(INTEGERS.index(dtype))
    v, w = integers(dtype, *LEFT), integers(dtype, *RIGHT)
    texts, wanted, helpers = [], [], set()
    for number in range(16):
        expression = formula(random, dtype)
        x, y = (te.placeholder(v.shape, dtype, name) for name in "vw")
        result = te.compute(v.shape, at(expression, x, y))
        name = f"kernel{number}"
        lowered = lower_prim_func(name, te.create_prim_func([x, y, result]), None)
        source = print_kernel(make_kernel(name, "cpu", lowered, 1))
        texts.append(source.definition(name).removeprefix("static "))
        helpers |= source.helpers
        wanted.append(np.asarray(expression(np, v, w)).astype(dtype))
    text = PRELUDE + "".join(map(helper_definition, sorted(helpers))) + "".join(texts)
    (tmp_path / "source.c").write_text(text, encoding="utf-8")
    flags = ["-std=c99", "-O1", "-fsanitize=undefined", "-shared", "-fPIC", *LINKER]
    cc("cc", *flags, tmp_path / "source.c", "-o", tmp_path / "source.so", "-lm")
    library = ctypes.CDLL(str(tmp_path / "source.so"))
    for number, values in enumerate(wanted):
        answer = np.zeros_like(values)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (v, w, answer)]
        getattr(library, f"kernel{number}")(*pointers)
        np.testing.assert_array_equal(answer, values, err_msg=texts[number])
    assert "runtime error" not in capfd.readouterr().err


ANY = (-2.5, -1.5, -0.5, -0.25, 0.0, 0.3, 0.5, 1.5, 2.5, 3.7)
SMALL = tuple(value / 4 for value in ANY)
GREATER = tuple(abs(value) + 1.125 for value in ANY)
FUNCTIONS: dict[str, tuple[Sequence[float], Callable[[Array], Array]]] = {
    "exp": (ANY, np.exp),
    "exp2": (ANY, np.exp2),
    "log": (GREATER, np.log),
    "log2": (GREATER, np.log2),
    "log10": (GREATER, np.log10),
    "log1p": (GREATER, np.log1p),
    "sqrt": (GREATER, np.sqrt),
    "rsqrt": (GREATER, lambda x: 1 / np.sqrt(x)),
    "sigmoid": (ANY, lambda x: 1 / (1 + np.exp(-x))),
    "erf": (ANY, erf),
    "sin": (ANY, np.sin),
    "cos": (ANY, np.cos),
    "tan": (SMALL, np.tan),
    "asin": (SMALL, np.arcsin),
    "acos": (SMALL, np.arccos),
    "atan": (ANY, np.arctan),
    "sinh": (ANY, np.sinh),
    "cosh": (ANY, np.cosh),
    "tanh": (ANY, np.tanh),
    "asinh": (ANY, np.arcsinh),
    "acosh": (GREATER, np.arccosh),
    "atanh": (SMALL, np.arctanh),
    "floor": (ANY, np.floor),
    "ceil": (ANY, np.ceil),
    "trunc": (ANY, np.trunc),
    "round": (ANY, np.round),
    "nearbyint": (ANY, np.round),
    "abs": (ANY, np.abs),
}
TOLERANCE = {"float32": 2e-6, "float64": 1e-13}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_math_h(name: str, dtype: str, elementwise: Callable[..., Array]) -> None:
    values, wanted = FUNCTIONS[name]
    x = np.array(values, dtype)
    answer = elementwise(getattr(tirx, name), x)
    tolerance = TOLERANCE[dtype]
    np.testing.assert_allclose(answer, wanted(x), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("name", "wanted"),
    [("pow", np.power), ("atan2", np.arctan2), ("copysign", np.copysign), ("fmod", np.fmod)],
)
def test_functions_of_two_arguments(
    name: str, wanted: Any, dtype: str, elementwise: Callable[..., Array]
) -> None:
    x, y = np.array(GREATER, dtype), np.array(ANY[::-1], dtype) + np.dtype(dtype).type(0.01)
    np.testing.assert_allclose(
        elementwise(getattr(tirx, name), x, y), wanted(x, y), rtol=TOLERANCE[dtype] * 4
    )


@pytest.mark.parametrize("name", ["isnan", "isinf", "isfinite"])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_classes_of_floats(name: str, dtype: str, elementwise: Callable[..., Array]) -> None:
    x = np.array([1, -0.0, math.nan, math.inf, -math.inf], dtype)
    np.testing.assert_array_equal(elementwise(getattr(tirx, name), x), getattr(np, name)(x))


def test_float_division_and_order_of_operations(elementwise: Callable[..., Array]) -> None:
    x, y = np.array(GREATER), np.array(ANY)
    answer = elementwise(lambda v, w: v - (w - v) / (v * (w + 7.0)) - (v - w), x, y)
    np.testing.assert_array_equal(answer, x - (y - x) / (x * (y + 7.0)) - (x - y))


@pytest.mark.parametrize("name", ["expf", "exp", "NAN", "INFINITY", "int32_t", "maximum_float32"])
@pytest.mark.parametrize("part", ["loop", "scratch"])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_names_in_tir_do_not_hide_names_of_c(
    name: str, part: str, dtype: str, tmp_path: Path
) -> None:
    x = np.array([1, 2, 3, 4], dtype)
    tensor, zero = te.placeholder(x.shape, dtype, "x"), tirx.const(0, dtype)
    k = te.reduce_axis((0, 4), name=name if part == "loop" else "k")
    total_name = name if part == "scratch" else "total"
    total = te.compute((1,), lambda i: te.sum(te.exp(tensor[k]), axis=k), name=total_name)
    infinity = tirx.const(math.inf, dtype)
    result = te.compute(
        x.shape,
        lambda i: tirx.Select(
            tensor[i] < infinity, tirx.max(te.exp(tensor[i]) / total[0], zero), infinity
        ),
    )
    (run,) = compiled([te.create_prim_func([tensor, result])], tmp_path)
    answer = run(x)
    np.testing.assert_allclose(answer, np.exp(x) / np.exp(x).sum(), rtol=1e-6)


def test_an_input_that_is_not_read_compiles_without_a_warning(
    elementwise: Callable[..., Array],
) -> None:
    x, y = integers("int32", 1, 2), integers("int32", 3, 4)
    np.testing.assert_array_equal(elementwise(lambda v, w: v, x, y), x)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (lambda v: tirx.exp10(v), "TIR intrinsic exp10 cannot become C"),
        (lambda v: v.astype("float16"), "dtype float16 has no C99 type"),
        (lambda v: tirx.popcount(v.astype("int32")), "popcount"),
    ],
)
def test_what_has_no_c_form_is_refused(expression: Any, message: str) -> None:
    tensor = te.placeholder((2,), "float32", "x")
    function = te.create_prim_func([tensor, te.compute((2,), lambda i: expression(tensor[i]))])
    with pytest.raises(LoweringError, match=message):
        kernel_texts([function])


# --- whole models with unusual content ----------------------------------------------------------


def relax_model(build: Callable[..., Any], /, **inputs: tuple[tuple[int, ...], str]) -> Any:
    """A Relax module of one expression over its inputs."""
    builder = relax.BlockBuilder()
    variables = [relax.Var(name, relax.TensorType(*type_)) for name, type_ in inputs.items()]
    with builder.function("main", variables):
        with builder.dataflow():
            result = builder.emit_output(build(*variables))
        builder.emit_func_output(result)
    return builder.get()


def assert_compiles_clean(library: Path, compilers: Sequence[str] = tuple(COMPILERS)) -> None:
    """As a user would do it: all C files at once, without any search path."""
    folder = library / "codegen" / "host" / "src"
    sources = sorted(path.name for path in folder.glob("*.c"))
    for compiler in compilers:
        cc(compiler, *STRICT, "-c", *sources, cwd=folder)
        cc(compiler, *STRICT, "-c", *(library / "runtime").resolve().glob("*.c"), cwd=folder)


FLOATS, TRUTH, BYTES = ((2, 4), "float32"), ((2, 4), "bool"), ((2, 4), "uint8")
MODELS: dict[str, tuple[Callable[..., Any], list[tuple[tuple[int, ...], str]]]] = {
    "argmax": (lambda x: relax.op.argmax(x, axis=1), [FLOATS]),
    "logic": (
        lambda x, y: relax.op.logical_or(
            relax.op.logical_and(relax.op.less(x, y), relax.op.greater(x, relax.const(0.0))),
            relax.op.equal(x, y),
        ),
        [FLOATS, FLOATS],
    ),
    "equal truths": (
        lambda x, y: relax.op.equal(relax.op.less(x, y), relax.op.greater(y, relax.const(0.0))),
        [FLOATS, FLOATS],
    ),
    "bitwise not": (lambda x: relax.op.bitwise_not(x), [TRUTH]),
    "unsigned comparison": (
        lambda x: relax.op.greater_equal(x, relax.const(0, "uint8")),
        [BYTES],
    ),
    "unsigned complement": (
        lambda x, y: relax.op.less(relax.op.bitwise_not(x), y),
        [BYTES, BYTES],
    ),
    "full_like": (lambda x: relax.op.full_like(x, relax.const(3.0)), [FLOATS]),
    "floor_divide": (
        lambda x, y: relax.op.floor_divide(x, y),
        [((2, 4), "int64"), ((2, 4), "int64")],
    ),
    "float mod": (lambda x, y: relax.op.mod(x, y), [FLOATS, FLOATS]),
    "large constant": (
        lambda x: relax.op.matmul(x, relax.const(np.ones((4, 5000), "float32"))),
        [FLOATS],
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_compiles_without_a_warning(name: str, tmp_path: Path) -> None:
    build, types = MODELS[name]
    module = relax_model(build, **{f"x{number}": type_ for number, type_ in enumerate(types)})
    assert_compiles_clean(compile_model(module, [], tmp_path / "library").path)


@pytest.mark.parametrize(
    "name",
    [
        *("memcpy", "NAN", "INFINITY", "Workspace", "workspace", "uintptr_t", "int32_t", "expf"),
        *("NULL", "restrict", "arena", "status", "inputs", "input.1", "1x", "x y", "größe", "*/"),
        *("printf", "argv", "tvmgen_default_run", "totals", "EOF"),
    ],
)
def test_any_name_of_an_input_becomes_valid_c(name: str, tmp_path: Path) -> None:
    types = {name: FLOATS, "other": FLOATS}

    def build(x: Any, other: Any) -> Any:
        return relax.Tuple([x, relax.op.nn.relu(other)])

    library = compile_model(relax_model(build, **types), [], tmp_path / "library")
    assert library.metadata["umakit"]["inputs"][0]["name"] == name
    assert_compiles_clean(library.path, ["cc"])


def test_names_that_differ_in_case_only_become_valid_c(tmp_path: Path) -> None:
    module = relax_model(
        lambda a, b: relax.op.add(a, relax.op.sum(b)), x=FLOATS, X=((3,), "float32")
    )
    assert_compiles_clean(compile_model(module, [], tmp_path / "library").path)


@pytest.mark.parametrize(
    "label", ["/*", "*/", "/conv/*x*/", "a\\", "line\nbreak", "??/", '"', "%d"]
)
def test_any_name_of_an_operator_becomes_valid_c(label: str, tmp_path: Path) -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(*FLOATS))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(relax.op.nn.relu(x), label)
        builder.emit_func_output(result)
    library = compile_model(builder.get(), [], tmp_path / "library")
    assert [layer["name"] for layer in library.metadata["umakit"]["layers"]] == [label]
    assert_compiles_clean(library.path)


# --- the export of a real network ---------------------------------------------------------------


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Library:
    folder = tmp_path_factory.mktemp("exported") / "library"
    return compile_model(EXAMPLES / "digits.onnx", [find_backend("vanilla_accelerator")], folder)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_the_export_compiles_clean_without_search_paths(
    digits: Library, compiler: str, tmp_path: Path
) -> None:
    copy = tmp_path / "moved"
    shutil.copytree(digits.path, copy)
    assert_compiles_clean(copy, [compiler])


@pytest.mark.skipif("clang" not in COMPILERS, reason="needs clang")
def test_the_export_is_clean_of_extensions_and_of_c11(digits: Library, tmp_path: Path) -> None:
    sources = sorted((digits.path / "codegen" / "host" / "src").rglob("*.c"))
    flags = ["-Weverything", "-Wno-padded", "-Wno-declaration-after-statement"]
    wanted = ["-Werror=c11-extensions", "-Werror=gnu", "-Werror=strict-prototypes"]
    for source in sources:
        command = ["clang", "-std=c99", *flags, *wanted, "-c", source, "-o", tmp_path / "out.o"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_the_header_is_usable_from_cpp(digits: Library, tmp_path: Path) -> None:
    source = tmp_path / "use.cpp"
    header = digits.path / "codegen" / "host" / "include" / "tvmgen_digits.h"
    source.write_text(f'#include "{header}"\nint main() {{ return tvmgen_digits_run(0, 0); }}\n')
    cc("g++", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-c", source, "-o", tmp_path / "use.o")


MATH = "exp log sqrt tanh erf pow floor ceil nearbyint fabs".split()
ALLOWED = {"memcpy", "memset", *MATH, *(f"{name}f" for name in MATH)}


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """A network of operators that need the C library: math, copies, tables of constants."""
    op = relax.op
    module = relax_model(
        lambda x: relax.Tuple(
            [op.nn.softmax(x), op.nn.gelu(op.sigmoid(op.tanh(x))), op.round(op.sqrt(op.exp(x))), x]
        ),
        x=FLOATS,
    )
    return compile_model(module, [], tmp_path_factory.mktemp("functions") / "library", name="fun")


@pytest.mark.parametrize("optimization", ["-O0", "-O3"])
@pytest.mark.parametrize("network", ["digits", "functions"])
def test_objects_need_only_memcpy_memset_and_math(
    network: str, optimization: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    library: Library = request.getfixturevalue(network)
    sources = sorted((library.path / "codegen" / "host" / "src").rglob("*.c"))
    cc("cc", "-std=c99", optimization, "-c", *sources, cwd=tmp_path)
    objects = sorted(tmp_path.glob("*.o"))
    assert len(objects) == len(sources)
    undefined, defined = symbols(objects, "-u"), symbols(objects, "--defined-only")
    outside = {name for name in undefined - defined if not name.startswith("_GLOBAL_OFFSET")}
    assert outside <= ALLOWED
    prefixes = (library.metadata["umakit"]["interface"], "umakit_", "vanilla_accelerator_")
    assert all(name.startswith(prefixes) for name in symbols(objects, "-g", "--defined-only"))
    assert not any(re.search("tvm(?!gen_)", name, re.IGNORECASE) for name in undefined | defined)


def symbols(objects: Sequence[Path], *flags: str) -> set[str]:
    listing = subprocess.run(["nm", *flags, *objects], capture_output=True, text=True, check=True)
    return {line.split()[-1] for line in listing.stdout.splitlines() if " " in line}


def test_the_export_names_no_place_and_no_person(digits: Library) -> None:
    places = [str(digits.path), str(digits.path.parent), str(EXAMPLES), str(Path.home()), "/tmp/"]
    for path in digits.path.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert not [place for place in places if place.encode() in data], path


@pytest.mark.parametrize("flags", [(), ("-DTVMGEN_DIGITS_PROFILE",)], ids=["plain", "profile"])
def test_the_export_runs_without_memory_errors_or_undefined_behaviour(
    digits: Library, flags: tuple[str, ...], tmp_path: Path
) -> None:
    arrays = select_inputs(digits.path, load_inputs(EXAMPLES / "held_out.npz"))
    inputs, outputs, program = tmp_path / "in", tmp_path / "out", tmp_path / "program"
    inputs.write_bytes(arrays["image"][:20].tobytes())
    sources = sorted((digits.path / "codegen" / "host" / "src").rglob("*.c"))
    sanitize = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1", *LINKER]
    runtime = (digits.path / "runtime").glob("*.c")
    cc("cc", *STRICT, *sanitize, *flags, *sources, *runtime, "-o", program, "-lm")
    command = [program, inputs, outputs, "20", "2"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    labels = load_inputs(EXAMPLES / "held_out.npz")["label"][:20]
    logits = np.frombuffer(outputs.read_bytes(), "float32").reshape(20, 10)
    assert (logits.argmax(axis=1) == labels).mean() > 0.9
