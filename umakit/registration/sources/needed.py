# SPDX-License-Identifier: Apache-2.0
"""The files of a library that calls need, by definitions, used names and includes.

The choice depends on names in the texts of files, so that it holds for every core and every `#if`:
a compiler sees the branches and the assembler of this machine only, and a parser of C (tree-sitter)
fails at braces that branches share.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from umakit.machine.simulator_config import CXX_SUFFIXES, HEADER_SUFFIXES
from umakit.registration.backend import Backend
from umakit.registration.sources.declarations import (
    FILE_NAME,
    Declarations,
    Include,
    Macro,
    read_declarations,
    read_lines,
    tokens_of,
)
from umakit.registration.sources.facts import FactFinder, Facts, MacroTables, Seen
from umakit.registration.sources.macros import TooManyTextsError
from umakit.registration.sources.tree import SourceTree, source_tree

IN_CXX = (*CXX_SUFFIXES, ".hh", ".hpp", ".hxx", ".h++", ".ipp", ".tpp")

HAS_INCLUDE = re.compile(r"__has_include\s*\(\s*(\"[^\"]+\"|<[^>]+>)")

Key = tuple[str, bool]
"""A file, and whether its include is inside braces."""


@dataclass(frozen=True)
class NeededFiles:
    """Files of a library by path relative to its root.

    Attributes:
        sources: compiled files.
        included: other files that `sources` and generated C include.
        missing: unconditional includes of files that the library lacks: the including file, and the
            name in quotes.
        digest: digest of all files that any call could need, and of their compilation.
    """

    sources: tuple[str, ...]
    included: tuple[str, ...]
    missing: tuple[tuple[str, str], ...]
    digest: str


def needed_files(tree: SourceTree, texts: Iterable[str]) -> NeededFiles:
    key = tree.section.model_dump_json()
    kept, state = _kept.get((tree.root, key), (None, None))
    if kept is None or state != kept.state():
        kept = _Needed(tree)
    found = kept.files(list(texts))
    _kept[tree.root, key] = kept, kept.state()
    return found


def header_contents(backend: Backend) -> list[bytes]:
    """Return the headers that generated C includes, also indirectly; empty without a library."""
    tree = source_tree(backend)
    if tree is None:
        return []
    tree.check_folders()
    unit = _Needed(tree).unit([(name, False) for name in tree.section.headers])
    return [tree.content(name) for name in unit.names]


@dataclass(frozen=True)
class KnownFunctions:
    """The definitions of a library for generated C.

    Attributes:
        headers: files that generated C includes, relative to the library's root.
        functions: names of functions and variables defined in C files.
        is_whole: whether the library can have no further definitions.
    """

    headers: tuple[str, ...]
    functions: frozenset[str]
    is_whole: bool


def known_functions(backend: Backend) -> KnownFunctions | None:
    """Return the definitions of a backend's library; None without a library."""
    tree = source_tree(backend)
    if tree is None:
        return None
    tree.check_folders()
    return _Needed(tree).known()


@dataclass
class _Unit:
    files: dict[Key, None] = field(default_factory=dict)
    facts: Facts = field(default_factory=Facts)
    has_facts: bool = False

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(name for name, _ in self.files))


