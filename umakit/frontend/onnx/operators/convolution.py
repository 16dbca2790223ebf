# SPDX-License-Identifier: Apache-2.0
"""ConvTranspose whose result has a given size."""

from __future__ import annotations

from typing import Any

from umakit import tvm_api
from umakit.frontend.onnx.registry import Node, converts

op = tvm_api.relax.op

LAYOUTS = {1: ("NCW", "IOW"), 2: ("NCHW", "IOHW"), 3: ("NCDHW", "IODHW")}
"""Layouts of data and weights by number of spatial axes."""


@converts(
    "ConvTranspose",
    "auto_pad kernel_shape pads strides dilations group output_padding output_shape",
)
def transposed_convolution(node: Node) -> Any | None:
    """ConvTranspose with `output_shape`, which determines the padding. TVM converts other nodes.

    Formulas of the ONNX operator specification of ConvTranspose.
    """
    wanted = node.attribute("output_shape")
    if not wanted:
        return None
    sizes, kernel = node.shape(0)[2:], node.shape(1)[2:]
    axes = len(sizes)
    if axes not in LAYOUTS or len(wanted) not in (axes, axes + 2):
        raise node.refuse(f"has output_shape={list(wanted)} for {axes} spatial axes")
    strides = list(node.attribute("strides") or [1] * axes)
    dilations = list(node.attribute("dilations") or [1] * axes)
    extra = list(node.attribute("output_padding") or [0] * axes)
    before, after = [], []
    for axis, size in enumerate(wanted[-axes:]):
        extent = (kernel[axis] - 1) * dilations[axis] + 1
        total = strides[axis] * (sizes[axis] - 1) + extra[axis] + extent - size
        if total < 0:
            raise node.refuse(
                f"has output_shape={list(wanted)}, which is larger than what it computes"
            )
        small, large = total // 2, total - total // 2
        upper = node.attribute("auto_pad", "NOTSET") == "SAME_UPPER"
        before.append(small if upper else large)
        after.append(large if upper else small)
    data_layout, kernel_layout = LAYOUTS[axes]
    result = getattr(op.nn, f"conv{axes}d_transpose")(
        node.inputs[0],
        node.inputs[1],
        strides=strides,
        padding=before + after,
        output_padding=extra,
        dilation=dilations,
        groups=node.attribute("group", 1),
        data_layout=data_layout,
        kernel_layout=kernel_layout,
    )
    if node.input(2) is None:
        return result
    return op.add(node.emit(result), op.reshape(node.inputs[2], [1, -1] + [1] * axes))
