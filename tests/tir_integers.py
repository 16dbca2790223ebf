# SPDX-License-Identifier: Apache-2.0
"""Drawn integer kernels, and an interpreter of them in Python's integers as the oracle.

The interpreter knows TIR's semantics only: each operation wraps around in its dtype. It tells an
observer the value of every integer expression that it evaluates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from umakit import tvm_api
from umakit.operators.kernels.loops import sequence

tirx = tvm_api.tirx
Array = npt.NDArray[Any]
Observer = Callable[[Any, int], None]

INPUTS = {"a": "int8", "b": "uint8", "c": "int16", "d": "int32", "e": "int64"}
SIZE = 16
"""Elements of each buffer."""

TURNS = 3
EDGES = [0, 1, -1, 2, 3, 5, 7, 31, 127, -128, 255, 32767, -32768, 65536, 2**30, 2**31 - 1, -(2**31)]


def wrapped(value: int, dtype: str) -> int:
    """An integer in a dtype, modulo 2**bits."""
    if dtype == "bool":
        return int(value != 0)
    bits = int(dtype.lstrip("uint"))
    value &= (1 << bits) - 1
    return value - (1 << bits) if not dtype.startswith("u") and value >> (bits - 1) else value


def truncated(left: int, right: int) -> int:
    """A quotient rounded towards 0; 0 for a division by 0."""
    if right == 0:
        return 0
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def shifted_right(value: int, by: int, bits: int) -> int:
    return value >> (by if 0 <= by < bits else bits)


def shifted_left(value: int, by: int, bits: int) -> int:
    return value << by if 0 <= by < bits else 0


ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "Add": lambda a, b: a + b, "Sub": lambda a, b: a - b, "Mul": lambda a, b: a * b,
    "Div": truncated, "Mod": lambda a, b: a - b * truncated(a, b) if b else 0,
    "Min": min, "Max": max,
    "LT": lambda a, b: int(a < b), "LE": lambda a, b: int(a <= b), "GT": lambda a, b: int(a > b),
    "GE": lambda a, b: int(a >= b), "EQ": lambda a, b: int(a == b), "NE": lambda a, b: int(a != b),
    "BitwiseAnd": lambda a, b: a & b, "BitwiseOr": lambda a, b: a | b,
    "BitwiseXor": lambda a, b: a ^ b,
}  # fmt: skip
ARITHMETIC |= {f"bitwise_{n.lower()}": ARITHMETIC[f"Bitwise{n}"] for n in ("And", "Or", "Xor")}


class Interpreter:
    """Runs statements of a kernel on lists of integers.

    Args:
        memory: elements of buffers, by buffer.
        observe: called with each integer expression and its value.
    """

    def __init__(self, memory: dict[Any, list[int]], observe: Observer) -> None:
        self.memory = memory
        self._observe = observe
        self._variables: dict[Any, int] = {}

    def run(self, node: Any) -> None:
        kind = type(node).__name__
        if kind == "SeqStmt":
            for child in node.seq:
                self.run(child)
        elif kind == "For":
            first = self.value(node.min)
            for turn in range(first, first + self.value(node.extent)):
                self._variables[node.loop_var] = turn
                self._observe(node.loop_var, turn)
                self.run(node.body)
        elif kind == "IfThenElse":
            case = node.then_case if self.value(node.condition) else node.else_case
            if case is not None:
                self.run(case)
        elif kind == "Bind":
            self._variables[node.var] = self.value(node.value)
        elif kind == "AllocBuffer":
            self.memory[node.buffer] = [0xBAD] * tvm_api.buffer_shape(node.buffer)[0]
        elif kind == "BufferStore":
            self.memory[node.buffer][self.value(node.indices[0])] = self.value(node.value)
        else:
            raise NotImplementedError(kind)

    def value(self, node: Any) -> int:
        dtype = tvm_api.dtype_of(node)
        result = wrapped(self._unlimited(node), dtype)
        self._observe(node, result)
        return result

    def _unlimited(self, node: Any) -> int:
        kind = type(node).__name__
        if kind == "IntImm":
            return int(node.value)
        if kind == "Var":
            return self._variables[node]
        if kind == "TensorLoad":
            return self.memory[node.source][self.value(node.indices[0])]
        if kind == "Cast":
            return self.value(node.value)
        if kind == "Select":
            return self.value(node.true_value if self.value(node.condition) else node.false_value)
        if kind == "Let":
            self._variables[node.var] = self.value(node.value)
            return self.value(node.body)
        if kind == "Call":
            return self._called(node)
        return self._operation(kind, node, node.a, node.b)

    def _called(self, node: Any) -> int:
        name = str(node.op.name).rpartition(".")[2]
        if name == "if_then_else":
            condition, yes, no = node.args
            return self.value(yes if self.value(condition) else no)
        return self._operation(name, node, *node.args)

    def _operation(self, kind: str, node: Any, *operands: Any) -> int:
        left, right = map(self.value, operands)
        if kind in ("LShift", "RShift"):
            bits = int(tvm_api.dtype_of(node).lstrip("uint"))
            shift = shifted_left if kind == "LShift" else shifted_right
            return shift(left, right, bits)
        return ARITHMETIC[kind](left, right)


class Drawing:
    """Draws the statements of a kernel.

    Args:
        draw: Hypothesis's function.
        sources: input buffers.
        output: int64 buffer.
    """

    def __init__(self, draw: Callable[[Any], Any], sources: Sequence[Any], output: Any) -> None:
        self._draw = draw
        self._sources = list(sources)
        self._output = output
        self._loops: list[Any] = []
        self._bound: list[Any] = []
        self._scalars: list[Any] = []
        self._number = 0

    def _name(self, prefix: str) -> str:
        self._number += 1
        return f"{prefix}{self._number}"

    def statements(self, depth: int) -> list[Any]:
        """Statements of a block; what they define is not visible after it."""
        outside = len(self._bound), len(self._scalars)
        kinds = ["bind", "scalar", "sum", "store"]
        kinds += ["loop", "if", "update"] if depth else []
        found = []
        for kind in self._draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=3)):
            found += getattr(self, f"_{kind}")(depth)
        found += self._store(depth)
        del self._bound[outside[0] :], self._scalars[outside[1] :]
        return found

    def _bind(self, _: int) -> list[Any]:
        value = self.expression(2)
        variable = tirx.Var(self._name("bound"), tvm_api.dtype_of(value))
        self._bound.append(variable)
        return [tirx.Bind(variable, value)]

    def _scalar(self, _: int) -> list[Any]:
        value = self.expression(1)
        dtype = tvm_api.dtype_of(value)
        buffer = tirx.decl_buffer([1], dtype, self._name("scalar"), scope="local")
        self._scalars.append(buffer)
        zero = tirx.IntImm("int32", 0)
        return [tirx.AllocBuffer(buffer), tirx.BufferStore(buffer, value, [zero])]

    def _update(self, _: int) -> list[Any]:
        """Store to a scalar again, also in a loop around which it was defined."""
        if not self._scalars:
            return []
        buffer = self._draw(st.sampled_from(self._scalars))
        zero = tirx.IntImm("int32", 0)
        other = self._as(self.expression(1), tvm_api.buffer_dtype(buffer))
        combine = self._draw(st.sampled_from(["sum", "max", "min", "other", "less"]))
        old = buffer[zero]
        value = {
            "sum": lambda: old + other, "less": lambda: old - other, "other": lambda: other,
            "max": lambda: tirx.max(old, other), "min": lambda: tirx.min(old, other),
        }[combine]()  # fmt: skip
        return [tirx.BufferStore(buffer, value, [zero])]

    def _loop(self, depth: int) -> list[Any]:
        variable = tirx.Var(self._name("turn"), "int32")
        first = self._draw(st.integers(0, 1))
        self._loops.append(variable)
        body = self.statements(depth - 1)
        self._loops.pop()
        turns = tirx.IntImm("int32", self._draw(st.integers(1, TURNS)))
        start = tirx.IntImm("int32", first)
        return [tirx.For(variable, start, turns, tirx.ForKind.SERIAL, sequence(*body))]

    def _if(self, depth: int) -> list[Any]:
        condition = self._condition()
        cases = [sequence(*self.statements(depth - 1)) for _ in range(2)]
        return [tirx.IfThenElse(condition, *cases)]

    def _sum(self, _: int) -> list[Any]:
        """A local sum as kernels have it: initialized, added to in loops, and read."""
        bits, zero = self._draw(st.sampled_from([32, 64])), tirx.IntImm("int32", 0)
        dtype = f"uint{bits}"
        buffer = tirx.decl_buffer([SIZE], dtype, self._name("sum"), scope="local")
        start = tirx.Cast(dtype, self._as(self.expression(0), f"int{bits}"))
        element = tirx.Var(self._name("element"), "int32")
        count = tirx.IntImm("int32", SIZE)
        first = tirx.For(
            element, zero, count, tirx.ForKind.SERIAL, tirx.BufferStore(buffer, start, [element])
        )
        variables = [tirx.Var(self._name("turn"), "int32") for _ in range(2)]
        self._loops += variables
        updates: list[Any] = []
        for _ in range(self._draw(st.integers(1, 2))):
            index = self._index()
            added = tirx.Cast(dtype, self._as(self.expression(1), f"int{bits}"))
            updates.append(tirx.BufferStore(buffer, buffer[index] + added, [index]))
        body = sequence(*updates)
        for variable in variables:
            turns = tirx.IntImm("int32", self._draw(st.integers(1, TURNS)))
            body = tirx.For(variable, zero, turns, tirx.ForKind.SERIAL, body)
        del self._loops[-2:]
        total = buffer[tirx.IntImm("int32", self._draw(st.integers(0, SIZE - 1)))]
        less = self._draw(st.sampled_from([0, 0, 1, 1000]))
        value = (total - tirx.IntImm(dtype, less) if less else total).astype(f"int{bits}")
        variable = tirx.Var(self._name("bound"), f"int{bits}")
        self._bound.append(variable)
        return [tirx.AllocBuffer(buffer), first, body, tirx.Bind(variable, value)]

    def _store(self, _: int) -> list[Any]:
        value = self.expression(2).astype("int64")
        return [tirx.BufferStore(self._output, value, [self._index()])]

    def _index(self) -> Any:
        """An index below SIZE; loop variables are at most TURNS."""
        chosen = (
            self._draw(st.lists(st.sampled_from(self._loops), max_size=2)) if self._loops else []
        )
        index = tirx.IntImm("int32", self._draw(st.integers(0, 2)))
        for variable, factor in zip(chosen, self._draw(st.permutations([1, 3])), strict=False):
            index = index + variable * tirx.IntImm("int32", factor)
        return index

    def _condition(self) -> Any:
        left = self.expression(1)
        right = self._as(self.expression(0), tvm_api.dtype_of(left))
        return getattr(tirx, self._draw(st.sampled_from(["LT", "LE", "GT", "GE", "EQ", "NE"])))(
            left, right
        )

    def _as(self, value: Any, dtype: str) -> Any:
        return value if tvm_api.dtype_of(value) == dtype else value.astype(dtype)

    def expression(self, depth: int) -> Any:
        """An int32 or int64 expression."""
        dtype = self._draw(st.sampled_from(["int32", "int32", "int32", "int64"]))
        return self._of(dtype, depth)

    def _of(self, dtype: str, depth: int) -> Any:
        if depth == 0:
            return self._leaf(dtype)
        kind = self._draw(st.sampled_from(
            ["Add", "Sub", "Mul", "Mul", "Div", "Mod", "Min", "Max", "and", "or", "xor", "left",
             "right", "select", "clamp", "narrow", "leaf"]
        ))  # fmt: skip
        if kind == "leaf":
            return self._leaf(dtype)
        if kind == "narrow":
            small = self._draw(st.sampled_from(["int8", "uint8", "int16", "uint16"]))
            return self._loaded(dtype, depth).astype(small).astype(dtype)
        if kind in ("left", "right", "and", "or", "xor"):
            return self._of_bits(kind, dtype, depth)
        left = self._of(dtype, depth - 1)
        right = self._of(dtype, depth - 1)
        if kind == "select":
            make = self._draw(st.sampled_from([tirx.Select, tirx.if_then_else]))
            return make(self._condition(), left, right)
        if kind == "clamp":
            low = self._draw(st.integers(-300, 300))
            high = low + self._draw(st.integers(0, 600))
            return tirx.Max(tirx.Min(left, tirx.IntImm(dtype, high)), tirx.IntImm(dtype, low))
        return getattr(tirx, kind)(left, right)

    def _loaded(self, dtype: str, depth: int) -> Any:
        """An expression that is not a constant, which TVM would compute or refuse."""
        source = self._draw(st.sampled_from(self._sources))[self._index()]
        return tirx.Add(self._of(dtype, depth - 1), self._as(source, dtype))

    def _of_bits(self, kind: str, dtype: str, depth: int) -> Any:
        left = self._loaded(dtype, depth)
        if kind in ("left", "right"):
            by = tirx.IntImm(dtype, self._draw(st.integers(0, 31)))
            if self._draw(st.booleans()):
                by = self._loaded(dtype, 1) & tirx.IntImm(dtype, 7)
            return left << by if kind == "left" else left >> by
        right = self._of(dtype, depth - 1)
        return {"and": left & right, "or": left | right, "xor": left ^ right}[kind]

    def _leaf(self, dtype: str) -> Any:
        kind = self._draw(st.sampled_from(["load", "load", "load", "constant", "bound", "scalar"]))
        if kind == "bound" and (self._bound or self._loops):
            return self._as(self._draw(st.sampled_from(self._bound + self._loops)), dtype)
        if kind == "scalar" and self._scalars:
            buffer = self._draw(st.sampled_from(self._scalars))
            return self._as(buffer[tirx.IntImm("int32", 0)], dtype)
        if kind == "constant":
            return tirx.IntImm(dtype, self._draw(st.sampled_from(EDGES)))
        return self._as(self._draw(st.sampled_from(self._sources))[self._index()], dtype)


@st.composite
def prim_funcs(draw: Any) -> Any:
    """Prim funcs with an input of each dtype of `INPUTS` and an int64 output."""
    sources = [tirx.decl_buffer([SIZE], dtype, name) for name, dtype in INPUTS.items()]
    output = tirx.decl_buffer([SIZE], "int64", "output")
    body = sequence(*Drawing(draw, sources, output).statements(2))
    return tvm_api.PrimFunc([*sources, output], body)


def data_of(random: np.random.Generator) -> dict[str, list[int]]:
    """Elements of the inputs, many of them the least and largest ones."""
    found = {}
    for name, dtype in INPUTS.items():
        limits = np.iinfo(dtype)
        edges = random.choice([limits.min, limits.max], SIZE)
        plain = random.integers(limits.min, limits.max, SIZE, dtype, endpoint=True)
        found[name] = [int(v) for v in np.where(random.random(SIZE) < 0.6, edges, plain)]
    return found
