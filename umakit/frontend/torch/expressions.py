# SPDX-License-Identifier: Apache-2.0
"""Sizes in exported programs: which texts are arithmetic that takes little time and memory.

torch hands them to `sympy.sympify`, which evaluates its text as Python.
"""

from __future__ import annotations

import ast
import re

FUNCTIONS = frozenset(
    "Abs Add And CeilDiv CeilToInt CleanDiv Eq Equality Float FloatPow FloatTrueDiv FloorDiv "
    "FloorToInt Ge GreaterThan Gt Identity IntTrueDiv Integer Le LessThan Lt Max Min Mod "
    "ModularIndexing Mul Ne Not Or Pow PowByNatural PythonMod Rational StrictGreaterThan "
    "StrictLessThan Symbol ToFloat TruncToFloat TruncToInt Unequality Where".split()
)
POWERS = ("FloatPow", "Pow", "PowByNatural")
NODES = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Load, ast.keyword, ast.Call,
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow,
    ast.unaryop, ast.cmpop,
)  # fmt: skip
NAME = re.compile(r"[A-Za-z_]\w{0,63}", re.ASCII)
CONSTANTS = frozenset(("int_oo", "oo", "zoo", "nan"))
SYMBOL = re.compile(r"[a-z]{1,4}_?\d{1,6}")
"""Names that torch gives symbolic sizes: `s77`, `u0`, `zf3`."""

PLAIN_TEXT = re.compile(r"(?![\w.+-]*[eE][+-]?\d{5})[\w.+-]{1,64}", re.ASCII)
"""Text of symbols and numbers, in which nothing can be called."""

LONGEST, MOST_NODES, LARGEST, LARGEST_POWER = 20_000, 2_000, 2**63, 64


def is_arithmetic(text: str) -> bool:
    """Whether an expression holds bounded numbers, symbols, operators and known functions only."""
    if len(text) > LONGEST:
        return False
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    nodes = list(ast.walk(tree))
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    return len(nodes) <= MOST_NODES and all(_is_plain(node, id(node) in called) for node in nodes)


def _is_plain(node: ast.AST, is_called: bool) -> bool:
    """Whether one node of an expression, without what is below it, is arithmetic."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            return PLAIN_TEXT.fullmatch(node.value) is not None
        return isinstance(node.value, (int, float)) and abs(node.value) <= LARGEST
    if isinstance(node, ast.Name):
        if is_called:
            return node.id in FUNCTIONS
        return node.id in CONSTANTS or SYMBOL.fullmatch(node.id) is not None
    if isinstance(node, ast.Call):
        if not isinstance(node.func, ast.Name):
            return False
        return node.func.id not in POWERS or _is_small_power(node.args)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return _is_small_power([node.left, node.right])
    if isinstance(node, ast.keyword):
        # The precision of a Float is a number of bits.
        value = getattr(node.value, "value", None)
        return node.arg is not None and isinstance(value, int) and 0 <= value <= 1024
    return isinstance(node, NODES)


def _is_small_power(operands: list[ast.expr]) -> bool:
    """Whether a power of something that holds no other power has a small constant exponent."""
    if len(operands) != 2:
        return False
    exponent = ast.unparse(operands[1])
    number = re.fullmatch(r"(?:Integer\()?-?(\d{1,3}(?:\.\d+)?)\)?|Rational\(-?1, 2\)", exponent)
    small = number is not None and float(number[1] or 1) <= LARGEST_POWER
    return small and not any(
        isinstance(node, ast.Pow)
        or (isinstance(node, ast.Call) and getattr(node.func, "id", None) in POWERS)
        for node in ast.walk(operands[0])
    )  # fmt: skip
