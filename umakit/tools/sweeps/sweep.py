# SPDX-License-Identifier: Apache-2.0
"""Predicts a network on many machines, and finds the Pareto front."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from umakit.devices.totals import percent_above
from umakit.errors import InputError
from umakit.tools.columns import view
from umakit.tools.sweeps.points import (
    PredictedMachine,
    SimulatedMachine,
    Source,
    predict_machine,
    simulate_machine,
)
from umakit.tools.sweeps.records import SweepRecords
from umakit.tools.sweeps.settings import Settings, configured, read_configuration
from umakit.tools.tuning.workers import ThisProcess, Workers

Answer = TypeVar("Answer")

Cost = Literal["cells", "scratchpad"]
COSTS: tuple[Cost, ...] = get_args(Cost)
"""Costs of a machine: its capacity in multiply-accumulates per cycle, and the bytes of all memories
that drivers address by offset."""


@dataclass(frozen=True)
class SweptMachine:
    """A machine of a sweep.

    Attributes:
        on_front: whether no other machine of the sweep beats this one, see `Offer.beats`.
        simulated: counts of the simulator; None if it was not run.
    """

    machine: PredictedMachine
    on_front: bool = False
    simulated: SimulatedMachine | None = None

    @property
    def difference_percent(self) -> float | None:
        """Excess of predicted over simulated cycles in percent; None without one of them."""
        simulated = None if self.simulated is None else self.simulated.cycles
        return percent_above(self.machine.cycles, simulated)

    def as_json(self) -> dict[str, Any]:
        simulated = self.simulated
        return {
            **self.machine.as_json(),
            "on_front": self.on_front,
            "simulated_cycles": None if simulated is None else simulated.cycles,
            "simulated_moved_bytes": None if simulated is None else simulated.moved_bytes,
            "simulation_failed": (simulated.failed or None) if simulated is not None else None,
            "difference_percent": self.difference_percent,
        }


@dataclass(frozen=True)
class Sweep:
    """The machines of a sweep in the given order.

    Attributes:
        costs: the costs of the front besides cycles.
    """

    backend: str
    model: str
    costs: tuple[Cost, ...]
    machines: tuple[SweptMachine, ...]

    @property
    def front(self) -> tuple[SweptMachine, ...]:
        return tuple(each for each in self.machines if each.on_front)

    @property
    def refused(self) -> tuple[SweptMachine, ...]:
        """The machines that the backend cannot be, or that cannot run the network."""
        return tuple(each for each in self.machines if each.machine.refused)

    @property
    def notices(self) -> tuple[str, ...]:
        """The notices of network and backend, one sentence each."""
        return tuple(dict.fromkeys(n for each in self.machines for n in each.machine.notices))

    @cached_property
    def common_notices(self) -> tuple[str, ...]:
        """The notices common to all machines that are not refused."""
        said = [each.machine.notices for each in self.machines if not each.machine.refused]
        return tuple(n for n in self.notices if all(n in each for each in said))

    @property
    def failed(self) -> tuple[SweptMachine, ...]:
        """The machines whose run in the simulator failed."""
        return tuple(
            each for each in self.machines if each.simulated and not each.simulated.is_final
        )

    def as_json(self) -> dict[str, Any]:
        return view(self, "model backend costs notices points:machines")


Tell = Callable[[str, int, int], None]
"""Callback for each finished machine: the stage, the number of finished machines, and the total."""


def sweep_machines(
    source: Source,
    points: Sequence[Settings],
    *,
    costs: Sequence[Cost] = COSTS,
    simulate: bool = False,
    records: Path | None = None,
    inputs: Sequence[Path] = (),
    workers: Workers | None = None,
    tell: Tell = lambda stage, done, count: None,
) -> Sweep:
    """Predict a network on copies of a backend with other settings.

    The result depends neither on the workers nor on earlier records. A machine that the backend
    refuses is part of the result, with the reason.

    Args:
        source: the network and the backend.
        points: settings of each machine: values by key of `accel.toml`, as returned by
            `parse_sweeps`.
        costs: the costs of the front besides cycles.
        simulate: whether the network is compiled and run on the machines of the front.
        records: file of finished machines, which are not computed again; None for none.
        inputs: input files, which records must not overwrite.
        workers: workers for the tasks; default: this process.
        tell: callback for the progress.

    Raises:
        InputError: a cost or key is unknown, or a key does not take the value.
        RecordsError: the file of records is of another kind, or cannot be written; or the network
            or the backend were changed meanwhile.
        ModelError: the network cannot be imported.
    """
    for cost in costs:
        if cost not in COSTS:
            raise InputError(f"there is no cost {cost!r}", fix=f"costs are {', '.join(COSTS)}")
    configuration = read_configuration(Path(source.folder))
    for point in points:
        configured(configuration, point)  # refuses mistakes before any machine is tried
    asking = _Asking(source, SweepRecords(records, inputs), workers or ThisProcess(), tell)
    predicted = asking.answers(points, "predicted", PredictedMachine, predict_machine)
    # Recorded settings have the key order of another call.
    predicted = [replace(m, settings=dict(p)) for m, p in zip(predicted, points, strict=True)]
    front = pareto_front([_offer(each, costs) for each in predicted])
    chosen = [point for point, best in zip(points, front, strict=True) if best and simulate]
    simulated = iter(asking.answers(chosen, "simulated", SimulatedMachine, simulate_machine))
    machines = tuple(
        SweptMachine(machine, best, next(simulated) if best and simulate else None)
        for machine, best in zip(predicted, front, strict=True)
    )
    name = str(configuration["accelerator"]["name"])
    return Sweep(name, Path(source.model).name, tuple(costs), machines)


@dataclass(frozen=True)
class _Asking:
    """Answers to questions about machines, recorded ones first."""

    source: Source
    records: SweepRecords
    workers: Workers
    tell: Tell

    def answers(
        self,
        points: Sequence[Settings],
        kind: Literal["predicted", "simulated"],
        answer: type[Answer],
        function: Callable[[Source, Settings], Answer],
    ) -> list[Answer]:
        stage = {"predicted": "predicting", "simulated": "simulating"}[kind]
        keys = [self.source.key(point, kind) for point in points]
        found = {key: self.records.find(key, answer) for key in keys}
        missing = [n for n, key in enumerate(keys) if found[key] is None]
        done = len(points) - len(missing)
        if points:
            self.tell(stage, done, len(points))
        tasks = [(self.source, dict(points[n])) for n in missing]
        for number, computed in zip(missing, self.workers.map(function, tasks), strict=True):
            found[keys[number]] = computed
            if getattr(computed, "is_final", True):
                self.records.add(keys[number], computed)
            done += 1
            self.tell(stage, done, len(points))
        return [each for key in keys if (each := found[key]) is not None]


def cost_of(machine: PredictedMachine, cost: Cost) -> int | None:
    """Return the cost of a machine; None if unknown."""
    return machine.cells if cost == "cells" else machine.scratchpad_bytes


def _offer(machine: PredictedMachine, costs: Sequence[Cost]) -> Offer | None:
    figures = [machine.cycles, *(cost_of(machine, cost) for cost in costs)]
    known = tuple(figure for figure in figures if figure is not None)
    return Offer(known, frozenset(machine.offloaded)) if len(known) == len(figures) else None


@dataclass(frozen=True)
class Offer:
    """The costs of a machine, and its work.

    Attributes:
        costs: cycles and chosen costs, in one order for all machines; less is better.
        work: operators of the network that the machine takes from the CPU. Fewer cycles for less
            work are no advantage: the CPU does the rest in an unknown number of cycles.
    """

    costs: tuple[int, ...]
    work: Collection[int]

    def beats(self, other: Offer) -> bool:
        """Whether the offer includes all work of another one and is better.

        The offer is better if it costs less in one respect and more in none, or costs the same and
        does more work.
        """
        if not set(self.work) >= set(other.work):
            return False
        pairs = list(zip(self.costs, other.costs, strict=True))
        if any(mine > its for mine, its in pairs):
            return False
        return any(mine < its for mine, its in pairs) or len(set(self.work)) > len(set(other.work))


def pareto_front(offers: Sequence[Offer | None]) -> list[bool]:
    """Return whether each machine is on the Pareto front; False for unknown figures.

    Machines of equal costs and work are on the front together.

    Args:
        offers: offer of each machine; None if a figure is unknown.
    """
    known = [each for each in offers if each is not None]
    return [each is not None and not any(o.beats(each) for o in known) for each in offers]
