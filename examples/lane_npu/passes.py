# SPDX-License-Identifier: Apache-2.0
"""TIR passes of the lane_npu: a layer becomes loops over tiles, of driver calls."""

from typing import Any

from umakit import patterns, tir
from umakit.machine import Kind, TilePlanner, Tiles, loops_of, tile_schedule, with_calls

TENSORS = ("data", "addend", "weights", "bias", "multipliers", "shifts", "result")


def LaneNpuPass(planner: TilePlanner) -> Any:
    """A pass that cuts layers into tiles."""
    return tir.prim_func_pass("LaneNpuPass", lambda function: tiled(function, planner))


def tiled(function: Any, planner: TilePlanner) -> Any:
    """The prim func of a layer with loops over tiles as its body; others as they are."""
    composite = patterns.parameters_of(function)
    if composite is None:
        return function
    tiles, machine = planner.tiles_of(composite), planner.machine
    layer = tiles.layer
    tensors = dict(zip(composite.POINTERS, function.params, strict=True))
    buffers = {
        name: tir.scratchpad_buffer(name, buffer.size, "int8", machine.memory_of(name))
        for name, buffer in tiles.buffers.items()
    }

    def pointer(name: str) -> Any:
        return tir.pointer(buffers[name]) if name in buffers else 0

    def where(tensor: str, line: Any) -> list[Any]:
        """Tensor, DMA channel, order, bytes of a line, buffer."""
        buffer = tensor if tensor in buffers else "parameters"
        channel = int(machine.engine_of(buffer).name == "dma1")
        by_planes = int(layer.channels_first and tensor in ("data", "addend", "result"))
        return [TENSORS.index(tensor), channel, by_planes, line, pointer(buffer)]

    def line(tensor: str, position: Any) -> Any:
        if tensor == "weights" and not layer.per_channel:
            return machine.block_channels
        job = tiles.job(position)
        return job.input_channels if tensor == "data" else job.output_channels

    def load(tensor: str) -> Any:
        return lambda position: tir.driver_call(
            "lane_npu_load",
            [*where(tensor, line(tensor, position)), *tiles.load(tensor, position).arguments],
        )

    def store(position: Any) -> Any:
        result = [*where("result", line("result", position)), *tiles.store(position).arguments]
        return tir.driver_call("lane_npu_store", result)

    def compute(position: Any) -> Any:
        places = [pointer(name) for name in ("data", "weights", "parameters", "result", "addend")]
        job = tir.driver_call("lane_npu_compute", [*places, *tiles.job(position).arguments])
        first = [position[axis] == 0 for axis in tiles.loops]
        return tir.sequence([tir.only_if(first, tir.driver_calls(common)), job])

    common = configuration(composite, tiles)
    place = 0
    for name in ("bias", "multipliers", "shifts"):
        size = tir.buffer_bytes(tensors[name])
        common.append(("lane_npu_load", [*where(name, 0), 0, place, 1, 1, size, 0, 0]))
        place += size
    before = [("lane_npu_begin", [machine.block_channels, machine.unit("input_channels")])]
    before += [
        ("lane_npu_bind", [TENSORS.index(name), tir.pointer(tensor), tir.buffer_bytes(tensor)])
        for name, tensor in tensors.items()
    ]
    blocks = {f"load_{name}": load(name) for name in ("data", "weights", "addend")}
    loops = with_calls(scheduled(tiles), tiles, {**blocks, "compute": compute, "store": store})
    body = [tir.driver_calls(before), loops, tir.driver_calls([("lane_npu_finish", [])])]
    return tir.with_body(function, tir.allocate(list(buffers.values()), tir.sequence(body)))


def scheduled(tiles: Tiles) -> Any:
    """The loops over tiles in the tiling's order, and each copy as far outside as it can be."""
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


def configuration(composite: Any, tiles: Tiles) -> list[tuple[str, list[Any]]]:
    """What all tiles of a layer have in common."""
    layer = tiles.layer
    values = [
        int(layer.kind is Kind.DEPTHWISE), patterns.ROUNDINGS.index(composite.rounding),
        *layer.kernel, *layer.strides, *layer.dilation, composite.input_zero_point,
        composite.output_zero_point, *composite.clip,
    ]  # fmt: skip
    calls = [("lane_npu_configure", values)]
    if isinstance(composite, patterns.QConv2dAdd):
        added = composite.addition
        scales = [n for pair in zip(added.multipliers, added.shifts, strict=True) for n in pair]
        ending = [added.output_zero_point, *added.clip]
        calls.append(
            ("lane_npu_configure_add", [added.zero_points[1], added.left_shift, *scales, *ending])
        )
    return calls
