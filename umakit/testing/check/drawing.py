# SPDX-License-Identifier: Apache-2.0
"""Random layers at and around the limits of a pattern, and the largest accepted layers.

Each draw starts from an accepted layer and changes a few aspects at random, some aspects often. If
the pattern accepts the changed layer, the next draw starts there. Now and then a draw starts from
any layer of the search for values. A refused layer lies just outside the constraints. Bisection of
each number, from the simplest layer and from others, finds the largest accepted layers.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from umakit.testing.check.aspects import Aspect, Value
from umakit.testing.check.cases import LayerSettings
from umakit.testing.check.claims import Claim
from umakit.testing.check.search import MOST_MACS, USUAL_MACS, Complete, Search

MOST_SIZE = 1 << 16
ALWAYS_DRAWN = {"scale": 0.5, "clip": 0.5, "values": 0.5, "rounding": 0.25}
"""Share of draws that also change these settings. An error in one LSB needs a certain combination
of them, which a walk of few changes rarely reaches."""

LARGE = 0.06
"""Share of draws with one size at the pattern's limit and other settings unchanged. Overflows, and
errors of tiling, often need several of them."""

FEW = 3
"""Other sizes of a layer at a limit."""

ONE_SIGN = {"values": "lowest", "weights": "lowest"}
"""Settings of a layer whose products all have one sign: sums reach their maximum."""

ANEW = 0.15
"""Share of draws that start from any layer of the search instead of the last accepted one."""

REFUSED = 0.12
"""Share of draws that the pattern refuses."""

Drawn = tuple[LayerSettings, bool]
"""A layer, and whether the pattern accepts the layer."""


class Walk:
    """Draws layers for one claim."""

    def __init__(
        self, claim: Claim, random: np.random.Generator, search: Search | None = None
    ) -> None:
        self._random = random
        self._search = search or Search(claim, random)
        self._at = self._search.first
        self._names = {each.name: each for each in self._search.aspects}
        assert claim.drawing is not None
        self._sizes = [self._names[name] for name in claim.drawing.sizes]

    def draw(self) -> Drawn:
        assert self._at is not None and self._search.first is not None
        if self._random.random() < ANEW:
            self._at = self._search.some_base()
        if self._random.random() < LARGE:
            large = self._large(self._at)
            if large is not None:
                return large
        while True:
            *_, found = self._search.fitted(self._changed(self._at))
            answer = self._search.answer(found)
            if answer.drawn is None or answer.drawn.macs > USUAL_MACS:
                continue
            if answer.accepted:
                self._at = found
            elif self._random.random() > REFUSED:
                continue
            return self._search.layer(found), answer.accepted

    def limits(self) -> Iterator[Drawn]:
        """Yield layers at the limits of each number.

        These are the largest accepted layer, the layer below it, and the smallest refused layer.
        """
        first = self._search.first
        assert first is not None
        for aspect in self._search.aspects:
            for places in _numbers(aspect):
                yield from self._limits_of(first, aspect, places)

    def _limits_of(
        self, first: Complete, aspect: Aspect, places: tuple[int, ...]
    ) -> Iterator[Drawn]:
        start = max(int(aspect.of(first)[place]) for place in places)
        fits, misfit = self._limit(first, aspect, places)
        for value in (fits, fits - 1):
            if value <= start:
                continue
            found = self._with(first, aspect, places, value)
            if found is None:
                continue
            if aspect.name in ("kernel", "window") and self._search.accepts(found):
                self._search.kept(found)  # random layers have few kernels as large by themselves
            found = self._with_more_results(found, aspect)
            yield self._search.layer(found), True
            if value == fits and aspect in self._sizes and self._has_one_sign(found):
                yield self._search.layer({**found, **ONE_SIGN}), True
        if misfit:
            refused = {**first, **aspect.with_value(_value(aspect, first, places, misfit))}
            if self._search.answer(refused).drawn is not None:
                yield self._search.layer(refused), False

    def _with_more_results(self, layer: Complete, limit: Aspect) -> Complete:
        """Return the layer with every other size raised to `FEW`, if accepted.

        A single result could saturate, and hide a loss in its accumulator.
        """
        for aspect in self._sizes:
            if aspect is limit or int(aspect.of(layer)[0]) >= FEW:
                continue
            larger = self._with(layer, aspect, (0,), FEW)
            if larger is not None and limit.of(larger) == limit.of(layer):
                layer = larger
        return layer

    def _limit(self, layer: Complete, aspect: Aspect, places: tuple[int, ...]) -> tuple[int, int]:
        """Return a layer's largest accepted number by bisection, and the smallest refused one.

        The second number is 0 if none was refused.
        """
        fits, misfit = max(int(aspect.of(layer)[place]) for place in places), 0
        while not misfit and fits < MOST_SIZE:
            if self._with(layer, aspect, places, 2 * fits) is None:
                misfit = 2 * fits
            else:
                fits *= 2
        while misfit - fits > 1:
            middle = (fits + misfit) // 2
            if self._with(layer, aspect, places, middle) is None:
                misfit = middle
            else:
                fits = middle
        return fits, misfit

    def _with(
        self, layer: Complete, aspect: Aspect, places: tuple[int, ...], number: int
    ) -> Complete | None:
        wanted = aspect.with_value(_value(aspect, layer, places, number))
        for tried in self._search.fitted({**layer, **wanted}):
            if self._search.accepts(tried, MOST_MACS):
                return tried
        return None

    def _large(self, layer: Complete) -> Drawn | None:
        if not self._sizes:
            return None
        aspect = self._sizes[int(self._random.integers(len(self._sizes)))]
        fits, _ = self._limit(layer, aspect, (0,))
        if fits == aspect.of(layer)[0]:
            return None
        less = int(self._random.integers(3))  # sizes that divide evenly hide cut-off parts
        for size in (fits - less, fits):
            large = self._with(layer, aspect, (0,), size) if size > 0 else None
            if large is not None:
                if self._random.random() < 0.5 and self._has_one_sign(large):
                    large = {**large, **ONE_SIGN}
                return self._search.layer(large), True
        return None

    def _has_one_sign(self, layer: Complete) -> bool:
        return all(name in layer for name in ONE_SIGN) and self._search.accepts(
            {**layer, **ONE_SIGN}, MOST_MACS
        )

    def _changed(self, layer: Complete) -> Complete:
        aspects = self._search.aspects
        count = min(len(aspects), 1 + int(self._random.geometric(0.35)))
        changed = dict(layer)
        for place in self._random.choice(len(aspects), count, replace=False):
            changed |= aspects[place].with_value(self._search.some_value(aspects[place]))
        for name, share in ALWAYS_DRAWN.items():
            if name in self._names and self._random.random() < share:
                changed |= self._names[name].with_value(self._search.some_value(self._names[name]))
        return changed


def _numbers(aspect: Aspect) -> Iterator[tuple[int, ...]]:
    """Yield the settings of an aspect to enlarge: each number alone, and two together."""
    first = aspect.values[0]
    if aspect.name == "padding" or not all(isinstance(each, int) and each > 0 for each in first):
        return
    if min(value[0] for value in aspect.values) < 1:  # type: ignore[operator]
        return
    yield from ((place,) for place in range(len(first)))
    if len(first) == 2:
        yield (0, 1)


def _value(aspect: Aspect, layer: Complete, places: tuple[int, ...], number: int) -> Value:
    return tuple(number if n in places else each for n, each in enumerate(aspect.of(layer)))
