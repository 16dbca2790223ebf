# SPDX-License-Identifier: Apache-2.0
"""Checks of the softmaxes of TensorFlow Lite Micro."""

from __future__ import annotations

import numpy as np

from umakit.operators.islands import Result
from umakit.operators.refusals import NoIntegerForm
from umakit.operators.tensors import Scale

TOLERANCE_OF_SCALES = 1e-3
"""Relative, of softmax's result of 16 bits (`softmax_common.cc`)."""


def has_scale(scale: Scale, wanted: float) -> bool:
    """Whether a scale has the wanted value; 16-bit scales are compared with a tolerance."""
    if scale.dtype == "int16":
        return abs(float(scale.scale) - wanted) <= TOLERANCE_OF_SCALES * wanted
    return bool(scale.scale == np.float32(wanted))


def check_last_axis(result: Result) -> None:
    """Refuse a softmax over another axis than the last axis.

    Raises:
        NoIntegerForm: the softmax is over another axis.
    """
    if int(result.call.attrs.axis) not in (-1, len(result.shape) - 1):
        raise NoIntegerForm("softmax is not over the last axis")
