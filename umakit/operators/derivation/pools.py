# SPDX-License-Identifier: Apache-2.0
"""Parameters of pools."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from umakit import tvm_api
from umakit.operators.derivation.conversions import integers_of_result
from umakit.operators.derivation.windows import Window, on_images
from umakit.operators.islands import Island, Result
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.parameters import Pair, Pool2d, WindowFields
from umakit.operators.refusals import NotAnIsland
from umakit.operators.tensors import Quantized

P = TypeVar("P", bound=Pool2d)


class PoolFields(WindowFields):
    """The fields that `Pool2d` adds to those of all operators."""

    window: Pair


def plain_pool(kind: type[P], result: Result, call: tvm_api.Call, arithmetic: Arithmetic) -> P:
    """Parameters of a pool that is not dilated.

    Args:
        kind: of pool.
        result: what becomes of it.
        call: a Relax pooling operator.
        arithmetic: unused by pools, but part of all parameters.

    Raises:
        NotAnIsland: attributes that the integer pools do not have.
    """
    attributes = call.attrs
    window = Window.of(attributes)
    if window.dilation != (1, 1) or bool(attributes.ceil_mode):
        raise NotAnIsland("a pool is dilated or rounds its size up")
    return kind(**result.common(arithmetic), **window.common(), window=window.size)


def tflm_pool(kind: type[Pool2d], island: Island) -> tvm_api.Call:
    """A call of a pool whose data and result have one scale.

    Raises:
        NotAnIsland: scales or attributes that the integer operator does not have.
    """
    source = island.operand()
    if source.scale != island.result.scale:
        raise NotAnIsland("a pool's input and output have different scales")
    arithmetic = island.arithmetic_of(source)
    parameters = plain_pool(kind, island.result, island.call, arithmetic)
    return parameters.call([source.integers], island.result.span)


def pool_of_images(
    island: Island, parameters_of: Callable[[Result, tvm_api.Expr], Pool2d]
) -> tvm_api.Call:
    """A call of a pool that compares integers of the result's scale, of images or rows.

    Args:
        island: where it is recognized.
        parameters_of: (result of rank 4, integers [N, C, H, W]) -> parameters.
    """

    def pool(image: Island, source: Quantized) -> tvm_api.Call:
        integers = integers_of_result(image, source)
        parameters = parameters_of(image.result, integers)
        return parameters.call([integers], image.result.span)

    return on_images(island, island.operand(), pool)


def pool_fields(window: Window, result: Result, data: tvm_api.Expr) -> PoolFields:
    """The fields of all pools; a size that was rounded up is reached by padding."""
    sizes = (tvm_api.static_shape(data) or ())[2:]
    top, left, *after = window.padding
    for axis, before in enumerate((top, left)):
        reach = (result.shape[2 + axis] - 1) * window.strides[axis]
        reach += (window.size[axis] - 1) * window.dilation[axis] + 1
        after[axis] = max(after[axis], reach - before - sizes[axis])
    padding = (top, left, after[0], after[1])
    return {**window.common(), "padding": padding, "window": window.size}
