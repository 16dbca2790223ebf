# SPDX-License-Identifier: Apache-2.0
"""Registry of the conversions from ATen operators to Relax.

A file of `operators` registers the operators of one family with `converts`, or with `left_to_tvm`
where TVM's own converter is right. An operator that is not registered is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.tvm_api import relax

op = relax.op

Node = Any
"""A `torch.fx.Node`, which calls an operator."""
Expr = tvm_api.Expr
"""A Relax expression."""
Arguments = Mapping[str, Any]
"""A node's arguments by the names of its schema, defaults included."""


def arguments_of(node: Node) -> dict[str, Any]:
    """Return a node's arguments by schema name, including defaults."""
    schema = node.target._schema.arguments
    values = {a.name: a.default_value for a in schema if a.has_default_value()}
    values.update({a.name: value for a, value in zip(schema, node.args, strict=False)})
    return {**values, **node.kwargs}


class Graph(Protocol):
    """Program and block builder in the form that conversions use."""

    @property
    def block_builder(self) -> tvm_api.BlockBuilder:
        """Return Relax's block builder. Its `emit` binds an expression to a variable."""

    def value(self, node: Node) -> Expr:
        """Return the Relax expression of a tensor node."""

    def definition(self, value: Expr) -> Expr:
        """Return the expression that a variable is bound to, or any other expression itself."""

    def fake(self, node: Node) -> Any:
        """Return the value of a constant node, or torch's fake tensor of a computed node."""

    def depends_on_inputs(self, node: Node) -> bool:
        """Return whether a node's value depends on the inputs."""

    def type_of(self, node: Node) -> tuple[tuple[int, ...], str]:
        """Return torch's shape and dtype of a tensor node."""

    def types_of(self, node: Node) -> list[tuple[tuple[int, ...], str]]:
        """Return torch's shapes and dtypes of a node with several results."""

    def dtype(self, dtype: torch.dtype, node: Node) -> str:
        """Return TVM's name of a torch dtype."""

    def by_tvm(self, node: Node) -> Expr:
        """Convert a node by TVM's own converter."""

    def refuse(self, node: Node, what: str, fix: str = "") -> ModelError:
        """Return the error about a node."""


Conversion = Callable[[Graph, Node, Arguments], Expr]
"""(graph, node, arguments by name) -> Relax expression; a Relax tuple for several results."""


@dataclass(frozen=True)
class OperatorConverter:
    """A conversion, and its supported arguments; others must have their defaults."""

    arguments: frozenset[str]
    convert: Conversion


CONVERTERS: dict[str, OperatorConverter] = {}
"""Converters by name with overload (`add.Tensor`), with namespace unless it is `aten`."""

NOT_DECOMPOSED: set[str] = set()
"""Operators of `CONVERTERS` that torch must not decompose into others."""


def converts(
    names: str, arguments: str, *, decomposed: bool = True
) -> Callable[[Conversion], Conversion]:
    """Register a conversion for operators with overload and the arguments that it supports.

    Names are separated by spaces. Torch does not decompose operators with `decomposed=False`.
    """

    def register(convert: Conversion) -> Conversion:
        for name in names.split():
            CONVERTERS[name] = OperatorConverter(frozenset(arguments.split()), convert)
            if not decomposed:
                NOT_DECOMPOSED.add(name)
        return convert

    return register


def left_to_tvm(names: str, arguments: str) -> None:
    """Register operators, and their arguments, that TVM converts correctly."""
    converts(names, arguments)(lambda graph, node, given: graph.by_tvm(node))


def constant(value: float, dtype: str) -> Expr:
    return relax.const(np.asarray(value, dtype), dtype)


def constants(dtype: str, *values: float) -> tuple[Expr, ...]:
    return tuple(constant(value, dtype) for value in values)


def cast(value: Expr, dtype: str) -> Expr:
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
    """Refuse a constant index outside `limits` = (first, end). Generated C checks other indices."""
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
