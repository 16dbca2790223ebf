# SPDX-License-Identifier: Apache-2.0
"""Functions of 16-bit integers as short tables with straight lines between their values.

All 65536 results are compared with the wanted ones, so the error is known and not estimated.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
INTEGERS = 2**16
LARGEST_STEP_BITS = 12
MOST_OFF = 1.2
"""How far, in LSBs of the result, a value may be from the real one: half an LSB for each of the
two roundings and a little for the line. Whoever rounds the real one is then off by one at most."""


def interpolation_table(results: Array, reals: Array) -> tuple[Array, int]:
    """The shortest table of values at equal distances whose lines meet a function within one LSB.

    Args:
        results: for all 16-bit integers in order, of an integer dtype.
        reals: what they are rounded from, in the same steps; float64[65536].

    Returns:
        The table, of the same dtype, and the number of bits of the distance. With 0 bits the table
        holds all results.
    """
    limits = np.iinfo(results.dtype)
    wanted = results.astype(np.int64)
    for bits in range(LARGEST_STEP_BITS, -1, -1):
        values = wanted[:: 1 << bits]
        # The last line ends where it meets the largest integer, if it can.
        whole = 1 << bits
        slope = (wanted[-1] - values[-1]) * whole // max(whole - 1, 1)
        end = np.clip(values[-1] + slope, limits.min, limits.max)
        table = np.append(values, end)
        if bits == 0 or np.abs(interpolated(table, bits) - reals).max() <= MOST_OFF:
            break
    return table.astype(results.dtype), bits


def interpolated(table: Array, bits: int) -> Array:
    """What a table yields for all 16-bit integers in order, int64[65536]."""
    place = np.arange(INTEGERS)
    index, rest = place >> bits, place & ((1 << bits) - 1)
    ends = table[index] * ((1 << bits) - rest) + table[index + 1] * rest
    return np.asarray((ends + ((1 << bits) >> 1)) >> bits)
