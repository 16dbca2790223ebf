# SPDX-License-Identifier: Apache-2.0
"""Weighted sums of a few elements along axes: interpolation at constant positions.

resample   (data, places int32[results, taps] of each axis, weights[results, taps] of each axis
            that has some)

Result `r` along an axis is the sum over the taps `t` of `weights[r, t] * data[places[r, t]]`;
without weights it is `data[places[r, 0]]`, of any dtype.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit import tvm_api
from umakit.tvm_api import BlockBuilder, Call, Expr, relax, te

OPERATOR = "resample"
MOST_UNROLLED_TAPS = 16
"""Maximum number of taps of a result element over all axes, enough for cubic interpolation of an
image. With more taps, axes are resampled one after the other."""
SHORT_AXIS_TAPS = 4
"""Maximum number of taps along one axis of an unrolled sum; longer sums are loops."""


@dataclass(frozen=True)
class Table:
    """Taps of each result element along an axis: positions and weights.

    Attributes:
        axis: axis of the data, not negative.
        places: int32[results, taps].
        weights: float64[results, taps].
    """

    axis: int
    places: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float64]

    @property
    def is_gather(self) -> bool:
        """Return whether each element of the result is one element of the data."""
        return self.weights.shape[1] == 1 and bool((self.weights == 1).all())


def table_of(axis: int, terms: Sequence[Sequence[tuple[int, float]]]) -> Table:
    """Return a table from (place, weight) pairs for each element of the result.

    Weights of equal places are added, and weights of 0 are dropped. Short sums repeat a place with
    part of
    its weight: padding with another place of weight 0 would spread infinities.
    """
    sums: list[dict[int, float]] = []
    for pairs in terms:
        weights: dict[int, float] = {}
        for place, weight in pairs:
            weights[place] = weights.get(place, 0.0) + weight
        kept = {place: weight for place, weight in weights.items() if weight != 0}
        sums.append(kept or {min(weights): 0.0})
    taps = max(len(weights) for weights in sums)
    places = np.empty((len(sums), taps), np.int32)
    values = np.empty((len(sums), taps))
    for row, weights in enumerate(sums):
        first, share = next(iter(weights)), 1 + taps - len(weights)
        weights[first] /= share
        pairs = [(first, weights[first])] * (share - 1) + list(weights.items())
        places[row] = [place for place, _ in pairs]
        values[row] = [weight for _, weight in pairs]
    return Table(axis, places, values)


def resampled(builder: BlockBuilder, data: Expr, tables: Sequence[Table]) -> Expr:
    """Return the data resampled along some axes.

    Args:
        data: a tensor of known shape; floats, unless all tables only gather.

    Returns:
        A Relax expression of the data's dtype.
    """
    # The axis that shrinks the data most comes first, which keeps intermediate results small.
    shape = tvm_api.static_shape(data) or ()
    order = sorted(tables, key=lambda table: len(table.places) / shape[table.axis])
    if math.prod(table.places.shape[1] for table in order) <= MOST_UNROLLED_TAPS:
        return _call(builder, data, order) if order else data
    for table in order:
        data = _call(builder, data, [table])
    return data


def moves_only(call: Call) -> bool:
    """Return whether a call of the operator only moves elements."""
    return not any(int(flag) for flag in call.attrs["weighted"])


def _call(builder: BlockBuilder, data: Expr, tables: Sequence[Table]) -> tvm_api.Var:
    dtype = tvm_api.dtype_of(data)
    weighted = [table for table in tables if not table.is_gather]
    operands = [data, *(relax.const(table.places, "int32") for table in tables)]
    operands += [relax.const(table.weights.astype(dtype)) for table in weighted]
    attributes = {
        "axes": [table.axis for table in tables],
        "weighted": [int(not table.is_gather) for table in tables],
    }
    return builder.emit(tvm_api.operator_call(OPERATOR, operands, attributes))


def _infer(call: Call, _: BlockBuilder) -> tvm_api.Type:
    data = call.args[0]
    shape = list(tvm_api.static_shape(data) or ())
    for number, axis in enumerate(call.attrs["axes"]):
        places = tvm_api.static_shape(call.args[1 + number]) or ()
        shape[int(axis)] = places[0]
    return tvm_api.tensor_type(shape, tvm_api.dtype_of(data))


def _legalize(builder: BlockBuilder, call: Call) -> Expr:
    axes = [int(axis) for axis in call.attrs["axes"]]
    weighted = [bool(flag) for flag in call.attrs["weighted"]]
    # Sums are fused with following operators, but their operands are computed once.
    pattern = tvm_api.OUTPUT_FUSABLE_PATTERN if any(weighted) else tvm_api.INJECTIVE_PATTERN
    return builder.call_te(
        _compute, *call.args, axes=axes, weighted=weighted, primfunc_name_hint=OPERATOR,
        primfunc_attrs={"op_pattern": pattern},
    )  # fmt: skip


def _compute(
    data: te.Tensor, *tables: te.Tensor, axes: Sequence[int], weighted: Sequence[bool]
) -> te.Tensor:
    """Return the weighted sums in TE, unrolled or as a loop along an axis with many taps."""
    values = iter(tables[len(axes) :])
    pairs: dict[int, tuple[Any, Any]] = {
        axis: (places, next(values) if has_weights else None)
        for axis, places, has_weights in zip(axes, tables, weighted, strict=False)
    }
    shape = [
        int(pairs[axis][0].shape[0] if axis in pairs else size)
        for axis, size in enumerate(data.shape)
    ]
    taps = {axis: int(places.shape[1]) for axis, (places, _) in pairs.items()}
    if len(axes) == 1 and taps[axes[0]] > SHORT_AXIS_TAPS:
        (axis,) = axes
        places, weights = pairs[axis]
        tap = te.reduce_axis((0, taps[axis]), "tap")

        def one_sum(*at: Expr) -> Expr:
            source = (*at[:axis], places[at[axis], tap], *at[axis + 1 :])
            return te.sum(weights[at[axis], tap] * data(*source), axis=tap)

        return te.compute(shape, one_sum, name=OPERATOR)

    def unrolled(*at: Expr) -> Expr:
        terms = []
        # Weights are multiplied first and terms added in this order, as in ONNX Runtime: a
        # following operator may round at a tie.
        for number in itertools.product(*(range(taps[axis]) for axis in sorted(axes))):
            source, factor = list(at), None
            for axis, tap in reversed(list(zip(sorted(axes), number, strict=True))):
                places, weights = pairs[axis]
                source[axis] = places[at[axis], tap]
                if weights is not None:
                    weight = weights[at[axis], tap]
                    factor = weight if factor is None else factor * weight
            terms.append(data(*source) if factor is None else factor * data(*source))
        return functools.reduce(operator.add, terms)

    return te.compute(shape, unrolled, name=OPERATOR)


tvm_api.register_operator(OPERATOR, str(__doc__), _infer, _legalize)


Coordinates = npt.NDArray[np.floating[Any]]


def nearest_table(axis: int, places: npt.NDArray[Any]) -> Table:
    """Return a table with one element per result."""
    return table_of(axis, [[(int(place), 1.0)] for place in places])


def linear_table(axis: int, size: int, coordinates: Coordinates) -> Table:
    """Return a table of linear interpolation; positions outside the axis take the border."""
    rows = []
    for x in np.clip(coordinates, 0, size - 1).astype(np.float64):
        left = int(x)
        right = min(left + 1, size - 1)
        rows.append([(left, 1 - (x - left)), (right, x - left)])
    return table_of(axis, rows)


def cubic_weight(distance: Coordinates, a: float) -> npt.NDArray[np.float64]:
    """Return Keys' kernel (IEEE Trans. on Acoustics, Speech, and Signal Processing 29, 1981)."""
    d = np.abs(distance).astype(np.float64)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d < 1, near, np.where(d < 2, far, 0.0))


