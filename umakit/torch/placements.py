# SPDX-License-Identifier: Apache-2.0
"""What of a network of PyTorch runs where, and why."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

PYTORCH = "pytorch"
"""Where an operator runs that no accelerator takes."""


@dataclass(frozen=True)
class Placement:
    """One operator of a network.

    Attributes:
        operator: its name in Relax, such as `nn.conv2d`, or in PyTorch if it is not imported.
        name: the module or node that it belongs to.
        where: `pytorch`, or the name of the accelerator.
        reason: why it runs in PyTorch; empty if an accelerator takes it.
        macs: its multiply-accumulates; None if they are not known.
        node: the node of the exported program.
    """

    operator: str
    name: str
    where: str
    reason: str
    macs: int | None = None
    node: str = field(default="", repr=False, compare=False)


@dataclass(frozen=True)
class Offload:
    """What of a network accelerators take. `print` writes it as a table.

    Attributes:
        placements: a row for each operator.
        total_macs: multiply-accumulates of all operators that are imported.
        offloaded_macs: those that accelerators compute.
        partitioned_macs: those that `uma partition` gives to accelerators.
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
    """Return a table as text, without control characters.

    Args:
        columns: headings.
        rows: a text for each column.
        right: headings of columns that are aligned to the right.
    """
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
