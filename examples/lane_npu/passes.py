# SPDX-License-Identifier: Apache-2.0
"""TIR passes of the lane_npu: a layer becomes loops over tiles, of driver calls."""

from typing import Any

from umakit.machine import TilePlanner, tiled_layer_pass

CONFIGURE = (
    "operation", "rounding", "kernel_height", "kernel_width", "stride_y", "stride_x", "dilation_y",
    "dilation_x", "input_zero_point", "output_zero_point", "lowest", "highest",
)  # fmt: skip
COPY = (
    "tensor", "engine", "by_planes", "line", "buffer", "offset", "place", "planes", "rows",
    "row_bytes", "plane_stride", "row_stride",
)  # fmt: skip
"""Arguments of the driver's functions, in their order."""


def LaneNpuPass(planner: TilePlanner) -> Any:
    """A pass that cuts layers into tiles."""
    machine = planner.machine
    return tiled_layer_pass(
        planner,
        "lane_npu",
        begin=[machine.block_channels, machine.unit("input_channels")],
        configure=CONFIGURE,
        copy=COPY,
        load="copy",
        store="copy",
    )
