# SPDX-License-Identifier: Apache-2.0
"""Assigns parts of a PyTorch network to accelerators, and leaves the rest to PyTorch.

The network is imported and partitioned as in `uma partition`. Offloaded operators become regions of
PyTorch's own graph, and each region is compiled as a separate network.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import torch
import torch.fx
from torch._dynamo.convert_frame import compile_lock
from torch.utils import _pytree as pytree

from umakit.errors import ModelError
from umakit.frontend.torch.programs import refused_operators
from umakit.frontend.torch.static import quiet_torch
from umakit.library.options import ExportOptions
from umakit.partition.choice import CPU
from umakit.partition.partitioner import Partitioned
from umakit.partition.report import OperatorPlacement
from umakit.pipeline import Network, partition_model
from umakit.registration.backend import Backend
from umakit.torch.placements import PYTORCH, Placement
from umakit.torch.regions import (
    Node,
    clusters,
    constant_nodes,
    extract,
    follows_source,
    is_conversion,
    quantized_layers,
    writes,
    yields_tensors,
)
from umakit.tvm_api import one_at_a_time

Progress = Callable[[str], None]
P = ParamSpec("P")
R = TypeVar("R")


def one_export_at_a_time(function: Callable[P, R]) -> Callable[P, R]:
    """Exclude other threads from export, tracing and TVM while a function runs.

    torch keeps the state of exports and traces in process-wide variables. Two concurrent exports
    fail and leave the state as if an export went on. An export during a trace of `torch.compile`,
    which holds this lock of torch, fails likewise.
    """
    alone = one_at_a_time(function)

    @functools.wraps(function)
    def locked(*args: P.args, **kwargs: P.kwargs) -> R:
        with compile_lock:
            return alone(*args, **kwargs)

    return locked


@dataclass(frozen=True)
class Offer:
    """The share of a graph that accelerators would compute.

    Attributes:
        taken: names of the offloaded nodes.
        macs: multiply-accumulates that `uma partition` would offload.
    """

    taken: frozenset[str]
    placements: tuple[Placement, ...]
    macs: int


def find_offer(
    program: torch.export.ExportedProgram,
    module: torch.fx.GraphModule,
    flat: Sequence[Any],
    backends: Sequence[Backend],
    options: ExportOptions,
) -> Offer:
    """Return the offer of accelerators for a network; each dequantize of `module` has one user."""
    shapes = input_shapes(program, flat)
    try:
        network, partitioned = partition_model(
            program, backends, name="network", input_shapes=shapes, options=options
        )
    except ModelError:
        refused = refused_operators(program, "network", shapes)
        return _offer_of_parts(module, flat, backends, options, refused)
    names = {node.name: node.name for node in module.graph.nodes}
    return _offer(module.graph, network, partitioned, names)


def input_shapes(
    program: torch.export.ExportedProgram, flat: Sequence[Any]
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors among the arguments, by the names of inputs."""
    names = program.graph_signature.user_inputs
    return {
        name: tuple(value.shape)
        for name, value in zip(names, flat, strict=True)
        if isinstance(value, torch.Tensor) and isinstance(name, str)
    }


def _offer_of_parts(
    module: torch.fx.GraphModule,
    flat: Sequence[Any],
    backends: Sequence[Backend],
    options: ExportOptions,
    refused: Mapping[str, ModelError],
) -> Offer:

    def is_importable(node: Node) -> bool:
        if follows_source(node):
            node = node.all_input_nodes[0]
        return node.name not in refused and not writes(node) and yields_tensors(node)

    groups = clusters(module.graph, is_importable)
    _, regions = extract(module, groups)
    inputs = values_at(module, flat, [region_inputs(region) for region in regions])
    nodes = {node.name: node for node in module.graph.nodes}
    rows = _in_pytorch((nodes[name], error) for name, error in refused.items() if name in nodes)
    offers = [
        Offer(frozenset(), rows, 0),
        *(
            _offer_of_part(region, values, backends, options)
            for region, values in zip(regions, inputs, strict=True)
        ),
    ]
    return Offer(
        frozenset().union(*(each.taken for each in offers)),
        tuple(row for each in offers for row in each.placements),
        sum(each.macs for each in offers),
    )


def _in_pytorch(refused: Iterable[tuple[Node, ModelError]]) -> tuple[Placement, ...]:
    return tuple(
        Placement(str(node.target), node.name, PYTORCH, error.what, node=node.name)
        for node, error in refused
        if not follows_source(node)
    )


def _offer_of_part(
    region: torch.fx.GraphModule,
    values: Sequence[Any],
    backends: Sequence[Backend],
    options: ExportOptions,
) -> Offer:
    program, names = exported_part(region, values)
    try:
        network, partitioned = partition_model(program, backends, name="network", options=options)
    except ModelError as error:
        calls = (node for node in region.graph.nodes if node.op == "call_function")
        return Offer(frozenset(), _in_pytorch((node, error) for node in calls), 0)
    return _offer(region.graph, network, partitioned, names)


def _offer(
    graph: torch.fx.Graph, network: Network, partitioned: Partitioned, names: Mapping[str, str]
) -> Offer:
    nodes = {node.name: node for node in graph.nodes}
    found = {
        label: nodes[names[source.given]]
        for label, source in network.model.sources.items()
        if names.get(source.given) in nodes
    }
    rows = partitioned.report.placements
    taken = _taken(graph, found, rows)
    return Offer(
        frozenset(node.name for node in taken),
        tuple(
            Placement(r.operator, r.name, PYTORCH if r.where == CPU else r.where, r.reason, r.macs,
                      found[r.name].name if r.name in found else "")
            for r in rows
            if not r.changes_layout
        ),
        partitioned.report.offloaded_macs,
    )  # fmt: skip


