# SPDX-License-Identifier: Apache-2.0
"""The page of a comparison: one HTML file that loads nothing."""

from __future__ import annotations

from collections.abc import Sequence

from umakit.text.rendering import render_html
from umakit.tools.comparison.compare import Comparison
from umakit.tools.comparison.limits import CheckedLimit
from umakit.tools.comparison.text import (
    changes_of,
    figure_rows,
    layer_rows,
    moved_text,
    not_compared,
)
from umakit.version import __version__


def html(comparison: Comparison, checked: Sequence[CheckedLimit] = ()) -> str:
    """Return the page; it is readable without JavaScript, of which it has none.

    Args:
        comparison: what is shown.
        checked: limits, and what is beyond them.
    """
    return render_html(
        "comparison/page.html.j2",
        version=__version__,
        comparison=comparison,
        sides=(("A", comparison.a, comparison.names[0]), ("B", comparison.b, comparison.names[1])),
        figures=figure_rows(comparison),
        not_compared=not_compared(comparison),
        layers=layer_rows(comparison),
        checked=checked,
        changes_of=changes_of,
        moved=moved_text,
    )
