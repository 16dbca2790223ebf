# SPDX-License-Identifier: Apache-2.0
"""Loop schedule of transposed convolutions that are computed by phases, for any CPU.

Tiles of sums of all phases are local arrays next to each other, from which a tile of the result is
written:

    for image, row of each phase:
        padded rows
        for channel tile, column tile:
            for each phase (code of its own):
                sums[columns][channels] = 0
                for input channel, kernel row, kernel column:
                    for column of the tile, channel of the tile:
                        sums[column][channel] += data * weights[channel]
            for channel, column, phase:
                result = what follows, element by element
"""

from __future__ import annotations

from typing import Any

from umakit import tvm_api
from umakit.lower.kernel_facts import FACTS, Facts
from umakit.lower.padding_loops import cut_padding
from umakit.lower.plain_tiles import SUM_BYTES, PlainTile
from umakit.lower.schedule import attempt, inline_elementwise, is_padding, reductions_of
from umakit.lower.transposed_convolutions import PHASE, TILE

RANKS = (3, 4)
"""Axes of the result: of signals and of images. What follows may add more."""


def schedule_transposed(function: tvm_api.PrimFunc) -> tvm_api.PrimFunc | None:
    """Schedule a prim func of fused operators for any CPU; None if it is no such convolution.

    Args:
        function: the prim func.
    """
    schedule = tvm_api.Schedule(tvm_api.IRModule({"main": function}))
    if not attempt(schedule.get_sblock, "root"):
        return None  # written as loops, not as blocks
    inline_elementwise(schedule)
    reductions = reductions_of(schedule)
    names = [str(schedule.get(each).name_hint) for each in reductions]
    outputs = schedule.get_output_blocks(schedule.get_sblock("root"))
    if not names or not all(name.startswith(PHASE) for name in names) or len(outputs) != 1:
        return None
    if len(schedule.get_loops(outputs[0])) not in RANKS:
        return None
    tile, strides = _tile_of(schedule, reductions[0])
    (weights,) = (
        number
        for number, parameter in enumerate(function.params)
        for read in schedule.get(reductions[0]).reads
        if str(parameter.name) == str(read.source.name)
        and len(tvm_api.buffer_shape(read.source)) == 1
    )
    if not attempt(_compute_in_tiles, schedule, reductions, outputs[0], tile, strides):
        return None
    scheduled = schedule.mod["main"].with_attrs(dict(function.attrs))
    layouts = {weights: f"OIHW{tile.channels}o of each phase"}
    return scheduled.with_attr(FACTS, Facts(SUM_BYTES, layouts=layouts).text)


def _tile_of(schedule: tvm_api.Schedule, phase: Any) -> tuple[PlainTile, tuple[int, int]]:
    """Return what the legalization chose: a tile, and the strides of rows and of columns."""
    text = str(schedule.get(phase).annotations[TILE])
    channels, columns, by_columns, rows, stride = map(int, text.split(","))
    return PlainTile(channels, columns, bool(by_columns)), (rows, stride)


def _compute_in_tiles(
    schedule: tvm_api.Schedule,
    phases: list[Any],
    result: Any,
    tile: PlainTile,
    strides: tuple[int, int],
) -> None:
    """Compute all phases of a tile, and then what follows them."""
    image, channel, *row, column = schedule.get_loops(result)
    channels, lane = schedule.split(channel, [None, tile.channels])
    tiles, position, of_column = schedule.split(column, [None, tile.columns, strides[1]])
    rows, of_row = schedule.split(row[0], [None, strides[0]]) if row else (image, None)
    around = [image, rows] if row else [image]
    of_phase = [loop for loop in (of_row, lane, position, of_column) if loop is not None]
    schedule.reorder(*around, channels, tiles, *of_phase)
    paddings = {
        str(schedule.get(block).name_hint): block
        for phase in phases
        for block in schedule.get_producers(phase)
        if is_padding(schedule, block)
    }
    for phase in phases:
        schedule.unannotate(phase, TILE)
        schedule.compute_at(phase, tiles, preserve_unit_loops=True)
        # Rows are one; channels are the first axis behind images, or the last one.
        first, second, third, *window = schedule.get_loops(phase)[-6:]
        lanes = [first, third] if tile.by_columns else [second, third]
        schedule.reorder(*window, *lanes)
        schedule.decompose_reduction(phase, window[0])
    for padding in paddings.values():
        attempt(schedule.compute_at, padding, rows)
        cut_padding(schedule, padding)
    schedule.unroll(of_column)
    if of_row is not None:
        schedule.unroll(of_row)
