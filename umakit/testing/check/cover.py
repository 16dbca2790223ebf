# SPDX-License-Identifier: Apache-2.0
"""Layers that cover what a claim accepts: each value of each aspect, then pairs of kinds of values.

The layers of pairs are a covering array, made greedily row by row as AETG makes it (D. M. Cohen,
S. R. Dalal, M. L. Fredman, G. C. Patton, "The AETG System", 1997), with the claim as the oracle of
what may be together.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from umakit.testing.check.aspects import Aspect, Value
from umakit.testing.check.cases import LayerSettings
from umakit.testing.check.claims import Claim
from umakit.testing.check.search import Complete, Refused, Search

PAIR_TRIES = 6
"""Layers among which one with a pair of kinds is looked for."""

VALUE_TRIES = 2
"""Values of each further aspect that are tried in a row."""

Pair = tuple[int, str, int, str]
"""Number of an aspect and kind of its value, twice."""


@dataclass
class Covered:
    """What is known of one aspect.

    Attributes:
        aspect: the aspect.
        drawn, ran: number of layers by value.
        refused: values of which no layer is accepted, with what refuses them.
    """

    aspect: Aspect
    drawn: Counter[Value] = field(default_factory=Counter)
    ran: Counter[Value] = field(default_factory=Counter)
    refused: dict[Value, Refused] = field(default_factory=dict)

    @property
    def missing(self) -> list[Value]:
        """Values that an accepted layer has, or may have, and with which none has run."""
        return [v for v in self.aspect.values if not self.ran[v] and v not in self.refused]

    @property
    def impossible(self) -> list[Value]:
        """Values that a constraint lists, and that neither run nor are refused by the predicate."""
        return [
            v
            for v, why in self.refused.items()
            if v in self.aspect.claimed and not why.by_predicate
        ]

    @property
    def by_predicate(self) -> dict[Value, str]:
        """Values that only the predicate of the backend refuses, with a reason: one that names the
        aspect, if there is one."""
        found = {}
        for value, why in self.refused.items():
            named = [each for each in why.by_predicate if self.aspect.name in each]
            if why.by_predicate:
                found[value] = (named or why.by_predicate)[0]
        return found

    def as_json(self) -> dict[str, Any]:
        """Return how many layers ran with each value, with stable keys."""
        text, values = self.aspect.text, self.aspect.values
        return {
            "ran": {text(value): self.ran[value] for value in values if self.ran[value]},
            "refused": {text(value): why.reason for value, why in self.refused.items()},
            "missing": [text(value) for value in self.missing],
        }


class Cover:
    """The layers of one claim that cover it, and what of it has run.

    Args:
        claim: with a drawing.
        random: source of random numbers.

    Attributes:
        search: that finds the layers.
        aspects: what is known of each aspect.
        singles: number of layers that have every value; None before they are made.
        rows: number of layers that have every pair besides; None before they are made.
        pairs: pairs of kinds that a made layer has.
        unreached: number of pairs that no layer was found of.
    """

    def __init__(self, claim: Claim, random: np.random.Generator) -> None:
        self._random = random
        self.search = Search(claim, random)
        self.aspects = [Covered(each) for each in self.search.aspects]
        self.singles: int | None = None
        self.rows: int | None = None
        self.pairs: set[Pair] = set()
        self.unreached = 0
        self.ran_pairs: set[Pair] = set()

    @property
    def has_any(self) -> bool:
        """Whether a layer was found that the claim accepts."""
        return self.search.first is not None

    def each_value(self) -> Iterator[LayerSettings]:
        """Yield layers until each value is in one, or is refused."""
        made: list[set[Value]] = [set() for _ in self.aspects]
        count = 0
        for number, value in self._in_turn():
            if value in made[number]:
                continue
            found, refused = self.search.find(self.aspects[number].aspect, value)
            if found is None:
                self.aspects[number].refused[value] = refused
                continue
            row = self._completed(found, number, made)
            for covered, values in zip(self.aspects, made, strict=True):
                values.add(covered.aspect.of(row))
            self._note_pairs(row)
            count += 1
            yield self.search.layer(row)
        self.singles = count

    def _in_turn(self) -> Iterator[tuple[int, Value]]:
        """Yield the values of all aspects, those of aspects with most values first."""
        order = sorted(range(len(self.aspects)), key=lambda n: -len(self.aspects[n].aspect.values))
        for number in order:
            for value in self.aspects[number].aspect.values:
                yield number, value

    def _completed(self, row: Complete, fixed: int, made: list[set[Value]]) -> Complete:
        """Return a layer that has as many values that no layer has had as are accepted with it.

        Where each value of an aspect is in a layer, the aspect gets any of its values.
        """
        for number in self._random.permutation(len(self.aspects)):
            aspect, refused = self.aspects[number].aspect, self.aspects[number].refused
            if number == fixed or aspect.of(row) not in made[number]:
                continue
            new = [
                each for each in aspect.values if each not in made[number] and each not in refused
            ]
            tried = new[:VALUE_TRIES] or [self.search.some_value(aspect)]
            row = self._with_one_of(row, aspect, tried, fixed)
        return row

    def _with_one_of(
        self, row: Complete, aspect: Aspect, values: list[Value], fixed: int
    ) -> Complete:
        kept = self.aspects[fixed].aspect
        for value in values:
            for tried in self.search.fitted({**row, **aspect.with_value(value)}):
                if self.search.accepts(tried) and kept.of(tried) == kept.of(row):
                    return tried
        return row

    # --- pairs ----------------------------------------------------------------------------------

    def each_pair(self) -> Iterator[LayerSettings]:
        """Yield layers until each pair of kinds of values is in one, or none was found with it."""
        kinds = [self._kinds(covered) for covered in self.aspects]
        wanted = [
            (a, first, b, second)
            for a, b in itertools.combinations(range(len(kinds)), 2)
            for first, second in itertools.product(kinds[a], kinds[b])
        ]
        count = 0
        for place in self._random.permutation(len(wanted)):
            pair = wanted[place]
            if pair in self.pairs:
                continue
            found = self._with_pair(pair, kinds)
            if found is None:
                self.unreached += 1
                continue
            row = self._with_more_pairs(found, pair, kinds)
            self._note_pairs(row)
            count += 1
            yield self.search.layer(row)
        self.rows = count

    def _kinds(self, covered: Covered) -> dict[str, list[Value]]:
        """Return the values of an aspect that layers have, by kind."""
        found: dict[str, list[Value]] = {}
        for value in covered.aspect.values:
            if value not in covered.refused:
                found.setdefault(covered.aspect.kind_of(value), []).append(value)
        return found

    def _with_pair(self, pair: Pair, kinds: list[dict[str, list[Value]]]) -> Complete | None:
        a, first, b, second = pair
        for _ in range(PAIR_TRIES):
            settings = dict(self.search.some_base())
            for number, kind in ((a, first), (b, second)):
                settings |= self.aspects[number].aspect.with_value(self._one(kinds[number][kind]))
            for tried in self.search.fitted(settings):
                if self.search.accepts(tried) and self._has(tried, pair):
                    return self.search.kept(tried)
        return None

    def _with_more_pairs(
        self, row: Complete, pair: Pair, kinds: list[dict[str, list[Value]]]
    ) -> Complete:
        """Return a layer with values of other aspects that make pairs which no layer has had."""
        for number in self._random.permutation(len(self.aspects)):
            if number in (pair[0], pair[2]):
                continue
            aspect = self.aspects[number].aspect
            best = len(self._pairs_of(row, number) - self.pairs)
            names = list(kinds[number])
            for kind in (
                names[each] for each in self._random.permutation(len(names))[:VALUE_TRIES]
            ):
                tried = {**row, **aspect.with_value(self._one(kinds[number][kind]))}
                new = len(self._pairs_of(tried, number) - self.pairs)
                if new > best and self._has(tried, pair) and self.search.accepts(tried):
                    row, best = tried, new
        return row

    def _one(self, values: list[Value]) -> Value:
        return values[int(self._random.integers(len(values)))]

    def _has(self, row: Complete, pair: Pair) -> bool:
        a, first, b, second = pair
        return self._kind(a, row) == first and self._kind(b, row) == second

    def _kind(self, number: int, row: Complete) -> str:
        aspect = self.aspects[number].aspect
        return aspect.kind_of(aspect.of(row))

    def _pairs_of(self, row: Complete, number: int) -> set[Pair]:
        """Return the pairs of a layer in which one aspect is."""
        own = self._kind(number, row)
        others = ((n, self._kind(n, row)) for n in range(len(self.aspects)) if n != number)
        return {
            (number, own, n, kind) if number < n else (n, kind, number, own) for n, kind in others
        }

    def _all_pairs(self, row: Complete) -> set[Pair]:
        kinds = [(n, self._kind(n, row)) for n in range(len(self.aspects))]
        return {(*first, *second) for first, second in itertools.combinations(kinds, 2)}

    def _note_pairs(self, row: Complete) -> None:
        self.pairs |= self._all_pairs(row)

    # --- what has run ---------------------------------------------------------------------------

    def note(self, layer: LayerSettings, *, ran: bool) -> None:
        """Count a layer of the claim that was drawn; and ran on the accelerator, or did not."""
        assert self.search.claim.drawing is not None
        complete = layer.complete(self.search.claim.drawing)
        for covered in self.aspects:
            value = covered.aspect.of(complete)
            (covered.ran if ran else covered.drawn)[value] += 1
            if ran:
                covered.refused.pop(value, None)  # found by another search
        if ran:
            self.ran_pairs |= self._all_pairs(complete)

    def as_json(self) -> dict[str, Any]:
        """Return what is covered, with stable keys."""
        return {
            "layers_with_every_value": self.singles,
            "layers_with_every_pair": self.rows,
            "pairs": len(self.ran_pairs),
            "pairs_without_a_layer": self.unreached,
            "aspects": {covered.aspect.name: covered.as_json() for covered in self.aspects},
        }
