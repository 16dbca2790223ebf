# SPDX-License-Identifier: Apache-2.0
"""Depthwise convolutions in NHWC with several results for each channel, in vector registers.

Padded rows get one channel for each channel of the result: a channel is repeated for each of its
results, and channels of zeros fill the last vector, as in `umakit.lower.filled_channels` for other
convolutions. Nothing reads the results of these zeros.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.lower.filled_channels import CONVOLUTION, FUSES_WHAT_FOLLOWS, channels_to_fill
from umakit.machine.cpu import Cpu

NAME = "depthwise_of_repeated_channels"


def rule_for(
    cpu: Cpu, others: Mapping[str, tvm_api.Legalization]
) -> dict[str, tvm_api.Legalization]:
    """Return the legalization of depthwise float convolutions for a CPU with vectors.

    Args:
        cpu: the CPU.
        others: legalizations of other convolutions, by name of the operator.
    """
    usual = others[CONVOLUTION]

    def rule(builder: tvm_api.BlockBuilder, call: tvm_api.Call) -> tvm_api.Expr:
        weights, attributes = tvm_api.constant_array(call.args[1]), call.attrs
        shape = tvm_api.static_shape(call.args[0])
        if weights is None or weights.dtype != np.float32 or shape is None:
            return usual(builder, call)
        layouts = (str(attributes.data_layout), str(attributes.kernel_layout))
        groups = int(attributes.groups)
        channels = weights.shape[3]
        if layouts != ("NHWC", "HWIO") or groups != shape[3] or groups in (1, channels):
            return usual(builder, call)
        filled = channels_to_fill(channels, cpu.float_lanes)
        zeros = [(0, 0), (0, 0), (0, 0), (0, filled - channels)]
        wide = np.pad(weights, zeros)

        def compute(data: Any, kernel: Any) -> Any:
            return _depthwise(data, kernel, channels, attributes)

        return builder.call_te(
            compute, call.args[0], tvm_api.relax.const(wide),
            primfunc_name_hint=NAME, primfunc_attrs={"op_pattern": FUSES_WHAT_FOLLOWS},
        )  # fmt: skip

    return {CONVOLUTION: rule}


def _depthwise(data: Any, kernel: Any, channels: int, attributes: Any) -> Any:
    """Return a depthwise convolution with filled channels as expressions of TVM.

    Args:
        data: [N, H, W, C]; `channels / C` results read each channel.
        kernel: [KH, KW, 1, filled channels].
        channels: channels of the result.
        attributes: attributes of the convolution.
    """
    te, tir = tvm_api.te, tvm_api.tirx
    batch, height, width, inputs = (int(n) for n in data.shape)
    rows, columns, _, filled = (int(n) for n in kernel.shape)
    top, left, bottom, right = (int(n) for n in attributes.padding)
    strides, dilation = ([int(n) for n in each] for each in
                         (attributes.strides, attributes.dilation))  # fmt: skip
    repeats = channels // inputs

    def padded(n: Any, y: Any, x: Any, c: Any) -> Any:
        inside = _inside(y, top, height, bottom) + _inside(x, left, width, right)
        inside += [c < channels] if filled > channels else []
        value = data[n, y - top, x - left, c // repeats]
        return tir.if_then_else(tir.all(*inside), value, 0.0) if inside else value

    shape = (batch, height + top + bottom, width + left + right, filled)
    image = te.compute(shape, padded, name="pad_temp")
    window = [te.reduce_axis((0, n)) for n in (rows, columns)]
    sizes = [
        (size - (taps - 1) * step - 1) // stride + 1
        for size, taps, step, stride in zip(
            shape[1:3], (rows, columns), dilation, strides, strict=True
        )
    ]

    def sum_of(n: Any, y: Any, x: Any, c: Any) -> Any:
        row, column = window
        value = image[
            n, y * strides[0] + row * dilation[0], x * strides[1] + column * dilation[1], c
        ]
        return te.sum(value * kernel[row, column, 0, c], axis=window)

    sums = te.compute((batch, *sizes, filled), sum_of, name="group_conv2d_nhwc")
    return te.compute((batch, *sizes, channels), lambda *index: sums(*index), name="channels")


def _inside(position: Any, before: int, size: int, behind: int) -> list[Any]:
    """Return the conditions for a position of padded data to lie in the data."""
    conditions = [position >= before] if before else []
    return [*conditions, position < before + size] if behind else conditions
