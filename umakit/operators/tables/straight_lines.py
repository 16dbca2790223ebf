# SPDX-License-Identifier: Apache-2.0
"""Functions of 16-bit integers as short tables: straight lines between values, and corrections.

A line between two tabulated values is at most a few steps off. Corrections of a few bits per
integer make all 65536 results exact: a sigmoid takes 12 to 24 KB instead of 128 KB.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
INTEGERS = 2**16
LARGEST_STEP_BITS = 12
LEAST_CORRECTIONS = {0: 0, 1: 0, 2: 0, 4: -8, 8: -128}
"""Least correction by number of correction bits. Corrections of 4 and 8 bits are signed.

A line over a bend of the function lies above it.
"""
FURTHEST_BELOW = 2
"""Largest amount by which a tabulated value may be below the result of its integer."""


@dataclass(frozen=True)
class Lines:
    """A table of values at equal distances, and of corrections.

    Attributes:
        table: the values, then the corrections, packed from the lowest bits of each element on.
        step_bits: tabulated values belong to integers that are 2**step_bits apart.
        correction_bits: bits of each correction, a key of `LEAST_CORRECTIONS`.
    """

    table: Array
    step_bits: int
    correction_bits: int


def interpolation_table(results: Array) -> Lines:
    """Return the smallest table of lines and corrections with exactly all results.

    Args:
        results: results for all 16-bit integers in order, integers[65536] of 8 or 16 bits.
    """
    best = Lines(np.append(results, results[-1]), 0, 0)
    for bits in LEAST_CORRECTIONS:
        for step_bits in range(LARGEST_STEP_BITS, 0, -1):
            values = _values(results, step_bits, bits)
            if values is None:
                continue
            off = results.astype(np.int64) - interpolated(values, step_bits)
            packed = _packed(off, bits, results.dtype)
            table = np.concatenate([values.astype(results.dtype), packed])
            if table.nbytes < best.table.nbytes:
                best = Lines(table, step_bits, bits)
            break
    return best


def _values(results: Array, step_bits: int, bits: int) -> Array | None:
    """Return tabulated values for which corrections of some bits give all results.

    Returns:
        int64[2**(16 - step_bits) + 1]; None if there are no such values.
    """
    length, limits = 1 << step_bits, np.iinfo(results.dtype)
    segments = results.astype(np.int64).reshape(-1, length)
    starts, last = segments[:, 0], segments[-1]
    # The last line ends behind the largest integer, about at its extrapolation.
    behind = min(last[0] + (last[-1] - last[0]) * length // (length - 1) + 1, limits.max)
    ends, rest = np.append(starts[1:], behind), np.arange(length)
    below, least = np.arange(min(1 << bits, FURTHEST_BELOW + 1)), LEAST_CORRECTIONS[bits]
    fits = np.zeros((len(segments), len(below), len(below)), bool)
    for one, other in np.ndindex(*fits.shape[1:]):
        begin, end = (starts - below[one])[:, None], (ends - below[other])[:, None]
        off = segments - ((begin * (length - rest) + end * rest) >> step_bits)
        is_integer = (begin >= limits.min) & (end >= limits.min) & (end <= limits.max)
        fits[:, one, other] = (is_integer & (off >= least) & (off < least + (1 << bits))).all(
            axis=1
        )
    if not fits.any(axis=(1, 2)).all():
        return None
    # Each value belongs to two lines: from the last value back, the choices with a next value.
    open_to = np.ones((len(segments) + 1, len(below)), bool)
    for place in range(len(segments) - 1, -1, -1):
        open_to[place] = (fits[place] & open_to[place + 1]).any(axis=1)
    if not open_to[0].any():
        return None
    chosen = [int(open_to[0].argmax())]
    for place in range(len(segments)):
        chosen.append(int((fits[place, chosen[-1]] & open_to[place + 1]).argmax()))
    return np.append(starts, behind) - below[chosen]


def _packed(corrections: Array, bits: int, dtype: npt.DTypeLike) -> Array:
    width = 8 * np.dtype(dtype).itemsize
    if bits == 0:
        return np.zeros(0, dtype)
    fields = (corrections & ((1 << bits) - 1)).reshape(-1, width // bits) << np.arange(
        0, width, bits
    )
    return np.asarray(fields.sum(axis=1).astype(f"uint{width}").view(dtype))


def interpolated(values: Array, step_bits: int) -> Array:
    """Return the interpolated value of each 16-bit integer in order, int64[65536]."""
    place = np.arange(INTEGERS)
    index, rest = place >> step_bits, place & ((1 << step_bits) - 1)
    ends = values[index] * ((1 << step_bits) - rest) + values[index + 1] * rest
    return np.asarray(ends >> step_bits)
