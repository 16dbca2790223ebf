# SPDX-License-Identifier: Apache-2.0
"""Patterns of sums and products."""

from __future__ import annotations

from typing import Any

from umakit.patterns import constraints as _c
from umakit.patterns.constraints import Constraint, Names
from umakit.patterns.offer import Offer, OwnPredicate, Registration
from umakit.patterns.parameters import QAdd, QMultiply
from umakit.quantization.operators import Add, Multiply


def qadd(
    name: str = "qadd",
    *,
    broadcast: bool = False,
    dtypes: Names = "int8",
    rounding: Names = "tflm",
    requantize: bool = False,
    predicate: OwnPredicate | None = None,
) -> Registration:
    """An integer addition of two tensors.

    Args:
        broadcast: whether the driver can repeat axes of one element of an operand. It is then told
            both shapes, of four axes, instead of the number of elements.

    The other arguments are those of `qconv2d`.
    """
    checks = (*_c.types(dtypes, rounding), _shapes("adds", broadcast))
    offer = Offer(name, QAdd, Add, checks, predicate, requantize=requantize, broadcast=broadcast)
    return offer.registration(operands=2)


def qmultiply(
    name: str = "qmultiply",
    *,
    broadcast: bool = False,
    dtypes: Names = "int8",
    rounding: Names = "tflm",
    requantize: bool = False,
    predicate: OwnPredicate | None = None,
) -> Registration:
    """An integer product of two tensors; arguments as of `qadd`."""
    checks = (*_c.types(dtypes, rounding), _shapes("multiplies", broadcast))
    offer = Offer(
        name, QMultiply, Multiply, checks, predicate, requantize=requantize, broadcast=broadcast
    )
    return offer.registration(operands=2)


def _shapes(does: str, broadcast: bool) -> Constraint:
    def check(known: Any) -> str:
        shapes = (known.data_shape, known.right_shape)
        left, right = ("x".join(str(n) for n in shape) for shape in shapes)
        if not broadcast and shapes[0] != shapes[1]:
            return f"shapes {left} and {right}: the accelerator {does} equal ones"
        if broadcast and max(len(shape) for shape in shapes) > 4:
            return f"shapes {left} and {right}: the driver is told four axes"
        return ""

    return check
