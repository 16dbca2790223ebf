# SPDX-License-Identifier: Apache-2.0
"""The search for a layer's best tiling.

1. All tilings of nearly equal parts by the estimate. Tilings whose lower bound is not below the
   default's cycles are omitted, unless the planner's predictions are its own.
2. The best of them with the exact cycles of the cost model: the planner's prediction.
3. Starting from the best of these, all tilings that differ along one axis, including unequal parts,
   as long as better ones are found.
4. The best few in the simulator, and the default: measured cycles are compared with measured cycles
   only.

Each step depends only on the results of the previous one and not on the timing of workers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from umakit.backend.base import UMABackend
from umakit.backend.registry import load_backend_folder
from umakit.machine import Hardware, Layer, TileMachine, TilePlanner, Tiling
from umakit.machine.planner import prediction_of
from umakit.machine.selection import (
    MOST_COMMANDS,
    Candidate,
    Subspace,
    best_tilings,
    neighbours,
    search_space,
)
from umakit.machine.space import Key, tiles_on, tiling_key
from umakit.machine.tiles import BUFFERS, OUTPUT_CHANNELS
from umakit.records.tilings import Effort
from umakit.tools.tuning.simulate import simulated_cycles
from umakit.tools.tuning.workers import Workers

BATCH = 32
"""Number of tilings that are simulated before tilings that cannot beat the best are omitted."""

TILINGS_PER_TASK = 4
"""Number of tilings that one process simulates at a time."""

NEIGHBOURS = 4
"""Number of the best tilings by the estimate kept for each kind of neighbours, unless the planner's
predictions are its own: then the estimate may be far off."""

STARTS = 3
"""Number of best tilings whose neighbours are searched."""

GAIN_DIVISOR = 1000
"""A tiling is simulated exactly if it may save at least the best cycles divided by this number."""

ROUNDS = 8
"""Maximum number of rounds of the search among neighbours."""


_backends: dict[str, UMABackend] = {}
_loading = threading.Lock()
"""Lock for loading backends: threads of a cluster worker share backends."""


def _backend_in(folder: str) -> UMABackend:
    with _loading:
        if folder not in _backends:
            _backends[folder] = load_backend_folder(Path(folder))
        return _backends[folder]


@dataclass(frozen=True)
class Problem:
    """A layer on an accelerator.

    Attributes:
        given: planner of the layer. None in another process if the planner's class, its machine or
            a method is the backend's own, which that process loads from the backend's folder.
        folder: folder of the backend; empty if there is none.
    """

    layer: Layer
    given: TilePlanner | None
    folder: str = ""

    @property
    def planner(self) -> TilePlanner:
        planner = self.given or _backend_in(self.folder).tiling
        assert planner is not None  # the backend registered its planner in this process too
        return planner

    @property
    def machine(self) -> TileMachine:
        return self.planner.machine

    def __reduce__(self) -> tuple[type[Problem], tuple[Layer, TilePlanner | None, str]]:
        planner = self.given
        is_kits = (
            type(planner) is TilePlanner
            and type(planner.machine) is Hardware
            and not any(map(callable, vars(planner).values()))
        )
        return Problem, (self.layer, planner if is_kits else None, self.folder)


@dataclass(frozen=True)
class Progress:
    """Progress of the search for a layer.

    Attributes:
        seen: number of tilings so far.
        best: cycles of the best tiling so far.
    """

    stage: str
    seen: int
    best: int


Tell = Callable[[Progress], None]


@dataclass(frozen=True)
class Best:
    """The result of a search.

    Attributes:
        bound: lower bound of the cycles of all tilings.
        default: cycles of the default tiling by the cost model.
        predicted: cycles of the best tiling by the cost model.
        simulated: cycles of the best tiling in the simulator; None if not simulated.
        default_simulated: cycles of the default tiling in the simulator; None if not simulated.
        seen: number of tilings that were estimated or ruled out by a bound.
    """

    tiling: Tiling
    bound: int
    default: int
    predicted: int
    simulated: int | None
    default_simulated: int | None
    seen: int


def search(problem: Problem, effort: Effort, workers: Workers, tell: Tell | None = None) -> Best:
    planner = problem.planner
    default = planner.default(problem.layer)
    if default is None:
        raise ValueError("the layer does not fit in any way")
    found = prediction_of(planner, tiles_on(problem.layer, default, problem.machine))
    walk = _Walk(problem, effort, workers, tell or (lambda progress: None), default)
    walk.cycles[default] = found.cycles
    walk.space()
    walk.refine()
    ranked = walk.ranked()
    tiling, measured = ranked[0], dict[Tiling, int]()
    if effort.simulate:
        finalists = dict.fromkeys((default, *ranked[: effort.simulate]))
        walk.report(f"simulating {len(finalists)}")
        tasks = [(problem.folder, problem.layer, each) for each in finalists]
        cycles = zip(finalists, list(workers.map(simulate, tasks)), strict=True)
        measured = {each: count for each, count in cycles if count is not None}
    if default in measured:  # the first of equally good tilings
        tiling = min(measured, key=lambda each: measured[each])
    return Best(
        tiling, found.bound.cycles, found.cycles, walk.cycles[tiling],
        measured[tiling] if default in measured else None, measured.get(default), walk.seen + 1,
    )  # fmt: skip


def select(problem: Problem, space: Subspace, keep: int, below: int) -> tuple[list[Candidate], int]:
    """A task: the best tilings of a part of the space by the estimate, and the number seen."""
    planner = problem.planner
    limit = None if planner.has_own_predictions else below
    found = best_tilings(
        space, problem.layer, planner.machine, planner.driver, keep, limit, planner.own_estimate
    )
    return found.candidates, found.seen


def clock(problem: Problem, tilings: list[Tiling]) -> list[int]:
    """A task: the exact cycles of tilings."""
    planner = problem.planner
    tiles = [tiles_on(problem.layer, tiling, problem.machine) for tiling in tilings]
    return [prediction_of(planner, each).cycles for each in tiles]


def simulate(folder: str, layer: Layer, tiling: Tiling) -> int | None:
    """A task: the cycles of a tiling in a backend's simulator; None without a simulator."""
    return simulated_cycles(_backend_in(folder), layer, tiling)


