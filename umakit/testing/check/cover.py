# SPDX-License-Identifier: Apache-2.0
"""Layers with each value of each aspect that a claim accepts, and the coverage so far.

Pairs of kinds of values are covered by a covering array, made greedily row by row as in AETG (D. M.
Cohen, S. R. Dalal, M. L. Fredman, G. C. Patton, "The AETG System", 1997). The claim is the oracle
for valid combinations.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from umakit.testing.check.aspects import Aspect, Value
from umakit.testing.check.cases import LayerSettings
from umakit.testing.check.claims import Claim
from umakit.testing.check.search import Complete, Refused, Search

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

    Attributes:
        rows: number of further layers that cover every pair; None before they are made.
        unreached: number of pairs for which no layer was found.
    """

    def __init__(self, search: Search, random: np.random.Generator) -> None:
        self._search, self._random = search, random
        self._aspects = search.aspects
        self._made: set[Pair] = set()
        self.rows: int | None = None
        self.unreached = 0
        self.ran: set[Pair] = set()

    def note_made(self, row: Complete) -> None:
        self._made |= self._all_pairs(row)

    def note_ran(self, row: Complete) -> None:
        self.ran |= self._all_pairs(row)

    def each(self, accepted: Sequence[Sequence[Value]]) -> Iterator[LayerSettings]:
        """Yield layers until each pair of kinds of accepted values is covered, or has no layer."""
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
        a, first, b, second = pair
        settings = dict(layer)
        for number, kind in ((a, first), (b, second)):
            settings |= self._aspects[number].with_value(self._one(kinds[number][kind]))
        for tried in self._search.fitted(settings):
            if self._search.accepts(tried) and self._has(tried, pair):
                return self._search.kept(tried)
        return None

    def _with_more_pairs(self, row: Complete, pair: Pair, kinds: Sequence[Kinds]) -> Complete:
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
        own = self._kind(number, row)
        others = ((n, self._kind(n, row)) for n in range(len(self._aspects)) if n != number)
        return {
            (number, own, n, kind) if number < n else (n, kind, number, own) for n, kind in others
        }

    def _all_pairs(self, row: Complete) -> set[Pair]:
        kinds = [(n, self._kind(n, row)) for n in range(len(self._aspects))]
        return {(*first, *second) for first, second in itertools.combinations(kinds, 2)}


VALUE_TRIES = 2
"""Number of values of each further aspect that are tried in a row."""

LARGER = (9, 17, 33)
"""Rows and columns of images that make a stride or a dilation effective."""


@dataclass
class Covered:
    """Coverage of one aspect: layers by value, and values that no accepted layer has."""

    aspect: Aspect
    ran: Counter[Value] = field(default_factory=Counter)
    refused: dict[Value, Refused] = field(default_factory=dict)

    @property
    def missing(self) -> list[Value]:
        """Values of accepted or possibly accepted layers that have not run."""
        return [value for value in self.accepted if not self.ran[value]]

    @property
    def accepted(self) -> list[Value]:
        """Values that accepted layers have or may have."""
        return [value for value in self.aspect.values if value not in self.refused]

    @property
    def impossible(self) -> list[Value]:
        """Constraint-listed values that did not run and that the predicate does not refuse."""
        return [
            v
            for v, why in self.refused.items()
            if v in self.aspect.claimed and not why.by_predicate
        ]

    @property
    def by_predicate(self) -> dict[Value, str]:
        """Values that only the backend's predicate refuses, with a reason.

        Reasons that name the aspect take precedence.
        """
        found = {}
        for value, why in self.refused.items():
            named = [each for each in why.by_predicate if self.aspect.name in each]
            if why.by_predicate:
                found[value] = (named or why.by_predicate)[0]
        return found

    def as_json(self) -> dict[str, Any]:
        text, values = self.aspect.text, self.aspect.values
        return {
            "ran": {text(value): self.ran[value] for value in values if self.ran[value]},
            "refused": {text(value): why.reason for value, why in self.refused.items()},
            "missing": [text(value) for value in self.missing],
        }


