# SPDX-License-Identifier: Apache-2.0
"""The layers of a check, which depend on the backend and a seed alone.

The first layers cover every value that the claims accept. The largest layers of each number follow.
Then pairs of kinds of values and random layers alternate. Some random layers are chains of two.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple, TypeVar

import numpy as np

from umakit.operators.drawing import NotDrawable
from umakit.testing.check.cases import Case
from umakit.testing.check.claims import Claim, accepts, layers_of
from umakit.testing.check.cover import Cover
from umakit.testing.check.drawing import Walk


class Kind(NamedTuple):
    """Kind of a layer; a large one has more operations than most of its pattern in a batch."""

    pattern: str
    is_large: bool


Step = tuple[Kind, Kind]


class Orders:
    """Pairs of kinds of layers that have run directly after each other.

    A driver or a design may keep state of the previous layer: a register that is written only when
    its value changes, an accumulator that is not cleared, a mode. Only the order shows such state.
    """

    def __init__(self) -> None:
        self.done: set[Step] = set()
        self._kinds: set[Kind] = set()

    def note(self, cases: Sequence[Case], claims: Mapping[str, Claim]) -> None:
        """Count the layers of a batch that ran on the accelerator."""
        kinds = kinds_of(cases, claims)
        self._kinds.update(kinds)
        self.done.update(itertools.pairwise(kinds))

    @property
    def possible(self) -> int:
        """Number of possible ordered pairs of the kinds that ran."""
        return len(self._kinds) ** 2


def in_sequence(
    cases: Sequence[tuple[Case, bool]], claims: Mapping[str, Claim]
) -> list[tuple[Case, bool]]:
    """Return cases in an order in which as many kinds as possible follow each other."""
    kinds = kinds_of([case for case, _ in cases], claims)
    left = list(range(len(cases)))
    order, done = [left.pop(0)], set()  # type: tuple[list[int], set[Step]]
    while left:
        last = kinds[order[-1]]
        found = next((n for n in left if (last, kinds[n]) not in done), left[0])
        done.add((last, kinds[found]))
        left.remove(found)
        order.append(found)
    return [cases[n] for n in order]


def kinds_of(cases: Sequence[Case], claims: Mapping[str, Claim]) -> list[Kind]:
    """Return the kind of each case: the kind of its last layer."""
    works = [layers_of(case, dict(claims))[-1].macs for case in cases]
    usual = {
        pattern: median(works[n] for n, case in enumerate(cases) if case.pattern == pattern)
        for pattern in {case.pattern for case in cases}
    }
    return [
        Kind(case.pattern, work > usual[case.pattern])
        for case, work in zip(cases, works, strict=True)
    ]


DRAWS = 1000
"""Number of layers of a check, unless values and limits need more."""

PROGRAMS_PER_DRAW = 5

BATCH, FIRST_BATCH = 100, 20
"""Number of cases of a library, and of the first library, which shows general failures early."""

PAIRS = 3
"""Layers with further pairs for each random layer, until no pairs are left."""

CHAINED = 0.3
"""Share of random layers that become chains of two."""

Drawn = tuple[Case, bool]
"""A case, and whether the patterns accept the case's last layer."""

T = TypeVar("T")


class Plan:
    """The layers of a check.

    Args:
        draws: number of layers; None for the number needed for values and limits, or `least`.
        least: number of layers if `draws` is None.

    Attributes:
        needed: number of layers for every value and limit; None before they are made.
    """

    def __init__(
        self,
        claims: Mapping[str, Claim],
        names: Sequence[str],
        seed: int,
        draws: int | None = None,
        least: int = DRAWS,
    ) -> None:
        self._claims, self._given, self._least = claims, draws, least
        self.names = names
        self._random = np.random.default_rng(seed)
        drawable = [name for name in names if claims[name].drawing is not None]
        self.covers = {
            name: Cover(claims[name], np.random.default_rng([seed, *name.encode()]))
            for name in drawable
        }
        self._walks = {
            name: Walk(claims[name], self._random, cover.search)
            for name, cover in self.covers.items()
            if cover.has_any
        }
        self.needed: int | None = None

    @property
    def draws(self) -> int:
        return self._given or max(self._least, self.needed or 0)

    @property
    def programs(self) -> int:
        """Maximum number of varied programs."""
        return (self.draws or DRAWS) * PROGRAMS_PER_DRAW

    def cases(self) -> Iterator[Drawn]:
        count = 0
        for drawn in itertools.chain(self._values(), self._limits()):
            count += 1
            if self._given is None or count <= self._given:
                yield drawn  # else the loop only finds unreachable values
        self.needed = count
        if count < self.draws:
            yield from itertools.islice(self._more(), self.draws - count)

    def batches(self) -> Iterator[list[Drawn]]:
        """Yield the layers in batches, ordered so that different layers follow each other."""
        cases = self.cases()
        yield list(itertools.islice(cases, FIRST_BATCH))
        while batch := list(itertools.islice(cases, BATCH)):
            yield in_sequence(batch, self._claims)

    def _of_claims(self) -> list[Cover]:
        return [self.covers[name] for name in self._walks]

    def _values(self) -> Iterator[Drawn]:
        for layer in in_turn([cover.each_value() for cover in self._of_claims()]):
            yield Case((layer,)), True

    def _limits(self) -> Iterator[Drawn]:
        for layer, accepted in in_turn([walk.limits() for walk in self._walks.values()]):
            yield Case((layer,)), accepted

    def _more(self) -> Iterator[Drawn]:
        if not self._walks:
            return
        pairs = in_turn([cover.each_pair() for cover in self._of_claims()])
        for name in itertools.cycle(self._walks):
            for pair in itertools.islice(pairs, PAIRS):
                yield Case((pair,)), True
            yield self._drawn(name)

    def _drawn(self, name: str) -> Drawn:
        layer, accepted = self._walks[name].draw()
        if accepted and self._random.random() < CHAINED:
            other = str(self._random.choice(list(self._walks)))
            chain = Case((layer, self._walks[other].draw()[0]))
            with contextlib.suppress(NotDrawable):
                if accepts(chain, dict(self._claims)):
                    return chain, True
        return Case((layer,)), accepted


def in_turn(sources: Iterable[Iterator[T]]) -> Iterator[T]:
    """Yield items of several sources in turn until all sources have ended."""
    left = list(sources)
    while left:
        for source in list(left):
            try:
                yield next(source)
            except StopIteration:
                left.remove(source)
