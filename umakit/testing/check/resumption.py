# SPDX-License-Identifier: Apache-2.0
"""The runs of a batch, which continue without a case whose layer stops a run.

Cases with a result do not run again. A further process runs only the layers of the other cases.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy.typing as npt

from umakit.testing.check.rounds import Rounds
from umakit.testing.check.runs import FIRST_FAULT, ROUNDS_OF_FAULT, SAME_DATA, Round, RoundRun

Arrays = Mapping[str, npt.NDArray[Any]]

RESULTS = 0
"""Number of the round that gives results."""

MOST_LATE = 2
"""Maximum number of cases of a pattern, and of runs with faults, that may exceed a limit. Each
takes as long as the limit. Further ones do not run."""


class Resumption:
    """Runs rounds of a library, and leaves out cases that stop a round.

    Args:
        cases: number of the case for each layer; None for a layer of no case.
        patterns: patterns of the layers for each case.

    Attributes:
        runs: the runs, in execution order. Runs share a number if one stopped.
    """

    def __init__(
        self,
        program: Rounds,
        inputs: Arrays,
        cases: Sequence[int | None],
        patterns: Sequence[Sequence[str]],
        rounds: Sequence[Round],
    ) -> None:
        self._program, self._inputs = program, inputs
        self._cases, self._patterns = cases, patterns
        self._rounds = dict(enumerate(rounds))
        self._everyone = {case for case in cases if case is not None}
        self._last_layer = {case: number for number, case in enumerate(cases) if case is not None}
        self._done: defaultdict[int, set[int]] = defaultdict(set)
        self._left_out: set[int] = set()
        self._late: Counter[str] = Counter()
        self._known: dict[str, npt.NDArray[Any]] = {}
        self._next_fault, self._late_faults = FIRST_FAULT, 0
        self.runs: list[RoundRun] = []

    def run(self, timeout: float | None = None) -> None:
        """Run until each case has results of each round or has stopped one."""
        while True:
            todo, numbers = self._next()
            rounds = {number: self._rounds[number] for number in numbers}
            if not todo or not rounds:
                return
            out = {layer for layer, case in enumerate(self._cases)
                   if case is not None and case not in todo}  # fmt: skip
            known = {} if RESULTS in rounds else self._known
            found = self._program.run(self._inputs, rounds, out, known, timeout)
            self.runs += found
            for run in found:
                self._note_results(run, todo)
            if not found:
                return  # the device has none of the remaining faults
            last = found[-1]
            if last.number >= FIRST_FAULT:
                if not self._goes_on_behind_fault(last):
                    return
            elif last.has_stopped and not self._goes_on_without(last):
                return

    def _next(self) -> tuple[set[int], list[int]]:
        cases = self._everyone - self._left_out
        without = cases - self._done[RESULTS]
        if without == self._everyone:
            return without, list(self._rounds)
        if without:
            return without, [RESULTS]
        without = cases - self._done[SAME_DATA]
        if without and SAME_DATA in self._rounds:
            behind = [number for number in self._rounds if number > RESULTS]
            is_whole = without == self._everyone
            return without, behind if is_whole else [n for n in behind if n < FIRST_FAULT]
        if self._left_out:
            return set(), []
        return cases, [number for number in self._rounds if number >= self._next_fault]

    def _note_results(self, run: RoundRun, todo: set[int]) -> None:
        for layer in run.layers if run.number == RESULTS else ():
            self._known |= layer.outputs
        if run.number < FIRST_FAULT:
            end = run.completed if run.has_stopped else len(self._cases)
            self._done[run.number] |= {case for case in todo if self._last_layer[case] < end}

    def _goes_on_without(self, run: RoundRun) -> bool:
        """Leave out the case that stopped a run; return whether the other cases can continue."""
        if run.round.follows_error:
            # A stop in the first layer says nothing about the other layers.
            self._rounds[run.number] = replace(run.round, follows_error=False)
            return True
        case = self._cases[run.completed] if run.completed < len(self._cases) else None
        if case is None:
            return False
        self._left_out.add(case)
        if run.is_late:
            pattern = self._patterns[case][-1]
            self._late[pattern] += 1
            if self._late[pattern] >= MOST_LATE:
                same = {each for each in self._everyone if pattern in self._patterns[each]}
                self._left_out |= same - self._done[run.number]
        return True

    def _goes_on_behind_fault(self, run: RoundRun) -> bool:
        """Skip the fault of the run that ended the program; return whether runs remain."""
        self._late_faults += run.is_late
        done = 1 + (run.number - FIRST_FAULT) // ROUNDS_OF_FAULT
        self._next_fault = FIRST_FAULT + done * ROUNDS_OF_FAULT
        return run.status is None and self._late_faults < MOST_LATE
