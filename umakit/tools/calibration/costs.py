# SPDX-License-Identifier: Apache-2.0
"""Formulas of the commands of a machine, from their measured cycles."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from umakit.machine import Cost, Dataflow, Kind, TileMachine, TileSizes
from umakit.machine.calibration import (
    CopyCosts,
    Evidence,
    Formula,
    JobCosts,
    Term,
    copy_sizes,
    job_sizes,
)
from umakit.tools.calibration.choice import Fitted, deviation
from umakit.tools.calibration.fit import COPY_SIZES, JOB_SIZES, fitted
from umakit.tools.calibration.measure import Timed

Part = TypeVar("Part")

HELD_OUT = 4
"""One in this many commands is held out."""


@dataclass(frozen=True)
class _Sample:
    """A measured command: its sizes, the described cost, and the measured cycles."""

    sizes: Mapping[str, int]
    described: Cost
    busy: int
    tail: int | None
    command: Timed = field(repr=False)

    def of_busy(self) -> tuple[dict[str, int], int]:
        return {**self.sizes, "described": self.described.busy}, self.busy

    def of_tail(self) -> tuple[dict[str, int], int]:
        assert self.tail is not None
        return {**self.sizes, "described": self.described.tail}, self.tail


def costs_of(
    machine: TileMachine, commands: Sequence[Timed], figures: Sequence[int]
) -> list[Fitted]:
    """Return formulas of measured commands; `figures` may be divisors of sizes."""
    jobs: dict[tuple[Kind, Dataflow], dict[bool, list[_Sample]]] = {}
    copies: dict[str, dict[str, list[_Sample]]] = {}
    for each in commands:
        sizes = each.sizes
        if isinstance(sizes, TileSizes):
            sample = _Sample(job_sizes(sizes), machine.job(sizes), each.busy, each.tail, each)
            of_kind = jobs.setdefault((sizes.layer.kind, sizes.dataflow), {})
            of_kind.setdefault(sizes.layer.adds, []).append(sample)
        else:
            sample = _Sample(copy_sizes(sizes), machine.copy(sizes), each.busy, each.tail, each)
            copies.setdefault(each.stream, {}).setdefault(sizes.tensor, []).append(sample)
    return [
        *(each for (kind, flow), by_adds in jobs.items()
          for each in _jobs(kind, flow, by_adds, figures)),
        *(each for stream, by_tensor in copies.items()
          for each in _copies(stream, by_tensor, figures)),
    ]  # fmt: skip


def _jobs(
    kind: Kind, flow: Dataflow, by_adds: Mapping[bool, list[_Sample]], figures: Sequence[int]
) -> list[Fitted]:
    def fit(samples: Sequence[_Sample], adds: bool | None) -> Fitted:
        busy, tail, evidence, held_out = _fit(samples, JOB_SIZES, figures)
        costs = JobCosts(kind, flow, busy, tail, evidence, adds)
        return Fitted(costs, held_out, _is_scattered(samples))

    return _together_or_alone(by_adds, fit)


def _copies(
    stream: str, by_tensor: Mapping[str, list[_Sample]], figures: Sequence[int]
) -> list[Fitted]:
    def fit(samples: Sequence[_Sample], tensor: str | None) -> Fitted:
        tensors = tuple(by_tensor) if tensor is None else (tensor,)
        busy, tail, evidence, held_out = _fit(samples, COPY_SIZES, figures)
        costs = CopyCosts(stream, tensors, busy, tail, evidence)
        return Fitted(costs, held_out, _is_scattered(samples))

    return _together_or_alone(by_tensor, fit)


def _together_or_alone(
    groups: Mapping[Part, list[_Sample]], fit: Callable[[Sequence[_Sample], Part | None], Fitted]
) -> list[Fitted]:
    """Return one formula for all groups, or one for each if that is better."""
    together = fit([each for group in groups.values() for each in group], None)
    if together.costs.evidence.worst_percent == 0 or len(groups) == 1:
        return [together]
    alone = [fit(group, part) for part, group in groups.items()]
    return alone if _worst(alone) < _worst([together]) else [together]


def _worst(fitted: Sequence[Fitted]) -> float:
    return max(each.costs.evidence.worst_percent for each in fitted)


def _is_scattered(samples: Sequence[_Sample]) -> bool:
    busy: dict[str, set[int]] = {}
    for each in samples:
        busy.setdefault(repr((each.sizes, each.described)), set()).add(each.busy)
    return any(len(each) > 1 for each in busy.values())


def _divided(samples: Sequence[_Sample]) -> tuple[list[_Sample], list[_Sample]]:
    """Return samples to fit, with the largest of each size, and held-out ones; equal ones count
    once."""
    different = {repr(each): each for each in samples}
    ordered = [different[key] for key in sorted(different)]
    random.Random(0).shuffle(ordered)
    largest = {name: max(each.sizes[name] for each in ordered) for name in ordered[0].sizes}
    given: list[_Sample] = []
    held_out: list[_Sample] = []
    for number, each in enumerate(ordered):
        is_largest = any(each.sizes[name] == largest[name] > 1 for name in largest)
        is_given = is_largest or number % HELD_OUT != HELD_OUT - 1
        (given if is_given else held_out).append(each)
    return given, held_out


def _fit(
    samples: Sequence[_Sample], choices: Sequence[tuple[str, ...]], figures: Sequence[int]
) -> tuple[Formula, Formula, Evidence, tuple[Timed, ...]]:
    given, held_out = _divided(samples)
    busy = fitted([each.of_busy() for each in given], choices, figures)
    tails = [each.of_tail() for each in given if each.tail is not None]
    tail = fitted(tails, choices, figures) if tails else Formula((Term(0),))
    off = [
        deviation(
            Cost(
                max(1, busy.of(each.of_busy()[0])),
                0 if each.tail is None else max(0, tail.of(each.of_tail()[0])),
            ),
            each.command,
        )
        for each in held_out
    ]
    worst = round(100 * max(off, default=0.0), 3)
    evidence = Evidence(len(given), len(held_out), sum(each == 0 for each in off), worst)
    return busy, tail, evidence, tuple(each.command for each in held_out)
