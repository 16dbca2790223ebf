# SPDX-License-Identifier: Apache-2.0
"""Totals of tuned layers: measured cycles and predicted ones are never in one sum."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from umakit.lower.tiling_records import Record

MEASURED, PREDICTED = "measured", "predicted"


@dataclass(frozen=True)
class Total:
    """Cycles of those layers of a network whose cycles are of one kind.

    Attributes:
        cycles_are: `measured` or `predicted`, of both the default and the best tilings.
        layers: number of layers; one that a network repeats counts repeatedly.
        default, best: cycles with the default tilings and with the best ones.
        bound: lower bound of the cycles.
    """

    cycles_are: str
    layers: int
    default: int
    best: int
    bound: int

    def as_json(self) -> dict[str, Any]:
        """Return the total with stable keys."""
        return asdict(self)


def kind_of(record: Record) -> str:
    """Return the kind of a record's cycles: measured or predicted."""
    return MEASURED if record.is_measured else PREDICTED


def totals(records: Iterable[Record]) -> list[Total]:
    """Return the total of all layers that were measured, and that of all others.

    A kind that no layer has is left out.
    """
    given = list(records)
    of_kinds = {kind: [each for each in given if kind_of(each) == kind]
                for kind in (MEASURED, PREDICTED)}  # fmt: skip
    return [
        Total(
            kind,
            sum(len(each.operators) for each in records_of_kind),
            sum(len(each.operators) * each.default_cycles for each in records_of_kind),
            sum(len(each.operators) * each.cycles for each in records_of_kind),
            sum(len(each.operators) * each.bound for each in records_of_kind),
        )
        for kind, records_of_kind in of_kinds.items()
        if records_of_kind
    ]
