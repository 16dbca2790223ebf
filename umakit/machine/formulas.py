# SPDX-License-Identifier: Apache-2.0
"""Formulas of `accel.toml`, and other expressions of integers and names.

A formula is parsed once by Python's own parser. Each allowed node becomes a function of the values
by name; nothing is evaluated as Python.
"""

from __future__ import annotations

import ast
import csv
import hashlib
import io
import operator
import re
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class CostTable:
    """The contents of a table.

    Attributes:
        file: path below the backend's folder.
        keys: names of all columns but the last.
        rows: values by key.
    """

    file: str
    keys: tuple[str, ...]
    rows: Mapping[tuple[int, ...], int]
    digest: str


def read_table(folder: Path, file: str) -> CostTable:
    """Read a table.

    Raises:
        ValueError: the file is missing or is no table; the message is a sentence for the user.
    """
    if not (folder / file).is_file():
        raise ValueError(f"there is no file {file} in the backend's folder")
    try:
        content = (folder / file).read_bytes()
        text = content.decode("utf-8")
    except (OSError, UnicodeDecodeError):
        raise ValueError(f"{file} cannot be read as text") from None
    try:
        lines = [
            (number, [cell.strip() for cell in row])
            for number, row in enumerate(csv.reader(io.StringIO(text)), 1)
            if row and not row[0].startswith("#")
        ]
    except csv.Error as error:
        raise ValueError(f"{file} is no CSV: {error}") from None
    (_, header), *rest = lines or [(1, [])]
    if len(header) < 2 or not all(map(NAME.fullmatch, header)):
        raise ValueError(
            f"{file}: the first line has to name the columns, of which the last is the value: "
            "lower-case letters, digits and _"
        )
    rows: dict[tuple[int, ...], int] = {}
    for number, row in rest:
        if len(row) != len(header):
            raise ValueError(f"{file}, line {number}: {len(row)} columns, not {len(header)}")
        *key, value = (_number(cell, file, number) for cell in row)
        if rows.setdefault(tuple(key), value) != value:
            raise ValueError(f"{file}, line {number}: the same key has another value above")
    return CostTable(file, tuple(header[:-1]), rows, hashlib.sha256(content).hexdigest())


def _number(cell: str, file: str, line: int) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", cell):
        raise ValueError(f"{file}, line {line}: {cell!r} is no number of 0 or more")
    return int(cell)


Values = Mapping[str, int]
Evaluate = Callable[[Values], int]

LONGEST = 2_000
"""Maximum number of characters of a formula."""

LARGEST = 2**62
"""Maximum result; what a machine has or costs is far below."""


