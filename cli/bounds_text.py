# SPDX-License-Identifier: Apache-2.0
"""The table of the bounds of a network that `uma report` prints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from umakit.cli.tables import UNKNOWN, Table, known_count, new_table

if TYPE_CHECKING:
    from umakit.tools.page.bounds import AcceleratorBounds


def bounds_table(bounds: AcceleratorBounds) -> Table:
    """Return a table of the bounds of all layers on an accelerator together."""
    numbers = ("cycles", "bytes", "simulated / bound")
    table = new_table(f"bound on {bounds.accelerator}", *numbers, right=numbers)
    for each in bounds.bounds:
        moved = known_count(each.bytes) if each.name in ("network", "scratchpad") else ""
        ratio = UNKNOWN if each.ratio is None else f"{each.ratio:.3f}"
        table.add_row(each.title, known_count(each.cycles), moved, ratio)
    return table


def notes_on(bounds: AcceleratorBounds) -> Iterator[str]:
    """Yield what the table leaves out, a line each: work elsewhere, and what is not known."""
    if bounds.share is not None and bounds.share < 1:
        share = f"{100 * bounds.share:.1f} %"
        yield (
            f"bounds are for what {bounds.accelerator} runs: {share} of the network's "
            "multiply-accumulates"
        )
    unknown = dict.fromkeys(text for each in bounds.bounds for text in each.unknown)
    if unknown:
        yield f"not known for {bounds.accelerator}: {'; '.join(unknown)}"
    if bounds.not_counted:
        yield f"bytes of operands not counted, as unknown: {', '.join(bounds.not_counted)}"
