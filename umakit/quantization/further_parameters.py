# SPDX-License-Identifier: Apache-2.0
"""Parameters of the operators of `further_operators`, derived from scales and zero points.

The formulas are those of TensorFlow Lite Micro's kernels: `transpose_conv.cc`,
`reduce_common.cc` with `reference/reduce.h`, and those that `activation_tables` names.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.quantization import activation_tables, parameters
from umakit.quantization.fixed_point import Rounding, quantize_multiplier
from umakit.quantization.further_operators import Conv2dTranspose, Lookup, Mean
from umakit.quantization.parameters import Result
from umakit.quantization.tensors import Array, NotAnIsland, Quantized, Weights
from umakit.quantization.windows import Window

Tables = dict[str, Callable[[Result, Quantized], Array]]

MOST_OF_A_SUM = 2**30
"""Of the terms of a mean, which are added in 32 bits with and without their zero point."""


def conv2d_transpose(
    result: Result, source: Quantized, weights: Weights, bias: Weights | None, rounding: Rounding
) -> Any:
    """A `quantized.conv2d_transpose` call.

    Raises:
        NotAnIsland: groups in NHWC, or scales that integers cannot express.
    """
    attributes = result.call.attrs
    window, groups = Window.of(attributes), int(attributes.groups)
    if groups != 1 and window.layout != "NCHW":
        raise NotAnIsland("a transposed convolution has groups")
    weights = window.ordered(weights, str(attributes.kernel_layout))
    if groups > 1:
        weights = _outputs_of_all_groups(weights, groups)
    known = Conv2dTranspose(
        **result.common(rounding),
        strides=window.strides,
        padding=window.padding,
        dilation=window.dilation,
        groups=groups,
        input_zero_point=source.scale.zero_point,
        layout=window.layout,
    )
    operands = parameters.linear_operands(result, source, weights, bias, rounding)
    return known.call([source.integers, *operands], result.span)


def _outputs_of_all_groups(weights: Weights, groups: int) -> Weights:
    """Weights [O / groups, I, KH, KW] as [O, I / groups, KH, KW]."""
    outputs, inputs, *window = weights.integers.shape
    split = weights.reshaped((outputs, groups, inputs // groups, *window))
    together = split.transposed([1, 0, 2, 3, 4])
    return together.reshaped((groups * outputs, inputs // groups, *window))


def mean(result: Result, source: Quantized, rounding: Rounding) -> Any:
    """A `quantized.mean` call; the number of terms becomes part of the multiplier.

    Raises:
        NotAnIsland: too many terms, or scales that integers cannot express.
    """
    shape = tvm_api.static_shape(source.integers) or ()
    given = result.call.attrs.axis
    axes = range(len(shape)) if given is None else {int(axis) % len(shape) for axis in given}
    terms = math.prod(shape[axis] for axis in axes)
    magnitude = source.scale.magnitude * terms
    if not 0 < magnitude < MOST_OF_A_SUM:
        raise NotAnIsland(f"a mean is over {terms} elements")
    factor = float(source.scale.scale) / float(result.scale.scale)
    if rounding is Rounding.TFLM:
        multiplier, shift = _mean_multiplier(factor, terms)
        parameters.check_headroom(magnitude, shift, rounding)
    else:
        multiplier, shift = parameters.multiplier_of(factor / terms, magnitude, rounding)
    known = Mean(
        **result.common(rounding),
        axes=tuple(sorted(axes)),
        input_zero_point=source.scale.zero_point,
        multiplier=multiplier,
        shift=shift,
    )
    return known.call([source.integers], result.span)


def _mean_multiplier(factor: float, terms: int) -> tuple[int, int]:
    """Multiplier and shift of a sum of so many terms, as TensorFlow Lite Micro computes them."""
    try:
        multiplier, output_shift = quantize_multiplier(factor)
    except ValueError as error:
        raise NotAnIsland(str(error)) from None
    shift = min(terms.bit_length() - 1, 32, 31 + output_shift)
    return (multiplier << shift) // terms, output_shift - shift


def lookup(result: Result, source: Quantized, rounding: Rounding) -> Any:
    """A `quantized.lookup` call for the activation function in an island.

    Raises:
        NotAnIsland: other results than TensorFlow Lite Micro's are wanted, or scales that its
            kernel does not take.
    """
    _check_tflm(rounding)
    if (source.scale.dtype, result.scale.dtype) != ("int8", "int8"):
        raise NotAnIsland("a table is indexed by int8 and holds int8")
    operator = tvm_api.operator_name(result.call)
    name = ACTIVATIONS[operator]
    try:
        table = TABLES[name](result, source)
    except ValueError as error:
        raise NotAnIsland(str(error)) from None
    low, high = result.clip
    known = Lookup(**result.common(rounding), function=name)
    constant = tvm_api.relax.const(np.clip(table, low, high).astype(np.int8))
    return known.call([source.integers, constant], result.span)


def hard_swish_argument(call: Any, definition: Callable[[Any], Any]) -> Any | None:
    """x of an expression (x * clip(x + 3, 0, 6)) * (1 / 6), None if it is none.

    Args:
        call: a Relax call.
        definition: what a variable is bound to.
    """
    sixth = _scaled(call, "multiply", definition)
    if sixth is None or not math.isclose(sixth[1], 1 / 6, rel_tol=1e-6):
        return None
    product = definition(sixth[0])
    if tvm_api.operator_name(product) != "multiply":
        return None
    clip = definition(product.args[1])
    if tvm_api.operator_name(clip) != "clip":
        return None
    if [tvm_api.float_argument(bound) for bound in clip.args[1:3]] != [0.0, 6.0]:
        return None
    moved = _scaled(definition(clip.args[0]), "add", definition)
    if moved is None or moved[1] != 3.0 or not moved[0].same_as(product.args[0]):
        return None
    return product.args[0]


def _scaled(call: Any, operator: str, definition: Callable[[Any], Any]) -> tuple[Any, float] | None:
    """Operand and number of an operator with a constant scalar as its second operand."""
    if tvm_api.operator_name(call) != operator:
        return None
    number = tvm_api.constant_array(definition(call.args[1]))
    return None if number is None or number.size != 1 else (call.args[0], float(number.item()))


def _check_tflm(rounding: Rounding) -> None:
    if rounding is not Rounding.TFLM:
        raise NotAnIsland("integers are known only as TensorFlow Lite Micro computes them")


def _fixed_result(result: Result, scale: float, zero_point: int) -> None:
    if result.scale.scale != np.float32(scale) or result.scale.zero_point != zero_point:
        raise NotAnIsland(
            f"its result has another scale than {scale} or another zero point than {zero_point}"
        )


def _logistic(result: Result, source: Quantized) -> Array:
    _fixed_result(result, 1 / 256, -128)
    return activation_tables.logistic_table(source.scale)


def _tanh(result: Result, source: Quantized) -> Array:
    _fixed_result(result, 1 / 128, 0)
    return activation_tables.tanh_table(source.scale)


def _hard_swish(result: Result, source: Quantized) -> Array:
    return activation_tables.hard_swish_table(source.scale, result.scale)


def _leaky_relu(result: Result, source: Quantized) -> Array:
    slope = float(result.call.attrs.alpha)
    return activation_tables.leaky_relu_table(source.scale, result.scale, slope)


ACTIVATIONS = {
    "sigmoid": "logistic",
    "tanh": "tanh",
    "nn.leakyrelu": "leaky_relu",
    "multiply": "hard_swish",
}
"""Names of the tables by the operator at the end of an island."""

TABLES: Tables = {
    "logistic": _logistic,
    "tanh": _tanh,
    "leaky_relu": _leaky_relu,
    "hard_swish": _hard_swish,
}
