# SPDX-License-Identifier: Apache-2.0
"""Patterns for backends: an integer operator, with constraints as the predicate."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar

import numpy.typing as npt

from umakit import tvm_api
from umakit.errors import short_path
from umakit.operators.offload import constraints as _c
from umakit.operators.offload.composite import Composite, Shape
from umakit.operators.offload.matching import Match, NotReadable, absorb, unchanged
from umakit.operators.offload.rounding import own_rounding, rounded_by
from umakit.operators.parameters import PREFIX, Pair, Parameters
from umakit.tvm_api import Call

Arrays = Sequence[npt.NDArray[Any] | None]
"""Weights, bias, multipliers and shifts; None for one that is not a constant."""

OwnPredicate = Callable[[Any], "bool | str"]
"""Receives the composite's parameters; True accepts, a sentence refuses."""


SECTION = re.compile(r"^(Attributes|Raises):\n((?:(?: +.*)?\n?)*)", re.MULTILINE)
ENTRY = re.compile(r"^    (\w+): .*(?:\n     .*)*", re.MULTILINE)


def inherited_docstring(cls: type) -> str | None:
    """Return a class's docstring with the attributes and errors described by its bases.

    Args:
        cls: a class; docstrings of its bases are complete already.

    Returns:
        The docstring in Google's style, inherited entries first; None without a docstring.
    """
    own = vars(cls).get("__doc__")
    if own is None:
        return None
    sections: dict[str, dict[str, str]] = {"Attributes": {}, "Raises": {}}
    for text in (*(base.__doc__ or "" for base in reversed(cls.__bases__)), own):
        for title, body in SECTION.findall(f"{inspect.cleandoc(text)}\n"):
            for entry in ENTRY.finditer(body):
                sections[title][entry[1]] = entry[0]
    parts = [SECTION.sub("", f"{inspect.cleandoc(own)}\n").strip()]
    parts += [
        "\n".join([f"{title}:", *found.values()]) for title, found in sections.items() if found
    ]
    return "\n\n".join(parts)


