# SPDX-License-Identifier: Apache-2.0
"""Steps of schedules for CPUs with vector registers, shared by convolutions and matrix products."""

from __future__ import annotations

from typing import Any

from umakit import tir, tvm_api
from umakit.cpu.schedule import attempt
from umakit.cpu.vector_expressions import with_value

tirx = tvm_api.tirx

CUTS = "pragma_umakit_cuts"
"""Annotation of a loop: the values of its variable at which a part begins, but the first one's, as
text with commas."""


def cut_loops(function: tvm_api.PrimFunc) -> tvm_api.PrimFunc:
    """Return a prim func without blocks whose loops with the annotation `CUTS` are cut.

    Variables may be bound several times in the result. TVM simplifies expressions that are constant
    in a part.
    """

    def cut(statement: tvm_api.Stmt) -> tvm_api.Stmt:
        if str(statement.attr_key) != CUTS:
            return statement
        loop = statement.body
        begins = [int(text) for text in str(statement.value.value).split(",")]
        ends = [*begins, int(loop.extent.value)]
        parts = [_part(loop, first, end) for first, end in zip([0, *begins], ends, strict=True)]
        return tirx.SeqStmt(parts)

    return tir.with_body(function, tvm_api.rewrite(function.body, [(tirx.AttrStmt, cut)]))


def _part(loop: tvm_api.Stmt, first: int, end: int) -> tvm_api.Stmt:
    """Return the turns of a loop from `first` until before `end`."""
    dtype = str(loop.loop_var.ty.dtype)
    start = tirx.IntImm(dtype, first)
    if end - first == 1:
        return with_value(loop.body, loop.loop_var, start)
    body = with_value(loop.body, loop.loop_var, loop.loop_var + start) if first else loop.body
    return tirx.For(
        loop.loop_var, tirx.IntImm(dtype, 0), tirx.IntImm(dtype, end - first), loop.kind, body
    )


def shorten_loops(function: tvm_api.PrimFunc) -> tvm_api.PrimFunc:
    """Return a prim func whose loops end where a condition on their variable ends all their work.

    The last part of a cut loop has fewer turns of an inner loop. Such a condition would keep
    compilers from vectorizing the inner loop.
    """

    def shorten(loop: tvm_api.Stmt) -> tvm_api.Stmt:
        condition = _only_condition(loop.body)
        is_plain = loop.kind == tirx.ForKind.SERIAL and tvm_api.integer_value(loop.min) == 0
        if condition is None or not is_plain:
            return loop
        comparison = condition.condition
        limit = tvm_api.integer_value(comparison.b)
        if limit is None or not comparison.a.same_as(loop.loop_var):
            return loop
        extent = min(limit, int(loop.extent.value))
        body = _without_condition(loop.body)
        end = tirx.IntImm(str(loop.loop_var.ty.dtype), extent)
        return tirx.For(loop.loop_var, loop.min, end, loop.kind, body)

    return tir.with_body(function, tvm_api.rewrite(function.body, [(tirx.For, shorten)]))


def _only_condition(body: tvm_api.Stmt) -> Any | None:
    """Return the comparison `a < b` around all statements of a loop nest; None without one."""
    while isinstance(body, tirx.For):
        body = body.body
    is_condition = isinstance(body, tirx.IfThenElse) and body.else_case is None
    return body if is_condition and isinstance(body.condition, tirx.LT) else None


def _without_condition(body: tvm_api.Stmt) -> tvm_api.Stmt:
    """Return a loop nest without the condition around all its statements."""
    if isinstance(body, tirx.IfThenElse):
        return body.then_case
    return tirx.For(body.loop_var, body.min, body.extent, body.kind, _without_condition(body.body))


PLAIN = ("Add", "Sub", "Mul", "Max", "Min", "TensorLoad", "FloatImm", "IntImm", "Var")
"""Expressions that are the same for vectors; indices are of these, too."""


def extent(schedule: tvm_api.Schedule, loop: Any) -> int:
    """Return the number of turns of a loop; 0 if the number is computed."""
    return tvm_api.integer_value(schedule.get(loop).extent) or 0


def tiles_of(schedule: tvm_api.Schedule, loop: Any, size: int) -> tuple[Any, Any]:
    """Cut a loop into tiles; the last tile may be smaller."""
    whole, rest = divmod(extent(schedule, loop), size)
    tiles, element = schedule.split(loop, [None, size])
    if rest:
        schedule.annotate(tiles, CUTS, str(whole))
    return tiles, element


def place_padding(schedule: tvm_api.Schedule, padding: Any, place: Any, whole: bool = True) -> None:
    """Compute padding inside a loop, without conditions on columns in inner loops.

    Args:
        whole: whether rows have all channels inside the loop, so that a row is one loop.
    """
    borders = _borders(schedule, padding)
    schedule.compute_at(padding, place)
    loops = schedule.get_loops(padding)
    inside = [n for n, each in enumerate(loops) if schedule.get(each).same_as(schedule.get(place))]
    rows, *row = loops[inside[0] + 1 :] if inside else [None]
    if whole and borders is not None and len(row) == 2 and _has_more_channels(schedule, padding):
        _cut_unlike_channels(schedule, padding, borders, row)
    elif whole and borders is not None and len(row) == 2:
        channels = extent(schedule, row[1])
        columns = extent(schedule, row[0])
        cuts = [channels * n for n in borders if 0 < n < columns]
        fused = schedule.fuse(*row)
        if cuts:
            schedule.annotate(fused, CUTS, ",".join(map(str, cuts)))
    elif rows is not None:
        # Fill with the padding value first, then copy the inside.
        attempt(schedule.decompose_padding, padding, rows)


