# SPDX-License-Identifier: Apache-2.0
"""Ranges of the results of divisions, shifts, bit operations and functions of requantize.h.

Results are those of unbounded integers and may lie outside of the dtype, where values wrap around.
"""

from __future__ import annotations

from collections.abc import Sequence

from umakit.lower.index_ranges import Range
from umakit.operators.numeric.fixed_point import Arithmetic

REQUANTIZE = tuple(f"umakit_requantize_{rounding.value}" for rounding in Arithmetic)
INT32 = (-(2**31), 2**31 - 1)


def quotient_range(left: Range, right: Range) -> Range:
    """Return the range of a quotient that is rounded towards 0; a division by 0 gives 0."""
    (a, b), (c, d) = left, right
    if c <= 0 <= d:
        most = max(abs(a), abs(b))
        return (0, most) if a >= 0 and c >= 0 else (-most, most)
    quotients = [_truncated(x, y) for x in left for y in right]
    return min(quotients), max(quotients)


def _truncated(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def remainder_range(left: Range, right: Range) -> Range:
    """Return the range of a remainder, whose sign is that of the number divided."""
    (a, b), (c, d) = left, right
    most = max(abs(c), abs(d)) - 1
    return max(min(a, 0), -max(most, 0)), min(max(b, 0), max(most, 0))


def shift_left_range(value: Range, by: Range, limits: Range) -> Range:
    """Return the range of a left shift; the limits of the dtype if an amount may be too large."""
    if by[0] < 0 or by[1] >= bits_of(limits):
        return limits
    ends = [x << amount for x in value for amount in by]
    return min(ends), max(ends)


def shift_right_range(value: Range, by: Range, limits: Range) -> Range:
    """Return the range of a right shift, which rounds down; amounts too large shift all out."""
    if by[0] < 0 or by[1] >= bits_of(limits):
        return min(value[0], 0), max(value[1], 0)
    ends = [x >> amount for x in value for amount in by]
    return min(ends), max(ends)


def bits_of(limits: Range) -> int:
    """Return the number of bits of the dtype with some limits."""
    return (limits[1] - limits[0]).bit_length()


def and_range(left: Range, right: Range) -> Range:
    """Return the range of a bitwise and."""
    largest = [high for low, high in (left, right) if low >= 0]
    if largest:
        return 0, min(largest)
    return _all_of(left, right)


def or_range(left: Range, right: Range) -> Range:
    """Return the range of a bitwise or, or exclusive or."""
    low, high = _all_of(left, right)
    return (0, high) if left[0] >= 0 and right[0] >= 0 else (low, high)


def _all_of(left: Range, right: Range) -> Range:
    """Return the range of all integers with as many bits as two ranges need, and a sign."""
    magnitudes = [end if end >= 0 else ~end for end in (*left, *right)]
    power = 1 << max(magnitudes).bit_length()
    return -power, power - 1


def requantize_range(function: str, arguments: Sequence[Range], limits: Range) -> Range:
    """Return the range of the result of a function of `umakit/requantize.h`.

    Args:
        function: its name.
        arguments: ranges of its arguments.
        limits: of the dtype of the result.
    """
    magnitudes = [max(abs(low), abs(high)) for low, high in arguments]
    if function == "umakit_add_and_clamp":
        return arguments[2][0], arguments[3][1]
    if function == "umakit_leading_zeros":
        return 0, 32
    if function == "umakit_saturate":
        low, high = (min(max(end, INT32[0]), INT32[1]) for end in arguments[0])
        return low, high
    if function == "umakit_high_product":
        most = (magnitudes[0] * magnitudes[1] >> 31) + 1
        return -most, most
    if function in ("umakit_divide_by_power_of_two", "umakit_divide_to_even"):
        most = (magnitudes[0] >> max(arguments[1][0], 0)) + 1
        return -most, most
    if function == "umakit_round_to_float32":
        most = 1 << magnitudes[0].bit_length()
        return -most, most
    if function in REQUANTIZE:
        return _requantized(function, magnitudes, arguments[2], limits)
    return limits


def _requantized(function: str, magnitudes: Sequence[int], shift: Range, limits: Range) -> Range:
    """Return the range of a product with multiplier * 2^(shift - 31)."""
    value, multiplier = magnitudes[:2]
    left = max(shift[1], 0)
    # Only TensorFlow Lite Micro's left shift wraps around, the others saturate.
    wraps = function.endswith("tflm") and value << min(left, 64) >= 2**31
    if wraps or left > 31:
        return limits
    # Rounded up twice at most; float32 rounds to the next power of two at most.
    power = 1 << ((value * multiplier >> min(31 - shift[1], 62)) + 2).bit_length()
    return max(-power, limits[0]), min(power, limits[1])
