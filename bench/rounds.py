# SPDX-License-Identifier: Apache-2.0
"""Times of programs that take turns, so that what else the machine does falls on all of them."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Call = Callable[[], Any]
Rounds = dict[str, list[float]]


@dataclass(frozen=True)
class Spread:
    """Quartiles of what was measured in the rounds."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        """Return the spread of two or more values."""
        return cls(*statistics.quantiles(values, n=4))


def take_turns(calls: Mapping[str, Call], rounds: int, seconds: float) -> Rounds:
    """Seconds of a call in each round, by name.

    Time is that of this thread, which does not count what other programs take.

    Args:
        rounds: in each, everything has its turn.
        seconds: of a turn, at least; a call that is shorter is repeated.
    """
    repeats = {}
    for name, call in calls.items():
        call()
        started = time.thread_time()
        call()
        repeats[name] = math.ceil(seconds / max(1e-7, time.thread_time() - started))
    found: Rounds = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            started = time.thread_time()
            for _ in range(repeats[name]):
                call()
            found[name].append((time.thread_time() - started) / repeats[name])
    return found


def ratio(rounds: Rounds, over: str, under: str) -> Spread:
    """Times of one program over those of another in the same rounds."""
    pairs = zip(rounds[over], rounds[under], strict=True)
    return Spread.of([left / right for left, right in pairs])
