# SPDX-License-Identifier: Apache-2.0
"""The search for a layer's best tiling.

1. All tilings of parts as equal as they can be, by the estimate. What cannot beat the default for
   certain is left out at once.
2. The best of them on the exact clock of the cost model.
3. From the best of these on, whatever differs along one axis, in sizes that are not of equal parts
   too, as long as that finds better ones.
4. The best few in the simulator.

What each step looks at depends on the results of the one before only, never on who was faster.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from umakit.backend.base import UMABackend
from umakit.backend.registry import load_backend_folder
from umakit.lower.tiling_records import Effort
from umakit.machine import DriverCosts, Hardware, Layer, TilePlanner, Tiling
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
from umakit.tools.tuning.simulate import simulated_cycles
from umakit.tools.tuning.workers import Workers

BATCH = 32
"""Tilings that are run on the clock before what cannot beat the best of them is left out."""

ALIKE = 4
"""Tilings of one task."""

STARTS = 3
"""Best tilings whose neighbours are looked at."""

GAIN = 1000
"""A tiling that saves less than this part of the cycles for certain is not run on the clock."""

ROUNDS = 8
"""How often the best tilings' neighbours are looked at, at most."""


@dataclass(frozen=True)
class Problem:
    """A layer on an accelerator."""

    layer: Layer
    hardware: Hardware
    driver: DriverCosts

    @property
    def planner(self) -> TilePlanner:
        """A planner for the accelerator."""
        return TilePlanner(self.hardware, self.driver)


@dataclass(frozen=True)
class Progress:
    """How far the search for a layer is.

    Attributes:
        stage: what is being done.
        seen: tilings so far.
        best: cycles of the best one so far.
    """

    stage: str
    seen: int
    best: int


Tell = Callable[[Progress], None]


@dataclass(frozen=True)
class Best:
    """What a search found.

    Attributes:
        tiling: the best one.
        bound: cycles that no tiling can beat.
        default: cycles of the default.
        predicted: cycles of the best one, by the cost model.
        simulated: the same in the simulator; None if it was not run there.
        seen: tilings that were looked at, or ruled out by a bound.
    """

    tiling: Tiling
    bound: int
    default: int
    predicted: int
    simulated: int | None
    seen: int


def search(
    problem: Problem, effort: Effort, workers: Workers, folder: str = "", tell: Tell | None = None
) -> Best:
    """The best tiling of a layer.

    Args:
        problem: the layer.
        effort: how long to look.
        workers: who does it.
        folder: of the backend, for the simulator.
        tell: told how far it is.

    Raises:
        ValueError: the layer cannot be cut to fit.
        UmakitError: the simulator cannot be built or run.
    """
    planner = problem.planner
    default = planner.default(problem.layer)
    if default is None:
        raise ValueError("the layer does not fit in any way")
    found = planner.predict(tiles_on(problem.layer, default, problem.hardware))
    walk = _Walk(problem, effort, workers, tell or (lambda progress: None), default)
    walk.cycles[default] = found.cycles
    walk.space()
    walk.refine()
    ranked = walk.ranked()
    tiling, predicted, simulated = ranked[0], walk.cycles[ranked[0]], None
    if effort.simulate:
        finalists = ranked[: effort.simulate]
        walk.report(f"simulating {len(finalists)}")
        tasks = [(folder, problem.layer, each) for each in finalists]
        cycles = list(workers.map(simulate, tasks))
        measured = [(c, n) for n, c in enumerate(cycles) if c is not None]
        if measured:
            simulated, number = min(measured)
            tiling, predicted = finalists[number], walk.cycles[finalists[number]]
    return Best(tiling, found.bound.cycles, found.cycles, predicted, simulated, walk.seen + 1)


def select(problem: Problem, space: Subspace, keep: int, below: int) -> tuple[list[Candidate], int]:
    """A task: the best tilings of part of a space by the estimate, and how many were seen."""
    layer, hardware, driver = problem.layer, problem.hardware, problem.driver
    found = best_tilings(space, layer, hardware, driver, keep, below)
    return found.candidates, found.seen


