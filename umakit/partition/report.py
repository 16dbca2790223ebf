# SPDX-License-Identifier: Apache-2.0
"""The offload report: every operator, its target, and the reason if it stays on the CPU."""

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
        operator: its name in Relax, for example `nn.conv2d`; `quantized.depthwise_conv2d` for a
            `quantized.conv2d` whose groups have one channel each.
        name: the node in the user's model that it came from.
        where: `cpu`, or the target name of the backend that runs it.
        reason: why it stayed on the CPU; empty when it was offloaded.
        macs: multiply-accumulates of the operator, 0 for those that have none.
        shape: shape of its first output.
        dtype: dtype of its first output.
        last: the node whose result it computes, if that is a later one than `name`, such as the
            QuantizeLinear behind a Conv; empty for the same node.
        attributes: strides, padding and so on of a convolution or pool of Relax, by name.
        rounding: rounding of the accelerator's own that replaces the model's, `float32` or
            `own:FUNCTION`; empty where it rounds as the model's format defines.
        axes: the model's axes in the order in which the result has them, such as (0, 2, 3, 1) for
            a result of an NCHW model in NHWC; empty if it is the model's.
        changes_layout: whether it is a transpose that the model has not, between two layouts.
        transposes: row whose first result this transpose reads; -1 for the model's first input, -2
            for its second, and so on; None for other operators, and if there is no such row.
        decision: how it was decided if several accelerators could take it; None for others.
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
        """The node of the user's model whose result the operator computes."""
        return self.last or self.name

    def as_json(self) -> dict[str, Any]:
        """Return the stable keys of `uma partition --json`: operator, name, where, reason; and
        where they say something rounding, axes, changes_layout and transposes."""
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
    """An accelerator on which no operator of a network runs.

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
        """Return the fields by name; keys are stable."""
        return {"backend": self.backend, "reason": self.reason, "fix": self.fix}


def check_offload(unused: Sequence[UnusedBackend], has_backends: bool) -> None:
    """Refuse a network with no operator on one of the accelerators that it is compiled for.

    Raises:
        OffloadError: nothing runs on one of them, or there is none.
    """
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
    """Return an accelerator on which nothing runs, with the reasons that most of the network has.

    Args:
        backend: its target name.
        placements: the operators of the network.
        reasons: why each does not run there.
    """
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
        placements: one for each operator.
        comparison: the ways to give layers to accelerators that were compared; None if the order
            of the accelerators decided.
        unused: accelerators on which nothing runs.
    """

    placements: tuple[OperatorPlacement, ...]
    comparison: Comparison | None = None
    unused: tuple[UnusedBackend, ...] = ()

    @property
    def total_macs(self) -> int:
        """The number of multiply-accumulates of the whole network."""
        return sum(placement.macs for placement in self.placements)

    @property
    def offloaded_macs(self) -> int:
        """The number of multiply-accumulates that run on an accelerator."""
        return sum(p.macs for p in self.placements if p.where != CPU)

    @property
    def offloaded(self) -> tuple[OperatorPlacement, ...]:
        """The operators that run on an accelerator."""
        return tuple(p for p in self.placements if p.where != CPU)

    def names(self, rows: Iterable[int]) -> tuple[str, ...]:
        """Return the distinct names in the user's model of the operators in some rows."""
        return tuple(dict.fromkeys(self.placements[row].name for row in rows))

    def label(self, rows: Iterable[int]) -> str:
        """Return the names of the operators in some rows as one text, such as `conv1 + relu1`.

        Operators that only convert numbers are left out where others do the work. Transposes that
        the model has not are named as what they read, such as `conv1 transposed`.
        """
        numbers = list(rows)
        if numbers and all(self.placements[row].changes_layout for row in numbers):
            return " + ".join(f"{name} transposed" for name in self.names(numbers))
        working = [row for row in numbers if self.placements[row].operator not in CONVERSIONS]
        return " + ".join(self.names(working or numbers))

    def main_name(self, rows: Iterable[int]) -> str:
        """Return the name in some rows of the operator with most multiply-accumulates.

        Without multiply-accumulates it is the `label`.
        """
        numbers = list(rows)
        main = max((self.placements[row] for row in numbers), key=lambda p: p.macs, default=None)
        return main.name if main is not None and main.macs else self.label(numbers)

    def as_json(self) -> list[dict[str, Any]]:
        """Return a list of {operator, name, where, reason}, in execution order."""
        return [placement.as_json() for placement in self.placements]

    def with_decisions_as_json(self) -> list[dict[str, Any]]:
        """Return the list of `as_json`, with `candidates` and `decided` in rows of operators that
        several accelerators could take."""
        return [
            {**row.as_json(), **({} if row.decision is None else row.decision.as_json())}
            for row in self.placements
        ]
