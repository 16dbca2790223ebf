# SPDX-License-Identifier: Apache-2.0
"""Assignment of layers to the accelerators that take the fewest cycles.

The network is compiled and run with several priority orders of the accelerators. The order in which
an accelerator comes first gives the cost of all layers that the accelerator supports. From these
costs, the stage `partition` assigns each layer to one accelerator. An assignment also changes
transposes between layouts and residency in scratchpads, which only a run of the whole network
measures. So the combination is run too, and the cheapest of all runs wins. Ties go to the user's
order.

If the description of the CPU has costs, the network without accelerators is a further candidate,
and the CPU competes for single layers with predicted cycles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, repeat
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit.cpu.description import Cpu
from umakit.errors import BuildError, DeviceError, UmakitError
from umakit.files.staging import temporary_folder
from umakit.library.export import Library
from umakit.partition.choice import Key, LayerCosts, Source, TakenLayer
from umakit.partition.comparison import EACH_LAYER, Comparison, Whole
from umakit.partition.partitioner import Partitioned
from umakit.partition.report import CPU
from umakit.registration.backend import Backend

CPU_ONLY = "the CPU alone"
"""Name of the way in which no accelerator takes anything."""

MOST_PERMUTED = 3
"""Maximum number of accelerators whose orders are all run; of more, each is first once."""


PartitionStage = Callable[..., Partitioned]
"""(order of priority, costs = None) -> the partitioned network."""

Export = Callable[[Partitioned, Path], Library]
"""Compiles a partitioned network to a library in a folder."""

Run = Callable[[Path, Mapping[str, npt.NDArray[Any]]], Sequence[int | None]]
"""(folder of a library, inputs) -> the device's cycles of each layer; None for unknown cycles."""


@dataclass(frozen=True)
class Stages:
    """The stages that compile the network, and the run of the library."""

    partition: PartitionStage
    export: Export
    run: Run


@dataclass(frozen=True)
class _Way:
    """An assignment of layers to accelerators, and the result of its run."""

    name: str
    order: tuple[Backend, ...]
    partitioned: Partitioned
    layers: Layers
    failed: str = ""
    is_each_layer: bool = False


def choose_by_cycles(
    backends: Sequence[Backend],
    stages: Stages,
    progress: Callable[[str], None] = lambda stage: None,
    cpu: Cpu | None = None,
) -> Partitioned:
    """Return the network with the fewest cycles; the CPU is a candidate if it has costs."""
    ways = _in_orders(backends, stages, progress)
    steps: tuple[TakenLayer, ...] = ()
    work = _on_cpu(ways)
    if cpu is not None and cpu.costs is not None:
        progress(f"predicting {CPU_ONLY}")
        alone = _run(CPU_ONLY, (), stages.partition(()), stages)
        steps = alone.layers.on_cpu
        if all(step.cycles is not None for step in steps if work.keys() & {*step.operators}):
            ways.append(alone)
    layers = (*_first_choices(backends, ways), *steps)
    costs = LayerCosts(layers, _predicted(work, steps), _clocks(backends, cpu))
    each = stages.partition(backends, costs)
    same = next((n for n, way in enumerate(ways) if _alike(way.partitioned, each)), None)
    if same is None:
        progress(f"measuring {EACH_LAYER}")
        ways.append(_run(EACH_LAYER, tuple(backends), each, stages, is_each_layer=True))
    else:
        ways[same] = replace(ways[same], partitioned=each, is_each_layer=True)
    comparison = _compared(ways, costs)
    return _described(ways[comparison.taken].partitioned, each, comparison)


def _in_orders(
    backends: Sequence[Backend], stages: Stages, progress: Callable[[str], None]
) -> list[_Way]:
    orders = _orders(backends)
    ways: list[_Way] = []
    for number, order in enumerate(orders, start=1):
        name = f"order {', '.join(each.target_name for each in order)}"
        partitioned = stages.partition(order)
        known = next((way for way in ways if _alike(way.partitioned, partitioned)), None)
        if known is not None and known.order[0] is order[0]:
            continue
        if known is not None:
            ways.append(replace(known, name=name, order=order, partitioned=partitioned))
            continue
        progress(f"measuring {number} of {len(orders)}: {name}")
        ways.append(_run(name, order, partitioned, stages))
    return ways


def _orders(backends: Sequence[Backend]) -> list[tuple[Backend, ...]]:
    if len(backends) <= MOST_PERMUTED:
        return list(permutations(backends))
    return [(first, *(each for each in backends if each is not first)) for first in backends]


def _run(
    name: str,
    order: tuple[Backend, ...],
    partitioned: Partitioned,
    stages: Stages,
    *,
    is_each_layer: bool = False,
) -> _Way:
    try:
        layers, failed = cycles_of_layers(partitioned, stages), ""
    except UmakitError as error:  # another way may compile; otherwise the user sees one error
        layers, failed = Layers(()), error.what
    return _Way(name, order, partitioned, layers, failed, is_each_layer)


