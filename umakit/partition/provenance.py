# SPDX-License-Identifier: Apache-2.0
"""Mapping of fused calls to the operators of the user's network.

Fusion in Relax gives structurally equal groups one function, whose calls lose their source span.
The data flow cannot be lost: operator and operands of every call of the unfused network are
recorded, and the same computations found again inside the fused network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from umakit import tvm_api
from umakit.tvm_api import Call, IRModule

Rows = tuple[int, ...]
CONSTANT = "constant"
Key = Any
"""A hashable identity of a value."""


class Provenance:
    """Rows of the offload report by computation, from a function before fusion."""

    def __init__(
        self, main: tvm_api.Function, rows_for: Callable[[tvm_api.Binding], Sequence[int]]
    ) -> None:
        self._known: list[_Known] = []
        values: dict[Any, Any] = {p: ("parameter", number) for number, p in enumerate(main.params)}
        for binding in tvm_api.bindings_of(main):
            if isinstance(binding.value, Call):
                result: Key = ("call", len(self._known))
                keys = _keys(binding.value, values)
                self._known.append(_Known(keys, tuple(rows_for(binding)), result))
                values[binding.var] = result
            else:
                values[binding.var] = _value(binding.value, values)

    def rows_of_calls(self, module: IRModule) -> list[Rows]:
        """Return the rows of each call of `main` in order, including those of its callees."""
        return _Replay(self._known, module).calls_of_main()

    def note(self, module: IRModule) -> IRModule:
        """Return the module with the rows of each call of `main` as its source span."""
        return note_rows(module, self.rows_of_calls(module))


def note_rows(module: IRModule, rows: Sequence[Rows]) -> IRModule:
    """Attach rows to the calls of `main` in order, as source spans, and make names unique."""
    left = iter(enumerate(rows))

    @tvm_api.mutator
    class Noter(tvm_api.PyExprMutator):
        def visit_var_binding_(self, binding: tvm_api.VarBinding) -> None:
            value, name = self.visit_expr(binding.value), None
            if isinstance(value, Call):
                number, found = next(left)
                value = tvm_api.make_call(value, span=tvm_api.rows_span(found))
                name = f"call{number}"
            emitted = tvm_api.emit_like(self.builder_, binding.var, value, name)
            self.set_var_remap(binding.var, emitted)

    noter = Noter(module)
    main = module.get_global_var("main")
    noter.builder_.update_func(main, noter.visit_expr(module["main"]))
    return noter.builder_.get()


class _Replay:
    """Walks a fused module in execution order and looks up every computation."""

    def __init__(self, known: Sequence[_Known], module: IRModule) -> None:
        # Equal computations on equal data cannot be told apart, and need not be: first come.
        self._left: dict[Key, list[_Known]] = {}
        self._found: set[int] = set()
        for entry in known:
            for key in entry.keys:
                self._left.setdefault(key, []).append(entry)
        self._functions = dict(tvm_api.relax_functions(module))
        self._main = module["main"]
        self._unknown = 0

    def calls_of_main(self) -> list[Rows]:
        found: list[Rows] = []
        arguments: list[Key] = [("parameter", n) for n in range(len(self._main.params))]
        self._run(self._main, arguments, found)
        return found

    def _run(self, function: tvm_api.Function, arguments: Sequence[Key], calls: list[Rows]) -> Key:
        """Return a function's result, and append the rows of each of its calls to `calls`."""
        values: dict[Any, Any] = dict(zip(function.params, arguments, strict=True))
        for binding in tvm_api.bindings_of(function):
            value = binding.value
            if isinstance(value, tvm_api.Function):
                values[binding.var] = value
            elif isinstance(value, Call):
                rows, result = self._call(value, values)
                calls.append(rows)
                values[binding.var] = result
            else:
                values[binding.var] = _value(value, values)
        return _value(function.body.body, values)

    def _call(self, call: Call, values: dict[Any, Any]) -> tuple[Rows, Key]:
        called = self._functions.get(call.op) or values.get(call.op)
        if isinstance(called, tvm_api.Function):
            inside: list[Rows] = []
            result = self._run(called, [_value(a, values) for a in call.args], inside)
            return tuple(sorted({row for rows in inside for row in rows})), result
        for key in _keys(call, values):
            for entry in self._left.get(key, ()):
                if id(entry) not in self._found:
                    self._found.add(id(entry))
                    return entry.rows, entry.result
        self._unknown += 1
        return (), ("unknown", self._unknown)


@dataclass(frozen=True)
class _Known:
    """A call of the unfused network: keys (the exact key first), rows and result."""

    keys: tuple[Key, ...]
    rows: Rows
    result: Key


def _keys(call: Call, values: dict[Any, Any]) -> tuple[Key, ...]:
    """Return the keys of a call's operator and operands: exact, and independent of constants.

    A pass of a backend may change constants; the operator is still the same.
    """
    attributes = tvm_api.tvm_ffi.structural_hash(call.attrs) if call.attrs is not None else 0
    operands = [_value(a, values) for a in call.args]
    exact = (_value(call.op, values), attributes, *operands)
    loose = [each for each in operands if each[0] != CONSTANT]
    if len(loose) == len(operands) or not loose:
        return (exact,)
    return exact, ("with constants", *exact[:2], *loose)


def _value(expression: tvm_api.Expr, values: dict[Any, Any]) -> Key:
    if isinstance(expression, tvm_api.Var):
        return values.get(expression, ("free", str(expression.name)))
    if isinstance(expression, tvm_api.GlobalVar):
        return ("global", str(expression.name_hint))
    if isinstance(expression, tvm_api.Op):
        return ("operator", str(expression.name))
    if isinstance(expression, tvm_api.RelaxTuple):
        return ("tuple", *(_value(field, values) for field in expression.fields))
    if isinstance(expression, tvm_api.TupleGetItem):
        whole = _value(expression.tuple_value, values)
        if isinstance(whole, tuple) and whole[0] == "tuple":
            return whole[1 + int(expression.index)]
        return ("item", whole, int(expression.index))
    return (CONSTANT, tvm_api.tvm_ffi.structural_hash(expression))
