# SPDX-License-Identifier: Apache-2.0
"""TIR passes of the small_chocolate_accelerator: a layer becomes loops over tiles, of driver calls.

TIR is TVM's loop program. A TIR pass is a function from a prim func to a prim func. This one throws
the loops over elements away, which `patterns.parameters_of` describes, and writes the layer anew as
loops over tiles:

    for channels in tiles of the output channels:      # or rows outside, see `Tiling.order`
        load(weights)
        for rows in tiles of the rows:
            load(data)                                 # with the rows that windows share
            for step in parts of the input channels:   # where not all fit at once
                compute(...)                           # sums stay in the accumulator between them
            store(result)

`scheduled` moves the loops and copies by TVM's schedule primitives, which refuse what would change
the result: this is the place to try another order. Calls only put commands into the device's queue;
it runs them as if one after the other, and at the same time where they use different banks. So
double buffering needs nothing here but a second buffer, which `Tiles` puts tiles into in turns.
"""

from typing import Any

from umakit import patterns, tir
from umakit.backend import DeviceSection
from umakit.machine import (
    Dataflow,
    DriverCosts,
    Kind,
    TilePlanner,
    Tiles,
    loops_of,
    tile_schedule,
    with_calls,
)

BEGIN = "small_chocolate_accelerator_begin"
BIND = "small_chocolate_accelerator_bind"
CONFIGURE = "small_chocolate_accelerator_configure"
CONFIGURE_ADD = "small_chocolate_accelerator_configure_add"
LOAD = "small_chocolate_accelerator_load"
COMPUTE = "small_chocolate_accelerator_compute"
STORE = "small_chocolate_accelerator_store"
FINISH = "small_chocolate_accelerator_finish"

# In the order of the enumerators in the driver's header. C that is generated has them by name:
# `SMALL_CHOCOLATE_ACCELERATOR_WEIGHTS` instead of 2.
TENSORS = ("data", "addend", "weights", "bias", "multipliers", "shifts", "result")
PARAMETERS = ("bias", "multipliers", "shifts")
DATAFLOWS = tuple(Dataflow)
OPERATIONS = (Kind.CONVOLUTION, Kind.DEPTHWISE, Kind.MAX_POOL, Kind.AVERAGE_POOL)
COMPLETIONS = ("interrupt", "polling")

Call = tuple[str, list[Any]]
"""A C function's name and its arguments."""

# Register accesses of the driver's calls, a cycle each: part of what a layer costs.
DRIVER_COSTS = DriverCosts(
    begin=6, configure=15, configure_add=12, transfer=11, job=24, check=2, finish=3
)


def SmallChocolateLayerPass(planner: TilePlanner, device: DeviceSection) -> Any:
    """A pass that cuts layers into tiles.

    Args:
        planner: says how a layer is cut.
        device: what `accel.toml` says about it.
    """
    completion = COMPLETIONS.index(device.completion)
    return tir.prim_func_pass(
        "SmallChocolateLayerPass", lambda function: tiled(function, planner, completion)
    )


def tiled(function: Any, planner: TilePlanner, completion: int) -> Any:
    """The prim func of a layer with loops over tiles as its body; others as they are."""
    composite = patterns.parameters_of(function)
    if composite is None:
        return function
    tiles = planner.tiles_of(composite)

    # The prim func's parameters are the tensors in shared memory, and each buffer for tiles gets a
    # place in the scratchpad, which the memory plan chooses.
    tensors = dict(zip(composite.POINTERS, function.params, strict=True))
    buffers = {
        name: tir.scratchpad_buffer(name, buffer.size, "int8", "scratchpad")
        for name, buffer in tiles.buffers.items()
    }

    # A driver call is the name of a C function and its arguments. In the generated C each call
    # becomes `status = name(arguments); if (status != 0) return status;`.
    before: list[Call] = [(BEGIN, [planner.hardware.columns, completion])]
    before += [
        (BIND, [TENSORS.index(name), tir.pointer(tensor), tir.buffer_bytes(tensor)])
        for name, tensor in tensors.items()
    ]
    common = [*configuration(composite, tiles), *parameters(tensors, buffers)]
    loops = with_calls(scheduled(tiles), tiles, commands(tiles, buffers, common))
    body = [tir.driver_calls(before), loops, tir.driver_calls([(FINISH, [])])]
    return tir.with_body(function, tir.allocate(list(buffers.values()), tir.sequence(body)))


