# SPDX-License-Identifier: Apache-2.0
"""Comparison of tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

DEFAULT_TOLERANCE = 1e-5
"""Default tolerance of floats, relative to the largest finite magnitude of the reference."""


HISTOGRAM_REACH = 16
"""Largest difference of integers with a separate class in histograms; the outermost classes also
count all larger differences."""


@dataclass(frozen=True)
class Tolerance:
    """Differences that count as agreement.

    Attributes:
        relative: tolerance of floats, relative to the largest finite magnitude of the reference;
            absolute if this magnitude is 0.
        lsb: tolerance of integers, in LSB.
    """

    relative: float = DEFAULT_TOLERANCE
    lsb: int = 0

    def added_up(self, layers: int) -> Tolerance:
        """Return the tolerance for the result of consecutive layers."""
        return Tolerance(self.relative * layers, self.lsb * layers)

    def limit(self, wanted: Array) -> float:
        """Return the largest absolute difference that counts as agreement with a tensor."""
        if not np.issubdtype(wanted.dtype, np.floating):
            return 0.0 if wanted.dtype == np.bool_ else float(self.lsb)
        finite = np.abs(wanted[np.isfinite(wanted)].astype(np.float64))
        return self.relative * (float(finite.max(initial=0.0)) or 1.0)


EXACT_INTEGERS = Tolerance()


@dataclass(frozen=True)
class TensorDifference:
    """The difference of a tensor from its reference.

    Attributes:
        differing: number of elements that differ by more than `limit`, or are NaN or infinite in
            only one of the tensors.
        largest: largest absolute difference; infinity if one of the values is not finite.
        index: index of the largest difference; empty for a scalar or without a difference.
        got: the library's value at `index`.
        wanted: the reference's value at `index`.
        first: index of the first differing element, in memory order; empty for a scalar or without
            a difference.
        limit: absolute tolerance.
        histogram: number of elements by difference in LSB, the library's value minus the
            reference's. The classes `HISTOGRAM_REACH` and its negative also count all differences
            beyond. None for floats and 64-bit integers.
        top_1: (rows, same): number of rows of the last axis, and of rows with the largest element
            in the same place as in the reference; None for tensors of more than two axes and rows
            of one element.
    """

    elements: int
    differing: int
    largest: float
    index: tuple[int, ...]
    got: float
    wanted: float
    first: tuple[int, ...]
    limit: float
    histogram: Mapping[int, int] | None = field(default=None)
    top_1: tuple[int, int] | None = field(default=None)

    @property
    def agrees(self) -> bool:
        return self.differing == 0

    @property
    def exact(self) -> bool:
        return self.largest == 0

    def counting(self, other: TensorDifference) -> TensorDifference:
        """Return this difference with the histogram and the rows of another one added."""
        histogram, top_1 = self.histogram, self.top_1
        if histogram is not None and other.histogram is not None:
            histogram = dict(sorted((Counter(histogram) + Counter(other.histogram)).items()))
        if top_1 is not None and other.top_1 is not None:
            top_1 = top_1[0] + other.top_1[0], top_1[1] + other.top_1[1]
        return replace(self, histogram=histogram, top_1=top_1)


def worst_of(one: TensorDifference, other: TensorDifference) -> TensorDifference:
    """Return the larger of two differences, by default the first, with the counts of both."""
    larger, smaller = (one, other) if one.largest >= other.largest else (other, one)
    return larger.counting(smaller)


def distances(got: Array, wanted: Array) -> Array:
    """Return absolute differences in float64; NaN equals NaN, infinity equals itself."""
    with np.errstate(invalid="ignore", over="ignore"):
        if np.issubdtype(wanted.dtype, np.integer) or wanted.dtype == np.bool_:
            # Exact: a float64 has not room for every int64.
            low, high = np.minimum(got, wanted), np.maximum(got, wanted)
            unsigned = np.uint64 if wanted.dtype.itemsize == 8 else np.int64
            result: Array = (high.astype(unsigned) - low.astype(unsigned)).astype(np.float64)
            return result
        one, other = got.astype(np.float64), wanted.astype(np.float64)
        result = np.abs(one - other)
    result[(one == other) | (np.isnan(one) & np.isnan(other))] = 0.0
    result[np.isnan(result)] = np.inf
    return result


def compare(got: Array, wanted: Array, tolerance: Tolerance = EXACT_INTEGERS) -> TensorDifference:
    """Compare two tensors of the same shape and dtype."""
    limit = tolerance.limit(wanted)
    away = distances(got, wanted)
    if away.size == 0:
        return TensorDifference(0, 0, 0.0, (), 0.0, 0.0, (), limit)
    wrong = away > limit
    place = _place(away)
    return TensorDifference(
        elements=int(away.size),
        differing=int(wrong.sum()),
        largest=float(away[place]),
        index=place,
        got=float(got[place]),
        wanted=float(wanted[place]),
        first=_place(wrong) if wrong.any() else (),
        limit=limit,
        histogram=_histogram(got, wanted, away.size if away[place] == 0 else 0),
        top_1=_top_1(got, wanted),
    )


def _histogram(got: Array, wanted: Array, equal: int) -> dict[int, int] | None:
    """Return the elements by difference in LSB; `equal` is their number if all are equal."""
    if wanted.dtype.kind not in "iu" or wanted.dtype.itemsize > 4:
        return None
    if equal:
        return {0: equal}
    difference = got.astype(np.int64) - wanted.astype(np.int64)
    shifted = difference.clip(-HISTOGRAM_REACH, HISTOGRAM_REACH) + HISTOGRAM_REACH
    counts = enumerate(np.bincount(shifted.ravel()).tolist(), -HISTOGRAM_REACH)
    return {each: count for each, count in counts if count}


def _top_1(got: Array, wanted: Array) -> tuple[int, int] | None:
    if wanted.ndim not in (1, 2) or wanted.shape[-1] < 2 or wanted.dtype == np.bool_:
        return None
    rows, chosen = wanted.reshape(-1, wanted.shape[-1]), got.reshape(-1, wanted.shape[-1])
    picked = np.take_along_axis(rows, chosen.argmax(axis=1)[:, None], axis=1)[:, 0]
    return len(rows), int((picked == rows.max(axis=1)).sum())


def _place(values: Array) -> tuple[int, ...]:
    return tuple(int(axis) for axis in np.unravel_index(int(values.argmax()), values.shape))
