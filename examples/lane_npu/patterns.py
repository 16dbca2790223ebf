# SPDX-License-Identifier: Apache-2.0
"""Which parts of a network the lane_npu takes."""

from typing import Any

from umakit import patterns
from umakit.machine import TilePlanner


def layers(planner: TilePlanner) -> list[patterns.OperatorPattern]:
    """Convolutions, depthwise ones and fully connected layers; others stay on the CPU."""
    lanes = planner.machine.block_channels
    common: dict[str, Any] = {
        "rounding": ("tflm", "ort"), "expand_scales": True, "predicate": planner.accepts
    }  # fmt: skip
    images: dict[str, Any] = {"layouts": ("NHWC", "NCHW"), "batch": None, "dilation": None}
    blocks = f"O/{lanes} HWI {lanes}o"
    return [
        patterns.qconv2d_add(weight_layout=blocks, **common, **images),
        patterns.qconv2d(weight_layout=blocks, **common, **images),
        patterns.qdepthwise(weight_layout="HWIO", multipliers=None, **common, **images),
        patterns.qdense(weight_layout=f"O/{lanes} I {lanes}o", **common),
    ]
