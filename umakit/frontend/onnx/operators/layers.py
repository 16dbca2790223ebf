# SPDX-License-Identifier: Apache-2.0
"""Layers: GroupNormalization, LayerNormalization, and ConvTranspose to a given size."""

from __future__ import annotations

from typing import Any

from umakit.frontend.onnx.registry import STASH, Node, converts
from umakit.tvm_api import Expr, relax

op = relax.op

PER_CHANNEL_SINCE = 21
"""First opset with scale and bias per channel; before, per group."""


@converts("GroupNormalization", "epsilon num_groups", ignored={"stash_type": STASH})
def group_normalization(node: Node) -> Expr:
    """GroupNormalization of float32 [N, C, ...], as three steps that are fused later."""
    shape, groups = node.shape(0), int(node.attribute("num_groups"))
    if node.dtype(0) != "float32" or len(shape) < 3 or groups < 1 or shape[1] % groups:
        raise node.refuse(
            f"has num_groups={groups} and an input {node.dtype(0)}{list(shape)}",
            "export the model with float32 and a divisor of the number of channels",
        )
    per_group = shape[1] // groups
    grouped = node.emit(op.reshape(node.inputs[0], [shape[0], groups, -1]))
    _, centered, deviation = _moments(node, grouped, [2])
    normal = node.emit(op.divide(centered, deviation))
    normal = node.emit(op.reshape(normal, shape))
    channels = [1, shape[1], *[1] * (len(shape) - 2)]
    factors = []
    for position in (1, 2):
        factor = node.inputs[position]
        expected = shape[1] if node.opset >= PER_CHANNEL_SINCE else groups
        if node.shape(position) != (expected,):
            raise node.refuse(
                f"has {node.shape(position)} values in its input {position}, not {expected}"
            )
        if node.opset < PER_CHANNEL_SINCE and per_group > 1:
            factor = node.emit(op.repeat(factor, per_group, 0))
        factors.append(node.emit(op.reshape(factor, channels)))
    return op.add(node.emit(op.multiply(normal, factors[0])), factors[1])


def _moments(node: Node, data: Expr, axes: list[int]) -> tuple[Expr, Expr, Expr]:
    """Return the mean, the difference to it, and the standard deviation with the epsilon added."""
    mean = node.emit(op.mean(data, axes, keepdims=True))
    centered = node.emit(op.subtract(data, mean))
    squares = node.emit(op.multiply(centered, centered))
    variance = node.emit(op.mean(squares, axes, keepdims=True))
    epsilon = relax.const(float(node.attribute("epsilon", 1e-5)), node.dtype(0))
    return mean, centered, node.emit(op.sqrt(node.emit(op.add(variance, epsilon))))


@converts("LayerNormalization", "axis epsilon", ignored={"stash_type": STASH})
def layer_normalization(node: Node) -> Any | None:
    """LayerNormalization with the outputs Mean and InvStdDev, or of float64.

    Mean and InvStdDev are float32 with size 1 along reduced axes. TVM converts float32 with output
    Y only.
    """
    shape, dtype = node.shape(0), node.dtype(0)
    names = [*node.proto.output, "", ""]
    if not any(names[1:3]) and dtype != "float64":
        return None
    axis = int(node.attribute("axis", -1))
    if dtype not in ("float32", "float64"):
        raise node.refuse(f"has an input {dtype}{list(shape)}", "convert the input to float32")
    axes = list(range(axis % len(shape), len(shape)))
    mean, centered, deviation = _moments(node, node.inputs[0], axes)
    result = node.emit(op.multiply(op.divide(centered, deviation), node.inputs[1]))
    if node.input(2) is not None:
        result = node.emit(op.add(result, node.inputs[2]))
    inverse = node.emit(op.divide(relax.const(1.0, dtype), deviation))
    statistics = [mean, inverse]
    if dtype != "float32":
        statistics = [node.emit(op.astype(value, "float32")) for value in statistics]
    return [result, *statistics]


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