def scheduled(tiles: Tiles) -> Any:
    """The loops over tiles in the order of the tiling, and each copy as far outside as it can be:
    what does not depend on an inner loop stays in the scratchpad while that runs."""
    schedule = tile_schedule(tiles)
    loops = loops_of(schedule)
    schedule.reorder(*(loops[axis] for axis in tiles.extents))
    for block in ("load_data", "load_weights", "load_addend", "store"):
        tensor = "result" if block == "store" else block.removeprefix("load_")
        depth = tiles.depth(tensor)
        if tensor not in tiles.buffers or depth == 0:
            continue
        loop = loops[tiles.loops[depth - 1]]
        move = schedule.reverse_compute_at if block == "store" else schedule.compute_at
        move(schedule.get_sblock(block), loop)
    return schedule


def commands(tiles: Tiles, buffers: dict[str, Any], common: list[Call]) -> dict[str, Any]:
    """What becomes of the schedule's blocks: from a tile's coordinates to driver calls.

    Args:
        tiles: of the layer.
        buffers: by tensor.
        common: what has to be done once before the first tile is computed.
    """

    def load(tensor: str) -> Any:
        def call(position: Any) -> Any:
            where = [TENSORS.index(tensor), tir.pointer(buffers[tensor])]
            return tir.driver_call(LOAD, [*where, *tiles.load(tensor, position).arguments])

        return call

    def compute(position: Any) -> Any:
        places = [
            tir.pointer(buffers[name]) if name in buffers else 0
            for name in ("data", "weights", "parameters", "result", "addend")
        ]
        job = tir.driver_call(COMPUTE, [*places, *tiles.job(position).arguments])
        # Behind the loads of the first tile, which are on their way meanwhile.
        first = [position[axis] == 0 for axis in tiles.loops]
        return tir.sequence([tir.only_if(first, tir.driver_calls(common)), job])

    def store(position: Any) -> Any:
        where = [TENSORS.index("result"), tir.pointer(buffers["result"])]
        return tir.driver_call(STORE, [*where, *tiles.store(position).arguments])

    loads = {f"load_{name}": load(name) for name in ("data", "weights", "addend")}
    return {**loads, "compute": compute, "store": store}


def parameters(tensors: dict[str, Any], buffers: dict[str, Any]) -> list[Call]:
    """Loads of bias, multipliers and shifts, one behind the other."""
    calls: list[Call] = []
    place = 0
    for name in PARAMETERS:
        if name in tensors:
            size = tir.buffer_bytes(tensors[name])
            where = [TENSORS.index(name), tir.pointer(buffers["parameters"])]
            calls.append((LOAD, [*where, 0, place, 1, 1, size, 0, 0]))
            place += size
    return calls


def configuration(composite: Any, tiles: Tiles) -> list[Call]:
    """What all tiles of a layer have in common."""
    layer = tiles.layer
    rounding = 0 if layer.is_pool else patterns.ROUNDINGS.index(composite.rounding)
    values = [
        OPERATIONS.index(layer.kind), DATAFLOWS.index(tiles.tiling.dataflow),
        int(layer.channels_first), *layer.kernel, *layer.strides, *layer.dilation,
        getattr(composite, "input_zero_point", 0), composite.output_zero_point, *composite.clip,
        rounding,
    ]  # fmt: skip
    return [(CONFIGURE, values), *addition(composite)]


def addition(composite: Any) -> list[Call]:
    """How a convolution's result and the addend become their sum."""
    if not isinstance(composite, patterns.QConv2dAdd):
        return []
    added = composite.addition
    scales = [n for pair in zip(added.multipliers, added.shifts, strict=True) for n in pair]
    ending = [added.output_zero_point, *added.clip]
    return [(CONFIGURE_ADD, [added.zero_points[1], added.left_shift, *scales, *ending])]
