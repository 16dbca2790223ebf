# SPDX-License-Identifier: Apache-2.0
"""Definitions in a C file and the names that each definition uses, for every core and compiler.

More names may be found than by a compiler: a name defined in only one branch of an `#if` counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from umakit.registration.sources.declarations import (
    TYPES,
    Declaration,
    Declarations,
    Line,
    Macro,
    Tokens,
    is_name,
    read_declarations,
)
from umakit.registration.sources.macros import Macros, call_at, called_texts, macros_of, texts_of

NO_FUNCTIONS = frozenset(
    "__attribute__ __attribute __declspec _Alignas alignas _Static_assert static_assert __asm asm "
    "__asm__ sizeof if while for switch return defined _Pragma __pragma".split()
)
ASSEMBLER = frozenset(("asm", "__asm", "__asm__"))


@dataclass
class Facts:
    """The definitions and used names of a file.

    Attributes:
        external: names for other files, with the names that their definitions use.
        local: names of `static` functions and variables, with the names that their definitions use.
        used: names that always count as used.
    """

    external: dict[str, set[str]] = field(default_factory=dict)
    local: dict[str, set[str]] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)


class FactFinder:
    """Finder of the facts of files, with the macros of all files of a library."""

    def __init__(self, macros: Macros) -> None:
        self._macros = macros
        self._followed: dict[Tokens, frozenset[str]] = {}

    def facts(self, declarations: Declarations) -> Facts:
        """Return the facts of a file that is included or compiled at file scope.

        Raises:
            TooManyTextsError: a macro has too many texts.
        """
        found = Facts()
        found.used |= self.names(tuple(declarations.used))
        for declaration in declarations.found:
            self._add(declaration, found)
        if not declarations.is_clear:
            for declaration in declarations.found:
                tokens = (*declaration.head, *declaration.body)
                found.used |= self.names(tokens)
                found.external |= {name: set() for name in _called(tokens)}
        return found

    def all_names(self, lines: Iterable[Line]) -> Facts:
        """Return only the names of a file: of C++, or included inside of braces."""
        tokens = tuple(token for line in lines if isinstance(line, tuple) for token in line)
        return Facts(used=set(self.names(tokens)))

    def names(self, tokens: Tokens) -> frozenset[str]:
        """Return the names in tokens and in their macro expansions.

        Raises:
            TooManyTextsError: a macro has too many texts.
        """
        found: set[str] = set()
        waiting, seen = [tokens], {tokens}
        while waiting:
            text = waiting.pop()
            found |= {token for token in text if is_name(token)}
            for other in self._next_texts(text):
                if other not in seen:
                    seen.add(other)
                    waiting.append(other)
        return frozenset(found)

    def _next_texts(self, tokens: Tokens) -> Iterator[Tokens]:
        for place, token in enumerate(tokens):
            if token in self._macros:
                call = call_at(tokens, place + 1)
                if call is not None:
                    yield from called_texts(token, call[0], self._macros)
                for macro in self._macros[token]:
                    if macro.parameters is None:
                        yield macro.body

    def _add(self, declaration: Declaration, found: Facts) -> None:
        head = declaration.head
        if ASSEMBLER & set(head) and not declaration.is_function:
            found.used |= self.names(head)
        if "typedef" in head:
            return
        for tokens in self._scopes(head):
            for inner in read_declarations([tokens]).found:
                self._add(inner, found)
        names = self._function_names(head) if declaration.is_function else self._variables(head)
        if not names and not declaration.is_function and "=" not in head:
            return
        uses = self.names((*declaration.body, *head[len(head) if declaration.is_function else 0 :]))
        table = found.local if self._is_static(head) else found.external
        for name in names:
            table.setdefault(name, set()).update(uses)
        if not names:
            found.used |= uses

    def _scopes(self, head: Tokens) -> Iterator[Tokens]:
        for place, token in _outside(head):
            call = call_at(head, place + 1) if token in self._macros else None
            if call is None:
                continue
            seen: set[Tokens] = set()
            waiting = called_texts(token, call[0], self._macros)
            while waiting:
                text = waiting.pop()
                if text in seen:
                    continue
                seen.add(text)
                if {"{", ";", "="} & set(text):
                    yield text
                else:  # a call of another macro
                    waiting += _inner_calls(text, self._macros)

    def _function_names(self, head: Tokens) -> set[str]:
        names: set[str] = set()
        macros: set[str] = set()
        for place, token in _outside(head):
            call = call_at(head, place + 1) if is_name(token) else None
            if call is None or token in NO_FUNCTIONS:
                continue
            if token not in self._macros:
                names.add(token)
            elif head[call[1] : call[1] + 1] != ("(",):  # else the text of the macro is the name
                macros.add(token)
            names |= self._made_by(head, place)
        names |= macros if not names else set()
        names |= {name for name, following in _pointed_at(head) if following == "("}
        return names

    def _made_by(self, head: Tokens, place: int) -> set[str]:
        if head[place] not in self._macros:
            return set()
        call = call_at(head, place + 1)
        texts = [t for m in self._macros[head[place]] if m.parameters is None
                 for t in texts_of(m.body, self._macros)]  # fmt: skip
        if call is not None:
            for text in called_texts(head[place], call[0], self._macros):
                texts += texts_of(text, self._macros)
        plain = [text for text in texts if not {"{", ";", "="} & set(text)]
        found = {t for text in plain for _, t in _outside(text) if is_name(t)}
        return {t for t in found if not any(m.parameters for m in self._macros.get(t, ()))}

    def _variables(self, head: Tokens) -> set[str]:
        has_value = any(token == "=" for _, token in _outside(head))
        if "extern" in head and not has_value:
            return set()
        names: set[str] = set()
        in_value = False
        for place, token in _outside(head):
            following = head[place + 1] if place + 1 < len(head) else ";"
            if token in ("=", ","):
                in_value = token == "="
            is_tag = place > 0 and head[place - 1] in TYPES
            if is_name(token) and not in_value and not is_tag and following in "=[,;:":
                names.add(token)
                names |= self._made_by(head, place)
        names |= {name for name, following in _pointed_at(head) if following != "("}
        return names

    def _is_static(self, head: Tokens) -> bool:
        for _, token in _outside(head):
            if token == "static":
                return True
            bodies = [macro.body for macro in self._macros.get(token, ()) if not macro.parameters]
            if bodies and all(self._has_static(body) for body in bodies):
                return True
        return False

    def _has_static(self, body: Tokens) -> bool:
        texts = texts_of(body, self._macros)
        whole = [text for text in texts if not any(t in self._macros for t in text)] or texts
        return all("static" in text for text in whole)


def _inner_calls(text: Tokens, macros: Macros) -> list[Tokens]:
    found: list[Tokens] = []
    for place, token in enumerate(text):
        call = call_at(text, place + 1) if token in macros else None
        if call is not None:
            found += called_texts(token, call[0], macros)
    return found


def _outside(tokens: Sequence[str]) -> Iterator[tuple[int, str]]:
    depth = 0
    for place, token in enumerate(tokens):
        depth -= token in (")", "]")
        if depth <= 0:
            yield place, token
        depth += token in ("(", "[")


def _pointed_at(head: Tokens) -> Iterator[tuple[str, str]]:
    """Yield names declared as `(*name...)`, with the token after each name."""
    depth = 0
    for place, token in enumerate(head):
        if token == "(" and depth == 0 and place > 0 and head[place + 1 : place + 2] == ("*",):
            words = enumerate(head[place + 1 :], start=place + 1)
            at = next((at for at, word in words if is_name(word)), None)
            if at is not None:
                yield head[at], head[at + 1] if at + 1 < len(head) else ";"
        depth += (token == "(") - (token == ")")


def _called(tokens: Sequence[str]) -> set[str]:
    return {token for token, behind in pairwise(tokens) if behind == "(" and is_name(token)}


Seen = frozenset[tuple[str, str]]
"""Names of macros that are defined differently in several files, each with a file."""


class MacroTables:
    """The macros of a library, and those of the compiler's command line, `NAME` or `NAME=value`."""

    def __init__(self, read: Mapping[str, Declarations], defines: Iterable[str]) -> None:
        places: dict[str, dict[str, list[Macro]]] = {}
        for file, declarations in read.items():
            for name, macro in declarations.macros:
                places.setdefault(name, {}).setdefault(file, []).append(macro)
        self._several = {
            name: of_files
            for name, of_files in places.items()
            if len({tuple(macros) for macros in of_files.values()}) > 1
        }
        self._same = {
            name: list(dict.fromkeys(next(iter(of_files.values()))))
            for name, of_files in places.items()
            if name not in self._several
        }
        for name, macros in macros_of(defines).items():
            self._same[name] = [*self._same.get(name, []), *macros]
        self._bodies = {
            name: {token for macros in of_files.values() for m in macros for token in m.body}
            for name, of_files in places.items()
        }
        self._reached: dict[str, frozenset[str]] = {}
        self._finders: dict[Seen, FactFinder] = {}

    def seen(self, file: str, lines: Sequence[Line], unit: Collection[str]) -> Seen:
        """Return the definitions in a `unit` of the macros of a file that differ."""
        if file not in self._reached:
            self._reached[file] = self._reach(lines)
        return frozenset(
            (name, place)
            for name in self._reached[file]
            for place in self._several[name]
            if place in unit
        )

    def _reach(self, lines: Sequence[Line]) -> frozenset[str]:
        found = {token for line in lines if isinstance(line, tuple) for token in line}
        waiting = list(found & self._bodies.keys())
        while waiting:
            more = self._bodies[waiting.pop()] & self._bodies.keys() - found
            found |= more
            waiting += more
        return frozenset(found & self._several.keys())

    def finder(self, seen: Seen) -> FactFinder:
        if seen not in self._finders:
            table = dict(self._same)
            for name, file in sorted(seen):
                known = table.get(name, [])
                table[name] = list(dict.fromkeys([*known, *self._several[name][file]]))
            self._finders[seen] = FactFinder(Macros(table))
        return self._finders[seen]
