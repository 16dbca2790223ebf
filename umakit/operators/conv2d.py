# SPDX-License-Identifier: Apache-2.0
"""`quantized.conv2d` (data, weights, bias, multipliers, shifts) in one or two dimensions.

Weights are int8[O, KH, KW, I/groups], the bias int32[O]. For data of int16 the bias may be int64;
then accumulators have 64 bits and multipliers 15.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar

from umakit import tvm_api
from umakit.operators.derivation.weights import convolution_call
from umakit.operators.drawings import windows
from umakit.operators.islands import Island
from umakit.operators.kernels import channels_first, convolution, gathered
from umakit.operators.kernels.convolution import Convolution, as_operands, constants_of
from umakit.operators.kernels.loops import BIAS_HAS_ZERO_POINT, WEIGHTS_LAYOUT
from umakit.operators.offload import constraints as _c
from umakit.operators.offload.constraints import Constraint, OtherOperator
from umakit.operators.offload.pattern_families import ConvolutionPattern, outputs_constraint
from umakit.operators.offload.reference import conv2d_loops
from umakit.operators.offload.weighted import QConvolution
from umakit.operators.parameters import ConvolutionParameters
from umakit.operators.registry import Order, Recognition, register, shape_of
from umakit.operators.tflite import QUANTIZED, TfliteNode, check_steps, check_wide_bias, converts
from umakit.tvm_api import Call, Expr, PrimFunc

RELAX = ("nn.conv1d", "nn.conv2d")


@dataclass(frozen=True)
class Conv2d(ConvolutionParameters):
    """A convolution; depthwise if it has as many groups as input channels."""

    operator: ClassVar[str] = "conv2d"


def _derive(island: Island) -> Expr | None:
    return convolution_call(Conv2d, RELAX, island)


def _kernel(parameters: Conv2d, call: Call) -> tuple[PrimFunc, list[Expr]]:
    """Return the fastest suitable kernel (data, weights, bias, multipliers, shifts, output)."""
    data, zero_point = call.args[0], parameters.input_zero_point
    shape, dtype = shape_of(data), tvm_api.dtype_of(data)
    layer = Convolution(parameters, shape, dtype, constants_of(call), zero_point)
    gather = gathered.suits(layer)
    if not gather and not layer.pads:
        layer = replace(layer, layer=layer.layer.without_zero_point(zero_point), zero_point=0)
    arrays = layer.layer.arrays()
    layout = "OIHW" if parameters.layout == "NCHW" else "OHWI"
    if gather:
        function = gathered.conv2d(layer)
    elif convolution.suits_tiles(layer):
        function = convolution.tiled_conv2d(layer)
        arrays[0], layout = convolution.channels_last(parameters, arrays[0]), "HWIO"
    elif parameters.layout == "NCHW":
        function = channels_first.conv2d(layer)
    else:
        function = convolution.conv2d(layer)
    function = function.with_attr(WEIGHTS_LAYOUT, layout)
    if layer.zero_point != zero_point:
        function = function.with_attr(BIAS_HAS_ZERO_POINT, "yes")
    return function, [data, *as_operands(arrays)]


def _kind(call: Call) -> str:
    shape = tvm_api.static_shape(call.args[0])
    depthwise = shape is not None and convolution.is_depthwise(Conv2d.of(call), shape)
    return "depthwise_conv2d" if depthwise else Conv2d.operator


def _macs(call: Call, output: tuple[int, ...]) -> int:
    weights = tvm_api.static_shape(call.args[1])
    return math.prod(output) * math.prod(weights[1:]) if weights else 0


# --- offered to backends -------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class QConv2d(Conv2d, QConvolution):
    """A convolution with bias, activation and requantization that is not depthwise."""

    def reference_kernel(self) -> PrimFunc:
        return conv2d_loops(self)


@dataclass(frozen=True, kw_only=True)
class QDepthwise(Conv2d, QConvolution):
    """A depthwise convolution: as many groups as input channels; output channel o reads input
    channel o / (output channels / input channels)."""

    def reference_kernel(self) -> PrimFunc:
        return conv2d_loops(self)


@dataclass(frozen=True, eq=False)
class qconv2d(ConvolutionPattern):
    """An integer convolution that is not depthwise.

    Attributes:
        groups: numbers of channel groups.
        input_channel_multiple: required divisor of the number of input channels.
        output_channel_multiple: required divisor of the number of output channels.
    """

    KIND: ClassVar[type[QConv2d]] = QConv2d
    OPERATOR = Conv2d

    name: str = "qconv2d"
    groups: int | Iterable[int] | None = field(default=1, kw_only=True)
    input_channel_multiple: int | None = field(default=None, kw_only=True)
    output_channel_multiple: int | None = field(default=None, kw_only=True)

    def _own_constraints(self) -> list[Constraint]:
        return [
            _c.refuse_if(
                lambda layer: layer.depthwise,
                lambda layer: OtherOperator(
                    f"a depthwise convolution, {layer.groups} groups of one channel"
                ),
            ),
            _c.one_of(
                self.groups,
                lambda layer: layer.groups,
                lambda found, few: f"{found} groups: the accelerator has {few}",
            ),
        ]

    def _channel_constraints(self) -> list[Constraint]:
        inputs = (self.channel_multiple, self.input_channel_multiple)
        outputs = (self.channel_multiple, self.output_channel_multiple)
        return [
            *(_c.multiple_of(n, "input channels", lambda k: k.input_channels) for n in inputs),
            *(outputs_constraint(n) for n in outputs),
        ]


@dataclass(frozen=True, eq=False)
class qdepthwise(ConvolutionPattern):
    """An integer depthwise convolution: each input channel is a group of its own.

    The axis `I` of the weights has one element.

    Attributes:
        multipliers: supported numbers of output channels per input channel.
    """

    KIND = QDepthwise
    OPERATOR = Conv2d

    name: str = "qdepthwise"
    multipliers: int | Iterable[int] | None = field(default=1, kw_only=True)

    def _own_constraints(self) -> list[Constraint]:
        return [
            _c.refuse_if(
                lambda layer: not layer.depthwise,
                lambda layer: OtherOperator("a convolution that is not depthwise"),
            ),
            _c.one_of(
                self.multipliers,
                lambda layer: layer.output_channels // layer.input_channels,
                lambda found, few: f"channel multiplier {found}: the accelerator has {few}",
            ),
        ]


register(
    parameters=Conv2d,
    kernel=_kernel,
    recognitions=(
        Recognition(RELAX, _derive),
        Recognition(("add",), _derive, order=Order.SPECIAL),
    ),
    takes_clip=True,
    macs=_macs,
    kind=_kind,
    drawing=windows.convolution(Conv2d),
    patterns=(qconv2d, qdepthwise),
)


@converts("CONV_2D", "float32", *QUANTIZED, weights=True)
def conv_2d(node: TfliteNode) -> Expr:
    """CONV_2D."""
    options = node.options("Conv2DOptions")
    check_steps(options, "StrideH", "StrideW", "DilationHFactor", "DilationWFactor")
    check_wide_bias(node, options=options)
    return node.imported()


@converts("DEPTHWISE_CONV_2D", "float32", *QUANTIZED, weights=True)
def depthwise_conv_2d(node: TfliteNode) -> Expr:
    """DEPTHWISE_CONV_2D."""
    options = node.options("DepthwiseConv2DOptions")
    check_steps(options, "StrideH", "StrideW", "DilationHFactor", "DilationWFactor")
    check_wide_bias(node)
    return node.imported()
