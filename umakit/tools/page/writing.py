# SPDX-License-Identifier: Apache-2.0
"""Rendering of the page as one self-contained HTML file."""

from __future__ import annotations

from dataclasses import dataclass

from umakit.machine.bounds.losses import CAUSES, Loss
from umakit.text.rendering import render_html
from umakit.tools.accounting.columns import owner_table
from umakit.tools.energy.columns import event_table
from umakit.tools.page import roofline, timeline
from umakit.tools.page.figures import NEAR_THE_BOUND, LayerFigures, Page, Spent
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


def parts_of(page: Page) -> tuple[Part, ...]:
    """Return the parts of layers' cycles, with the names of the engines that compute them."""
    tiling = [each for each in page.accelerators if each.tiles]
    names = {each.engines.computing if each.engines else "array" for each in tiling}
    if all(each.engines is None for each in tiling):
        return PARTS
    name = names.pop() if len(names) == 1 else "engine"
    pools = any(_is_pool(layer) for layer in page.tiled)
    return (
        Part("full_array", f"needed by {name} at its peak"),
        Part("partial_array", f"{name} below its peak{', or pooling' if pools else ''}"),
        Part("drain", f"results leave {name}"),
        Part("loads", f"{name} waits for loads"),
        Part("stores", f"{name} waits for stores"),
        Part("driver", f"{name} waits for the driver"),
    )


def _is_pool(layer: LayerFigures) -> bool:
    return layer.tiled is not None and not layer.tiled.dataflow


def lost_by(layer: LayerFigures) -> tuple[Loss, ...]:
    """Return the causes of a layer's cycles above its bound; none if they are unknown."""
    bounds = layer.tiled.bounds if layer.tiled is not None else None
    return () if bounds is None or bounds.losses is None else bounds.losses.parts


def html(page: Page) -> str:
    """Return the page; it loads no other files and is readable without JavaScript."""
    drawn = (roofline_of(each, page.layers) for each in page.accelerators)
    return render_html(
        "report/page.html.j2",
        page=page,
        owners=owner_table(page.accounting, with_host=True),
        events=event_table(page.events),
        parts=parts_of(page),
        near=NEAR_THE_BOUND,
        causes=CAUSES,
        lost={part.cause for layer in page.tiled for part in lost_by(layer)},
        timeline=timeline_of(page.layers),
        timeline_width=timeline.WIDTH,
        letter=timeline.LETTER,
        rooflines=[each for each in drawn if each is not None],
        plot=roofline,
        panels=panels_of(page.memory, page.buffers, len(page.layers)),
        panel_height=HEIGHT,
    )
