# SPDX-License-Identifier: Apache-2.0
"""Drawing of cases at and around what a pattern accepts.

From a layer that the pattern accepts, each draw changes a few settings at random, some of them
often. What is still accepted is the layer that the next draw starts from; what is refused lies
just outside of the constraints. The largest layers that are accepted are found by bisection of
each size, from the simplest layer and from others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace

import numpy as np

from umakit.operators.drawing import Drawn, NotDrawable, Setting
from umakit.operators.offload.pattern import OperatorPattern
from umakit.testing.check.cases import SEED, LayerSettings
from umakit.testing.check.claims import Claim

TRIES = 4000
"""Number of random layers among which one is looked for that the pattern accepts."""

USUAL_MACS, MOST_MACS = 60_000, 1_500_000
"""Operations of a usual layer, and of one that is the largest that fits."""

MOST_SIZE = 1 << 16
ALWAYS_DRAWN = {"scale": 0.5, "clip": 0.5, "values": 0.5, "rounding": 0.25}
"""Share of draws in which these settings change besides others: what is wrong in one LSB needs a
certain combination of them, in which a walk of few changes rarely arrives."""

LARGE = 0.06
"""Share of draws in which one size is as large as the pattern accepts, and other settings are as
they are: what overflows, or is cut into tiles, often needs several of them."""

ONE_SIGN = {"values": "lowest", "weights": "lowest"}
"""Settings of a layer whose products all have one sign: sums become as large as they can."""

REFUSED = 0.12
"""Share of draws that the pattern refuses."""


class Walk:
    """Draws layers for one claim.

    Args:
        claim: with a drawing.
        random: source of random numbers.

    Attributes:
        edges: the largest layers that are accepted, and the smallest ones that are not.
    """

    def __init__(self, claim: Claim, random: np.random.Generator) -> None:
        assert claim.drawing is not None
        self._claim, self._random = claim, random
        numbers = sorted(_numbers(claim))
        near = {n + step for n in numbers for step in (-1, 0, 1)} | {2 * n for n in numbers}
        self._values: dict[str, list[Setting]] = {
            name: _with(values, near if name in claim.drawing.sizes else numbers)
            for name, values in claim.drawing.settings.items()
        }
        self._start = self._first_accepted()
        self._at = self._start

    @property
    def has_any(self) -> bool:
        """Whether a layer was found that the pattern accepts."""
        return self._start is not None

    def draw(self) -> tuple[LayerSettings, bool]:
        """Return a layer, and whether the pattern accepts it."""
        assert self._at is not None and self._start is not None
        if self._random.random() < 0.05:
            self._at = self._start
        if self._random.random() < LARGE:
            large = self._large(self._at)
            if large is not None:
                return large
        while True:
            found = self._changed(self._at)
            drawn = self._made(found)
            if drawn is None or drawn.macs > USUAL_MACS:
                continue
            accepted = self._claim.accepts(drawn) is True
            if accepted:
                self._at = found
            elif self._random.random() > REFUSED:
                continue
            return self._seeded(found), accepted

    def edges(self) -> Iterator[tuple[LayerSettings, bool]]:
        """Yield small layers of all roundings and scales that are accepted, and for each size the
        largest layer that is accepted and the smallest that is not."""
        drawing = self._claim.drawing
        assert drawing is not None and self._start is not None
        for rounding in drawing.settings.get("rounding", ()):
            for scale in drawing.settings.get("scale", ()):
                small = _set(_set(self._start, "rounding", rounding), "scale", scale)
                drawn = self._made(small)
                if drawn is not None and self._claim.accepts(drawn) is True:
                    yield self._seeded(small), True
        for name in drawing.sizes:
            start = int(self._start.settings.get(name, drawing.settings[name][0]))
            fits, misfit = self._limit(self._start, name, start)
            if fits != start:
                largest = _set(self._start, name, fits)
                yield self._seeded(largest), True
                if self._has_one_sign(largest):
                    yield self._seeded(_with_one_sign(largest)), True
            if misfit:
                yield self._seeded(_set(self._start, name, misfit)), False

    def _limit(self, layer: LayerSettings, name: str, start: int) -> tuple[int, int]:
        """Return the largest size of a layer that is accepted, by bisection, and the smallest one
        that is not; 0 for that if none was found."""
        fits, misfit = start, 0
        size = fits
        while not misfit and size < MOST_SIZE:
            size *= 2
            answer = self._fits(layer, name, size)
            if answer is None:
                break
            fits, misfit = (size, 0) if answer else (fits, size)
        while misfit - fits > 1:
            middle = (fits + misfit) // 2
            answer = self._fits(layer, name, middle)
            if answer is None:
                break
            fits, misfit = (middle, misfit) if answer else (fits, middle)
        return fits, misfit

    def _large(self, layer: LayerSettings) -> tuple[LayerSettings, bool] | None:
        """Return a layer of which one size is large; None if that changes nothing."""
        drawing = self._claim.drawing
        assert drawing is not None
        if not drawing.sizes:
            return None
        name = drawing.sizes[int(self._random.integers(len(drawing.sizes)))]
        start = int(layer.settings.get(name, drawing.settings[name][0]))
        fits, _ = self._limit(layer, name, start)
        if fits == start:
            return None
        less = int(self._random.integers(3))  # sizes that divide well hide what is cut off
        for size in (fits - less, fits):
            if self._fits(layer, name, size):
                large = _set(layer, name, size)
                if self._random.random() < 0.5 and self._has_one_sign(large):
                    large = _with_one_sign(large)
                return self._seeded(large), True
        return None

    def _has_one_sign(self, layer: LayerSettings) -> bool:
        """Whether the pattern also accepts the layer where all products have one sign."""
        if any(name not in self._values for name in ONE_SIGN):
            return False
        drawn = self._made(_with_one_sign(layer))
        return drawn is not None and self._claim.accepts(drawn) is True

    def _fits(self, layer: LayerSettings, name: str, size: int) -> bool | None:
        """Whether a size is accepted; None if there is no such layer, or it takes too long."""
        drawn = self._made(_set(layer, name, size))
        if drawn is None or drawn.macs > MOST_MACS:
            return None
        return self._claim.accepts(drawn) is True

    def _seeded(self, layer: LayerSettings) -> LayerSettings:
        assert self._claim.drawing is not None
        seed = int(self._random.integers(1, 1 << 16))
        return replace(layer, settings={**layer.settings, SEED: seed}).reduced(self._claim.drawing)

    def _made(self, layer: LayerSettings) -> Drawn | None:
        try:
            return self._claim.layer(layer)
        except NotDrawable:
            return None

    def _changed(self, layer: LayerSettings) -> LayerSettings:
        names = list(self._values)
        count = min(len(names), 1 + int(self._random.geometric(0.35)))
        changed = {
            str(name): self._value(str(name))
            for name in self._random.choice(names, count, replace=False)
        }
        for name, share in ALWAYS_DRAWN.items():
            if name in self._values and self._random.random() < share:
                changed[name] = self._value(name)
        return replace(layer, settings={**layer.settings, **changed})

    def _value(self, name: str) -> Setting:
        values = self._values[name]
        return values[int(self._random.integers(len(values)))]

    def _first_accepted(self) -> LayerSettings | None:
        """Return an accepted layer: the simplest one, or one found at random from it."""
        first = LayerSettings(self._claim.name)
        found = first
        for _ in range(TRIES):
            drawn = self._made(found)
            if drawn and drawn.macs <= USUAL_MACS and self._claim.accepts(drawn) is True:
                return found
            found = self._changed(self._changed(first))
            if self._random.random() < 0.5:
                every = {name: self._value(name) for name in self._values}
                found = replace(first, settings=every)
        return None


def _set(layer: LayerSettings, name: str, value: Setting) -> LayerSettings:
    return replace(layer, settings={**layer.settings, name: value})


def _with_one_sign(layer: LayerSettings) -> LayerSettings:
    return replace(layer, settings={**layer.settings, **ONE_SIGN})


def _with(values: Iterable[Setting], numbers: Iterable[int]) -> list[Setting]:
    """Return the values, with numbers of the pattern's constraints among numbers."""
    given = list(values)
    if not all(isinstance(value, int) for value in given) or any(int(v) < 1 for v in given):
        return given
    return [*given, *(n for n in sorted(set(numbers)) if n > 0 and n not in given)]


def _numbers(claim: Claim) -> set[int]:
    """Return all numbers in the fields of a pattern, also those in texts such as `O/16 HWI`."""
    found: set[int] = set()

    def read(value: object) -> None:
        if isinstance(value, bool):
            return
        if isinstance(value, int) and 0 < value < 1024:
            found.add(value)
        elif isinstance(value, str):
            found.update(int(text) for text in re.findall(r"\b\d+", value))
        elif isinstance(value, (list, tuple, set, frozenset)):
            for each in value:
                read(each)

    predicate = claim.pattern.predicate
    if isinstance(predicate, OperatorPattern):
        for item in fields(predicate):
            if item.name not in ("name", "dtypes"):
                read(getattr(predicate, item.name))
        predicate = predicate.predicate
    read(getattr(getattr(predicate, "__code__", None), "co_consts", ()))
    return found
