# SPDX-License-Identifier: Apache-2.0
"""Means or maxima over samples of regions of images, with given places and weights.

roi_pool   (data [N, C, H, W], images [R] of integers, rows int32[R, P, G, 2], their weights
            [R, P, G, 2], columns int32[R, Q, K, 2], their weights [R, Q, K, 2], factors [R])
            -> [R, C, P, Q]

Each bin `(p, q)` of region `r` has `G` x `K` samples between two rows and two columns each. A mean
is the sum of weighted elements times `factors[r]`; a maximum is the largest weighted element, as in
ONNX's reference and ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from umakit import tvm_api

te = tvm_api.te

OPERATOR = "roi_pool"


def roi_pool(operands: Sequence[Any], *, maximum: bool) -> tvm_api.Call:
    """Return a call of the operator with its seven operands."""
    return tvm_api.operator_call(OPERATOR, operands, {"maximum": int(maximum)})


def _infer(call: tvm_api.Call, builder: tvm_api.BlockBuilder) -> tvm_api.Type:
    data, _, rows, _, columns, _, _ = (tvm_api.static_shape(item) or () for item in call.args)
    shape = (rows[0], data[1], rows[1], columns[1])
    return tvm_api.tensor_type(shape, tvm_api.dtype_of(call.args[0]))


def _legalize(builder: tvm_api.BlockBuilder, call: tvm_api.Call) -> tvm_api.Expr:
    maximum = bool(int(call.attrs["maximum"]))
    return builder.call_te(_compute, *call.args, maximum=maximum, primfunc_name_hint=OPERATOR)


def _compute(
    data: te.Tensor, images: te.Tensor, rows: te.Tensor, row_weights: te.Tensor,
    columns: te.Tensor, column_weights: te.Tensor,
    factors: te.Tensor, maximum: bool,
) -> te.Tensor:  # fmt: skip
    shape = [int(size) for size in (rows.shape[0], data.shape[1], rows.shape[1], columns.shape[1])]
    extents = (rows.shape[2], columns.shape[2], 2, 2)
    i, j, a, b = (te.reduce_axis((0, extent), f"sample{n}") for n, extent in enumerate(extents))

    def reduced(r: tvm_api.Expr, c: tvm_api.Expr, p: tvm_api.Expr, q: tvm_api.Expr) -> tvm_api.Expr:
        element = data[images[r], c, rows[r, p, i, a], columns[r, q, j, b]]
        weighted = row_weights[r, p, i, a] * column_weights[r, q, j, b] * element
        return (te.max if maximum else te.sum)(weighted, axis=[i, j, a, b])

    pooled = te.compute(shape, reduced, name=OPERATOR)
    return te.compute(shape, lambda r, *at: pooled(r, *at) * factors[r], name="scaled")


tvm_api.register_operator(OPERATOR, str(__doc__), _infer, _legalize)
