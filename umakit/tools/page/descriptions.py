# SPDX-License-Identifier: Apache-2.0
"""Descriptions of layers, tilings and bottlenecks as text."""

from __future__ import annotations

import math

from umakit import patterns
from umakit.machine import Tiles
from umakit.machine.tiles import AXES, INPUT_CHANNELS
from umakit.tools.page.figures import NEAR_THE_BOUND, LayerFigures, Spent


def layer_kind(composite: patterns.Composite | None) -> str:
    """Return the kind of a layer, for example `depthwise convolution`; empty if unknown."""
    kinds = {
        patterns.QDepthwise: "depthwise convolution",
        patterns.QConv2dAdd: "convolution with a sum",
        patterns.QConv2d: "convolution",
        patterns.QDense: "fully connected",
        patterns.QMaxPool2d: "max pool",
        patterns.QAveragePool2d: "average pool",
    }
    return next((name for kind, name in kinds.items() if isinstance(composite, kind)), "")


def result_tiles(tiles: Tiles) -> int:
    """Return the number of tiles of the result, over all images."""
    return math.prod(n for axis, n in tiles.extents.items() if axis != INPUT_CHANNELS)


def describe_tiling(tiles: Tiles) -> str:
    """Describe how a layer is cut, outer loop first.

    For example `output stationary; 8 tiles of 16 of 32 output channels x 4 of 16 rows; weights
    loaded once; 4 buffers`.
    """
    tiling, layer = tiles.tiling, tiles.layer
    sizes = {
        "output_channels": (tiling.output_channels, layer.output_channels),
        "rows": (tiling.rows, layer.output_size[0]),
        "columns": (tiling.columns, layer.output_size[1]),
    }
    cut = [axis for axis in tiles.loops if axis in AXES]
    parts = [f"{sizes[axis][0]:,} of {sizes[axis][1]:,} {axis.replace('_', ' ')}" for axis in cut]
    count = result_tiles(tiles)
    clauses = [] if layer.is_pool else [tiling.dataflow.value.replace("_", " ")]
    if parts:
        clauses.append(f"{count:,} tiles of {' x '.join(parts)}")
    else:
        clauses.append("in one piece" if count == 1 else f"image by image, {count:,} of them")
    steps = tiles.extents[INPUT_CHANNELS]
    if steps > 1:
        clauses.append(f"{steps:,} steps of {tiling.input_channels:,} input channels")
    stays = [name for name in ("data", "weights") if _stays(tiles, name)]
    if count * steps > 1 and stays:
        clauses.append(f"{' and '.join(stays)} loaded once")
    if count * steps > 1:
        clauses.append(f"{tiling.buffers} buffers" if tiling.buffers > 1 else "one buffer")
    return "; ".join(clauses)


def _stays(tiles: Tiles, name: str) -> bool:
    """Whether each tile of a tensor is loaded only once, although several result tiles need it."""
    if name not in tiles.buffers:
        return False
    own = math.prod(tiles.extents[axis] for axis in tiles.loops if axis in tiles.axes_of(name))
    everything = math.prod(tiles.extents[axis] for axis in tiles.loops)
    return tiles.copies(name) == own < everything


def describe_bottleneck(layer: LayerFigures, cells: int) -> str:
    """Describe the bottleneck of a layer above `NEAR_THE_BOUND` times its bound; else empty.

    Args:
        cells: number of cells of the accelerator's array.
    """
    ratio = layer.ratio
    spent = layer.tiled.spent if layer.tiled else None
    if spent is None or ratio is None or ratio <= NEAR_THE_BOUND:
        return ""
    return f"{spent.bottleneck}: {_details(spent, layer, cells)}"


def _details(spent: Spent, layer: LayerFigures, cells: int) -> str:
    working = spent.full_array + spent.partial_array
    if spent.bottleneck == "array":
        if not layer.macs:
            return f"the pooling stage works for {working:,} cycles"
        share = 100 * layer.macs / (working * cells)
        return f"{share:.0f} % of its cells have work in {working:,} cycles"
    return {
        "drain": f"for {spent.drain:,} cycles results leave the array and nothing enters",
        "loads": f"the array waits {spent.loads:,} cycles for data",
        "stores": f"the array waits {spent.stores:,} cycles for results to leave the scratchpad",
        "driver": f"the array waits {spent.driver:,} cycles for register accesses",
    }[spent.bottleneck]