def clock(problem: Problem, tilings: list[Tiling]) -> list[int]:
    """A task: exact cycles of tilings."""
    planner = problem.planner
    tiles = [tiles_on(problem.layer, tiling, problem.hardware) for tiling in tilings]
    return [planner.predict(each).cycles for each in tiles]


_backends: dict[str, UMABackend] = {}
_loading = threading.Lock()
"""A worker of a cluster may have several threads, which share its backends."""


def simulate(folder: str, layer: Layer, tiling: Tiling) -> int | None:
    """A task: cycles of a tiling in the simulator of a backend; None if it has none."""
    with _loading:
        if folder not in _backends:
            _backends[folder] = load_backend_folder(Path(folder))
    return simulated_cycles(_backends[folder], layer, tiling)


@dataclass
class _Walk:
    """A search that is under way.

    Attributes:
        default: where it starts.
        cycles: exact cycles by tiling.
        seen: tilings so far.
    """

    problem: Problem
    effort: Effort
    workers: Workers
    tell: Tell
    default: Tiling
    cycles: dict[Tiling, int] = field(default_factory=dict)
    seen: int = 0

    @property
    def best(self) -> int:
        """Cycles of the best one."""
        return min(self.cycles.values())

    @property
    def wanted(self) -> int:
        """Cycles that are worth another look: less than the best one has, and not by a hair."""
        return self.best - self.best // GAIN

    def ranked(self) -> list[Tiling]:
        """Tilings that were run on the clock, the best first; the default before its equals."""

        def key(tiling: Tiling) -> tuple[int, bool, Key]:
            return self.cycles[tiling], tiling != self.default, tiling_key(tiling)

        return sorted(self.cycles, key=key)

    def report(self, stage: str) -> None:
        """Say how far it is."""
        self.tell(Progress(stage, self.seen, self.best))

    def space(self) -> None:
        """Look at all tilings of equal parts."""
        layer, hardware = self.problem.layer, self.problem.hardware
        parts = [
            Subspace((dataflow,), {**whole.sizes, OUTPUT_CHANNELS: [size]}, whole.buffers)
            for whole in (search_space(layer, hardware, buffers) for buffers in reversed(BUFFERS))
            for dataflow in whole.dataflows
            for size in whole.sizes[OUTPUT_CHANNELS]
        ]
        self._run(self._candidates(parts, self.effort.clock), self.effort.clock)

    def refine(self) -> None:
        """Look at what is near the best ones, until that helps no more."""
        layer, hardware = self.problem.layer, self.problem.hardware
        started: set[Tiling] = set()
        for _ in range(ROUNDS):
            starts = [tiling for tiling in self.ranked()[:STARTS] if tiling not in started]
            if not starts:
                return
            started.update(starts)
            parts = [part for tiling in starts for part in neighbours(tiling, layer, hardware)]
            self._run(self._candidates(parts, ALIKE), BATCH)

    def _candidates(self, parts: list[Subspace], keep: int) -> list[Candidate]:
        """The best of parts of the space, the best first."""
        found: list[Candidate] = []
        tasks = [(self.problem, part, keep, self.wanted) for part in parts]
        for candidates, seen in self.workers.map(select, tasks):
            found += candidates
            self.seen += seen
            self.report("estimating")
        return sorted(found)

    def _run(self, candidates: list[Candidate], most: int) -> None:
        """Run the best that are not run yet on the clock."""
        fresh = {
            each.tiling: each
            for each in candidates
            if each.tiling not in self.cycles and each.commands <= MOST_COMMANDS
        }
        left = list(fresh.values())[:most]
        while left:
            batch = [each for each in left[:BATCH] if each.bound < self.wanted]
            left = left[BATCH:]
            chunks = [
                [each.tiling for each in batch[start : start + ALIKE]]
                for start in range(0, len(batch), ALIKE)
            ]
            tasks = [(self.problem, chunk) for chunk in chunks]
            results = self.workers.map(clock, tasks)
            for chunk, cycles in zip(chunks, list(results), strict=True):
                self.cycles.update(zip(chunk, cycles, strict=True))
            self.report("on the clock")
