# SPDX-License-Identifier: Apache-2.0
"""Tiles as a TIR schedule, which a backend's pass reorders and lowers to driver calls.

`tile_schedule` describes a layer as TIR over tiles instead of elements: one block loads a tile of
the data, one a tile of the weights, one computes a step, one stores a tile of the result. TVM's
schedule primitives move these blocks and their loops, and refuse what would change the result. In
the end each block becomes driver calls.
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
"""A function from a tile's coordinates, which are TIR expressions, to statements."""

_RESULT = (IMAGES, OUTPUT_CHANNELS, ROWS, COLUMNS)
_COMPUTED = (*_RESULT, INPUT_CHANNELS)

BLOCKS = (*(f"load_{name}" for name in LOADED), "compute", "store")
"""Names of the blocks of a schedule, of which layers may lack some."""


def tile_schedule(tiles: Tiles) -> tvm_api.Schedule:
    """Return the initial schedule of a layer's tiles: load all, compute all, store all.

    Its blocks are `load_data`, `load_weights` unless the layer is a pool, `load_addend` if it adds,
    `compute`, whose loops are images, output channels, rows, columns and input channels, and
    `store`.
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

    # These names are those of the loops in C.
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
    """Return a schedule of a layer's tiles, each copy as far outside as it can be.

    Its loops are in the order of the tiling. What does not depend on an inner loop stays in the
    accelerator's memory while that runs, as the cost model assumes.
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
        schedule: a schedule that `tile_schedule` made.
        tiles: the tiles that it was made from.
        calls: by block name; receives the tile's number along each axis, also those of loops
            around a copy that it does not depend on: they decide which buffer it goes to.

    Raises:
        KeyError: there is no block of a name.
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
    """Return a tensor whose elements stand for the tiles of a tensor of the layer."""
    shape = [tiles.extents[axis] for axis in tiles.axes_of(tensor)]
    return te.placeholder(shape, "int32", tensor)
