# SPDX-License-Identifier: Apache-2.0
"""Relax expressions for arguments of ATen operators: numbers, casts, statistics."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from umakit import tvm_api
from umakit.frontend.torch.registry import Arguments, Expr, Graph, Node

relax = tvm_api.relax
op = relax.op


def constant(value: float, dtype: str) -> Expr:
    """Return a number as a Relax constant."""
    return relax.const(np.asarray(value, dtype), dtype)


def constants(dtype: str, *values: float) -> tuple[Expr, ...]:
    """Return numbers as Relax constants of one dtype."""
    return tuple(constant(value, dtype) for value in values)


def cast(value: Expr, dtype: str) -> Expr:
    """Return an expression converted to a dtype."""
    return value if tvm_api.dtype_of(value) == dtype else op.astype(value, dtype)


def operand(graph: Graph, given: torch.fx.Node | float, dtype: str) -> Expr:
    """Return a tensor or number as a Relax expression of a dtype."""
    if isinstance(given, torch.fx.Node):
        return cast(graph.value(given), dtype)
    return constant(given, dtype)


def axis_of(graph: Graph, node: Node, dim: int) -> int:
    """Return a dimension of a tensor node as a non-negative number; 0 for scalars."""
    rank = len(graph.type_of(node)[0])
    return dim % rank if rank else 0


def reduced_axes(given: Arguments) -> list[int] | None:
    """Return the reduced dimensions; None for all."""
    dims = given.get("dim")
    if isinstance(dims, int):
        return [dims]
    return [int(dim) for dim in dims] if dims else None


def moments(value: Expr, axes: Sequence[int], builder: tvm_api.BlockBuilder) -> tuple[Expr, Expr]:
    """Return the difference to the mean and the mean squared difference, with axes kept."""
    centred = builder.emit(op.subtract(value, op.mean(value, list(axes), keepdims=True)))
    return centred, op.mean(op.multiply(centred, centred), list(axes), keepdims=True)


def expm1(value: Expr, dtype: str) -> Expr:
    """exp(x) - 1 without cancellation: (u - 1) * x / log(u) with u = exp(x), by W. Kahan."""
    one, shifted = constant(1, dtype), op.exp(value)
    less = op.subtract(shifted, one)
    exact = op.multiply(less, op.divide(value, op.log(shifted)))
    plain = op.logical_or(op.less(less, constant(-0.5, dtype)),
                          op.greater(less, constant(1, dtype)))  # fmt: skip
    return op.where(op.equal(shifted, one), value, op.where(plain, less, exact))


def check_index(graph: Graph, node: Node, index: Expr, limits: tuple[int, int]) -> None:
    """Refuse a constant index outside `limits` = (first, end). Generated C checks other indices.

    Raises:
        ModelError: names the node, the index and the size.
    """
    values = tvm_api.constant_array(index)
    if values is None or not values.size:
        return
    least, end = limits
    outside = values[(values < least) | (values >= end)]
    if outside.size:
        raise graph.refuse(
            node,
            f"has the index {outside.reshape(-1)[0]}, which is out of range for a size of {end}",
            "mend the constant indices in the model",
        )
