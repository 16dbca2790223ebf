# SPDX-License-Identifier: Apache-2.0
"""The TIR pass of a backend with tiled layers: loops over tiles with driver calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from umakit import patterns, tir, tvm_api
from umakit.errors import BackendError
from umakit.machine.layer import Kind
from umakit.machine.planner import TilePlanner
from umakit.machine.systolic import Dataflow
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
from umakit.text.spelling import closest

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


TENSORS = ("data", "addend", "weights", "bias", "multipliers", "shifts", "result")
"""Numbers of tensors in calls of a driver are places in this order."""

PARAMETERS = ("bias", "multipliers", "shifts")

OPERATIONS = (Kind.CONVOLUTION, Kind.DEPTHWISE, Kind.MAX_POOL, Kind.AVERAGE_POOL)
"""Numbers of operations in calls of a driver are places in this order."""

OPERANDS = ("data", "weights", "parameters", "result", "addend")
"""Tensors whose buffers a job receives, in this order; absent tensors are 0."""

CONFIGURE_ARGUMENTS = (
    "operation", "rounding", "channels_first", "kernel_height", "kernel_width", "stride_y",
    "stride_x", "dilation_y", "dilation_x", "input_zero_point", "output_zero_point", "lowest",
    "highest",
)  # fmt: skip
"""Default names of the arguments of `NAME_configure`."""

COPY_ARGUMENTS = (
    "tensor", "buffer", "offset", "place", "planes", "rows", "row_bytes", "plane_stride",
    "row_stride",
)  # fmt: skip
"""Default names of the arguments of `NAME_load` and `NAME_store`."""

TRANSFER = COPY_ARGUMENTS[2:]

Call = tuple[str, list[Any]]
"""A C function's name and its arguments."""


@dataclass(frozen=True)
class _Driver:
    """The C functions that a pass calls, and the names of their arguments."""

    name: str
    begin: Sequence[int]
    configure: Sequence[str]
    copy: Sequence[str]
    load: str
    store: str
    schedule: Callable[[Tiles], tvm_api.Schedule] = field(repr=False)


def tiled_layer_pass(
    planner: TilePlanner,
    driver: str,
    *,
    begin: Sequence[int] = (),
    configure: Sequence[str] = CONFIGURE_ARGUMENTS,
    copy: Sequence[str] = COPY_ARGUMENTS,
    load: str = "load",
    store: str = "store",
    schedule: Callable[[Tiles], tvm_api.Schedule] = placed_schedule,
) -> Any:
    """Return a pass for `_register_tir_pass` that lowers layers to driver calls, tile by tile.

    A layer becomes these calls, where NAME is `driver`:

    - `NAME_begin(begin...)`, once;
    - `NAME_bind(tensor, memory, bytes)` for each tensor in shared memory;
    - `NAME_load(copy...)` for each tile of data, weights and addend;
    - `NAME_configure(configure...)`, `NAME_configure_add(...)` if the layer adds a tensor, and
      loads of bias, multipliers and shifts as single rows, once, before the first job;
    - `NAME_compute(buffers of data, weights, parameters, result, addend, Tiles.job...)`;
    - `NAME_store(copy...)` for each tile of the result;
    - `NAME_finish()`, once. The backend names it in `_register_completion`.

    Tensors are numbered data 0, addend 1, weights 2, bias 3, multipliers 4, shifts 5, result 6.

    Args:
        planner: planner of the tilings.
        driver: prefix of the names of the driver's functions.
        begin: numbers that the driver compares with its device, such as the lanes of weights.
        configure: numbers of a layer that are arguments, in order: `operation` (convolution 0,
            depthwise 1, max pool 2, average pool 3), `dataflow` (a place in `Dataflow`), `rounding`
            (an `enum umakit_rounding`), `channels_first`, `kernel_height`, `kernel_width`,
            `stride_y`, `stride_x`, `dilation_y`, `dilation_x`, `input_zero_point`,
            `output_zero_point`, `lowest`, `highest`.
        copy: numbers of a copy that are arguments, in order: `tensor`; `engine`, the place of the
            copying engine among all copying engines; `by_planes`, 1 for an image in channels x rows
            x columns; `line`, the bytes of a position (of weights: of a row of a block, of
            parameters: 0); `buffer` of its tiles; and `offset`, `place`, `planes`, `rows`,
            `row_bytes`, `plane_stride`, `row_stride` of `Tiles.load`.
        load, store: names of the copying functions behind `NAME_`; they may be the same.
        schedule: function from tiles to a schedule of `tile_schedule`: the order of loops and
            copies.

    Raises:
        BackendError: the name of an argument is unknown, or an argument has another type.
    """
    _check_names(driver, "configure", configure, {*CONFIGURE_ARGUMENTS, "dataflow"})
    _check_names(driver, "copy", copy, {*COPY_ARGUMENTS, "engine", "by_planes", "line"})
    _check_types(planner, driver, begin, schedule)
    called = _Driver(driver, begin, configure, copy, load, store, schedule)
    return tir.prim_func_pass(
        f"{driver}_tiled_layer_pass", lambda function: _tiled(function, planner, called)
    )


