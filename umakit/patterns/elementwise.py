# SPDX-License-Identifier: Apache-2.0
"""Patterns of sums, differences and products."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from umakit.operators.add import Add
from umakit.operators.multiply import Multiply
from umakit.operators.subtract import Subtract
from umakit.patterns import constraints as _c
from umakit.patterns.constraints import Constraint, Names
from umakit.patterns.offer import Offer
from umakit.patterns.parameters import QAdd, QMultiply, QSubtract


@dataclass(frozen=True, eq=False)
class ElementwiseOffer(Offer):
    """What sums, differences and products have in common.

    Attributes:
        rounding: of products with multipliers, see `umakit.operators`.
        broadcast: whether the driver can repeat axes of one element of an operand. It is then told
            both shapes, of four axes, instead of the number of elements.
    """

    OPERANDS: ClassVar[int] = 2
    DOES: ClassVar[str]

    rounding: Names = field(default="tflm", kw_only=True)
    broadcast: bool = field(default=False, kw_only=True)

    def _constraints(self) -> list[Constraint]:
        return [*_c.types(self.dtypes, self.rounding), self._shapes]

    def _shapes(self, known: Any) -> str:
        shapes = (known.data_shape, known.right_shape)
        left, right = ("x".join(str(n) for n in shape) for shape in shapes)
        if not self.broadcast and shapes[0] != shapes[1]:
            return f"shapes {left} and {right}: the accelerator {self.DOES} equal ones"
        if self.broadcast and max(len(shape) for shape in shapes) > 4:
            return f"shapes {left} and {right}: the driver is told four axes"
        return ""


@dataclass(frozen=True, eq=False)
class qadd(ElementwiseOffer):
    """An integer addition of two tensors."""

    KIND = QAdd
    OPERATOR = Add
    DOES = "adds"

    name: str = "qadd"


@dataclass(frozen=True, eq=False)
class qsubtract(ElementwiseOffer):
    """An integer subtraction of two tensors; the driver gets the arguments of `qadd`."""

    KIND = QSubtract
    OPERATOR = Subtract
    DOES = "subtracts"

    name: str = "qsubtract"


@dataclass(frozen=True, eq=False)
class qmultiply(ElementwiseOffer):
    """An integer product of two tensors."""

    KIND = QMultiply
    OPERATOR = Multiply
    DOES = "multiplies"

    name: str = "qmultiply"
