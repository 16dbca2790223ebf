# SPDX-License-Identifier: Apache-2.0
"""Placement of the operators of a PyTorch network, with reasons."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

PYTORCH = "pytorch"
"""Placement of an operator without an accelerator."""


@dataclass(frozen=True)
class Placement:
    """One operator of a network.

    Attributes:
        operator: name in Relax, such as `nn.conv2d`; for an operator that is not imported, in
            PyTorch.
        name: enclosing module or node.
        where: `pytorch`, or the name of the accelerator.
        reason: reason for running in PyTorch; empty for an offloaded operator.
        macs: multiply-accumulates; None if not known.
        node: node of the exported program.
    """

    operator: str
    name: str
    where: str
    reason: str
    macs: int | None = None
    node: str = field(default="", repr=False, compare=False)


@dataclass(frozen=True)
class Offload:
    """The placements of a network. `print` writes them as a table.

    Attributes:
        placements: a row for each operator.
        total_macs: multiply-accumulates of all imported operators.
        offloaded_macs: multiply-accumulates computed by accelerators.
        partitioned_macs: multiply-accumulates that `uma partition` gives to accelerators.
    """

    placements: tuple[Placement, ...]
    total_macs: int
    offloaded_macs: int
    partitioned_macs: int

    def __str__(self) -> str:
        rows = [
            (each.operator, each.name, each.where, f"{each.macs:,}" if each.macs else "",
             each.reason)
            for each in self.placements
        ]  # fmt: skip
        table = text_table(("operator", "name", "where", "MACs", "reason"), rows, right=("MACs",))
        share = 100 * self.offloaded_macs / self.total_macs if self.total_macs else 0
        taken = sum(each.where != PYTORCH for each in self.placements)
        return (
            f"{table}\n{taken} of {len(self.placements)} operators offloaded, {share:.1f} % of "
            f"{self.total_macs:,} MACs"
        )


def text_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()
) -> str:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console(file=io.StringIO(), width=120, color_system=None)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())
