# SPDX-License-Identifier: Apache-2.0
"""Mechanical bugs in drivers and simulators in C and C++: one piece of one file is replaced.

`mutants` lists all there are in a text, as far as a parser of C reads it. `drawn` draws from
several files by a seed, and leaves out mutants that do not compile and those with the same object
code.

Left out is what the result of a layer does not depend on while nothing fails: what commands cost
(`TIME`), and refusals of what no right driver sends (`REFUSAL`, the branch `default` of a switch):
their conditions are only negated or read another variable, so that right jobs are refused.
"""

from __future__ import annotations

import itertools
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import tree_sitter
import tree_sitter_c
from rtl_mutator import Mutant, located

if TYPE_CHECKING:
    from tree_sitter import Node

KINDS = (
    "operator", "boundary", "constant", "condition", "arguments", "statement", "variable", "last",
)  # fmt: skip

ARITHMETIC = {
    "+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "<<": ">>", ">>": "<<", "&": "|", "|": "&",
    "&&": "||", "||": "&&", "==": "!=", "!=": "==", "+=": "-=", "-=": "+=",
}  # fmt: skip
BOUNDARIES = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}

TIME = re.compile(
    r"counters|[Cc]ycle|CYCLES|clock|loaded|done_at|end_of_busy|macs|LATENCY|WAKES|TIMEOUT"
)
"""A line that only says how long something takes, or counts it."""

TIMED = ("advance", "next_event", "retire", "cycles", "macs", "passes", "work", "counters", "wait",
         "depth_of", "banks")  # fmt: skip
"""Functions that do nothing else, and those of bank conflicts."""

CHECKS = ("check", "are_scales", "is_within", "is_clip", "is_quantized", "is_factor", "is_axis",
          "is_shift")  # fmt: skip
"""Functions that refuse jobs."""

REFUSAL = re.compile(
    r"(return( [A-Z][A-Z_\d]*| status| closed\(status\))?|throw .*|fail\(\w+, UMAKIT_\w+\)"
    r"|umakit_host_fail\(.*\));", re.DOTALL
)  # fmt: skip

_Found = tuple[str, int, int, str]


def mutants(text: str, file: str) -> list[Mutant]:
    """Return all mutants of a text in the order in which they begin.

    Args:
        text: C, or C++ that is mostly C.
        file: name of its file.
    """
    tree = tree_sitter.Parser(tree_sitter.Language(tree_sitter_c.language()))
    root = tree.parse(text.encode("ascii", "replace")).root_node
    lines = text.splitlines()
    found = []
    for kind, begin, end, new in _of_all(root, ""):
        if new != text[begin:end] and not TIME.search(lines[text.count("\n", 0, begin)]):
            found.append((kind, begin, end, new))
    return located(found, text, file)


def drawn(
    files: Mapping[str, str],
    seed: int,
    first: int,
    compiled: Callable[[str, str], bytes | None],
) -> Iterator[Mutant]:
    """Yield mutants of files, each kind in its turn; they do not repeat.

    Args:
        files: texts by name.
        seed: equal seeds draw equal mutants.
        first: number of the kind with which it begins.
        compiled: returns the object code of all with another text of a file; None if it refuses.
    """
    left: dict[str, list[Mutant]] = {kind: [] for kind in KINDS}
    for file, text in files.items():
        for mutant in mutants(text, file):
            left[mutant.kind].append(mutant)
    for each in left.values():
        each.sort(key=lambda mutant: mutant.lot(seed), reverse=True)
    before = {file: compiled(file, text) for file, text in files.items()}
    assert None not in before.values(), "the files do not compile"
    for number in itertools.count(first):
        kind = KINDS[number % len(KINDS)]
        if not any(left.values()):
            return
        while left[kind]:
            mutant = left[kind].pop()
            after = compiled(mutant.file, mutant.applied(files[mutant.file]))
            if after is not None and after != before[mutant.file]:
                yield mutant
                break


