# SPDX-License-Identifier: Apache-2.0
"""Regions of a PyTorch graph: groups of nodes that run together outside PyTorch.

This module decides neither which nodes form a region nor which device computes the region.
"""

from __future__ import annotations

import heapq
import itertools
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import attrgetter
from typing import Any

import torch
import torch.fx

from umakit.frontend.torch.quantization import is_quantized_operator

Node = Any
"""A `torch.fx.Node`."""
Unit = Any
"""A node, or the number of a group."""


def copy_shared_operands(graph: torch.fx.Graph) -> None:
    """Duplicate each dequantize, and each computation on weights alone, for every further user.

    Each copy then belongs to one layer. Layers share only integers and weights.
    """
    constants = constant_nodes(graph)
    for node in reversed(list(graph.nodes)):
        if node not in constants and not is_quantized_operator(node, "dequantize"):
            continue
        for user in list(node.users)[1:]:
            with graph.inserting_after(node):
                copy = graph.node_copy(node)
            user.replace_input_with(node, copy)


def constant_nodes(graph: torch.fx.Graph) -> set[Node]:
    """Return the calls that depend on weights alone."""
    found: set[Node] = set()
    for node in graph.nodes:
        sources = node.all_input_nodes
        if (
            node.op == "call_function"
            and sources
            and not writes(node)
            and all(each.op == "get_attr" or each in found for each in sources)
        ):
            found.add(node)
    return found


def is_conversion(node: Node) -> bool:
    """Whether a node is a `quantize` or `dequantize` of PT2E."""
    return any(is_quantized_operator(node, kind) for kind in ("quantize", "dequantize"))


def follows_source(node: Node) -> bool:
    return node.op == "call_function" and node.target is operator.getitem


def yields_tensors(node: Node) -> bool:
    value = node.meta.get("val")
    values = value if isinstance(value, (tuple, list)) else [value]
    return bool(values) and all(isinstance(each, torch.Tensor) or each is None for each in values)


def quantized_layers(graph: torch.fx.Graph) -> dict[str, list[Node]]:
    """Return the nodes of each layer between integer tensors, by the name of each of its calls.

    Connected nodes belong together, except across the output of a quantize.
    """
    parents: dict[Node, Node] = {}

    def root(node: Node) -> Node:
        while parents.setdefault(node, node) is not node:
            node = parents[node]
        return node

    calls = [node for node in graph.nodes if node.op == "call_function"]
    for node in calls:
        for source in [] if is_quantized_operator(node, "dequantize") else node.all_input_nodes:
            if source.op == "call_function" and not is_quantized_operator(source, "quantize"):
                parents[root(node)] = root(source)
    members: dict[Node, list[Node]] = {}
    for node in calls:
        members.setdefault(root(node), []).append(node)
    return {node.name: members[root(node)] for node in calls}


def clusters(graph: torch.fx.Graph, chosen: Callable[[Node], bool]) -> list[list[Node]]:
    """Group chosen calls so that each group can be computed at once, in execution order.

    The level of a node is the number of times that a path from the graph's inputs to the node
    enters or leaves chosen nodes. The chosen nodes of one level form a group. Thus no path leads
    out of a group and back into it. Nodes that depend on weights alone join the first group that
    uses them.
    """
    inside = {node for node in graph.nodes if node.op == "call_function" and chosen(node)}
    constants = constant_nodes(graph) & inside
    levels = _levels(graph, inside, constants)
    for node in reversed(list(graph.nodes)):
        if node in constants:
            levels[node] = min([levels[user] for user in node.users if user in inside] or [0])
    groups: dict[int, list[Node]] = {}
    for node in graph.nodes:
        if node in inside:
            groups.setdefault(levels[node], []).append(node)
    return [groups[level] for level in sorted(groups) if not constants.issuperset(groups[level])]


def divided(graph: torch.fx.Graph, groups: Sequence[Sequence[Node]]) -> list[list[Node]]:
    """Divide groups of `clusters` into one group for each layer.

    A quantized layer is the computation between integer tensors. Elsewhere, a layer is an operator
    with the following one-operand operators, such as activations, that are no layers themselves.
    """
    layers = quantized_layers(graph)
    constants = constant_nodes(graph)
    keys: dict[Node, Node] = {}
    for node in graph.nodes:
        layer = layers.get(node.name, [])
        sources = [each for each in node.all_input_nodes if each in keys and each not in constants]
        if any(is_conversion(each) for each in layer):
            keys[node] = layer[0]
        elif node.op == "call_function":
            has_weights = any(each.op == "get_attr" for each in node.all_input_nodes)
            alone = len(sources) == 1 and not has_weights
            keys[node] = keys[sources[0]] if alone else node
    found = []
    for group in groups:
        parts: dict[Node, list[Node]] = {}
        for node in group:
            users = [user for user in node.users if user in keys]
            key = keys[users[0]] if node in constants and users else keys[node]
            parts.setdefault(key, []).append(node)
        found += _in_order(list(parts.values())) or [list(group)]
    return found


def _in_order(parts: list[list[Node]]) -> list[list[Node]] | None:
    number_of = {node: number for number, part in enumerate(parts) for node in part}
    needs: dict[Unit, set[Unit]] = {
        number: {number_of[used] for node in part for used in node.all_input_nodes
                 if used in number_of} - {number}
        for number, part in enumerate(parts)
    }  # fmt: skip
    order = _sorted(needs, {number: number for number in needs})
    return [parts[number] for number in order] if len(order) == len(parts) else None


