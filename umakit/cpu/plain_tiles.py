# SPDX-License-Identifier: Apache-2.0
"""Tiles of a convolution's sums in a small array, for compilers that vectorize plain loops.

A tile is some output channels by some columns of a row. The innermost loop runs over one of the
two, the lanes: compilers vectorize this loop, and keep the array in registers. The costs of tile
shapes were measured with gcc 12 for vectors of 16 and 32 bytes, see `bench/cpu.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

FEWEST_LANES = 14
"""A loop over fewer is unrolled by gcc before it looks for vectors."""

MOST_LANES = 48
"""Maximum number of lanes. More lanes need registers that few CPUs have."""

BEST_LANES = 32
"""Preferred number of lanes among those that fill vectors equally well."""

MOST_SUMS = 96
"""Sums of a tile."""

SUM_BYTES = 4 * MOST_SUMS
"""Most bytes of a tile's sums."""

COSTS = {1: 5.0, 2: 1.0, 3: 1.0, 4: 1.15, 5: 1.3, 6: 1.3, 7: 1.4}
"""Time of a sum by the number of sums in a lane. A single one of each is not kept in registers."""

SHORT_COST = 3.0
"""Time of a sum where there are too few lanes, by that with enough."""

UNROLLED = 4
"""Channels and columns of a tile of 16 sums, which fit 32 registers next to data and weights."""

CODE_COST = 1.1
"""Minimum speedup of tiles whose last tile needs separate code."""


@dataclass(frozen=True)
class PlainTile:
    """The sums that are computed at a time.

    Attributes:
        channels: output channels of the tile; they divide the output channels of a group.
        columns: columns of the tile; the last tile of a row may have fewer.
        by_columns: whether columns are the lanes, else channels are.
    """

    channels: int
    columns: int
    by_columns: bool


def choose_plain_tile(channels: int, row: int, is_dense: bool) -> PlainTile | None:
    """Return the tile of a convolution; None if no tile is good."""
    if (lanes := _lanes(channels)) and (columns := _others(row, lanes)) > 1:
        return PlainTile(lanes, columns, by_columns=False)
    return _by_columns(channels, row) if is_dense else None


def _by_columns(channels: int, row: int) -> PlainTile | None:
    """Return a tile whose lanes are columns; None if channels or columns are too few."""
    best, least = None, math.inf
    for lanes in range(FEWEST_LANES, min(row, MOST_LANES) + 1):
        if 0 < row % lanes < FEWEST_LANES:
            continue
        for count in (n for n in COSTS if n > 1 and channels % n == 0 and n * lanes <= MOST_SUMS):
            cost = vectors_of(lanes) / lanes * COSTS[count] * (CODE_COST if row % lanes else 1)
            if cost < least:
                best, least = PlainTile(count, lanes, by_columns=True), cost
    return best


def choose_unrolled_tile(channels: int, row: int) -> PlainTile | None:
    """Return a tile for a CPU with registers of one number each; None if no tile is good."""
    count = max(n for n in range(1, UNROLLED + 1) if channels % n == 0)
    columns = min(range(min(row, UNROLLED), 0, -1), key=lambda n: (-(-row // n), row % n > 0))
    is_good = count * columns >= UNROLLED
    return PlainTile(count, columns, by_columns=True) if is_good else None


def vectors_of(lanes: int) -> int:
    """Return the number of operations for some lanes, with vectors of 8, 4 and 2, and single
    numbers."""
    return lanes // 8 + (lanes % 8 // 4) + (lanes % 4 // 2) + lanes % 2


def _lanes(number: int) -> int:
    """Return the divisor with the best lanes; 0 if there is none."""
    divisors = [n for n in range(FEWEST_LANES, MOST_LANES + 1) if number % n == 0]
    return min(divisors, key=lambda n: (vectors_of(n) / n, abs(n - BEST_LANES)), default=0)


def _others(row: int, lanes: int) -> int:
    """Return the number of columns of a row that each lane computes at a time."""

    def cost(columns: int) -> float:
        whole, rest = divmod(row, columns)
        time = whole * columns * COSTS[columns]
        return (time + rest * COSTS[rest]) * CODE_COST if rest else time

    sizes = [n for n in COSTS if n <= row and n * lanes <= MOST_SUMS]
    return min(sizes, key=lambda n: (cost(n), n), default=1)


def choose_whole_tile(channels: int, row: int) -> PlainTile:
    """Return a tile whose columns divide a row, for dense columns."""
    best, least = PlainTile(1, 1, by_columns=True), math.inf
    for columns in _divisors(row):
        for count in _divisors(channels):
            if columns * count > MOST_SUMS:
                continue
            for by_columns in (False, True):
                lanes, others = (columns, count) if by_columns else (count, columns)
                cost = vectors_of(lanes) / lanes * COSTS.get(others, COSTS[1])
                if lanes < FEWEST_LANES:
                    cost *= SHORT_COST
                if cost < least:
                    best, least = PlainTile(count, columns, by_columns), cost
    return best


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, min(number, MOST_LANES) + 1) if number % n == 0]