def _alike(one: Partitioned, other: Partitioned) -> bool:
    return one.report.placements == other.report.placements


def _first_choices(backends: Sequence[Backend], ways: Sequence[_Way]) -> tuple[TakenLayer, ...]:
    found: list[TakenLayer] = []
    for backend in backends:
        way = next(way for way in ways if way.order[0] is backend)
        if not way.failed:
            found += [layer for layer in way.layers.taken if layer.target == backend.target_name]
    return tuple(found)


def _clocks(backends: Sequence[Backend], cpu: Cpu | None) -> dict[str, float]:
    """Return the known clocks of the accelerators and the CPU in MHz."""
    clocks = {each.target_name: each.configuration.accelerator.clock_mhz for each in backends}
    clocks[CPU] = None if cpu is None or cpu.costs is None else cpu.costs.clock_mhz
    return {target: clock for target, clock in clocks.items() if clock is not None}


def _cycles_at_one_clock(way: _Way, costs: LayerCosts) -> tuple[int, float]:
    """Return a way's known cycles, of the first clock if all are known, and the CPU's factor."""
    targets = {each.target for each in costs.layers}
    layers = [each for each in way.layers.taken if each.cycles is not None]
    if not targets <= {*costs.clocks} or CPU not in targets:
        return sum(each.cycles or 0 for each in layers), 1.0
    first = next(costs.clocks[each.target] for each in costs.layers)
    cycles = sum((each.cycles or 0) * first / costs.clocks[each.target] for each in layers)
    return round(cycles), first / costs.clocks[CPU]


def _on_cpu(ways: Sequence[_Way]) -> dict[Key, int]:
    """Return the assumed CPU cost of each operator that some accelerator takes."""
    costs: dict[Key, int] = {}
    for way in ways:
        rows = zip(way.partitioned.report.placements, way.partitioned.keys, strict=True)
        for placement, key in rows:
            if key is not None and placement.where != CPU:
                costs[key] = max(1, placement.macs, math.prod(placement.shape))
    return costs


def _predicted(work: Mapping[Key, int], steps: Iterable[TakenLayer]) -> dict[Key, int]:
    """Return the CPU cost of each operator: predicted, or else assumed."""
    costs = dict(work)
    for step in steps:
        known = {key: work[key] for key in step.operators if key in work}
        if step.cycles is not None and known:  # divided among operators by their work
            cycles, total = step.cycles, sum(known.values())
            costs |= {key: max(1, round(cycles * each / total)) for key, each in known.items()}
    return costs


def _compared(ways: Sequence[_Way], costs: LayerCosts) -> Comparison:
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


@dataclass(frozen=True)
class Layers:
    """The layers of a network on accelerators.

    Attributes:
        on_cpu: steps on the CPU with predicted cycles; empty if the CPU description has no costs.
        not_run: why the library did not run; empty after a run.
    """

    taken: tuple[TakenLayer, ...]
    on_cpu: tuple[TakenLayer, ...] = ()
    not_run: str = ""


def cycles_of_layers(partitioned: Partitioned, stages: Stages) -> Layers:
    """Compile a network and run it once on this machine, with inputs of zeros.

    Accelerator cycles come from simulators, or else from cost models. CPU cycles are predicted.
    """
    with temporary_folder("umakit-choose-") as folder:
        library = stages.export(partitioned, folder / "library")
        program, description = library.program, library.metadata["umakit"]
        if program is None:
            raise ValueError("the library was read, not compiled")
        views = description["inputs"]
        inputs = {view["name"]: np.zeros(view["shape"], view["dtype"]) for view in views}
        counted: Sequence[int | None] = ()
        not_run = ""
        if any(call.target != CPU for call in program.calls):
            try:
                counted = stages.run(library.path, inputs)
            except (BuildError, DeviceError) as error:
                not_run = error.what
    taken, on_cpu = [], []
    described = description["layers"]
    for call, cycles, layer in zip(program.calls, counted or repeat(None), described, strict=False):
        if call.target != CPU:
            found = _known(cycles, layer.get("predicted_cycles"))
            taken.append(TakenLayer(call.target, _keys(partitioned, call.rows), *found))
        elif "cpu_cycles" in layer:
            found = _known(None, layer["cpu_cycles"])
            on_cpu.append(TakenLayer(CPU, _keys(partitioned, call.rows), *found))
    return Layers(tuple(taken), tuple(on_cpu), not_run)


def _known(counted: int | None, predicted: int | None) -> tuple[int | None, Source]:
    if counted is not None:
        return counted, "measured"
    return predicted, "unknown" if predicted is None else "predicted"


def _keys(partitioned: Partitioned, rows: tuple[int, ...]) -> tuple[Key, ...]:
    found = (partitioned.keys[row] for row in rows)
    return tuple(key for key in found if key is not None)
