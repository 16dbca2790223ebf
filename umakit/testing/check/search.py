# SPDX-License-Identifier: Apache-2.0
"""Search for layers that a claim accepts, with each value of each aspect."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from umakit.operators.drawing import Drawn, NotDrawable, Setting
from umakit.testing.check.aspects import Aspect, Value, aspects_of
from umakit.testing.check.cases import SEED, LayerSettings
from umakit.testing.check.claims import Claim

USUAL_MACS, MOST_MACS = 60_000, 1_500_000
"""Maximum number of operations of a usual layer, and of a layer at a limit of size."""

TRIES, MORE_TRIES = 24, 400
"""Number of random layers to search for a value, and for a value listed by a constraint."""

FIRST_TRIES = 4000
"""Number of random layers to search for a first accepted layer."""

DESCENTS = 6
"""Maximum number of changes that bring a layer within the constraints."""

FORMS = frozenset(
    {"kernel", "window", "stride", "dilation", "padding", "layout", "batch", "groups", "axes",
     "channels_per_group", "dtype", "rounding", "scales", "broadcast"}
)  # fmt: skip
"""Aspects that predicates couple with others: `same` padding with kernels, groups with channels."""

MOST_BESIDE = 16
"""Values of each of these aspects that are tried with a value that is refused."""

LIKELY_SHARE = 0.8
"""Share of random values that no search has found to be refused, and that a constraint lists if a
constraint lists any."""

BASES = 6
"""Number of accepted layers to start a search from, besides the first one."""

UNDRAWABLE = 1000
"""Number of broken constraints of a layer that cannot be drawn or is too large."""

IMAGE_OF = {"y": "height", "x": "width"}


@dataclass(frozen=True)
class Answer:
    """The answer of a claim to a layer: accepted, or refused with the reason.

    Attributes:
        drawn: the layer; None if no layer can have these settings.
        broken: number of violated constraints; 0 if only the predicate refuses the layer.
        by_predicate: whether the predicate of the backend refuses the layer.
    """

    drawn: Drawn | None
    broken: int = 0
    reason: str = ""
    by_predicate: bool = False

    @property
    def accepted(self) -> bool:
        return self.drawn is not None and not self.reason


@dataclass
class Refused:
    """Reasons for refusals of layers with a value.

    Attributes:
        by_predicate: reasons of the backend's predicate, the simplest layer's first.
    """

    by_predicate: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    def note(self, answer: Answer) -> None:
        if answer.drawn is not None:
            (self.by_predicate if answer.by_predicate else self.others).append(answer.reason)

    @property
    def reason(self) -> str:
        """Reason of the refusal of the simplest layer, from the predicate if possible; or empty."""
        return next(iter([*self.by_predicate, *self.others]), "")


Complete = dict[str, Setting]
"""All settings of a layer, by name."""


class Search:
    """Finds layers that a claim accepts.

    Attributes:
        first: the first accepted layer found; None if there is none.
    """

    def __init__(self, claim: Claim, random: np.random.Generator) -> None:
        assert claim.drawing is not None
        self.claim, self._drawing, self._random = claim, claim.drawing, random
        self.aspects = aspects_of(claim)
        self._answers: dict[tuple[Setting, ...], Answer] = {}
        self._bases: list[Complete] = []
        self._of_form: dict[tuple[str, Value], list[Complete]] = {}
        self._refused: dict[str, set[Value]] = {}
        simplest = {name: values[0] for name, values in self._drawing.settings.items()}
        listed = dict(simplest)
        for aspect in self.aspects:
            chosen = next((value for value in aspect.values if value in aspect.claimed), None)
            listed |= {} if chosen is None else aspect.with_value(chosen)
        found = self._descended(simplest, self.aspects) or self._descended(listed, self.aspects)
        self.first = found or self._drawn(listed, None, FIRST_TRIES, Refused())
        if self.first is not None:
            self.kept(self.first)
        self.simplest = simplest

    def answer(self, settings: Mapping[str, Setting]) -> Answer:
        """Return the answer of the claim to a layer of complete settings."""
        key = tuple(settings.values())
        if key not in self._answers:
            self._answers[key] = self._ask(settings)
        return self._answers[key]

    def accepts(self, settings: Mapping[str, Setting], macs: int = USUAL_MACS) -> bool:
        """Whether the claim accepts a layer, and the layer has at most `macs` operations."""
        answer = self.answer(settings)
        return answer.accepted and answer.drawn is not None and answer.drawn.macs <= macs

    def _ask(self, settings: Mapping[str, Setting]) -> Answer:
        try:
            drawn = self.claim.layer(LayerSettings(self.claim.name, settings))
        except NotDrawable as reason:
            return Answer(None, UNDRAWABLE, str(reason) or "there is no such layer")
        if drawn.macs > MOST_MACS:
            return Answer(drawn, UNDRAWABLE, "more operations than a check takes time for")
        said, broken = self.claim.judged(drawn)
        if said is True:
            return Answer(drawn)
        return Answer(drawn, broken, said or "a predicate that returns False", not broken)

    def find(self, aspect: Aspect, value: Value) -> tuple[Complete | None, Refused]:
        """Return an accepted layer with a value, or the reasons of the refusals."""
        refused = Refused()
        if self.first is None:
            return None, refused
        wanted = aspect.with_value(value)
        for base in [self.first, *self._bases[: -BASES - 1 : -1]]:
            if found := self._fitting({**base, **wanted}, refused):
                return self.kept(found), refused
        start = {**self.first, **wanted}
        found = self._beside(start, aspect, refused)
        if found is not None:
            return self.kept(found), refused
        if value in aspect.claimed:
            found = self._descended(start, [each for each in self.aspects if each is not aspect])
            if found is not None:
                return self.kept(found), refused
        tries = MORE_TRIES if value in aspect.claimed else TRIES
        found = self._drawn(start, aspect, tries, refused)
        if found is None:
            self._refused.setdefault(aspect.name, set()).add(value)
        return found, refused

    def again(self, aspect: Aspect, value: Value) -> Complete | None:
        """Return an accepted layer with a value, starting from all layers found so far."""
        for base in list(self._bases):
            if found := self._fitting({**base, **aspect.with_value(value)}, Refused()):
                self._refused.get(aspect.name, set()).discard(value)
                return self.kept(found)
        return None

    def _fitting(self, settings: Complete, refused: Refused) -> Complete | None:
        """Return an accepted layer of `fitted`; note the reasons of refusals."""
        for tried in self.fitted(settings):
            if self.accepts(tried):
                return tried
            refused.note(self.answer(tried))
        return None

    def _beside(self, start: Complete, fixed: Aspect, refused: Refused) -> Complete | None:
        for aspect in self.aspects:
            if aspect is fixed or aspect.name not in FORMS:
                continue
            for value in aspect.values[:MOST_BESIDE]:
                if found := self._fitting({**start, **aspect.with_value(value)}, refused):
                    return found
        return None

    def fitted(self, settings: Complete) -> Iterator[Complete]:
        """Yield a layer and, if it cannot exist, one with a larger image or more channels.

        A window fits into the larger image. The numbers of channels are multiples of the groups.
        """
        yield settings
        if self.answer(settings).drawn is not None:
            return
        larger = dict(settings)
        window = "kernel" if "kernel_height" in settings else "window"
        for axis, size in IMAGE_OF.items():
            if size in settings:
                taps = int(settings.get(f"{window}_{size}", 1))
                reach = (taps - 1) * int(settings.get(f"dilation_{axis}", 1)) + 1
                step = int(settings.get(f"stride_{axis}", 1))
                larger[size] = max(int(settings[size]), reach + step)
        for name in ("channels", "filters"):
            if name in settings:
                larger[name] = math.lcm(int(settings[name]), max(1, int(settings.get("groups", 1))))
        if larger != settings:
            yield larger

    def kept(self, settings: Complete) -> Complete:
        """Note an accepted layer as a start of later searches."""
        self._bases.append(settings)
        for aspect in self.aspects:
            if aspect.name in FORMS:
                form = (aspect.name, aspect.of(settings))
                self._of_form.setdefault(form, []).append(settings)
        return settings

    def _drawn(
        self, start: Complete, fixed: Aspect | None, tries: int, refused: Refused
    ) -> Complete | None:
        """Return an accepted layer among random ones."""
        free = [each for each in self.aspects if each is not fixed]
        for number in range(tries):
            count = len(free) if number % 4 == 3 else 1 + int(self._random.geometric(0.4))
            base = start if not self._bases or number % 2 else self.some_base()
            kept = () if fixed is None else fixed.settings
            changed = {**base, **{name: start[name] for name in kept}}
            for place in self._random.permutation(len(free))[:count]:
                changed |= free[place].with_value(self.some_value(free[place]))
            if found := self._fitting(changed, refused):
                return self.kept(found)
        return None

    def _descended(self, start: Complete, free: list[Aspect]) -> Complete | None:
        """Return an accepted layer, found by changes that each violate fewer constraints."""
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
        """Return a random accepted layer, with equal chances for each form.

        Most layers were found for numbers of channels and have the simplest kernel.
        """
        layers = self._bases
        if self._of_form:
            forms = list(self._of_form.values())
            layers = forms[int(self._random.integers(len(forms)))]
        return layers[int(self._random.integers(len(layers)))]

    def some_value(self, aspect: Aspect) -> Value:
        """Return a random value of an aspect, mostly one not refused."""
        values: Sequence[Value] = aspect.values
        if self._random.random() < LIKELY_SHARE:
            refused = self._refused.get(aspect.name, set())
            likely = [v for v in values if v in (aspect.claimed or values) and v not in refused]
            values = likely or values
        return values[int(self._random.integers(len(values)))]

    def layer(self, settings: Mapping[str, Setting]) -> LayerSettings:
        """Return a layer of complete settings, with a seed for its data."""
        seed = int(self._random.integers(1, 1 << 16))
        return LayerSettings(self.claim.name, {**settings, SEED: seed}).reduced(self._drawing)
