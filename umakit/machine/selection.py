# SPDX-License-Identifier: Apache-2.0
"""Selection of the best tilings of a layer by the estimate, with branch and bound.

Cuts, tilings without a loop order, are visited in the order of a lower bound of their cycles. The
search ends when the bound of the next cut is not below the estimate of the worst kept tiling,
because no better tiling is left.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from umakit.machine.commands import DriverCosts
from umakit.machine.estimate import Estimates
from umakit.machine.layer import Layer
from umakit.machine.space import (
    SIZED,
    Key,
    axis_sizes,
    dataflows_of,
    misfit,
    orders_of,
    sizes_of,
    tiles_on,
    tiling_key,
)
from umakit.machine.systolic import Dataflow
from umakit.machine.tile_machine import TileMachine
from umakit.machine.tiles import AXES, BUFFERS, Tiles, Tiling

MOST_COMMANDS = 20_000
"""A tiling with more commands is not simulated exactly, which would take seconds."""


@dataclass(frozen=True, order=True)
class Candidate:
    """A tiling with its estimate; candidates sort from best to worst.

    Attributes:
        commands: number of commands that the driver enqueues; fewer are better.
        bound: lower bound of the cycles.
    """

    cycles: int
    commands: int
    key: Key
    bound: int = field(compare=False)
    tiling: Tiling = field(compare=False)


@dataclass(frozen=True)
class Selection:
    """The best tilings by the estimate.

    Attributes:
        candidates: the best tilings, best first.
        seen: number of tilings, estimated or ruled out by a bound.
    """

    candidates: list[Candidate]
    seen: int


@dataclass(frozen=True)
class Subspace:
    """A part of a layer's search space: all loop orders over some tile sizes.

    Attributes:
        buffers: number of buffers per tensor, as in `Tiling`.
    """

    dataflows: tuple[Dataflow, ...]
    sizes: Mapping[str, Sequence[int]]
    buffers: int = 2

    def __len__(self) -> int:
        count = len(self.dataflows)
        for sizes in self.sizes.values():
            count *= len(sizes)
        return count

    def cuts(self) -> Iterator[Tiling]:
        """Yield a tiling of each combination of sizes, with its loops in the order of `AXES`."""
        sizes = (self.sizes[axis] for axis in SIZED)
        for dataflow, (outputs, rows, columns, inputs) in product(self.dataflows, product(*sizes)):
            yield Tiling(dataflow, rows, columns, outputs, inputs, AXES, self.buffers)


def search_space(
    layer: Layer, hardware: TileMachine, buffers: int = 2, uncut: Sequence[str] = ()
) -> Subspace:
    """Return the search space of a layer: tiles of nearly equal size along each axis but `uncut`
    ones."""
    sizes = {
        axis: axis_sizes(layer, hardware, axis)[: 1 if axis in uncut else None] for axis in SIZED
    }
    return Subspace(dataflows_of(layer, hardware), sizes, buffers)


def some_tiling_fits(layer: Layer, hardware: TileMachine, most_buffers: int) -> bool:
    """Whether a layer can be cut into tiles that fit, without a search for the best tiling."""
    for buffers in BUFFERS:
        if buffers <= max(most_buffers, BUFFERS[0]):
            space = search_space(layer, hardware, buffers)
            smallest_first = {axis: sizes[::-1] for axis, sizes in space.sizes.items()}
            for cut in replace(space, sizes=smallest_first).cuts():
                if not misfit(tiles_on(layer, cut, hardware), hardware):
                    return True
    return False


def best_tilings(
    space: Subspace,
    layer: Layer,
    hardware: TileMachine,
    driver: DriverCosts,
    keep: int,
    below: int | None = None,
    estimate: Callable[[Tiles], int] | None = None,
) -> Selection:
    """Return the best tilings of a part of the search space by the estimate.

    Args:
        below: omit tilings whose lower bound is at least this number of cycles.
        estimate: replaces the kit's estimate of a tiling's cycles; the kit's bounds do not hold
            then, so all tilings are estimated.
    """
    estimates = Estimates(layer, hardware, driver)
    seen = 0
    ranked = []
    for number, cut in enumerate(space.cuts()):
        seen += 1
        bound = estimates.bound(cut)
        if below is None or bound < below:
            ranked.append((bound, number, cut))
    ranked.sort(key=lambda item: item[:2])
    found: list[Candidate] = []
    for bound, _, cut in ranked:
        if estimate is None and len(found) == keep and bound >= found[-1].cycles:
            break
        tiles = tiles_on(layer, cut, hardware)
        if misfit(tiles, hardware):
            continue
        seen -= 1
        for order in orders_of(tiles.extents):
            seen += 1
            tiling = replace(cut, order=order)
            ordered = tiles_on(layer, tiling, hardware)
            if space.buffers > 1 and misfit(ordered, hardware):
                continue  # the order decides how often a tensor is copied, at most `buffers` tiles
            cost = estimates.of(ordered)
            if below is not None and cost.bound >= below:
                continue
            key = tiling_key(tiling)
            cycles = cost.cycles if estimate is None else estimate(ordered)
            candidate = Candidate(cycles, cost.commands, key, cost.bound, tiling)
            if len(found) < keep or candidate < found[-1]:
                insort(found, candidate)
                del found[keep:]
    return Selection(found, seen)


def neighbours(tiling: Tiling, layer: Layer, hardware: TileMachine) -> list[Subspace]:
    """Return the tilings that differ from a tiling in the dataflow, the buffers, or the size along
    one axis.

    All tile sizes and all loop orders are included.
    """
    sizes = {axis: [size] for axis, size in sizes_of(tiling).items()}
    own = (tiling.dataflow,)
    parts = [
        Subspace(dataflows_of(layer, hardware), sizes, tiling.buffers),
        *(Subspace(own, sizes, count) for count in BUFFERS if count != tiling.buffers),
    ]
    for axis in SIZED:
        every = axis_sizes(layer, hardware, axis, every=True)
        parts.append(Subspace(own, {**sizes, axis: every}, tiling.buffers))
    return parts
