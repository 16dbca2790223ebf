# SPDX-License-Identifier: Apache-2.0
"""PyTorch networks with parts that run on accelerators."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.fx
from torch.utils._pytree import tree_leaves

from umakit.backend.registry import find_backend
from umakit.errors import InputError
from umakit.frontend.torch.archive import register_quantized_operators
from umakit.frontend.torch.static import quiet_torch
from umakit.library.options import ExportOptions
from umakit.partition.report import OffloadReport
from umakit.pipeline import compile_model
from umakit.registration.backend import Backend
from umakit.torch.comparison import Comparison, compare
from umakit.torch.module import LibraryModule, from_bytes, load
from umakit.torch.offers import (
    Progress,
    exported_part,
    find_offer,
    flat_arguments,
    one_export_at_a_time,
    region_inputs,
    same_buffers,
    values_at,
)
from umakit.torch.placements import PYTORCH, Offload
from umakit.torch.regions import clusters, copy_shared_operands, divided, extract

ALONE = "the accelerator takes it in the whole network, but not in a part of it"
Shapes = tuple[Any, ...]
"""Shapes of a region's input tensors, and its input numbers."""


@dataclass(frozen=True)
class Accelerators:
    """Names of backends or paths of their folders, in order, and options to compile."""

    names: tuple[str, ...]
    options: ExportOptions

    def backends(self) -> list[Backend]:
        return [find_backend(name) for name in self.names]


class Region(torch.nn.Module):  # type: ignore[misc]
    """A part of a network that libraries compute, one library for each set of input shapes.

    Attributes:
        graph: the part as a graph of PyTorch.
        libraries: library by input shapes; None if no accelerator takes the part with these shapes.
    """

    def __init__(self, name: str, graph: torch.fx.GraphModule, accelerators: Accelerators) -> None:
        super().__init__()
        self.name = name
        self.graph = graph
        self.libraries: dict[Shapes, LibraryModule | None] = {}
        self._accelerators = accelerators

    def forward(self, *values: Any) -> Any:
        """Compute the part, after compiling a library for new shapes."""
        shapes = shapes_of(values)
        if shapes not in self.libraries:
            self.compile(values)
        library = self.libraries[shapes]
        if library is None:
            return self.graph(*values)
        return library(*(each.contiguous() for each in values if isinstance(each, torch.Tensor)))

    @one_export_at_a_time
    def compile(self, values: Sequence[Any]) -> OffloadReport | None:
        """Compile the part for the shapes of some values, and return the offload report.

        None if the part was compiled for these shapes already.
        """
        shapes = shapes_of(values)
        tensors = (each for each in values if isinstance(each, torch.Tensor))
        if any(type(each) not in (torch.Tensor, torch.nn.Parameter) for each in tensors):
            # Symbolic, during the export of a program.
            raise InputError(
                f"{self.name} is not compiled for the shapes {list(shapes)}",
                fix="call the module with such tensors before it is exported",
            )
        if shapes in self.libraries:
            return None
        program, _ = exported_part(self.graph, values)
        with tempfile.TemporaryDirectory(prefix="umakit-offload-") as folder:
            made = compile_model(
                program, self._accelerators.backends(), Path(folder) / self.name,
                name=self.name, options=self._accelerators.options,
            )  # fmt: skip
            takes = bool(made.report.offloaded)
            self.libraries[shapes] = load(made.path) if takes else None
        return made.report


def shapes_of(values: Sequence[Any]) -> Shapes:
    """Return the key of values in `Region.libraries`."""
    return tuple(tuple(v.shape) if isinstance(v, torch.Tensor) else v for v in values)


class OffloadedModule(torch.nn.Module):  # type: ignore[misc]
    """A network computed partly by accelerators and otherwise by PyTorch.

    `torch.save` stores the network and the sources of the libraries; `torch.load` compiles the
    libraries again. The network has no gradient.

    Attributes:
        network: the graph, with the parts as `region_0`, `region_1` and so on.
        offload: placement of each operator; printable.
    """

    def __init__(
        self,
        program: torch.export.ExportedProgram,
        regions: Sequence[Sequence[str]],
        accelerators: Accelerators,
        offload: Offload,
    ) -> None:
        """Divide a network; `regions` has the node names of each part."""
        super().__init__()
        self.offload = offload
        self._program, self._accelerators = program, accelerators
        self._names = [list(each) for each in regions]
        module = eager_graph(program)
        nodes = {node.name: node for node in module.graph.nodes}
        groups = [[nodes[name] for name in each] for each in self._names]
        network, graphs = extract(module, groups)
        for number, graph in enumerate(graphs):
            region = Region(f"region_{number}", graph, accelerators)
            setattr(network, region.name, region)
        self.network = network

    @property
    def regions(self) -> list[Region]:
        return [each for each in self.network.children() if isinstance(each, Region)]

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        """Compute the network, with the arguments of the original module.

        Raises:
            InputError: the network was exported for inputs of other shapes or values.
            UmakitError: a part cannot be compiled for new shapes, or its run failed.
        """
        with guarded(arguments, keywords):
            return self.network(*arguments, **keywords)

    def compare(self, *arguments: Any, repeats: int = 10, **keywords: Any) -> Comparison:
        """Compare each part and the whole network with PyTorch alone; `print` writes tables.

        Args:
            arguments, keywords: arguments of a call.
            repeats: number of timed calls.

        Raises:
            InputError: the network was exported for inputs of other shapes or values.
        """
        with guarded(arguments, keywords):
            return self._compare(arguments, keywords, repeats)

    def _compare(
        self, arguments: tuple[Any, ...], keywords: Mapping[str, Any], repeats: int
    ) -> Comparison:
        flat = flat_arguments(self._program, arguments, keywords)
        eager = eager_graph(self._program)
        inputs = values_at(
            self.network, flat, [[each.name for each in node.all_input_nodes]
                                 for node in self.network.graph.nodes
                                 if node.op == "call_module" and node.target.startswith("region_")]
        )  # fmt: skip
        parts = {self._label(number, region): (region, values)
                 for number, (region, values)
                 in enumerate(zip(self.regions, inputs, strict=True))}  # fmt: skip
        with torch.no_grad(), same_buffers(self.network, eager):
            return compare(self.network, eager, parts, arguments, keywords, repeats)

    def _label(self, number: int, region: Region) -> str:
        nodes = set(self._names[number])
        names = [each.name for each in self.offload.placements
                 if each.where != PYTORCH and each.node in nodes]  # fmt: skip
        return f"{region.name}: {' + '.join(dict.fromkeys(names))}"

    @one_export_at_a_time
    def __reduce__(self) -> tuple[Any, ...]:
        buffer = io.BytesIO()
        with quiet_torch():
            torch.export.save(self._program, buffer)
        libraries = [
            {shapes: None if library is None else library.source_bytes()
             for shapes, library in region.libraries.items()}
            for region in self.regions
        ]  # fmt: skip
        changed = self._program.graph_signature.buffers_to_mutate.values()
        state = self.network.state_dict()
        buffers = {name: state[name] for name in changed if name in state}
        return _restored, (
            buffer.getvalue(), self._names, self._accelerators, self.offload, libraries, buffers
        )  # fmt: skip


