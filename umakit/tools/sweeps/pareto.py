# SPDX-License-Identifier: Apache-2.0
"""The machines of a sweep that no other one of it is better than."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Offer:
    """What a machine costs, and what it does for that.

    Attributes:
        costs: cycles and chosen costs, of which less is better, in one order for all machines.
        work: the operators of the network that it takes from the CPU. Cycles of an accelerator that
            takes less are fewer and no better: the rest is left to the CPU, whose cycles nobody
            knows.
    """

    costs: tuple[int, ...]
    work: Collection[int]

    def beats(self, other: Offer) -> bool:
        """Whether it does all that another one does, and costs less of one thing and more of none;
        or costs as much and does more."""
        if not set(self.work) >= set(other.work):
            return False
        pairs = list(zip(self.costs, other.costs, strict=True))
        if any(mine > its for mine, its in pairs):
            return False
        return any(mine < its for mine, its in pairs) or len(set(self.work)) > len(set(other.work))


def pareto_front(offers: Sequence[Offer | None]) -> list[bool]:
    """Return of each machine whether no other one beats it; False where its figures are unknown.

    Machines of equal costs and work are on the front together.

    Args:
        offers: what each machine offers; None where something is unknown.
    """
    known = [each for each in offers if each is not None]
    return [each is not None and not any(o.beats(each) for o in known) for each in offers]
