# SPDX-License-Identifier: Apache-2.0
"""Layers that cover pairs of kinds of values of two aspects: a covering array.

The array is made greedily row by row, as in AETG (D. M. Cohen, S. R. Dalal, M. L. Fredman, G. C.
Patton, "The AETG System", 1997). The claim is the oracle for valid combinations.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from umakit.testing.check.aspects import Value
from umakit.testing.check.cases import LayerSettings
from umakit.testing.check.search import Complete, Search

TRIES = 6
"""Number of layers to search for a pair of kinds."""

KIND_TRIES = 2
"""Number of kinds of each further aspect that are tried in a row."""

Pair = tuple[int, str, int, str]
"""A pair of kinds: for two aspects, the number of the aspect and the kind of its value."""

Kinds = dict[str, list[Value]]
"""The values of an aspect that layers have, by kind."""


class CoveringArray:
    """The pairs of kinds of values that layers of a claim cover.

    Args:
        search: search that finds the layers.
        random: source of random numbers.

    Attributes:
        rows: number of further layers that cover every pair; None before they are made.
        unreached: number of pairs for which no layer was found.
        ran: pairs covered by layers that ran on the accelerator.
    """

    def __init__(self, search: Search, random: np.random.Generator) -> None:
        self._search, self._random = search, random
        self._aspects = search.aspects
        self._made: set[Pair] = set()
        self.rows: int | None = None
        self.unreached = 0
        self.ran: set[Pair] = set()

    def note_made(self, row: Complete) -> None:
        """Count the pairs of a drawn layer."""
        self._made |= self._all_pairs(row)

    def note_ran(self, row: Complete) -> None:
        """Count the pairs of a layer that ran on the accelerator."""
        self.ran |= self._all_pairs(row)

    def each(self, accepted: Sequence[Sequence[Value]]) -> Iterator[LayerSettings]:
        """Yield layers until each pair of kinds is covered, or no layer can be found for it.

        Args:
            accepted: possible values of layers, by aspect.
        """
        kinds = [self._kinds(number, values) for number, values in enumerate(accepted)]
        wanted = [
            (a, first, b, second)
            for a, b in itertools.combinations(range(len(kinds)), 2)
            for first, second in itertools.product(kinds[a], kinds[b])
        ]
        count = 0
        for row in self._plain_windows(kinds):
            self.note_made(row)
            count += 1
            yield self._search.layer(row)
        for place in self._random.permutation(len(wanted)):
            pair = wanted[place]
            if pair in self._made:
                continue
            found = self._with_pair(pair, kinds)
            if found is None:
                self.unreached += 1
                continue
            row = self._with_more_pairs(found, pair, kinds)
            self.note_made(row)
            count += 1
            yield self._search.layer(row)
        self.rows = count

    def _plain_windows(self, kinds: Sequence[Kinds]) -> Iterator[Complete]:
        """Yield a layer of each kind of kernel and each kind of own padding that is plain besides.

        Faster code for one kind of kernel often takes neither groups nor strides, and forgets a
        side of the padding.
        """
        places = {aspect.name: number for number, aspect in enumerate(self._aspects)}
        window = places.get("kernel", places.get("window"))
        padding = places.get("padding")
        if window is None or padding is None or self._search.first is None:
            return
        own = [kind for kind in kinds[padding] if kind.startswith("own")]
        for kernel, kind in itertools.product(kinds[window], own):
            row = self._changed(self._search.first, (window, kernel, padding, kind), kinds)
            if row is not None:
                yield row

    def _kinds(self, number: int, values: Sequence[Value]) -> Kinds:
        found: Kinds = {}
        for value in values:
            found.setdefault(self._aspects[number].kind_of(value), []).append(value)
        return found

    def _with_pair(self, pair: Pair, kinds: Sequence[Kinds]) -> Complete | None:
        tries = (self._changed(self._search.some_base(), pair, kinds) for _ in range(TRIES))
        return next((row for row in tries if row is not None), None)

    def _changed(self, layer: Complete, pair: Pair, kinds: Sequence[Kinds]) -> Complete | None:
        """Return an accepted layer with a pair of kinds, made from another layer."""
        a, first, b, second = pair
        settings = dict(layer)
        for number, kind in ((a, first), (b, second)):
            settings |= self._aspects[number].with_value(self._one(kinds[number][kind]))
        for tried in self._search.fitted(settings):
            if self._search.accepts(tried) and self._has(tried, pair):
                return self._search.kept(tried)
        return None

    def _with_more_pairs(self, row: Complete, pair: Pair, kinds: Sequence[Kinds]) -> Complete:
        """Return a layer with values of other aspects that cover new pairs."""
        for number in self._random.permutation(len(self._aspects)):
            if number in (pair[0], pair[2]):
                continue
            aspect = self._aspects[number]
            best = len(self._pairs_of(row, number) - self._made)
            names = list(kinds[number])
            for kind in (names[each] for each in self._random.permutation(len(names))[:KIND_TRIES]):
                tried = {**row, **aspect.with_value(self._one(kinds[number][kind]))}
                new = len(self._pairs_of(tried, number) - self._made)
                if new > best and self._has(tried, pair) and self._search.accepts(tried):
                    row, best = tried, new
        return row

    def _one(self, values: Sequence[Value]) -> Value:
        return values[int(self._random.integers(len(values)))]

    def _has(self, row: Complete, pair: Pair) -> bool:
        a, first, b, second = pair
        return self._kind(a, row) == first and self._kind(b, row) == second

    def _kind(self, number: int, row: Complete) -> str:
        aspect = self._aspects[number]
        return aspect.kind_of(aspect.of(row))

    def _pairs_of(self, row: Complete, number: int) -> set[Pair]:
        """Return the pairs of a layer that involve one aspect."""
        own = self._kind(number, row)
        others = ((n, self._kind(n, row)) for n in range(len(self._aspects)) if n != number)
        return {
            (number, own, n, kind) if number < n else (n, kind, number, own) for n, kind in others
        }

    def _all_pairs(self, row: Complete) -> set[Pair]:
        kinds = [(n, self._kind(n, row)) for n in range(len(self._aspects))]
        return {(*first, *second) for first, second in itertools.combinations(kinds, 2)}
