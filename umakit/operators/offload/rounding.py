# SPDX-License-Identifier: Apache-2.0
"""An accelerator's own roundings, which replace the model's.

A pattern with `rounding="own:my_npu_requantize"` takes layers of any rounding and computes them
with this C function. A pattern with `rounding="float32"` multiplies sums by one float32 factor per
scale and rounds ties to even. Layers, reference loops and `uma diff` then compute alike.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.errors import BackendError
from umakit.operators.numeric.fixed_point import OWN, Arithmetic, float32_multipliers
from umakit.operators.offload.composite import ROUNDINGS
from umakit.operators.offload.constraints import Constraint, Names, checked_names, types
from umakit.operators.parameters import Parameters
from umakit.operators.requantize import Requantize

FLOAT32 = "float32"
"""Rounding of products with a float32 factor, ties to even; of layers with weights."""

MULTIPLIERS = 3
"""Position of the multipliers among the operands of layers with weights."""


def own_rounding(rounding: Names) -> str:
    """Return the name of a rounding that replaces the model's; empty without one."""
    names = [rounding] if isinstance(rounding, str) else list(rounding or [])
    own = [name for name in names if name == FLOAT32 or name.split(":")[0] == OWN[:-1]]
    if not own:
        checked_names(rounding, "rounding", ROUNDINGS)
        return ""
    if len(names) > 1:
        raise BackendError(
            f"rounding {own[0]!r} takes layers of every rounding", fix="name no other with it"
        )
    if own[0] != FLOAT32 and not re.fullmatch(rf"{OWN}[A-Za-z_]\w*", own[0]):
        raise BackendError(
            f"rounding {own[0]!r} names no C function", fix=f"write '{OWN}my_npu_requantize'"
        )
    return own[0]


def rounding_constraints(dtypes: Names, rounding: Names, *, float32: bool) -> list[Constraint]:
    """Return the constraints on dtypes and rounding.

    Args:
        float32: whether `FLOAT32` is supported.
    """
    own = own_rounding(rounding)
    if own == FLOAT32 and not float32:
        raise BackendError(
            "rounding 'float32' is of one product for each result: sums of two tensors have three",
            fix=f"name {', '.join(ROUNDINGS)}, or a C function as '{OWN}my_npu_requantize'",
        )
    if own and "int16" in ([dtypes] if isinstance(dtypes, str) else list(dtypes or ())):
        raise BackendError(
            f"rounding {own!r} is of sums of 32 bits, and data of int16 have 64",
            fix="register two patterns, one for int16 with the rounding 'tflm'",
        )
    return types(dtypes, None if own else rounding)


def rounded_by(layer: Any, name: str) -> Any:
    """Return the parameters of a composite with a backend's own rounding.

    Args:
        name: result of `own_rounding`.
    """
    if not name:
        return layer
    changes: dict[str, Any] = {
        part: replace(value, **_changed(value, name))
        for part in layer.PARTS
        if (value := getattr(layer, part)) is not None
    }
    if name == FLOAT32 and getattr(layer, "multipliers", None) is not None:
        changes["multipliers"] = float32_multipliers(layer.multipliers)
    return replace(layer, rounding=arithmetic_of(name), **changes)


def function_of(name: str) -> str:
    """Return the C function of a result of `own_rounding`; empty without a function."""
    return name.removeprefix(OWN) if name.startswith(OWN) else ""


def arithmetic_of(name: str) -> str:
    """Return the rounding in the parameters of an operator, for a result of `own_rounding`."""
    return Arithmetic.ORT.value if name == FLOAT32 else name


def call_rounded_by(call: tvm_api.Call, kind: type[Parameters], name: str) -> tvm_api.Call:
    """Return a call of an integer operator with a backend's own rounding.

    Args:
        name: result of `own_rounding`.
    """
    parameters = kind.of(call)
    operands = list(call.args)
    if name == FLOAT32 and len(operands) > MULTIPLIERS:
        multipliers = tvm_api.constant_array(operands[MULTIPLIERS])
        if multipliers is not None:
            operands[MULTIPLIERS] = tvm_api.relax.const(float32_multipliers(multipliers))
    return replace(parameters, **_changed(parameters, name)).call(operands, call.span)


def _changed(parameters: Parameters, name: str) -> dict[str, Any]:
    changes: dict[str, Any] = {"rounding": arithmetic_of(name)}
    if name == FLOAT32 and isinstance(parameters, Requantize):
        factor = np.array([parameters.multiplier], np.int32)
        changes["multiplier"] = int(float32_multipliers(factor)[0])
    return changes
