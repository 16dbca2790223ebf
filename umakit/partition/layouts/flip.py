# SPDX-License-Identifier: Apache-2.0
"""The other layout of tensors: channels behind the positions of an image, or before them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from umakit import tvm_api

CHANNELS_FIRST, CHANNELS_LAST = "NCHW", "NHWC"

FLAT = {CHANNELS_FIRST: "NCW", CHANNELS_LAST: "NWC"}
"""Layouts of signals, by layout of images."""

KERNELS = {CHANNELS_FIRST: "OIHW", CHANNELS_LAST: "HWIO"}
"""Weight layouts of float convolutions, by data layout."""

RANKS = (3, 4)
"""Numbers of axes of tensors that have a layout."""

Axes = tuple[int, ...]


@dataclass(frozen=True)
class Flip:
    """A change of layout of whole regions.

    Attributes:
        target: the new layout, `NHWC` or `NCHW`; the old layout is the other one.
    """

    target: str

    @property
    def source(self) -> str:
        """The layout before."""
        return CHANNELS_FIRST if self.target == CHANNELS_LAST else CHANNELS_LAST

    def axes(self, rank: int) -> Axes:
        """Return the old axes of a tensor in their new order."""
        if self.target == CHANNELS_LAST:
            return (0, *range(2, rank), 1)
        return (0, rank - 1, *range(1, rank - 1))

    def back(self, rank: int) -> Axes:
        """Return the new axes of a tensor in their old order."""
        return inverse(self.axes(rank))

    def axis(self, axis: int, rank: int) -> int:
        """Return the new place of an axis, counted from 0; `axis` may be negative."""
        return self.axes(rank).index(axis % rank)

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return a shape after the change."""
        return tuple(shape[axis] for axis in self.axes(len(shape)))

    def constant(self, expression: tvm_api.Expr, rank: int) -> tvm_api.Expr | None:
        """Return a constant operand of a tensor with `rank` axes, changed; None for other operands.

        Constants of one element broadcast anywhere and stay unchanged.
        """
        array = tvm_api.constant_array(expression)
        if array is None or array.ndim > rank:
            return None
        if array.size == 1:
            return expression
        whole = array.reshape((1,) * (rank - array.ndim) + array.shape)
        return tvm_api.relax.const(np.ascontiguousarray(whole.transpose(self.axes(rank))))


def inverse(axes: Sequence[int]) -> Axes:
    """Return the inverse permutation."""
    return tuple(axes.index(axis) for axis in range(len(axes)))


def composed(first: Sequence[int], then: Sequence[int]) -> Axes:
    """Return the permutation of two consecutive transposes."""
    return tuple(first[axis] for axis in then)


def moves_nothing(shape: Sequence[int], axes: Sequence[int]) -> bool:
    """Whether a transpose keeps the order of elements in memory, because only axes of size 1
    move."""
    moved = [axis for axis in axes if shape[axis] != 1]
    return moved == sorted(moved)
