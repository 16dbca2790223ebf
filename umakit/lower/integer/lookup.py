# SPDX-License-Identifier: Apache-2.0
"""Kernels of tables and of means."""

from __future__ import annotations

import math
from typing import Any

from umakit import tvm_api
from umakit.operators.kernels.loops import (
    TILE,
    accumulators,
    add_element_to,
    buffer,
    int32,
    kernel,
    loop,
    loops,
    sequence,
    set_to,
    store_rescaled,
    tiles,
    total_of,
    unflatten,
)
from umakit.quantization.further_operators import Mean
from umakit.quantization.onnx_operators import Interpolation

tirx = tvm_api.tirx


def interpolation(known: Interpolation, shapes: list[tuple[int, ...]], dtypes: list[str]) -> Any:
    """Kernel (data, table, output) of straight lines between a table's values.

    Args:
        known: parameters of the operator.
        shapes, dtypes: of data, which has 16 bits, and table.
    """
    shape = shapes[0]
    data = buffer("data", shape, dtypes[0])
    table = buffer("table", shapes[1], known.output_dtype)
    output = buffer("output", known.output_shape, known.output_dtype)
    least = 2**15 if dtypes[0] == "int16" else 0
    step = 1 << known.step_bits

    def one(i: Any) -> Any:
        place = int32(data[tuple(unflatten(i, shape))]) + int32(least)
        index, rest = place >> int32(known.step_bits), place & int32(step - 1)
        begin, end = (int32(table[at]) for at in (index, index + int32(1)))
        both = begin * (int32(step) - rest) + end * rest + int32(step >> 1)
        value = (both >> int32(known.step_bits)).astype(known.output_dtype)
        return tirx.BufferStore(output, value, unflatten(i, known.output_shape))

    return kernel([data, table, output], loop("i", math.prod(shape), one))


def mean(known: Mean, shapes: list[tuple[int, ...]], dtypes: list[str]) -> Any:
    """Kernel (data, output) of a mean or sum over some axes.

    Sums of the last axis's elements are kept side by side where that axis stays.

    Args:
        known: parameters of the operator.
        shapes, dtypes: of the data.
    """
    shape = shapes[0]
    data = buffer("data", shape, dtypes[0])
    output = buffer("output", known.output_shape, known.output_dtype)
    last = len(shape) - 1
    channels = 1 if last in known.axes else shape[last]
    outer = [(f"o{axis}", shape[axis]) for axis in range(last) if axis not in known.axes]
    inner = [(f"i{axis}", shape[axis]) for axis in known.axes]
    terms = math.prod(shape[axis] for axis in known.axes)
    sums = accumulators(min(TILE, channels))
    factor = (int32(known.multiplier), int32(known.shift))

    def source(fixed: tuple[Any, ...], moving: tuple[Any, ...], channel: Any) -> tuple[Any, ...]:
        kept, summed = iter((*fixed, channel)), iter(moving)
        return tuple(next(summed if axis in known.axes else kept) for axis in range(len(shape)))

    def rows(*fixed: Any) -> Any:
        number = int32(0)
        for index, (_, extent) in zip(fixed, outer, strict=True):
            number = number * int32(extent) + index

        def one_tile(first: Any, width: Any) -> Any:
            return sequence(
                tirx.AllocBuffer(sums),
                loop("c", width, lambda c: set_to(sums, c, int32(0))),
                loops([*inner, ("c", width)], lambda *place: add_element_to(
                    sums, place[-1], int32(data[source(fixed, place[:-1], first + place[-1])])
                )),
                loop("c", width, lambda c: store_rescaled(
                    output, unflatten(number * int32(channels) + first + c, known.output_shape),
                    total_of(sums, c, known.input_zero_point * terms), factor, known,
                )),
            )  # fmt: skip

        return tiles(channels, one_tile)

    return kernel([data, output], loops(outer, rows))
