# SPDX-License-Identifier: Apache-2.0
"""Drawn scales at which a multiplier that differs by one LSB changes a result."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from umakit.operators.drawings.scales import put_sum_on_threshold, scaled, weights_of


def requantized(total: int, multiplier: int, shift: int, rounding: str) -> int:
    """Return a sum times a factor, after the definitions of both roundings."""
    if rounding == "even":
        return round(Fraction(total * multiplier, 2 ** (31 - shift)))
    high = floor(Fraction(total * multiplier, 2**31) + Fraction(1, 2))
    exact = Fraction(high, 2**-shift)
    away = floor(abs(exact) + Fraction(1, 2))
    return away if exact >= 0 else -away


@pytest.mark.parametrize("rounding", ["tflm", "even"])
@given(seed=st.integers(0, 2**32), scales=st.sampled_from([0, 1]), terms=st.integers(8, 2000))
def test_a_multiplier_that_is_off_by_one_shows(
    rounding: str, seed: int, scales: int, terms: int
) -> None:
    settings: dict[str, int | str] = {
        "dtype": "int8", "rounding": rounding, "weights": "random", "scale": "threshold",
        "scales": scales,
    }  # fmt: skip
    random = np.random.default_rng(seed)
    weights, bias, multipliers, shifts = weights_of(settings, (4, terms), random)
    constant = np.flatnonzero(~weights.any(axis=1))
    assert len(constant) >= (1 if scales else 2)
    for channel in constant:
        place, total = 0 if scales else channel, int(bias[channel])
        results = [
            requantized(total, int(multipliers[place]) + step, int(shifts[place]), rounding)
            for step in (-1, 0, 1)
        ]
        assert len(set(results)) == 2
        assert all(abs(result) <= 100 for result in results)


@given(seed=st.integers(0, 2**32), left=st.integers(-255, 255), right=st.integers(-255, 255))
def test_a_multiplier_of_a_sum_that_is_off_by_one_shows(seed: int, left: int, right: int) -> None:
    random = np.random.default_rng(seed)
    wanted = [*random.uniform(0.05, 0.5, 2).tolist(), 0.5 / 2**20]
    multipliers, shifts = scaled({"rounding": "tflm"}, wanted)
    put_sum_on_threshold((left, right), multipliers, shifts, 20, random)

    def result(place: int, step: int) -> int:
        used = [int(multiplier) for multiplier in multipliers]
        used[place] += step
        terms = zip((left, right), used, shifts, strict=False)
        total = sum(requantized(term << 20, m, int(s), "tflm") for term, m, s in terms)
        return requantized(total, used[2], int(shifts[2]), "tflm")

    if left * right > 0 and min(abs(left), abs(right)) > 100:
        results = [{result(place, step) for step in (-1, 0, 1)} for place in range(3)]
        assert sum(len(each) == 2 for each in results) >= 1
