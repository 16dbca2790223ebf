# SPDX-License-Identifier: Apache-2.0
"""Which parts of a network the small_chocolate_accelerator takes.

umakit has rewritten a quantized network to integer operators before it asks here: bias, activation
and change of scale are inside of each. Every argument of a pattern is a constraint; one that fails
is shown to the user in the offload table, with what was found and what is needed.
"""

from typing import Any

from umakit import patterns
from umakit.machine import TilePlanner


def layers(planner: TilePlanner) -> list[patterns.OperatorPattern]:
    """The layers that the array computes.

    Args:
        planner: finds out whether a layer can be cut into tiles that fit into the scratchpad.
    """
    hardware = planner.hardware
    columns = hardware.columns
    common: dict[str, Any] = {"predicate": planner.accepts}
    weighted: dict[str, Any] = {"rounding": ("tflm", "ort"), **common}
    images: dict[str, Any] = {"layouts": ("NHWC", "NCHW"), "batch": None}
    windows: dict[str, Any] = {"dilation": None, **images}
    # Weights are arranged at compile time: the output channels of one fold of the array lie side
    # by side, and the last block is filled up with zeros.
    convolution: dict[str, Any] = {"weight_layout": f"O/{columns} HWI {columns}o", **weighted}
    found: list[patterns.OperatorPattern] = [
        patterns.qconv2d_add(**convolution, **windows),  # first: both operators in one
        patterns.qconv2d(**convolution, **windows),
        patterns.qdense(weight_layout=f"O/{columns} I {columns}o", **weighted),
    ]
    if hardware.depthwise:
        found.append(
            patterns.qdepthwise(weight_layout="HWIO", multipliers=None, **weighted, **windows)
        )
    if hardware.pooling_lanes:
        found.append(patterns.qmax_pool2d(**common, **images))
        found.append(patterns.qavg_pool2d(**common, **images))
    return found
