# SPDX-License-Identifier: Apache-2.0
"""Roles of constants for the operators that read them, such as weights.

Fusion loses the operator that reads a constant, but does not change constants: their bytes identify
them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

from umakit import tvm_api

UNKNOWN = "constant"
"""Role of a constant that no operator of the network reads directly."""

WEIGHTED = ("nn.conv", "matmul")
"""Starts of the names of operators whose second operand is called weights."""

ROLES: Mapping[str, str] = {
    "weight": "weights",
    "tensors": "operand",
    "operands": "operand",
    "x": "operand",
    "data": "operand",
}
"""Roles of operands by their name in Relax, where it says little or is in the singular."""

SECOND: Mapping[str, str] = {
    "add": "addend",
    "subtract": "subtrahend",
    "multiply": "factor",
    "divide": "divisor",
    "power": "exponent",
}
"""Roles of the second operand of arithmetic operators."""

Key = tuple[int, bytes]


@dataclass(frozen=True)
class ConstantRoles:
    """Roles of constants before fusion, by row of the offload report and digest of the bytes."""

    roles: Mapping[Key, str] = field(default_factory=dict)

    def role(self, rows: Iterable[int], array: npt.NDArray[Any]) -> str:
        """Return the role of a constant for the operators of some rows, or `UNKNOWN`."""
        digest = _digest(array)
        found = (self.roles.get((row, digest)) for row in rows)
        return next((role for role in found if role is not None), UNKNOWN)


def constant_roles(main: tvm_api.Function) -> ConstantRoles:
    """Collect the roles of all constants before fusion; calls carry their rows."""
    roles: dict[Key, str] = {}
    definitions: dict[Any, Any] = {b.var: b.value for b in tvm_api.bindings_of(main)}
    for call in definitions.values():
        name = tvm_api.operator_name(call)
        for row in tvm_api.rows_of(call) if name else ():
            for position, operand in _operands(call):
                array = tvm_api.constant_array(definitions.get(operand, operand))
                if array is not None:
                    role = _role(name, call, position, definitions)
                    roles.setdefault((row, _digest(array)), role)
    return ConstantRoles(roles)


def _operands(call: tvm_api.Call) -> Iterator[tuple[int, tvm_api.Expr]]:
    for position, operand in enumerate(call.args):
        fields = operand.fields if isinstance(operand, tvm_api.RelaxTuple) else [operand]
        yield from ((position, item) for item in fields)


def _role(name: str, call: tvm_api.Call, position: int, definitions: Mapping[Any, Any]) -> str:
    if name.startswith(WEIGHTED) and position == 1:
        return "weights"
    if name == "add" and _is_weighted(call.args[1 - position], definitions):
        return "bias"
    if position == 1 and name in SECOND:
        return SECOND[name]
    names = tvm_api.operand_names(call)
    told = re.sub(r"\d+$", "", names[position]) if position < len(names) else ""
    return ROLES.get(told, told) or UNKNOWN


def _is_weighted(operand: tvm_api.Expr, definitions: Mapping[Any, Any]) -> bool:
    value = definitions.get(operand, operand)
    return tvm_api.operator_name(value).startswith(WEIGHTED)


def _digest(array: npt.NDArray[Any]) -> bytes:
    return hashlib.sha256(str(array.dtype).encode() + array.tobytes()).digest()