def cubic_table(
    axis: int, size: int, coordinates: Coordinates, a: float, *, exclude_outside: bool = False
) -> Table:
    """Return a table of cubic interpolation.

    Args:
        a: coefficient of the kernel.
        exclude_outside: whether positions outside the axis get weight 0; by default they take the
            border element.
    """
    rows = []
    for x in coordinates.astype(np.float64):
        places = np.floor(x) + np.arange(-1, 3)
        weights = cubic_weight(places - x, a)
        rows.append(_inside(places, weights, size, exclude_outside))
    return table_of(axis, rows)


def antialiased_table(
    axis: int,
    size: int,
    coordinates: Coordinates,
    stretch: float,
    a: float | None,
    *,
    exclude_outside: bool,
) -> Table:
    """Return a table of interpolation with a kernel that downsampling widens.

    Args:
        stretch: result elements per data element, at most 1.
        a: coefficient of the cubic kernel; None for the linear kernel.
        exclude_outside: whether positions outside the axis get weight 0.
    """
    reach = (1 if a is None else 2) / stretch
    rows = []
    for x in coordinates.astype(np.float64):
        places = np.arange(np.floor(x - reach), np.ceil(x + reach) + 1)
        distances = (places - x) * stretch
        weights = np.clip(1 - np.abs(distances), 0, 1) if a is None else cubic_weight(distances, a)
        rows.append(_inside(places, weights / weights.sum(), size, exclude_outside))
    return table_of(axis, rows)


def _inside(
    places: npt.NDArray[np.float64], weights: npt.NDArray[np.float64], size: int, exclude: bool
) -> list[tuple[int, float]]:
    """Return (place, weight) pairs with places outside the axis clipped or excluded."""
    if exclude:
        inside = (places >= 0) & (places < size)
        total = weights[inside].sum()
        places, weights = places[inside], weights[inside]
        if total == 0 or not len(places):
            return [(0, 0.0)]
        weights = weights / total
    clipped = np.clip(places, 0, size - 1).astype(int)
    return [(int(place), float(weight)) for place, weight in zip(clipped, weights, strict=True)]
