# SPDX-License-Identifier: Apache-2.0
"""Rules of operators with a layout: convolutions, pools and resizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.operators.parameters import PREFIX
from umakit.partition.layouts.flip import FLAT, KERNELS, Flip
from umakit.partition.layouts.rules import Operands, Rule, RuleOf, made, one_operand


def float_convolution(call: tvm_api.Call, flip: Flip) -> Rule | None:
    """A convolution of Relax in one or two dimensions with constant weights."""
    attributes = call.attrs
    layout, target, kernel = flip.source, flip.target, KERNELS[flip.target]
    if tvm_api.operator_name(call) == "nn.conv1d":
        layout, target, kernel = FLAT[layout], FLAT[target], kernel.replace("H", "")
    stored, out = str(attributes.kernel_layout), str(attributes.out_layout or "")
    weights = tvm_api.constant_array(call.args[1])
    if str(attributes.data_layout) != layout or out not in ("", layout) or weights is None:
        return None
    if sorted(stored) != sorted(kernel):
        return None
    changed = {"data_layout": target, "kernel_layout": kernel, "out_layout": target}

    def build(operands: Operands) -> tvm_api.Expr:
        order = [stored.index(axis) for axis in kernel]
        moved = tvm_api.relax.const(np.ascontiguousarray(weights.transpose(order)))
        return made(call, [operands.flipped(call.args[0]), moved], changed)

    return Rule((call.args[0],), build, has_layout=True)


def float_pool(call: tvm_api.Call, flip: Flip) -> Rule | None:
    """A pool of Relax in two dimensions."""
    if str(call.attrs.layout) != flip.source or str(call.attrs.out_layout) not in (
        "",
        flip.source,
    ):
        return None
    changed = {"layout": flip.target, "out_layout": flip.target}
    return one_operand(call, lambda: changed, has_layout=True)


def integer_convolution(call: tvm_api.Call, flip: Flip) -> Rule | None:
    """An integer convolution; weights are [O, ...] with the other axes in the order of the data."""
    weights = tvm_api.constant_array(call.args[1])
    if str(call.attrs["layout"]) != flip.source or weights is None:
        return None
    if tvm_api.operator_name(call).endswith("transpose") and int(call.attrs["groups"]) != 1:
        return None
    data, _, *rest = call.args

    def build(operands: Operands) -> tvm_api.Expr:
        moved = tvm_api.relax.const(np.ascontiguousarray(weights.transpose(flip.axes(4))))
        others = [operands.plain(operand) for operand in rest]
        return made(call, [operands.flipped(data), moved, *others], _integer_layout(call, flip))

    return Rule((data,), build, has_layout=True)


def integer_pool(call: tvm_api.Call, flip: Flip) -> Rule | None:
    """An integer pool."""
    if str(call.attrs["layout"]) != flip.source:
        return None
    return one_operand(call, lambda: _integer_layout(call, flip), has_layout=True)


def _integer_layout(call: tvm_api.Call, flip: Flip) -> dict[str, Any]:
    shape = [int(extent) for extent in call.attrs["output_shape"]]
    return {"layout": flip.target, "output_shape": flip.shape(shape)}


RULES: dict[str, RuleOf] = {
    **dict.fromkeys(("nn.conv1d", "nn.conv2d"), float_convolution),
    **dict.fromkeys(("nn.max_pool2d", "nn.avg_pool2d", "nn.adaptive_avg_pool2d"), float_pool),
    **dict.fromkeys((f"{PREFIX}conv2d", f"{PREFIX}conv2d_transpose"), integer_convolution),
    **dict.fromkeys(
        (f"{PREFIX}{name}" for name in
         ("max_pool2d", "avg_pool2d", "mean_pool2d", "dilated_max_pool2d")),
        integer_pool,
    ),
}  # fmt: skip
