# SPDX-License-Identifier: Apache-2.0
"""Registry of the conversions from ATen operators to Relax.

A file of `operators` registers the operators of one family with `converts`, or with `left_to_tvm`
where TVM's own converter is right. An operator that is not registered is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from umakit import tvm_api
from umakit.errors import ModelError

if TYPE_CHECKING:
    import torch

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
    """Conversion of an operator.

    Attributes:
        arguments: names of the supported arguments; other arguments must have their defaults.
        convert: function that converts a node.
    """

    arguments: frozenset[str]
    convert: Conversion


CONVERTERS: dict[str, OperatorConverter] = {}
"""Converters by name with overload (`add.Tensor`), with namespace unless it is `aten`."""

NOT_DECOMPOSED: set[str] = set()
"""Operators of `CONVERTERS` that torch must not decompose into others."""


def converts(
    names: str, arguments: str, *, decomposed: bool = True
) -> Callable[[Conversion], Conversion]:
    """Register a conversion.

    Args:
        names: names of operators with overload, separated by spaces.
        arguments: names of the supported arguments, separated by spaces.
        decomposed: whether torch may decompose the operators.
    """

    def register(convert: Conversion) -> Conversion:
        for name in names.split():
            CONVERTERS[name] = OperatorConverter(frozenset(arguments.split()), convert)
            if not decomposed:
                NOT_DECOMPOSED.add(name)
        return convert

    return register


def left_to_tvm(names: str, arguments: str) -> None:
    """Register operators that TVM converts correctly.

    Args:
        names: names of operators with overload, separated by spaces.
        arguments: names of the arguments that TVM's converter supports, separated by spaces.
    """
    converts(names, arguments)(lambda graph, node, given: graph.by_tvm(node))