class _Needed:
    """The facts of a library; each file is read once."""

    def __init__(self, tree: SourceTree) -> None:
        self._tree = tree
        self._read: dict[str, Declarations] = {}
        self._defined: dict[str, list[Macro]] = {}
        self._missing: dict[tuple[str, str], None] = {}
        self._is_whole = self._has_computed = False
        self._found: dict[tuple[str, bool, Seen], Facts] = {}
        self._units: dict[str, _Unit] = {}
        self._contents: dict[str, bytes] = {}

    def state(self) -> tuple[tuple[str, int, int], ...]:
        places = {self._tree.root / name for name in self._read}
        places |= {path.parent for path in places}
        places |= {self._tree.root / name for name in self._tree.section.include}
        known = ((path, path.stat() if path.exists() else None) for path in sorted(places))
        return tuple((str(p), s.st_mtime_ns if s else 0, s.st_size if s else 0) for p, s in known)

    def files(self, texts: Sequence[str]) -> NeededFiles:
        tree = self._tree
        headers = [*tree.section.headers, *self._of(texts)]
        if not self._units:
            self._units = {name: self.unit([(name, False)]) for name in tree.sources}
            if self._has_computed:  # all macros that may name a file are known now
                self._is_whole = False
                self._units = {name: self.unit([(name, False)]) for name in tree.sources}
        units, calling = self._units, self.unit([(name, False) for name in headers])
        chosen = list(units) if self._is_whole else self._chosen(units, calling, texts)
        names = {name for source in chosen for name in units[source].names} | {*calling.names}
        if self._is_whole:
            names |= self._headers()
        names -= set(chosen)
        tree.check_names([*chosen, *sorted(names)])
        kept = {*chosen, *names}
        missing = [pair for pair in self._missing if pair[0] in kept]
        return NeededFiles(
            tuple(sorted(chosen)),
            tuple(sorted(names)),
            tuple(sorted(missing)),
            self._digest([*units.values(), calling]),
        )

    def known(self) -> KnownFunctions:
        tree = self._tree
        headers = tuple(self.unit([(name, False) for name in tree.section.headers]).names)
        units = [self.unit([(name, False)]) for name in tree.sources]
        try:
            tables = MacroTables(self._read, tree.section.all_macros)
            for unit in units:
                self._add_facts(unit, tables)
        except TooManyTextsError:
            return KnownFunctions(headers, frozenset(), False)
        names = frozenset(name for unit in units for name in unit.facts.external)
        return KnownFunctions(headers, names, not (tree.section.link or self._has_computed))

    def _digest(self, units: Sequence[_Unit]) -> str:
        digest = hashlib.sha256(self._tree.section.model_dump_json(exclude={"root"}).encode())
        for name in sorted({name for unit in units for name in unit.names}):
            content = self._content(name)
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
        return digest.hexdigest()

    def _chosen(self, units: dict[str, _Unit], calling: _Unit, texts: Sequence[str]) -> list[str]:
        try:
            tables = MacroTables(self._read, self._tree.section.all_macros)
            owners: dict[str, list[str]] = {}
            for source, unit in units.items():
                if not unit.has_facts:
                    self._add_facts(unit, tables)
                for name in unit.facts.external:
                    owners.setdefault(name, []).append(source)
            self._add_facts(calling, tables)
            every = tables.seen("", [tuple(self._defined)], calling.names)
            plain = tables.finder(every)
            for text in texts:
                lines = read_lines(text.encode())
                calling.facts.used |= plain.all_names(lines).used
        except TooManyTextsError:
            return list(units)
        chosen: dict[str, None] = {}
        waiting = list(_uses(calling.facts, only_used=True))
        seen = set(waiting)
        while waiting:
            for source in owners.get(waiting.pop(), ()):
                if source not in chosen:
                    chosen[source] = None
                    more = _uses(units[source].facts) - seen
                    seen |= more
                    waiting += more
        return list(chosen)

    def _add_facts(self, unit: _Unit, tables: MacroTables) -> None:
        unit.facts = Facts()
        files = {name for name, _ in unit.files}
        for name, inside in unit.files:
            lines = read_lines(self._content(name))
            seen = tables.seen(name, lines, files)
            facts = self._found.get((name, inside, seen))
            if facts is None:
                facts = self._facts(name, inside, tables.finder(seen))
                self._found[name, inside, seen] = facts
            unit.facts.used |= facts.used
            for table, more in ((unit.facts.external, facts.external),
                                (unit.facts.local, facts.local)):  # fmt: skip
                for each, uses in more.items():
                    table.setdefault(each, set()).update(uses)
        unit.has_facts = True

    def _content(self, name: str) -> bytes:
        if name not in self._contents:
            self._contents[name] = self._tree.content(name)
        return self._contents[name]

    def _facts(self, name: str, inside: bool, finder: FactFinder) -> Facts:
        lines = read_lines(self._content(name))
        if not inside and not name.endswith(IN_CXX):
            return finder.facts(self._read[name])
        facts = finder.all_names(lines)
        if not inside and name.endswith(CXX_SUFFIXES):
            facts.external = {used: set() for used in facts.used}
        return facts

    def _of(self, texts: Sequence[str]) -> list[str]:
        found = []
        for text in texts:
            for include in read_declarations(read_lines(text.encode())).includes:
                match = FILE_NAME.match(include.text)
                path = match and self._tree.included(match[1] or match[2], "", False)
                found += [path] if path else []
        return found

    def unit(self, starts: Sequence[Key]) -> _Unit:
        unit, waiting = _Unit(), list(starts)
        while waiting:
            key = waiting.pop()
            if key in unit.files:
                continue
            unit.files[key] = None
            name, inside = key
            for include in self._declarations(name).includes:
                waiting += [(path, inside or include.inside) for path in self._paths(name, include)]
        return unit

    def _declarations(self, name: str) -> Declarations:
        if name not in self._read:
            content = self._content(name)
            read = self._read[name] = read_declarations(read_lines(content))
            for text in HAS_INCLUDE.findall(content.decode("utf-8", "replace")):
                read.includes.append(Include(text, False, False))
            for macro, definition in read.macros:
                known = self._defined.setdefault(macro, [])
                if definition not in known:
                    known.append(definition)
        return self._read[name]

    def _paths(self, includer: str, include: Include) -> list[str]:
        match = FILE_NAME.match(include.text)
        if match is None:
            return self._computed(includer, include)
        name = match[1] or match[2]
        path = self._tree.included(name, includer, match[1] is not None)
        if path is None and match[1] is not None and include.unconditional:
            self._missing[includer, name] = None
        return [path] if path is not None else []

    def _computed(self, includer: str, include: Include) -> list[str]:
        self._has_computed = True
        found = []
        waiting, seen = list(tokens_of(include.text)), set()
        while waiting:
            token = waiting.pop()
            if token in seen:
                continue
            seen.add(token)
            texts = [each.text for each in self._defined.get(token, ())]
            texts += [m.partition("=")[2] for m in self._tree.section.all_macros
                      if m.partition("=")[0] == token]  # fmt: skip
            for text in texts:
                match = FILE_NAME.match(text)
                if match is None:
                    waiting += tokens_of(text)
                else:
                    path = self._tree.included(match[1] or match[2], includer, match[1] is not None)
                    found += [path] if path is not None else []
        if not found:
            self._is_whole = True
        return found

    def _headers(self) -> set[str]:
        tree = self._tree
        folders = {source.rpartition("/")[0] for source in tree.sources}
        found = [path for folder in folders for path in (tree.root / folder).glob("*")]
        found += [p for folder in tree.section.include for p in (tree.root / folder).rglob("*")]
        headers = (path for path in found if path.suffix in HEADER_SUFFIXES and path.is_file())
        return {path.relative_to(tree.root).as_posix() for path in headers}


def _uses(facts: Facts, only_used: bool = False) -> set[str]:
    """Return the names that a compiled file uses, also through its static functions.

    With `only_used`, definitions without uses are left out: generated C compiles only the functions
    that it calls.
    """
    found = set(facts.used)
    if not only_used:
        found |= {name for uses in facts.external.values() for name in uses}
    waiting = list(found)
    while waiting:
        name = waiting.pop()
        more = set(facts.local.get(name, ()))
        more |= facts.external.get(name, set()) if only_used else set()
        waiting += more - found
        found |= more
    return found


_kept: dict[tuple[Path, str], tuple[_Needed, tuple[tuple[str, int, int], ...]]] = {}
"""Cache of library analyses, valid until a file or folder changes."""
