# SPDX-License-Identifier: Apache-2.0
"""Drawings of sums and differences of two tensors, with elements that show errors of one LSB."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from umakit.operators import drawing as draw
from umakit.operators.drawings.families import ELEMENTWISE, common_fields, sides_of, zero_point_of
from umakit.operators.drawings.scales import (
    LARGEST_MULTIPLIER,
    scaled,
    tflm_scaled,
    threshold_multiplier,
)
from umakit.operators.numeric.fixed_point import Arithmetic, quantize_multiplier
from umakit.operators.parameters import LEFT_SHIFTS, Parameters

TOTALS = {
    "usual": 1.1, "tie": 1.0, "threshold": 0.5, "small": 0.1, "large": 1.9, "saturating": 1.1,
}  # fmt: skip
"""Factors of sums by the setting `scale`."""

_TFLM: draw.Settings = {"rounding": Arithmetic.TFLM.value}

Terms = tuple[int, int]


def sum_of(
    kind: Callable[..., Parameters],
    settings: draw.Settings,
    sides: tuple[draw.Tensor, draw.Tensor],
    random: draw.Random,
    *,
    sign: int = 1,
    constant: tuple[int, Sequence[int]] | None = None,
) -> tuple[Parameters, tuple[draw.Tensor, draw.Tensor]]:
    """Return the parameters of a sum or difference, and both tensors with an element.

    At a `threshold`, an error of one LSB in a multiplier changes the result of two elements: half
    of the elements of each tensor should have this value.

    Args:
        sign: -1 for a difference.
        constant: the number of a computed side, and elements of the side that no data change.
    """
    left_shift = LEFT_SHIFTS[sides[0].dtype]
    scales = np.exp2(random.uniform(-4, 0, 2))
    if settings["scale"] == "tie":
        scales = np.exp2(np.floor(np.log2(scales)))
    twice = 2 * float(max(scales))
    total = TOTALS[str(settings["scale"])]
    wanted = [*(float(each) / twice for each in scales), total / 2**left_shift]
    multipliers, shifts = scaled(settings, wanted)
    name = "sum_zero_point" if "sum_zero_point" in settings else "output_zero_point"
    zero_point = zero_point_of(settings, name)
    shape = tuple(max(pair) for pair in zip(sides[0].shape, sides[1].shape, strict=True))
    common = common_fields(settings, shape, zero_point)
    if settings["scale"] == "threshold" and settings["rounding"] == Arithmetic.TFLM.value:
        lowest, highest = (bound - zero_point for bound in common["clip"])
        found = _elements(sides, (lowest, highest), sign, constant, random)
        if found is not None:
            terms = (found[0] - sides[0].zero_point, found[1] - sides[1].zero_point)
            factors = (multipliers, shifts)
            put_sum_on_threshold(terms, (lowest, highest), factors, left_shift, random, sign)
            sides = (replace(sides[0], element=found[0]), replace(sides[1], element=found[1]))
    parameters = kind(
        **common,
        zero_points=(sides[0].zero_point, sides[1].zero_point),
        left_shift=left_shift,
        multipliers=tuple(int(each) for each in multipliers),
        shifts=tuple(int(each) for each in shifts),
    )
    return parameters, sides


def _elements(
    sides: tuple[draw.Tensor, draw.Tensor],
    results: tuple[int, int],
    sign: int,
    constant: tuple[int, Sequence[int]] | None,
    random: draw.Random,
) -> Terms | None:
    """Return an element of each side, with terms of one sign that the result may have."""
    for wanted in random.permutation([1, -1]):
        if not _results_of(int(wanted), results):
            continue
        found: list[int] = []
        for side, tensor in enumerate(sides):
            towards = int(wanted) * (sign if side else 1)
            limits = np.iinfo(tensor.dtype)
            end = int(limits.max if towards > 0 else limits.min)
            zero_point = tensor.zero_point
            # The far half, because a small sum has few results.
            possible: Sequence[int] = range(
                (zero_point + end) // 2 + (towards > 0), end + towards, towards
            )
            if constant is not None and side == constant[0]:
                possible = [each for each in constant[1] if (each - zero_point) * towards > 0]
            if len(possible):
                found.append(int(possible[int(random.integers(len(possible)))]))
        if len(found) == 2 and all(
            found[side] != tensor.zero_point for side, tensor in enumerate(sides)
        ):
            return found[0], found[1]
    return None


def _results_of(sign: int, results: tuple[int, int]) -> range:
    """Return the magnitudes of results of a sign that differ from the next smaller magnitude."""
    lowest, highest = results
    if sign > 0:
        return range(max(1, lowest + 1), highest + 1)
    return range(max(1, 1 - highest), -lowest + 1)


def put_sum_on_threshold(
    terms: Terms,
    results: tuple[int, int],
    factors: tuple[draw.Array, draw.Array],
    left_shift: int,
    random: draw.Random,
    sign: int = 1,
) -> None:
    """Make the multipliers of a sum of two terms the least multipliers of a result, or one below.

    Each multiplier of a term becomes the least multiplier of the scaled term, and the last
    multiplier the least multiplier from their sum to a result: then one LSB less in any multiplier
    shows. Otherwise the multipliers of the terms, or of the sum, are one below, so that one LSB
    more shows. The rounding is TensorFlow Lite's; nothing shows if no result fits.

    Args:
        terms: elements of both tensors without their zero points; not 0, and of one sign in the
            sum.
        factors: multipliers and shifts of both terms, and of the sum; changed in place.
        sign: -1 for a difference.
    """
    multipliers, shifts = factors
    below, sum_below = ((0, 0), (1, 0), (0, 1))[int(random.integers(3))]
    direction = 1 if terms[0] > 0 else -1
    total = 0
    for place, term in enumerate(terms):
        value, shift = term << left_shift, int(shifts[place])
        product = abs(tflm_scaled(value, int(multipliers[place]), shift))
        if product and shift <= 0:
            signed = product if term > 0 else -product
            least = threshold_multiplier(_TFLM, signed, abs(value), -shift)
            if _is_multiplier(least - below):
                multipliers[place] = least - below
                product -= below
        total += product
    possible = _results_of(direction, results)
    most = min(len(possible), math.floor(TOTALS["large"] * total / 2**left_shift))
    if most <= 0:
        return
    result = possible[int(random.integers(most))]
    shift = quantize_multiplier((result - 0.5) / total)[1]
    least = threshold_multiplier(_TFLM, direction * result, total + below, -shift)
    if shift <= 0 and _is_multiplier(least - sum_below):
        multipliers[2], shifts[2] = least - sum_below, shift


def _is_multiplier(number: int) -> bool:
    return bool(LARGEST_MULTIPLIER // 2 < number <= LARGEST_MULTIPLIER)


def sum_of_two(kind: Callable[..., Parameters], sign: int = 1) -> draw.Drawing:
    """Return the drawing of a sum, or with sign -1 of a difference."""

    def build(settings: draw.Settings, data: draw.Tensor | None, random: draw.Random) -> draw.Drawn:
        left, right, shape = sides_of(settings, data)
        parameters, operands = sum_of(kind, settings, (left, right), random, sign=sign)
        step = draw.parameters_step(parameters, [draw.Input(0), draw.Input(1)])
        made = draw.Tensor(shape, left.dtype, parameters.output_zero_point, left.layout)
        return draw.Drawn(operands, (step,), made, math.prod(shape))

    return draw.Drawing(ELEMENTWISE, build, ("size", "other"))
