# SPDX-License-Identifier: Apache-2.0
"""Parameters of pools."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from umakit import tvm_api
from umakit.operators.derivation.expressions import integers_of_result
from umakit.operators.derivation.windows import Window, on_images
from umakit.operators.islands import Island, Result
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.parameters import Pair, Pool2d, WindowFields
from umakit.operators.tensors import NoIntegerForm, Quantized
from umakit.tvm_api import Call

P = TypeVar("P", bound=Pool2d)


class PoolFields(WindowFields):
    """The fields of `Pool2d` beyond the fields of all operators."""

    window: Pair


def plain_pool(kind: type[P], result: Result, call: Call, arithmetic: Arithmetic) -> P:
    """Return the parameters of a pool without dilation.

    Args:
        kind: kind of pool.
        result: the quantized value.
        call: a Relax pooling operator.
        arithmetic: unused by pools, but a field of all parameters.

    Raises:
        NoIntegerForm: the integer pools do not support the attributes.
    """
    attributes = call.attrs
    window = Window.of(attributes)
    if window.dilation != (1, 1) or bool(attributes.ceil_mode):
        raise NoIntegerForm("a pool is dilated or rounds its size up")
    return kind(**result.common(arithmetic), **window.common(), window=window.size)


def tflm_pool(kind: type[Pool2d], island: Island) -> Call:
    """Return a call of a pool of data and result of the same scale.

    Raises:
        NoIntegerForm: the integer operator does not support the scales or attributes.
    """
    source = island.operand()
    if source.scale != island.result.scale:
        raise NoIntegerForm("a pool's input and output have different scales")
    arithmetic = island.arithmetic_of(source)
    parameters = plain_pool(kind, island.result, island.call, arithmetic)
    return parameters.call([source.integers], island.result.span)


def pool_of_images(island: Island, parameters_of: Callable[[Result, tvm_api.Expr], Pool2d]) -> Call:
    """Return a call of a pool of images or rows; the pool compares integers of the result's scale.

    Args:
        island: the pool with its quantize.
        parameters_of: (result of rank 4, integers [N, C, H, W]) -> parameters.
    """

    def pool(image: Island, source: Quantized) -> Call:
        integers = integers_of_result(image, source)
        parameters = parameters_of(image.result, integers)
        return parameters.call([integers], image.result.span)

    return on_images(island, island.operand(), pool)


def pool_fields(window: Window, result: Result, data: tvm_api.Expr) -> PoolFields:
    """Return the fields of all pools, with more padding for an output size that is rounded up."""
    sizes = (tvm_api.static_shape(data) or ())[2:]
    top, left, *after = window.padding
    for axis, before in enumerate((top, left)):
        reach = (result.shape[2 + axis] - 1) * window.strides[axis]
        reach += (window.size[axis] - 1) * window.dilation[axis] + 1
        after[axis] = max(after[axis], reach - before - sizes[axis])
    padding = (top, left, after[0], after[1])
    return {**window.common(), "padding": padding, "window": window.size}
