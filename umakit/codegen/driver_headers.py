# SPDX-License-Identifier: Apache-2.0
"""Prototypes and enumerations of a driver's headers, for names of the arguments of driver calls.

A header is read without a preprocessor: names with different declarations in branches of `#if` are
ignored. Declarations that cannot be parsed are left out, and so are values other than C's
arithmetic on integers and enumerators.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from umakit.errors import UmakitError
from umakit.registration.backend import Backend
from umakit.registration.sources.needed import header_contents

if TYPE_CHECKING:
    from tree_sitter import Node

LONGEST_HEADER = 4 * 2**20
"""Maximum size in bytes of a header that is read for names of arguments."""

BINARY: Mapping[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "|": operator.or_,
    "&": operator.and_,
    "^": operator.xor,
    "<<": lambda left, right: left << right if 0 <= right < 64 else 0,
}
UNARY: Mapping[str, Callable[[int], int]] = {
    "+": operator.pos,
    "-": operator.neg,
    "~": operator.invert,
}


@dataclass(frozen=True)
class Enumeration:
    """An enumerated type, with the first of several names of a value."""

    type: str
    enumerators: Mapping[int, str]

    def text(self, value: int) -> str | None:
        """Return C text of a value: an enumerator, or several flags; None for other values."""
        if value in self.enumerators:
            return self.enumerators[value]
        flags = [bit for bit in sorted(self.enumerators) if bit > 0 and bit & value == bit]
        alone = all(bit & (bit - 1) == 0 for bit in flags)
        if value <= 0 or not alone or sum(flags) != value:
            return None
        return " | ".join(self.enumerators[bit] for bit in flags)


@dataclass(frozen=True)
class DeclaredParameter:
    """A parameter of a prototype.

    Attributes:
        name: name; empty for a parameter without a name.
        type: type without qualifiers, such as `int8_t`; of a pointer the type of the elements.
        pointers: depth of pointers; an array counts as a pointer.
    """

    name: str
    enumeration: Enumeration | None = None
    type: str = field(default="", compare=False)
    pointers: int = field(default=0, compare=False)

    @property
    def c_text(self) -> str:
        return f"{self.type} {'*' * self.pointers}" if self.pointers else self.type


@dataclass(frozen=True)
class DriverHeaders:
    """The parameters of the functions that headers declare, by name of the function."""

    functions: Mapping[str, tuple[DeclaredParameter, ...]] = field(default_factory=dict)

    def parameters(self, function: str, count: int) -> tuple[DeclaredParameter, ...]:
        """Return the parameters for a call; without names if the number of arguments differs."""
        declared = self.functions.get(function, ())
        return declared if len(declared) == count else (DeclaredParameter(""),) * count

    def names(self, function: str) -> set[str]:
        """Return the identifiers of enumerations that calls of a function may need."""
        used = [p.enumeration for p in self.functions.get(function, ()) if p.enumeration]
        types = {each.type.removeprefix("enum ") for each in used}
        return types | {name for each in used for name in each.enumerators.values()}


def driver_headers(backend: Backend | None) -> DriverHeaders:
    """Read the headers that a backend registered; unreadable headers are left out."""
    if backend is None:
        return DriverHeaders()
    try:
        texts = header_contents(backend)
    except UmakitError:  # so does the export of the library
        texts = []
    for name in backend.driver.headers:
        try:
            texts.append((backend.folder / name).read_bytes())
        except OSError:  # the export of the file reports it
            continue
    return read_headers(texts)


def read_headers(texts: Iterable[bytes]) -> DriverHeaders:
    """Read prototypes and enumerations."""
    roots = [_parsed(text) for text in texts if len(text) <= LONGEST_HEADER]
    nodes = [node for root in roots for node in _nodes(root)]
    enumerations = _enumerations(nodes)
    functions: dict[str, tuple[DeclaredParameter, ...]] = {}
    ambiguous = set()
    for node in nodes:
        found = _function(node, enumerations)
        if found is None:
            continue
        name, parameters = found
        if functions.setdefault(name, parameters) != parameters:
            ambiguous.add(name)
    return DriverHeaders({name: p for name, p in functions.items() if name not in ambiguous})


@cache
def _parsed(text: bytes) -> Node:
    import tree_sitter
    import tree_sitter_c

    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_c.language()))
    return parser.parse(text).root_node


def _nodes(root: Node) -> Iterator[Node]:
    """Yield the nodes outside of function bodies, in the order of the text."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        if node.type != "compound_statement":
            waiting += reversed(node.named_children)


def _text(node: Node | None) -> str:
    return "" if node is None or node.text is None else node.text.decode(errors="replace")


def _enumerations(nodes: Sequence[Node]) -> dict[str, Enumeration]:
    """Return enumerated types by C type, without types of several different definitions."""
    values: dict[str, int] = {}
    found: dict[str, Enumeration] = {}
    ambiguous = set()
    for node in nodes:
        if node.type != "enum_specifier" or node.child_by_field_name("body") is None:
            continue
        enumerators = _enumerators(node, values)
        for type_ in _types_of(node):
            enumeration = Enumeration(type_, enumerators)
            if found.setdefault(type_, enumeration) != enumeration:
                ambiguous.add(type_)
    return {type_: each for type_, each in found.items() if type_ not in ambiguous}


