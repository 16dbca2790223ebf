# SPDX-License-Identifier: Apache-2.0
"""Expansion of calls of `umakit/requantize.h` to plain TIR, for targets without C headers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from umakit import tvm_api
from umakit.operators.numeric.float32 import SIGNIFICANT_BITS
from umakit.operators.numeric.requantize import PREFIX, called_function
from umakit.tvm_api import Call, IRModule, PrimExpr, Stmt, int64

tirx = tvm_api.tirx

HALF_OF_29_BITS = 2**29
FORTY_EIGHT_SEVENTEENTHS = 1515870810
MINUS_THIRTY_TWO_SEVENTEENTHS = -1010580540
NEWTON_STEPS = 3


def expand_requantize(module: IRModule) -> IRModule:
    """Replace calls of `umakit/requantize.h` in all prim funcs by plain arithmetic.

    Any target of TVM, such as LLVM, can then run integer kernels.
    """
    expanded = IRModule(dict(module.functions.items()), module.attrs)
    for variable, function in tvm_api.prim_functions(module):
        body = tvm_api.rewrite(
            function.body,
            [
                (tirx.BufferStore, _expanded_store),
                (tirx.Bind, _expanded_bind),
                (tirx.SeqStmt, lambda s: tirx.SeqStmt(tvm_api.flatten_statements(s))),
            ],
        )
        changed = tirx.PrimFunc(function.params, body, function.ret_type, function.attrs)
        expanded.update_func(variable, changed)
    return expanded


def _expanded_store(store: Stmt) -> Stmt:
    statements, value = _expanded(store.value)
    return _sequence(statements, tirx.BufferStore(store.buffer, value, store.indices))


def _expanded_bind(bind: Stmt) -> Stmt:
    statements, value = _expanded(bind.value)
    return _sequence(statements, tirx.Bind(bind.var, value))


def _sequence(statements: list[Any], last: Stmt) -> Stmt:
    return tirx.SeqStmt([*statements, last]) if statements else last


def _expanded(value: PrimExpr) -> tuple[list[Any], Any]:
    """Return preceding statements, and the expression without calls of the header."""
    formulas = _Formulas()

    def replace(call: Call) -> PrimExpr:
        name = called_function(call)
        if not name:
            return call
        formula: Callable[..., Any] = getattr(formulas, name.removeprefix(PREFIX))
        return formula(*call.args[1:])

    return formulas.statements, tvm_api.rewrite(value, [(Call, replace)])


class _Formulas:
    """Expansions: one method per function of the header, and the statements that they need."""

    def __init__(self) -> None:
        self.statements: list[Any] = []

    def _kept(self, value: PrimExpr) -> PrimExpr:
        """Store a value with several uses in a local array, and return its load.

        TVM would inline bindings, and expressions would grow exponentially.
        """
        zero = tirx.IntImm("int32", 0)
        local = tirx.decl_buffer([1], tvm_api.dtype_of(value), "kept", scope="local")
        self.statements += [tirx.AllocBuffer(local), tirx.BufferStore(local, value, [zero])]
        return local[zero]

    # --- TensorFlow Lite Micro ----------------------------------------------------------------

    def high_product(self, left: PrimExpr, right: PrimExpr) -> PrimExpr:
        return self._high(left, right).astype("int32")

    def _high(self, left: PrimExpr, right: PrimExpr) -> PrimExpr:
        return self._kept((int64(left) * int64(right) + int64(2**30)) >> int64(31))

    def divide_by_power_of_two(self, value: PrimExpr, exponent: PrimExpr) -> PrimExpr:
        return self._divided_away(self._kept(int64(value)), self._kept(int64(exponent)))

    def _divided_away(self, value: PrimExpr, exponent: PrimExpr) -> PrimExpr:
        mask = self._kept((int64(1) << exponent) - int64(1))
        threshold = (mask >> int64(1)) + int64(value < int64(0))
        quotient = (value >> exponent) + int64((value & mask) > threshold)
        return quotient.astype("int32")

    def requantize_tflm(self, value: PrimExpr, multiplier: PrimExpr, shift: PrimExpr) -> PrimExpr:
        zero = tirx.IntImm("int32", 0)
        kept = self._kept(shift)
        shifted = value * (tirx.IntImm("int32", 1) << tirx.max(kept, zero))
        right = self._kept(int64(tirx.max(zero - kept, zero)))
        return self._divided_away(self._high(shifted, multiplier), right)

    def requantize_tflm_int64(
        self, value: PrimExpr, multiplier: PrimExpr, shift: PrimExpr
    ) -> PrimExpr:
        right = self._kept(int64(15) - int64(shift))
        half = int64(1) << (right - int64(1))
        return ((value * int64(multiplier) + half) >> right).astype("int32")

    def leading_zeros(self, value: PrimExpr) -> PrimExpr:
        kept = self._kept(int64(value))
        bits = [(kept < int64(1 << bit)).astype("int32") for bit in range(32)]
        return sum(bits[1:], bits[0])

    def reciprocal(self, value: PrimExpr) -> PrimExpr:
        half = self._kept((int64(value) << int64(self.leading_zeros(value))) >> int64(1))
        slope = self._high(half, int64(MINUS_THIRTY_TWO_SEVENTEENTHS))
        x = self._kept(int64(FORTY_EIGHT_SEVENTEENTHS) + slope)
        for _ in range(NEWTON_STEPS):
            error = self._kept(int64(HALF_OF_29_BITS) - self._high(half, x))
            x = self._kept(x + self._high(x, error) * int64(4))
        return tirx.min(x * int64(2), int64(2**31 - 1)).astype("int32")

    # --- ONNX Runtime -------------------------------------------------------------------------

    def divide_to_even(self, value: PrimExpr, exponent: PrimExpr) -> PrimExpr:
        kept, right = self._kept(int64(value)), self._kept(int64(exponent))
        half = int64(1) << (right - int64(1))
        odd = (kept >> right) & int64(1)
        return (kept + half - int64(1) + odd) >> right

    def round_to_float32(self, value: PrimExpr) -> PrimExpr:
        kept = self._kept(int64(value))
        smeared = self._kept(tirx.Select(kept < int64(0), int64(0) - kept, kept))
        for step in (1, 2, 4, 8, 16, 32):
            smeared = self._kept(smeared | (smeared >> int64(step)))
        highest = (smeared + int64(1)) >> int64(1)
        unit = self._kept(tirx.max(highest >> int64(SIGNIFICANT_BITS - 1), int64(1)))
        odd = tirx.Select(tirx.all(unit > int64(1), (kept & unit) != int64(0)), int64(1), int64(0))
        return (kept + ((unit - int64(1)) >> int64(1)) + odd) & (int64(0) - unit)

    def saturate(self, value: PrimExpr) -> PrimExpr:
        least, largest = int64(-(2**31)), int64(2**31 - 1)
        return tirx.max(tirx.min(value, largest), least).astype("int32")

    def requantize_ort(self, value: PrimExpr, multiplier: PrimExpr, shift: PrimExpr) -> PrimExpr:
        product = self.round_to_float32(value) * int64(multiplier)
        right = tirx.IntImm("int32", 31) - shift
        return self.saturate(self.divide_to_even(self.round_to_float32(product), right))

    def requantize_even(self, value: PrimExpr, multiplier: PrimExpr, shift: PrimExpr) -> PrimExpr:
        right = tirx.IntImm("int32", 31) - shift
        return self.saturate(self.divide_to_even(value * int64(multiplier), right))

    # --- any -----------------------------------------------------------------------------------

    def add_and_clamp(
        self,
        value: PrimExpr,
        zero_point: PrimExpr,
        lowest: PrimExpr,
        highest: PrimExpr,
    ) -> PrimExpr:
        shifted = tirx.max(tirx.min(value, highest - zero_point), lowest - zero_point)
        return shifted + zero_point
