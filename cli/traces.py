# SPDX-License-Identifier: Apache-2.0
"""Messages of `uma run --trace` and `uma report --trace` about the written file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from umakit.cli.console import say

if TYPE_CHECKING:
    from umakit.tools.trace import TraceSummary


def say_trace(destination: Path | None, summary: TraceSummary) -> None:
    """Print the written file, and on standard error the gaps of the trace."""
    for process, layers in summary.without_cycles.items():
        say(
            f"note: {process}: the trace lacks {', '.join(layers)}, whose cycles are not known",
            error=True,
        )
    if summary.dropped:
        say(
            f"note: the trace lacks {summary.dropped:,} commands, which were not recorded or begin "
            "after the end of their layer",
            error=True,
        )
    say(f"Wrote {destination}: {summary.events:,} events")
