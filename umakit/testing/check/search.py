# SPDX-License-Identifier: Apache-2.0
"""Search of layers that a claim accepts: for each value of each aspect, one that has the value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from umakit.operators.drawing import Drawn, NotDrawable, Setting
from umakit.testing.check.aspects import Aspect, Value, aspects_of
from umakit.testing.check.cases import SEED, LayerSettings
from umakit.testing.check.claims import Claim

USUAL_MACS, MOST_MACS = 60_000, 1_500_000
"""Operations of a usual layer, and of one that is the largest that fits."""

TRIES, MORE_TRIES = 24, 400
"""Random layers among which one with a value is looked for; those for a value that a constraint
lists."""

FIRST_TRIES = 4000
"""Random layers among which the first one is looked for that a pattern accepts."""

DESCENTS = 6
"""Changes by which a layer that breaks several constraints is brought within them."""

LISTED_SHARE = 0.8
"""Share of random values that are among those that a constraint lists, where one lists any."""

BASES = 6
"""Accepted layers that a search starts from, besides the first one."""

UNDRAWABLE = 1000
"""Counts as so many broken constraints."""

IMAGE_OF = {"y": "height", "x": "width"}


@dataclass(frozen=True)
class Answer:
    """What a claim says about a layer.

    Attributes:
        drawn: the layer; None if there is none of these settings.
        broken: number of constraints that the layer breaks; 0 if only the predicate refuses it.
        reason: why the layer is refused; empty if it is accepted.
        by_predicate: whether the predicate of the backend is what refuses the layer.
    """

    drawn: Drawn | None
    broken: int = 0
    reason: str = ""
    by_predicate: bool = False

    @property
    def accepted(self) -> bool:
        """Whether the claim accepts the layer."""
        return self.drawn is not None and not self.reason


@dataclass
class Refused:
    """Why layers with a value are refused.

    Attributes:
        by_predicate: reasons of the backend's predicate, those of the simplest layer first.
        others: other reasons: of constraints.
    """

    by_predicate: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    def note(self, answer: Answer) -> None:
        """Count an answer that refuses a layer."""
        if answer.drawn is not None:
            (self.by_predicate if answer.by_predicate else self.others).append(answer.reason)

    @property
    def reason(self) -> str:
        """Why the simplest layer was refused, by the predicate if it refused any; may be empty."""
        return next(iter([*self.by_predicate, *self.others]), "")


Complete = dict[str, Setting]
"""All settings of a layer, by name."""


class Search:
    """Finds layers that a claim accepts.

    Args:
        claim: with a drawing.
        random: source of random numbers.

    Attributes:
        aspects: of the claim.
        first: the first layer that was found to be accepted; None if there is none.
    """

    def __init__(self, claim: Claim, random: np.random.Generator) -> None:
        assert claim.drawing is not None
        self.claim, self._drawing, self._random = claim, claim.drawing, random
        self.aspects = aspects_of(claim)
        self._answers: dict[tuple[Setting, ...], Answer] = {}
        self._bases: list[Complete] = []
        simplest = {name: values[0] for name, values in self._drawing.settings.items()}
        listed = dict(simplest)
        for aspect in self.aspects:
            chosen = next((value for value in aspect.values if value in aspect.claimed), None)
            listed |= {} if chosen is None else aspect.with_value(chosen)
        found = self._descended(simplest, self.aspects) or self._descended(listed, self.aspects)
        self.first = found or self._drawn(listed, None, FIRST_TRIES, Refused())
        self.simplest = simplest

    def answer(self, settings: Mapping[str, Setting]) -> Answer:
        """Return what the claim says about a layer of complete settings."""
        key = tuple(settings.values())
        if key not in self._answers:
            self._answers[key] = self._ask(settings)
        return self._answers[key]

    def accepts(self, settings: Mapping[str, Setting], macs: int = USUAL_MACS) -> bool:
        """Whether the claim accepts a layer of at most so many operations."""
        answer = self.answer(settings)
        return answer.accepted and answer.drawn is not None and answer.drawn.macs <= macs

    def _ask(self, settings: Mapping[str, Setting]) -> Answer:
        try:
            drawn = self.claim.layer(LayerSettings(self.claim.name, settings))
        except NotDrawable as reason:
            return Answer(None, UNDRAWABLE, str(reason) or "there is no such layer")
        if drawn.macs > MOST_MACS:
            return Answer(drawn, UNDRAWABLE, "more operations than a check takes time for")
        said = self.claim.accepts(drawn)
        if said is True:
            return Answer(drawn)
        broken = self.claim.broken(drawn)
        return Answer(drawn, broken, said or "a predicate that returns False", not broken)

    def find(self, aspect: Aspect, value: Value) -> tuple[Complete | None, Refused]:
        """Return an accepted layer that has a value, or why those that were tried are refused."""
        refused = Refused()
        if self.first is None:
            return None, refused
        wanted = aspect.with_value(value)
        for base in [self.first, *self._bases[: -BASES - 1 : -1]]:
            for tried in self.fitted({**base, **wanted}):
                if self.accepts(tried):
                    return self.kept(tried), refused
                refused.note(self.answer(tried))
        start = {**self.first, **wanted}
        if value in aspect.claimed:
            found = self._descended(start, [each for each in self.aspects if each is not aspect])
            if found is not None:
                return self.kept(found), refused
        tries = MORE_TRIES if value in aspect.claimed else TRIES
        return self._drawn(start, aspect, tries, refused), refused

    def fitted(self, settings: Complete) -> Iterator[Complete]:
        """Yield a layer, and where a window is larger than its image, with an image as large."""
        yield settings
        if self.answer(settings).drawn is not None or "height" not in settings:
            return
        window = "kernel" if "kernel_height" in settings else "window"
        larger = dict(settings)
        for axis, size in IMAGE_OF.items():
            taps = int(settings.get(f"{window}_{size}", 1))
            reach = (taps - 1) * int(settings.get(f"dilation_{axis}", 1)) + 1
            larger[size] = max(int(settings[size]), reach + int(settings.get(f"stride_{axis}", 1)))
        if larger != settings:
            yield larger

    def kept(self, settings: Complete) -> Complete:
        """Note an accepted layer as one that searches start from."""
        self._bases.append(settings)
        return settings

    def _drawn(
        self, start: Complete, fixed: Aspect | None, tries: int, refused: Refused
    ) -> Complete | None:
        """Return an accepted layer among random ones.

        Args:
            start: layer that is changed.
            fixed: aspect that keeps its value.
            tries: number of random layers.
            refused: gets the reasons.
        """
        free = [each for each in self.aspects if each is not fixed]
        for number in range(tries):
            count = len(free) if number % 4 == 3 else 1 + int(self._random.geometric(0.4))
            base = start if not self._bases or number % 2 else self.some_base()
            changed = dict(base) if fixed is None else {**base, **_same(start, fixed)}
            for place in self._random.permutation(len(free))[:count]:
                changed |= free[place].with_value(self.some_value(free[place]))
            for tried in self.fitted(changed):
                if self.accepts(tried):
                    return self.kept(tried)
                refused.note(self.answer(tried))
        return None

    def _descended(self, start: Complete, free: list[Aspect]) -> Complete | None:
        """Return an accepted layer that is reached by changes that break fewer constraints each."""
        at = start
        for _ in range(DESCENTS):
            if self.accepts(at):
                return at
            best, least = None, self.answer(at).broken
            for aspect in free:
                for value in aspect.values:
                    for tried in self.fitted({**at, **aspect.with_value(value)}):
                        if self.accepts(tried):
                            return tried
                        answer = self.answer(tried)
                        if answer.broken < least:
                            best, least = tried, answer.broken
            if best is None:
                return None
            at = best
        return None

    def some_base(self) -> Complete:
        """Return one of the accepted layers, at random."""
        return self._bases[int(self._random.integers(len(self._bases)))]

    def some_value(self, aspect: Aspect) -> Value:
        """Return one of the values of an aspect, at random: most often one that is listed."""
        values = aspect.values
        if aspect.claimed and self._random.random() < LISTED_SHARE:
            values = tuple(value for value in values if value in aspect.claimed)
        return values[int(self._random.integers(len(values)))]

    def layer(self, settings: Mapping[str, Setting]) -> LayerSettings:
        """Return a layer of complete settings, with a seed for its data."""
        seed = int(self._random.integers(1, 1 << 16))
        return LayerSettings(self.claim.name, {**settings, SEED: seed}).reduced(self._drawing)


def _same(settings: Complete, aspect: Aspect) -> dict[str, Setting]:
    return {name: settings[name] for name in aspect.settings}
