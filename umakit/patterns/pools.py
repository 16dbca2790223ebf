# SPDX-License-Identifier: Apache-2.0
"""Patterns of pools."""

from __future__ import annotations

from umakit.patterns import constraints as _c
from umakit.patterns.constraints import Constraint, Names, Padding, Pairs
from umakit.patterns.offer import Offer, OwnPredicate, Registration
from umakit.patterns.parameters import QAveragePool2d, QMaxPool2d
from umakit.quantization.operators import AveragePool2d, MaxPool2d


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


def _pool(
    windows: Pairs, strides: Pairs, padding: Padding, batch: int | None,
    channel_multiple: int | None, dtypes: Names, layouts: Names,
) -> tuple[Constraint, ...]:  # fmt: skip
    return (
        *_c.types(dtypes),
        *_c.windows(windows, strides, padding, "window", lambda known: known.window),
        *_c.images(batch, layouts),
        _c.multiple_of(channel_multiple, "channels", lambda known: known.input_channels),
    )