@dataclass(frozen=True, eq=False)
class OperatorPattern:
    """An integer operator of an accelerator; the base of all patterns.

    `backend._register_pattern(*pattern)` registers a pattern. Fields are constraints, except fields
    that begin with "the driver gets"; None stands for anything.

    Attributes:
        name: name of the pattern, unique in a backend.
        dtypes: supported dtypes of data and result.
        requantize: the driver gets six more arguments, for a second requantization.
        predicate: function of the parameters, called if all constraints hold; True accepts, a
            sentence refuses.

    Raises:
        BackendError: a constraint is invalid.
    """

    binds_constants: ClassVar[bool] = True
    """Weights are prepared when code is generated, so they have to be at hand."""

    KIND: ClassVar[type[Composite]]
    OPERATOR: ClassVar[type[Parameters]]
    OPERANDS: ClassVar[int]

    place = ""
    """File and line of the call that made it."""

    name: str
    dtypes: _c.Names = field(default="int8", kw_only=True)
    requantize: bool = field(default=False, kw_only=True)
    predicate: OwnPredicate | None = field(default=None, kw_only=True)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.__doc__ = inherited_docstring(cls)

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", _caller())
        for name in ("rounding", "dtypes"):  # read several times
            given = getattr(self, name, None)
            if given is not None and not isinstance(given, str):
                object.__setattr__(self, name, tuple(given))
        for item in fields(self):
            if isinstance(given := getattr(self, item.name), Iterator):
                object.__setattr__(self, item.name, list(given))
        _c.check_function(self.predicate, f"predicate of pattern {self.name}", 1)
        assert self.constraints is not None  # refuses invalid constraints now

    def __iter__(self) -> Iterator[Any]:
        """The arguments of `UMABackend._register_pattern`."""
        wildcards = [tvm_api.wildcard() for _ in range(self.OPERANDS)]
        operator = tvm_api.is_op(self.operator_name)(*self._operands(wildcards))
        return iter((self.name, self._alternatives(operator), self, {ANNOTATION: operator}))

    def _operands(self, wildcards: list[tvm_api.DFPattern]) -> list[tvm_api.DFPattern]:
        return wildcards

    def _alternatives(self, operator: tvm_api.DFPattern) -> Sequence[tvm_api.DFPattern]:
        """Return TVM's patterns, tried in this order."""
        return with_followers(operator)

    def __call__(self, context: tvm_api.PatternCheckContext) -> bool | str:
        """Return True for TVM's `PatternCheckContext`, or the reason of the refusal."""
        try:
            layer = self.composite_in(context)
        except NotReadable as reason:
            return str(reason)
        return self.accepts(layer)

    def composite_in(self, context: tvm_api.PatternCheckContext) -> Composite:
        """Return the parameters of a match of this pattern.

        Raises:
            NotReadable: as in `composite_of`.
        """
        return self.composite_of(self._match(context))

    def _match(self, context: tvm_api.PatternCheckContext) -> Match:
        call = as_call(context.annotated_expr[ANNOTATION])
        root = as_call(context.matched_expr)
        return Match(call, follower=None if root.same_as(call) else root)

    def match_of(self, function: tvm_api.Function) -> Match | None:
        """Return the calls inside a composite's Relax function; None for another function."""
        calls = calls_of(function)
        if not 1 <= len(calls) <= 2 or not calls_operator(calls[0][1], self.operator_name):
            return None
        return Match(calls[0][1], follower=calls[1][1] if len(calls) > 1 else None)

    def composite_of(self, match: Match, arrays: Arrays | None = None) -> Composite:
        """Return the parameters of a composite.

        Args:
            arrays: weights, bias, multipliers and shifts; default: constants among the operands.

        Raises:
            NotReadable: a shape is symbolic, weights are not constant, the types of an addition
                differ, or the accelerator does not support the follower.
        """
        found = [tvm_api.static_shape(operand) for operand in match.operands]
        shapes = [shape for shape in found if shape is not None]
        if not shapes or len(shapes) != len(found):
            raise NotReadable("a symbolic shape: the driver needs every size at compile time")
        parameters = self.OPERATOR.of(match.operator)
        last, then = self._last_operator(parameters, match), None
        if match.follower is not None:
            last, then = absorb(last, match.follower)
        if then is not None and not self.requantize:
            raise NotReadable(
                "a second change of scale behind it: the accelerator rescales a result once"
            )
        if self.requantize and then is None:
            then = unchanged(last)
        data_dtype = tvm_api.dtype_of(match.operands[0])
        values = {
            **self._operator_fields(parameters, last),
            "data_shape": shapes[0],
            "data_dtype": data_dtype,
            "then": then,
        }
        layer = self.KIND(**values, **self._fields(parameters, match, shapes, arrays))
        rounded: Composite = rounded_by(layer, self.own_rounding)
        return rounded

    @property
    def own_rounding(self) -> str:
        """The rounding that replaces the model's; empty without one."""
        return own_rounding(getattr(self, "rounding", None))

    def stored_fields(self, data_dtype: str) -> dict[str, Any]:
        """Return the fields of the parameters that depend on the pattern's arguments."""
        return {}

    def _last_operator(self, parameters: Parameters, match: Match) -> Parameters:
        return parameters

    def _operator_fields(self, parameters: Parameters, last: Parameters) -> dict[str, Any]:
        return asdict(last)

    def _fields(
        self, parameters: Parameters, match: Match, shapes: list[Shape], arrays: Arrays | None
    ) -> dict[str, Any]:
        return {}

    @property
    def operator_name(self) -> str:
        """Name of the integer operator in TVM."""
        return f"relax.{PREFIX}{self.OPERATOR.operator}"

    def accepts(self, layer: Composite) -> bool | str:
        """Return True if the accelerator can compute an operator, else the reason why not."""
        reasons = self.broken(layer)
        others = [reason for reason in reasons if isinstance(reason, _c.OtherOperator)]
        if others:
            return others[0]
        if reasons:
            # Regions get the layout of patterns, so the layout is the last reason to report.
            telling = [reason for reason in reasons if not isinstance(reason, _c.OtherLayout)]
            return "; ".join(dict.fromkeys(telling)) if telling else _c.OtherLayout(reasons[0])
        return True if self.predicate is None else self.predicate(layer)

    def broken(self, layer: Composite) -> list[str]:
        """Return one reason for each broken constraint."""
        return [reason for reason in (check(layer) for check in self.constraints) if reason]

    @cached_property
    def constraints(self) -> tuple[_c.Constraint, ...]:
        """Return all constraints."""
        return tuple(self._constraints())

    def _constraints(self) -> list[_c.Constraint]:
        return _c.types(self.dtypes)


