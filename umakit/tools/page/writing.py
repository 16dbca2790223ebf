# SPDX-License-Identifier: Apache-2.0
"""Rendering of the page as one self-contained HTML file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from umakit.machine.bounds.losses import CAUSES, Loss
from umakit.text.rendering import render_html
from umakit.tools.accounting.columns import owner_table
from umakit.tools.energy.columns import event_table
from umakit.tools.memory_map import lifetime
from umakit.tools.page import roofline, timeline
from umakit.tools.page.figures import NEAR_THE_BOUND, Page
from umakit.tools.page.roofline import roofline_of
from umakit.tools.page.timeline import LEAST_NAME, LETTER, shortened, ticks, timeline_of
from umakit.tools.record import LayerRecord, Spent


@dataclass(frozen=True)
class Part:
    """A part of a layer's cycles, as shown in bars and their legend.

    Attributes:
        name: field of `Spent`; also the class in the style sheet.
        label: description in the legend of the page.
    """

    name: str
    label: str

    def of(self, spent: Spent) -> int:
        return int(getattr(spent, self.name))


def parts_of(page: Page) -> tuple[Part, ...]:
    """Return the parts of layers' cycles, with the names of the computing engines."""
    tiling = [each for each in page.accelerators if each.tiles]
    names = {each.engines.computing if each.engines else "array" for each in tiling}
    name = names.pop() if len(names) == 1 else "engine"
    if all(each.engines is None for each in tiling):
        name, full = "array", "needed with every cell at work"
        partial, leaving = "array partly used, or pooling", "results leave the array"
    else:
        pools = any(layer.tiled and not layer.tiled.dataflow for layer in page.tiled)
        full, leaving = f"needed by {name} at its peak", f"results leave {name}"
        partial = f"{name} below its peak{', or pooling' if pools else ''}"
    return (
        Part("full_array", full),
        Part("partial_array", partial),
        Part("drain", leaving),
        Part("loads", f"{name} waits for loads"),
        Part("stores", f"{name} waits for stores"),
        Part("driver", f"{name} waits for the driver"),
    )


def lost_by(layer: LayerRecord) -> tuple[Loss, ...]:
    """Return the causes of a layer's cycles above its bound; none if unknown."""
    losses = None if layer.tiled is None else layer.tiled.losses
    return () if losses is None else losses.parts


