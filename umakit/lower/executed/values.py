# SPDX-License-Identifier: Apache-2.0
"""Values that a kernel computes: equal values, and the loop variables that values depend on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from umakit import tvm_api
from umakit.lower.index_ranges import called
from umakit.operators.kernels.dot_forms import PREFIX

tirx = tvm_api.tirx

Part = tuple[int, int, frozenset[Any]]
"""A term of a sum: kind, factor, and the loop variables that the term depends on."""


@dataclass(frozen=True)
class Value:
    """A value.

    Attributes:
        key: identity; equal values have equal keys.
        parts: terms of the value as a sum; a sum of several parts is not computed yet.
    """

    key: int
    loops: frozenset[Any] = frozenset()
    parts: tuple[Part, ...] = ()
    constant: int = 0


NOTHING = Value(-1)
ARITHMETIC = {
    "Add": "addition", "Sub": "addition", "Mul": "product", "Div": "division", "Mod": "division",
    "FloorDiv": "division", "FloorMod": "division", "truncmod": "division",
}  # fmt: skip
CHOICES = ("Max", "Min", "LT", "LE", "GT", "GE", "EQ", "NE")
LOGIC = ("And", "Or", "Not")
BITS = (
    "shift_right", "shift_left", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not",
    "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "LShift", "RShift", "abs",
)  # fmt: skip
FREE_CALLS = ("likely", "reinterpret")
ADDRESSES = ("address_of", "tvm_access_ptr", "buffer_data")


class Counts(Protocol):
    """The interface of counters of terms."""

    facts: Any

    def add(self, term: str, key: Any, loops: frozenset[Any], amount: float = 1) -> None:
        """Count a term once for each combination of loop variables."""

    def add_here(self, term: str, amount: float = 1) -> None:
        """Count a term for each execution of the statement."""

    def load(self, buffer: Any, indices: Sequence[Any], lanes: int) -> Value:
        """Count a load and return its value."""

    def either(self, condition: Any, cases: Sequence[Any]) -> list[Value]:
        """Count an expression that computes one of two cases."""

    def place_of(self, loops: Any) -> int:
        """Return the number of the innermost level of some loop variables."""


class Values:
    """The values of one kernel."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._keys: dict[Any, int] = {}
        self._bound: dict[Any, Value] = {}

    def new(self, identity: Any, loops: frozenset[Any]) -> Value:
        """Return the value of an expression that is no sum."""
        key = self._keys.setdefault(identity, len(self._keys))
        return Value(key, loops, ((key, 1, loops),))

    def bind(self, variable: Any, value: Any) -> None:
        """Give a variable the value of an expression."""
        is_data = tvm_api.collect(value, tvm_api.TensorLoad)
        self._bound[variable] = self.computed(value) if is_data else self.of(value)

    def index(self, indices: Sequence[Any]) -> Value:
        """Return the value of an index, by which a pointer advances: its sum is not counted."""
        if len(indices) != 1:
            return self._joined("indices", [self.computed(index) for index in indices])
        node = indices[0]
        if isinstance(node, tirx.Ramp):
            node = node.base
        return self.of(node)

    def computed(self, node: Any) -> Value:
        """Count an expression including its last sum, and return its value."""
        value = self.of(node)
        if len(value.parts) == 1 and value.parts[0][1] == 1 and not value.constant:
            return value
        if not value.parts:
            return value
        parts = sorted(value.parts, key=lambda part: self._counts.place_of(part[2]))
        loops: frozenset[Any] = frozenset()
        prefix: tuple[Any, ...] = ()
        term = _term("integer", node)
        for number, (key, factor, those) in enumerate(parts):
            if factor not in (1, -1):
                self._counts.add(term, (key, factor), those)
            loops, prefix = loops | those, (*prefix, (key, factor))
            if number > 0 or value.constant:
                self._counts.add(term, (prefix, value.constant), loops)
        return Value(value.key, value.loops, ((value.key, 1, value.loops),))

    def of(self, node: Any) -> Value:
        """Count an expression without its last sum of integers, and return its value."""
        number = tvm_api.integer_value(node)
        if number is not None:
            return Value(self._keys.setdefault(number, len(self._keys)), constant=number)
        if isinstance(node, tvm_api.Var):
            return self._variable(node)
        kind = type(node).__name__
        handler = getattr(self, f"_of_{kind}", None)
        if handler is not None:
            value: Value = handler(node)
            return value
        if kind in ARITHMETIC:
            return self._arithmetic(kind, node)
        if kind in CHOICES or kind in BITS or kind in LOGIC:
            operands = [node.a, node.b] if hasattr(node, "b") else [node.a]
            return self._operation(kind, node, operands)
        return self.new((kind, node), frozenset())

    def _variable(self, node: Any) -> Value:
        if node in self._bound:
            return self._bound[node]
        return self.new(node, frozenset({node}))

    def _joined(self, kind: str, operands: Sequence[Value]) -> Value:
        loops = frozenset(variable for each in operands for variable in each.loops)
        return self.new((kind, *(each.key for each in operands)), loops)

    def _operation(self, kind: str, node: Any, operands: Sequence[Any]) -> Value:
        given = [self.computed(operand) for operand in operands]
        value = self._joined(kind, given)
        if kind not in LOGIC:
            self._counts.add(_term(kind, operands[0]), value.key, value.loops)
        return value

    def _arithmetic(self, kind: str, node: Any) -> Value:
        if _type(node) != "integer" or kind not in ("Add", "Sub", "Mul"):
            return self._operation(kind, node, [node.a, node.b])
        left, right = self.of(node.a), self.of(node.b)
        if kind == "Mul":
            left, right = (left, right) if not right.parts else (right, left)
            if right.parts:
                return self._operation(kind, node, [node.a, node.b])
            return self._sum([left], [right.constant])
        return self._sum([left, right], [1, 1 if kind == "Add" else -1])

    def _sum(self, values: Sequence[Value], factors: Sequence[int]) -> Value:
        found: dict[int, Part] = {}
        constant = 0
        for value, factor in zip(values, factors, strict=True):
            constant += factor * value.constant
            for key, own, loops in value.parts:
                before = found.get(key, (key, 0, loops))[1]
                found[key] = (key, before + factor * own, loops)
        parts = tuple(part for part in found.values() if part[1])
        if len(parts) == 1 and parts[0][1] == 1 and not constant:
            return Value(parts[0][0], parts[0][2], parts)
        loops = frozenset(variable for part in parts for variable in part[2])
        identity = ("sum", constant, *sorted((part[0], part[1]) for part in parts))
        return Value(self._keys.setdefault(identity, len(self._keys)), loops, parts, constant)

    def _of_TensorLoad(self, node: Any) -> Value:
        return self._counts.load(node.source, list(node.indices), lanes_of(node))

    def _of_Cast(self, node: Any) -> Value:
        if _type(node) == _type(node.value):
            return self.of(node.value)
        return self._operation("conversion", node, [node.value])

    def _of_Select(self, node: Any) -> Value:
        operands = [node.condition, node.true_value, node.false_value]
        given = [self.computed(operand) for operand in operands]
        value = self._joined("Select", given)
        self._counts.add("choice", value.key, value.loops)
        return value

    def _of_Let(self, node: Any) -> Value:
        self.bind(node.var, node.value)
        return self.of(node.body)

    def _of_Broadcast(self, node: Any) -> Value:
        value = self._joined("Broadcast", [self.computed(node.value)])
        self._counts.add("broadcast", value.key, value.loops)
        return value

    def _of_Call(self, node: Any) -> Value:
        name = called(node)
        if name == "if_then_else":
            condition, *cases = node.args
            return self._joined("if", [self.of(condition), *self._counts.either(condition, cases)])
        if name in FREE_CALLS:
            return self.of(node.args[0])
        if name in ARITHMETIC or name in BITS:
            return self._operation(name, node, list(node.args))
        if name in ADDRESSES:
            return self._address(node)
        external = name in ("call_extern", "call_pure_extern")
        function = str(node.args[0].value).removeprefix(PREFIX) if external else name
        arguments = list(node.args[1:] if external else node.args)
        given = [self.computed(argument) for argument in arguments]
        if function.startswith("requantize") and not any(each.parts for each in given[1:]):
            function += "_constant"  # compilers shorten it
        value = self._joined(function, given)
        self._counts.add(f"function.{function}", value.key, value.loops)
        return value

    def _address(self, node: Any) -> Value:
        """Return a pointer; its sum is computed once."""
        values = []
        for argument in node.args:
            indices = argument.indices if isinstance(argument, tvm_api.TensorLoad) else [argument]
            for index in indices:
                if not (isinstance(index, tvm_api.Var) and tirx.is_buffer_var(index)):
                    values.append(self.computed(index))
        return self._joined("address", values)


def lanes_of(node: Any) -> int:
    """Return the numbers in a vector; 1 for a scalar."""
    return int(str(node.ty.dtype).partition("x")[2] or 1)


def _type(node: Any) -> str:
    dtype = str(node.ty.dtype)
    if "x" in dtype:
        return "vector"
    if dtype.startswith("float"):
        return "double" if dtype == "float64" else "float"
    return "wide" if dtype in ("int64", "uint64") else "integer"


def _term(kind: str, node: Any) -> str:
    type_ = _type(node)
    if type_ == "vector":
        return "vector_operation"
    if kind == "conversion":
        return "conversion"
    if type_ in ("double", "wide"):
        return type_
    operation = ARITHMETIC.get(kind, "choice" if kind in CHOICES else "")
    if type_ == "float":
        return f"float_{operation or 'choice'}"
    return {"product": "integer_product", "division": "integer_division", "choice": "choice"}.get(
        operation, "integer"
    )