@contextmanager
def guarded(arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Iterator[None]:
    """Refuse arguments that a network does not accept, with one error."""
    for leaf in tree_leaves((arguments, dict(keywords))):
        if type(leaf).__module__ == "numpy":
            raise InputError(
                f"an argument is a {type(leaf).__name__} of NumPy",
                fix="convert it with torch.as_tensor",
            )
    try:
        yield
    except AssertionError as error:
        said = str(error).strip().splitlines() or [""]
        if not said[0].startswith("Guard failed"):
            raise
        raise InputError(
            f"the network was exported for other inputs: {said[0]}",
            fix="give dynamic_shapes to umakit.torch.offload",
        ) from None


@one_export_at_a_time
def eager_graph(program: torch.export.ExportedProgram) -> torch.fx.GraphModule:
    """Return a program as a graph for PyTorch, after `copy_shared_operands`.

    The graph owns copies of the buffers it writes.
    """
    with quiet_torch():
        module = program.module()
    copy_shared_operands(module.graph)
    module.recompile()
    for name in program.graph_signature.buffers_to_mutate.values():
        # torch shares buffers with the exported module.
        path, _, last = name.rpartition(".")
        holder = module.get_submodule(path)
        setattr(holder, last, getattr(holder, last).clone())
    return module


@one_export_at_a_time
def _restored(
    program: bytes,
    names: Sequence[Sequence[str]],
    accelerators: Accelerators,
    offload: Offload,
    libraries: Sequence[Mapping[Shapes, bytes | None]],
    buffers: Mapping[str, torch.Tensor],
) -> OffloadedModule:
    register_quantized_operators()
    with quiet_torch():
        loaded = torch.export.load(io.BytesIO(program))
    module = OffloadedModule(loaded, names, accelerators, offload)
    for region, found in zip(module.regions, libraries, strict=True):
        for shapes, source in found.items():
            region.libraries[shapes] = None if source is None else from_bytes(source)
    module.network.load_state_dict(buffers, strict=False)
    return module


@one_export_at_a_time
def offloaded_module(
    program: torch.export.ExportedProgram,
    flat: Sequence[Any],
    accelerators: Accelerators,
    progress: Progress = lambda stage: None,
    by_layer: bool = False,
) -> OffloadedModule:
    """Offload the parts of a network that accelerators take."""
    progress("partitioning")
    module = eager_graph(program)
    offer = find_offer(program, module, flat, accelerators.backends(), accelerators.options)
    groups = clusters(module.graph, lambda node: node.name in offer.taken)
    if by_layer:
        groups = divided(module.graph, groups)
    names = [[node.name for node in group] for group in groups]
    _, graphs = extract(module, groups)
    inputs = values_at(module, flat, [region_inputs(graph) for graph in graphs])
    kept: list[tuple[list[str], Region]] = []
    left: set[str] = set()
    offloaded = 0
    for number, (graph, values) in enumerate(zip(graphs, inputs, strict=True)):
        progress(f"compiling part {number + 1} of {len(names)}")
        region = Region(f"region_{number}", graph, accelerators)
        report = region.compile(values)
        if report is not None and report.offloaded:
            offloaded += report.offloaded_macs
            kept.append((names[number], region))
        else:
            left.update(names[number])
    rows = tuple(
        replace(each, where=PYTORCH, reason=ALONE) if each.node in left and not each.reason
        else each
        for each in offer.placements
    )  # fmt: skip
    total = sum(each.macs or 0 for each in rows)
    offload = Offload(rows, total, offloaded, offer.macs)
    made = OffloadedModule(program, [each for each, _ in kept], accelerators, offload)
    for region, (_, compiled) in zip(made.regions, kept, strict=True):
        region.libraries.update(compiled.libraries)
    return made
