# SPDX-License-Identifier: Apache-2.0
"""Gives the layers of a network to the accelerators that take the fewest cycles.

The network is compiled and run with the accelerators in several orders. In the order in which an
accelerator is first, it takes all that it can; that run says what its layers cost. From these
costs the stage `partition` gives each layer that several could take to one of them. What such a
choice changes besides, transposes where layouts meet, and results that no longer stay in a
scratchpad, is seen only in a run of the whole, so the combination is run too, and the way with the
least cost of all that were run is taken. Of equal ones it is the order that the user gave.

If the description of the CPU has costs, one of these ways leaves all layers to the CPU, and its
steps are candidates for layers as accelerators are; their cycles are predicted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, repeat
from pathlib import Path
from typing import Protocol

import numpy as np

from umakit.devices.run import LayerProfile, run_library
from umakit.errors import BuildError, DeviceError, UmakitError
from umakit.files.staging import temporary_folder
from umakit.library.export import Library
from umakit.machine.cpu import Cpu
from umakit.partition.choice import Key, LayerCosts, Source, TakenLayer
from umakit.partition.comparison import EACH_LAYER, Comparison, Whole
from umakit.partition.partitioner import Partitioned
from umakit.partition.report import CPU
from umakit.registration.backend import Backend

CPU_ONLY = "the CPU alone"
"""Name of the way in which no accelerator takes anything."""

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
    cpu: Cpu | None = None,
) -> Partitioned:
    """Return the network as it takes the fewest cycles, with the comparison in its report.

    Args:
        backends: accelerators in order of priority, at least one.
        partition: the stage `partition`.
        export: compiles a partitioned network.
        progress: callback with a description of each run.
        cpu: the CPU, which is a candidate if it has costs; None for any.

    Raises:
        BackendError: a predicate of a backend failed.
    """
    ways = _in_orders(backends, partition, export, progress)
    steps: tuple[TakenLayer, ...] = ()
    work = _on_cpu(ways)
    if cpu is not None and cpu.costs is not None:
        progress(f"predicting {CPU_ONLY}")
        alone = _run(CPU_ONLY, (), partition(()), export)
        steps = alone.layers.on_cpu
        if all(step.cycles is not None for step in steps if work.keys() & {*step.operators}):
            ways.append(alone)
    layers = (*_first_choices(backends, ways), *steps)
    costs = LayerCosts(layers, _predicted(work, steps), _clocks(backends, cpu))
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


def _clocks(backends: Sequence[Backend], cpu: Cpu | None) -> dict[str, float]:
    """Return the clock of each accelerator and of the CPU in MHz, where it is known."""
    clocks = {each.target_name: each.configuration.accelerator.clock_mhz for each in backends}
    clocks[CPU] = None if cpu is None or cpu.costs is None else cpu.costs.clock_mhz
    return {target: clock for target, clock in clocks.items() if clock is not None}


def _cycles_at_one_clock(way: _Way, costs: LayerCosts) -> tuple[int, float]:
    """Return the known cycles of a way's layers, and the factor for those of the CPU.

    They are cycles of the clock of the first accelerator if that of all of them and of the CPU is
    known; else clocks count as equal.
    """
    targets = {each.target for each in costs.layers}
    layers = [each for each in way.layers.taken if each.cycles is not None]
    if not targets <= {*costs.clocks} or CPU not in targets:
        return sum(each.cycles or 0 for each in layers), 1.0
    first = next(costs.clocks[each.target] for each in costs.layers)
    cycles = sum((each.cycles or 0) * first / costs.clocks[each.target] for each in layers)
    return round(cycles), first / costs.clocks[CPU]


def _on_cpu(ways: Sequence[_Way]) -> dict[Key, int]:
    """Return what operators are taken to cost on the CPU, of those that an accelerator takes."""
    costs: dict[Key, int] = {}
    for way in ways:
        rows = zip(way.partitioned.report.placements, way.partitioned.keys, strict=True)
        for placement, key in rows:
            if key is not None and placement.where != CPU:
                costs[key] = max(1, placement.macs, math.prod(placement.shape))
    return costs


def _predicted(work: Mapping[Key, int], steps: Iterable[TakenLayer]) -> dict[Key, int]:
    """Return what operators cost on the CPU: as predicted, else as they are taken to cost."""
    costs = dict(work)
    for step in steps:
        known = {key: work[key] for key in step.operators if key in work}
        if step.cycles is not None and known:
            costs |= _shares(step.cycles, known)
    return costs


def _shares(cycles: int, work: Mapping[Key, int]) -> dict[Key, int]:
    """Return the cycles of a step by its operators, as much for each as it has work."""
    total = sum(work.values())
    return {key: max(1, round(cycles * each / total)) for key, each in work.items()}


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
    cycles, factor = _cycles_at_one_clock(way, costs)
    return Whole(
        way.name,
        cycles,
        sources.count("measured"),
        sources.count("predicted"),
        sources.count("unknown"),
        round(way.partitioned.transposed * factor),
        round(sum(left) * factor),
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


Export = Callable[[Partitioned, Path], Library]
"""Compiles a partitioned network to a library in a folder."""


@dataclass(frozen=True)
class Layers:
    """The layers of a network on accelerators.

    Attributes:
        taken: the layers with their cycles.
        on_cpu: the steps on the CPU with their predicted cycles; empty if its description has no
            costs.
        not_run: why the library could not be run; empty if it was.
    """

    taken: tuple[TakenLayer, ...]
    on_cpu: tuple[TakenLayer, ...] = ()
    not_run: str = ""


def cycles_of_layers(partitioned: Partitioned, export: Export) -> Layers:
    """Compile a network and run it once on this machine, with inputs of zeros.

    Cycles are those that simulators count, else those that cost models predict; those of the CPU
    are predicted.

    Args:
        partitioned: the partitioned network.
        export: compiles it.

    Raises:
        UmakitError: it cannot be compiled.
    """
    with temporary_folder("umakit-choose-") as folder:
        library = export(partitioned, folder / "library")
        program, description = library.program, library.metadata["umakit"]
        if program is None:
            raise ValueError("the library was read, not compiled")
        views = description["inputs"]
        inputs = {view["name"]: np.zeros(view["shape"], view["dtype"]) for view in views}
        profiles: tuple[LayerProfile | None, ...] = ()
        not_run = ""
        if any(call.target != CPU for call in program.calls):
            try:
                profiles = run_library(library.path, inputs, profile=True).layers
            except (BuildError, DeviceError) as error:
                not_run = error.what
    taken, on_cpu = [], []
    described = description["layers"]
    for call, profile, layer in zip(
        program.calls, profiles or repeat(None), described, strict=False
    ):
        if call.target != CPU:
            counted = None if profile is None else profile.clock_cycles
            found = _known(counted, layer.get("predicted_cycles"))
            taken.append(TakenLayer(call.target, _keys(partitioned, call.rows), *found))
        elif "cpu_cycles" in layer:
            found = _known(None, layer["cpu_cycles"])
            on_cpu.append(TakenLayer(CPU, _keys(partitioned, call.rows), *found))
    return Layers(tuple(taken), tuple(on_cpu), not_run)


def _known(counted: int | None, predicted: int | None) -> tuple[int | None, Source]:
    """Return cycles of a layer and where they come from."""
    if counted is not None:
        return counted, "measured"
    return predicted, "unknown" if predicted is None else "predicted"


def _keys(partitioned: Partitioned, rows: tuple[int, ...]) -> tuple[Key, ...]:
    """Return the operators in rows of the offload report, without those that were added."""
    found = (partitioned.keys[row] for row in rows)
    return tuple(key for key in found if key is not None)
