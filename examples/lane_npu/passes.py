# SPDX-License-Identifier: Apache-2.0
"""TIR passes of the lane_npu: a layer becomes loops over tiles, of driver calls."""

from typing import Any

from umakit import patterns, tir
from umakit.machine import Kind, TilePlanner, placed_schedule, with_calls

PARAMETERS = ("bias", "multipliers", "shifts")
TENSORS = ("data", "addend", "weights", *PARAMETERS, "result")
"""In the order of `enum lane_npu_tensor`."""


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

    def copy(tensor: str, line: Any, transfer: list[Any]) -> tuple[str, list[Any]]:
        buffer = "parameters" if tensor in PARAMETERS else tensor
        channel = int(machine.engine_of(buffer).name == "dma1")
        by_planes = int(layer.channels_first and tensor in ("data", "addend", "result"))
        where = [TENSORS.index(tensor), channel, by_planes, line, tir.pointer(buffers[buffer])]
        return "lane_npu_copy", [*where, *transfer]

    def block(tensor: str) -> Any:
        def call(position: Any) -> Any:
            job = tiles.job(position)
            line = job.input_channels if tensor == "data" else job.output_channels
            if tensor == "weights" and not layer.per_channel:
                line = machine.block_channels
            moved = tiles.store(position) if tensor == "result" else tiles.load(tensor, position)
            return tir.driver_calls([copy(tensor, line, moved.arguments)])

        return call

    def compute(position: Any) -> Any:
        names = ("data", "weights", "parameters", "result", "addend")
        places = [tir.pointer(buffers[name]) if name in buffers else 0 for name in names]
        job = tir.driver_call("lane_npu_compute", [*places, *tiles.job(position).arguments])
        first = [position[axis] == 0 for axis in tiles.loops]
        return tir.sequence([tir.only_if(first, tir.driver_calls(common)), job])

    before = [("lane_npu_begin", [machine.block_channels, machine.unit("input_channels")])]
    before += [
        ("lane_npu_bind", [TENSORS.index(name), tir.pointer(tensor), tir.buffer_bytes(tensor)])
        for name, tensor in tensors.items()
    ]
    common, place = configuration(composite, layer), 0
    for name in PARAMETERS:
        size = tir.buffer_bytes(tensors[name])
        common.append(copy(name, 0, [0, place, 1, 1, size, 0, 0]))
        place += size
    calls = {f"load_{name}": block(name) for name in ("data", "weights", "addend")}
    calls |= {"compute": compute, "store": block("result")}
    loops = with_calls(placed_schedule(tiles), tiles, calls)
    body = [tir.driver_calls(before), loops, tir.driver_calls([("lane_npu_finish", [])])]
    return tir.with_body(function, tir.allocate(list(buffers.values()), tir.sequence(body)))


def configuration(composite: Any, layer: Any) -> list[tuple[str, list[Any]]]:
    """What all tiles of a layer have in common."""
    values = [int(layer.kind is Kind.DEPTHWISE), patterns.ROUNDINGS.index(composite.rounding)]
    values += [*layer.kernel, *layer.strides, *layer.dilation, composite.input_zero_point]
    values += [composite.output_zero_point, *composite.clip]
    calls = [("lane_npu_configure", values)]
    if isinstance(composite, patterns.QConv2dAdd):
        added = composite.addition
        scales = [n for pair in zip(added.multipliers, added.shifts, strict=True) for n in pair]
        sums = [added.output_zero_point, *added.clip]
        values = [added.zero_points[1], added.left_shift, *scales, *sums]
        calls.append(("lane_npu_configure_add", values))
    return calls
