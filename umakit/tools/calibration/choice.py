# SPDX-License-Identifier: Apache-2.0
"""The choice of measured costs.

A formula is used if it holds on held-out commands and is no worse there than the previous costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from umakit.machine import Copy, Cost, TileMachine
from umakit.machine.calibration import (
    AS_DESCRIBED,
    Calibrated,
    Calibration,
    CopyCosts,
    Evidence,
    Formula,
    JobCosts,
)
from umakit.tools.calibration.measure import Timed

MOST_PERCENT = 5.0
"""Largest deviation, on commands that were held out, of a formula that holds."""

Costs = JobCosts | CopyCosts


@dataclass(frozen=True)
class Fitted:
    """A formula, and the commands held out of its fit.

    Attributes:
        costs: the formula, with its agreement with the held-out commands.
        is_scattered: whether commands of equal sizes took different cycles.
    """

    costs: Costs
    held_out: tuple[Timed, ...]
    is_scattered: bool = False


@dataclass(frozen=True)
class Choice:
    """The costs in use for some commands: the measured formula, or the previous costs.

    Attributes:
        before: the previous costs of the same commands, from an earlier calibration or the
            description.
        before_evidence: agreement of the previous costs with the held-out commands.
        reason: reason for not using the measured formula; empty if it is used.
    """

    measured: Costs
    before: tuple[Costs, ...]
    before_evidence: Evidence
    reason: str = ""
    is_scattered: bool = False

    @property
    def used(self) -> tuple[Costs, ...]:
        return self.before if self.reason else (self.measured,)

    @property
    def evidence(self) -> Evidence:
        """Agreement of the costs in use with the held-out commands."""
        return self.before_evidence if self.reason else self.measured.evidence

    @property
    def source(self) -> str:
        """Source of the costs in use: `measured`, `earlier` or `described`."""
        if not self.reason:
            return "measured"
        is_described = all(each.busy == each.tail == AS_DESCRIBED for each in self.before)
        return "described" if is_described else "earlier"


def deviation(cost: Cost, command: Timed) -> float:
    """Return the deviation of a command's cycles, relative to the measured cycles."""
    off, cycles = abs(cost.busy - command.busy), command.busy
    if command.tail is not None:
        off, cycles = off + abs(cost.tail - command.tail), cycles + command.tail
    return off / max(1, cycles)


def is_no_worse(deviations: Sequence[float], before: Sequence[float]) -> bool:
    """Whether neither the largest nor the mean deviation exceeds the previous ones."""
    tolerance = 1 + 1e-9
    return not deviations or (
        max(deviations) <= max(before) * tolerance
        and fmean(deviations) <= fmean(before) * tolerance
    )


def choices_of(
    fitted: Iterable[Fitted], measured: TileMachine, before: TileMachine, *, use_inexact: bool
) -> list[Choice]:
    """Return the costs in use for the commands of each formula, for each tensor and sum apart."""

    def reason_of(held_out: Sequence[Timed]) -> str:
        if not held_out:
            return "" if use_inexact else "no command was left to be held out"
        new, old = _deviations(measured, held_out), _deviations(before, held_out)
        if not is_no_worse(new, old):
            return "the costs before are closer to commands that were held out"
        if 100 * max(new) > MOST_PERCENT and not use_inexact:
            return f"off by more than {MOST_PERCENT:g} % on commands that were held out"
        return ""

    choices = []
    for each in fitted:
        costs, by_reason = each.costs, dict[str, list[str | bool]]()
        of_all = reason_of(each.held_out)
        for part in costs.tensors if isinstance(costs, CopyCosts) else _sums_of(costs):
            own = [command for command in each.held_out if part_of(command) == part]
            by_reason.setdefault(reason_of(own) if own else of_all, []).append(part)
        for reason, parts in by_reason.items():
            choices.append(_choice(each, measured, before, parts, reason))
    return choices


def _sums_of(costs: JobCosts) -> tuple[bool, ...]:
    return (False, True) if costs.adds is None else (costs.adds,)


def part_of(command: Timed) -> str | bool:
    """Return the group of a command within a formula: the tensor, or whether a job adds one."""
    sizes = command.sizes
    return sizes.tensor if isinstance(sizes, Copy) else sizes.layer.adds


def _deviations(machine: TileMachine, commands: Iterable[Timed]) -> list[float]:
    return [deviation(cost_of(machine, each), each) for each in commands]


def cost_of(machine: TileMachine, command: Timed) -> Cost:
    sizes = command.sizes
    return machine.copy(sizes) if isinstance(sizes, Copy) else machine.job(sizes)


