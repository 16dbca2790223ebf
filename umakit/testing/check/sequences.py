# SPDX-License-Identifier: Apache-2.0
"""The order of layers: each kind follows each other kind, and small layers follow large ones.

A driver or a design may keep state of the previous layer: a register that is written only when its
value changes, an accumulator that is not cleared, a mode. Only the order of layers reveals such
state.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from umakit.testing.check.cases import Case
from umakit.testing.check.claims import Claim, layers_of


class Kind(NamedTuple):
    """Kind of a layer, by which layers are ordered.

    Attributes:
        pattern: pattern of the layer.
        is_large: whether the layer has more operations than most layers of its pattern in a batch.
    """

    pattern: str
    is_large: bool


Step = tuple[Kind, Kind]


class Orders:
    """Pairs of kinds of layers that have run directly after each other."""

    def __init__(self) -> None:
        self.done: set[Step] = set()
        self._kinds: set[Kind] = set()

    def note(self, cases: Sequence[Case], claims: Mapping[str, Claim]) -> None:
        """Count the layers of a batch that ran on the accelerator, in order."""
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
        for pattern in _patterns(cases)
    }
    return [
        Kind(case.pattern, work > usual[case.pattern])
        for case, work in zip(cases, works, strict=True)
    ]


def _patterns(cases: Iterable[Case]) -> set[str]:
    return {case.pattern for case in cases}
