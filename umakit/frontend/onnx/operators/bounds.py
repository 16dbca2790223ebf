# SPDX-License-Identifier: Apache-2.0
"""Clip and ThresholdedRelu."""

from __future__ import annotations

from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.frontend.onnx.node import Node


def clip(node: Node) -> Any | None:
    """A Clip of constant float bounds as one operator; TVM makes six of it."""
    if node.input(0) is None or node.dtype(0) != "float32":
        return None
    bounds = [node.attribute("min", -np.inf), node.attribute("max", np.inf)]
    for position, expression in enumerate(node.inputs[1:3]):
        if expression is None:
            continue
        array = tvm_api.constant_array(expression)
        if array is None or array.size != 1:
            return None
        bounds[position] = float(array.reshape(()))
    if np.isnan(bounds).any():
        # As the specification defines it, in operators that keep NaN.
        relax = tvm_api.relax
        low, high = (relax.const(bound, "float32") for bound in bounds)
        return relax.op.minimum(node.emit(relax.op.maximum(node.input(0), low)), high)
    return tvm_api.relax.op.clip(node.inputs[0], *(tvm_api.float_value(bound) for bound in bounds))


def thresholded_relu(node: Node) -> Any:
    """x where it is above the threshold, else 0; TVM multiplies by 0 there, which inf turns to NaN.

    The converter returns a Relax expression of the data's shape and dtype.
    """
    relax, dtype = tvm_api.relax, node.dtype(0)
    data, threshold = node.input(0), relax.const(float(node.attribute("alpha", 1.0)), dtype)
    return relax.op.where(relax.op.greater(data, threshold), data, relax.const(0.0, dtype))


CONVERTERS = {"Clip": clip, "ThresholdedRelu": thresholded_relu}
