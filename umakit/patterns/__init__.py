# SPDX-License-Identifier: Apache-2.0
"""Patterns of integer operators, ready to register in a backend.

    from umakit import patterns

    self._register_pattern(*patterns.qconv2d(strides=(1, 2), kernels=(1, 3), channel_multiple=8))
    self._register_tir_pass(PassPhase.TIR_PHASE_0, patterns.driver_calls(qconv2d="my_npu_qconv2d"))

Bias, activation and the change of scale are part of the operators; what remains of that kind behind
one is taken in. Every argument of a pattern is a constraint. One that fails is told to the user in
the offload table with its values; None stands for anything. Sizes are `3` or `(3, 3)` for one, a
list like `[1, (3, 5)]` for several.

The driver gets pointers, then 32-bit integers, in an order that `c_declaration` prints. A TIR pass
that needs another order builds its call from `parameters_of`. Until there is a pass, the operator
runs as plain loops over the same arrays, which is what the driver has to equal.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from umakit.backend import OtherOperator
from umakit.patterns import constraints as _c
from umakit.patterns.constraints import Constraint, Padding, Pairs
from umakit.patterns.driver import c_declaration, driver_call, driver_calls, parameters_of
from umakit.patterns.layouts import CONVOLUTION, DENSE, WeightLayout, weight_layout
from umakit.patterns.offer import Offer, OwnPredicate, Registration
from umakit.patterns.parameters import (
    ROUNDINGS,
    Composite,
    QAdd,
    QAveragePool2d,
    QConv2d,
    QDense,
    QDepthwise,
    QMaxPool2d,
    QMultiply,
    QPool2d,
)
from umakit.quantization.operators import (
    Add,
    AveragePool2d,
    Conv2d,
    Dense,
    MaxPool2d,
    Multiply,
)

__all__ = [
    "Composite",
    "Offer",
    "QAdd",
    "QAveragePool2d",
    "QConv2d",
    "QDense",
    "QDepthwise",
    "QMaxPool2d",
    "QMultiply",
    "QPool2d",
    "WeightLayout",
    "c_declaration",
    "driver_call",
    "driver_calls",
    "parameters_of",
    "qadd",
    "qavg_pool2d",
    "qconv2d",
    "qdense",
    "qdepthwise",
    "qmax_pool2d",
    "qmultiply",
    "weight_layout",
]

LAYOUTS = ("NHWC", "NCHW")
Names = str | Iterable[str] | None


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
        *_types(dtypes, rounding),
        *_windows(kernels, strides, padding, "kernel", lambda known: known.kernel),
        _dilation(dilation),
        _groups(groups),
        *_images(batch, layouts),
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
        *_types(dtypes, rounding),
        *_windows(kernels, strides, padding, "kernel", lambda known: known.kernel),
        _dilation(dilation),
        _c.one_of(
            multipliers,
            lambda known: known.output_channels // known.input_channels,
            lambda found, few: f"channel multiplier {found}: the accelerator has {few}",
        ),
        *_images(batch, layouts),
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
        *_types(dtypes, rounding),
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
    checks = (*_types(dtypes, rounding), _shapes("adds", broadcast))
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
    checks = (*_types(dtypes, rounding), _shapes("multiplies", broadcast))
    offer = Offer(
        name, QMultiply, Multiply, checks, predicate, requantize=requantize, broadcast=broadcast
    )
    return offer.registration(operands=2)


def qavg_pool2d(
    name: str = "qavg_pool2d",
    *,
    windows: Pairs = None,
    strides: Pairs = None,
    padding: Padding = None,
    batch: int | None = 1,
    channel_multiple: int | None = None,
    dtypes: Names = "int8",
    layouts: Names = "NHWC",
    requantize: bool = False,
    predicate: OwnPredicate | None = None,
) -> Registration:
    """An integer average pool; padding is left out of the mean, ties go away from zero.

    Args:
        windows: rows and columns.
        channel_multiple: what the number of channels is a multiple of.

    The other arguments are those of `qconv2d`.
    """
    checks = _pool(windows, strides, padding, batch, channel_multiple, dtypes, layouts)
    offer = Offer(name, QAveragePool2d, AveragePool2d, checks, predicate, requantize=requantize)
    return offer.registration(operands=1)


def qmax_pool2d(
    name: str = "qmax_pool2d",
    *,
    windows: Pairs = None,
    strides: Pairs = None,
    padding: Padding = None,
    batch: int | None = 1,
    channel_multiple: int | None = None,
    dtypes: Names = "int8",
    layouts: Names = "NHWC",
    requantize: bool = False,
    predicate: OwnPredicate | None = None,
) -> Registration:
    """An integer max pool; arguments as of `qavg_pool2d`."""
    checks = _pool(windows, strides, padding, batch, channel_multiple, dtypes, layouts)
    offer = Offer(name, QMaxPool2d, MaxPool2d, checks, predicate, requantize=requantize)
    return offer.registration(operands=1)


# --- constraints of several patterns --------------------------------------------------------------


def _input_channels(known: QConv2d) -> int:
    return known.input_channels


def _output_channels(known: QConv2d) -> int:
    return known.output_channels


def _depthwise_refused(known: QConv2d) -> str:
    return OtherOperator(f"a depthwise convolution, {known.groups} groups of one channel")


def _depthwise_wanted(known: QConv2d) -> str:
    return OtherOperator("a convolution that is not depthwise")


def _types(dtypes: Names, rounding: Names = None) -> tuple[Constraint, ...]:
    def said(part: str) -> Any:
        return lambda found, few: f"{found} {part}: the accelerator computes {few}"

    return (
        _c.one_of(dtypes, lambda known: known.data_dtype, said("data")),
        _c.one_of(dtypes, lambda known: known.output_dtype, said("result")),
        _c.one_of(
            _c.checked_names(rounding, "rounding", ROUNDINGS),
            lambda known: known.rounding,
            lambda found, few: f"rounding {found}: the accelerator rounds as {few}",
        ),
    )


def _windows(
    windows: Pairs, strides: Pairs, padding: Padding, name: str, read: Any
) -> tuple[Constraint, ...]:
    return (
        _c.one_of_pairs(windows, name, read, "the accelerator has"),
        _c.one_of_pairs(strides, "stride", lambda known: known.strides, "the accelerator steps by"),
        _c.padding_is(padding),
    )


def _dilation(dilation: Pairs) -> Constraint:
    return _c.one_of_pairs(
        dilation, "dilation", lambda known: known.dilation, "the accelerator has"
    )


def _groups(groups: int | Iterable[int] | None) -> Constraint:
    return _c.one_of(
        groups, lambda known: known.groups, lambda found, few: f"{found} groups: the accelerator "
        f"has {few}",
    )  # fmt: skip


def _images(batch: int | None, layouts: Names) -> tuple[Constraint, ...]:
    return (
        _c.at_most(batch, "images", lambda known: known.batch),
        _c.one_of(
            _c.checked_names(layouts, "layout", LAYOUTS),
            lambda known: known.data_layout,
            lambda found, few: f"layout {found}: the accelerator reads {few}",
        ),
    )


def _scales(per_channel: bool) -> Constraint:
    return _c.refuse_if(
        lambda known: known.per_channel and not per_channel,
        lambda known: f"{known.scales} scales, one for each output channel: the accelerator has 1",
    )


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


def _pool(
    windows: Pairs, strides: Pairs, padding: Padding, batch: int | None,
    channel_multiple: int | None, dtypes: Names, layouts: Names,
) -> tuple[Constraint, ...]:  # fmt: skip
    return (
        *_types(dtypes),
        *_windows(windows, strides, padding, "window", lambda known: known.window),
        *_images(batch, layouts),
        _c.multiple_of(channel_multiple, "channels", lambda known: known.input_channels),
    )


def _checked(text: str, axes: str) -> str:
    """A layout's text, after a look that it makes sense."""
    weight_layout(text, axes)
    return text
