# SPDX-License-Identifier: Apache-2.0
"""Which definitions of macros a compiled file sees.

A name such as `NAME` may be defined in many files, differently in each; a compiled file sees the
definitions of those that it includes.
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
        read: its files.
        defines: macros that compilers are given, as `NAME` or `NAME=value`.
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
        """Return the definitions of several that matter to a file in a compiled file.

        Args:
            file: the file.
            lines: its lines.
            unit: files that the compiled file consists of.
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
        """Return what finds facts where these definitions are seen."""
        if seen not in self._finders:
            table = dict(self._same)
            for name, file in sorted(seen):
                known = table.get(name, [])
                table[name] = list(dict.fromkeys([*known, *self._several[name][file]]))
            self._finders[seen] = FactFinder(Macros(table))
        return self._finders[seen]
