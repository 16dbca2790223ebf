# SPDX-License-Identifier: Apache-2.0
"""Operands that are computed from several arguments, such as `$width * $input_channels`."""

from __future__ import annotations

import ast
import re

from umakit.text.c_text import CText

SUFFIX = re.compile(r"\b(0[xX][0-9a-fA-F]+|\d+)[uUlL]+\b")

OPERATORS = (
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Mod, ast.LShift, ast.RShift, ast.BitAnd, ast.BitOr,
    ast.USub,
)  # fmt: skip


def python_text(text: CText, numbers: str) -> str | None:
    """Return a C text as Python; None if it is more than integers, arguments and arithmetic.

    The operators that it may have bind alike in both languages.

    Args:
        text: the C text; its arguments are at least 0 where it divides or shifts.
        numbers: Python text of a dictionary with the arguments.
    """
    try:
        tree = ast.parse(SUFFIX.sub(r"\1", text.text.replace("$", "")), mode="eval")
    except SyntaxError:
        return None
    for node in ast.walk(tree.body):
        is_known = (
            isinstance(node, (*OPERATORS, ast.BinOp, ast.UnaryOp, ast.Load))
            or (isinstance(node, ast.Name) and node.id in text.names)
            or (isinstance(node, ast.Constant) and type(node.value) is int)
        )
        if not is_known:
            return None
    return ast.unparse(_Reader(numbers).visit(tree)).replace("'", '"')


class _Reader(ast.NodeTransformer):
    """Replaces arguments by elements of a dictionary, and the division of C by that of Python."""

    def __init__(self, numbers: str) -> None:
        self._numbers = numbers

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.parse(f"{self._numbers}['{node.id}']", mode="eval").body

    def visit_Div(self, node: ast.Div) -> ast.operator:
        return ast.FloorDiv()