def _types_of(node: Node) -> list[str]:
    """Return the C types that an enumeration defines: `enum tag`, and names of a `typedef`."""
    tag = node.child_by_field_name("name")
    types = [f"enum {_text(tag)}"] if tag is not None else []
    parent = node.parent
    if parent is not None and parent.type == "type_definition":
        declarators = parent.children_by_field_name("declarator")
        types += [_text(each) for each in declarators if each.type == "type_identifier"]
    return types


def _enumerators(node: Node, values: dict[str, int]) -> dict[int, str]:
    """Return an enumeration's names by value, and add the values to `values` by name."""
    names: dict[int, str] = {}
    following: int | None = 0
    body = node.child_by_field_name("body")
    for each in body.named_children if body is not None else []:
        if each.type.startswith("preproc"):
            return {}  # conditional enumerators
        if each.type != "enumerator":
            continue
        expression = each.child_by_field_name("value")
        value = following if expression is None else _value(expression, values)
        following = None if value is None else value + 1
        if value is not None:
            name = _text(each.child_by_field_name("name"))
            values[name] = value
            names.setdefault(value, name)
    return names


def _value(node: Node, values: Mapping[str, int]) -> int | None:
    """Return the value of a constant expression; None if unknown."""
    if node.type == "number_literal":
        return _number(_text(node))
    if node.type == "identifier":
        return values.get(_text(node))
    operands = [_value(child, values) for child in node.named_children if child.type != "comment"]
    known = [value for value in operands if value is not None]
    if len(known) != len(operands):
        return None
    symbol = _text(node.child_by_field_name("operator"))
    if node.type == "parenthesized_expression" and len(known) == 1:
        return known[0]
    if node.type == "unary_expression" and symbol in UNARY and len(known) == 1:
        return UNARY[symbol](known[0])
    if node.type == "binary_expression" and symbol in BINARY and len(known) == 2:
        return BINARY[symbol](*known)
    return None


def _number(text: str) -> int | None:
    """Return the value of an integer literal, possibly octal and with suffixes."""
    digits = text.lower().rstrip("ul")
    is_octal = digits.lstrip("+-").startswith("0") and digits.lstrip("+-").isdigit()
    try:
        return int(digits, 8 if is_octal else 0)
    except ValueError:
        return None


def _function(
    node: Node, enumerations: Mapping[str, Enumeration]
) -> tuple[str, tuple[DeclaredParameter, ...]] | None:
    """Return name and parameters of a function declared at file scope; None for other nodes."""
    name = node.child_by_field_name("declarator")
    listed = node.child_by_field_name("parameters")
    if node.type != "function_declarator" or name is None or listed is None:
        return None
    if name.type != "identifier" or _is_inside_parameters(node):
        return None
    parameters = []
    for child in listed.named_children:
        if child.type == "comment":
            continue
        if child.type != "parameter_declaration" or child.has_error:
            return None
        parameters.append(_parameter(child, enumerations))
    if [_text(child) for child in listed.named_children] == ["void"]:
        parameters = []
    return _text(name), tuple(parameters)


def _is_inside_parameters(node: Node) -> bool:
    while node.parent is not None:
        node = node.parent
        if node.type == "parameter_list":
            return True
    return False


def _parameter(node: Node, enumerations: Mapping[str, Enumeration]) -> DeclaredParameter:
    declarator = node.child_by_field_name("declarator")
    type_ = " ".join(_text(node.child_by_field_name("type")).split())
    is_value = declarator is None or declarator.type == "identifier"
    inner = declarator
    while inner is not None and inner.type != "identifier":
        inner = inner.child_by_field_name("declarator") or next(
            (child for child in inner.named_children if "declarator" in child.type), None
        )
    enumeration = enumerations.get(type_) if is_value else None
    return DeclaredParameter(_text(inner), enumeration, type_, _pointers(declarator))


def _pointers(declarator: Node | None) -> int:
    """Return the number of pointers and arrays in a declarator; -1 for a function."""
    count = 0
    while declarator is not None:
        if "function" in declarator.type:
            return -1
        count += "pointer" in declarator.type or "array" in declarator.type
        declarator = declarator.child_by_field_name("declarator")
    return count


FEW = 4
"""Maximum number of arguments of a call that names only numbers."""


@dataclass(frozen=True)
class Argument:
    """An argument without names from a header.

    Attributes:
        value: value of a constant integer; None for other arguments.
        is_integer: whether the type is an integer, and no pointer.
        is_compound: whether a cast needs parentheses around the text.
    """

    text: str
    value: int | None = None
    is_integer: bool = False
    is_compound: bool = False


def named_arguments(
    arguments: Sequence[Argument], parameters: Sequence[DeclaredParameter]
) -> list[str]:
    """Return C text of arguments, with enumerators, or with names in comments for plain values.

    Comments have the form `/*name=*/`; clang-tidy compares the names with the prototype
    (`bugprone-argument-comment`).
    """
    return [
        _named(argument, parameter, len(arguments) > FEW)
        for argument, parameter in zip(arguments, parameters, strict=True)
    ]


def _named(argument: Argument, parameter: DeclaredParameter, is_long: bool) -> str:
    text, enumeration = argument.text, parameter.enumeration
    if enumeration is not None and argument.value is not None:
        enumerator = enumeration.text(argument.value)
        if enumerator is not None:
            return enumerator
    elif enumeration is not None and argument.is_integer:
        text = f"({enumeration.type}){f'({text})' if argument.is_compound else text}"
    needs_name = argument.value is not None or (is_long and text != parameter.name)
    return f"/*{parameter.name}=*/{text}" if parameter.name and needs_name else text
