# SPDX-License-Identifier: Apache-2.0
"""Which accelerator gets a layer that several could take.

Without costs it is the first one in the order of priority. With costs it is the one with the fewest
cycles for the operators that are in question. Accelerators may fuse different operators, so a
question is a set of operators that no accelerator's layer crosses; an operator of it that an
accelerator leaves to the CPU costs as many cycles as it has multiply-accumulates, or elements of
its result if these are more. A cost that is not known never wins over one that is.
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


@dataclass(frozen=True)
class TakenLayer:
    """A layer that an accelerator takes where it has the first choice.

    Attributes:
        target: the accelerator.
        operators: what the layer computes.
        cycles: of the accelerator's clock for one inference; None if they are not known.
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
    """

    layers: tuple[TakenLayer, ...] = ()
    on_cpu: Mapping[Key, int] = field(default_factory=dict)


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
    """Return the decision about each operator that several accelerators could take.

    Args:
        costs: what is known of the layers.
        order: accelerators in order of priority, for layers that cost the same.
    """
    decisions: dict[Key, Decision] = {}
    for question in _questions(costs.layers):
        takers = [target for target in order if any(each.target == target for each in question)]
        if len(takers) < 2:
            continue
        operators = tuple(dict.fromkeys(key for each in question for key in each.operators))
        answers = [_answer(target, question, operators, costs) for target in takers]
        candidates = tuple(candidate for candidate, _ in answers)
        known = [(cost, place) for place, (_, cost) in enumerate(answers) if cost is not None]
        best = min(known, default=(0, 0))
        target = takers[best[1]]
        decision = Decision(candidates, _said([cost for _, cost in answers]), target)
        taken = {key for each in question if each.target == target for key in each.operators}
        decisions.update(dict.fromkeys(taken, decision))
    return decisions


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
) -> tuple[Candidate, int | None]:
    """Return an accelerator as a candidate, and its cost with that of what it leaves to the CPU."""
    own = [each for each in question if each.target == target]
    taken = {key for each in own for key in each.operators}
    left = [key for key in operators if key not in taken]
    known = [each.cycles for each in own if each.cycles is not None]
    names = tuple(dict.fromkeys(name for name, _ in left))
    if len(known) < len(own):
        return Candidate(target, None, "unknown", names), None
    sources = {each.source for each in own}
    source: Source = "measured" if sources == {"measured"} else "predicted"
    cost = sum(known) + sum(costs.on_cpu.get(key, 1) for key in left)
    return Candidate(target, sum(known), source, names), cost


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