def ceil_div(dividend: int, divisor: int) -> int:
    """Return dividend / divisor, rounded up."""
    return -(-dividend // divisor)


OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
FUNCTIONS: dict[str, tuple[Callable[..., int], tuple[int, int]]] = {
    "min": (min, (2, LONGEST)),
    "max": (max, (2, LONGEST)),
    "ceil_div": (ceil_div, (2, 2)),
}
"""Functions by name, each with the least and the largest number of its arguments."""


@dataclass(frozen=True)
class Language:
    """Operators and functions of formulas, beside integers, names, parentheses and a sign."""

    operators: Mapping[type[ast.operator], Callable[[int, int], int]]
    functions: Mapping[str, tuple[Callable[..., int], tuple[int, int]]]


MACHINE = Language(OPERATORS, FUNCTIONS)
ALLOWED = "allowed are + - * // %, parentheses, integers, min, max and ceil_div"


class FormulaError(ValueError):
    """A formula that cannot be parsed or computed; the message is a sentence for the user."""


@dataclass(frozen=True)
class Formula:
    """A parsed formula.

    Attributes:
        names: names in the formula, without names of functions.
        unlimited: computes the formula without a limit of the result, and with Python's errors.
    """

    text: str
    names: frozenset[str]
    unlimited: Evaluate

    def __call__(self, values: Values) -> int:
        """Compute the formula.

        Raises:
            FormulaError: the formula divides by zero, a table has no such row, or the result is too
                large.
        """
        try:
            result = self.unlimited(values)
        except ZeroDivisionError:
            raise FormulaError(f"{self.text!r} divides by 0{self._for(values)}") from None
        except FormulaError as error:
            raise FormulaError(f"{error}{self._for(values)}") from None
        if abs(result) > LARGEST:
            raise FormulaError(f"{self.text!r} is beyond 2**62{self._for(values)}")
        return result

    def _for(self, values: Values) -> str:
        used = ", ".join(f"{name} = {values[name]}" for name in sorted(self.names))
        return f" for {used}" if used else ""


def parse_formula(
    text: str | int,
    names: Container[str],
    tables: Mapping[str, CostTable] | None = None,
    language: Language = MACHINE,
) -> Formula:
    """Parse a formula.

    Args:
        names: allowed names; a message lists those of a set or a list.

    Raises:
        FormulaError: the text is no formula; the message has the column, from 1, and the allowed
            syntax.
    """
    if isinstance(text, int):
        return Formula(str(text), frozenset(), lambda values: text)
    return _Parser(text, names, tables or {}, language).formula()


class _Parser:
    def __init__(
        self,
        text: str,
        names: Container[str],
        tables: Mapping[str, CostTable],
        language: Language,
    ) -> None:
        # Columns stay the text's, and lines become one line: Python would end the expression there.
        self._text, self._line = text, "".join(" " if each.isspace() else each for each in text)
        self._names, self._tables, self._language = names, tables, language
        self._used: set[str] = set()

    def formula(self) -> Formula:
        if len(self._text) > LONGEST:
            raise FormulaError(f"is longer than {LONGEST} characters")
        if not self._line.strip():
            raise FormulaError("is empty")
        for character in "#\0":  # the message of ast for NUL depends on Python's version
            if character in self._line:
                column = self._line.index(character)
                raise self._refusal(column, f"{character!r} is not allowed; {ALLOWED}")
        shift = len(self._line) - len(self._line.lstrip())
        try:
            tree = ast.parse(self._line.strip(), mode="eval")
            self._shift = shift
            evaluate = self._of(tree.body)
        except SyntaxError as error:
            column = error.offset - 1 + shift if error.offset else len(self._line.rstrip())
            raise self._refusal(column, f"this is no formula; {ALLOWED}") from None
        except FormulaError:
            raise
        except (RecursionError, MemoryError, ValueError):
            raise FormulaError("is nested too deeply or has a number that is too long") from None
        return Formula(self._text.strip(), frozenset(self._used), evaluate)

    def _refusal(self, column: int, message: str) -> FormulaError:
        return FormulaError(f"column {column + 1}: {message}")

    def _refused(self, node: ast.AST, message: str) -> FormulaError:
        line = self._line.strip().encode()
        column = len(line[: getattr(node, "col_offset", 0)].decode(errors="replace"))
        return self._refusal(column + self._shift, message)

    def _of(self, node: ast.expr) -> Evaluate:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            if node.value > LARGEST:
                raise self._refused(node, "this number is beyond 2**62")
            return _constant(node.value)
        if isinstance(node, ast.Constant):
            raise self._refused(node, f"{node.value!r} is no integer; {ALLOWED}")
        if isinstance(node, (ast.Name, ast.Attribute)) and ast.unparse(node) in self._names:
            return self._named(ast.unparse(node))
        if isinstance(node, ast.Name):
            known = self._names if isinstance(self._names, Collection) else ()
            names = ", ".join(sorted(known)) or "none"
            raise self._refused(node, f"there is no name {node.id}; names are {names}")
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return _applied(operator.neg, [self._of(node.operand)])
        if isinstance(node, ast.BinOp) and type(node.op) in self._language.operators:
            function = self._language.operators[type(node.op)]
            return _binary(function, self._of(node.left), self._of(node.right))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            raise self._refused(node, "/ is not allowed; use // to round down, or ceil_div")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            return self._call(node, node.func.id)
        raise self._refused(node, f"this is not allowed; {ALLOWED}")

    def _named(self, name: str) -> Evaluate:
        self._used.add(name)
        return lambda values: values[name]

    def _call(self, node: ast.Call, name: str) -> Evaluate:
        functions = self._language.functions
        if name not in functions and name not in self._tables:
            known = ", ".join([*functions, *sorted(self._tables)])
            raise self._refused(node, f"there is no function {name}; functions are {known}")
        arguments = [self._of(each) for each in node.args]
        if name in self._tables:
            table = self._tables[name]
            if len(arguments) not in (len(table.keys), len(table.keys) + 1):
                keys = ", ".join(table.keys)
                raise self._refused(
                    node, f"{name} takes {keys}, and the value of what it does not have if you like"
                )
            return self._lookup(table, arguments)
        function, (least, most) = functions[name]
        if not least <= len(arguments) <= most:
            count = "2 arguments" if most == least else f"{least} or more arguments"
            raise self._refused(node, f"{name} takes {count}")
        return _applied(function, arguments)

    def _lookup(self, table: CostTable, arguments: Sequence[Evaluate]) -> Evaluate:
        keys, otherwise = arguments[: len(table.keys)], arguments[len(table.keys) :]

        def look_up(values: Values) -> int:
            key = tuple(each(values) for each in keys)
            found = table.rows.get(key)
            if found is not None:
                return found
            if otherwise:
                return otherwise[0](values)
            asked = ", ".join(
                f"{name} = {value}" for name, value in zip(table.keys, key, strict=True)
            )
            raise FormulaError(f"{table.file} has no row with {asked}")

        return look_up


def _constant(value: int) -> Evaluate:
    return lambda values: value


def _binary(function: Callable[[int, int], int], left: Evaluate, right: Evaluate) -> Evaluate:
    return lambda values: function(left(values), right(values))


def _applied(function: Callable[..., Any], arguments: Sequence[Evaluate]) -> Evaluate:
    return lambda values: int(function(*(each(values) for each in arguments)))