@dataclass(frozen=True, eq=False)
class WindowPattern(OperatorPattern):
    """Constraints of convolutions and pools.

    Attributes:
        strides: supported strides, `2`, `(1, 2)` or `[1, (1, 2)]`.
        padding: supported paddings: `"valid"`, `"same"` (TensorFlow's), a number for each side, or
            (top, left, bottom, right).
        batch: largest number of images.
        channel_multiple: divisor of the numbers of input and of output channels; for a depthwise
            convolution, of the number of output channels.
        layouts: layout of data and result, `"NHWC"` or `"NCHW"`.
    """

    strides: _c.Pairs = field(default=None, kw_only=True)
    padding: _c.Padding = field(default=None, kw_only=True)
    batch: int | None = field(default=1, kw_only=True)
    channel_multiple: int | None = field(default=None, kw_only=True)
    layouts: _c.Names = field(default="NHWC", kw_only=True)

    def _window_constraints(
        self, sizes: _c.Pairs, name: str, read: Callable[[Any], Pair]
    ) -> list[_c.Constraint]:
        """Return the constraints on a window; `read` returns rows and columns, called `name`."""
        return [
            _c.one_of_pairs(sizes, name, read, "the accelerator has"),
            _c.one_of_pairs(
                self.strides, "stride", lambda layer: layer.strides, "the accelerator steps by"
            ),
            _c.padding_is(self.padding),
        ]

    def _image_constraints(self) -> list[_c.Constraint]:
        return [
            _c.at_most(self.batch, "images", lambda layer: layer.batch),
            _c.one_of(
                _c.checked_names(self.layouts, "layout", _c.LAYOUTS),
                lambda layer: layer.data_layout,
                lambda found, few: _c.OtherLayout(f"layout {found}: the accelerator reads {few}"),
            ),
        ]


OWN_MODULE = re.compile(r"umakit\.(?!backends\.)")


def _caller() -> str:
    frame = sys._getframe()
    while frame.f_back is not None and (
        frame.f_code.co_filename == "<string>"  # a constructor of a dataclass
        or OWN_MODULE.match(str(frame.f_globals.get("__name__")))
    ):
        frame = frame.f_back
    return f"{short_path(frame.f_code.co_filename)}:{frame.f_lineno}"


ANNOTATION = "operator"
"""Under this name the predicate finds the integer operator of a match."""


def as_call(expression: tvm_api.Expr) -> Call:
    """Return the matched call."""
    assert isinstance(expression, Call)
    return expression


def calls_of(function: tvm_api.Function) -> list[tuple[tvm_api.Var, Call]]:
    """Return the (variable, call) pairs of a composite's Relax function in order."""
    return [
        (binding.var, binding.value)
        for binding in tvm_api.bindings_of(function)
        if isinstance(binding.value, Call)
    ]


def calls_operator(call: Call, name: str) -> bool:
    """Whether a call is of the named Relax operator, for example `relax.clip`."""
    return str(getattr(call.op, "name", "")) == name


def with_followers(operator: tvm_api.DFPattern) -> Sequence[tvm_api.DFPattern]:
    """Return the patterns to try in order: the operator with each follower, then alone.

    Most clips and requantizations of a network are already part of the integer operators.
    """
    is_op, wildcard = tvm_api.is_op, tvm_api.wildcard
    return [
        is_op("relax.clip")(operator, wildcard(), wildcard()),
        is_op("relax.nn.relu")(operator),
        is_op(f"relax.{PREFIX}requantize")(operator),
        operator,
    ]