def html(page: Page) -> str:
    """Return the page, which loads no other files and works without JavaScript."""
    drawn = (roofline_of(each, page.layers) for each in page.accelerators)
    return render_html(
        "report/page.html.j2",
        page=page,
        owners=owner_table(page.accounting, with_host=True),
        events=event_table(page.layers),
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


WIDTH, HEIGHT = 1080.0, 250.0
"""Size of a strip of a panel in pixels; a panel of many steps has several."""

LEAST_STEP = 24.0
LINE = 12.0
"""Minimum width of a step and height of a line of text in pixels."""

BUFFERS = ("data", "weights", "parameters", "addend", "result")
"""Buffers in a scratchpad with colours of their own."""


@dataclass(frozen=True)
class Box:
    """A tensor, in pixels."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    label: str
    title: str


@dataclass(frozen=True)
class Strip:
    """Some steps of a panel, as wide as the page, in pixels of the panel.

    Attributes:
        width: width of the strip.
        boxes: parts of the tensors' boxes that lie in the strip.
        steps: position and number of each labelled step.
    """

    start: float
    width: float
    boxes: tuple[Box, ...]
    steps: tuple[tuple[float, int], ...]


@dataclass(frozen=True)
class Panel:
    """A pool or a scratchpad.

    Attributes:
        size: size in bytes; None if not limited.
        step: width of a step in pixels.
        boxes: boxes of the tensors, all steps side by side.
        strips: the boxes, cut into parts that are drawn one below the other.
        bytes_at: position in pixels and bytes of each grid line.
        kinds: kinds of the boxes, in the order of the legend.
    """

    name: str
    used: int
    size: int | None
    step: float
    boxes: tuple[Box, ...]
    strips: tuple[Strip, ...]
    bytes_at: tuple[tuple[float, int], ...]
    kinds: tuple[str, ...]


def panels_of(
    memory: Mapping[str, Any], buffers: Mapping[str, str], steps: int
) -> tuple[Panel, ...]:
    """Return a panel for each memory that holds a tensor.

    Args:
        memory: the memory plan, as in `metadata.json`.
        buffers: names of buffers in scratchpads by C name.
    """
    pools = [*memory["pools"], *memory["scratchpads"]]
    return tuple(_panel(pool, buffers, steps) for pool in pools if pool["tensors"])


def _panel(pool: Mapping[str, Any], buffers: Mapping[str, str], steps: int) -> Panel:
    used, size = pool["used_bytes"], pool["size_bytes"]
    height = max(used, 1)
    steps = max(steps, 1)
    strips = math.ceil(steps * LEAST_STEP / WIDTH)
    step = WIDTH / math.ceil(steps / strips)
    taken = {tensor["takes_over"] for tensor in pool["tensors"]}
    boxes = []
    for tensor in pool["tensors"]:
        start, end = lifetime(tensor, taken)
        offset, length = tensor["offset_bytes"], tensor["size_bytes"]
        box_width, box_height = (end - start) * step, length * HEIGHT / height
        kind, name = _named(tensor, buffers)
        boxes.append(
            Box(
                start * step,
                HEIGHT - (offset + length) * HEIGHT / height,
                box_width,
                box_height,
                kind,
                _label(kind, name, box_width, box_height),
                f"{tensor['name']}: {kind}, {length:,} B at {offset:,}, "
                f"steps {tensor['first_layer'] + 1} to {tensor['last_layer'] + 1}",
            )
        )
    kinds = {box.kind for box in boxes}
    return Panel(
        pool["name"],
        used,
        size,
        step,
        tuple(boxes),
        _strips(boxes, step, steps),
        tuple((HEIGHT - value * HEIGHT / height, value) for value in ticks(height, 5)),
        tuple(kind for kind in (*ROLES, *BUFFERS, "scratch") if kind in kinds),
    )


def _strips(boxes: Sequence[Box], step: float, steps: int) -> tuple[Strip, ...]:
    each = round(WIDTH / step)
    strips = []
    for first in range(0, steps, each):
        start, end = first * step, (first + each) * step
        inside = [_cut(box, start, end) for box in boxes]
        numbers = range(first, min(first + each, steps))
        strips.append(
            Strip(
                start,
                each * step,
                tuple(box for box in inside if box.width > 0),
                tuple(((number + 0.5) * step, number + 1) for number in numbers),
            )
        )
    return tuple(strips)


def _cut(box: Box, start: float, end: float) -> Box:
    left, right = max(box.x, start), min(box.x + box.width, end)
    label = box.label if len(box.label) <= (right - left - 6) / LETTER else ""
    return replace(box, x=left, width=right - left, label=label)


ROLES = ("input", "intermediate", "output")
"""Roles of tensors that are not scratch."""


def _named(tensor: Mapping[str, Any], buffers: Mapping[str, str]) -> tuple[str, str]:
    if tensor["role"] != "scratch":
        return str(tensor["role"]), str(tensor["name"])
    buffer = buffers.get(tensor["c_name"], "")
    return (buffer, buffer) if buffer in BUFFERS else ("scratch", buffer or "scratch")


def _label(kind: str, name: str, width: float, height: float) -> str:
    """Return the fitting part of a name; for buffers, which have colours, all or nothing."""
    most = int((width - 6) / LETTER)
    if height < LINE or most < (len(name) if kind in BUFFERS else LEAST_NAME):
        return ""
    return shortened(name, most)
