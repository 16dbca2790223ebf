# SPDX-License-Identifier: Apache-2.0
"""Gives the layers of a network to the accelerators that take the fewest cycles.

The network is compiled and run with the accelerators in several orders. In the order in which an
accelerator is first, it takes all that it can; that run says what its layers cost. From these
costs the stage `partition` gives each layer that several could take to one of them. What such a
choice changes besides, transposes where layouts meet, and results that no longer stay in a
scratchpad, is seen only in a run of the whole, so the combination is run too, and the way with the
least cost of all that were run is taken. Of equal ones it is the order that the user gave.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Protocol

from umakit.choosing.layers import Export, Layers, cycles_of_layers
from umakit.errors import UmakitError
from umakit.partition.choice import Key, LayerCosts, TakenLayer
from umakit.partition.comparison import EACH_LAYER, Comparison, Whole
from umakit.partition.partitioner import Partitioned
from umakit.partition.report import CPU
from umakit.registration.backend import Backend

MOST_PERMUTED = 3
"""Maximum number of accelerators whose orders are all run; of more, each is first once."""


class PartitionStage(Protocol):
    """The stage `partition` for one network."""

    def __call__(self, order: Sequence[Backend], costs: LayerCosts | None = None) -> Partitioned:
        """Return the network on accelerators in an order of priority, or by their costs."""


@dataclass(frozen=True)
class _Way:
    """One way to give layers to accelerators, and what its run said."""

    name: str
    order: tuple[Backend, ...]
    partitioned: Partitioned
    layers: Layers
    failed: str = ""
    is_each_layer: bool = False


def choose_by_cycles(
    backends: Sequence[Backend],
    partition: PartitionStage,
    export: Export,
    progress: Callable[[str], None] = lambda stage: None,
) -> Partitioned:
    """Return the network as it takes the fewest cycles, with the comparison in its report.

    Args:
        backends: accelerators in order of priority, at least one.
        partition: the stage `partition`.
        export: compiles a partitioned network.
        progress: callback with a description of each run.

    Raises:
        BackendError: a predicate of a backend failed.
    """
    ways = _in_orders(backends, partition, export, progress)
    costs = LayerCosts(_first_choices(backends, ways), _on_cpu(ways))
    each = partition(backends, costs)
    same = next((n for n, way in enumerate(ways) if _alike(way.partitioned, each)), None)
    if same is None:
        progress(f"measuring {EACH_LAYER}")
        ways.append(_run(EACH_LAYER, tuple(backends), each, export, is_each_layer=True))
    else:
        ways[same] = replace(ways[same], partitioned=each, is_each_layer=True)
    comparison = _compared(ways, costs)
    return _described(ways[comparison.taken].partitioned, each, comparison)


def _in_orders(
    backends: Sequence[Backend],
    partition: PartitionStage,
    export: Export,
    progress: Callable[[str], None],
) -> list[_Way]:
    """Return the network in different orders of accelerators, the given one first."""
    orders = _orders(backends)
    ways: list[_Way] = []
    for number, order in enumerate(orders, start=1):
        name = f"order {', '.join(each.target_name for each in order)}"
        partitioned = partition(order)
        known = next((way for way in ways if _alike(way.partitioned, partitioned)), None)
        if known is not None and known.order[0] is order[0]:
            continue
        if known is not None:
            ways.append(replace(known, name=name, order=order, partitioned=partitioned))
            continue
        progress(f"measuring {number} of {len(orders)}: {name}")
        ways.append(_run(name, order, partitioned, export))
    return ways


def _orders(backends: Sequence[Backend]) -> list[tuple[Backend, ...]]:
    if len(backends) <= MOST_PERMUTED:
        return list(permutations(backends))
    return [(first, *(each for each in backends if each is not first)) for first in backends]


def _run(
    name: str,
    order: tuple[Backend, ...],
    partitioned: Partitioned,
    export: Export,
    *,
    is_each_layer: bool = False,
) -> _Way:
    try:
        layers, failed = cycles_of_layers(partitioned, export), ""
    except UmakitError as error:  # another way may compile; else the user sees the error of one
        layers, failed = Layers(()), error.what
    return _Way(name, order, partitioned, layers, failed, is_each_layer)


def _alike(one: Partitioned, other: Partitioned) -> bool:
    return one.report.placements == other.report.placements


def _first_choices(backends: Sequence[Backend], ways: Sequence[_Way]) -> tuple[TakenLayer, ...]:
    """Return what each accelerator takes where it is the first in order."""
    found: list[TakenLayer] = []
    for backend in backends:
        way = next(way for way in ways if way.order[0] is backend)
        if not way.failed:
            found += [layer for layer in way.layers.taken if layer.target == backend.target_name]
    return tuple(found)


def _on_cpu(ways: Sequence[_Way]) -> dict[Key, int]:
    """Return what operators are taken to cost on the CPU, of those that an accelerator takes."""
    costs: dict[Key, int] = {}
    for way in ways:
        rows = zip(way.partitioned.report.placements, way.partitioned.keys, strict=True)
        for placement, key in rows:
            if key is not None and placement.where != CPU:
                costs[key] = max(1, placement.macs, math.prod(placement.shape))
    return costs


def _compared(ways: Sequence[_Way], costs: LayerCosts) -> Comparison:
    """Return the costs of all ways and the one that is taken."""
    unknown = {
        key
        for way in ways
        for layer in way.layers.taken
        if layer.cycles is None
        for key in layer.operators
    }
    wholes = tuple(_whole(way, costs, unknown) for way in ways)
    ranks = [
        (bool(whole.failed), whole.uncounted, whole.cost, number > 0, not whole.is_each_layer)
        for number, whole in enumerate(wholes)
    ]
    return Comparison(wholes, ranks.index(min(ranks)))


def _whole(way: _Way, costs: LayerCosts, unknown: set[Key]) -> Whole:
    """Return the cost of a way.

    Args:
        way: the way.
        costs: what operators cost on the CPU.
        unknown: operators without known cycles in any of the ways.
    """
    taken = way.layers.taken
    known = {key for layer in taken if layer.cycles is not None for key in layer.operators}
    rows = zip(way.partitioned.report.placements, way.partitioned.keys, strict=True)
    left = [costs.on_cpu.get(key, 0) for row, key in rows if key is not None and row.where == CPU]
    sources = [layer.source for layer in taken]
    return Whole(
        way.name,
        sum(layer.cycles or 0 for layer in taken),
        sources.count("measured"),
        sources.count("predicted"),
        sources.count("unknown"),
        way.partitioned.transposed,
        sum(left),
        len(unknown - known),
        way.failed or "",
        way.is_each_layer,
    )


def _described(taken: Partitioned, each: Partitioned, comparison: Comparison) -> Partitioned:
    """Return a network with the costs of its layers and the comparison in its report."""
    decisions = {
        key: row.decision
        for row, key in zip(each.report.placements, each.keys, strict=True)
        if row.decision is not None
    }
    placements = []
    for row, key in zip(taken.report.placements, taken.keys, strict=True):
        decision = decisions.get(key)
        if decision is not None and row.where != decision.target and row.decision is not None:
            decided = f"by {comparison.best.name}, fewer cycles as a whole"
            decision = replace(decision, decided=decided)
        placements.append(replace(row, decision=decision or row.decision))
    report = replace(taken.report, placements=tuple(placements), comparison=comparison)
    return replace(taken, report=report)