@dataclass
class _Walk:
    """The state of a search.

    Attributes:
        default: tiling that the search starts from.
        cycles: exact cycles by tiling.
        seen: number of tilings so far.
    """

    problem: Problem
    effort: Effort
    workers: Workers
    tell: Tell
    default: Tiling
    cycles: dict[Tiling, int] = field(default_factory=dict)
    seen: int = 0

    @property
    def is_own(self) -> bool:
        """Whether the planner has its own predictions, for which bounds do not hold."""
        return self.problem.planner.has_own_predictions

    @property
    def best(self) -> int:
        return min(self.cycles.values())

    @property
    def wanted(self) -> int:
        """The cycles that a tiling must be able to reach to be simulated exactly."""
        return self.best - self.best // GAIN_DIVISOR

    def ranked(self) -> list[Tiling]:
        """Return the simulated tilings, best first; the default precedes equally good ones."""

        def key(tiling: Tiling) -> tuple[int, bool, Key]:
            return self.cycles[tiling], tiling != self.default, tiling_key(tiling)

        return sorted(self.cycles, key=key)

    def report(self, stage: str) -> None:
        self.tell(Progress(stage, self.seen, self.best))

    def space(self) -> None:
        """Search all tilings of nearly equal parts."""
        layer, machine = self.problem.layer, self.problem.machine
        parts = [
            Subspace((dataflow,), {**whole.sizes, OUTPUT_CHANNELS: [size]}, whole.buffers)
            for whole in (search_space(layer, machine, buffers) for buffers in reversed(BUFFERS))
            for dataflow in whole.dataflows
            for size in whole.sizes[OUTPUT_CHANNELS]
        ]
        self._run(self._candidates(parts, self.effort.clock), self.effort.clock)

    def refine(self) -> None:
        """Search the neighbours of the best tilings until no better one is found."""
        layer, machine = self.problem.layer, self.problem.machine
        started: set[Tiling] = set()
        for _ in range(ROUNDS):
            starts = [tiling for tiling in self.ranked()[:STARTS] if tiling not in started]
            if not starts:
                return
            started.update(starts)
            parts = [part for tiling in starts for part in neighbours(tiling, layer, machine)]
            keep = self.effort.clock if self.is_own else NEIGHBOURS
            self._run(self._candidates(parts, keep), max(BATCH, keep))

    def _candidates(self, parts: list[Subspace], keep: int) -> list[Candidate]:
        found: list[Candidate] = []
        tasks = [(self.problem, part, keep, self.wanted) for part in parts]
        for candidates, seen in self.workers.map(select, tasks):
            found += candidates
            self.seen += seen
            self.report("estimating")
        return sorted(found)

    def _run(self, candidates: list[Candidate], most: int) -> None:
        fresh = {
            each.tiling: each
            for each in candidates
            if each.tiling not in self.cycles and each.commands <= MOST_COMMANDS
        }
        left = list(fresh.values())[:most]
        while left:
            batch = [each for each in left[:BATCH] if self.is_own or each.bound < self.wanted]
            left = left[BATCH:]
            chunks = [
                [each.tiling for each in batch[start : start + TILINGS_PER_TASK]]
                for start in range(0, len(batch), TILINGS_PER_TASK)
            ]
            tasks = [(self.problem, chunk) for chunk in chunks]
            results = self.workers.map(clock, tasks)
            for chunk, cycles in zip(chunks, list(results), strict=True):
                self.cycles.update(zip(chunk, cycles, strict=True))
            self.report("on the clock")
