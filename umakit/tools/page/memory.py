# SPDX-License-Identifier: Apache-2.0
"""The memory map: tensors drawn by lifetime (steps) and place (bytes)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from umakit.tools.memory_map import lifetime
from umakit.tools.page.timeline import LEAST_NAME, LETTER, shortened, ticks

WIDTH, HEIGHT = 1080.0, 250.0
"""Size of a panel in pixels; it is wider if the network has many steps."""

LEAST_STEP = 24.0
LINE = 12.0
"""Minimum width of a step and height of a line of text in pixels."""

BUFFERS = ("data", "weights", "parameters", "addend", "result")
"""Buffers in a scratchpad that have their own colours."""


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
class Panel:
    """A pool or a scratchpad.

    Attributes:
        name: name of the memory.
        used: bytes in use.
        size: size in bytes; None if it is not limited.
        width: width in pixels.
        boxes: boxes of the tensors.
        steps: position in pixels and number of each labelled step.
        bytes_at: position in pixels and bytes of each grid line.
        kinds: kinds of the boxes, in the order of the legend.
    """

    name: str
    used: int
    size: int | None
    width: float
    boxes: tuple[Box, ...]
    steps: tuple[tuple[float, int], ...]
    bytes_at: tuple[tuple[float, int], ...]
    kinds: tuple[str, ...]


def panels_of(
    memory: Mapping[str, Any], buffers: Mapping[str, str], steps: int
) -> tuple[Panel, ...]:
    """Return a panel for each memory that holds a tensor.

    Args:
        memory: the memory plan, as in `metadata.json`.
        buffers: names of buffers in scratchpads by C name.
        steps: number of steps of the program.
    """
    pools = [*memory["pools"], *memory["scratchpads"]]
    return tuple(_panel(pool, buffers, steps) for pool in pools if pool["tensors"])


def _panel(pool: Mapping[str, Any], buffers: Mapping[str, str], steps: int) -> Panel:
    used, size = pool["used_bytes"], pool["size_bytes"]
    height = max(used, 1)
    step = max(LEAST_STEP, WIDTH / max(steps, 1))
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
    every = max(1, round(LEAST_STEP / step))
    kinds = {box.kind for box in boxes}
    return Panel(
        pool["name"],
        used,
        size,
        step * max(steps, 1),
        tuple(boxes),
        tuple(((number + 0.5) * step, number + 1) for number in range(0, steps, every)),
        tuple((HEIGHT - value * HEIGHT / height, value) for value in ticks(height, 5)),
        tuple(kind for kind in (*ROLES, *BUFFERS, "scratch") if kind in kinds),
    )


ROLES = ("input", "intermediate", "output")
"""Roles of tensors that are not scratch."""


def _named(tensor: Mapping[str, Any], buffers: Mapping[str, str]) -> tuple[str, str]:
    """Return the kind of a tensor and the label of its box."""
    if tensor["role"] != "scratch":
        return str(tensor["role"]), str(tensor["name"])
    buffer = buffers.get(tensor["c_name"], "")
    return (buffer, buffer) if buffer in BUFFERS else ("scratch", buffer or "scratch")


def _label(kind: str, name: str, width: float, height: float) -> str:
    """Return as much of a name as fits; for buffers, which have colours, all or nothing."""
    most = int((width - 6) / LETTER)
    if height < LINE or most < (len(name) if kind in BUFFERS else LEAST_NAME):
        return ""
    return shortened(name, most)
