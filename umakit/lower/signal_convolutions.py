# SPDX-License-Identifier: Apache-2.0
"""Float convolutions of signals as convolutions of images with one row, which have schedule
rules."""

from __future__ import annotations

from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.lower.filled_channels import FUSES_WHAT_FOLLOWS

CONVOLUTION = "relax.nn.conv1d"
NAME = "conv1d_of_one_row"


def rules() -> dict[str, tvm_api.Legalization]:
    """Return the legalization of float convolutions of signals with constant weights."""
    usual = tvm_api.legalization(CONVOLUTION)

    def rule(builder: tvm_api.BlockBuilder, call: tvm_api.Call) -> tvm_api.Expr:
        weights, attributes = tvm_api.constant_array(call.args[1]), call.attrs
        layouts = (str(attributes.data_layout), str(attributes.kernel_layout))
        if weights is None or weights.dtype != np.float32 or layouts != ("NCW", "OIW"):
            return usual(builder, call)
        (stride,), (dilation,) = attributes.strides, attributes.dilation
        left, right = (int(n) for n in attributes.padding)

        def compute(data: Any, kernel: Any) -> Any:
            batch, channels, columns = data.shape
            image = tvm_api.te.compute(
                (batch, channels, 1, columns), lambda n, c, _, x: data[n, c, x], name="image"
            )
            sums = tvm_api.topi.nn.conv(
                image, kernel, stride=[1, int(stride)], padding=[0, left, 0, right],
                dilation=[1, int(dilation)], groups=int(attributes.groups),
                data_layout="NCHW", kernel_layout="OIHW", out_dtype="float32",
            )  # fmt: skip
            shape = (sums.shape[0], sums.shape[1], sums.shape[3])
            return tvm_api.te.compute(shape, lambda n, c, x: sums[n, c, 0, x], name="signal")

        return builder.call_te(
            compute, call.args[0], tvm_api.relax.const(weights[:, :, None]),
            primfunc_name_hint=NAME, primfunc_attrs={"op_pattern": FUSES_WHAT_FOLLOWS},
        )  # fmt: skip

    return {CONVOLUTION: rule}
