# SPDX-License-Identifier: Apache-2.0
"""Positions whose range ends one place outside of a tensor, in kernels written by hand.

Plain Python says which positions a kernel uses. A run that would use one outside of the tensor ends
with a status, any other has NumPy's result, and sanitizers see no access outside of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from test_index_checks import build, runs

import umakit
from umakit import tvm_api

relax, tirx = tvm_api.relax, tvm_api.tirx

SIZE = 4
"""Elements of the tensor that is read, and of the result."""

DATA = np.arange(1, SIZE + 1, dtype="float32")
INDICES = (*range(-9, 10), -(2**31), 2**31 - 1)


@dataclass(frozen=True)
class Kernel:
    """A kernel that reads or writes at positions computed of one int32.

    Attributes:
        name: of the kernel.
        limits: least and largest position that any index gives.
        position: from the index and the number of the result's element to an expression of TIR.
        right: the same in Python's integers, None where nothing is read.
        condition: from the index to a bool expression, under which there is an access at all.
        table: constant positions, of which the kernel reads one.
        through: what is between the index and the access.
    """

    name: str
    limits: tuple[int, int]
    position: Callable[..., Any]
    right: Callable[[int, int], int | None]
    condition: Callable[[Any], Any] | None = None
    table: tuple[int, ...] = ()
    through: str = ""

    def positions(self, index: int) -> list[int | None]:
        """Where each element of the result is read from or written to."""
        return [self.right(index, n) for n in range(SIZE)]

    def is_inside(self, index: int) -> bool:
        return all(place is None or 0 <= place < SIZE for place in self.positions(index))

    def expected(self, index: int) -> Any:
        """The result for an index that gives positions inside."""
        result = np.zeros(SIZE, "float32")
        for n, place in enumerate(self.positions(index)):
            if place is not None:
                source, target = (n, place) if self.through == "store" else (place, n)
                result[target] = DATA[source]
        return result

    def function(self) -> Any:
        """The kernel as TIR."""
        data, i, result = (
            tirx.decl_buffer([size], dtype, name)
            for name, size, dtype in (
                ("data", SIZE, "float32"), ("i", 1, "int32"), ("result", SIZE, "float32"),
            )
        )  # fmt: skip
        table = tirx.decl_buffer([len(self.table)], "int32", "table") if self.table else None
        zero, n = tirx.IntImm("int32", 0), tirx.Var("n", "int32")
        clear = tirx.Var("m", "int32")
        position = self.position(i[zero], n) if table is None else table[self.position(i[zero], n)]
        before: list[Any] = []
        if self.through == "variable":
            variable = tirx.Var("position", "int32")
            before, position = [tirx.Bind(variable, position)], variable
        if self.through == "scratch":
            scratch = tirx.decl_buffer([1], "int32", "scratch")
            before = [tirx.AllocBuffer(scratch), tirx.BufferStore(scratch, position, [zero])]
            position = scratch[zero]
        source, target = (n, position) if self.through == "store" else (position, n)
        access: Any = tirx.BufferStore(result, data[source], [target])
        if self.condition is not None:
            access = tirx.IfThenElse(self.condition(i[zero]), access, None)
        steps = [*before, access]
        body = tirx.SeqStmt(
            [
                over(clear, tirx.BufferStore(result, tirx.FloatImm("float32", 0.0), [clear])),
                over(n, tirx.SeqStmt(steps) if before else access),
            ]
        )
        parameters = [data, i, *([] if table is None else [table]), result]
        return tirx.PrimFunc(parameters, body)


def over(variable: Any, body: Any) -> Any:
    """A loop over the elements of the result."""
    zero, end = (tirx.IntImm("int32", value) for value in (0, SIZE))
    return tirx.For(variable, zero, end, tirx.ForKind.SERIAL, body)


def clamp(low: int, high: int) -> tuple[Callable[..., Any], Callable[[int, int], int]]:
    """An index clamped to limits, as TIR and in Python."""
    return (
        lambda i, n: tirx.max(tirx.min(i, high), low),
        lambda i, n: max(min(i, high), low),
    )


def kernels() -> list[Kernel]:
    """One place below the tensor, and one behind it, in each way that limits come about."""
    found = []
    for side, low, high in (("below", -1, 3), ("behind", 0, 4)):
        limits = (low, high)
        for through in ("", "store", "variable", "scratch"):
            found.append(
                Kernel(f"clamped_{through or 'load'}_{side}", limits, *clamp(*limits),
                       through=through)
            )  # fmt: skip
        found += [
            Kernel(
                f"condition_{side}", limits, lambda i, n: i,
                lambda i, n, low=low, high=high: i if low <= i <= high else None,
                lambda i, low=low, high=high: tirx.all(i >= low, i < high + 1),
            ),
            Kernel(
                f"selected_{side}", limits,
                lambda i, n, low=low, high=high: tirx.Select(
                    tirx.all(i > low - 1, i <= high), i, 0
                ),
                lambda i, n, low=low, high=high: i if low <= i <= high else 0,
            ),
            Kernel(
                f"remainder_{side}", limits,
                lambda i, n, low=low: tirx.floormod(i, 5) + low,
                lambda i, n, low=low: i % 5 + low,
            ),
            Kernel(
                f"bits_{side}", (low, low + 3) if low else (1, 4),
                lambda i, n, low=low: (i & 3) + (low or 1),
                lambda i, n, low=low: (i & 3) + (low or 1),
            ),
            Kernel(
                f"loop_{side}", limits,
                lambda i, n, low=low: n + (i & 1) if low == 0 else n - (i & 1),
                lambda i, n, low=low: n + (i & 1) if low == 0 else n - (i & 1),
            ),
            Kernel(
                f"table_{side}", limits,
                lambda i, n, low=low: (i - low) & 1,  # not the same function for both sides
                lambda i, n, low=low, high=high: (high, low)[(i - low) & 1],
                table=(high, low),
            ),
        ]  # fmt: skip
    found += [
        Kernel("sign_below", (-1, 0), lambda i, n: i >> 31, lambda i, n: i >> 31),
        Kernel("sign_behind", (3, 4), lambda i, n: (i >> 31) + 4, lambda i, n: (i >> 31) + 4),
        Kernel("inside", (0, 3), *clamp(0, 3)),
    ]
    return found


KERNELS = kernels()


def network() -> Any:
    """All kernels beside each other, each with an index of its own."""
    builder = relax.BlockBuilder()
    data = relax.Var("data", tvm_api.tensor_type((SIZE,), "float32"))
    indices = [relax.Var(f"index_{k.name}", tvm_api.tensor_type((1,), "int32")) for k in KERNELS]
    results = []
    with builder.function("main", [data, *indices]):
        with builder.dataflow():
            for kernel, index in zip(KERNELS, indices, strict=True):
                operands = [data, index]
                if kernel.table:
                    operands.append(relax.const(np.array(kernel.table, "int32")))
                variable = builder.add_func(kernel.function(), kernel.name)
                call = relax.call_tir(
                    variable, relax.Tuple(operands), tvm_api.tensor_type((SIZE,), "float32")
                )
                results.append(builder.emit(call, f"{kernel.name}_result"))
            output = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(output)
    return builder.get()


def test_the_kernels_are_what_they_say() -> None:
    for kernel in KERNELS:
        places = [p for i in INDICES for p in kernel.positions(i) if p is not None]
        assert (min(places), max(places)) == kernel.limits, kernel.name


def test_one_place_outside_of_a_tensor_is_never_used(tmp_path: Path) -> None:
    library = umakit.compile_model(network(), [], tmp_path / "library", name="net")
    program = build(library.path, library.metadata["umakit"])
    fine = [next(i for i in INDICES if kernel.is_inside(i)) for kernel in KERNELS]
    cases = [(number, index) for number in range(len(KERNELS)) for index in INDICES]
    inferences = []
    for number, index in cases:
        chosen = [*fine[:number], index, *fine[number + 1 :]]
        inferences.append([DATA, *(np.array([each], "int32") for each in chosen)])
    lines, printed = runs(program, inferences)
    results = iter(np.frombuffer(printed, "float32").reshape(-1, len(KERNELS), SIZE))
    for (number, index), line in zip(cases, lines, strict=True):
        kernel = KERNELS[number]
        if kernel.is_inside(index):
            assert line == "0 ok", (kernel.name, index)
            np.testing.assert_array_equal(next(results)[number], kernel.expected(index))
        else:
            assert line.endswith("an index is out of range"), (kernel.name, index, line)
            assert f"({kernel.name})" in line, line
    assert next(results, None) is None