def _levels(
    graph: torch.fx.Graph, inside: Collection[Node], constants: Collection[Node]
) -> dict[Node, int]:
    levels: dict[Node, int] = {}
    least = 0
    for node in graph.nodes:
        sources = [each for each in node.all_input_nodes if each.op == "call_function"]
        own = node in inside
        entered = (
            levels[each] + ((each in inside) != own) for each in sources if each not in constants
        )
        levels[node] = 0 if node.op == "get_attr" else max([least, *entered])
        if writes(node):
            # Earlier nodes are computed before the group, later nodes after it.
            levels[node] = least = max(levels.values()) + 1
    return levels


def writes(node: Node) -> bool:
    """Whether a call changes one of its arguments or draws random numbers."""
    schema = getattr(node.target, "_schema", None)
    tags = getattr(node.target, "tags", ())
    return bool(schema and schema.is_mutable) or torch.Tag.nondeterministic_seeded in tags


def extract(
    module: torch.fx.GraphModule, groups: Sequence[Sequence[Node]]
) -> tuple[torch.fx.GraphModule, list[torch.fx.GraphModule]]:
    """Move groups of nodes into separate modules; the module stays unchanged."""
    regions, interfaces = [], []
    for group in groups:
        region, inputs, outputs = _region(module, group)
        regions.append(region)
        interfaces.append((inputs, outputs))
    graph = torch.fx.Graph()
    graph.set_codegen(module.graph._codegen)
    copies: dict[Node, Node] = {}
    for unit in _order(module.graph, groups):
        if not isinstance(unit, int):
            copies[unit] = graph.node_copy(unit, copies.__getitem__)
            continue
        inputs, outputs = interfaces[unit]
        call = graph.call_module(f"region_{unit}", tuple(copies[each] for each in inputs))
        for position, node in enumerate(outputs):
            value = call
            if len(outputs) > 1:
                value = graph.call_function(_item, (call, position))
            value.meta = {key: node.meta[key] for key in node.meta.keys() & {"val"}}
            copies[node] = value
    for node in reversed(list(graph.nodes)):
        if node.op == "get_attr" and not node.users:
            graph.erase_node(node)
    named = {f"region_{number}": region for number, region in enumerate(regions)}
    outer = with_attributes(graph, module, named)
    outer.graph.lint()
    return outer, regions


def with_attributes(
    graph: torch.fx.Graph, module: torch.fx.GraphModule, others: Mapping[str, Any]
) -> torch.fx.GraphModule:
    """Return a graph as a module, with attributes from `others`, else from the module."""
    named = {node.target for node in graph.nodes if node.op in ("get_attr", "call_module")}
    found = {name: attrgetter(name)(module) for name in sorted(named - others.keys())}
    return torch.fx.GraphModule({**found, **others}, graph)


def _item(values: Sequence[Any], position: int) -> Any:
    return values[position]


def _region(
    module: torch.fx.GraphModule, group: Sequence[Node]
) -> tuple[torch.fx.GraphModule, list[Node], list[Node]]:
    inside = set(group)
    graph = torch.fx.Graph()
    copies: dict[Node, Node] = {}
    inputs: list[Node] = []
    for used in dict.fromkeys(each for node in group for each in node.all_input_nodes):
        if used in inside:
            continue
        if used.op == "get_attr":
            copies[used] = graph.node_copy(used)
        else:
            inputs.append(used)
    placeholders = {used: graph.placeholder(used.name) for used in inputs}
    for used, placeholder in placeholders.items():
        placeholder.meta = {key: used.meta[key] for key in used.meta.keys() & {"val"}}
    copies.update(placeholders)
    for node in group:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    outputs = [node for node in group if any(user not in inside for user in node.users)]
    results = tuple(copies[node] for node in outputs)
    graph.output(results if len(results) != 1 else results[0])
    return torch.fx.GraphModule(module, graph), inputs, outputs


def _order(graph: torch.fx.Graph, groups: Sequence[Sequence[Node]]) -> list[Unit]:
    """Return nodes and group numbers in an execution order close to the graph's."""
    number_of = {node: number for number, group in enumerate(groups) for node in group}
    unit_of: dict[Node, Unit] = {node: number_of.get(node, node) for node in graph.nodes}
    positions: dict[Unit, int] = {}
    needs: dict[Unit, set[Unit]] = {}
    barrier: Unit | None = None
    for position, node in enumerate(graph.nodes):
        unit = unit_of[node]
        positions.setdefault(unit, position)
        needed = needs.setdefault(unit, set())
        needed.update(unit_of[each] for each in node.all_input_nodes)
        if barrier is not None:
            needed.add(barrier)
        if writes(node) or node.op == "output":
            needed.update(positions)
            barrier = unit
        needed.discard(unit)
    order = _sorted(needs, positions)
    assert len(order) == len(needs), "groups depend on each other in a circle"
    return order


def _sorted(needs: Mapping[Unit, Collection[Unit]], positions: Mapping[Unit, int]) -> list[Unit]:
    left = {unit: len(needed) for unit, needed in needs.items()}
    users: dict[Unit, list[Unit]] = {unit: [] for unit in needs}
    for unit, needed in needs.items():
        for each in needed:
            users[each].append(unit)
    numbers = itertools.count()
    ready = [(positions[unit], next(numbers), unit) for unit, count in left.items() if not count]
    heapq.heapify(ready)
    found = []
    while ready:
        _, _, unit = heapq.heappop(ready)
        found.append(unit)
        for user in users[unit]:
            left[user] -= 1
            if not left[user]:
                heapq.heappush(ready, (positions[user], next(numbers), user))
    return found
