# SPDX-License-Identifier: Apache-2.0
"""Descriptions of layers, tilings and bottlenecks as text."""

from __future__ import annotations

import math
from collections.abc import Mapping

from umakit import patterns
from umakit.machine import Tiles
from umakit.machine.tiles import AXES, INPUT_CHANNELS
from umakit.tools.page.engines import Engines
from umakit.tools.page.figures import NEAR_THE_BOUND, LayerFigures, Spent


def layer_kind(composite: patterns.Composite | None) -> str:
    """Return the kind of a layer, for example `depthwise convolution`; empty if unknown."""
    kinds = {
        patterns.QDepthwise: "depthwise convolution",
        patterns.QConv2dAdd: "convolution with a sum",
        patterns.QConv2d: "convolution",
        patterns.QConv2dTranspose: "transposed convolution",
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


def describe_bottleneck(layer: LayerFigures, cells: int, engines: Engines | None) -> str:
    """Describe the bottleneck of a layer above `NEAR_THE_BOUND` times its bound; else empty.

    Args:
        cells: number of cells of the accelerator's array, or its multiply-accumulates in a cycle.
        engines: those of a machine that the backend describes; None for umakit's systolic array.
    """
    ratio = layer.ratio
    spent = layer.tiled.spent if layer.tiled else None
    if layer.tiled is None or spent is None or ratio is None or ratio <= NEAR_THE_BOUND:
        return ""
    if engines is not None:
        return _of_engines(spent, layer.tiled.waits, layer, cells, engines)
    return f"{spent.bottleneck}: {_details(spent, layer, cells)}"


def _of_engines(
    spent: Spent, waits: Mapping[str, int], layer: LayerFigures, peak: int, engines: Engines
) -> str:
    """Describe the bottleneck of a layer on a machine whose engines have names."""
    computing = engines.computing
    if spent.bottleneck == "array":
        working = spent.full_array + spent.partial_array
        if not layer.macs:
            return f"{computing}: it works for {working:,} cycles"
        share = 100 * layer.macs / (working * peak)
        return f"{computing}: {share:.0f} % of its peak in {working:,} cycles of work"
    if spent.bottleneck == "drain":
        return f"drain: for {spent.drain:,} cycles results leave {computing} and nothing enters"
    if spent.bottleneck == "driver":
        return f"driver: {computing} waits {spent.driver:,} cycles for register accesses"
    stores = spent.bottleneck == "stores"
    tensors = ("result",) if stores else _loaded(layer.kind)
    name, copied, cycles = engines.awaited(waits, tensors)
    copied = "the result" if stores else copied
    total = spent.stores if stores else spent.loads
    of_total = f", of {total:,} for all {spent.bottleneck}" if cycles < total else ""
    return f"{name}: {computing} waits {cycles:,} cycles for {copied}{of_total}"


def _loaded(kind: str) -> tuple[str, ...]:
    """Return the tensors that are loaded for layers of a kind of `layer_kind`."""
    if kind.endswith("pool"):
        return ("data",)
    addend = ("addend",) if kind == "convolution with a sum" else ()
    return ("data", "weights", "parameters", *addend)


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
