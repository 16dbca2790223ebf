# SPDX-License-Identifier: Apache-2.0
"""Pieces of memory and the steps at which they are in use. Imports nothing of TVM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True)
class Lifetime:
    """A piece of memory that is in use from its first to its last step, both inclusive."""

    name: str
    size: int
    first: int
    last: int


def live_set_bound(lifetimes: Sequence[Lifetime]) -> int:
    """Return the largest total size alive at one step in bytes, a lower bound of all plans."""
    changes: dict[int, int] = {}
    for item in lifetimes:
        changes[item.first] = changes.get(item.first, 0) + item.size
        changes[item.last + 1] = changes.get(item.last + 1, 0) - item.size
    return max(accumulate(changes[step] for step in sorted(changes)), default=0)