def _has_more_channels(schedule: tvm_api.Schedule, padding: Any) -> bool:
    """Whether padded data has more channels than the data, so that a row is not one copy."""
    block = schedule.get(padding)
    data, padded = (tvm_api.buffer_shape(n.source) for n in (*block.reads, *block.writes))
    return data[-1] != padded[-1]


def _cut_unlike_channels(
    schedule: tvm_api.Schedule, padding: Any, borders: list[int], row: list[Any]
) -> None:
    """Cut the loops over columns and channels of padded data with more channels."""
    block, (column, channel) = schedule.get(padding), row
    cuts = [n for n in borders if 0 < n < extent(schedule, column)]
    if cuts:
        schedule.annotate(column, CUTS, ",".join(map(str, cuts)))
    limits = [
        limit
        for comparison in tvm_api.collect(block.body, tvm_api.tirx.LT)
        if comparison.a.same_as(block.iter_vars[-1].var)
        and (limit := tvm_api.integer_value(comparison.b)) is not None
    ]
    if limits:
        schedule.annotate(channel, CUTS, str(limits[0]))
        return
    repeats = extent(schedule, channel) // tvm_api.buffer_shape(block.reads[0].source)[-1]
    schedule.split(channel, [None, repeats])


def _borders(schedule: tvm_api.Schedule, padding: Any) -> list[int] | None:
    """Return the first column of the data in padded data, and the first column behind; None if
    unknown."""
    body, axes = schedule.get(padding).body, schedule.get(padding).iter_vars
    shapes = [
        tvm_api.buffer_shape(each.source)
        for each in (*schedule.get(padding).reads, *schedule.get(padding).writes)
    ]
    if len(shapes) != 2 or len(axes) != 4 or any(len(shape) != 4 for shape in shapes):
        return None
    data, padded = shapes
    for kind, of_limit, of_column in ((tvm_api.tirx.LE, "a", "b"), (tvm_api.tirx.LT, "b", "a")):
        for comparison in tvm_api.collect(body, kind):
            limit = tvm_api.integer_value(getattr(comparison, of_limit))
            if limit is not None and getattr(comparison, of_column).same_as(axes[2].var):
                first = limit if kind is tvm_api.tirx.LE else limit - data[2]
                return [first, first + data[2]]
    return [] if data[2] == padded[2] else None


def result_of(schedule: tvm_api.Schedule, block: Any) -> Any:
    """Return the block that stores the result: fused elementwise operators, or a copy of the
    sums."""
    consumers = list(schedule.get_consumers(block))
    return consumers[0] if consumers else schedule.cache_write(block, 0, "global")


def vectorize_result(schedule: tvm_api.Schedule, result: Any, lanes: int) -> None:
    """Vectorize the fused elementwise operators, if vectors have all of these operators.

    If the last tile has more channels than the result, vectors are narrow enough to lie inside the
    result.
    """
    store = schedule.get(result).body
    axes, loops = schedule.get(result).iter_vars, schedule.get_loops(result)
    if not isinstance(store, tvm_api.tirx.BufferStore) or not axes:
        return
    expressions = [store.value, *store.indices]
    kinds = {type(each).__name__ for each in tvm_api.collect(expressions, tvm_api.PrimExpr)}
    if not kinds <= set(PLAIN) or not _is_last_index(store, axes[-1].var):
        return
    shape = tvm_api.buffer_shape(store.buffer)
    width = lanes
    while width > 1 and (shape[-1] % width or extent(schedule, loops[-1]) % width):
        width //= 2
    if width > 1:
        _, lane = schedule.split(loops[-1], [None, width])
        schedule.vectorize(lane)


def _is_last_index(store: tvm_api.Stmt, channel: Any) -> bool:
    """Whether the channel index is the last index of all accesses, and in no other index."""
    loads = tvm_api.collect(store.value, tvm_api.TensorLoad)
    accesses = [list(store.indices), *(list(load.indices) for load in loads)]
    for *others, last in filter(None, accesses):  # a scalar has no index, and is read by all
        if any(channel in tvm_api.collect(index, tvm_api.Var) for index in others):
            return False
        if not last.same_as(channel) and channel in tvm_api.collect(last, tvm_api.Var):
            return False
    return True


def use_registers(schedule: tvm_api.Schedule, position: Any | None, lane: Any, lanes: int) -> None:
    """Mark the innermost loops of a block as vectors at constant indices."""
    if extent(schedule, lane) > lanes:
        vectors, lane = schedule.split(lane, [None, lanes])
        schedule.unroll(vectors)
    schedule.vectorize(lane)
    if position is not None:
        schedule.unroll(position)
