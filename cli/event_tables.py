# SPDX-License-Identifier: Apache-2.0
"""Table of `uma run --profile` and `uma report`: counts of events and their energy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from umakit.cli.console import print_whole, say, say_wrapped
from umakit.cli.tables import new_table

if TYPE_CHECKING:
    from umakit.tools.energy import NetworkEvents


def print_energy(events: NetworkEvents) -> None:
    """Print the table of events behind an empty line; nothing if no accelerator has figures."""
    from umakit.tools.energy.columns import event_table

    found = event_table(events)
    if found is None or events.energy is None:
        return
    table = new_table("energy", *found.headers, right=found.headers)
    for name, cells in found.lines:
        table.add_row(name, *cells)
    table.add_section()
    table.add_row("total", *found.total, style="bold")
    say("")
    print_whole(table)
    for sentence in (found.note, found.left_out):
        if sentence:
            say_wrapped(sentence)
