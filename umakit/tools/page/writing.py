# SPDX-License-Identifier: Apache-2.0
"""Rendering of the page as one self-contained HTML file."""

from __future__ import annotations

from dataclasses import dataclass

from umakit.text.rendering import render_html
from umakit.tools.page import roofline, timeline
from umakit.tools.page.figures import NEAR_THE_BOUND, Page, Spent
from umakit.tools.page.memory import HEIGHT, panels_of
from umakit.tools.page.roofline import roofline_of
from umakit.tools.page.timeline import timeline_of


@dataclass(frozen=True)
class Part:
    """A part of a layer's cycles, as shown in bars and their legend.

    Attributes:
        name: field of `Spent`; also the class in the style sheet.
        label: description of it in the legend of the page.
    """

    name: str
    label: str

    def of(self, spent: Spent) -> int:
        """Return the cycles of this part."""
        return int(getattr(spent, self.name))


PARTS = (
    Part("full_array", "needed with every cell at work"),
    Part("partial_array", "array partly used, or pooling"),
    Part("drain", "results leave the array"),
    Part("loads", "array waits for loads"),
    Part("stores", "array waits for stores"),
    Part("driver", "array waits for the driver"),
)


def html(page: Page) -> str:
    """Return the page; it loads no other files and is readable without JavaScript."""
    drawn = (roofline_of(each, page.layers) for each in page.accelerators)
    return render_html(
        "report/page.html.j2",
        page=page,
        parts=PARTS,
        near=NEAR_THE_BOUND,
        timeline=timeline_of(page.layers),
        timeline_width=timeline.WIDTH,
        letter=timeline.LETTER,
        rooflines=[each for each in drawn if each is not None],
        plot=roofline,
        panels=panels_of(page.memory, page.buffers, len(page.layers)),
        panel_height=HEIGHT,
    )
