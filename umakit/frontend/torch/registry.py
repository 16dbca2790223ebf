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
    """A node's arguments by the names of its operator's schema, defaults included."""
    schema = node.target._schema.arguments
    values = {a.name: a.default_value for a in schema if a.has_default_value()}
    values.update({a.name: value for a, value in zip(schema, node.args, strict=False)})
    return {**values, **node.kwargs}


class Graph(Protocol):
    """What conversions may ask about the program, and where they put Relax bindings."""

    @property
    def block_builder(self) -> tvm_api.BlockBuilder:
        """Relax's block builder, whose `emit` binds an expression to a variable."""

    def value(self, node: Node) -> Expr:
        """The Relax expression of a tensor node."""

    def definition(self, value: Expr) -> Expr:
        """What a variable is bound to; anything else is its own definition."""

    def fake(self, node: Node) -> Any:
        """The value, or the type, that torch gives a node."""

    def depends_on_inputs(self, node: Node) -> bool:
        """Whether only a run can tell a node's value."""

    def type_of(self, node: Node) -> tuple[tuple[int, ...], str]:
        """Shape and dtype of a tensor node, as torch has them."""

    def types_of(self, node: Node) -> list[tuple[tuple[int, ...], str]]:
        """Shapes and dtypes of a node that yields several tensors."""

    def dtype(self, dtype: torch.dtype, node: Node) -> str:
        """A dtype of torch in TVM."""

    def by_tvm(self, node: Node) -> Expr:
        """What TVM's own converter makes of a node."""

    def refuse(self, node: Node, what: str, fix: str = "") -> ModelError:
        """The error to raise about a node."""


Conversion = Callable[[Graph, Node, Arguments], Expr]
"""(graph, node, arguments by name) -> Relax expression; a Relax tuple for several results."""


@dataclass(frozen=True)
class OperatorConverter:
    """How an operator is converted.

    Attributes:
        arguments: names of the arguments that are looked at; others must have their defaults.
        convert: the conversion.
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
        arguments: names of the arguments that the conversion looks at, separated by spaces.
        decomposed: whether torch may decompose the operators, where it can.
    """

    def register(convert: Conversion) -> Conversion:
        for name in names.split():
            CONVERTERS[name] = OperatorConverter(frozenset(arguments.split()), convert)
            if not decomposed:
                NOT_DECOMPOSED.add(name)
        return convert

    return register


def left_to_tvm(names: str, arguments: str) -> None:
    """Register operators whose converters by TVM are right.

    Args:
        names: names of operators with overload, separated by spaces.
        arguments: names of the arguments that TVM's converter looks at, separated by spaces.
    """
    converts(names, arguments)(lambda graph, node, given: graph.by_tvm(node))
