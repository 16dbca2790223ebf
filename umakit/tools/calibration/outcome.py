# SPDX-License-Identifier: Apache-2.0
"""The outcome of a calibration: formulas, the costs in use, and advice for inexact costs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from umakit.machine.calibration import Calibration, MeasuredLayer
from umakit.tools.calibration.choice import MOST_PERCENT, Choice

TILES = 120
"""Default number of layers that are measured for each kind of layers and each dataflow."""

NOT_A_COST = (
    "all commands are exact, but not all whole layers: when commands start is described wrongly; "
    "look at the queues (entries, completion, in_order), the engines (depth, in_order), the "
    "memories (banks, exclusive) and the driver's accesses ([machine.driver]); a driver that waits "
    "for room in a queue before it writes the registers of a command takes longer than predicted "
    "(docs/your-cost-model.md)"
)
"""Advice if the costs of commands are right and the cycles of layers are not."""


@dataclass(frozen=True)
class Outcome:
    """A calibration with its choices and notes.

    Attributes:
        calibration: the costs in use.
        notes: one sentence for each unmeasured part, with the reason.
        choices: measured formulas, and whether each is used.
        before: the calibration's layers with the previous predictions.
        tiles: requested number of layers of each kind.
    """

    calibration: Calibration
    layers: int
    notes: tuple[str, ...]
    choices: tuple[Choice, ...] = ()
    before: tuple[MeasuredLayer, ...] = ()
    tiles: int = TILES

    @property
    def held_out(self) -> int:
        return sum(each.evidence.held_out for each in self.choices)

    @property
    def exact(self) -> int:
        """The number of held-out commands that the costs in use predict to the cycle."""
        return sum(each.evidence.exact for each in self.choices)

    @property
    def worst_percent(self) -> float:
        """The largest deviation of the costs in use on held-out commands, in percent."""
        return max((each.evidence.worst_percent for each in self.choices), default=0.0)

    @property
    def holds(self) -> bool:
        """Whether all costs in use hold on the held-out commands."""
        return self.worst_percent <= MOST_PERCENT

    @property
    def changes_nothing(self) -> bool:
        """Whether all held-out commands and whole layers are predicted as before."""
        now = [each.predicted_cycles for each in self.calibration.layers]
        return now == [each.predicted_cycles for each in self.before] and all(
            each.source != "measured"
            or each.evidence.exact == each.before_evidence.exact == each.evidence.held_out
            for each in self.choices
        )

    @property
    def hints(self) -> tuple[str, ...]:
        """Advice for inexact costs or inexact whole layers, one sentence each."""
        inexact = [each for each in self.choices if each.evidence.worst_percent > MOST_PERCENT]
        if inexact:
            return tuple(hint_of(each, self.tiles) for each in inexact)
        layers = self.calibration.layers
        is_off = any(each.predicted_cycles != each.clock_cycles for each in layers)
        return (NOT_A_COST,) if is_off and self.exact == self.held_out > 0 else ()

    def as_json(self) -> dict[str, Any]:
        view = self.calibration.as_json()
        for shown, layer in zip(view["layers"], self.before, strict=True):
            shown["predicted_before"] = layer.predicted_cycles
            shown["difference_percent_before"] = layer.difference_percent
        return {
            **view,
            "measured": [
                {
                    "name": each.measured.name,
                    "busy": str(each.measured.busy),
                    "tail": str(each.measured.tail),
                    "evidence": asdict(each.measured.evidence),
                    "evidence_before": asdict(each.before_evidence),
                    "used": each.source,
                    "reason": each.reason,
                }
                for each in self.choices
            ],
            "measured_layers": self.layers,
            "held_out_commands": self.held_out,
            "exact_commands": self.exact,
            "worst_percent": self.worst_percent,
            "holds": self.holds,
            "changes_nothing": self.changes_nothing,
            "notes": [*self.notes, *self.hints],
        }


def hint_of(choice: Choice, tiles: int) -> str:
    """Return the facts about costs in use that do not hold, with advice."""
    name, evidence = choice.measured.name, choice.measured.evidence
    off = f"off by up to {choice.evidence.worst_percent:.1f} % on commands that were held out"
    if not choice.reason:
        known = f"{name}: what is used is {off}"
    else:
        known = (
            f"{name}: the formula is not used ({choice.reason}: {evidence.worst_percent:.1f} %); "
            f"the {choice.source} costs stay, which are {off}"
        )
    if choice.is_scattered:
        return f"{known}; commands of equal sizes took different cycles, so no formula is exact"
    if tiles < TILES:
        return f"{known}; --tiles {TILES} measures more layers, by which a formula may hold"
    return f"{known}; accel.toml can say what such a formula cannot (docs/your-cost-model.md)"
