# SPDX-License-Identifier: Apache-2.0
"""Names of the operators of an exported program, and their place in the model's source."""

from __future__ import annotations

import operator
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from umakit.errors import ModelError
from umakit.text.identities import SourceOperator

if TYPE_CHECKING:
    import torch

FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
LIBRARY = re.compile(r"[\\/]torch[\\/](nn|_|fx|export|utils|functional|autograd)|^<")


NUMBER = re.compile(r"(_\d+)+$")
"""Suffix of torch for nodes with the same operator anywhere in the model."""


class Names:
    """Names of a program's nodes before decomposition: module paths, and operators where needed.

    The only operator of a module has the module's path; other operators have path and operator.
    Operators of the same kind are numbered within their module. Torch numbers them across the whole
    model, so that a change of one module would rename nodes of another module.
    """

    def __init__(self, program: torch.export.ExportedProgram, where: str) -> None:
        self._where = where
        nodes = [node for node in program.graph.nodes if node.op == "call_function"]
        self._nodes = nodes
        self._paths = {node.name: _module_path(node) for node in nodes}
        # An element of a node with several results is not an operator.
        self._items = {node.name for node in nodes if node.target is operator.getitem}
        self._counts = Counter(
            path for name, path in self._paths.items() if name not in self._items
        )
        self._parents = {
            path[:position]
            for path in self._counts
            for position, letter in enumerate(path)
            if letter == "."
        }
        self._labels = self._all_labels()

    def label(self, node: torch.fx.Node) -> str:
        """Return the name of a node, for decomposed nodes the name of the original node."""
        origin = self.origin(node)
        if origin in self._labels:
            return self._labels[origin]
        path = _module_path(node)
        return f"{path}.{origin}" if path else origin

    def _all_labels(self) -> dict[str, str]:
        alone = {path for path, count in self._counts.items() if path and count == 1}
        alone -= self._parents
        taken, numbers = set(alone), Counter[str]()
        labels = {}
        for node in self._nodes:
            path = self._paths[node.name]
            if path in alone and node.name not in self._items:
                labels[node.name] = path
                continue
            first = ".".join(filter(None, (path, NUMBER.sub("", node.name))))
            label = f"{first}_{numbers[first]}" if numbers[first] else first
            while label in taken:
                numbers[first] += 1
                label = f"{first}_{numbers[first]}"
            numbers[first] += 1
            taken.add(label)
            labels[node.name] = label
        return labels

    def sources(self) -> dict[str, SourceOperator]:
        """Return the operators of the program by name, in program order."""
        found: dict[str, SourceOperator] = {}
        for number, node in enumerate(self._nodes):
            name = self.label(node)
            path, kind = self._paths[node.name], operator_of(node)
            found[name] = SourceOperator(name, str(node.name), number, path, kind)
        return found

    def error(self, node: torch.fx.Node, what: str, fix: str = "") -> ModelError:
        """Return an error about a node, with operator, name and source line."""
        line = source_line(node)
        place = f"node {self.label(node)!r}" + (f" ({line})" if line else "")
        return ModelError(
            f"operator {operator_of(node)} of {place} {what}", where=self._where, fix=fix
        )

    def origin(self, node: torch.fx.Node) -> str:
        """Return the name of the program's node from which a node was decomposed."""
        found = str(node.name)
        source = (node.meta.get("from_node") or [None])[-1]
        while source is not None:
            if source.name in self._paths:
                found = str(source.name)
            source = (source.from_node or [None])[-1]
        return found


def operator_of(node: torch.fx.Node) -> str:
    """Return the operator of a node, for example `aten.relu.default`."""
    if isinstance(node.target, str) or hasattr(node.target, "_schema"):
        return str(node.target)
    return str(node.target.__name__)


def source_line(node: torch.fx.Node) -> str:
    """Return the source line of a node, for example `model.py:12`; empty if unknown."""
    frames = [match.groupdict() for match in FRAME.finditer(node.meta.get("stack_trace") or "")]
    own = [frame for frame in frames if not LIBRARY.search(frame["file"])]
    return f"{Path(own[-1]['file']).name}:{own[-1]['line']}" if own else ""


def _module_path(node: torch.fx.Node) -> str:
    """Return the path of a node's innermost module; empty for the model itself."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = str(stack[-1][0]) if stack else ""
    return "" if path.startswith("_empty_nn_module_stack") else path
