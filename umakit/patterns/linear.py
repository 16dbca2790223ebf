# SPDX-License-Identifier: Apache-2.0
"""Patterns of convolutions and fully connected layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from umakit import tvm_api
from umakit.operators.add import Add
from umakit.operators.conv2d import Conv2d
from umakit.operators.dense import Dense
from umakit.operators.parameters import PREFIX
from umakit.patterns import constraints as _c
from umakit.patterns.constraints import Constraint, Names, Pairs
from umakit.patterns.layouts import CONVOLUTION, DENSE
from umakit.patterns.layouts import weight_layout as read_layout
from umakit.patterns.offer import (
    ANNOTATION,
    Offer,
    WindowOffer,
    calls_of,
    calls_operator,
    with_followers,
)
from umakit.patterns.reading import Match
from umakit.patterns.refusals import OtherOperator
from umakit.patterns.weighted import QConv2d, QConv2dAdd, QDense, QDepthwise


@dataclass(frozen=True, eq=False)
class WeightedOffer(Offer):
    """What convolutions and fully connected layers have in common.

    Attributes:
        rounding: of products with multipliers, see `umakit.operators`.
        per_channel: whether a scale for each output channel will do, or only one for all.
        expand_scales: give the driver a multiplier and a shift for each output channel always,
            also where the model has one for all.
        weight_layout: in which the driver gets the weights, for example `HWIO` or `O/8 HWI 8o`.
            Bias, multipliers and shifts are filled up to whole blocks of O as well.
        fold_zero_point: let the bias hold -zero point * sum(weights). The accelerator then
            multiplies the data as they are and pads with the zero point.
    """

    OPERANDS: ClassVar[int] = 5

    rounding: Names = field(default="tflm", kw_only=True)
    per_channel: bool = field(default=True, kw_only=True)
    expand_scales: bool = field(default=False, kw_only=True)
    weight_layout: str = field(default=CONVOLUTION, kw_only=True)
    fold_zero_point: bool = field(default=False, kw_only=True)

    def _constraints(self) -> list[Constraint]:
        axes = self.KIND.AXES  # type: ignore[attr-defined]
        read_layout(self.weight_layout, axes)
        return [
            *_c.types(self.dtypes, self.rounding),
            _c.refuse_if(
                lambda known: known.per_channel and not self.per_channel,
                lambda known: (
                    f"{known.scales} scales, one for each output channel: the accelerator has 1"
                ),
            ),
        ]


@dataclass(frozen=True, eq=False)
class ConvolutionOffer(WindowOffer, WeightedOffer):
    """What convolutions of either kind have in common.

    Attributes:
        kernels: rows and columns of the window.
        dilation: distance of the window's elements.
    """

    kernels: Pairs = field(default=None, kw_only=True)
    dilation: Pairs = field(default=1, kw_only=True)

    def _constraints(self) -> list[Constraint]:
        return [
            *self._own_constraints(),
            *self._window_constraints(self.kernels, "kernel", lambda known: known.kernel),
            _c.one_of_pairs(
                self.dilation, "dilation", lambda known: known.dilation, "the accelerator has"
            ),
            *self._image_constraints(),
            *self._channel_constraints(),
            *super()._constraints(),
        ]

    def _own_constraints(self) -> list[Constraint]:
        """Those that tell the kinds apart."""
        raise NotImplementedError

    def _channel_constraints(self) -> list[Constraint]:
        return [_outputs(self.channel_multiple)]


@dataclass(frozen=True, eq=False)
class qconv2d(ConvolutionOffer):
    """An integer convolution that is not depthwise.

    Attributes:
        groups: numbers of channel groups.
        input_channel_multiple, output_channel_multiple: as `channel_multiple`, for one of them.
    """

    KIND: ClassVar[type[QConv2d]] = QConv2d
    OPERATOR = Conv2d

    name: str = "qconv2d"
    groups: int | Iterable[int] | None = field(default=1, kw_only=True)
    input_channel_multiple: int | None = field(default=None, kw_only=True)
    output_channel_multiple: int | None = field(default=None, kw_only=True)

    def _own_constraints(self) -> list[Constraint]:
        return [
            _c.refuse_if(lambda known: known.depthwise, _depthwise_refused),
            _c.one_of(
                self.groups,
                lambda known: known.groups,
                lambda found, few: f"{found} groups: the accelerator has {few}",
            ),
        ]

    def _channel_constraints(self) -> list[Constraint]:
        inputs = (self.channel_multiple, self.input_channel_multiple)
        outputs = (self.channel_multiple, self.output_channel_multiple)
        return [
            *(_c.multiple_of(n, "input channels", lambda k: k.input_channels) for n in inputs),
            *(_outputs(n) for n in outputs),
        ]


@dataclass(frozen=True, eq=False)
class qconv2d_add(qconv2d):
    """An integer convolution whose result is added to another tensor, in one call of the driver.

    The result must have no other use. The other tensor may be on either side of the addition, and
    has the shape, layout and dtype of the result; of two convolutions that are added, one is taken,
    the left one if it can be. Arguments are those of `qconv2d`, about the convolution; register it
    before `qconv2d`, which takes what is refused here. `requantize` is about the sum.
    """

    KIND = QConv2dAdd

    name: str = "qconv2d_add"

    def __iter__(self) -> Iterator[Any]:
        wildcards = [tvm_api.wildcard() for _ in range(self.OPERANDS)]
        convolution, addend = tvm_api.is_op(self.operator_name)(*wildcards), tvm_api.wildcard()
        add = tvm_api.is_op(ADD)
        sums = [add(convolution, addend), add(addend, convolution)]
        sides = zip(*(with_followers(both) for both in sums), strict=True)
        alternatives = [alternative for pair in sides for alternative in pair]
        annotations = {ANNOTATION: convolution, **dict(zip(SIDES, sums, strict=True))}
        return iter((self.name, alternatives, self, annotations))

    def __call__(self, context: Any) -> bool | str:
        answer = super().__call__(context)
        # The row of the addition is told what the convolution is refused for; that of the
        # convolution only if no other pattern says more.
        return OtherOperator(f"{self.name}: {answer}") if isinstance(answer, str) else answer

    def _match(self, context: Any) -> Match:
        found, root = context.annotated_expr, context.matched_expr
        (side,) = (position for position, name in enumerate(SIDES) if name in found)
        addition = found[SIDES[side]]
        return Match(found[ANNOTATION], addition, side, None if root.same_as(addition) else root)

    def match_of(self, function: Any) -> Match | None:
        calls = calls_of(function)
        names = (self.operator_name, ADD)
        if not 2 <= len(calls) <= 3 or not all(
            calls_operator(call, name) for (_, call), name in zip(calls, names, strict=False)
        ):
            return None
        (variable, convolution), (_, addition) = calls[:2]
        side = int(addition.args[1].same_as(variable))
        return Match(convolution, addition, side, calls[2][1] if len(calls) > 2 else None)


ADD = f"relax.{PREFIX}{Add.operator}"
SIDES = ("left", "right")
"""Under these names the predicate finds the addition; on which side the convolution is."""


@dataclass(frozen=True, eq=False)
class qdepthwise(ConvolutionOffer):
    """An integer depthwise convolution: each input channel is a group of its own.

    Of the weights' axes, `I` has one element.

    Attributes:
        multipliers: numbers of output channels for each input channel.
    """

    KIND = QDepthwise
    OPERATOR = Conv2d

    name: str = "qdepthwise"
    multipliers: int | Iterable[int] | None = field(default=1, kw_only=True)

    def _own_constraints(self) -> list[Constraint]:
        return [
            _c.refuse_if(lambda known: not known.depthwise, _depthwise_wanted),
            _c.one_of(
                self.multipliers,
                lambda known: known.output_channels // known.input_channels,
                lambda found, few: f"channel multiplier {found}: the accelerator has {few}",
            ),
        ]


@dataclass(frozen=True, eq=False)
class qdense(WeightedOffer):
    """An integer fully connected layer.

    Attributes:
        rows: largest number of rows of the data.
        input_multiple, output_multiple: what the sizes of a row of data and result are multiples
            of.
        weight_layout: for example `IO` or `O/8 I 8o`.
    """

    KIND = QDense
    OPERATOR = Dense

    name: str = "qdense"
    rows: int | None = field(default=None, kw_only=True)
    input_multiple: int | None = field(default=None, kw_only=True)
    output_multiple: int | None = field(default=None, kw_only=True)
    weight_layout: str = field(default=DENSE, kw_only=True)

    def _constraints(self) -> list[Constraint]:
        return [
            _c.at_most(self.rows, "rows", lambda known: known.rows),
            _c.multiple_of(self.input_multiple, "inputs", lambda known: known.inputs),
            _c.multiple_of(self.output_multiple, "outputs", lambda known: known.outputs),
            *super()._constraints(),
        ]


def _outputs(wanted: int | None) -> Constraint:
    return _c.multiple_of(wanted, "output channels", lambda known: known.output_channels)


def _depthwise_refused(known: QConv2d) -> str:
    return OtherOperator(f"a depthwise convolution, {known.groups} groups of one channel")


def _depthwise_wanted(known: QConv2d) -> str:
    return OtherOperator("a convolution that is not depthwise")