def _check_names(driver: str, option: str, names: object, known: set[str]) -> None:
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise BackendError(
            f"tiled_layer_pass of {driver}: {option} is {names!r}, which is no list of names",
            fix=f"write {option}=[...]",
        )
    for name in names:
        if name not in known:
            near = closest(str(name), known)
            raise BackendError(
                f"tiled_layer_pass of {driver}: {option} has no argument {name!r}",
                fix=(f"write {near}, or " if near else "")
                + f"choose from {', '.join(sorted(known))}",
            )


def _check_types(planner: object, driver: object, begin: object, schedule: object) -> None:
    if not isinstance(planner, TilePlanner):
        raise BackendError(
            f"tiled_layer_pass got {planner!r} as planner, which is no TilePlanner",
            fix="write TilePlanner.of(self.configuration)",
        )
    if not isinstance(driver, str):
        raise BackendError(
            f"tiled_layer_pass got {driver!r} as driver, which is no text",
            fix="write what the names of the driver's functions begin with",
        )
    numbers = begin if isinstance(begin, Sequence) and not isinstance(begin, str) else [None]
    if not all(isinstance(each, int) for each in numbers):
        raise BackendError(
            f"tiled_layer_pass of {driver}: begin is {begin!r}, which is no list of integers",
            fix="write begin=[...]",
        )
    if not callable(schedule):
        raise BackendError(
            f"tiled_layer_pass of {driver}: schedule is {schedule!r}, which is no function",
            fix="write the name of a function of tiles, or leave it out",
        )


def _tiled(function: Any, planner: TilePlanner, driver: _Driver) -> Any:
    """Return the prim func of a layer with loops over tiles as body; other prim funcs unchanged."""
    composite = patterns.parameters_of(function)
    return function if composite is None else _Layer(function, composite, planner, driver).tiled()


