# SPDX-License-Identifier: Apache-2.0
"""The offload report: every operator, its target, and the reason for an operator on the CPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from umakit.errors import NOTHING_RUNS, OffloadError
from umakit.partition.choice import CPU as CPU
from umakit.partition.choice import Decision
from umakit.partition.comparison import Comparison

CONVERSIONS = ("quantize", "dequantize")
"""Operators in Relax that convert between integers and real numbers."""


@dataclass(frozen=True)
class OperatorPlacement:
    """One operator of the network.

    Attributes:
        operator: name in Relax, for example `nn.conv2d`; `quantized.depthwise_conv2d` for a
            `quantized.conv2d` with groups of one channel.
        name: the operator's node in the user's model.
        where: `cpu`, or the target name of the backend.
        reason: reason for the CPU; empty for an offloaded operator.
        macs: multiply-accumulates of the operator; 0 for operators without them.
        shape: shape of the first output.
        dtype: dtype of the first output.
        last: the node of the result if later than `name`, such as the QuantizeLinear after a Conv;
            empty for the same node.
        attributes: strides, padding and so on of a convolution or pool of Relax, by name.
        rounding: the accelerator's own rounding, `float32` or `own:FUNCTION`; empty for the
            rounding of the model's format.
        axes: the model's axes in the order of the result, such as (0, 2, 3, 1) for an NHWC result
            of an NCHW model; empty for the model's order.
        changes_layout: whether the operator is an added transpose between two layouts.
        transposes: row whose first result an added transpose reads; -1 for the model's first input,
            -2 for the second, and so on; None for other operators, and if there is no such row.
        decision: the decision if several accelerators could take the operator; else None.
    """

    operator: str
    name: str
    where: str
    reason: str
    macs: int
    shape: tuple[int, ...]
    dtype: str
    last: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict, hash=False)
    rounding: str = ""
    axes: tuple[int, ...] = ()
    changes_layout: bool = False
    transposes: int | None = None
    decision: Decision | None = field(default=None, compare=False)

    @property
    def yields(self) -> str:
        """The node of the user's model with the operator's result."""
        return self.last or self.name

    def as_json(self) -> dict[str, Any]:
        """Return the stable keys of `uma partition --json`.

        The keys are operator, name, where, reason and, if not empty, rounding, axes, changes_layout
        and transposes.
        """
        return {
            "operator": self.operator,
            "name": self.name,
            "where": self.where,
            "reason": self.reason,
            **({"rounding": self.rounding} if self.rounding else {}),
            **({"axes": list(self.axes)} if self.axes else {}),
            **({"changes_layout": True} if self.changes_layout else {}),
            **({"transposes": self.transposes} if self.transposes is not None else {}),
        }


@dataclass(frozen=True)
class UnusedBackend:
    """An accelerator without operators of a network.

    Attributes:
        backend: target name of the accelerator.
        reason: the most frequent reason of a refusal, with the share of the network.
        fix: advice.
    """

    backend: str
    reason: str
    fix: str = ""

    @property
    def what(self) -> str:
        """A sentence that nothing runs on the accelerator, with the reason."""
        return f"{NOTHING_RUNS}{self.backend} because of {self.reason}"

    def __str__(self) -> str:
        return f"{self.what}; {self.fix}"

    def as_json(self) -> dict[str, str]:
        return {"backend": self.backend, "reason": self.reason, "fix": self.fix}


def check_offload(unused: Sequence[UnusedBackend], has_backends: bool) -> None:
    """Refuse a network without operators on one of its accelerators."""
    if not has_backends:
        raise OffloadError(
            f"{NOTHING_RUNS}an accelerator, because the network was compiled for none",
            fix="name one with --backend when you compile it",
        )
    if unused:
        raise OffloadError(unused[0].what, fix=unused[0].fix)


MOST_REASONS = 2
"""Maximum number of reasons in that sentence."""


def unused_backend(
    backend: str, placements: Sequence[OperatorPlacement], reasons: Sequence[str]
) -> UnusedBackend:
    """Return an accelerator without operators, with the most frequent reasons."""
    every = list(zip(placements, reasons, strict=True))
    working = [
        (row, reason)
        for row, reason in every
        if row.operator not in CONVERSIONS and not row.changes_layout
    ]
    rows = working or every
    total = sum(row.macs for row, _ in rows)
    found: dict[str, list[int]] = {}
    for row, reason in rows:
        found.setdefault(reason, []).append(row.macs)
    ranked = sorted(found, key=lambda reason: (-sum(found[reason]), -len(found[reason])))
    if total:
        ranked = [reason for reason in ranked if sum(found[reason])]
    texts = []
    for reason in ranked[:MOST_REASONS]:
        count, macs = len(found[reason]), sum(found[reason])
        share = f", {100 * macs / total:.1f} % of {total:,} MACs" if macs else ""
        texts.append(f'"{reason}" ({count} operator{"s" * (count != 1)}{share})')
    return UnusedBackend(backend, " and ".join(texts) or "a network without operators")


@dataclass(frozen=True)
class OffloadReport:
    """Placements of all operators of a network, in execution order.

    Attributes:
        comparison: compared assignments of layers to accelerators; None if the order of the
            accelerators decided.
        unused: accelerators without operators.
    """

    placements: tuple[OperatorPlacement, ...]
    comparison: Comparison | None = None
    unused: tuple[UnusedBackend, ...] = ()

    @property
    def total_macs(self) -> int:
        return sum(placement.macs for placement in self.placements)

    @property
    def offloaded_macs(self) -> int:
        return sum(p.macs for p in self.placements if p.where != CPU)

    @property
    def offloaded(self) -> tuple[OperatorPlacement, ...]:
        return tuple(p for p in self.placements if p.where != CPU)

    def names(self, rows: Iterable[int]) -> tuple[str, ...]:
        """Return the distinct names in the user's model of the operators in some rows."""
        return tuple(dict.fromkeys(self.placements[row].name for row in rows))

    def label(self, rows: Iterable[int]) -> str:
        """Return the names of the operators in some rows as one text, such as `conv1 + relu1`.

        Operators that only convert numbers are left out next to other operators. Added transposes
        are named after their operands, such as `conv1 transposed`.
        """
        numbers = list(rows)
        if numbers and all(self.placements[row].changes_layout for row in numbers):
            return " + ".join(f"{name} transposed" for name in self.names(numbers))
        working = [row for row in numbers if self.placements[row].operator not in CONVERSIONS]
        return " + ".join(self.names(working or numbers))

    def main_name(self, rows: Iterable[int]) -> str:
        """Return the name of the operator with most multiply-accumulates in some rows.

        Without multiply-accumulates the result is `label`.
        """
        numbers = list(rows)
        main = max((self.placements[row] for row in numbers), key=lambda p: p.macs, default=None)
        return main.name if main is not None and main.macs else self.label(numbers)

    def as_json(self) -> list[dict[str, Any]]:
        """Return a list of {operator, name, where, reason}, in execution order."""
        return [placement.as_json() for placement in self.placements]

    def with_decisions_as_json(self) -> list[dict[str, Any]]:
        """Return the list of `as_json`, with `candidates` and `decided` for operators that several
        accelerators could take."""
        return [
            {**row.as_json(), **({} if row.decision is None else row.decision.as_json())}
            for row in self.placements
        ]
