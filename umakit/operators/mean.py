# SPDX-License-Identifier: Apache-2.0
"""Reductions: `quantized.mean` and `quantized.sum` (data) over some axes; CUMSUM and others.

The formulas are from TensorFlow Lite Micro's `reduce_common.cc` and `reference/reduce.h`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.drawings import reductions
from umakit.operators.interface import TFLM, Interface, along_axes
from umakit.operators.islands import Island
from umakit.operators.kernels import loops as ir
from umakit.operators.multipliers import check_headroom, multiplier_of
from umakit.operators.numeric.fixed_point import MOST_OF_A_SUM, Arithmetic, quantize_multiplier
from umakit.operators.parameters import Parameters
from umakit.operators.registry import Recognition, Shapes, register
from umakit.operators.tensors import NoIntegerForm
from umakit.operators.tflite import WHOLE, Convert, TfliteNode, converts, one_axis
from umakit.operators.tflite_integers import rescaled_sum, scale_of
from umakit.tvm_api import Expr, PrimExpr, int32, relax, tirx


@dataclass(frozen=True)
class Mean(Parameters):
    """The mean over some axes, with another scale.

    Attributes:
        axes: reduced axes, ascending.
        input_zero_point: zero point of the data.
        multiplier, shift: multiplier and shift of the sum, including the division by the number of
            terms.
    """

    operator: ClassVar[str] = "mean"

    axes: tuple[int, ...]
    input_zero_point: int
    multiplier: int
    shift: int


def derive_as(kind: type[Mean], island: Island) -> Expr:
    """Return a call of a mean or sum.

    The number of terms of a mean becomes part of the multiplier.
    """
    result, source = island.result, island.operand()
    arithmetic = island.arithmetic_of(source)
    averages = kind.operator == "mean"
    shape = tvm_api.static_shape(source.integers) or ()
    given = result.call.attrs.axis
    axes = range(len(shape)) if given is None else {int(axis) % len(shape) for axis in given}
    terms = math.prod(shape[axis] for axis in axes)
    magnitude = source.scale.magnitude * terms
    if not 0 < magnitude < MOST_OF_A_SUM:
        raise NoIntegerForm(f"a mean or sum is over {terms} elements")
    factor = float(source.scale.scale) / float(result.scale.scale)
    if arithmetic is Arithmetic.TFLM:
        multiplier, shift = mean_multiplier(factor, terms if averages else 1)
        check_headroom(magnitude, shift, arithmetic)
    else:
        factor = factor / terms if averages else factor
        multiplier, shift = multiplier_of(factor, magnitude, arithmetic)
    parameters = kind(
        **result.common(arithmetic),
        axes=tuple(sorted(axes)),
        input_zero_point=source.scale.zero_point,
        multiplier=multiplier,
        shift=shift,
    )
    return parameters.call([source.integers], result.span)


def mean_multiplier(factor: float, terms: int) -> tuple[int, int]:
    """Return multiplier and shift of a mean of `terms` terms, as in TensorFlow Lite Micro."""
    try:
        multiplier, output_shift = quantize_multiplier(factor)
    except ValueError as error:
        raise NoIntegerForm(str(error)) from None
    shift = min(terms.bit_length() - 1, 32, 31 + output_shift)
    return (multiplier << shift) // terms, output_shift - shift


def reduction_kernel(parameters: Mean, shapes: Shapes, dtypes: list[str]) -> tvm_api.PrimFunc:
    """Return the kernel (data, output) of a mean or sum over some axes.

    If the last axis is not reduced, a tile of its elements is accumulated together.
    """
    shape = shapes[0]
    data = ir.buffer("data", shape, dtypes[0])
    output = ir.buffer("output", parameters.output_shape, parameters.output_dtype)
    last = len(shape) - 1
    channels = 1 if last in parameters.axes else shape[last]
    outer = [(f"o{axis}", shape[axis]) for axis in range(last) if axis not in parameters.axes]
    inner = [(f"i{axis}", shape[axis]) for axis in parameters.axes]
    terms = math.prod(shape[axis] for axis in parameters.axes)
    accumulator = ir.accumulators(min(ir.TILE, channels))
    factor = (int32(parameters.multiplier), int32(parameters.shift))

    def source(
        fixed: tuple[PrimExpr, ...], moving: tuple[PrimExpr, ...], channel: PrimExpr
    ) -> tuple[PrimExpr, ...]:
        kept, summed = iter((*fixed, channel)), iter(moving)
        return tuple(
            next(summed if axis in parameters.axes else kept) for axis in range(len(shape))
        )

    def rows(*fixed: PrimExpr) -> tvm_api.Stmt:
        number = int32(0)
        for index, (_, extent) in zip(fixed, outer, strict=True):
            number = number * int32(extent) + index

        def one_tile(first: PrimExpr, width: ir.Extent) -> tvm_api.Stmt:
            return ir.sequence(
                tirx.AllocBuffer(accumulator),
                ir.loop("c", width, lambda c: ir.set_to(accumulator, c, int32(0))),
                ir.loops([*inner, ("c", width)], lambda *place: ir.add_element_to(
                    accumulator, place[-1],
                    int32(data[source(fixed, place[:-1], first + place[-1])]),
                )),
                ir.loop("c", width, lambda c: ir.store_rescaled(
                    output,
                    ir.unflatten(number * int32(channels) + first + c, parameters.output_shape),
                    ir.total_of(accumulator, c, parameters.input_zero_point * terms), factor,
                    parameters,
                )),
            )  # fmt: skip

        return ir.tiles(channels, one_tile)

    return ir.kernel([data, output], ir.loops(outer, rows))


register(
    parameters=Mean,
    kernel_of_operands=reduction_kernel,
    recognitions=(Recognition(("mean",), partial(derive_as, Mean)),),
    takes_clip=True,
    drawing=reductions.reduction(Mean, mean_multiplier),
    interface=Interface(sizes=along_axes, names={"axes": ()}, rounding=TFLM),
)


def over_axes(function: Callable[..., Expr]) -> Convert:
    """Return the conversion of MEAN or SUM over constant axes."""

    def convert(node: TfliteNode) -> Expr:
        axes, keep = reduced_axes(node)
        return node.island(lambda data: function(data, axes, keep))

    return convert


def reduced_axes(node: TfliteNode) -> tuple[list[int], bool]:
    """Return the reduced axes, and whether they are kept with one element."""
    keep = bool(node.options("ReducerOptions").KeepDims())
    rank = len(node.shape(0))
    given = node.integers(1)
    if not given or any(not -rank <= axis < rank for axis in given):
        raise ModelError(f"its axes are {given}")
    return sorted({axis % rank for axis in given}), keep


converts("MEAN", "float32", "int8", "int16")(over_axes(relax.op.mean))


@dataclass(frozen=True)
class Sum(Mean):
    """The sum over some axes, with another scale."""

    operator: ClassVar[str] = "sum"


register(
    parameters=Sum,
    kernel_of_operands=reduction_kernel,
    recognitions=(Recognition(("sum",), partial(derive_as, Sum)),),
    takes_clip=True,
    drawing=reductions.reduction(Sum, mean_multiplier),
    interface=Interface(sizes=along_axes, names={"axes": ()}, rounding=TFLM),
)


converts("SUM", "float32", "int8", "int16", *WHOLE)(over_axes(relax.op.sum))


def extreme(function: Callable[..., Expr]) -> Convert:
    """The largest or least element over constant axes."""

    def convert(node: TfliteNode) -> Expr:
        axes, keep = reduced_axes(node)
        return function(node.value(0), axes, keep)

    return convert


@converts("REDUCE_ALL", "bool")
def reduce_all(node: TfliteNode) -> Expr:
    """Whether all elements over constant axes are true."""
    axes, keep = reduced_axes(node)
    numbers = node.emit(relax.op.astype(node.value(0), "int8"))
    return relax.op.astype(node.emit(relax.op.min(numbers, axes, keep)), "bool")


converts("REDUCE_MAX", "float32", "int8", same_scale=True)(extreme(relax.op.max))
converts("REDUCE_MIN", "float32", "int8", same_scale=True)(extreme(relax.op.min))


@converts("CUMSUM", "float32", "int8")
def cumsum(node: TfliteNode) -> Expr:
    """CUMSUM along a constant axis, forward or reverse, inclusive or exclusive."""
    options = node.options("CumsumOptions")
    shape = node.shape(0)
    axis = one_axis(node.integers(1), len(shape))
    value, exclusive = node.value(0), bool(options.Exclusive())
    floating = node.tensor(0).dtype == "float32"
    scale = None if floating else scale_of(node.tensor(0))
    if scale is not None:
        wide = node.emit(relax.op.astype(value, "int32"))
        value = node.emit(relax.op.subtract(wide, relax.const(np.int32(scale.zero_point))))
    if options.Reverse():
        value = node.emit(relax.op.flip(value, axis))
    dtype = "float32" if floating else "int32"
    total = node.emit(relax.op.cumsum(value, axis, dtype, exclusive=exclusive))
    if options.Reverse():
        total = node.emit(relax.op.flip(total, axis))
    if scale is None:
        return total
    total = node.emit(relax.op.subtract(total, relax.const(np.int32(scale.zero_point))))
    return rescaled_sum(node, total, scale, shape[axis])
