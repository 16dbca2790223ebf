# SPDX-License-Identifier: Apache-2.0
"""Convolutions with padded channels that fill vector registers.

28 channels are 7 vectors of 4 numbers, or 4 vectors of 8; the last vector then holds 4 unused
channels. The weights of unused channels are 0, so no result changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.cpu.description import Cpu

CONVOLUTION = "relax.nn.conv2d"
NAME = "conv2d_of_whole_vectors"


def channels_to_fill(channels: int, lanes: int) -> int:
    """Return the number of channels, padded or not, with the fewest vectors."""
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


# Depthwise convolutions in NHWC with several results for each channel, in vector registers.
# Padded rows get one channel for each channel of the result: a channel is repeated for each of
# its results, and channels of zeros fill the last vector, as in `umakit.cpu.float_convolutions`
# for other convolutions. Nothing reads the results of these zeros.


REPEATED_NAME = "depthwise_of_repeated_channels"


def depthwise_rule_for(
    cpu: Cpu, others: Mapping[str, tvm_api.Legalization]
) -> dict[str, tvm_api.Legalization]:
    """Return the legalization of depthwise float convolutions for a CPU with vectors."""
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
            primfunc_name_hint=REPEATED_NAME, primfunc_attrs={"op_pattern": FUSES_WHAT_FOLLOWS},
        )  # fmt: skip

    return {CONVOLUTION: rule}


def _depthwise(data: Any, kernel: Any, channels: int, attributes: Any) -> Any:
    """Return a depthwise convolution with filled channels as expressions of TVM.

    Args:
        data: [N, H, W, C]; `channels / C` results read each channel.
        kernel: [KH, KW, 1, filled channels].
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


SIGNAL = "relax.nn.conv1d"
SIGNAL_NAME = "conv1d_of_one_row"


def signal_rules() -> dict[str, tvm_api.Legalization]:
    """Return the legalization of float convolutions of signals with constant weights."""
    usual = tvm_api.legalization(SIGNAL)

    def rule(builder: tvm_api.BlockBuilder, call: tvm_api.Call) -> tvm_api.Expr:
        weights, attributes = tvm_api.constant_array(call.args[1]), call.attrs
        layouts = (str(attributes.data_layout), str(attributes.kernel_layout))
        if weights is None or weights.dtype != np.float32 or layouts != ("NCW", "OIW"):
            return usual(builder, call)
        (stride,), (dilation,) = attributes.strides, attributes.dilation
        left, right = (int(n) for n in attributes.padding)

        def compute(data: Any, kernel: Any) -> Any:
            batch, channels, columns = data.shape
            image = tvm_api.te.compute(
                (batch, channels, 1, columns), lambda n, c, _, x: data[n, c, x], name="image"
            )
            sums = tvm_api.topi.nn.conv(
                image, kernel, stride=[1, int(stride)], padding=[0, left, 0, right],
                dilation=[1, int(dilation)], groups=int(attributes.groups),
                data_layout="NCHW", kernel_layout="OIHW", out_dtype="float32",
            )  # fmt: skip
            shape = (sums.shape[0], sums.shape[1], sums.shape[3])
            return tvm_api.te.compute(shape, lambda n, c, x: sums[n, c, 0, x], name="signal")

        return builder.call_te(
            compute, call.args[0], tvm_api.relax.const(weights[:, :, None]),
            primfunc_name_hint=SIGNAL_NAME, primfunc_attrs={"op_pattern": FUSES_WHAT_FOLLOWS},
        )  # fmt: skip

    return {SIGNAL: rule}
