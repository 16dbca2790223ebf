# SPDX-License-Identifier: Apache-2.0
"""Comparison of tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

DEFAULT_TOLERANCE = 1e-5
"""Default tolerance of floats, relative to the largest finite magnitude of the reference."""


@dataclass(frozen=True)
class TensorDifference:
    """The difference of a tensor from its reference.

    Attributes:
        elements: number of elements of the tensor.
        differing: number of elements that differ: integers by any amount, floats by more than
            `limit`, or NaN or infinity in only one of the tensors.
        largest: largest absolute difference; infinity if one of the values is not finite.
        index: index of the largest difference; empty for a scalar or if there is none.
        got: the library's value at `index`.
        wanted: the reference's value at `index`.
        first: index of the first element that differs, in memory order; empty for a scalar or if
            there is none.
        limit: absolute tolerance of floats; 0 for integers.
    """

    elements: int
    differing: int
    largest: float
    index: tuple[int, ...]
    got: float
    wanted: float
    first: tuple[int, ...]
    limit: float

    @property
    def agrees(self) -> bool:
        """Whether no element differs."""
        return self.differing == 0


def limit_of(wanted: Array, tolerance: float) -> float:
    """Return the absolute tolerance of a tensor's elements.

    Args:
        wanted: the reference.
        tolerance: tolerance relative to its largest finite magnitude; absolute if that is 0.
    """
    if not np.issubdtype(wanted.dtype, np.floating):
        return 0.0
    finite = np.abs(wanted[np.isfinite(wanted)].astype(np.float64))
    return tolerance * (float(finite.max(initial=0.0)) or 1.0)


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


def compare(got: Array, wanted: Array, tolerance: float = DEFAULT_TOLERANCE) -> TensorDifference:
    """Compare two tensors of the same shape and dtype.

    Args:
        got: the library's tensor.
        wanted: the reference's tensor.
        tolerance: see `limit_of`.
    """
    limit = limit_of(wanted, tolerance)
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
    )


def _place(values: Array) -> tuple[int, ...]:
    """Return the index of the largest value; the first of equal values."""
    return tuple(int(axis) for axis in np.unravel_index(int(values.argmax()), values.shape))