def _taken(
    graph: torch.fx.Graph, found: Mapping[str, Node], rows: Sequence[OperatorPlacement]
) -> set[Node]:
    layers = quantized_layers(graph)
    taken: set[Node] = set()
    for row in rows:
        for label in {row.name, row.yields} & found.keys() if row.where != CPU else ():
            node = found[label]
            in_integers = row.dtype.startswith(("int", "uint")) and not has_integers(node)
            taken.update(layers[node.name] if in_integers else [node])
    told = {label for row in rows for label in (row.name, row.yields)}
    untold = {node for label, node in found.items() if label not in told}
    for node in graph.nodes:
        sources = [each for each in node.all_input_nodes if each.op == "call_function"]
        follows = follows_source(node) or (node in untold and not is_conversion(node))
        if sources and follows and taken.issuperset(sources):
            taken.add(node)  # part of the preceding layer, such as a normalization
    constants = constant_nodes(graph)
    for node in reversed(list(graph.nodes)):
        if node in constants and taken.intersection(node.users):
            taken.add(node)
    return taken


def has_integers(node: Node) -> bool:
    value = node.meta.get("val")
    first = value[0] if isinstance(value, (tuple, list)) and value else value
    return isinstance(first, torch.Tensor) and not first.dtype.is_floating_point


@one_export_at_a_time
def exported(
    module: torch.nn.Module,
    arguments: tuple[Any, ...],
    keywords: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> torch.export.ExportedProgram:
    """Export a module as a program without in-place changes."""
    with quiet_torch(), torch.no_grad():
        try:
            program = torch.export.export(
                module, arguments, dict(keywords or {}), dynamic_shapes=dynamic_shapes
            )
            return functional(program)
        except Exception as error:  # torch passes on any exception of its tracing
            first = str(error).strip().splitlines() or [type(error).__name__]
            raise ModelError(
                f"torch cannot export the module: {first[0]}",
                where=type(module).__name__,
                fix="check that the module can be called with the example; if it can, "
                "torch.compile(module, backend='umakit') takes what cannot be exported whole",
            ) from error


@one_export_at_a_time
def functional(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return an equivalent program without in-place changes, with the same operators."""
    with quiet_torch():
        program = program.run_decompositions({})
    for node in program.graph.nodes:
        # Node names of other graphs, which may coincide with names in this graph.
        node.meta.pop("from_node", None)
    return program


@one_export_at_a_time
def exported_part(
    region: torch.fx.GraphModule, values: Sequence[Any]
) -> tuple[torch.export.ExportedProgram, dict[str, str]]:
    """Export a part; return the program, and the part's node names by the program's."""
    for node in region.graph.nodes:
        node.meta.pop("from_node", None)
    with quiet_torch(), torch.no_grad():
        program = torch.export.export(region, tuple(values))
    names = {}
    for node in program.graph.nodes:
        sources = node.meta.pop("from_node", None) or [node]
        names[node.name] = str(sources[-1].name)
    return program, names


def region_inputs(region: torch.fx.GraphModule) -> list[str]:
    return [str(node.target) for node in region.graph.nodes if node.op == "placeholder"]


def values_at(
    module: torch.fx.GraphModule, flat: Sequence[Any], names: Iterable[Sequence[str]]
) -> list[list[Any]]:
    """Run a graph, and return the values of the named nodes.

    The arguments, the graph's tensors and the random numbers drawn later are as before.
    """
    wanted = [list(each) for each in names]
    kept: dict[str, Any] = {name: None for each in wanted for name in each}

    own: dict[str, Any] = {}

    class Recorder(torch.fx.Interpreter):  # type: ignore[misc]
        def fetch_attr(self, target: str) -> Any:
            # Operators may write to their inputs even if their schema does not declare it.
            if target not in own:
                own[target] = copied(super().fetch_attr(target))
            return own[target]

        def run_node(self, node: Node) -> Any:
            value = super().run_node(node)
            if node.name in kept:
                kept[node.name] = value
            return value

    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        Recorder(module).run(*copied(flat), enable_io_processing=False)
    return [[kept[name] for name in each] for each in wanted]


def copied(values: Any) -> Any:
    return pytree.tree_map(
        lambda value: value.clone() if isinstance(value, torch.Tensor) else value, values
    )


@contextmanager
def same_buffers(*modules: torch.nn.Module) -> Iterator[None]:
    """Restore the values of all buffers after the block."""
    buffers = [buffer for module in modules for buffer in module.buffers()]
    values = [buffer.clone() for buffer in buffers]
    yield
    for buffer, value in zip(buffers, values, strict=True):
        buffer.copy_(value)


def flat_arguments(
    program: torch.export.ExportedProgram, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
) -> list[Any]:
    """Return the arguments of a call as inputs of a program, in the program's order."""
    order = program.call_spec.in_spec.children()[1].context
    ordered = {name: keywords[name] for name in order if name in keywords}
    leaves, _ = pytree.tree_flatten((arguments, {**ordered, **dict(keywords)}))
    return list(leaves)
