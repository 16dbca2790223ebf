# SPDX-License-Identifier: Apache-2.0
"""Parameters of ONNX nodes that contradict their inputs; the checkers of onnx do not find them.

TVM would broadcast what is too small, or ignore an attribute.
"""

from __future__ import annotations

from umakit.frontend.onnx.node import Node

PER_CHANNEL = {"InstanceNormalization": (1, 2), "BatchNormalization": (1, 2, 3, 4)}
"""Positions of inputs that have a value for each channel of input 0, by operator."""

FIX = "correct it, or export the model again"


def check_parameters(node: Node) -> None:
    """Refuse windows, biases, parameters and scales that do not fit the node's other inputs.

    Raises:
        ModelError: names operator, node, what contradicts and the size that it should have.
    """
    kind, shape = node.proto.op_type, node.static_shape(0)
    if kind in ("Conv", "ConvTranspose"):
        _check_window(node)
    elif kind in PER_CHANNEL and shape is not None and len(shape) > 1:
        for position in PER_CHANNEL[kind]:
            _check_count(node, position, shape[1])
    elif kind in ("QuantizeLinear", "DequantizeLinear") and shape is not None:
        _check_scales(node, shape)


def _check_window(node: Node) -> None:
    weights = node.static_shape(1)
    if weights is None or len(weights) < 3:
        return
    window = list(node.attribute("kernel_shape") or weights[2:])
    if window != list(weights[2:]):
        raise node.refuse(f"has kernel_shape={window}, but weights of {list(weights)}", FIX)
    grouped = node.proto.op_type == "ConvTranspose"
    _check_count(node, 2, weights[1] * node.attribute("group", 1) if grouped else weights[0])


def _check_count(node: Node, position: int, count: int) -> None:
    """Refuse an input of one dimension that has another number of values."""
    shape = node.static_shape(position)
    if shape is not None and shape != (count,):
        raise node.refuse(
            f"has an input {position} of shape {list(shape)}, where it needs {count} values", FIX
        )


def _check_scales(node: Node, shape: tuple[int, ...]) -> None:
    """Refuse scales along an axis that the input lacks, or that has another size."""
    scales, zeros = node.static_shape(1), node.static_shape(2)
    if scales is None or len(scales) != 1 or scales == (1,):
        return
    axis = int(node.attribute("axis", 1))
    if not -len(shape) <= axis < len(shape) or shape[axis] != scales[0]:
        raise node.refuse(
            f"has {scales[0]} scales along axis {axis}, but its input has the shape {list(shape)}",
            FIX,
        )
    if zeros not in (None, scales):
        raise node.refuse(f"has {scales[0]} scales, but zero points {list(zeros or ())}", FIX)
