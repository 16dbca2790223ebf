# SPDX-License-Identifier: Apache-2.0
"""Tiles as a TIR schedule, for a backend's pass to reorder and lower to driver calls.

`tile_schedule` describes a layer as TIR over tiles instead of elements: blocks load a tile of the
data, load a tile of the weights, compute a step, and store a tile of the result. TVM's schedule
primitives move these blocks and their loops, and refuse moves that would change the result. In the
end each block becomes driver calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from umakit import tvm_api
from umakit.machine.tiles import (
    COLUMNS,
    IMAGES,
    INPUT_CHANNELS,
    LOADED,
    OUTPUT_CHANNELS,
    ROWS,
    Axes,
    Position,
    Tiles,
)

tirx = tvm_api.tirx
te = tvm_api.te

Calls = Callable[[Position], tvm_api.Stmt]
"""Function from a tile's coordinates (TIR expressions) to statements."""

_RESULT = (IMAGES, OUTPUT_CHANNELS, ROWS, COLUMNS)
_COMPUTED = (*_RESULT, INPUT_CHANNELS)

BLOCKS = (*(f"load_{name}" for name in LOADED), "compute", "store")
"""Names of the blocks of a schedule. Some layers lack some blocks."""


def tile_schedule(tiles: Tiles) -> tvm_api.Schedule:
    """Return the initial schedule of a layer's tiles: load all, compute all, store all.

    The blocks are `load_data`, `load_weights` (not for pools), `load_addend` (for additions),
    `compute` with the loops images, output channels, rows, columns and input channels, and `store`.
    """
    loaded = ["data"]
    loaded += [] if tiles.layer.is_pool else ["weights"]
    loaded += ["addend"] if tiles.layer.adds else []
    sources = {name: _grid(tiles, name) for name in loaded}
    copies = {
        name: te.compute(grid.shape, _copy_of(grid), name=f"load_{name}")
        for name, grid in sources.items()
    }
    step = te.reduce_axis((0, tiles.extents[INPUT_CHANNELS]), "input_channel_tile")

    # The names are the loop names in C.
    def computed(
        image: tvm_api.Expr,
        output_channel_tile: tvm_api.Expr,
        row_tile: tvm_api.Expr,
        column_tile: tvm_api.Expr,
    ) -> tvm_api.Expr:
        result = (image, output_channel_tile, row_tile, column_tile)
        position = dict(zip(_RESULT, result, strict=True)) | {INPUT_CHANNELS: step}
        operands = [copies[name](*(position[a] for a in tiles.axes_of(name))) for name in loaded]
        total = operands[0]
        for operand in operands[1:]:
            total = total + operand
        return te.sum(total, axis=step)

    shape = [tiles.extents[axis] for axis in _RESULT]
    result = te.compute(shape, computed, name="compute")
    stored = te.compute(shape, _copy_of(result), name="store")
    return tvm_api.Schedule(te.create_prim_func([*sources.values(), stored]))


def placed_schedule(tiles: Tiles) -> tvm_api.Schedule:
    """Return a schedule of a layer's tiles, with each copy as far outside as possible.

    The loops are in the order of the tiling. Tiles that do not depend on an inner loop stay in the
    accelerator's memory during that loop, as the cost model assumes.
    """
    schedule = tile_schedule(tiles)
    loops = loops_of(schedule)
    schedule.reorder(*(loops[axis] for axis in tiles.extents))
    for block in ("load_data", "load_weights", "load_addend", "store"):
        tensor = "result" if block == "store" else block.removeprefix("load_")
        depth = tiles.depth(tensor)
        if tensor in tiles.buffers and depth > 0:
            move = schedule.reverse_compute_at if block == "store" else schedule.compute_at
            move(schedule.get_sblock(block), loops[tiles.loops[depth - 1]])
    return schedule


def loops_of(schedule: tvm_api.Schedule) -> dict[str, Any]:
    """Return the loops around the block `compute` of a new tile schedule, by axis."""
    loops = schedule.get_loops(schedule.get_sblock("compute"))
    return dict(zip(_COMPUTED, loops, strict=True))


def with_calls(
    schedule: tvm_api.Schedule, tiles: Tiles, calls: Mapping[str, Calls]
) -> tvm_api.Stmt:
    """Return the body of a scheduled prim func with its blocks replaced by statements.

    Args:
        schedule: a schedule from `tile_schedule`.
        tiles: the tiles of the schedule.
        calls: function by block name; receives the tile's number along each axis, including loops
            that a copy does not depend on, because all loops around a copy select its buffer.

    Raises:
        KeyError: the name of a block is unknown.
    """
    for name in calls:
        if name not in BLOCKS:
            raise KeyError(f"there is no block {name}; blocks are {', '.join(BLOCKS)}")
    body: tvm_api.Stmt = schedule.mod["main"].body
    realizes = tvm_api.collect(body, tvm_api.SBlockRealize)
    (computed,) = (each for each in realizes if each.block.name_hint == "compute")
    position = Axes(
        (axis, value if tiles.extents[axis] > 1 else 0)
        for axis, value in zip(_COMPUTED, computed.iter_values, strict=True)
    )

    def replaced(realize: tvm_api.Node) -> tvm_api.Stmt:
        call = calls.get(str(realize.block.name_hint))
        body: tvm_api.Stmt = realize.block.body
        return body if call is None else call(position)  # the root has none

    return tvm_api.rewrite(body, [(tvm_api.SBlockRealize, replaced)])


def _copy_of(grid: te.Tensor) -> Callable[..., Any]:
    return lambda *at: grid(*at)


def _grid(tiles: Tiles, tensor: str) -> te.Tensor:
    """Return a tensor with one element per tile of a layer's tensor."""
    shape = [tiles.extents[axis] for axis in tiles.axes_of(tensor)]
    return te.placeholder(shape, "int32", tensor)
