# SPDX-License-Identifier: Apache-2.0
"""Patterns of convolutions and fully connected layers."""

from __future__ import annotations

from collections.abc import Iterable

from umakit.backend import OtherOperator
from umakit.patterns import constraints as _c
from umakit.patterns.constraints import Constraint, Names, Padding, Pairs
from umakit.patterns.layouts import CONVOLUTION, DENSE
from umakit.patterns.layouts import weight_layout as read_layout
from umakit.patterns.offer import Offer, OwnPredicate, Registration
from umakit.patterns.parameters import QConv2d, QDense, QDepthwise
from umakit.quantization.operators import Conv2d, Dense


def qconv2d(
    name: str = "qconv2d",
    *,
    kernels: Pairs = None,
    strides: Pairs = None,
    dilation: Pairs = 1,
    padding: Padding = None,
    groups: int | Iterable[int] | None = 1,
    batch: int | None = 1,
    channel_multiple: int | None = None,
    input_channel_multiple: int | None = None,
    output_channel_multiple: int | None = None,
    per_channel: bool = True,
    dtypes: Names = "int8",
    layouts: Names = "NHWC",
    rounding: Names = "tflm",
    weight_layout: str = CONVOLUTION,
    fold_zero_point: bool = False,
    requantize: bool = False,
    predicate: OwnPredicate | None = None,
) -> Registration:
    """An integer convolution that is not depthwise.

    Args:
        name: of the pattern; two patterns of one backend have two names.
        kernels: rows and columns of the window.
        strides: steps of the window.
        dilation: distance of the window's elements.
        padding: `"valid"`, `"same"` (TensorFlow's), a number for each side, or (top, left, bottom,
            right).
        groups: numbers of channel groups.
        batch: largest number of images.
        channel_multiple: what the numbers of input and of output channels are multiples of.
        input_channel_multiple, output_channel_multiple: the same for one of them.
        per_channel: whether a scale for each output channel will do, or only one for all.
        dtypes: of data and result.
        layouts: of data and result.
        rounding: of products with multipliers, see `umakit.quantization.Rounding`.
        weight_layout: in which the driver gets the weights, for example `HWIO` or `O/8 HWI 8o`.
        fold_zero_point: let the bias hold -zero point * sum(weights). The accelerator then
            multiplies the data as they are and pads with the zero point.
        requantize: whether the driver can change the scale a second time, which it is then told
            by six more arguments.
        predicate: receives `QConv2d` when all else holds; True accepts, a sentence refuses.

    Returns:
        What `UMABackend._register_pattern` takes.

    Raises:
        BackendError: a constraint or layout that makes no sense.
    """
    checks = [
        _c.refuse_if(lambda known: known.depthwise, _depthwise_refused),
        *_c.types(dtypes, rounding),
        *_c.windows(kernels, strides, padding, "kernel", lambda known: known.kernel),
        _dilation(dilation),
        _groups(groups),
        *_c.images(batch, layouts),
        _c.multiple_of(channel_multiple, "input channels", _input_channels),
        _c.multiple_of(channel_multiple, "output channels", _output_channels),
        _c.multiple_of(input_channel_multiple, "input channels", _input_channels),
        _c.multiple_of(output_channel_multiple, "output channels", _output_channels),
        _scales(per_channel),
    ]
    offer = Offer(
        name, QConv2d, Conv2d, tuple(checks), predicate,
        _checked(weight_layout, CONVOLUTION), fold_zero_point, requantize,
    )  # fmt: skip
    return offer.registration(operands=5)


def qdepthwise(
    name: str = "qdepthwise",
    *,
    kernels: Pairs = None,
    strides: Pairs = None,
    dilation: Pairs = 1,
    padding: Padding = None,
    multipliers: int | Iterable[int] | None = 1,
    batch: int | None = 1,
    channel_multiple: int | None = None,
    per_channel: bool = True,
    dtypes: Names = "int8",
    layouts: Names = "NHWC",
    rounding: Names = "tflm",
    weight_layout: str = CONVOLUTION,
    fold_zero_point: bool = False,
    requantize: bool = False,
    predicate: OwnPredicate | None = None,
) -> Registration:
    """An integer depthwise convolution: each input channel is a group of its own.

    Args:
        multipliers: numbers of output channels for each input channel.
        channel_multiple: what the number of output channels is a multiple of.

    The other arguments are those of `qconv2d`. Of the weights' axes, `I` has one element.
    """
    checks = [
        _c.refuse_if(lambda known: not known.depthwise, _depthwise_wanted),
        *_c.types(dtypes, rounding),
        *_c.windows(kernels, strides, padding, "kernel", lambda known: known.kernel),
        _dilation(dilation),
        _c.one_of(
            multipliers,
            lambda known: known.output_channels // known.input_channels,
            lambda found, few: f"channel multiplier {found}: the accelerator has {few}",
        ),
        *_c.images(batch, layouts),
        _c.multiple_of(channel_multiple, "output channels", _output_channels),
        _scales(per_channel),
    ]
    offer = Offer(
        name, QDepthwise, Conv2d, tuple(checks), predicate,
        _checked(weight_layout, CONVOLUTION), fold_zero_point, requantize,
    )  # fmt: skip
    return offer.registration(operands=5)


def qdense(
    name: str = "qdense",
    *,
    rows: int | None = None,
    input_multiple: int | None = None,
    output_multiple: int | None = None,
    per_channel: bool = True,
    dtypes: Names = "int8",
    rounding: Names = "tflm",
    weight_layout: str = DENSE,
    fold_zero_point: bool = False,
    requantize: bool = False,
    predicate: OwnPredicate | None = None,
) -> Registration:
    """An integer fully connected layer.

    Args:
        rows: largest number of rows of the data.
        input_multiple, output_multiple: what the sizes of a row of data and result are multiples
            of.
        weight_layout: for example `IO` or `O/8 I 8o`.

    The other arguments are those of `qconv2d`.
    """
    checks = [
        *_c.types(dtypes, rounding),
        _c.at_most(rows, "rows", lambda known: known.rows),
        _c.multiple_of(input_multiple, "inputs", lambda known: known.inputs),
        _c.multiple_of(output_multiple, "outputs", lambda known: known.outputs),
        _scales(per_channel),
    ]
    offer = Offer(
        name, QDense, Dense, tuple(checks), predicate,
        _checked(weight_layout, DENSE), fold_zero_point, requantize,
    )  # fmt: skip
    return offer.registration(operands=5)


def _input_channels(known: QConv2d) -> int:
    return known.input_channels


def _output_channels(known: QConv2d) -> int:
    return known.output_channels


def _depthwise_refused(known: QConv2d) -> str:
    return OtherOperator(f"a depthwise convolution, {known.groups} groups of one channel")


def _depthwise_wanted(known: QConv2d) -> str:
    return OtherOperator("a convolution that is not depthwise")


def _dilation(dilation: Pairs) -> Constraint:
    return _c.one_of_pairs(
        dilation, "dilation", lambda known: known.dilation, "the accelerator has"
    )


def _groups(groups: int | Iterable[int] | None) -> Constraint:
    return _c.one_of(
        groups, lambda known: known.groups, lambda found, few: f"{found} groups: the accelerator "
        f"has {few}",
    )  # fmt: skip


def _scales(per_channel: bool) -> Constraint:
    return _c.refuse_if(
        lambda known: known.per_channel and not per_channel,
        lambda known: f"{known.scales} scales, one for each output channel: the accelerator has 1",
    )


def _checked(text: str, axes: str) -> str:
    """A layout's text, after a look that it makes sense."""
    read_layout(text, axes)
    return text