def evidence_of(machine: TileMachine, held_out: Sequence[Timed], fitted: int = 0) -> Evidence:
    """Return the agreement of a machine's costs with commands."""
    found = _deviations(machine, held_out)
    worst = 100 * max(found, default=0.0)
    return Evidence(fitted, len(found), sum(each == 0 for each in found), round(worst, 3))


def _choice(
    fitted: Fitted, measured: TileMachine, before: TileMachine, parts: list[str | bool], reason: str
) -> Choice:
    costs = fitted.costs
    own = [each for each in fitted.held_out if part_of(each) in parts]
    evidence = evidence_of(measured, own, costs.evidence.fitted)
    old = evidence_of(before, own)
    earlier = before if isinstance(before, Calibrated) else None
    kept: tuple[Costs, ...]
    if isinstance(costs, CopyCosts):
        tensors = tuple(each for each in costs.tensors if each in parts)
        costs = replace(costs, tensors=tensors, evidence=evidence)
        kept = _copies_before(earlier, costs.stream, tensors, old)
    else:
        adds = costs.adds if len(parts) == len(_sums_of(costs)) else bool(parts[0])
        costs = replace(costs, adds=adds, evidence=evidence)
        kept = _jobs_before(earlier, costs, old)
    return Choice(costs, kept, old, reason, fitted.is_scattered)


def _copies_before(
    earlier: Calibrated | None, stream: str, tensors: Iterable[str], evidence: Evidence
) -> tuple[CopyCosts, ...]:
    formulas: dict[tuple[Formula, Formula], list[str]] = {}
    for tensor in tensors:
        found = None if earlier is None else earlier.costs_of_copies(stream, tensor)
        both = (AS_DESCRIBED, AS_DESCRIBED) if found is None else (found.busy, found.tail)
        formulas.setdefault(both, []).append(tensor)
    return tuple(
        CopyCosts(stream, tuple(of_these), *both, evidence) for both, of_these in formulas.items()
    )


def _jobs_before(
    earlier: Calibrated | None, costs: JobCosts, evidence: Evidence
) -> tuple[JobCosts, ...]:
    kept = []
    for adds in _sums_of(costs):
        found = None if earlier is None else earlier.costs_of_jobs(costs.kind, costs.dataflow, adds)
        both = (AS_DESCRIBED, AS_DESCRIBED) if found is None else (found.busy, found.tail)
        kept.append(JobCosts(costs.kind, costs.dataflow, *both, evidence, adds))
    first, *others = kept
    if all((each.busy, each.tail) == (first.busy, first.tail) for each in others):
        return (replace(first, adds=costs.adds),)
    return tuple(kept)


def without_worse(
    choices: Sequence[Choice],
    deviations: Callable[[Sequence[Choice]], list[float]],
    before: Sequence[float],
) -> list[Choice]:
    """Return the choices without formulas that make predictions of whole layers worse."""
    found = list(choices)
    while not is_no_worse(deviations(found), before):
        tried = [
            [*found[:number], replace(each, reason=WHOLE), *found[number + 1 :]]
            for number, each in enumerate(found)
            if not each.reason
        ]
        if not tried:
            break
        found = min(tried, key=lambda each: fmean(deviations(each)))
    return found


WHOLE = "with them predictions of whole layers are worse than before"


def costs_in_use(
    choices: Sequence[Choice], earlier: Calibration | None
) -> tuple[tuple[JobCosts, ...], tuple[CopyCosts, ...]]:
    """Return the costs of jobs and of copies that are in use.

    Commands without new measurements keep the costs of an earlier calibration.
    """
    jobs, copies = split(costs for each in choices for costs in each.used)
    if earlier is not None:
        there = {(each.kind, each.dataflow) for each in jobs}
        jobs += tuple(each for each in earlier.jobs if (each.kind, each.dataflow) not in there)
        tensors = {(each.stream, tensor) for each in copies for tensor in each.tensors}
        for each in earlier.copies:
            rest = tuple(name for name in each.tensors if (each.stream, name) not in tensors)
            copies += (replace(each, tensors=rest),) if rest else ()
    return jobs, copies


def split(costs: Iterable[Costs]) -> tuple[tuple[JobCosts, ...], tuple[CopyCosts, ...]]:
    """Return the costs of jobs, and of copies."""
    given = list(costs)
    jobs = tuple(each for each in given if isinstance(each, JobCosts))
    return jobs, tuple(each for each in given if isinstance(each, CopyCosts))
