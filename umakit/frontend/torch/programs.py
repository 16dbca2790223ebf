# SPDX-License-Identifier: Apache-2.0
"""Exported programs of PyTorch as input.

torch decomposes the program into Core ATen operators and computes their shapes; TVM's converters
translate them, one node at a time, so that names and errors keep their place. Models in training
mode, writes to state and random numbers are refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.export.graph_signature import TensorArgument
from torch.utils import _pytree as pytree

from umakit.errors import ModelError
from umakit.frontend.model import InputShapes, Model
from umakit.frontend.relax_modules import specifications
from umakit.frontend.torch.archive import load_program
from umakit.frontend.torch.converter import Converter
from umakit.frontend.torch.names import Names
from umakit.frontend.torch.quantization import edge_quantization
from umakit.frontend.torch.registry import arguments_of
from umakit.frontend.torch.static import EVALUATE, check_no_state, input_sizes, make_static
from umakit.text.names import symbol_part


def import_torch(source: Path | Any, name: str | None, input_shapes: InputShapes) -> Model:
    """Import a `.pt2` file or an exported program. Weights become constants.

    The default name is the file's stem, or `default`.
    """
    program = load_program(source) if isinstance(source, Path) else source
    where = str(source) if isinstance(source, Path) else (name or "ExportedProgram")
    names = Names(program, where)
    for node in program.graph.nodes:
        check_inference(node, names)
    outputs = output_names(program, where)
    shapes, notices = input_sizes(program, input_shapes, where)
    static = make_static(program, shapes, names.error, where)
    converter = Converter(static, names)
    module = converter.run(len(outputs))
    given = [
        (node.name, edge_quantization(converter, node, "dequantize")) for node in static.inputs
    ]
    results = zip(outputs, static.graph.output_node().args[0], strict=True)
    yielded = [(label, edge_quantization(converter, node, "quantize")) for label, node in results]
    tensors = specifications(module, given, yielded, where)
    symbol = symbol_part(name or (source.stem if isinstance(source, Path) else "default"))
    return Model(symbol, module, *tensors, tuple(notices), sources=names.sources())


def output_names(program: torch.export.ExportedProgram, where: str) -> list[str]:
    """Return the names of the outputs: dictionary keys joined by `_`, else the graph's names."""
    check_no_state(program, where)
    specs = program.graph_signature.output_specs
    for spec in specs:
        if not isinstance(spec.arg, TensorArgument):
            raise ModelError(
                f"output {spec.arg.name or spec.arg.value!r} is not a tensor",
                where=where,
                fix="return tensors only",
            )
    signature = [spec.arg.name for spec in specs]
    tree = pytree.tree_unflatten(list(range(len(specs))), program.call_spec.out_spec)
    paths, _ = pytree.tree_flatten_with_path(tree)
    chosen = [_path_name(path) or signature[number] for path, number in paths]
    taken = Counter[str]()
    for position, label in enumerate(chosen):
        if taken[label]:
            chosen[position] = f"{label}_{taken[label]}"
        taken[label] += 1
    return chosen


def _path_name(path: Sequence[object]) -> str:
    """Return the name that a path of keys forms; empty for paths of positions only."""
    if all(isinstance(key, pytree.SequenceKey) for key in path):
        return ""
    parts = [getattr(key, "key", getattr(key, "name", getattr(key, "idx", ""))) for key in path]
    return "_".join(str(part) for part in parts)


def check_inference(node: torch.fx.Node, names: Names) -> None:
    """Refuse a node in training mode: batch statistics, active dropout, random numbers."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return
    given = arguments_of(node)
    active = given.get("training", given.get("train")) is True
    if "batch_norm" in node.target.__name__ or "use_input_stats" in given:
        active = active or given.get("use_input_stats") is True
        active = active or "functional" in node.target.__name__
        if active and given.get("running_mean") is not None:
            raise names.error(node, "normalizes with the statistics of the batch", EVALUATE)
    elif active and given.get("p", given.get("dropout", 1.0)) != 0.0:
        raise names.error(node, "is active, as it is in training", EVALUATE)
    elif given.get("dropout_p"):
        raise names.error(node, "drops random values, as it does in training", EVALUATE)
    elif torch.Tag.nondeterministic_seeded in node.target.tags and not (
        given.keys() & {"train", "training", "dropout_p"}
    ):
        raise names.error(node, "draws random numbers", EVALUATE)


def refused_operators(
    program: torch.export.ExportedProgram, where: str, input_shapes: InputShapes
) -> Mapping[str, ModelError]:
    """Return the refusals of `import_torch` by node, except of state, inputs and outputs."""
    names = Names(program, where)
    refused: dict[str, ModelError] = {}
    for node in program.graph.nodes:
        try:
            check_inference(node, names)
        except ModelError as error:
            refused[node.name] = error
    shapes, _ = input_sizes(program, input_shapes, where)
    found: dict[torch.fx.Node, ModelError] = {}
    static = make_static(program, shapes, names.error, where, found)
    found |= Converter(static, names).refusals()
    for node in static.graph.nodes:  # the first decomposed node's error wins
        if node in found:
            refused.setdefault(names.origin(node), found[node])
    return refused
