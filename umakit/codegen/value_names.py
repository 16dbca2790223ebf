# SPDX-License-Identifier: Apache-2.0
"""Names in C of TVM's loop variables, working memory and common subexpressions.

TVM's pass only numbers common subexpressions. The loop variables in an expression, and the loops
and buffers that the expression bounds and indexes, tell its purpose. Nothing depends on the names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from umakit import tvm_api
from umakit.codegen.c_arithmetic import dtype

tirx = tvm_api.tirx

BLOCK_SUFFIX = "_block"
"""Ending of the names of loops over blocks of elements."""

WINDOW_AXES = {"row": "row", "column": "column", "product": "column"}
"""Loops over the part of a window inside the image, each with its axis; `product` is the loop over
the columns and channels of a row, which are one run in memory."""

DIVIDE = ("Div", "FloorDiv", "RShift")
REMAINDER = ("Mod", "FloorMod", "BitwiseAnd")

COMMON_SUBEXPRESSION = re.compile(r"cse_v\d+")
"""TVM's names for common subexpressions."""

AXES = {
    "nn": "image",
    "ff": "output_channel",
    "yy": "row",
    "xx": "column",
    "rc": "input_channel",
    "ry": "kernel_row",
    "rx": "kernel_column",
}
"""Loop variables of TVM's tensor operators, by their names there."""

SCRATCH = {
    "pad_temp": "padded_data",
    "conv2d_nchw": "sums",
    "conv2d_nchw_intermediate": "sums",
    "conv2d_nhwc": "sums",
    "conv2d_nhwc_intermediate": "sums",
    "conv2d_nhwc_intermediate_rf": "partial_sums",
    "conv2d_nhwc_rf": "partial_sums",
    "group_conv2d_nchw": "sums",
    "group_conv2d_nchw_intermediate": "sums",
    "group_conv2d_nhwc": "sums",
    "group_conv2d_nhwc_intermediate": "sums",
    "matmul_intermediate": "sums",
}
"""Working memory of TVM's tensor operators, by its names there."""

VARIABLES = {"group_conv2d_nchw": "sum", "group_conv2d_nchw_intermediate": "sum"}
"""Arrays of one element of TVM's tensor operators, which are variables, by their names there."""

Expression = tvm_api.PrimExpr


