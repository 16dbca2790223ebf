# SPDX-License-Identifier: Apache-2.0
"""A picture of a memory plan: lifetimes of tensors against offsets, one panel per pool."""

from __future__ import annotations

import colorsys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from umakit.errors import LibraryError
from umakit.files.outputs import MEMORY_MAP, check_file, check_parent
from umakit.files.staging import write_picture
from umakit.text.escaping import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".svg", ".png")
PANEL_HEIGHT = 4.0
"""Height of a panel in inches."""

STEP_WIDTH = 0.55
"""Width of a step in inches."""

SMALLEST_LABELLED = 0.045
"""Minimum fraction of a panel's height for a tensor to be labelled with its name."""

LONGEST_LABEL = 34
GOLDEN_RATIO = 0.618034


def check_format(path: Path) -> None:
    if path.suffix.lower() not in FORMATS:
        raise LibraryError(
            "a memory map is drawn as SVG or PNG", where=str(path), fix="end its name in .svg"
        )


def check_memory_map(path: Path, inputs: Iterable[Path] = (), force: bool = False) -> None:
    """Refuse a file that could not be written, before anything is compiled."""
    check_format(path)
    check_parent(path)
    check_file(path, MEMORY_MAP, inputs, force=force)


def draw_memory_map(
    description: Mapping[str, Any], path: Path, inputs: Iterable[Path] = (), *, force: bool = False
) -> None:
    """Draw the memory plan of a library as `.svg` or `.png`. Equal plans give equal files."""
    check_format(path)
    check_parent(path)
    write_picture(_figure(description), path, MEMORY_MAP, inputs, force=force)


def _figure(description: Mapping[str, Any]) -> Figure:
    from matplotlib.figure import Figure

    memory, layers = description["memory"], description["layers"]
    pools = [*memory["pools"], *memory["scratchpads"]]
    width = min(40.0, max(7.0, 2.5 + STEP_WIDTH * len(layers)))
    figure = Figure(figsize=(width, 1.6 + PANEL_HEIGHT * len(pools)), layout="constrained")
    panels = figure.subplots(len(pools), 1, squeeze=False, sharex=True)[:, 0]
    for axes, pool in zip(panels, pools, strict=True):
        _draw_pool(axes, pool, len(layers))
    _name_layers(panels[-1], layers)
    figure.suptitle(
        f"{description['name']}: {memory['arena_bytes']:,} B of working memory, "
        f"live-set bound {memory['live_set_bound_bytes']:,} B"
    )
    return figure


def _draw_pool(axes: Axes, pool: Mapping[str, Any], steps: int) -> None:
    used, size = pool["used_bytes"], pool["size_bytes"]
    height = max(used, size or 0, 1)
    taken = {tensor["takes_over"] for tensor in pool["tensors"]}
    for number, tensor in enumerate(pool["tensors"]):
        _draw_tensor(axes, tensor, lifetime(tensor, taken), _colour(number), height)
    limit = f" of {size:,} B" if size else " B"
    axes.set_title(f"{pool['name']}: {used:,}{limit}", loc="left", fontsize="medium")
    axes.axhline(used, color="black", linewidth=1)
    if size:
        axes.axhline(size, color="tab:red", linewidth=1.5)
    axes.set_xlim(0, max(steps, 1))
    axes.set_ylim(0, height * 1.02)
    axes.set_ylabel("offset in bytes")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_axisbelow(True)
    axes.grid(axis="x", color="0.9")


def lifetime(tensor: Mapping[str, Any], taken: Collection[str | None]) -> tuple[float, float]:
    """Return start and end of a tensor in layers; the layer of a take-over is shared by halves."""
    start = tensor["first_layer"] + (0.5 if tensor["takes_over"] else 0.0)
    return start, tensor["last_layer"] + (0.5 if tensor["c_name"] in taken else 1.0)


def _draw_tensor(
    axes: Axes,
    tensor: Mapping[str, Any],
    span: tuple[float, float],
    colour: tuple[float, float, float],
    height: int,
) -> None:
    from matplotlib.patches import Rectangle

    start, length = span[0], span[1] - span[0]
    scratch = tensor["role"] == "scratch"
    patch = Rectangle(
        (start, tensor["offset_bytes"]),
        length,
        tensor["size_bytes"],
        facecolor="0.85" if scratch else colour,
        edgecolor="0.25",
        linewidth=0.6,
        hatch="///" if scratch else None,
    )
    axes.add_patch(patch)
    if tensor["size_bytes"] >= SMALLEST_LABELLED * height:
        axes.text(
            start + length / 2,
            tensor["offset_bytes"] + tensor["size_bytes"] / 2,
            _shortened(tensor["name"], length),
            ha="center",
            va="center",
            fontsize=6,
            clip_on=True,
            parse_math=False,
        )


def _shortened(name: str, steps: float) -> str:
    most = min(LONGEST_LABEL, int(10 * steps))
    name = shown(name)
    return name if len(name) <= most else f"{name[: most - 1]}\u2026"


def _colour(number: int) -> tuple[float, float, float]:
    """Return a light colour that differs from those of neighbouring numbers."""
    return colorsys.hls_to_rgb(number * GOLDEN_RATIO % 1.0, 0.78, 0.6)


def _name_layers(axes: Axes, layers: Sequence[Mapping[str, Any]]) -> None:
    axes.set_xticks(
        [number + 0.5 for number in range(len(layers))],
        [_shortened(layer["name"], 4) for layer in layers],
        rotation=60,
        ha="right",
        rotation_mode="anchor",
        fontsize=7,
        parse_math=False,
    )
    axes.set_xlabel("layer")
