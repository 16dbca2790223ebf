# SPDX-License-Identifier: Apache-2.0
"""The macro definitions that a compiled file sees.

A name such as `NAME` may have different definitions in many files; a compiled file sees the
definitions in its included files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from umakit.registration.sources.c_tokens import Line, Macro
from umakit.registration.sources.declarations import Declarations
from umakit.registration.sources.facts import FactFinder
from umakit.registration.sources.macros import Macros, macros_of

Seen = frozenset[tuple[str, str]]
"""Names of macros that are defined differently in several files, each with a file."""


class MacroTables:
    """The macros of a library.

    Args:
        read: files of the library.
        defines: macros of the compiler's command line, as `NAME` or `NAME=value`.
    """

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
        """Return the visible definitions of macros with several definitions that a file uses.

        Args:
            file: the file.
            lines: lines of the file.
            unit: all files of the compiled file.
        """
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
        """Return the fact finder for some visible definitions."""
        if seen not in self._finders:
            table = dict(self._same)
            for name, file in sorted(seen):
                known = table.get(name, [])
                table[name] = list(dict.fromkeys([*known, *self._several[name][file]]))
            self._finders[seen] = FactFinder(Macros(table))
        return self._finders[seen]
