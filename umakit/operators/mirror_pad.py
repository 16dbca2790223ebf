# SPDX-License-Identifier: Apache-2.0
"""MIRROR_PAD of TensorFlow Lite."""

from __future__ import annotations

import numpy as np

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.tflite import TfliteConverter, TfliteOperator, register_all

relax = tvm_api.relax

REFLECT = 0
"""Value of the schema's enumeration `MirrorPadMode`; 1 is SYMMETRIC, which repeats the border."""


def mirror_pad(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
    """Borders that mirror the elements next to them, by constant widths."""
    mode = converter.options(operator, "MirrorPadOptions").Mode()
    shape, widths = converter.shape(operator.inputs[0]), converter.integers(operator, 1)
    kept = 1 if mode == REFLECT else 0
    pairs = list(zip(widths[::2], widths[1::2], strict=True))
    if len(pairs) != len(shape) or any(
        not 0 <= width <= extent - kept
        for pair, extent in zip(pairs, shape, strict=True)
        for width in pair
    ):
        raise ModelError(f"its paddings are {widths} for a shape of {list(shape)}")
    value = converter.value(operator.inputs[0])
    for axis, (before, after) in enumerate(pairs):
        if before or after:
            places = np.pad(
                np.arange(shape[axis], dtype=np.int32), (before, after),
                mode="reflect" if kept else "symmetric",
            )  # fmt: skip
            value = converter.emit(relax.op.take(value, relax.const(places), axis, mode="clip"))
    return value


register_all(("MIRROR_PAD",), mirror_pad, "float32", "int8", same_scale=True)
