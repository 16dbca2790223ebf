# SPDX-License-Identifier: Apache-2.0
"""Layers of two reports that compute the same operators of the model, and their changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from umakit.text.identities import matched_layers
from umakit.tools.comparison.figures import Count, Figure, total
from umakit.tools.comparison.saved import Operator, Report
from umakit.tools.record import CPU, LayerRecord

Status = Literal["both", "only in A", "only in B"]
Move = Literal["", "to the CPU", "from the CPU"]


@dataclass(frozen=True)
class Change:
    """A figure of A and of B.

    Attributes:
        a, b: values; None if unknown, 0 for a layer that a network lacks.
    """

    a: Count
    b: Count

    @property
    def change(self) -> Count:
        """Increase from A to B; None without one of them."""
        return None if self.a is None or self.b is None else self.b - self.a

    @property
    def percent(self) -> float | None:
        """The change as a share of A, in percent; None if unknown, or A is 0."""
        return 100 * self.change / self.a if self.change is not None and self.a else None


@dataclass(frozen=True)
class Line:
    """Layers of A and of B that belong together, see `matched_layers`.

    Attributes:
        key: key of the identity of the first layer; unique among the lines of A, and among the
            lines of B alone.
        a, b: the steps in execution order; empty for a network without them.
        move: whether a part moved between an accelerator and the CPU.
        reasons: the backend's reasons for parts that moved to the CPU.
        knows_tilings: whether A and B contain tilings.
    """

    key: str
    a: tuple[LayerRecord, ...]
    b: tuple[LayerRecord, ...]
    move: Move = ""
    reasons: tuple[str, ...] = ()
    knows_tilings: tuple[bool, bool] = (True, True)

    @property
    def status(self) -> Status:
        """The networks that have the layers."""
        if self.a and self.b:
            return "both"
        return "only in A" if self.a else "only in B"

    def of(self, figure: Figure) -> Change:
        if figure.of_step is None:
            raise ValueError(f"layers have no {figure.name}")
        return Change(total(map(figure.of_step, self.a)), total(map(figure.of_step, self.b)))

    @property
    def where(self) -> tuple[str, str]:
        """Targets of the layers in A and in B, such as `cpu + my_npu`; empty for none."""
        return _where(self.a), _where(self.b)

    @property
    def tilings(self) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
        """The tilings of the layers in A and in B, without uncut layers; None if unknown.

        Steps on the CPU are uncut.
        """
        one, other = (
            tuple(step.tiling for step in steps if step.tiling)
            if knows or all(step.on_cpu for step in steps)
            else None
            for steps, knows in zip((self.a, self.b), self.knows_tilings, strict=True)
        )
        return one, other

    @property
    def is_cut_otherwise(self) -> bool | None:
        """Whether both are cut and their tilings differ; None if unknown."""
        one, other = self.tilings
        if one == () or other == ():
            return False
        return None if one is None or other is None else one != other

    @property
    def macs(self) -> int:
        """The multiply-accumulates of the layers in B, or in A if B lacks the layers."""
        return sum(step.macs for step in self.b or self.a)


def lines_of(a: Report, b: Report) -> list[Line]:
    """Return the layers of two reports that belong together, in the order of A, then of B."""
    ones = [step.known_identity for step in a.steps]
    others = [step.known_identity for step in b.steps]
    lines, knows = [], (a.has_tilings, b.has_tilings)
    for numbers in matched_layers(ones, others):
        mine = tuple(a.steps[number] for number in numbers[0])
        yours = tuple(b.steps[number] for number in numbers[1])
        key = (mine or yours)[0].known_identity.key
        line = Line(key, mine, yours, knows_tilings=knows)
        if _moved(mine, yours):
            reasons = _reasons(yours, b.operators)
            line = replace(line, move="to the CPU", reasons=reasons)
        elif _moved(yours, mine):
            line = replace(line, move="from the CPU")
        lines.append(line)
    return lines


def _where(steps: Iterable[LayerRecord]) -> str:
    return " + ".join(sorted({step.where for step in steps}, key=lambda name: (name == CPU, name)))


def _moved(before: Sequence[LayerRecord], after: Sequence[LayerRecord]) -> bool:
    """Whether work moved from accelerators to the CPU.

    That is so if the CPU has more multiply-accumulates or more steps than before, or operators that
    only accelerators had.
    """
    if not any(not step.on_cpu for step in before):
        return False
    ones = [step for step in before if step.on_cpu]
    others = [step for step in after if step.on_cpu]
    if sum(step.macs for step in others) > sum(step.macs for step in ones):
        return True
    if len(others) > len(ones):
        return True
    own = _computed(step for step in before if not step.on_cpu) - _computed(ones)
    return bool(own & _computed(others))


def _computed(steps: Iterable[LayerRecord]) -> set[str]:
    """Return the names of the operators that steps compute, without mere layout changes."""
    found = [step.known_identity for step in steps if step.known_identity.role == "operators"]
    return {operator.name for identity in found for operator in identity.operators}


def _reasons(steps: Iterable[LayerRecord], operators: Iterable[Operator]) -> tuple[str, ...]:
    """Return the reasons of operators for running on the CPU, without repetition."""
    names = _computed(step for step in steps if step.on_cpu)
    found = [row.reason for row in operators if row.name in names and row.where == CPU]
    return tuple(dict.fromkeys(reason for reason in found if reason))
