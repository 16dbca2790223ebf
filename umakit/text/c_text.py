# SPDX-License-Identifier: Apache-2.0
"""C expressions of backend teams, with `$name` for operands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from umakit.errors import BackendError

if TYPE_CHECKING:
    from tree_sitter import Node

NAME = re.compile(r"\$([A-Za-z_]\w*)?")
START, END = "int _(void) { return ", "\n; }"
TO_VOID = re.compile(r"\(\s*void\s*\)\s*")
SHOWN = 20


@dataclass(frozen=True)
class CText:
    """A C expression.

    Attributes:
        text: the expression in one line; `$name` stands for an operand.
        names: operands in the order of first use.
        function: called function; empty if the expression is not a plain call.
        returns_status: whether the call has a result, without a cast to void.
        identifiers: C identifiers in the expression, except structure members.
    """

    text: str
    names: tuple[str, ...]
    function: str
    arguments: tuple[str, ...]
    returns_status: bool
    identifiers: frozenset[str]

    def filled(self, operands: Mapping[str, str]) -> str:
        return filled(self.text, operands)


def filled(text: str, operands: Mapping[str, str]) -> str:
    return NAME.sub(lambda found: operands[found[1]], text)


@cache
def read_expression(text: str, what: str = "the text") -> CText:
    """Parse a C expression, or raise BackendError; `(void)` marks a call without a result."""
    text = re.sub(r"\s*\n\s*", " ", text).strip()
    stray = next((found for found in NAME.finditer(text) if found[1] is None), None)
    if stray is not None:
        raise BackendError(
            f"{what} has a $ that begins no name: {_near(text, stray.start())}",
            fix="write $name, without braces",
        )
    root = _parsed(START + text.replace("$", "_") + END)
    nodes = list(_nodes(root))
    comment = next((each for each in nodes if each.type == "comment"), None)
    if comment is not None:
        raise BackendError(
            f"{what} has a comment: {_near(text, _offset(comment, text))}", fix="write it in Python"
        )
    fault = _fault(root)
    statements = [] if fault is not None else _statements(root)
    if fault is None and [each.type for each in statements] != ["return_statement"]:
        fault = statements[1] if len(statements) > 1 else root
    value = statements[0].named_children if statements else []
    if fault is not None or len(value) != 1:
        place = len(text) if fault is None else _offset(fault, text)
        raise BackendError(
            f"{what} is not one expression of C: {_near(text, place)}",
            fix="check parentheses, commas and quotes, and end it without a semicolon",
        )
    starts = {_offset(each, text) for each in nodes if each.type == "identifier"}
    inside = next((each for each in NAME.finditer(text) if each.start() not in starts), None)
    if inside is not None:
        raise BackendError(
            f"{what} has {inside[0]} where no operand can stand: {_near(text, inside.start())}",
            fix="a $name is an operand of C, not a part of another name, a member or a string",
        )
    call = value[0]
    is_void = TO_VOID.match(text) is not None and call.type == "cast_expression"
    if is_void:
        call = call.named_children[-1]
    function, arguments = _call(call, text)
    used = {each[1] for each in NAME.finditer(text)}
    named = [n for n in nodes if n.type in ("identifier", "type_identifier") and n.text]
    identifiers = {n.text.decode() for n in named if n.text and n.start_byte >= len(START)}
    return CText(
        text,
        tuple(dict.fromkeys(each[1] for each in NAME.finditer(text))),
        function,
        arguments,
        not is_void,
        frozenset(identifiers - {f"_{name}" for name in used}),
    )


@cache
def _parsed(text: str) -> Node:
    import tree_sitter
    import tree_sitter_c

    # Character offsets suffice: non-ASCII text is only valid C in quotes and comments.
    code = text.encode("ascii", "replace")
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_c.language()))
    return parser.parse(code).root_node


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from _nodes(child)


def _fault(root: Node) -> Node | None:
    faults = [each for each in _nodes(root) if each.is_error or each.is_missing]
    return min(faults, key=lambda each: each.start_byte, default=None)


def _statements(root: Node) -> list[Node]:
    if len(root.children) != 1:
        return []
    body = root.children[0].child_by_field_name("body")
    return [] if body is None else body.named_children


def _offset(node: Node, text: str) -> int:
    return min(max(node.start_byte - len(START), 0), len(text))


def _near(text: str, place: int) -> str:
    part = text[max(place - SHOWN, 0) : place + SHOWN]
    return f"near {part!r}" if text else "it is empty"


def _call(node: Node, text: str) -> tuple[str, tuple[str, ...]]:
    """Return function and arguments of a call; an empty name for any other expression."""
    if node.type != "call_expression":
        return "", ()
    function, listed = (node.child_by_field_name(name) for name in ("function", "arguments"))
    if function is None or listed is None or function.type != "identifier":
        return "", ()
    parts = [
        text[each.start_byte - len(START) : each.end_byte - len(START)]
        for each in listed.named_children
    ]
    name = text[function.start_byte - len(START) : function.end_byte - len(START)]
    return ("", ()) if name.startswith("$") else (name, tuple(parts))
