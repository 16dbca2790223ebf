# SPDX-License-Identifier: Apache-2.0
"""Tiles of a convolution's or matrix product's sums in vector registers.

A tile is some positions of the result by some channels. Each step of a kernel loads a vector of
weights once for all positions of the tile, and a number of the data once for all channels. The
loads per product are fewest for the least `(positions + vectors) / (positions * vectors)`, as in
the analysis of K. Goto and R. van de Geijn, "Anatomy of High-Performance Matrix Multiplication",
ACM TOMS 34(3), 2008.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from umakit.cpu.description import Cpu

SUMS_IN_FLIGHT = 9
"""Fewest sums that keep two multipliers with a latency of four cycles busy, plus one for delays."""

MOST_VECTORS = 4
"""Vectors of channels in a tile: more do not fit the registers next to several positions."""

MOST_POSITIONS = 64
"""Positions of a tile: more do not fit the registers of any CPU."""

MOST_DEPTHWISE = 8
"""Positions of a depthwise convolution's tile: more need more code, and are hardly faster."""

LOAD_COST = 0.1
"""Cost of a load in multiply-adds while load units are not the bottleneck."""


@dataclass(frozen=True)
class Tile:
    """The sums that a kernel keeps in registers.

    Attributes:
        positions: positions of the result; the last tile of a row may have fewer.
        channels: channels of each position, a multiple of `lanes`.
        lanes: channels of a vector; 1 for none.
    """

    positions: int
    channels: int
    lanes: int


def vector_lanes(cpu: Cpu, channels: int) -> int:
    """Return the lanes of the widest vectors that the channels fill; 1 for none."""
    lanes = cpu.float_lanes
    while channels % lanes:
        lanes //= 2
    return lanes


def step_cost(positions: int, vectors: int) -> float:
    """Return the cost of a step in vector multiply-adds, for two multiply-adds and two loads per
    cycle."""
    loads = positions + vectors
    return max(positions * vectors, loads, SUMS_IN_FLIGHT) + LOAD_COST * loads


def row_cost(row: int, tile: Tile) -> float:
    """Return the cost of a row in tiles, for one number of each position.

    The last tile has the remaining positions.
    """
    vectors = tile.channels // tile.lanes
    whole, rest = divmod(row, tile.positions)
    cost = whole * step_cost(tile.positions, vectors)
    return (cost + step_cost(rest, vectors) if rest else cost) / vectors


def fitting_tiles(cpu: Cpu, lanes: int, channels: int, positions: int) -> Iterator[Tile]:
    """Yield the tiles of up to some positions whose sums, weights and one number fit registers."""
    for vectors in range(1, MOST_VECTORS + 1):
        if channels % (vectors * lanes) == 0:
            most = min(positions, MOST_POSITIONS, (cpu.vector_registers - vectors - 1) // vectors)
            yield from (Tile(n, vectors * lanes, lanes) for n in range(1, most + 1))


def choose_tile(cpu: Cpu, row: int, channels: int) -> Tile:
    """Return the fastest tile for a row of positions; its channels divide the output channels."""
    lanes = vector_lanes(cpu, channels)
    tiles = fitting_tiles(cpu, lanes, channels, row)
    return min(tiles, key=lambda tile: row_cost(row, tile), default=Tile(1, lanes, lanes))


def fused_tile(cpu: Cpu, tile: Tile, rows: int, row: int, channels: int) -> Tile:
    """Return a tile over all rows if it is faster than a tile with a smaller last tile in each row.

    The tile lies in a row or takes whole rows.
    """
    whole = [
        each
        for each in fitting_tiles(cpu, tile.lanes, channels, MOST_POSITIONS)
        if 0 in (row % each.positions, each.positions % row) and rows * row % each.positions == 0
    ]
    best = min(whole, key=lambda each: row_cost(rows * row, each), default=tile)
    return best if row_cost(rows * row, best) < rows * row_cost(row, tile) else tile


def depthwise_tile(cpu: Cpu, row: int, channels: int, kernel_columns: int) -> Tile:
    """Return the tile of a depthwise convolution: some positions of a row by a vector of channels.

    Data for several positions are loaded once, and so are weights.

    Args:
        kernel_columns: unrolled columns of the kernel.
    """
    lanes = vector_lanes(cpu, channels)
    most = max(1, min(row, MOST_DEPTHWISE, cpu.vector_registers - kernel_columns - 2))
    tiles = {n: -(-row // n) for n in range(1, most + 1)}
    return Tile(min(tiles, key=lambda n: (tiles[n], n)), lanes, lanes)
