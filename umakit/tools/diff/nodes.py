# SPDX-License-Identifier: Apache-2.0
"""The nodes of a quantized ONNX file that an integer operator replaces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx

from umakit.frontend.onnx.files import name_nodes

BETWEEN = ("QuantizeLinear", "DequantizeLinear")


def island_nodes(path: Path) -> dict[str, tuple[str, ...]]:
    """Return the names of the nodes from dequantize to quantize, by name of the final quantize.

    The integer operator that replaces them yields the result of the quantize node.

    Args:
        path: path of an ONNX file that can be imported.
    """
    graph = onnx.load(str(path), load_external_data=False)
    name_nodes(graph)
    nodes = list(graph.graph.node)
    producers = {name: number for number, node in enumerate(nodes) for name in node.output}
    found = {}
    for number, node in enumerate(nodes):
        if node.op_type == "QuantizeLinear":
            inside = sorted(_before(nodes, producers, number))
            if inside:
                found[node.name] = (*(nodes[n].name for n in inside), node.name)
    return found


def _before(nodes: list[Any], producers: dict[str, int], number: int) -> set[int]:
    """Return the nodes that a node is computed from, back to quantized values."""
    found: set[int] = set()
    open_nodes = [number]
    while open_nodes:
        for name in nodes[open_nodes.pop()].input:
            source = producers.get(name)
            if source is not None and source not in found and nodes[source].op_type not in BETWEEN:
                found.add(source)
                open_nodes.append(source)
    return found
