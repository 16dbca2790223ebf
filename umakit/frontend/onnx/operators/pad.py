# SPDX-License-Identifier: Apache-2.0
"""Pad."""

from __future__ import annotations

from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.frontend.onnx.node import Node
from umakit.frontend.onnx.registry import ABSENT, converts


@converts("Pad", "mode pads value", only={"paddings": (ABSENT,)})
def pad(node: Node) -> Any | None:
    """Pad of a dequantized tensor as one operator. TVM's importer would make a TIR kernel."""
    if node.proto.input[0] not in node.dequantized or node.attribute("mode", "constant") != (
        "constant"
    ):
        return None
    arrays = [
        node.constant(position)
        for position, expression in enumerate(node.inputs[1:], 1)
        if expression is not None
    ]
    if not 1 <= len(arrays) <= 2 or any(array is None for array in arrays):
        return None
    pads = np.asarray(arrays[0], np.int64).reshape(2, -1)
    if pads.min() < 0 or pads.shape[1] != len(node.shape(0)):
        return None
    value = float(np.asarray(arrays[1]).reshape(-1)[0]) if len(arrays) > 1 else 0.0
    widths = [int(width) for width in pads.T.reshape(-1)]
    return tvm_api.relax.op.nn.pad(node.inputs[0], widths, pad_value=value)
