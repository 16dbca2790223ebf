# SPDX-License-Identifier: Apache-2.0
"""Pieces of memory and the steps at which they are in use. Imports nothing of TVM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Lifetime:
    """A piece of memory that is in use from its first to its last step, both inclusive."""

    name: str
    size: int
    first: int
    last: int

    def meets(self, other: Lifetime) -> bool:
        """Whether both pieces are alive at some step."""
        return self.first <= other.last and other.first <= self.last


def live_set_bound(lifetimes: Sequence[Lifetime]) -> int:
    """Return the largest total size alive at one step in bytes, a lower bound of all plans."""
    return max(
        (
            sum(other.size for other in lifetimes if other.first <= item.first <= other.last)
            for item in lifetimes
        ),
        default=0,
    )
