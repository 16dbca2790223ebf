# SPDX-License-Identifier: Apache-2.0
"""When a choice counts as faster than the rule's own.

Both run in turns, round by round, so that what else the machine does falls on both. A choice is
faster if the median of the ratios of all rounds is below 1 by `LEAST_GAIN`, and their third
quartile is below 1.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from umakit.lower.kernel_records import Times

LEAST_GAIN = 0.02
"""Share of the time by which a choice has to be faster."""

TOLERANCE = 1e-4
"""Most that floats may differ, over the largest value of an output: choices change the order of
additions."""


def times_of(other: npt.NDArray[np.float64], own: npt.NDArray[np.float64]) -> Times | None:
    """Return the quartiles of ratios.

    Args:
        other, own: seconds in the same rounds, at least two of them.

    Returns:
        The quartiles of `other / own`; None if a time is too short to be measured.
    """
    if not (other > 0).all() or not (own > 0).all():
        return None
    low, median, high = statistics.quantiles((other / own).tolist(), n=4)
    return Times(round(low, 4), round(median, 4), round(high, 4))


def is_faster(times: Times | None) -> bool:
    """Whether a choice is faster than the rule's own beyond what the rounds differ by."""
    return times is not None and times.median <= 1 - LEAST_GAIN and times.high < 1


def difference(
    found: Mapping[str, npt.NDArray[np.generic]], wanted: Mapping[str, npt.NDArray[np.generic]]
) -> str:
    """Return how outputs differ, for people; empty if they are the same.

    Integers have to be equal; floats may differ by `TOLERANCE`.

    Args:
        found, wanted: arrays by output name.
    """
    for name, array in wanted.items():
        if not np.issubdtype(array.dtype, np.floating):
            if not np.array_equal(found[name], array):
                return f"integers of output {name} differ"
            continue
        scale = float(np.abs(array[np.isfinite(array)]).max(initial=0.0))
        atol = TOLERANCE * scale
        if not np.allclose(found[name], array, rtol=TOLERANCE, atol=atol, equal_nan=True):
            return f"floats of output {name} differ by more than {TOLERANCE:g} of the largest"
    return ""
