# SPDX-License-Identifier: Apache-2.0
"""Statements of kernels that bind intermediate values and look up tables."""

from __future__ import annotations

from umakit import tvm_api

tirx = tvm_api.tirx


class Statements:
    """Statements that bind 32-bit intermediate values of a formula."""

    def __init__(self) -> None:
        self.list: list[tvm_api.Stmt] = []

    def bind(self, name: str, value: tvm_api.PrimExpr) -> tvm_api.Var:
        """A variable for a value."""
        variable = tirx.Var(name, "int32")
        self.list.append(tirx.Bind(variable, value))
        return variable
