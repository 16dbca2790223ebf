# SPDX-License-Identifier: Apache-2.0
"""Clip."""

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
        return None
    return tvm_api.relax.op.clip(node.inputs[0], *(tvm_api.float_value(bound) for bound in bounds))


CONVERTERS = {"Clip": clip}
