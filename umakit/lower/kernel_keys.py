# SPDX-License-Identifier: Apache-2.0
"""Keys of float32 kernels in tuning records."""

from __future__ import annotations

import re
from typing import Any

from umakit import tvm_api
from umakit.lower.schedule import is_padding, is_reduction
from umakit.machine.kernel_choices import KernelKey


def names_of_elementwise(schedule: tvm_api.Schedule) -> tuple[str, ...]:
    """Return the names of the elementwise blocks of a kernel, without TVM's numbers."""
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    others = [
        str(schedule.get(block).name_hint)
        for block in blocks
        if not is_reduction(schedule, block) and not is_padding(schedule, block)
    ]
    return tuple(re.sub(r"^T_|_\d+$", "", name) for name in others)


def key_of_convolution(
    schedule: tvm_api.Schedule,
    block: Any,
    padding: Any | None,
    operator: str,
    follows: tuple[str, ...],
) -> KernelKey:
    """Return the key of a convolution in NHWC.

    Args:
        schedule: schedule of the kernel.
        block: the convolution.
        padding: the block that pads the data; None without padding.
        operator: name of the operator.
        follows: names of the fused elementwise operators.
    """
    body = schedule.get(block)
    read, weights = (region.source for region in body.reads[:2])
    data = read if padding is None else schedule.get(padding).reads[0].source
    dtype, shape = tvm_api.buffer_dtype(read), tvm_api.buffer_shape(data)
    padded, kernel = tvm_api.buffer_shape(read), tvm_api.buffer_shape(weights)
    loads = tvm_api.collect(body.body, tvm_api.TensorLoad)
    index = next(list(load.indices) for load in loads if load.source.same_as(read))
    variables = [axis.var for axis in body.iter_vars]
    strides = [_factor(index[n], variables[n]) for n in (1, 2)]
    dilation = [_factor(index[n], variables[n + 3]) for n in (1, 2)]
    return KernelKey(
        operator, dtype, shape, kernel, tvm_api.buffer_shape(body.writes[0].source),
        (padded[1] - shape[1], padded[2] - shape[2]), (strides[0], strides[1]),
        (dilation[0], dilation[1]), shape[3] if operator.startswith("depthwise") else 1, follows,
    )  # fmt: skip


def key_of_product(schedule: tvm_api.Schedule, block: Any, follows: tuple[str, ...]) -> KernelKey:
    """Return the key of a matrix product.

    Args:
        schedule: schedule of the kernel.
        block: the product.
        follows: names of the fused elementwise operators.
    """
    body = schedule.get(block)
    shapes = [tvm_api.buffer_shape(region.source) for region in body.reads[:2]]
    result = body.writes[0].source
    dtype = tvm_api.buffer_dtype(result)
    return KernelKey(
        "matmul", dtype, shapes[0], shapes[-1], tvm_api.buffer_shape(result), follows=follows
    )


def _factor(index: Any, variable: Any) -> int:
    """Return the growth of an index per step of a variable; 0 if unknown."""
    first, second = (_value(index, variable, count) for count in (0, 1))
    return 0 if first is None or second is None else second - first


def _value(index: Any, variable: Any, count: int) -> int | None:
    """Return the value of a sum of products with one variable set and all others 0; None if
    unknown."""
    number = tvm_api.integer_value(index)
    if number is not None:
        return number
    if isinstance(index, tvm_api.Var):
        return count if index.same_as(variable) else 0
    if not isinstance(index, tvm_api.tirx.Add | tvm_api.tirx.Mul):
        return None
    sides = [_value(side, variable, count) for side in (index.a, index.b)]
    if sides[0] is None or sides[1] is None:
        return None
    is_sum = isinstance(index, tvm_api.tirx.Add)
    return sides[0] + sides[1] if is_sum else sides[0] * sides[1]
