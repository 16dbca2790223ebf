# SPDX-License-Identifier: Apache-2.0
"""How operators of the vanilla_accelerator's composites become loops."""

from typing import Any

from umakit.strategy import OpStrategy
from umakit.tir import placeholder, reference_loops
from umakit.tvm_api import topi

from .patterns import same_padding


def conv2d_strategy(attrs: Any, inputs: Any, out_type: Any, target: Any) -> OpStrategy:
    """The convolution as TVM's operator library writes it: a padding and a reduction."""

    def compute(attrs: Any, inputs: list[Any], out_type: Any) -> Any:
        ifmap, weights = inputs
        padding = [int(pad) for pad in attrs.padding]
        strides = [int(stride) for stride in attrs.strides]
        dilation = [int(step) for step in attrs.dilation]
        return topi.nn.conv2d_nchw(ifmap, weights, strides, padding, dilation)

    strategy = OpStrategy()
    strategy.add_implementation(compute, name="conv2d_nchw")
    return strategy


def same_padded_conv2d(oc: int, ic: int, ih: int, iw: int, kh: int, kw: int) -> Any:
    """The loops of the one convolution that the array computes, for given sizes.

    The TIR pass compares what it is about to replace with these.
    """
    ifmap = placeholder((1, ic, ih, iw), "float32", "ifmap")
    weights = placeholder((oc, ic, kh, kw), "float32", "weights")
    result = topi.nn.conv2d_nchw(ifmap, weights, (1, 1), same_padding(kh, kw), (1, 1))
    return reference_loops(ifmap, weights, result)
