# SPDX-License-Identifier: Apache-2.0
"""Which accelerator gets a layer that several could take.

Without costs it is the first one in the order of priority. With costs it is the one with the fewest
cycles for the operators that are in question. Accelerators may fuse different operators, so a
question is a set of operators that no accelerator's layer crosses; an operator of it that an
accelerator leaves to the CPU costs as many cycles as it has multiply-accumulates, or elements of
its result if these are more. A cost that is not known never wins over one that is.

The CPU is a candidate too if its description has costs: it keeps a layer that takes fewer cycles on
it, by prediction, than on every accelerator that could take it. Where the clocks of all candidates
are known, times are compared; else the clocks count as equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Key = tuple[str, int]
"""An operator: its name in the user's model, and the number of operators before it of that name."""

Source = Literal["measured", "predicted", "unknown", ""]
"""Where cycles come from; empty where nobody asked for them."""

NOT_COMPARED: Source = ""

CPU = "cpu"
"""What is called like an accelerator and is none."""


@dataclass(frozen=True)
class TakenLayer:
    """A layer that an accelerator takes where it has the first choice.

    Attributes:
        target: the accelerator, or `CPU`.
        operators: what the layer computes.
        cycles: of the target's clock for one inference; None if they are not known.
        source: where the cycles come from.
    """

    target: str
    operators: tuple[Key, ...]
    cycles: int | None
    source: Source


@dataclass(frozen=True)
class LayerCosts:
    """What the choice between accelerators is made from.

    Attributes:
        layers: the layers that each accelerator takes where it has the first choice.
        on_cpu: cycles that an operator is taken to cost on the CPU.
        clocks: in MHz by target, of those whose clock is known.
    """

    layers: tuple[TakenLayer, ...] = ()
    on_cpu: Mapping[Key, int] = field(default_factory=dict)
    clocks: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Candidate:
    """An accelerator that could take an operator.

    Attributes:
        target: the accelerator.
        cycles: for all operators of the question, without those that stay on the CPU; None if they
            are not known or nobody asked for them.
        source: where the cycles come from.
        left_to_cpu: names of the operators of the question that it would not take.
    """

    target: str
    cycles: int | None = None
    source: Source = NOT_COMPARED
    left_to_cpu: tuple[str, ...] = ()

    def text(self, *, with_source: bool) -> str:
        """Return its name, its cycles, and where they come from if that is wanted."""
        if self.source == NOT_COMPARED:
            return self.target
        figure = self.source if self.cycles is None else f"{self.cycles:,}"
        figure += f" {self.source}" if with_source and self.cycles is not None else ""
        left = f" (leaves {', '.join(self.left_to_cpu)} to the CPU)" if self.left_to_cpu else ""
        return f"{self.target} {figure}{left}"

    def as_json(self) -> dict[str, Any]:
        """Return `where`, and if cycles were compared `cycles`, `source` and `left_to_cpu`."""
        if self.source == NOT_COMPARED:
            return {"where": self.target}
        figures = {"cycles": self.cycles, "source": self.source}
        return {"where": self.target, **figures, "left_to_cpu": list(self.left_to_cpu)}


@dataclass(frozen=True)
class Decision:
    """How an operator that several accelerators could take was decided.

    Attributes:
        candidates: accelerators that could take it, in order of priority.
        decided: the rule that decided, as a clause.
        target: the accelerator that the rule chose.
    """

    candidates: tuple[Candidate, ...]
    decided: str
    target: str

    def __str__(self) -> str:
        sources = {each.source for each in self.candidates}
        is_one = len(sources) == 1 and sources <= {"measured", "predicted"}
        source = f", {sources.pop()}" if is_one else ""
        texts = (each.text(with_source=not is_one) for each in self.candidates)
        return f"{self.decided}{source}: {', '.join(texts)}"

    def as_json(self) -> dict[str, Any]:
        """Return `candidates` and `decided`."""
        return {"candidates": [each.as_json() for each in self.candidates], "decided": self.decided}


BY_ORDER = "by order"


def by_order(taken: Mapping[str, Iterable[int]]) -> dict[int, Decision]:
    """Return how rows that several accelerators could take are decided without costs.

    Args:
        taken: rows of the offload report that each accelerator would take alone, in order.
    """
    takers: dict[int, list[str]] = {}
    for target, rows in taken.items():
        for row in rows:
            takers.setdefault(row, []).append(target)
    return {
        row: Decision(tuple(map(Candidate, targets)), BY_ORDER, targets[0])
        for row, targets in takers.items()
        if len(targets) > 1
    }


