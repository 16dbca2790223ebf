# SPDX-License-Identifier: Apache-2.0
"""Operators that are written as several others before the graph is imported.

Files of `operators` register them by `rewrites`: operators of ONNX Runtime's domain, and
operators of its quantized format (QOperator), which become the same network with QuantizeLinear and
DequantizeLinear.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.numpy_helper

from umakit.errors import ModelError
from umakit.frontend.onnx.registry import attribute_of

Array = npt.NDArray[Any]

MICROSOFT = "com.microsoft"
"""ONNX Runtime's own domain."""


class Rewriter:
    """A node to rewrite, and the nodes that replace it. Constants of unknown values are None."""

    def __init__(
        self, proto: onnx.NodeProto, file: str, constants: Mapping[str, onnx.TensorProto | None]
    ) -> None:
        self.proto = proto
        self.nodes: list[onnx.NodeProto] = []
        self._file = file
        self._constants = constants

    def input(self, position: int) -> str:
        """Return the name of an input; empty for an omitted input."""
        return self.proto.input[position] if position < len(self.proto.input) else ""

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return the value of an attribute, or `default` if the node lacks the attribute."""
        return attribute_of(self.proto, name, default)

    def attributes(self, without: str = "") -> dict[str, Any]:
        """Return all attributes except the given names, separated by spaces."""
        return {
            attribute.name: onnx.helper.get_attribute_value(attribute)
            for attribute in self.proto.attribute
            if attribute.name not in without.split()
        }

    def is_constant(self, position: int) -> bool:
        """Return whether the values of an input are known."""
        return self._constants.get(self.input(position)) is not None

    def values(self, position: int, what: str) -> Array:
        tensor = self._constants.get(self.input(position))
        if tensor is None:
            raise self.refuse(f"has a {what} that is not a constant")
        values: Array = onnx.numpy_helper.to_array(tensor)
        return values

    def add(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Add a node of the standard domain with one result, and return the result's name."""
        name = output or f"{self.proto.output[0]}/{self.proto.name}/{len(self.nodes)}"
        node = onnx.helper.make_node(operator, list(inputs), [name], self.proto.name, **attributes)
        self.nodes.append(node)
        return name

    def constant(self, array: npt.ArrayLike) -> str:
        return self.add("Constant", value=onnx.numpy_helper.from_array(np.asarray(array)))

    def finish(self, operator: str, *inputs: str, **attributes: Any) -> None:
        """Add the node that yields the first result of the rewritten node."""
        self.add(operator, *inputs, output=self.proto.output[0], **attributes)

    def refuse(self, what: str, fix: str = "") -> ModelError:
        """Return the error that refuses this node; `what` is the predicate of the sentence."""
        return ModelError(
            f"operator {self.proto.op_type} of node {self.proto.name!r} {what}",
            where=self._file,
            fix=fix,
        )


Rewrite = Callable[[Rewriter], None]
"""Adds the nodes that take a node's place."""

REWRITES: dict[tuple[str, str], Rewrite] = {}
"""Rewriting functions by domain and operator."""


def rewrites(operators: str, domain: str = "") -> Callable[[Rewrite], Rewrite]:
    """Register a function that rewrites operators; names are separated by spaces."""

    def register(rewrite: Rewrite) -> Rewrite:
        REWRITES.update(dict.fromkeys(((domain, name) for name in operators.split()), rewrite))
        return rewrite

    return register


def is_rewritten(node: onnx.NodeProto) -> bool:
    return (_domain(node), node.op_type) in REWRITES


def rewrite_nodes(
    graph: onnx.GraphProto, path: Path, outside: Mapping[str, onnx.TensorProto | None]
) -> None:
    """Apply the registered rewrites to a graph and its nested graphs, in place.

    `outside` has the constants of the enclosing graphs.
    """
    constants = {**outside, **constant_tensors(graph)}
    written: list[onnx.NodeProto] = []
    changed = False
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                rewrite_nodes(attribute.g, path, constants)
        if not is_rewritten(node):
            written.append(node)
            continue
        rewriter = Rewriter(node, str(path), constants)
        try:
            REWRITES[_domain(node), node.op_type](rewriter)
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise rewriter.refuse("is put together in a way that is not supported") from error
        written += rewriter.nodes
        changed = True
    if changed:
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in written]
        del graph.node[:]
        graph.node.extend(copies)


def constant_tensors(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto | None]:
    """Return constant tensors by name; None for tensors with unknown values."""
    found: dict[str, onnx.TensorProto | None] = {t.name: t for t in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            values = [a.t for a in node.attribute if a.name == "value"]
            found[node.output[0]] = values[0] if values else None
        elif node.op_type == "Identity" and node.input[0] in found:
            found[node.output[0]] = found[node.input[0]]
    return found


def _domain(node: onnx.NodeProto) -> str:
    return "" if node.domain == "ai.onnx" else str(node.domain)
