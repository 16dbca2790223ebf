# SPDX-License-Identifier: Apache-2.0
"""Sliding windows without padding: the part of a window inside the image."""

from __future__ import annotations

from dataclasses import dataclass

from umakit.tvm_api import PrimExpr, int32, tirx

Span = tuple[PrimExpr, PrimExpr]
"""First element of a window's axis that is inside the image, and how many there are."""


@dataclass(frozen=True)
class Axis:
    """Rows or columns of a sliding window.

    Attributes:
        extent: number of elements of the window.
        stride: distance between positions.
        dilation: distance between elements.
    """

    size: int
    outputs: int
    extent: int
    stride: int
    dilation: int
    before: int

    @property
    def reaches_before(self) -> bool:
        """Whether a window begins outside the image."""
        return self.before > 0

    @property
    def reaches_after(self) -> bool:
        """Whether a window ends outside the image."""
        last = (self.outputs - 1) * self.stride - self.before + (self.extent - 1) * self.dilation
        return last >= self.size

    @property
    def inside(self) -> bool:
        """Whether all windows lie inside the image."""
        return not (self.reaches_before or self.reaches_after)

    @property
    def leaves(self) -> bool:
        """Whether a window lies outside the image, where `clipped` may count below 0."""
        reach = (self.extent - 1) * self.dilation
        last = (self.outputs - 1) * self.stride - self.before
        return self.before > reach or last >= self.size

    def source(self, position: PrimExpr, element: PrimExpr) -> PrimExpr:
        """Return the index in the image of an element of the window at a position."""
        return position * int32(self.stride) + element * int32(self.dilation) - int32(self.before)

    def clipped(self, position: PrimExpr) -> Span:
        """Return the first element of the window inside the image, and the number of such elements.

        Returns:
            32-bit expressions; a negative count means none.
        """
        first, count = int32(0), int32(self.extent)
        start = position * int32(self.stride)
        if self.reaches_before:
            first = self._steps(int32(self.before) - start)
        if self.reaches_after:
            end = int32(self.size + self.before) - start
            if self.dilation == 1:
                count = tirx.min(count, tirx.max(end, int32(0)))
            else:
                # TVM 0.27 simplifies truncdiv(a - p, d) - truncdiv(b - p, d) to a wrong number
                # where a remainder is negative: the position behind the image depends on +p.
                behind = tirx.max(int32(self.extent * self.dilation) - end, int32(0))
                count = count - tirx.truncdiv(behind, int32(self.dilation))
        return first, count - first

    def _steps(self, distance: PrimExpr) -> PrimExpr:
        """Return the number of elements before a distance, possibly negative."""
        positive = tirx.max(distance, int32(0))
        if self.dilation == 1:
            return positive
        return tirx.truncdiv(positive + int32(self.dilation - 1), int32(self.dilation))