def by_cycles(costs: LayerCosts, order: Sequence[str]) -> dict[Key, Decision]:
    """Return the decision about each operator that several accelerators, or the CPU, could take.

    Args:
        costs: what is known of the layers.
        order: accelerators in order of priority, for layers that cost the same; the CPU is last.
    """
    decisions: dict[Key, Decision] = {}
    for question in _questions(costs.layers):
        takers = [target for target in order if any(each.target == target for each in question)]
        if takers and any(each.target == CPU for each in question):
            takers.append(CPU)
        if len(takers) < 2:
            continue
        operators = tuple(dict.fromkeys(key for each in question for key in each.operators))
        answers = [_answer(target, question, operators, costs) for target in takers]
        compared, said = _compared(answers, costs.clocks)
        known = [(cost, place) for place, cost in enumerate(compared) if cost is not None]
        best = min(known, default=(0, 0))
        target = takers[best[1]]
        decision = Decision(tuple(each.candidate for each in answers), said, target)
        taken = {key for each in question if each.target == target for key in each.operators}
        offered = {key for each in question if each.target != CPU for key in each.operators}
        decisions.update(dict.fromkeys(taken & offered, decision))
    return decisions


@dataclass(frozen=True)
class _Answer:
    """What a candidate would cost.

    Attributes:
        candidate: the accelerator, or the CPU.
        left: cycles of the CPU for what it would not take.
    """

    candidate: Candidate
    left: int

    @property
    def cost(self) -> int | None:
        """Its cycles and those of what it leaves to the CPU, clocks taken as equal."""
        cycles = self.candidate.cycles
        return None if cycles is None else cycles + self.left

    def time(self, clocks: Mapping[str, float]) -> float | None:
        """Return its microseconds and those of what it leaves to the CPU.

        Args:
            clocks: in MHz by target.
        """
        cycles = self.candidate.cycles
        if cycles is None:
            return None
        return cycles / clocks[self.candidate.target] + self.left / clocks[CPU]


def _compared(
    answers: Sequence[_Answer], clocks: Mapping[str, float]
) -> tuple[list[float | None], str]:
    """Return the costs that are compared, those that are not None, and the rule as a clause.

    Args:
        answers: of accelerators, and of the CPU behind them if it could take the layer too.
        clocks: in MHz by target.
    """
    costs, targets = [each.cost for each in answers], [each.candidate.target for each in answers]
    if targets[-1] != CPU:
        return list(costs), _said(costs)
    *accelerators, own = costs
    if own is None:
        return list(costs), f"{_said(accelerators)}; unknown for the CPU"
    if None in accelerators:  # the CPU has to be better than every one of them
        return [*accelerators, None], f"{_said(accelerators)}; not compared with the CPU"
    if not all(target in clocks for target in targets):
        return list(costs), f"{_said(costs)}, clocks taken as equal"
    times = [each.time(clocks) for each in answers]
    equal = ", by order of equal ones" if times.count(min(filter(None, times))) > 1 else ""
    rates = ", ".join(f"{clocks[target]:g}" for target in targets)
    return times, f"least time at {rates} MHz{equal}"


def _said(costs: Sequence[int | None]) -> str:
    """Return the rule that decided between accelerators with some costs."""
    known = [cost for cost in costs if cost is not None]
    if not known:
        return "by order, no cycles are known"
    if len(known) == 1:
        return "only one with known cycles"
    equal = ", by order of equal ones" if known.count(min(known)) > 1 else ""
    unknown = "" if len(known) == len(costs) else " of those that are known"
    return f"fewest cycles{unknown}{equal}"


def _answer(
    target: str, question: Sequence[TakenLayer], operators: Sequence[Key], costs: LayerCosts
) -> _Answer:
    """Return an accelerator, or the CPU, as a candidate, and the cost of what it leaves."""
    own = [each for each in question if each.target == target]
    taken = {key for each in own for key in each.operators}
    left = [key for key in operators if key not in taken]
    known = [each.cycles for each in own if each.cycles is not None]
    names = tuple(dict.fromkeys(name for name, _ in left))
    if len(known) < len(own):
        return _Answer(Candidate(target, None, "unknown", names), 0)
    sources = {each.source for each in own}
    source: Source = "measured" if sources == {"measured"} else "predicted"
    cost = sum(costs.on_cpu.get(key, 1) for key in left)
    return _Answer(Candidate(target, sum(known), source, names), cost)


def _questions(layers: Iterable[TakenLayer]) -> list[list[TakenLayer]]:
    """Return layers in groups that share operators, directly or through other layers."""
    groups: list[tuple[set[Key], list[TakenLayer]]] = []
    for layer in layers:
        operators, members = set(layer.operators), [layer]
        apart = []
        for group in groups:
            if group[0].isdisjoint(operators):
                apart.append(group)
            else:
                operators |= group[0]
                members = [*group[1], *members]
        groups = [*apart, (operators, members)]
    return [members for _, members in groups]
