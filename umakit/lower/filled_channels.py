# SPDX-License-Identifier: Apache-2.0
"""Convolutions with padded channels that fill vector registers.

28 channels are 7 vectors of 4 numbers, or 4 vectors of 8; the last vector then holds 4 unused
channels. The weights of unused channels are 0, so no result changes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.machine.cpu import Cpu

CONVOLUTION = "relax.nn.conv2d"
NAME = "conv2d_of_whole_vectors"


def channels_to_fill(channels: int, lanes: int) -> int:
    """Return the number of channels, padded or not, with the fewest vectors.

    Args:
        channels: channels of the network.
        lanes: numbers in a vector register, a power of two.
    """
    narrower = lanes
    while channels % narrower:
        narrower //= 2
    filled = -(-channels // lanes) * lanes
    return filled if filled // lanes < channels // narrower else channels


def rule_for(cpu: Cpu) -> dict[str, tvm_api.Legalization]:
    """Return the legalization of float convolutions for a CPU with vectors."""
    usual = tvm_api.legalization(CONVOLUTION)

    def rule(builder: tvm_api.BlockBuilder, call: tvm_api.Call) -> tvm_api.Expr:
        weights, attributes = tvm_api.constant_array(call.args[1]), call.attrs
        if weights is None or weights.dtype != np.float32 or int(attributes.groups) != 1:
            return usual(builder, call)
        if (str(attributes.data_layout), str(attributes.kernel_layout)) != ("NHWC", "HWIO"):
            return usual(builder, call)
        channels = weights.shape[3]
        filled = channels_to_fill(channels, cpu.float_lanes)
        if filled == channels:
            return usual(builder, call)
        zeros = [(0, 0), (0, 0), (0, 0), (0, filled - channels)]
        wide = tvm_api.relax.const(np.pad(weights, zeros))

        def compute(data: Any, kernel: Any) -> Any:
            sums = tvm_api.topi.nn.conv2d_nhwc(
                data, kernel,
                stride=[int(n) for n in attributes.strides],
                padding=[int(n) for n in attributes.padding],
                dilation=[int(n) for n in attributes.dilation],
                out_dtype="float32",
            )  # fmt: skip
            batch, height, width, _ = sums.shape
            return tvm_api.te.compute(
                (batch, height, width, channels), lambda *index: sums(*index), name="channels"
            )

        return builder.call_te(
            compute, call.args[0], wide,
            primfunc_name_hint=NAME, primfunc_attrs={"op_pattern": FUSES_WHAT_FOLLOWS},
        )  # fmt: skip

    return {CONVOLUTION: rule}


FUSES_WHAT_FOLLOWS = 4
"""TVM's `OpPatternKind::kOutEWiseFusable`, the pattern kind of convolutions."""
