# SPDX-License-Identifier: Apache-2.0
"""Selection of tilings: the best of a layer's tilings by the estimate.

Cuts, which are tilings without an order of loops, are taken in the order of a lower bound of their
cycles. When the bound of the next one is not below the estimate of the
worst that is kept, no better one is left (branch and bound).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from umakit.machine.commands import DriverCosts
from umakit.machine.estimate import Estimates
from umakit.machine.hardware import Hardware
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
from umakit.machine.tiles import AXES, BUFFERS, Tiling

MOST_COMMANDS = 20_000
"""A tiling with more is not run on the clock, which would take seconds."""


@dataclass(frozen=True, order=True)
class Candidate:
    """A tiling that may be good; the best comes first.

    Attributes:
        cycles: about how many it takes.
        commands: that it gives to the device; fewer are better.
        key: decides between equals.
        bound: what it cannot be faster than.
        tiling: itself.
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
        candidates: the best ones, the best first.
        seen: tilings that were looked at, or that a bound ruled out.
    """

    candidates: list[Candidate]
    seen: int


@dataclass(frozen=True)
class Subspace:
    """Part of a layer's space: every order of loops over these sizes.

    Attributes:
        dataflows: what may stay in the array.
        sizes: of tiles, by axis.
        buffers: as in `Tiling`.
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
        """A tiling of each size, in the order of `AXES`."""
        sizes = (self.sizes[axis] for axis in SIZED)
        for dataflow, (outputs, rows, columns, inputs) in product(self.dataflows, product(*sizes)):
            yield Tiling(dataflow, rows, columns, outputs, inputs, AXES, self.buffers)


def search_space(
    layer: Layer, hardware: Hardware, buffers: int = 2, uncut: Sequence[str] = ()
) -> Subspace:
    """All tilings that are worth a look; along an axis, of parts as equal as they can be.

    Args:
        layer: what is cut.
        hardware: for which accelerator.
        buffers: as in `Tiling`.
        uncut: axes that are left whole.
    """
    sizes = {
        axis: axis_sizes(layer, hardware, axis)[: 1 if axis in uncut else None] for axis in SIZED
    }
    return Subspace(dataflows_of(layer, hardware), sizes, buffers)


def best_tilings(
    space: Subspace,
    layer: Layer,
    hardware: Hardware,
    driver: DriverCosts,
    keep: int,
    below: int | None = None,
) -> Selection:
    """The best tilings of part of a space by the estimate.

    Args:
        space: where to look.
        layer: what is cut.
        hardware: for which accelerator.
        driver: what its driver's calls cost.
        keep: how many.
        below: leave out what takes at least that many cycles for certain.
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
        if len(found) == keep and bound >= found[-1].cycles:
            break
        tiles = tiles_on(layer, cut, hardware)
        if misfit(tiles, hardware):
            continue
        seen -= 1
        for order in orders_of(tiles.extents):
            seen += 1
            tiling = replace(cut, order=order)
            cost = estimates.of(tiles_on(layer, tiling, hardware))
            if below is not None and cost.bound >= below:
                continue
            key = tiling_key(tiling)
            candidate = Candidate(cost.cycles, cost.commands, key, cost.bound, tiling)
            if len(found) < keep or candidate < found[-1]:
                insort(found, candidate)
                del found[keep:]
    return Selection(found, seen)


def neighbours(tiling: Tiling, layer: Layer, hardware: Hardware) -> list[Subspace]:
    """The tilings that differ from one in its dataflow, its buffers, or its size along an axis.

    Their sizes are all that there are, and their loops in any order.
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
