# SPDX-License-Identifier: Apache-2.0
"""Ranges of a kernel's integers hold, and the C that relies on them has no undefined behaviour."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from comparisons import LINKER, examples
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tir_integers import INPUTS, SIZE, Interpreter, data_of, prim_funcs

from umakit import ExportOptions, compile_model, tvm_api
from umakit.codegen.helpers import helper_definition
from umakit.codegen.integer_ranges import ARITHMETIC, IntegerRanges, kernel_ranges
from umakit.codegen.kernel_source import print_kernel
from umakit.codegen.signed_sums import with_signed_sums
from umakit.lower.index_ranges import Elements
from umakit.lower.kernels import Kernel, make_kernel
from umakit.operators.kernels import loops

tirx = tvm_api.tirx
Array = npt.NDArray[Any]
DIGITS = Path(__file__).parents[1] / "examples" / "digits"
PRELUDE = "#include <stdbool.h>\n#include <stdint.h>\n"
FLAGS = ("-std=c99", "-O3", "-shared", "-fPIC")


def interpreted(
    kernel: Kernel, data: dict[str, list[int]], observe: Callable[[Any, int], None]
) -> list[int]:
    """What a kernel computes in Python's integers."""
    memory = {p.variable: list(data[p.variable.name]) for p in kernel.inputs}
    output = kernel.outputs[0].variable
    memory[output] = [0] * SIZE
    run = Interpreter(memory, observe)
    for statement in kernel.statements:
        run.run(statement)
    return memory[output]


def observer(ranges: IntegerRanges) -> Callable[[Any, int], None]:
    """What fails if a value lies outside of the range of its expression."""

    def observe(node: Any, value: int) -> None:
        low, high = ranges.of(node)
        assert low <= value <= high, f"{node} = {value} is not in {low}..{high}"
        if type(node).__name__ in ARITHMETIC:
            assert low == value == high or ranges.overflows(node) or low <= value <= high

    return observe


@settings(examples(60, phases=[Phase.generate]), suppress_health_check=list(HealthCheck))
@given(prim_funcs(), st.integers(0, 2**32 - 1), st.booleans())
def test_every_value_is_in_the_range_of_its_expression(
    function: Any, seed: int, known: bool
) -> None:
    kernel = make_kernel("kernel", "cpu", function, 1)
    random = np.random.default_rng(seed)
    data = data_of(random)
    constants = {
        number: Elements((min(data[p.variable.name]), max(data[p.variable.name])))
        for number, p in enumerate(kernel.inputs)
        if known
    }
    first = interpreted(kernel, data, observer(kernel_ranges(kernel, constants)))
    signed, ranges, _ = with_signed_sums(kernel, constants)
    assert interpreted(signed, data, observer(ranges)) == first
    if not known:
        for _ in range(3):
            data = data_of(random)
            wanted = interpreted(kernel, data, lambda node, value: None)
            assert interpreted(signed, data, observer(ranges)) == wanted


def compiled(kernels: Sequence[Kernel], folder: Path, *flags: str) -> ctypes.CDLL:
    """Kernels as a library of functions `kernel0`, ..."""
    sources = [print_kernel(kernel) for kernel in kernels]
    helpers = {helper for source in sources for helper in source.helpers}
    texts = [source.definition(f"kernel{i}") for i, source in enumerate(sources)]
    text = PRELUDE + "".join(map(helper_definition, sorted(helpers)))
    text += "".join(each.removeprefix("static ") for each in texts)
    (folder / "kernels.c").write_text(text, encoding="utf-8")
    command = ["cc", *flags, folder / "kernels.c", "-o", folder / "kernels.so"]
    subprocess.run([*map(str, command)], check=True)
    return ctypes.CDLL(str(folder / "kernels.so"))


def called(library: ctypes.CDLL, number: int, data: dict[str, list[int]]) -> list[int]:
    output = np.zeros(SIZE, "int64")
    arrays = [np.array(data[name], dtype) for name, dtype in INPUTS.items()]
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*arrays, output)]
    getattr(library, f"kernel{number}")(*pointers)
    return [int(value) for value in output]