class _Layer:
    """The driver calls of one layer."""

    def __init__(
        self, function: Any, composite: Any, planner: TilePlanner, driver: _Driver
    ) -> None:
        self._function, self._composite, self._driver = function, composite, driver
        self._tiles, self._machine = planner.tiles_of(composite), planner.machine
        self._tensors = dict(zip(composite.POINTERS, function.params, strict=True))
        self._buffers = {
            name: tir.scratchpad_buffer(name, buffer.size, "int8", self._machine.memory_of(name))
            for name, buffer in self._tiles.buffers.items()
        }

    def tiled(self) -> Any:
        """Return the prim func with loops over tiles as its body."""
        before = [self._call("begin", self._driver.begin)]
        before += [
            self._call("bind", [TENSORS.index(name), tir.pointer(tensor), tir.buffer_bytes(tensor)])
            for name, tensor in self._tensors.items()
        ]
        calls = {f"load_{name}": self._copies(name) for name in ("data", "weights", "addend")}
        calls |= {"compute": self._compute, "store": self._copies("result")}
        loops = with_calls(self._driver.schedule(self._tiles), self._tiles, calls)
        finish = tir.driver_calls([self._call("finish", [])])
        body = tir.sequence([tir.driver_calls(before), loops, finish])
        return tir.with_body(self._function, tir.allocate(list(self._buffers.values()), body))

    def _call(self, name: str, arguments: Sequence[Any]) -> Call:
        return f"{self._driver.name}_{name}", list(arguments)

    def _copy(self, tensor: str, line: Any, transfer: Sequence[Any]) -> Call:
        buffer = "parameters" if tensor in PARAMETERS else tensor
        is_image = tensor in ("data", "addend", "result")
        values = dict(zip(TRANSFER, transfer, strict=True)) | {
            "tensor": TENSORS.index(tensor),
            "engine": self._engine_of(buffer),
            "by_planes": int(self._tiles.layer.channels_first and is_image),
            "line": line,
            "buffer": tir.pointer(self._buffers[buffer]),
        }
        name = self._driver.store if tensor == "result" else self._driver.load
        return self._call(name, [values[each] for each in self._driver.copy])

    def _engine_of(self, buffer: str) -> int:
        """Return the place of an engine among the copying engines, in the order of the machine."""
        copied = ("data", "addend", "weights", "parameters", "result")
        copying = {self._machine.engine_of(each).name for each in copied}
        engines = [each.name for each in self._machine.machine.engines if each.name in copying]
        return engines.index(self._machine.engine_of(buffer).name)

    def _copies(self, tensor: str) -> Callable[[Position], Any]:
        layer, block = self._tiles.layer, self._machine.block_channels

        def call(position: Position) -> Any:
            job = self._tiles.job(position)
            line = job.input_channels if tensor == "data" else job.output_channels
            if tensor == "weights" and not layer.per_channel:
                line = block
            moved = self._tiles.copy(tensor, position)
            return tir.driver_calls([self._copy(tensor, line, moved.arguments)])

        return call

    def _compute(self, position: Position) -> Any:
        buffers = self._buffers
        places = [tir.pointer(buffers[name]) if name in buffers else 0 for name in OPERANDS]
        arguments = [*places, *self._tiles.job(position).arguments]
        job = tir.driver_call(*self._call("compute", arguments))
        # Behind the loads of the first tile, whose transfers run meanwhile.
        first: list[Any] = [position[axis] == 0 for axis in self._tiles.loops]
        return tir.sequence([tir.only_if(first, tir.driver_calls(self._common())), job])

    def _common(self) -> list[Call]:
        """Return the calls before the first job: configuration and loads of parameters."""
        values = self._values()
        calls = [self._call("configure", [values[name] for name in self._driver.configure])]
        if isinstance(self._composite, patterns.QConv2dAdd):
            added = self._composite.addition
            scales = [n for pair in zip(added.multipliers, added.shifts, strict=True) for n in pair]
            sums = [added.output_zero_point, *added.clip]
            arguments = [added.zero_points[1], added.left_shift, *scales, *sums]
            calls.append(self._call("configure_add", arguments))
        place = 0
        for name in PARAMETERS:
            if name in self._tensors:
                size = tir.buffer_bytes(self._tensors[name])
                calls.append(self._copy(name, 0, [0, place, 1, 1, size, 0, 0]))
                place += size
        return calls

    def _values(self) -> dict[str, int]:
        """Return the numbers that all tiles of the layer share."""
        layer, composite = self._tiles.layer, self._composite
        pairs = {"kernel_": layer.kernel, "stride_": layer.strides, "dilation_": layer.dilation}
        ends = {"kernel_": ("height", "width")}
        rounding = 0 if layer.is_pool else patterns.ROUNDINGS.index(composite.rounding)
        return {
            **{
                f"{name}{end}": value
                for name, values in pairs.items()
                for end, value in zip(ends.get(name, ("y", "x")), values, strict=True)
            },
            "operation": OPERATIONS.index(layer.kind),
            "dataflow": tuple(Dataflow).index(self._tiles.tiling.dataflow),
            "rounding": rounding,
            "channels_first": int(layer.channels_first),
            "input_zero_point": getattr(composite, "input_zero_point", 0),
            "output_zero_point": composite.output_zero_point,
            "lowest": composite.clip[0],
            "highest": composite.clip[1],
        }