class Compiler:
    """Compiles the files of a backend, as far as a file is part of them.

    Args:
        folder: the backend.
        sources: paths in it of what is compiled.
        flags: include folders and macros.
    """

    def __init__(self, folder: Path, sources: Sequence[str], flags: Sequence[str]) -> None:
        self._folder, self._sources, self._flags = folder, sources, flags

    def __call__(self, file: str, text: str) -> bytes | None:
        """Return the object code of what has another text of a file; None if it is refused."""
        path = self._folder / file
        kept = path.read_text(encoding="utf-8")
        users = [file] if file in self._sources else self._sources
        try:
            path.write_text(text, encoding="utf-8")
            code = [self._object(each) for each in users]
        finally:
            path.write_text(kept, encoding="utf-8")
        return None if None in code else b"".join(each for each in code if each is not None)

    def _object(self, source: str) -> bytes | None:
        is_c = source.endswith(".c")
        command = ["gcc", "-std=c11"] if is_c else ["g++", "-std=c++17"]
        command += ["-Werror=incompatible-pointer-types", "-Werror=int-conversion"] if is_c else []
        with tempfile.TemporaryDirectory() as temporary:
            target = Path(temporary) / "object.o"
            command += ["-O2", *self._flags, "-c", source, "-o", str(target)]
            if subprocess.run(command, cwd=self._folder, capture_output=True).returncode:
                return None
            subprocess.run(["strip", "--strip-debug", str(target)], check=True)
            return target.read_bytes()


def _of_all(node: Node, function: str) -> Iterator[_Found]:
    """Yield mutants of a node and of all below it.

    Args:
        node: the node.
        function: name of the function that it is in.
    """
    if node.type.startswith(("preproc", "comment")) and node.type not in CONDITIONAL:
        return
    if node.type == "call_expression" and _text(node).startswith("finish_job("):
        return  # says how long a job takes
    if node.type == "function_definition":
        function = _name(node)
        if function in (*TIMED, *CHECKS):
            return
    if not function and node.type in ("declaration", "enum_specifier", "field_declaration"):
        return
    if node.type in ("array_declarator", "abstract_array_declarator", "static_assert_declaration"):
        return
    if function and not node.has_error:
        yield from _of_one(node)
    skipped = _refusal(node)
    for child in node.children:
        if child.id not in skipped:
            yield from _of_all(child, function)


CONDITIONAL = ("preproc_if", "preproc_ifdef", "preproc_else", "preproc_elif")
"""Nodes of the preprocessor that have code in them."""


def _refusal(node: Node) -> set[int]:
    """Return the children of a node that do nothing but refuse."""
    if node.type == "case_statement":
        is_default = bool(node.children) and node.children[0].type == "default"
        return {each.id for each in node.children} if is_default else set()
    if node.type != "if_statement":
        return set()
    condition, body = (node.child_by_field_name(name) for name in ("condition", "consequence"))
    if condition is None or body is None:
        return set()
    text = _text(body).strip("{} \n")
    return {condition.id, body.id} if REFUSAL.fullmatch(text) else set()


def _of_one(node: Node) -> Iterator[_Found]:
    """Yield mutants that replace a node, or one of its tokens."""
    match node.type:
        case "binary_expression" | "assignment_expression":
            token = node.child_by_field_name("operator")
            if token is not None:
                for kind, table in (("operator", ARITHMETIC), ("boundary", BOUNDARIES)):
                    if token.type in table:
                        yield kind, token.start_byte, token.end_byte, table[token.type]
        case "number_literal":
            number = re.fullmatch(r"(0[xX][\da-fA-F]+|\d+)([uUlL]*)", _text(node))
            if number is not None:
                value = int(number[1], 0)
                for other in (value + 1, value - 1):
                    if other >= 0:
                        yield "constant", node.start_byte, node.end_byte, f"{other}{number[2]}"
        case "if_statement" | "conditional_expression" | "while_statement":
            condition = node.child_by_field_name("condition")
            if condition is not None:
                new = f"!({_text(condition)})"
                new = f"({new})" if node.type != "conditional_expression" else new
                yield "condition", condition.start_byte, condition.end_byte, new
        case "argument_list" | "initializer_list":
            yield from _lists(node)
        case "expression_statement":
            if not REFUSAL.fullmatch(_text(node)) and not _text(node).startswith("(void)"):
                yield "statement", node.start_byte, node.end_byte, ";"
        case "for_statement":
            condition = node.child_by_field_name("condition")
            if condition is not None and condition.type == "binary_expression":
                right = condition.child_by_field_name("right")
                operator = condition.child_by_field_name("operator")
                if right is not None and operator is not None and operator.type in ("<", "!="):
                    yield "last", right.start_byte, right.end_byte, f"({_text(right)}) - 1"
        case "compound_statement":
            if node.parent is not None and node.parent.type == "function_definition":
                yield from _variables(node.parent)


