# SPDX-License-Identifier: Apache-2.0
"""Rules for `LegalizeOps`: max, min, argmax, argmin, means, pools, signs, sums and products with 0.

The semantics are NumPy's: NaN wins over every number at any position (IEEE 754-2019, maximum and
minimum); argmax and argmin return the first NaN; the maximum of -inf alone is -inf. TVM's own rules
start from the largest finite float, compare in one order, and fold 0 * x to 0.

A maximum or minimum stays a TIR node. The C printer implements its NaN semantics.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.tvm_api import BlockBuilder, Call, Expr, relax, te, tirx

Rule = Callable[[BlockBuilder, Call], Expr | None]
"""(block builder, call) -> call_tir; None where TVM's own rule fits."""

Reducer = Callable[..., Any]
"""(elements, reduction axes) -> reduced expression, or one for each part of an element."""

SPATIAL_AXES = "DHW"

FLOATS = ("float32", "float64")
INTEGERS = tuple(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64))


def float_rules() -> dict[str, Rule]:
    """Return the rules by operator; most calls on integers keep TVM's rules."""
    places: dict[str, Rule] = {
        "argmax": _place_of(lambda value, best: value > best),
        "argmin": _place_of(lambda value, best: value < best),
    }
    rules: dict[str, Rule] = {
        **places,
        "max": _reduction(_maximum_of),
        "min": _reduction(_minimum_of),
        "nn.max_pool1d": _max_pool,
        "nn.max_pool2d": _max_pool,
        "nn.max_pool3d": _max_pool,
        "nn.leakyrelu": _leaky_relu,
        "sign": _sign,
        "add": _with_zero("add", (0, 1)),
        "subtract": _with_zero("subtract", (0, 1)),
        "multiply": _with_zero("multiply", (0, 1)),
        "divide": _with_zero("divide", (0,)),
    }
    integers: dict[str, Rule] = {
        **places,
        "mean": _integer_mean,
        "variance": _left_alone,
        "std": _left_alone,
        "logical_xor": _left_alone,
    }
    return {
        f"relax.{name}": _for(f"relax.{name}", rules.get(name), integers.get(name))
        for name in rules | integers
    }


def _left_alone(builder: BlockBuilder, call: Call) -> Expr:
    """Keep a call that TVM would lower to another function, so that lowering refuses the call."""
    return call


def _for(operator: str, floats: Rule | None, integers: Rule | None) -> Rule:
    usual = tvm_api.legalization(operator)
    by_dtype = dict.fromkeys(FLOATS, floats) | dict.fromkeys(INTEGERS, integers)

    def apply(builder: BlockBuilder, call: Call) -> Expr | None:
        data = call.args[0]
        static = all(tvm_api.static_shape(argument) is not None for argument in call.args)
        rule = by_dtype.get(tvm_api.dtype_of(data)) if static else None
        result = None if rule is None else rule(builder, call)
        return usual(builder, call) if result is None else result

    return apply


def _maximum_of(dtype: str) -> Reducer:
    return te.comm_reducer(
        lambda a, b: tirx.max(a, b), lambda _: tirx.const(-math.inf, dtype), "max"
    )


def _minimum_of(dtype: str) -> Reducer:
    return te.comm_reducer(
        lambda a, b: tirx.min(a, b), lambda _: tirx.const(math.inf, dtype), "min"
    )


# --- reductions ---------------------------------------------------------------------------------


def _reduced(
    extents: Sequence[int], axes: Sequence[int], shape: Sequence[int], element: Callable[..., Any]
) -> Any:
    """Return a reduced tensor.

    Args:
        axes: reduced axes, ascending and not negative.
        shape: shape of the result; reduced axes are absent or have size 1.
        element: (index of an element of the data, reduction axes) -> reduced expression.
    """
    inner = {axis: te.reduce_axis((0, extents[axis]), f"k{axis}") for axis in axes}
    keeps = len(shape) == len(extents)

    def one(*place: Expr) -> Any:
        outer = iter(place)
        index: list[tvm_api.ExprOp] = []
        for axis in range(len(extents)):
            if axis in inner:
                index.append(inner[axis])
                if keeps:
                    next(outer)
            else:
                index.append(next(outer))
        return element(index, [inner[axis] for axis in axes])

    return te.compute(tuple(shape), one, name="extreme")


def _axes(given: int | Sequence[int] | None, rank: int) -> list[int]:
    if given is None:
        return list(range(rank))
    several = given if isinstance(given, Sequence) else [given]
    return sorted({int(axis) % rank for axis in several})


