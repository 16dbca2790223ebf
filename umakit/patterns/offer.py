# SPDX-License-Identifier: Apache-2.0
"""What a backend registers: a pattern of an integer operator, with constraints as its predicate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from umakit import tvm_api
from umakit.operators.parameters import PREFIX, Parameters
from umakit.patterns import constraints as _c
from umakit.patterns.constraints import Constraint, Names, Padding, Pairs
from umakit.patterns.parameters import Composite
from umakit.patterns.reading import Match, NotReadable, read_composite
from umakit.patterns.refusals import OtherOperator

OwnPredicate = Callable[[Any], "bool | str"]
"""Receives the composite's parameters; True accepts, a sentence refuses."""


@dataclass(frozen=True, eq=False)
class Offer:
    """An integer operator that an accelerator computes; the base of all patterns.

    `backend._register_pattern(*offer)` registers it. Fields are constraints, except where they say
    what the driver wants to be told; None stands for anything.

    Attributes:
        name: of the pattern; two patterns of one backend have two names.
        dtypes: of data and result.
        requantize: whether the driver can change the scale a second time, which it is then told
            by six more arguments.
        predicate: receives the parameters when all else holds; True accepts, a sentence refuses.

    Raises:
        BackendError: a constraint that makes no sense.
    """

    binds_constants: ClassVar[bool] = True
    """Weights are prepared when code is generated, so they have to be at hand."""

    KIND: ClassVar[type[Composite]]
    OPERATOR: ClassVar[type[Parameters]]
    OPERANDS: ClassVar[int]

    name: str
    dtypes: Names = field(default="int8", kw_only=True)
    requantize: bool = field(default=False, kw_only=True)
    predicate: OwnPredicate | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        assert self.constraints is not None  # a constraint that makes no sense is refused now

    def __iter__(self) -> Iterator[Any]:
        """The arguments of `UMABackend._register_pattern`."""
        wildcards = [tvm_api.wildcard() for _ in range(self.OPERANDS)]
        operator = tvm_api.is_op(self.operator_name)(*wildcards)
        return iter((self.name, with_followers(operator), self, {ANNOTATION: operator}))

    def __call__(self, context: Any) -> bool | str:
        """TVM's `PatternCheckContext` -> True, or why the accelerator cannot compute the match."""
        try:
            known = read_composite(self, self._match(context))
        except NotReadable as reason:
            return str(reason)
        return self.judge(known)

    def _match(self, context: Any) -> Match:
        call, root = context.annotated_expr[ANNOTATION], context.matched_expr
        return Match(call, follower=None if root.same_as(call) else root)

    def match_of(self, function: Any) -> Match | None:
        """The calls inside a composite's Relax function; None if it is not what is matched."""
        calls = calls_of(function)
        if not 1 <= len(calls) <= 2 or not calls_operator(calls[0][1], self.operator_name):
            return None
        return Match(calls[0][1], follower=calls[1][1] if len(calls) > 1 else None)

    @property
    def operator_name(self) -> str:
        """Of the integer operator, as TVM has it."""
        return f"relax.{PREFIX}{self.OPERATOR.operator}"

    def judge(self, known: Any) -> bool | str:
        """True if the accelerator can compute an operator with these parameters, else why not."""
        reasons = [reason for reason in (check(known) for check in self.constraints) if reason]
        others = [reason for reason in reasons if isinstance(reason, OtherOperator)]
        if others:
            return others[0]
        if reasons:
            return "; ".join(reasons)
        return True if self.predicate is None else self.predicate(known)

    @cached_property
    def constraints(self) -> tuple[Constraint, ...]:
        """All that must hold."""
        return tuple(self._constraints())

    def _constraints(self) -> list[Constraint]:
        return _c.types(self.dtypes)


@dataclass(frozen=True, eq=False)
class WindowOffer(Offer):
    """What convolutions and pools have in common.

    Attributes:
        strides: steps of the window, `2`, `(1, 2)` or `[1, (1, 2)]`.
        padding: `"valid"`, `"same"` (TensorFlow's), a number for each side, or (top, left, bottom,
            right).
        batch: largest number of images.
        channel_multiple: what the numbers of input and of output channels are multiples of; of a
            depthwise convolution, that of output channels.
        layouts: of data and result, `"NHWC"` or `"NCHW"`.
    """

    strides: Pairs = field(default=None, kw_only=True)
    padding: Padding = field(default=None, kw_only=True)
    batch: int | None = field(default=1, kw_only=True)
    channel_multiple: int | None = field(default=None, kw_only=True)
    layouts: Names = field(default="NHWC", kw_only=True)

    def _window_constraints(self, sizes: Pairs, name: str, read: Any) -> list[Constraint]:
        """Of a window whose rows and columns `read` finds; `name` is what they are called."""
        return [
            _c.one_of_pairs(sizes, name, read, "the accelerator has"),
            _c.one_of_pairs(
                self.strides, "stride", lambda known: known.strides, "the accelerator steps by"
            ),
            _c.padding_is(self.padding),
        ]

    def _image_constraints(self) -> list[Constraint]:
        return [
            _c.at_most(self.batch, "images", lambda known: known.batch),
            _c.one_of(
                _c.checked_names(self.layouts, "layout", _c.LAYOUTS),
                lambda known: known.data_layout,
                lambda found, few: f"layout {found}: the accelerator reads {few}",
            ),
        ]


ANNOTATION = "operator"
"""Under this name the predicate finds the integer operator of a match."""


def calls_of(function: Any) -> list[tuple[Any, Any]]:
    """(variable, call): those of a composite's Relax function in their order."""
    return [
        (binding.var, binding.value)
        for binding in tvm_api.bindings_of(function)
        if isinstance(binding.value, tvm_api.Call)
    ]


def calls_operator(call: Any, name: str) -> bool:
    """Whether a call is one of a Relax operator, of a name like `relax.clip`."""
    return str(getattr(call.op, "name", "")) == name


def with_followers(operator: Any) -> Sequence[Any]:
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