def _lists(node: Node) -> Iterator[_Found]:
    """Yield two arguments or values that are swapped, and a write of a register that is dropped."""
    parts = [each for each in node.named_children if each.type != "comment"]
    for left, right in itertools.pairwise(parts):
        if "initializer_pair" in (left.type, right.type):
            continue
        text = _text(node)
        between = text[left.end_byte - node.start_byte : right.start_byte - node.start_byte]
        new = _text(right) + between + _text(left)
        yield "arguments", left.start_byte, right.end_byte, new
    for part in parts:
        comma = part.next_sibling
        if part.type == "initializer_list" and comma is not None and comma.type == ",":
            yield "statement", part.start_byte, comma.end_byte, ""


def _variables(function: Node) -> Iterator[_Found]:
    """Yield uses of a variable that become the next one of the same type, and of a member."""
    types: dict[str, list[str]] = {}
    for node in _nodes(function):
        if node.type in ("parameter_declaration", "declaration"):
            kind = node.child_by_field_name("type")
            for child in node.named_children:
                name = _declared(child)
                if kind is not None and name is not None and child.id != kind.id:
                    stars = _text(child).partition("=")[0].count("*")
                    types.setdefault(_text(kind) + "*" * stars, []).append(name)
    others: dict[str, str] = {}
    for names in types.values():
        distinct = list(dict.fromkeys(names))
        if len(distinct) > 1:
            others |= dict(zip(distinct, [*distinct[1:], distinct[0]], strict=True))
    members: dict[str, list[str]] = {}
    for node in _nodes(function):
        if node.type == "field_expression":
            owner, member = (node.child_by_field_name(name) for name in ("argument", "field"))
            if owner is not None and member is not None:
                seen = members.setdefault(_text(owner), [])
                seen += [_text(member)] if _text(member) not in seen else []
    for node in _nodes(function):
        if node.type == "identifier" and _is_use(node) and _text(node) in others:
            yield "variable", node.start_byte, node.end_byte, others[_text(node)]
        if node.type == "field_expression":
            owner, member = (node.child_by_field_name(name) for name in ("argument", "field"))
            if owner is not None and member is not None and len(members[_text(owner)]) > 1:
                seen = members[_text(owner)]
                new = seen[(seen.index(_text(member)) + 1) % len(seen)]
                yield "variable", member.start_byte, member.end_byte, new


def _is_use(node: Node) -> bool:
    """Whether an identifier is a value that is used, not declared, assigned or called."""
    parent = node.parent
    assert parent is not None
    if "declarator" in parent.type or parent.type == "parameter_declaration":
        value = parent.child_by_field_name("value")
        return value is not None and value.id == node.id
    if parent.type in ("assignment_expression", "call_expression"):
        first = parent.child_by_field_name("left") or parent.child_by_field_name("function")
        return first is None or first.id != node.id
    return parent.type not in ("update_expression", "declaration", "type_descriptor")


def _declared(node: Node) -> str | None:
    """Return the name that a declarator declares; None if it is none."""
    if node.type == "identifier":
        return _text(node)
    inner = node.child_by_field_name("declarator")
    return None if inner is None else _declared(inner)


def _name(function: Node) -> str:
    """Return the name of a function without its class."""
    declarator = function.child_by_field_name("declarator")
    text = "" if declarator is None else _text(declarator)
    return text.partition("(")[0].split("::")[-1].strip("*& \n") or "?"


@cache
def _decoded(text: bytes) -> str:
    return text.decode()


def _text(node: Node) -> str:
    return _decoded(node.text or b"")


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from _nodes(child)
