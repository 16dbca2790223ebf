# SPDX-License-Identifier: Apache-2.0
"""The match of a pattern: calls of an integer operator and of the operators after it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from umakit import tvm_api
from umakit.operators.parameters import PREFIX, Parameters
from umakit.operators.requantize import Requantize
from umakit.tvm_api import Call

P = TypeVar("P", bound=Parameters)

UNIT = (2**30, 1)
"""Multiplier and shift of a factor of 1."""


class NotReadable(Exception):
    """A match that cannot become a driver call; the message says why."""


@dataclass(frozen=True)
class Match:
    """The calls replaced by one driver call.

    Attributes:
        addition: the call of the addition of the result and another tensor, or None.
        side: position of the operator's result among the operands of the addition.
        follower: the call of a clip, relu or requantize of the result, or None.
    """

    operator: Call
    addition: Call | None = None
    side: int = 0
    follower: Call | None = None

    @property
    def operands(self) -> list[tvm_api.Expr]:
        """The operands of the operator, with the addend after the data."""
        data, *constants = self.operator.args
        return [data, *constants] if self.addition is None else [data, self.addend, *constants]

    @property
    def addend(self) -> tvm_api.PrimExpr:
        """The operand of the addition besides the operator's result."""
        assert self.addition is not None
        addend: tvm_api.Expr = self.addition.args[1 - self.side]
        return addend


def absorb(parameters: P, follower: Call) -> tuple[P, Requantize | None]:
    """Return an operator that includes its follower, and a remaining requantization or None."""
    name = tvm_api.operator_name(follower)
    if name == f"{PREFIX}{Requantize.operator}":
        change = Requantize.of(follower)
        if change.rounding != parameters.rounding:
            raise NotReadable(f"rounding {parameters.rounding}, and {change.rounding} behind it")
        if change.output_dtype != parameters.output_dtype:
            raise NotReadable(f"a change from {parameters.output_dtype} to {change.output_dtype}")
        same_zero_point = change.input_zero_point == change.output_zero_point
        if (change.multiplier, change.shift) != UNIT or not same_zero_point:
            return parameters, change
        low, high = change.clip
    else:
        low, high = _bounds(follower, name)
    return _clipped(parameters, low, high), None


def _bounds(follower: Call, name: str) -> tuple[int, int]:
    if name == "nn.relu":
        return 0, 2**31 - 1
    try:
        low, high = (tvm_api.float_argument(argument) for argument in follower.args[1:3])
    except ValueError:
        raise NotReadable("the bounds of a clip are not constants") from None
    if int(low) != low or int(high) != high:
        raise NotReadable(f"a clip to {low:g} and {high:g}, which are not integers")
    return int(low), int(high)


def _clipped(parameters: P, low: int, high: int) -> P:
    least, largest = (min(max(bound, low), high) for bound in parameters.clip)
    return replace(parameters, clip=(least, largest))


def unchanged(parameters: Parameters) -> Requantize:
    """Return a requantization without effect."""
    return Requantize(
        output_shape=parameters.output_shape,
        output_dtype=parameters.output_dtype,
        output_zero_point=parameters.output_zero_point,
        clip=parameters.clip,
        rounding=parameters.rounding,
        input_zero_point=parameters.output_zero_point,
        multiplier=UNIT[0],
        shift=UNIT[1],
    )