class ValueNames:
    """Names the values of a kernel.

    Args:
        statements: TIR statements of the kernel.
        name: function from a variable to its name in C; empty for undeclared variables.
        is_data: whether a variable depends on elements of tensors.
    """

    def __init__(
        self,
        statements: Sequence[Any],
        name: Callable[[Any], str],
        is_data: Callable[[Any], bool],
    ) -> None:
        self._name = name
        self._is_data = is_data
        body = list(statements)
        self._buffers: dict[Any, list[Any]] = {}
        self._bounded: dict[Any, list[str]] = {}
        self._whole_indices: set[Any] = set()
        loads, stores = (tvm_api.collect(body, k) for k in (tvm_api.TensorLoad, tirx.BufferStore))
        accesses = [(each.indices, each.source) for each in loads]
        for indices, buffer in [*accesses, *((each.indices, each.buffer) for each in stores)]:
            _note(self._buffers, indices, [buffer])
            self._whole_indices.update(each for each in indices if isinstance(each, tvm_api.Var))
        for loop in tvm_api.collect(body, tirx.For):
            _note(self._bounded, [loop.extent], [str(loop.loop_var.name)])
        self._divisors: dict[Any, set[int]] = {}
        for kind in (getattr(tirx, each) for each in DIVIDE):
            for quotient in tvm_api.collect(body, kind):
                divisor = tvm_api.integer_value(quotient.b)
                self._divisors.setdefault(quotient.a, set()).add(divisor or 0)
        # The variables behind a variable, the last one first.
        for bind in reversed(tvm_api.collect(body, tirx.Bind)):
            _note(self._buffers, [bind.value], self._buffers.get(bind.var, []))
            _note(self._bounded, [bind.value], self._bounded.get(bind.var, []))

    def name(self, bind: tvm_api.Stmt) -> str:
        """Return a name for the variable of a binding; the name may be taken."""
        value = bind.value
        if not dtype(bind.var).startswith("int") or self._is_data(bind.var):
            cast = isinstance(value, tirx.Cast) and isinstance(value.value, tirx.Var)
            return f"{self._name(value.value)}_{dtype(bind.var)}" if cast else "value"
        return self._purpose(bind.var, value)

    def _purpose(self, variable: Any, value: Expression) -> str:
        found = self._of_window(variable, value) or self._of_position(value)
        if found:
            return found
        terms = self._terms(value)
        buffers = {self._name(each) for each in self._buffers.get(variable, ())} - {""}
        if len(buffers) == 1:
            # Other terms are added to the base of an index.
            part = "index" if variable in self._whole_indices else "base"
            return f"{buffers.pop()}_{part}"
        if len(terms) == 1 and isinstance(value, tirx.Mul):
            return f"{terms[0]}_offset"
        if buffers:
            return "index"
        is_sum = isinstance(value, tirx.Add) and len(terms) == 2
        return "_plus_".join(terms) if is_sum else "limit"

    def _terms(self, value: Expression) -> list[str]:
        """Return the names of the variables of an expression, each once."""
        return list(dict.fromkeys(self._name(v) for v in tvm_api.collect(value, tvm_api.Var)))

    # --- positions and channels -----------------------------------------------------------------

    def _of_position(self, value: Expression) -> str:
        """Return the name of the index of a position, row, column or channel; else an empty
        text."""
        if isinstance(value, tirx.Min) and tvm_api.integer_value(value.b) is not None:
            value = value.a  # the last block ends with the last element
        kind, operand = _operation(value)
        terms = self._terms(value)
        if kind in (*DIVIDE, *REMAINDER) and len(terms) == 1:
            return self._of_division(terms[0], operand, kind)
        if kind == "Mul" and len(terms) == 1:
            return self._of_product(terms[0], operand)
        if kind == "Add" and len(terms) == 2:
            first, second = terms
            for start, axis in ((first, second), (second, first)):
                if start in (f"first_{axis}", f"{axis}{BLOCK_SUFFIX}"):
                    return f"output_{axis}"
        return ""

    def _of_division(self, term: str, operand: Any, kind: str) -> str:
        """Return the name of the quotient or remainder of a position and the image's width."""
        if len(self._divisors.get(operand, ())) > 1:  # several images: by their size too
            return ""
        if term == "output_position":
            return "output_row" if kind in DIVIDE else "output_column"
        if term == f"position{BLOCK_SUFFIX}":
            return "output_row" if kind in DIVIDE else f"column{BLOCK_SUFFIX}"
        return ""

    def _of_product(self, term: str, operand: Any) -> str:
        """Return the name of a multiple of one variable."""
        if isinstance(operand, tirx.Var) and term.endswith(BLOCK_SUFFIX):
            return f"first_{term.removesuffix(BLOCK_SUFFIX)}"
        kind, divided = _operation(operand)
        part = self._of_division(term, divided, kind) if kind in (*DIVIDE, *REMAINDER) else ""
        if part.endswith(BLOCK_SUFFIX):
            return f"first_{part.removesuffix(BLOCK_SUFFIX)}"
        axis = (part or term).removeprefix("output_")
        # Times the stride: the start of the window in the padded image.
        return f"padded_{axis}" if (part or term) in ("output_row", "output_column") else ""

    # --- the part of a window inside the image --------------------------------------------------

    def _of_window(self, variable: Any, value: Expression) -> str:
        """Return the name of the first row or column of a window inside the image, of their number,
        or of their end; else an empty text."""
        loops = self._bounded.get(variable, [])
        axes = {WINDOW_AXES.get(loop, "") for loop in loops} - {""}
        if len(axes) > 1:  # the loop over columns may be inside the loop over rows
            axes &= {axis for axis in axes if any(axis in term for term in self._terms(value))}
        if len(axes) != 1:
            return ""
        axis = axes.pop()
        if isinstance(value, tirx.Max) and 0 in map(tvm_api.integer_value, (value.a, value.b)):
            return f"first_kernel_{axis}"
        if isinstance(value, tirx.Min):
            return f"end_kernel_{axis}"
        if isinstance(value, tirx.Sub):
            return f"{axis}_count"
        return ""


def _note(found: dict[Any, list[Any]], expressions: Sequence[Any], what: Sequence[Any]) -> None:
    for variable in tvm_api.collect(list(expressions), tvm_api.Var):
        found.setdefault(variable, []).extend(what)


def _operation(value: Expression) -> tuple[str, Expression | None]:
    """Return the name of an operation, and its operand besides a constant; None if there is not one
    such operand."""
    operands = [value.a, value.b] if hasattr(value, "a") and hasattr(value, "b") else []
    rest = [each for each in operands if tvm_api.integer_value(each) is None]
    return type(value).__name__, rest[0] if len(rest) == 1 else None
