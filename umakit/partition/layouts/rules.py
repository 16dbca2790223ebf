# SPDX-License-Identifier: Apache-2.0
"""Rules for operators in the other layout; operators without a rule keep their layout.

A rule changes the order of elements, never their values: integers stay the same bit for bit, and
floats up to the order of sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from umakit import tvm_api
from umakit.partition.layouts.flip import RANKS, Flip
from umakit.tvm_api import Call

Expr = tvm_api.Expr


class Operands(Protocol):
    """The operands of the new call."""

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

    Args:
        call: the call.
        change: function that returns the changed attributes by name.
        follows, has_layout: as in `Rule`.
    """
    data, *rest = call.args

    def build(operands: Operands) -> Expr:
        others = [operands.plain(operand) for operand in rest]
        return made(call, [operands.flipped(data), *others], change())

    return Rule((data,), build, follows, has_layout)
