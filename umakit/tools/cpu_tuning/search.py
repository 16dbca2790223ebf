# SPDX-License-Identifier: Apache-2.0
"""The state of a search for choices: the results of trials for each kernel."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from umakit.cpu.kernel_choices import Choice, KernelKey
from umakit.records.kernels import KernelRecord, Times
from umakit.tools.cpu_tuning.trials import Built, Figures, Trials

ROUNDS = 15
"""Number of rounds in which a trial and the rules' own choices take turns."""


@dataclass(frozen=True)
class Total:
    """Figures of the whole network with all choices; None if unknown.

    Attributes:
        times: processor times relative to the rules' own choices; None without other choices, or if
            instructions are counted.
        instructions: instructions; None if times are measured.
        own_instructions: instructions with the rules' own choices.
    """

    times: Times | None = None
    instructions: int | None = None
    own_instructions: int | None = None


@dataclass
class Search:
    """The state of a search.

    Attributes:
        own: the library with the rules' own choices.
        counts: whether instructions are counted.
    """

    trials: Trials
    own: Built
    counts: bool
    records: dict[KernelKey, KernelRecord] = field(default_factory=dict)

    def begin(self, existing: Mapping[KernelKey, KernelRecord]) -> None:
        """Adopt existing records of the rule's present choices, and start the others."""
        for key, chosen in self.own.made.items():
            if key not in self.own.operators:
                continue
            old, own = existing.get(key), chosen.candidates[0]
            fits = old is not None and old.own == own and old.choice in chosen.candidates
            operators = self.own.operators[key]
            self.records[key] = (
                replace(old, operators=operators)
                if old is not None and fits
                else KernelRecord(key, operators, own, own, 0)
            )

    def trials_left(self, most: int) -> list[int]:
        """Return the numbers of trials, up to a maximum, that some kernel has not had yet."""
        counts = [len(self.own.made[key].candidates) for key in self.records]
        return [n for n in range(1, min(max(counts) - 1, most) + 1) if self.tried_in(n)]

    def tried_in(self, trial: int) -> dict[KernelKey, Choice]:
        """Return the choices of a trial, for the kernels that have not had it yet."""
        return {
            key: self.own.made[key].candidates[trial]
            for key, record in self.records.items()
            if record.trials < trial < len(self.own.made[key].candidates)
        }

    @property
    def chosen(self) -> dict[KernelKey, Choice]:
        """The choices that are not the rules' own."""
        return {
            key: record.choice
            for key, record in self.records.items()
            if record.choice != record.own
        }

    def run(self, trial: int, tried: Mapping[KernelKey, Choice]) -> str:
        """Run a trial.

        Returns:
            Difference of its outputs, as text; empty if they are equal.
        """
        built = self.trials.build(tried)
        differs = self._difference(built)
        faster: set[KernelKey] = set()
        if not differs:
            figures = self._figures(built)
            faster = self._faster(figures, tried)
        if faster and not self.counts:
            figures = self._figures(built)  # chance alone makes no kernel faster twice
            faster = self._faster(figures, faster)
        for key, choice in tried.items():
            record = replace(self.records[key], trials=trial)
            if key in faster:
                new = self._with_figures(replace(record, choice=choice), figures)
                record = new if _is_better(new, record) else record
            self.records[key] = record
        return differs

    def finish(self) -> Total:
        """Measure all choices together and drop those that are not faster."""
        figures = self._finished()
        if figures is None:
            return Total()
        own, other = figures.whole
        if self.counts:
            return Total(None, round(float(other[0])), round(float(own[0])))
        return Total(times_of(other, own))

    def _finished(self) -> Figures | None:
        while self.chosen:
            built = self.trials.build(self.chosen)
            if self._difference(built):
                self.records = {key: _without_figures(r) for key, r in self.records.items()}
                return None
            figures = self._figures(built)
            faster = self._faster(figures, self.chosen)
            slower = set(self.chosen) - faster
            for key in faster:
                self.records[key] = self._with_figures(self.records[key], figures)
            for key in slower:
                self.records[key] = _without_figures(self.records[key])
            if not slower:
                return figures
        return None

    def _difference(self, built: Built) -> str:
        if built.layers != self.own.layers:
            return "with its choices the arena is above the limit, so that it has other layers"
        return difference(built.subject.outputs, self.own.subject.outputs)

    def _figures(self, built: Built) -> Figures:
        return self.trials.figures(self.own, built, 1 if self.counts else ROUNDS)

    def _faster(
        self, figures: Figures, keys: Mapping[KernelKey, Choice] | set[KernelKey]
    ) -> set[KernelKey]:
        found = set()
        for key in keys:
            own, other = figures.of(key)
            is_less = bool(other[0] < own[0]) if self.counts else is_faster(times_of(other, own))
            found |= {key} if is_less else set()
        return found

    def _with_figures(self, record: KernelRecord, figures: Figures) -> KernelRecord:
        own, other = figures.of(record.kernel)
        if self.counts:
            counts = round(float(other[0])), round(float(own[0]))
            return replace(record, instructions=counts[0], own_instructions=counts[1])
        return replace(record, times=times_of(other, own))


def _without_figures(record: KernelRecord) -> KernelRecord:
    """Return the record of a kernel that keeps the rule's own choice."""
    return replace(record, choice=record.own, times=None, instructions=None, own_instructions=None)


def _is_better(new: KernelRecord, old: KernelRecord) -> bool:
    return old.ratio is None or (new.ratio is not None and new.ratio < old.ratio)


# When a choice counts as faster than the rule's own.
#
# Both run in turns, round by round, so that disturbances affect both. A choice is faster if the
# median of the ratios of all rounds is below 1 by `LEAST_GAIN`, and their third quartile is below
# 1.

LEAST_GAIN = 0.02
"""Minimum gain of a faster choice, as a share of the time."""

TOLERANCE = 1e-4
"""Most that floats may differ, over the largest value of an output: choices change the order of
additions."""


def times_of(other: npt.NDArray[np.float64], own: npt.NDArray[np.float64]) -> Times | None:
    """Return the quartiles of ratios.

    Args:
        other, own: seconds in the same rounds, at least two.

    Returns:
        The quartiles of `other / own`; None if a time is too short to be measured.
    """
    if not (other > 0).all() or not (own > 0).all():
        return None
    low, median, high = statistics.quantiles((other / own).tolist(), n=4)
    return Times(round(low, 4), round(median, 4), round(high, 4))


def is_faster(times: Times | None) -> bool:
    """Whether a choice is faster than the rule's own beyond the spread of the rounds."""
    return times is not None and times.median <= 1 - LEAST_GAIN and times.high < 1


def difference(
    found: Mapping[str, npt.NDArray[np.generic]], wanted: Mapping[str, npt.NDArray[np.generic]]
) -> str:
    """Return the difference of outputs, as text; empty if equal.

    Integers have to be equal; floats may differ by `TOLERANCE`.
    """
    for name, array in wanted.items():
        if not np.issubdtype(array.dtype, np.floating):
            if not np.array_equal(found[name], array):
                return f"integers of output {name} differ"
            continue
        scale = float(np.abs(array[np.isfinite(array)]).max(initial=0.0))
        atol = TOLERANCE * scale
        if not np.allclose(found[name], array, rtol=TOLERANCE, atol=atol, equal_nan=True):
            return f"floats of output {name} differ by more than {TOLERANCE:g} of the largest"
    return ""
