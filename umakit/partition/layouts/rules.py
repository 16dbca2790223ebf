# SPDX-License-Identifier: Apache-2.0
"""Rules for operators in the other layout; operators without a rule keep their layout.

A rule changes the order of elements, never their values: integers stay the same bit for bit, and
floats up to the order of sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from umakit import tvm_api
from umakit.tvm_api import Call

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
    """A change of layout of whole regions to `target`, `NHWC` or `NCHW`, from the other one."""

    target: str

    @property
    def source(self) -> str:
        return CHANNELS_FIRST if self.target == CHANNELS_LAST else CHANNELS_LAST

    def axes(self, rank: int) -> Axes:
        """Return the old axes of a tensor in their new order."""
        if self.target == CHANNELS_LAST:
            return (0, *range(2, rank), 1)
        return (0, rank - 1, *range(1, rank - 1))

    def back(self, rank: int) -> Axes:
        """Return the new axes of a tensor in their old order."""
        axes = self.axes(rank)
        return tuple(axes.index(axis) for axis in range(rank))

    def axis(self, axis: int, rank: int) -> int:
        """Return the new place of an axis, counted from 0; `axis` may be negative."""
        return self.axes(rank).index(axis % rank)

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
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


def moves_nothing(shape: Sequence[int], axes: Sequence[int]) -> bool:
    """Whether a transpose keeps elements in order, because only axes of size 1 move."""
    moved = [axis for axis in axes if shape[axis] != 1]
    return moved == sorted(moved)


Expr = tvm_api.Expr


class Operands(Protocol):
    def flipped(self, operand: Any) -> Expr:
        """Return a variable of the network in the other layout."""

    def plain(self, operand: Expr) -> Expr:
        """Return an operand in the network's layout."""


Build = Callable[[Operands], Expr]


@dataclass(frozen=True)
class Rule:
    """An operator that can compute in the other layout.

    Attributes:
        operands: variables that the operator reads in the other layout.
        build: function that makes the call, or returns an existing expression.
        follows: whether the result has the other layout too.
        has_layout: whether the operator has a layout, as convolutions and pools do.
        moved: elements that the operator moves unchanged, (now, in the other layout).
    """

    operands: tuple[Any, ...]
    build: Build
    follows: bool = True
    has_layout: bool = False
    moved: tuple[int, int] = (0, 0)


RuleOf = Callable[[Call, Flip], "Rule | None"]
"""(call, change of layout) -> its rule; None if the call keeps its layout."""


def has_layout(expression: Expr) -> bool:
    """Whether an expression is a tensor with a static shape and the number of axes of a layout."""
    shape = tvm_api.static_shape(expression)
    return shape is not None and len(shape) in RANKS


def is_variable(expression: object) -> bool:
    """Whether an operand is computed or an input, and no constant or number."""
    return isinstance(expression, tvm_api.Var)


def made(call: Call, operands: Sequence[Expr], changed: dict[str, Any]) -> Call:
    """Return a call with other operands and some attributes changed."""
    attributes = call.attrs
    if attributes is not None and changed:
        attributes = tvm_api.changed_attributes(attributes, changed)
    return tvm_api.relax.Call(call.op, list(operands), attributes, call.ty_args, call.span)


def one_operand(
    call: Call,
    change: Callable[[], dict[str, Any]],
    *,
    follows: bool = True,
    has_layout: bool = False,
) -> Rule:
    """Return the rule of an operator with a layout of only its first operand.

    `change` returns the changed attributes by name.
    """
    data, *rest = call.args

    def build(operands: Operands) -> Expr:
        others = [operands.plain(operand) for operand in rest]
        return made(call, [operands.flipped(data), *others], change())

    return Rule((data,), build, follows, has_layout)
