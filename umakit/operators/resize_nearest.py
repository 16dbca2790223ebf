# SPDX-License-Identifier: Apache-2.0
"""Nearest-neighbour resizes of ONNX networks: two gathers, without floating point."""

from __future__ import annotations

from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.operators.derivation.conversions import integers_of_result
from umakit.operators.islands import Island
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.refusals import NotAnIsland
from umakit.operators.registry import IntegerOperator, Recognition, register


def _derive(island: Island) -> Any:
    result = island.result
    attributes, shape = island.call.attrs, tvm_api.static_shape(island.call.args[0]) or ()
    moved = integers_of_result(island, island.operand())
    if str(attributes.method) != "nearest_neighbor" or str(attributes.layout) != "NCHW":
        raise NotAnIsland("ONNX Runtime interpolates in floating point")
    mode = str(attributes.coordinate_transformation_mode)
    method = str(attributes.rounding_method)
    for axis in (2, 3):
        places = _places(shape[axis], result.shape[axis], mode, method)
        moved = tvm_api.relax.op.take(moved, tvm_api.relax.const(places), axis=axis)
        moved = tvm_api.make_call(moved, span=result.span)
        moved = island.emit(moved) if axis == 2 else moved
    return moved


def _places(size: int, result: int, mode: str, method: str) -> Any:
    """Which elements of an axis a nearest-neighbour resize takes, int64[result].

    Raises:
        NotAnIsland: a mode, or a ratio of sizes, whose rounding is not known to be exact.
    """
    if mode not in ("half_pixel", "asymmetric") or result % size:
        raise NotAnIsland("a resize is not by a whole number, or in an uncommon mode")
    factor = result // size
    # Twice the coordinate times the factor: exact.
    doubled = np.arange(result) * 2 + (1 - factor if mode == "half_pixel" else 0)
    whole = 2 * factor
    rounded = {
        "floor": doubled // whole,
        "ceil": -(-doubled // whole),
        "round": -((factor - doubled) // whole),
        "round_prefer_floor": -((factor - doubled) // whole),
        "round_prefer_ceil": (doubled + factor) // whole,
    }.get(method)
    if rounded is None:
        raise NotAnIsland(f"a resize rounds by {method}")
    return np.clip(rounded, 0, size - 1).astype(np.int64)


register(
    IntegerOperator(
        name="resize_nearest",
        recognitions=(Recognition(("image.resize2d",), _derive, (Arithmetic.ORT,)),),
    )
)