class Cover:
    """The layers that cover a claim, and the coverage so far; `singles` layers have each value."""

    def __init__(self, claim: Claim, random: np.random.Generator) -> None:
        self._random = random
        self.search = Search(claim, random)
        self.aspects = [Covered(each) for each in self.search.aspects]
        self.singles: int | None = None
        self.pairs = CoveringArray(self.search, random)
        self._without_effect: set[tuple[int, Value]] = set()

    @property
    def has_any(self) -> bool:
        """Whether the claim accepts a layer."""
        return self.search.first is not None

    def each_value(self) -> Iterator[LayerSettings]:
        """Yield layers until each value is in a layer or is refused."""
        made: list[set[Value]] = [set() for _ in self.aspects]
        count = 0
        # Aspects with the most values come first.
        order = sorted(range(len(self.aspects)), key=lambda n: -len(self.aspects[n].aspect.values))
        for number, value in ((n, each) for n in order for each in self.aspects[n].aspect.values):
            if value in made[number]:
                continue
            found, refused = self.search.find(self.aspects[number].aspect, value)
            if found is None:
                self.aspects[number].refused[value] = refused
                continue
            count += 1
            yield self._row_of(found, number, made)
        for number, covered in enumerate(self.aspects):
            for value in list(covered.refused):
                # Layers found later may accept the value.
                found = None if value in made[number] else self.search.again(covered.aspect, value)
                if found is not None or value in made[number]:
                    del covered.refused[value]
                if found is not None:
                    count += 1
                    yield self._row_of(found, number, made)
        self.singles = count

    def each_pair(self) -> Iterator[LayerSettings]:
        """Yield layers until each pair of kinds is in a layer or no layer was found."""
        return self.pairs.each([covered.accepted for covered in self.aspects])

    def _row_of(self, found: Complete, number: int, made: list[set[Value]]) -> LayerSettings:
        aspect = self.aspects[number].aspect
        seen = self._with_effect(found, number)
        if seen is None:
            self._without_effect.add((number, aspect.of(found)))
        row = self._completed(seen or found, number, made)
        for place, values in enumerate(made):
            if self._counts(place, row):
                values.add(self.aspects[place].aspect.of(row))
        self.pairs.note_made(row)
        return self.search.layer(row)

    def _with_effect(self, row: Complete, number: int) -> Complete | None:
        """Return a layer in which an aspect's value changes the result; None if none is found.

        For example, a dilation has no effect on a kernel of one row, and a stride has none on one
        row of results.
        """
        aspect = self.aspects[number].aspect
        if self._counts(number, row):
            return row
        windows = [each.aspect for each in self.aspects if each.aspect.name in ("kernel", "window")]
        kernels = [each.with_value(value) for each in windows for value in each.values]
        for size in LARGER:
            for kernel in ({}, *kernels):
                tried = {**row, **kernel, "height": size, "width": size}
                if self.search.accepts(tried) and self._counts(number, tried):
                    assert aspect.of(tried) == aspect.of(row)
                    return tried
        return None

    def _counts(self, number: int, row: Complete) -> bool:
        """Whether an aspect's value has an effect in a layer, or in no layer found."""
        aspect = self.aspects[number].aspect
        value = aspect.of(row)
        if aspect.name not in ("dilation", "stride") or (number, value) in self._without_effect:
            return True
        if aspect.name == "dilation":
            kind = "kernel" if "kernel_height" in row else "window"
            extents = [int(row[f"{kind}_height"]), int(row[f"{kind}_width"])]
        else:
            drawn = self.search.answer(row).drawn
            if drawn is None or len(drawn.result.shape) != 4:
                return True
            extents = [drawn.result.shape[drawn.result.layout.index(axis)] for axis in "HW"]
        return all(
            int(step) == 1 or extent > 1 for step, extent in zip(value, extents, strict=True)
        )

    def _completed(self, row: Complete, fixed: int, made: list[set[Value]]) -> Complete:
        """Return a layer with as many accepted new values as possible.

        Aspects whose values are all covered get any of their values.
        """
        for number in self._random.permutation(len(self.aspects)):
            aspect, refused = self.aspects[number].aspect, self.aspects[number].refused
            if number == fixed or (
                aspect.of(row) not in made[number] and self._counts(number, row)
            ):
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
                same = kept.of(tried) == kept.of(row) and self._counts(fixed, tried)
                if same and self.search.accepts(tried):
                    return tried
        return row

    def note(self, layer: LayerSettings) -> None:
        """Count a layer of the claim that ran on the accelerator."""
        assert self.search.claim.drawing is not None
        complete = layer.complete(self.search.claim.drawing)
        for number, covered in enumerate(self.aspects):
            value = covered.aspect.of(complete)
            if not self._counts(number, complete):
                continue
            covered.ran[value] += 1
            covered.refused.pop(value, None)  # found by another search
        self.pairs.note_ran(complete)

    def as_json(self) -> dict[str, Any]:
        """Return the coverage with stable keys."""
        return {
            "layers_with_every_value": self.singles,
            "layers_with_every_pair": self.pairs.rows,
            "pairs": len(self.pairs.ran),
            "pairs_without_a_layer": self.pairs.unreached,
            "aspects": {covered.aspect.name: covered.as_json() for covered in self.aspects},
        }