def test_the_c_of_drawn_kernels_computes_the_same_without_undefined_behaviour(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Two builds of all kernels: one that reports undefined behaviour, one that is optimized."""
    kernels: list[Kernel] = []

    @settings(examples(24, phases=[Phase.generate]), suppress_health_check=list(HealthCheck))
    @given(prim_funcs())
    def draw(function: Any) -> None:
        kernels.append(make_kernel("kernel", "cpu", function, 1))

    draw()
    random = np.random.default_rng(1)
    for flags in (("-std=c99", "-O1", "-shared", "-fPIC", "-fsanitize=undefined", *LINKER), FLAGS):
        folder = tmp_path / flags[1]
        folder.mkdir()
        library = compiled(kernels, folder, *flags)
        for number, kernel in enumerate(kernels):
            for _ in range(3):
                data = data_of(random)
                wanted = interpreted(kernel, data, lambda node, value: None)
                assert called(library, number, data) == wanted, print_kernel(kernel).body
    assert "runtime error" not in capfd.readouterr().err


# --- how far ranges reach -------------------------------------------------------------------------


def product_sum(turns: int) -> Kernel:
    """`output[0] = bias[0] + data[0] * weights[0] + ...`, as a fully connected layer sums."""
    data, weights = (loops.buffer(name, [turns], "int8") for name in ("data", "weights"))
    bias, output = loops.buffer("bias", [1], "int32"), loops.buffer("output", [1], "int32")
    total, zero = loops.accumulators(1), loops.int32(0)

    def add(i: Any) -> Any:
        element = tirx.Var("element", "int16")
        value = data[i].astype("int16") - tirx.IntImm("int16", -128)
        product = loops.int32(element) * loops.int32(weights[i])
        return loops.sequence(tirx.Bind(element, value), loops.add_to(total, zero, product))

    body = loops.sequence(
        tirx.AllocBuffer(total),
        loops.set_to(total, zero, bias[zero]),
        loops.loop("i", turns, add),
        tirx.BufferStore(output, loops.total_of(total, zero), [zero]),
    )
    function = tvm_api.PrimFunc([data, weights, bias, output], body)
    return make_kernel("kernel", "cpu", function, 1)


@pytest.mark.parametrize(("excess", "signed"), [(0, True), (1, False)])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_is_signed_up_to_the_last_number(
    excess: int, signed: bool, sign: int, tmp_path: Path
) -> None:
    """The largest bias with which a sum of 27 products just fits, and one more."""
    turns = 27
    kernel = product_sum(turns)
    weight, limit = (127, 2**31 - 1) if sign > 0 else (-128, -(2**31))
    bias = limit - turns * 255 * weight + sign * excess
    known = {1: Elements((weight, weight)), 2: Elements((bias, bias))}
    source = print_kernel(kernel, constants=known)
    assert (source.wraps, "sum +=" in source.body) == (not signed, True)
    assert ("uint32_t" in source.body) == (not signed) == ("could overflow" in source.body.lower())
    text = PRELUDE + source.definition("kernel").removeprefix("static ")
    (tmp_path / "kernel.c").write_text(text, encoding="utf-8")
    flags = ("-std=c99", "-O1", "-shared", "-fPIC", "-fsanitize=undefined", *LINKER)
    command = [
        "cc",
        *flags,
        "-fno-sanitize-recover",
        tmp_path / "kernel.c",
        "-o",
        tmp_path / "k.so",
    ]
    subprocess.run([*map(str, command)], check=True)
    arrays = [np.full(turns, 127, "int8"), np.full(turns, weight, "int8"), np.int32([bias])]
    output = np.zeros(1, "int32")
    library = ctypes.CDLL(str(tmp_path / "k.so"))
    library.kernel(*[ctypes.c_void_p(array.ctypes.data) for array in (*arrays, output)])
    with np.errstate(over="ignore"):
        assert output[0] == np.int64(limit + sign * excess).astype("int32")


def test_an_element_of_a_sum_grows_in_its_own_turns_only() -> None:
    """Unrolled sums and sums of a tile; a store that meets an element in all turns counts all."""
    data, output = loops.buffer("data", [64], "int8"), loops.buffer("output", [4], "int32")
    total = tirx.decl_buffer([4], "int32", "sum", scope="local")

    def kernel(index: Callable[[Any, Any, Any], Any]) -> IntegerRanges:
        def add(y: Any, x: Any, i: Any) -> Any:
            return loops.add_to(total, index(y, x, i), loops.int32(data[i]))

        body = loops.sequence(
            tirx.AllocBuffer(total),
            loops.loop("c", 4, lambda c: loops.set_to(total, c, loops.int32(0))),
            loops.loops([("y", 2), ("x", 2), ("i", 64)], add),
            loops.loop("c", 4, lambda c: tirx.BufferStore(output, total[c], [c])),
        )
        function = tvm_api.PrimFunc([data, output], body)
        return kernel_ranges(make_kernel("kernel", "cpu", function, 1))

    element, two = total[loops.int32(0)], loops.int32(2)
    assert kernel(lambda y, x, i: y * two + x).of(element) == (-64 * 128, 64 * 127)
    assert kernel(lambda y, x, i: y + x).of(element) == (-2 * 64 * 128, 2 * 64 * 127)
    assert kernel(lambda y, x, i: loops.int32(3)).of(element) == (-4 * 64 * 128, 4 * 64 * 127)


def test_values_that_depend_on_themselves_stay_in_what_their_stores_keep() -> None:
    data, output = (loops.buffer(name, [64], "int8") for name in ("data", "output"))
    state, zero = tirx.decl_buffer([1], "int32", "state", scope="local"), loops.int32(0)

    def range_of(update: Callable[[Any, Any], Any]) -> tuple[int, int]:
        body = loops.sequence(
            tirx.AllocBuffer(state),
            tirx.BufferStore(state, loops.int32(5), [zero]),
            loops.loop("i", 64, lambda i: tirx.BufferStore(
                state, update(state[zero], loops.int32(data[i])), [zero]
            )),
            tirx.BufferStore(output, state[zero].astype("int8"), [zero]),
        )  # fmt: skip
        function = tvm_api.PrimFunc([data, output], body)
        ranges = kernel_ranges(make_kernel("kernel", "cpu", function, 1))
        return ranges.of(state[zero])

    assert range_of(lambda old, x: tirx.max(old, x)) == (5, 127)
    assert range_of(lambda old, x: tirx.min(old, x)) == (-128, 5)
    assert range_of(lambda old, x: old * loops.int32(2) + x) == (-(2**31), 2**31 - 1)
    assert range_of(lambda old, x: tirx.max(old, old + x)) == (5, 2**31 - 1)


def test_what_a_condition_reads_is_known_from_all_stores() -> None:
    """A store after the condition counts for it too: both may be in a loop."""
    data, output = (loops.buffer(name, [1], "int32") for name in ("data", "output"))
    limit, zero = tirx.decl_buffer([1], "int32", "limit", scope="local"), loops.int32(0)
    value = tirx.Var("value", "int32")
    store = tirx.BufferStore(output, value, [zero])
    body = loops.sequence(
        tirx.AllocBuffer(limit),
        tirx.BufferStore(limit, loops.int32(5), [zero]),
        tirx.Bind(value, data[zero]),
        tirx.IfThenElse(tirx.all(value >= zero, value < limit[zero]), store, None),
        tirx.BufferStore(limit, loops.int32(1000), [zero]),
    )
    function = tvm_api.PrimFunc([data, output], body)
    ranges = kernel_ranges(make_kernel("kernel", "cpu", function, 1))
    assert ranges.of(limit[zero]) == (5, 1000)
    assert ranges.of(output[zero]) == (0, 999)


def test_a_value_that_is_bound_under_two_conditions_is_in_the_range_of_both() -> None:
    data, output = (loops.buffer(name, [1], "int32") for name in ("data", "output"))
    zero = loops.int32(0)
    value, result = tirx.Var("value", "int32"), tirx.Var("result", "int32")
    bind = tirx.Bind(result, value)
    case = loops.sequence(bind, tirx.BufferStore(output, result, [zero]))
    body = loops.sequence(
        tirx.Bind(value, data[zero]),
        tirx.IfThenElse(tirx.all(value >= zero, value < loops.int32(9)), case, None),
        tirx.IfThenElse(tirx.all(value >= loops.int32(-9), value < zero), case, None),
    )
    function = tvm_api.PrimFunc([data, output], body)
    ranges = kernel_ranges(make_kernel("kernel", "cpu", function, 1))
    low, high = ranges.of(result)
    assert low <= -9 and high >= 8


def test_what_a_driver_writes_has_the_range_of_its_dtype() -> None:
    data, output = (loops.buffer(name, [1], "int32") for name in ("data", "output"))
    total, zero = tirx.decl_buffer([1], "int32", "sum", scope="local"), loops.int32(0)

    def kernel(*more: Any) -> IntegerRanges:
        body = loops.sequence(
            tirx.AllocBuffer(total),
            tirx.BufferStore(total, loops.int32(5), [zero]),
            *more,
            tirx.BufferStore(output, total[zero] + data[zero], [zero]),
        )
        function = tvm_api.PrimFunc([data, output], body)
        return kernel_ranges(make_kernel("kernel", "cpu", function, 1))

    assert kernel().of(total[zero]) == (5, 5)
    call = tirx.call_extern("int32", "fill", tirx.address_of(total[zero]))
    assert kernel(tirx.Evaluate(call)).of(total[zero]) == (-(2**31), 2**31 - 1)


def test_constants_that_may_be_exchanged_prove_nothing(tmp_path: Path) -> None:
    """With a blob of weights the code is the same for all weights, so that sums may overflow."""
    texts = {}
    for weights in ("c", "blob"):
        options = ExportOptions(weights=weights)
        library = compile_model(
            DIGITS / "digits_int8.onnx", [], tmp_path / weights, options=options
        )
        path = library.path / "codegen/host/src/tvmgen_digits_int8.c"
        texts[weights] = path.read_text(encoding="utf-8")
    assert "int32_t sum[" in texts["c"] and "uint32_t sum" not in texts["c"]
    assert "uint32_t sum[" in texts["blob"] and "Could overflow" in texts["blob"]
