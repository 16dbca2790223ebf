# SPDX-License-Identifier: Apache-2.0
"""Simple explanations of wrong tensors: another layout, an offset, a factor, a shift.

Each explanation is checked for every element, so it is a fact and not a guess.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit.testing.differences import Tolerance, distances

Array = npt.NDArray[Any]

MOST_AXES = 5
"""Maximum number of axes whose permutations are tried."""

FEW_OF = 4
"""Reciprocal of the largest fraction of an axis's indices that counts as few."""


def explain(got: Array, wanted: Array, tolerance: Tolerance) -> str:
    """Return a sentence about `got` that holds for all its elements, or an empty string.

    Args:
        got: a tensor that differs from its reference.
        wanted: the reference, of the same shape and dtype.
        tolerance: as in `compare`.
    """
    limit = tolerance.limit(wanted)

    def equal(one: Array, other: Array) -> bool:
        return one.shape == other.shape and bool((distances(one, other) <= limit).all())

    if got.size < 2 or (got == got.flat[0]).all():
        value = got.flat[0] if got.size else 0
        return f"every element is {value}" if got.size > 1 else ""
    if np.issubdtype(got.dtype, np.floating) and not (
        np.isfinite(got).all() and np.isfinite(wanted).all()
    ):
        return _not_finite(got, wanted)
    if equal(np.full_like(wanted, wanted.flat[0]), wanted):
        return ""  # a constant is equal to itself however it is turned
    hypotheses = (_layouts, _flips, _constants, _clips, _shifts, _places, _steps)
    for hypothesis in hypotheses:
        for sentence in hypothesis(got, wanted, equal):
            return sentence
    return ""


Equal = Callable[[Array, Array], bool]


def _not_finite(got: Array, wanted: Array) -> str:
    new = int((~np.isfinite(got) & np.isfinite(wanted)).sum())
    return f"{new} elements are NaN or infinite that should not be" if new else ""


def _layouts(got: Array, wanted: Array, equal: Equal) -> Iterator[str]:
    """Explain a tensor with correct values in the layout of permuted axes."""
    axes = [axis for axis, extent in enumerate(wanted.shape) if extent > 1]
    if not 2 <= len(axes) <= MOST_AXES:
        return
    for permuted in itertools.permutations(axes):
        order = list(range(wanted.ndim))
        for axis, source in zip(axes, permuted, strict=True):
            order[axis] = source
        if list(permuted) == axes:
            continue
        if equal(got.reshape(-1), wanted.transpose(order).reshape(-1)):
            if wanted.ndim == 4 and order[1:] == [2, 3, 1]:
                yield "equal after transposing axes (0, 2, 3, 1): it is stored channels last"
            yield f"equal after transposing axes {tuple(order)}: it is stored in that order"


def _flips(got: Array, wanted: Array, equal: Equal) -> Iterator[str]:
    """Explain a tensor with reversed axes."""
    axes = [axis for axis, extent in enumerate(wanted.shape) if extent > 1]
    for count in range(1, min(len(axes), MOST_AXES) + 1):
        for chosen in itertools.combinations(axes, count):
            if equal(got, np.flip(wanted, chosen)):
                yield f"equal after flipping {_axes(chosen)}"


def _constants(got: Array, wanted: Array, equal: Equal) -> Iterator[str]:
    """Explain a tensor with a constant added to, or multiplied with, every element."""
    one, other = got.astype(np.float64), wanted.astype(np.float64)
    offset = _plain(float(np.median(one - other)))
    if equal(one, other + offset):
        yield f"equal after adding {offset:g} to the reference"
    power = float((other * other).sum())
    factor = _plain(float((one * other).sum()) / power) if power else 0.0
    if factor and equal(one / factor, other):
        yield f"equal after multiplying the reference by {factor:g}"


def _plain(number: float) -> float:
    """Return the nearest number of few digits, if it is close."""
    rounded = float(f"{number:.4g}")
    return rounded if abs(number - rounded) <= 1e-5 * abs(number) else number


def _clips(got: Array, wanted: Array, equal: Equal) -> Iterator[str]:
    """Explain a tensor that equals the other one clipped: saturation, or a wrong activation."""
    if got.dtype == np.bool_:
        return
    for this, that, name in ((got, wanted, "reference"), (wanted, got, "library's result")):
        low, high = this.min(), this.max()
        if equal(this, np.clip(that, low, high)) and not equal(this, that):
            bounds = []
            if that.min() < low:
                bounds.append(f"from below at {low:g}")
            if that.max() > high:
                bounds.append(f"from above at {high:g}")
            yield f"equal after clipping the {name} {' and '.join(bounds)}"


def _shifts(got: Array, wanted: Array, equal: Equal) -> Iterator[str]:
    """Explain a tensor that is shifted by one along an axis, except at the edge."""
    for axis, extent in enumerate(wanted.shape):
        if extent < 3:
            continue
        later, earlier = _without(axis, slice(1, None)), _without(axis, slice(None, -1))
        if equal(got[later], wanted[earlier]):
            yield f"equal after shifting the reference by +1 along axis {axis}"
        if equal(got[earlier], wanted[later]):
            yield f"equal after shifting the reference by -1 along axis {axis}"


def _places(got: Array, wanted: Array, equal: Equal) -> Iterator[str]:
    """Explain a tensor that differs only at a few indices of an axis, such as a channel."""
    for axis, extent in enumerate(wanted.shape):
        if extent < FEW_OF:
            continue
        wrong = [
            index
            for index in range(extent)
            if not equal(got.take([index], axis), wanted.take([index], axis))
        ]
        if 0 < len(wrong) <= extent // FEW_OF:
            word = "index" if len(wrong) == 1 else "indices"
            yield f"wrong only at {word} {', '.join(map(str, wrong))} of axis {axis}"


def _steps(got: Array, wanted: Array, equal: Equal) -> Iterator[str]:
    """Explain integers that differ by at most one: another rounding."""
    if np.issubdtype(wanted.dtype, np.integer) and distances(got, wanted).max() == 1.0:
        up, down = int((got > wanted).sum()), int((got < wanted).sum())
        yield f"never off by more than one: rounding ({up} one too large, {down} one too small)"


def _without(axis: int, part: slice) -> tuple[slice, ...]:
    return (*[slice(None)] * axis, part)


def _axes(axes: tuple[int, ...]) -> str:
    return f"axis {axes[0]}" if len(axes) == 1 else f"axes {axes}"