def _reduction(reducer_of: Callable[[str], Any]) -> Rule:
    def rule(builder: BlockBuilder, call: Call) -> Expr | None:
        shape, result = tvm_api.static_shape(call.args[0]), tvm_api.static_type_shape(call.ty)
        if not shape or result is None or 0 in shape:
            return None
        axes, reducer = _axes(call.attrs.axis, len(shape)), reducer_of(tvm_api.dtype_of(call))
        if not axes:
            return None

        def reduce(data: te.Tensor) -> te.Tensor:
            return _reduced(
                shape, axes, result, lambda index, inner: reducer(data[tuple(index)], inner)
            )

        return builder.call_te(reduce, call.args[0], primfunc_name_hint=_hint(call))

    return rule


def _integer_mean(builder: BlockBuilder, call: Call) -> Expr | None:
    """Lower the mean of integers with 64-bit sums, truncated towards 0 as in ONNX.

    TVM's own rule sums in the data's dtype and always returns int64.
    """
    shape, result = tvm_api.static_shape(call.args[0]), tvm_api.static_type_shape(call.ty)
    if not shape or result is None or 0 in shape:
        return None
    axes, dtype = _axes(call.attrs.axis, len(shape)), tvm_api.dtype_of(call)
    wide = "uint64" if dtype.startswith("u") else "int64"
    terms = tirx.const(math.prod(shape[axis] for axis in axes), wide)

    def mean(data: te.Tensor) -> te.Tensor:
        def element(index: Sequence[Any], inner: Sequence[Any]) -> Any:
            return te.sum(data[tuple(index)].astype(wide), inner)

        sums = _reduced(shape, axes, result, element)
        average = tirx.truncdiv
        return te.compute(
            tuple(result), lambda *place: average(sums[place], terms).astype(dtype), name="mean"
        )

    return builder.call_te(mean, call.args[0], primfunc_name_hint=_hint(call)) if axes else None


def _place_of(is_better: Callable[[Any, Any], Any]) -> Rule:
    """Return the rule for the index of the first extreme value, or of the first NaN.

    TVM's own rule yields -1 if all integers are the least value.
    """

    def rule(builder: BlockBuilder, call: Call) -> Expr | None:
        shape, result = tvm_api.static_shape(call.args[0]), tvm_api.static_type_shape(call.ty)
        if not shape or result is None or 0 in shape:
            return None
        axes, dtype = _axes(call.attrs.axis, len(shape)), tvm_api.dtype_of(call.args[0])
        place_dtype = tvm_api.dtype_of(call)

        def combine(best: Sequence[Expr], other: Sequence[Expr]) -> list[Expr]:
            # Elements arrive in order, after a first pair with place -1.
            wins = is_better(other[1], best[1])
            if dtype in FLOATS:
                is_first_nan = tirx.And(tirx.isnan(other[1]), tirx.Not(tirx.isnan(best[1])))
                wins = tirx.Or(wins, is_first_nan)
            wins = tirx.Or(best[0] < tirx.const(0, place_dtype), wins)
            return [tirx.Select(wins, b, a) for a, b in zip(best, other, strict=True)]

        reducer = te.comm_reducer(
            combine, lambda *_: (tirx.const(-1, place_dtype), tirx.const(0, dtype)), "place"
        )

        def find(data: te.Tensor) -> te.Tensor:
            def element(index: tvm_api.PrimExpr, inner: Sequence[tirx.IterVar]) -> Any:
                place: Any = tirx.const(0, place_dtype)
                for axis, variable in zip(axes, inner, strict=True):
                    place = place * shape[axis] + variable.var.astype(place_dtype)
                return reducer((place, data[tuple(index)]), inner)

            both = _reduced(shape, axes, result, element)
            return te.compute(both[0].shape, lambda *place: both[0](*place), name="place")

        return builder.call_te(find, call.args[0], primfunc_name_hint=_hint(call))

    return rule


# --- pools --------------------------------------------------------------------------------------


