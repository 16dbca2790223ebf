# SPDX-License-Identifier: Apache-2.0
"""Calls of convolutions and transposed convolutions, in one or two dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from umakit import tvm_api
from umakit.operators.derivation.weights import constant_operands, read_layer
from umakit.operators.derivation.windows import Window, on_images
from umakit.operators.islands import Island
from umakit.operators.parameters import ConvolutionParameters
from umakit.operators.tensors import Quantized, Weights

Ordered = Callable[[Weights, Window, tvm_api.Node], Weights]
"""(weights of the model, window, attributes of the convolution) -> weights of the kernel."""


def ordered_weights(weights: Weights, window: Window, attributes: tvm_api.Node) -> Weights:
    """Weights as [O, KH, KW, I] for data in NHWC, as [O, I, KH, KW] for data in NCHW."""
    return window.ordered(weights, str(attributes.kernel_layout))


def convolution_call(
    kind: type[ConvolutionParameters],
    operators: Sequence[str],
    island: Island,
    *,
    ordered: Ordered = ordered_weights,
) -> tvm_api.Call | None:
    """Return a call (data, weights, bias, multipliers, shifts) of a convolution.

    Args:
        kind: kind of convolution.
        operators: Relax's names of the operator.
        island: island that ends with one of the operators or with `add`.
        ordered: (weights, window, attributes) -> weights in the kernel's order.

    Returns:
        The call; None for sums other than a convolution plus a bias.

    Raises:
        NoIntegerForm: the integer operator does not support the attributes, dtypes or scales.
    """
    found = read_layer(island, operators)
    if found is None:
        return None
    without_bias, layer = found

    def convolve(image: Island, data: Quantized) -> tvm_api.Call:
        attributes = image.call.attrs
        window = Window.of(attributes)
        weights = ordered(layer.weights, window, attributes)
        parameters = kind(
            **image.result.common(layer.arithmetic),
            **window.common(),
            dilation=window.dilation,
            groups=int(attributes.groups),
            input_zero_point=data.scale.zero_point,
        )
        operands = constant_operands(image.result, replace(layer, source=data, weights=weights))
        return parameters.call([data.integers, *operands], image.result.span)

    return on_images(without_bias, layer.source, convolve)
