# SPDX-License-Identifier: Apache-2.0
"""Positions of a bilinear resizing in fixed point, TensorFlow Lite's `ResizeBilinearInteger`."""

from __future__ import annotations

BITS = 10
"""Fractional bits of positions and weights."""


def scale_of_axis(size: int, result: int, *, align: bool) -> int:
    """Steps of the operand for one step of the result.

    Args:
        size: of the operand's axis.
        result: of the result's.
        align: whether corners are aligned.
    """
    if align and result > 1:
        size, result = size - 1, result - 1
    return ((size << BITS) + result // 2) // result


def leaves_the_image(size: int, result: int, *, align: bool, half_pixel: bool) -> bool:
    """Whether rounded positions reach behind the operand's last element.

    Args:
        size: of the operand's axis.
        result: of the result's.
        align: whether corners are aligned.
        half_pixel: whether pixels are known by their centers.
    """
    scale = scale_of_axis(size, result, align=align)
    last = (result - 1) * scale + (scale // 2 - (1 << BITS - 1) if half_pixel else 0)
    return last >> BITS >= size or result * scale >= 2**31