def _max_pool(builder: BlockBuilder, call: Call) -> Expr | None:
    """Lower max pooling over any number of axes. Padding is -inf."""
    attributes, shape = call.attrs, tvm_api.static_shape(call.args[0])
    result = tvm_api.static_type_shape(call.ty)
    layout = str(attributes.layout)
    if shape is None or result is None or str(attributes.out_layout) != layout:
        return None
    axes = [axis for axis, letter in enumerate(layout) if letter in SPATIAL_AXES]
    if len(layout) != len(shape) or len(axes) != len(attributes.pool_size):
        return None
    windows, strides, dilations = (
        dict(zip(axes, [int(value) for value in values], strict=True))
        for values in (attributes.pool_size, attributes.strides, attributes.dilation)
    )
    before = dict(zip(axes, [int(pad) for pad in attributes.padding][: len(axes)], strict=True))
    reach = {
        axis: (result[axis] - 1) * strides[axis] + (windows[axis] - 1) * dilations[axis] + 1
        for axis in axes
    }
    dtype = tvm_api.dtype_of(call)

    def pool(data: te.Tensor) -> te.Tensor:
        source = data
        if any(before[axis] or reach[axis] > shape[axis] for axis in axes):
            source = _padded(data, shape, before, reach, -math.inf)
        inner = {axis: te.reduce_axis((0, windows[axis]), f"k{axis}") for axis in axes}
        reducer = _maximum_of(dtype)

        def element(*place: Expr) -> Expr:
            index = [
                i * strides[axis] + inner[axis] * dilations[axis] if axis in inner else i
                for axis, i in enumerate(place)
            ]
            return reducer(source[tuple(index)], list(inner.values()))

        return te.compute(tuple(result), element, name="pool_max")

    return builder.call_te(pool, call.args[0], primfunc_name_hint=_hint(call))


def _padded(
    data: te.Tensor,
    shape: Sequence[int],
    before: dict[int, int],
    reach: dict[int, int],
    value: float,
) -> te.Tensor:
    extents = [reach.get(axis, extent) for axis, extent in enumerate(shape)]

    def element(*place: Expr) -> Expr:
        index = [i - before.get(axis, 0) for axis, i in enumerate(place)]
        inside = [
            condition
            for axis in before
            for condition in (index[axis] >= 0, index[axis] < shape[axis])
        ]
        border = tirx.const(value, str(data.dtype))
        return tirx.if_then_else(tirx.all(*inside), data[tuple(index)], border)

    return te.compute(tuple(extents), element, name="pad_temp")


# --- element by element ---------------------------------------------------------------------------


def _sign(builder: BlockBuilder, call: Call) -> Expr | None:
    dtype = tvm_api.dtype_of(call)
    zero, one = tirx.const(0, dtype), tirx.const(1, dtype)

    def sign(data: te.Tensor) -> te.Tensor:
        def element(*place: Expr) -> Expr:
            x = data[place]
            sign = tirx.Select(x > zero, one, tirx.Select(x < zero, -one, zero))
            return tirx.Select(tirx.isnan(x), x, sign)

        return te.compute(data.shape, element, name="sign")

    return builder.call_te(sign, call.args[0], primfunc_name_hint=_hint(call))


def _leaky_relu(builder: BlockBuilder, call: Call) -> Expr | None:
    """Lower leaky_relu with slope 0. TVM folds the product to 0 even for NaN and -inf."""
    if float(call.attrs.alpha) != 0.0:
        return None

    def leaky_relu(data: te.Tensor, slope: te.Tensor) -> te.Tensor:
        def element(*place: Expr) -> Expr:
            x = data[place]
            return tirx.Select(x > tirx.const(0, str(data.dtype)), x, x * slope[0])

        return te.compute(data.shape, element, name="leaky_relu")

    slope = _one_element(0.0, tvm_api.dtype_of(call))
    return builder.call_te(leaky_relu, call.args[0], slope, primfunc_name_hint=_hint(call))


def _with_zero(name: str, positions: tuple[int, ...]) -> Rule:
    """Return the rule that turns scalar operands of 0 into tensors.

    TVM would fold 0 * x and 0 / x to 0, which is wrong for NaN and infinities, and x + 0 and
    x - (-0.0) to x, which is wrong for -0.0.
    """
    usual = tvm_api.legalization(f"relax.{name}")

    def rule(builder: BlockBuilder, call: Call) -> Expr | None:
        operands = list(call.args)
        shapes = [tvm_api.static_shape(operand) for operand in operands]
        if max(len(shape or ()) for shape in shapes) == 0:
            return None
        for position in positions:
            array = tvm_api.constant_array(operands[position])
            if array is not None and array.ndim == 0 and float(array) == 0.0:
                operands[position] = _one_element(float(array), str(array.dtype))
        changed = relax.Call(call.op, operands, call.attrs, call.ty_args, call.span)
        return usual(builder, builder.normalize(changed))

    return rule


def _one_element(value: float, dtype: str) -> tvm_api.GenericConst:
    return relax.const(np.array([value], dtype), dtype)


def _hint(call: Call) -> str:
    """Return a kernel name that is not a C library function."""
    return f"tir_{tvm_api.operator_name(call).rsplit('.', 1)[-1]}"
