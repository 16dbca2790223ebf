# SPDX-License-Identifier: Apache-2.0
"""Rules of operators: windows, elementwise operators, and operators along axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.operators.numeric.fixed_point import MOST_OF_A_SUM
from umakit.operators.parameters import PREFIX
from umakit.operators.registry import parameters_class
from umakit.partition.layouts.rules import (
    CHANNELS_FIRST,
    FLAT,
    KERNELS,
    RANKS,
    Flip,
    Operands,
    Rule,
    RuleOf,
    is_variable,
    made,
    moves_nothing,
    one_operand,
)
from umakit.tvm_api import Call, Expr, relax

FLOAT = (
    "abs add ceil clip cos divide erf exp floor log logical_not maximum minimum multiply negative "
    "nn.gelu nn.gelu_tanh nn.leakyrelu nn.relu nn.relu6 nn.silu nn.softplus power round rsqrt "
    "sigmoid sin sqrt square subtract tanh where"
).split()

PAIRS = "add subtract multiply divide squared_difference float32_sum float32_product".split()
"""Integer operators of two operands that broadcast."""

SINGLE = ("requantize quantize leaky_relu lookup interpolation sigmoid_lookup").split()
"""Integer operators of one operand, whose other operands are tables."""


def broadcasting(call: Call, flip: Flip) -> Rule | None:
    """Rule for operands with the axes of the result; constants change at compile time."""
    shape = tvm_api.static_shape(call)
    if shape is None:
        return None
    rank, data = len(shape), []
    for operand in call.args:
        if not tvm_api.dtype_of(operand) or tvm_api.static_shape(operand) is None:
            if is_variable(operand):
                return None
            continue  # a number, such as a bound of a clip
        if is_variable(operand):
            if len(tvm_api.static_shape(operand) or ()) != rank:
                return None
            data.append(operand)
        elif flip.constant(operand, rank) is None:
            return None

    def build(operands: Operands) -> Expr:
        return made(call, [_operand(each, operands) for each in call.args], _shape(call, flip))

    def _operand(operand: Expr, operands: Operands) -> Expr:
        if is_variable(operand):
            return operands.flipped(operand)
        return flip.constant(operand, rank) or operand

    return Rule(tuple(data), build) if data else None


def of_one(call: Call, flip: Flip) -> Rule | None:
    """Rule for the first operand; tables stay unchanged."""
    return one_operand(call, lambda: _shape(call, flip))


def _shape(call: Call, flip: Flip) -> dict[str, Any]:
    if not tvm_api.operator_name(call).startswith(PREFIX):
        return {}
    return {"output_shape": flip.shape([int(extent) for extent in call.attrs["output_shape"]])}


def float_convolution(call: Call, flip: Flip) -> Rule | None:
    """A convolution of Relax in one or two dimensions with constant weights."""
    attributes = call.attrs
    layout, target, kernel = flip.source, flip.target, KERNELS[flip.target]
    if tvm_api.operator_name(call) == "nn.conv1d":
        layout, target, kernel = FLAT[layout], FLAT[target], kernel.replace("H", "")
    stored, out = str(attributes.kernel_layout), str(attributes.out_layout or "")
    weights = tvm_api.constant_array(call.args[1])
    if str(attributes.data_layout) != layout or out not in ("", layout) or weights is None:
        return None
    if sorted(stored) != sorted(kernel):
        return None
    changed = {"data_layout": target, "kernel_layout": kernel, "out_layout": target}

    def build(operands: Operands) -> Expr:
        order = [stored.index(axis) for axis in kernel]
        moved = relax.const(np.ascontiguousarray(weights.transpose(order)))
        return made(call, [operands.flipped(call.args[0]), moved], changed)

    return Rule((call.args[0],), build, has_layout=True)


def float_pool(call: Call, flip: Flip) -> Rule | None:
    if str(call.attrs.layout) != flip.source or str(call.attrs.out_layout) not in ("", flip.source):
        return None
    changed = {"layout": flip.target, "out_layout": flip.target}
    return one_operand(call, lambda: changed, has_layout=True)


def integer_convolution(call: Call, flip: Flip) -> Rule | None:
    """An integer convolution; weights are [O, ...] with the other axes in the order of the data."""
    weights = tvm_api.constant_array(call.args[1])
    if str(call.attrs["layout"]) != flip.source or weights is None:
        return None
    if tvm_api.operator_name(call).endswith("transpose") and int(call.attrs["groups"]) != 1:
        return None
    data, _, *rest = call.args

    def build(operands: Operands) -> Expr:
        moved = relax.const(np.ascontiguousarray(weights.transpose(flip.axes(4))))
        others = [operands.plain(operand) for operand in rest]
        return made(call, [operands.flipped(data), moved, *others], _integer_layout(call, flip))

    return Rule((data,), build, has_layout=True)


def integer_pool(call: Call, flip: Flip) -> Rule | None:
    if str(call.attrs["layout"]) != flip.source:
        return None
    return one_operand(call, lambda: _integer_layout(call, flip), has_layout=True)


def _integer_layout(call: Call, flip: Flip) -> dict[str, Any]:
    shape = [int(extent) for extent in call.attrs["output_shape"]]
    return {"layout": flip.target, "output_shape": flip.shape(shape)}


OTHER_NAMES = {f"{PREFIX}global_avg_pool": f"{PREFIX}mean"}
"""Operators that are called otherwise in the other layout."""


def concatenation(call: Call, flip: Flip) -> Rule | None:
    shape, tensors = tvm_api.static_shape(call), call.args[0]
    if shape is None or not isinstance(tensors, tvm_api.RelaxTuple):
        return None
    axis = flip.axis(int(call.attrs.axis), len(shape))
    data = tuple(field for field in tensors.fields if is_variable(field))
    constants = {
        place: tvm_api.constant_array(field)
        for place, field in enumerate(tensors.fields)
        if not is_variable(field)
    }
    if not data or any(array is None for array in constants.values()):
        return None

    def build(operands: Operands) -> Expr:
        fields = []
        for place, field in enumerate(tensors.fields):
            array = constants.get(place)
            if array is None:
                fields.append(operands.flipped(field))
            else:
                moved = array.transpose(flip.axes(array.ndim))
                fields.append(relax.const(np.ascontiguousarray(moved)))
        return made(call, [relax.Tuple(fields)], {"axis": axis})

    return Rule(data, build)


def along_axis(call: Call, flip: Flip) -> Rule | None:
    """A softmax, a take of constant positions, or a quantize or dequantize by constant scales."""
    shape = tvm_api.static_shape(call)
    if shape is None or call.attrs.axis is None or any(is_variable(o) for o in call.args[1:]):
        return None
    if len(shape) != len(tvm_api.static_shape(call.args[0]) or ()):
        return None
    axis = flip.axis(int(call.attrs.axis), len(shape))
    return one_operand(call, lambda: {"axis": axis})


def integer_softmax(call: Call, flip: Flip) -> Rule | None:
    shape = tvm_api.static_shape(call) or ()
    axis = flip.axis(int(call.attrs["axis"]), len(shape))
    return one_operand(call, lambda: {"axis": axis, "output_shape": flip.shape(shape)})


def pad(call: Call, flip: Flip) -> Rule | None:
    shape = tvm_api.static_shape(call)
    widths = [int(width) for width in call.attrs.pad_width]
    if shape is None or len(widths) != 2 * len(shape):
        return None
    pairs = [widths[2 * axis : 2 * axis + 2] for axis in flip.axes(len(shape))]
    return one_operand(call, lambda: {"pad_width": [width for pair in pairs for width in pair]})


def strided_slice(call: Call, flip: Flip) -> Rule | None:
    data, axes, *bounds = call.args
    shape = tvm_api.static_shape(data)
    numbers = [getattr(axis, "value", None) for axis in getattr(axes, "fields", ())]
    if shape is None or not numbers or not all(isinstance(axis, int) for axis in numbers):
        return None
    moved = [
        relax.prim_value(flip.axis(int(axis), len(shape))) for axis in numbers if axis is not None
    ]

    def build(operands: Operands) -> Expr:
        return made(call, [operands.flipped(data), relax.Tuple(moved), *bounds], {})

    return Rule((data,), build)


def reduction(call: Call, flip: Flip) -> Rule | None:
    """A mean, a sum, a maximum or a minimum over axes of Relax."""
    data = call.args[0]
    shape = tvm_api.static_shape(data) or ()
    given = call.attrs.axis
    axes = [int(axis) % len(shape) for axis in (range(len(shape)) if given is None else given)]
    moved = [flip.axis(axis, len(shape)) for axis in axes]
    keeps = bool(call.attrs.keepdims)
    if not keeps and not _keeps_order(axes, flip, len(shape)):
        return None
    return one_operand(call, lambda: {"axis": moved}, follows=keeps)


def integer_reduction(call: Call, flip: Flip) -> Rule | None:
    rank = len(tvm_api.static_shape(call.args[0]) or ())
    shape = [int(extent) for extent in call.attrs["output_shape"]]
    axes = [int(axis) for axis in call.attrs["axes"]]
    keeps = len(shape) == rank
    if not keeps and not _keeps_order(axes, flip, rank):
        return None
    changed: dict[str, Any] = {"axes": sorted(flip.axis(axis, rank) for axis in axes)}
    if keeps:
        changed["output_shape"] = flip.shape(shape)
    return one_operand(call, lambda: changed, follows=keeps)


def global_average(call: Call, flip: Flip) -> Rule | None:
    """A global average pool as a mean: both add in 32 bits and rescale the sum once."""
    data = call.args[0]
    shape, result = tvm_api.static_shape(data), tvm_api.static_shape(call)
    if shape is None or result is None or flip.source != CHANNELS_FIRST:
        return None
    bits = 8 * tvm_api.element_bytes(tvm_api.dtype_of(data))
    if math.prod(shape[2:]) << bits >= MOST_OF_A_SUM:
        return None
    follows = len(result) == len(shape)
    pool = parameters_class("global_avg_pool").of(call)
    fields = asdict(pool) | {"output_shape": flip.shape(result) if follows else result}
    mean = parameters_class("mean")(**fields, axes=tuple(range(1, len(shape) - 1)))

    def build(operands: Operands) -> Expr:
        made: Expr = mean.call([operands.flipped(data)], call.span)
        return made

    return Rule((data,), build, follows)


def _keeps_order(axes: Sequence[int], flip: Flip, rank: int) -> bool:
    """Whether the axes left by a reduction have the same order in both layouts."""
    left = [axis for axis in flip.axes(rank) if axis not in axes]
    return left == sorted(left)


def reshape(call: Call, flip: Flip) -> Rule | None:
    """A reshape that keeps images and channels, such as from a signal to an image of one row."""
    data = call.args[0]
    before, after = tvm_api.static_shape(data), tvm_api.static_shape(call)
    if before is None or after is None or len(after) not in RANKS:
        return None
    channels = [1 if flip.source == "NCHW" else len(shape) - 1 for shape in (before, after)]
    if (before[0], before[channels[0]]) != (after[0], after[channels[1]]):
        return None

    def build(operands: Operands) -> Expr:
        moved = relax.op.reshape(operands.flipped(data), flip.shape(after))
        return tvm_api.make_call(moved, span=call.span)

    return Rule((data,), build)


def transpose(call: Call, flip: Flip) -> Rule | None:
    data = call.args[0]
    before = tvm_api.static_shape(data)
    if before is None:
        return None
    rank = len(before)
    axes = tuple(int(axis) % rank for axis in call.attrs.axes or reversed(range(rank)))
    if axes == flip.back(rank) != flip.axes(rank):
        return transpose_of_kept(call, flip)
    elements = math.prod(before)
    now = 0 if moves_nothing(before, axes) else elements
    left = tuple(flip.back(rank)[axis] for axis in axes)
    then = 0 if moves_nothing(flip.shape(before), left) else elements

    def build(operands: Operands) -> Expr:
        flipped = operands.flipped(data)
        if left == tuple(range(rank)):
            return flipped
        return tvm_api.make_call(relax.op.permute_dims(flipped, left), span=call.span)

    return Rule((data,), build, follows=False, moved=(now, then))


def transpose_of_kept(call: Call, flip: Flip) -> Rule | None:
    """A transpose from a fixed layout to the other layout; None for other transposes."""
    data = call.args[0]
    shape = tvm_api.static_shape(data)
    if shape is None:
        return None
    axes = tuple(int(axis) % len(shape) for axis in call.attrs.axes or reversed(range(len(shape))))
    if axes != flip.back(len(shape)):
        return None
    now = 0 if moves_nothing(shape, axes) else math.prod(shape)
    return Rule((), lambda operands: operands.plain(data), moved=(now, 0))


RULES: Mapping[str, RuleOf] = {
    **dict.fromkeys(("nn.conv1d", "nn.conv2d"), float_convolution),
    **dict.fromkeys(("nn.max_pool2d", "nn.avg_pool2d", "nn.adaptive_avg_pool2d"), float_pool),
    **dict.fromkeys((f"{PREFIX}conv2d", f"{PREFIX}conv2d_transpose"), integer_convolution),
    **dict.fromkeys(
        (
            f"{PREFIX}{name}"
            for name in ("max_pool2d", "avg_pool2d", "mean_pool2d", "dilated_max_pool2d")
        ),
        integer_pool,
    ),
    **dict.fromkeys(FLOAT, broadcasting),
    **dict.fromkeys((f"{PREFIX}{name}" for name in PAIRS), broadcasting),
    **dict.fromkeys((f"{PREFIX}{name}" for name in SINGLE), of_one),
    "astype": of_one,
    "concat": concatenation,
    **dict.fromkeys(("nn.softmax", "nn.log_softmax", "take", "quantize", "dequantize"), along_axis),
    f"{PREFIX}probabilities": integer_softmax,
    "nn.pad": pad,
    "strided_slice": strided_slice,
    **dict.fromkeys(("mean", "sum", "max", "min"), reduction),
    **dict.fromkeys((f"{PREFIX}mean", f"{PREFIX}sum"), integer_reduction),
    f"{PREFIX}global_avg_pool": global_average,
    **dict.fromkeys(("reshape", "flatten", "squeeze", "expand_dims"), reshape),
    "permute_dims": transpose,
}
