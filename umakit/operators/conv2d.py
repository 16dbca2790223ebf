# SPDX-License-Identifier: Apache-2.0
"""`quantized.conv2d` (data, weights, bias, multipliers, shifts): in one or two dimensions.

Weights are int8[O, KH, KW, I/groups], the bias int32[O]. For data of int16 the bias may be int64;
then accumulators have 64 bits and multipliers 15.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from umakit import tvm_api
from umakit.operators.derivation.weights import Layer, constant_operands, read_layer
from umakit.operators.derivation.windows import Window, on_images
from umakit.operators.islands import Island, Result
from umakit.operators.kernels import channels_first, convolution, gathered
from umakit.operators.kernels.calls import shape_of
from umakit.operators.kernels.convolution import (
    as_operands,
    constants_of,
)
from umakit.operators.parameters import (
    ConvolutionParameters,
)
from umakit.operators.registry import (
    IntegerOperator,
    Order,
    Recognition,
    register,
)
from umakit.operators.tensors import (
    Quantized,
)

RELAX = ("nn.conv1d", "nn.conv2d")


@dataclass(frozen=True)
class Conv2d(ConvolutionParameters):
    """A convolution; depthwise if there are as many groups as input channels."""

    operator: ClassVar[str] = "conv2d"


def _derive(island: Island) -> Any:
    found = read_layer(island, RELAX)
    if found is None:
        return None
    inner, layer = found

    def convolve(image: Island, data: Quantized) -> Any:
        return _convolution(image.result, replace(layer, source=data))

    return on_images(inner, layer.source, convolve)


def _convolution(result: Result, layer: Layer) -> Any:
    attributes = result.call.attrs
    window = Window.of(attributes)
    parameters = Conv2d(
        **result.common(layer.arithmetic),
        strides=window.strides,
        padding=window.padding,
        dilation=window.dilation,
        groups=int(attributes.groups),
        input_zero_point=layer.source.scale.zero_point,
        layout=window.layout,
    )
    weights = window.ordered(layer.weights, str(attributes.kernel_layout))
    operands = constant_operands(result, replace(layer, weights=weights))
    return parameters.call([layer.source.integers, *operands], result.span)


def _kernel(parameters: Conv2d, call: Any) -> tuple[Any, list[Any]]:
    """The fastest of several kernels (data, weights, bias, multipliers, shifts, output)."""
    constants, data = constants_of(call), call.args[0]
    shape, dtype = shape_of(data), tvm_api.dtype_of(data)
    zero_point = parameters.input_zero_point
    gather = gathered.suits(parameters, shape, constants)
    if not gather and not convolution.pads(parameters, shape, constants):
        constants, zero_point = constants.without_zero_point(zero_point), 0
    arrays = constants.arrays()
    if gather:
        function = gathered.conv2d(parameters, shape, dtype, constants, zero_point)
    elif convolution.suits_tiles(parameters, shape, constants):
        function = convolution.tiled_conv2d(parameters, shape, dtype, constants, zero_point)
        arrays[0] = convolution.channels_last(parameters, constants.weights)
    elif parameters.layout == "NCHW":
        function = channels_first.conv2d(parameters, shape, dtype, constants, zero_point)
    else:
        function = convolution.conv2d(parameters, shape, dtype, constants, zero_point)
    return function, [data, *as_operands(arrays)]


def _macs(call: Any, output: tuple[int, ...]) -> int:
    weights = tvm_api.static_shape(call.args[1])
    return math.prod(output) * math.prod(weights[1:]) if weights else 0


register(
    IntegerOperator(
        name="conv2d",
        parameters=Conv2d,
        kernel=_kernel,
        recognitions=(
            Recognition(RELAX, _derive),
            Recognition(("add",), _derive, order=Order.SPECIAL),
        ),
        takes_clip=True,
        macs=_macs,
    )
)
