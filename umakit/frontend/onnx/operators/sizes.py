# SPDX-License-Identifier: Apache-2.0
"""Shape and Size."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.frontend.onnx.node import Node
from umakit.frontend.onnx.registry import converts

relax = tvm_api.relax


@converts("Shape", "start end")
def shape(node: Node) -> Any | None:
    """Shape of a tensor, or a slice of it, as a constant int64[n].

    TVM converts Shape of tensors with data-dependent sizes.
    """
    sizes = _known_sizes(node)
    if sizes is None:
        return None
    end = node.attribute("end")
    part = sizes[int(node.attribute("start", 0)) : None if end is None else int(end)]
    return relax.const(np.array(part, np.int64), "int64")


@converts("Size")
def size(node: Node) -> Any | None:
    """Number of elements of a tensor with known shape, as a constant."""
    sizes = _known_sizes(node)
    return None if sizes is None else relax.const(np.asarray(math.prod(sizes)), "int64")


def _known_sizes(node: Node) -> tuple[int, ...] | None:
    data = node.inputs[0]
    if isinstance(data, relax.ShapeExpr):
        return (len(data.values),)
    return tvm_api.static_shape(data)
