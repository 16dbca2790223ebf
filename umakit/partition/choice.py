# SPDX-License-Identifier: Apache-2.0
"""The choice between accelerators that could take the same layer.

Without costs, the first accelerator in the order of priority gets the layer; with costs, the one
with the fewest cycles for the operators in question: a set that no accelerator's layer crosses. An
operator left to the CPU costs its multiply-accumulates, or the elements of its result if these are
more. An unknown cost never wins over a known one. The CPU, if its description has costs, keeps a
layer that every accelerator takes longer for: times are compared if all clocks are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Key = tuple[str, int]
"""An operator: its name in the user's model, and the number of operators before it of that name."""

Source = Literal["measured", "predicted", "unknown", ""]
"""Origin of a cycle count; empty if cycles were not requested."""

NOT_COMPARED: Source = ""

CPU = "cpu"
"""Name of the CPU in place of an accelerator."""


@dataclass(frozen=True)
class TakenLayer:
    """A layer that an accelerator, or `CPU`, takes if it has the first choice.

    `cycles` are of the target's clock, for one inference; None if unknown.
    """

    target: str
    operators: tuple[Key, ...]
    cycles: int | None
    source: Source


@dataclass(frozen=True)
class LayerCosts:
    """The data for the choice between accelerators.

    Attributes:
        layers: the layers that each accelerator takes if it has the first choice.
        on_cpu: assumed cycles of an operator on the CPU.
        clocks: known clocks in MHz, by target.
    """

    layers: tuple[TakenLayer, ...] = ()
    on_cpu: Mapping[Key, int] = field(default_factory=dict)
    clocks: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Candidate:
    """An accelerator that could take an operator.

    Attributes:
        target: the accelerator.
        cycles: cycles of the question's operators on the accelerator; None if unknown or not
            compared.
        source: source of the cycles.
        left_to_cpu: names of the question's operators that the accelerator would not take.
        left_cycles: CPU cycles of these operators.
    """

    target: str
    cycles: int | None = None
    source: Source = NOT_COMPARED
    left_to_cpu: tuple[str, ...] = ()
    left_cycles: int = field(default=0, repr=False, compare=False)

    @property
    def cost(self) -> int | None:
        """The cycles, with those of operators left to the CPU; clocks count as equal."""
        return None if self.cycles is None else self.cycles + self.left_cycles

    def text(self, *, with_source: bool) -> str:
        """Return the name, the cycles, and, with `with_source`, the source of the cycles."""
        if self.source == NOT_COMPARED:
            return self.target
        figure = self.source if self.cycles is None else f"{self.cycles:,}"
        figure += f" {self.source}" if with_source and self.cycles is not None else ""
        left = f" (leaves {', '.join(self.left_to_cpu)} to the CPU)" if self.left_to_cpu else ""
        return f"{self.target} {figure}{left}"

    def as_json(self) -> dict[str, Any]:
        if self.source == NOT_COMPARED:
            return {"where": self.target}
        figures = {"cycles": self.cycles, "source": self.source}
        return {"where": self.target, **figures, "left_to_cpu": list(self.left_to_cpu)}


@dataclass(frozen=True)
class Decision:
    """The decision on an operator that several accelerators could take.

    Attributes:
        candidates: accelerators that could take the operator, in order of priority.
        decided: the rule that decided, as a clause.
        target: the chosen accelerator.
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
        return {"candidates": [each.as_json() for each in self.candidates], "decided": self.decided}


BY_ORDER = "by order"


def by_order(taken: Mapping[str, Iterable[int]]) -> dict[int, Decision]:
    """Return the decisions without costs, by row that several accelerators could take.

    `taken` has the rows that each accelerator would take alone, in order of priority.
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
    """Return the decision on each operator that several accelerators, or the CPU, could take.

    Of equal costs, the first accelerator of `order` wins; the CPU is last.
    """
    decisions: dict[Key, Decision] = {}
    for question in _questions(costs.layers):
        takers = [target for target in order if any(each.target == target for each in question)]
        if takers and any(each.target == CPU for each in question):
            takers.append(CPU)
        if len(takers) < 2:
            continue
        operators = tuple(dict.fromkeys(key for each in question for key in each.operators))
        candidates = [_candidate(target, question, operators, costs) for target in takers]
        compared, said = _compared(candidates, costs.clocks)
        known = [(cost, place) for place, cost in enumerate(compared) if cost is not None]
        best = min(known, default=(0, 0))
        target = takers[best[1]]
        decision = Decision(tuple(candidates), said, target)
        taken = {key for each in question if each.target == target for key in each.operators}
        offered = {key for each in question if each.target != CPU for key in each.operators}
        decisions.update(dict.fromkeys(taken & offered, decision))
    return decisions


def _compared(
    candidates: Sequence[Candidate], clocks: Mapping[str, float]
) -> tuple[list[float | None], str]:
    """Return the compared costs, None for costs that are not compared, and the rule as a clause.

    The CPU is the last candidate, if the CPU could take the layer.
    """
    costs, targets = [each.cost for each in candidates], [each.target for each in candidates]
    if targets[-1] != CPU:
        return list(costs), _said(costs)
    *accelerators, own = costs
    if own is None:
        return list(costs), f"{_said(accelerators)}; unknown for the CPU"
    if None in accelerators:  # the CPU has to be better than every accelerator
        return [*accelerators, None], f"{_said(accelerators)}; not compared with the CPU"
    if not all(target in clocks for target in targets):
        return list(costs), f"{_said(costs)}, clocks taken as equal"
    times = [
        None if each.cycles is None
        else each.cycles / clocks[each.target] + each.left_cycles / clocks[CPU]
        for each in candidates
    ]  # fmt: skip
    equal = ", by order of equal ones" if times.count(min(filter(None, times))) > 1 else ""
    rates = ", ".join(f"{clocks[target]:g}" for target in targets)
    return times, f"least time at {rates} MHz{equal}"


def _said(costs: Sequence[int | None]) -> str:
    known = [cost for cost in costs if cost is not None]
    if not known:
        return "by order, no cycles are known"
    if len(known) == 1:
        return "only one with known cycles"
    equal = ", by order of equal ones" if known.count(min(known)) > 1 else ""
    unknown = "" if len(known) == len(costs) else " of those that are known"
    return f"fewest cycles{unknown}{equal}"


def _candidate(
    target: str, question: Sequence[TakenLayer], operators: Sequence[Key], costs: LayerCosts
) -> Candidate:
    own = [each for each in question if each.target == target]
    taken = {key for each in own for key in each.operators}
    left = [key for key in operators if key not in taken]
    known = [each.cycles for each in own if each.cycles is not None]
    names = tuple(dict.fromkeys(name for name, _ in left))
    if len(known) < len(own):
        return Candidate(target, None, "unknown", names)
    sources = {each.source for each in own}
    source: Source = "measured" if sources == {"measured"} else "predicted"
    cost = sum(costs.on_cpu.get(key, 1) for key in left)
    return Candidate(target, sum(known), source, names, cost)


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
