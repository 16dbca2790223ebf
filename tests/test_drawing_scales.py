# SPDX-License-Identifier: Apache-2.0
"""Drawn scales at which a multiplier that differs by one LSB changes a result."""

from __future__ import annotations

from fractions import Fraction
from math import floor
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from umakit.operators.drawing import Tensor
from umakit.operators.drawings.scales import weights_of
from umakit.operators.drawings.sums import sum_of


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
    assume(constant.size)  # no multiplier reaches the threshold of some sums of few terms
    for channel in constant:
        place, total = 0 if scales else channel, int(bias[channel])
        results = [
            requantized(total, int(multipliers[place]) + step, int(shifts[place]), rounding)
            for step in (-1, 0, 1)
        ]
        assert len(set(results)) == 2
        assert all(abs(result) <= 100 for result in results)


@given(
    seed=st.integers(0, 2**32),
    sign=st.sampled_from([1, -1]),
    clip=st.sampled_from(["none", "relu", "narrow", "low", "high"]),
    zero_points=st.tuples(*[st.sampled_from([0, -128, 127, 3, -7, 64])] * 3),
)
def test_a_multiplier_of_a_sum_that_is_off_by_one_shows(
    seed: int, sign: int, clip: str, zero_points: tuple[int, int, int]
) -> None:
    settings: dict[str, int | str] = {
        "dtype": "int8", "rounding": "tflm", "scale": "threshold", "clip": clip,
        "output_zero_point": zero_points[2],
    }  # fmt: skip
    drawn = (Tensor((1, 4), "int8", zero_points[0]), Tensor((1, 4), "int8", zero_points[1]))
    made: Any = dict
    fields, sides = sum_of(made, settings, drawn, np.random.default_rng(seed), sign=sign)
    found = [side.element for side in sides]
    if found == [None, None]:  # two terms cannot have the sign of a result that the clip leaves
        assert {127, -128} & set(zero_points)
        return
    lowest, highest = (bound - zero_points[2] for bound in fields["clip"])  # type: ignore[index]

    def result(place: int, step: int) -> int:
        used = [int(multiplier) for multiplier in fields["multipliers"]]  # type: ignore[index]
        used[place] += step
        total, shifts = 0, fields["shifts"]  # type: ignore[index]
        for number, (element, side) in enumerate(zip(found, sides, strict=True)):
            value = (element or 0) - side.zero_point << 20
            scaled = requantized(value, used[number], shifts[number], "tflm")
            total += scaled * (sign if number else 1)
        unlimited = requantized(total, used[2], shifts[2], "tflm")
        return min(max(unlimited, lowest), highest)

    results = [{result(place, step) for step in (-1, 0, 1)} for place in range(3)]
    assert sum(len(each) == 2 for each in results) >= 1


@pytest.mark.parametrize("rounding", ["ort", "even"])
@given(seed=st.integers(0, 2**32), scales=st.sampled_from([0, 1]))
def test_saturating_scales_yield_products_of_32_bits(rounding: str, seed: int, scales: int) -> None:
    settings: dict[str, int | str] = {
        "dtype": "int8", "rounding": rounding, "weights": "random", "scale": "saturating",
        "scales": scales,
    }  # fmt: skip
    weights, bias, multipliers, shifts = weights_of(settings, (5, 3), np.random.default_rng(seed))
    for channel in range(0, 5, 2):
        place = 0 if scales else channel
        product = Fraction(int(bias[channel]) * int(multipliers[place]), 2**31)
        assert not weights[channel].any()
        assert abs(product * 2 ** int(shifts[place])) in (2**31, 2**32)
        assert -31 <= shifts[place] <= 30
