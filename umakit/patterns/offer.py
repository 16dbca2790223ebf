# SPDX-License-Identifier: Apache-2.0
"""What a backend registers: a pattern of an integer operator, with constraints as its predicate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from umakit import tvm_api
from umakit.backend import OtherOperator
from umakit.patterns.constraints import Constraint
from umakit.patterns.parameters import Composite
from umakit.patterns.reading import NotReadable, read_composite
from umakit.quantization.operators import PREFIX, Parameters

OwnPredicate = Callable[[Any], "bool | str"]
"""Receives the composite's parameters; True accepts, a sentence refuses."""

Registration = tuple[str, Any, "Offer", dict[str, Any]]
"""Arguments of `UMABackend._register_pattern`."""


@dataclass(frozen=True)
class Offer:
    """A predicate for `_register_pattern` that knows what the backend wants to be told.

    Attributes:
        name: of the pattern.
        kind: of the parameters.
        operator: the integer operator.
        constraints: all that must hold.
        predicate: the backend's own, asked when they do; None for none.
        weight_layout: in which the driver gets weights; empty where there are none.
        fold_zero_point: whether the bias shall hold the input's zero point.
        requantize: whether the accelerator can change the scale a second time.
        broadcast: whether it combines operands of different shapes.
    """

    binds_constants: ClassVar[bool] = True
    """Weights are prepared when code is generated, so they have to be at hand."""

    name: str
    kind: type[Composite]
    operator: type[Parameters]
    constraints: tuple[Constraint, ...]
    predicate: OwnPredicate | None = None
    weight_layout: str = ""
    fold_zero_point: bool = False
    requantize: bool = False
    broadcast: bool = False

    def __call__(self, context: Any) -> bool | str:
        """TVM's `PatternCheckContext` -> True, or why the accelerator cannot compute the match."""
        call = context.annotated_expr[ANNOTATION]
        root = context.matched_expr
        try:
            known = read_composite(self, call, None if root.same_as(call) else root)
        except NotReadable as reason:
            return str(reason)
        return self.judge(known)

    def judge(self, known: Any) -> bool | str:
        """True if the accelerator can compute an operator with these parameters, else why not."""
        reasons = [reason for reason in (check(known) for check in self.constraints) if reason]
        others = [reason for reason in reasons if isinstance(reason, OtherOperator)]
        if others:
            return others[0]
        if reasons:
            return "; ".join(reasons)
        return True if self.predicate is None else self.predicate(known)

    def registration(self, operands: int) -> Registration:
        """Arguments of `_register_pattern`.

        Args:
            operands: of the integer operator.
        """
        wildcards = [tvm_api.wildcard() for _ in range(operands)]
        operator = tvm_api.is_op(f"relax.{PREFIX}{self.operator.operator}")(*wildcards)
        return self.name, _with_followers(operator), self, {ANNOTATION: operator}


ANNOTATION = "operator"
"""Under this name the predicate finds the integer operator of a match."""


def _with_followers(operator: Any) -> Sequence[Any]:
    """Patterns to try one after the other: the operator with what may stand behind it, then alone.

    What a network has of that kind is mostly part of the integer operators already.
    """
    is_op, wildcard = tvm_api.is_op, tvm_api.wildcard
    return [
        is_op("relax.clip")(operator, wildcard(), wildcard()),
        is_op("relax.nn.relu")(operator),
        is_op(f"relax.{PREFIX}requantize")(operator),
        operator,
    ]
