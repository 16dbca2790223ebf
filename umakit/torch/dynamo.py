# SPDX-License-Identifier: Apache-2.0
"""`torch.compile(..., backend="umakit")`: accelerators take parts of graphs, PyTorch the rest.

torch finds `compile_graph` by the entry point `torch_dynamo_backends`.
"""

from __future__ import annotations

import itertools
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch._dynamo
import torch.fx
from torch.fx import traceback

from umakit.errors import BackendError, BuildError, InputError, ModelError, UmakitError
from umakit.frontend.torch.names import Names
from umakit.frontend.torch.programs import check_inference
from umakit.torch.offers import exported
from umakit.torch.offloaded import (
    Accelerators,
    OffloadedModule,
    Shapes,
    offloaded_module,
    shapes_of,
)
from umakit.torch.offloading import accelerators_of
from umakit.torch.placements import Offload
from umakit.torch.regions import with_attributes, writes

OPTIONS = ("accelerators", "export", "explain", "report")
VARIABLE = re.compile(r"^L\['\w+'\]\.?")
"""The variable of the caller in front of the path of a module."""
GRADIENTS = "gradients are needed: call it under torch.no_grad()"
INFERENCE = "weights were made under torch.inference_mode, so that their changes cannot be seen"
_NUMBERS = itertools.count(1)


@dataclass(frozen=True)
class GraphReport:
    """The outcome of a graph of `torch.compile` for the input shapes of a first call.

    Attributes:
        graph: number of the graph in this process, from 1.
        shapes: shapes of the inputs, without weights.
        offload: placement of each operator; None if the whole graph was left to PyTorch.
        reason: reason for leaving the whole graph to PyTorch; empty if `offload` states it.
        graph_breaks: reasons for graph breaks since the last report.
    """

    graph: int
    shapes: Shapes
    offload: Offload | None
    reason: str
    graph_breaks: tuple[str, ...]

    def __str__(self) -> str:
        shapes = [list(each) if isinstance(each, tuple) else each for each in self.shapes]
        lines = [f"graph {self.graph}, inputs {shapes}:"]
        lines.append(str(self.offload) if self.offload is not None else self.reason)
        lines += [f"graph break: {each}" for each in self.graph_breaks]
        return "\n".join(lines)


def compile_graph(
    graph: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile a graph of `torch.compile` on the first call with new input shapes.

    Args:
        graph: the traced graph; weights may be inputs.
        example_inputs: inputs of the graph.
        options: options of `torch.compile`: `accelerators` (required), a backend or several, as for
            `umakit.torch.offload`; `export`, an `umakit.ExportOptions`; `explain`, whether the
            placements are written to standard error; `report`, a function that takes a
            `GraphReport`.

    Raises:
        InputError: an option is missing or of another type.
        BackendError: a backend cannot be found or loaded.
    """
    given = dict(options or {})
    where = "torch.compile"
    for name in given.keys() - set(OPTIONS):
        fix = f"options are {', '.join(OPTIONS)}"
        raise InputError(f"there is no option {name!r}", where=where, fix=fix)
    if "accelerators" not in given:
        fix = 'write backend="umakit", options={"accelerators": "NAME"}'
        raise InputError("no accelerator is given", where=where, fix=fix)
    if not isinstance(given.get("explain", False), bool):
        raise InputError("explain is not True or False", where=where)
    if "report" in given and not callable(given["report"]):
        raise InputError("report is not a function", where=where)
    accelerators = accelerators_of(given["accelerators"], given.get("export"))
    accelerators.backends()

    def report(found: GraphReport) -> None:
        if given.get("explain"):
            print(found, file=sys.stderr)
        if given.get("report"):
            given["report"](found)

    return CompiledGraph(graph, accelerators, report)


_seen: dict[str, int] = {}
"""Number of graph breaks by reason, at the last report."""


def new_graph_breaks() -> tuple[str, ...]:
    """Return the reasons for graph breaks since the last report."""
    counts = dict(torch._dynamo.utils.counters["graph_break"])
    found = tuple(why for why, count in counts.items() if count > _seen.get(why, 0))
    _seen.clear()
    _seen.update(counts)
    return found


@contextmanager
def disabled_by_export() -> Iterator[None]:
    """Keep torch's mark on a call that began while another thread exported.

    torch marks such a call in a process-wide variable as disabled for Dynamo, and removes the mark
    when the call ends (`torch.fx.traceback.annotate`). The export, for which the call waits, has
    removed the mark by then: restore it for torch.
    """
    noted = "custom" in traceback.current_meta
    try:
        yield
    finally:
        if noted:
            traceback.current_meta.setdefault("custom", {})


class CompiledGraph:
    """A graph of `torch.compile`, computed partly by accelerators."""

    def __init__(
        self,
        graph: torch.fx.GraphModule,
        accelerators: Accelerators,
        report: Callable[[GraphReport], None],
    ) -> None:
        self._graph = graph
        self._accelerators = accelerators
        self._report = report
        self._number = next(_NUMBERS)
        self._lock = threading.Lock()
        self._is_weight = [is_weight(n) for n in graph.graph.nodes if n.op == "placeholder"]
        self._made: dict[Shapes, OffloadedModule | None] = {}
        self._weights: list[tuple[int, int]] = []
        self._told_gradients = False
        self._stays = False

    def __call__(self, *inputs: Any) -> Any:
        if torch.is_grad_enabled() and any(
            isinstance(each, torch.Tensor) and each.requires_grad for each in inputs
        ):
            if not self._told_gradients:
                self._told_gradients = True
                self._tell((), None, GRADIENTS)
            return self._graph(*inputs)
        if self._stays:
            return self._graph(*inputs)
        data = [each for each, weight in zip(inputs, self._is_weight, strict=True) if not weight]
        with disabled_by_export(), self._lock:
            module = self._module(inputs, data)
        if module is None:
            return self._graph(*inputs)
        return module(*(each for each in data if isinstance(each, torch.Tensor)))

    def _module(self, inputs: Sequence[Any], data: Sequence[Any]) -> OffloadedModule | None:
        tensors = [each for each, weight in zip(inputs, self._is_weight, strict=True) if weight]
        if any(each.is_inference() for each in tensors):
            self._stays = True
            self._tell(shapes_of(data), None, INFERENCE)
            return None
        weights = [(each.data_ptr(), each._version) for each in tensors]
        if weights != self._weights:
            # Compiled libraries contain the weights.
            self._made.clear()
            self._weights = weights
        shapes = shapes_of(data)
        if shapes not in self._made:
            self._made[shapes] = self._make(inputs, shapes)
        return self._made[shapes]

    def _make(self, inputs: Sequence[Any], shapes: Shapes) -> OffloadedModule | None:
        fixed, data = with_fixed(self._graph, inputs, self._is_weight)
        try:
            program = exported(fixed, tuple(data))
            reason = what_it_changes(program)
            if reason:
                self._stays = True
                self._tell(shapes, None, reason)
                return None
            module = offloaded_module(program, data, self._accelerators)
        except (BackendError, BuildError):
            raise
        except UmakitError as error:
            self._tell(shapes, None, str(error))
            return None
        self._tell(shapes, module.offload, "")
        return module if module.regions else None

    def _tell(self, shapes: Shapes, offload: Offload | None, reason: str) -> None:
        self._report(GraphReport(self._number, shapes, offload, reason, new_graph_breaks()))


def what_it_changes(program: torch.export.ExportedProgram) -> str:
    """Return the side effect that keeps a whole graph in PyTorch, as a sentence."""
    signature = program.graph_signature
    if signature.user_inputs_to_mutate:
        return "an input is changed in place"
    if signature.buffers_to_mutate or getattr(signature, "parameters_to_mutate", None):
        return "a buffer or weight is changed in place, as in training; call model.eval()"
    drawing = [node for node in program.graph.nodes if node.op == "call_function" and writes(node)]
    if drawing:
        return f"{drawing[0].target} draws random numbers"
    names = Names(program, "graph")
    for node in program.graph.nodes:
        try:
            check_inference(node, names)
        except ModelError as error:
            return error.what
    return ""


def is_weight(node: torch.fx.Node) -> bool:
    """Whether an input of a graph is a parameter or a buffer of a module."""
    noted = node.meta.get("tensor_dict", {})
    return bool(noted.get("_dynamo_static_input_type") or noted.get("_is_param"))


def with_fixed(
    graph: torch.fx.GraphModule, inputs: Sequence[Any], is_weight: Sequence[bool]
) -> tuple[torch.fx.GraphModule, list[torch.Tensor]]:
    """Return a graph with its weights and numbers as constants, and the remaining inputs."""
    copied = torch.fx.Graph()
    values: dict[torch.fx.Node, Any] = {}
    weights: dict[str, torch.nn.Parameter] = {}
    left: list[torch.Tensor] = []
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    given = zip(placeholders, inputs, is_weight, strict=True)
    for number, (node, value, weight) in enumerate(given):
        if weight:
            name = f"weight_{number}"
            weights[name] = torch.nn.Parameter(value.detach(), requires_grad=False)
            values[node] = copied.get_attr(name)
        elif isinstance(value, torch.Tensor):
            left.append(value)
            values[node] = copied.placeholder(node.name)
        else:
            values[node] = value
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            continue
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
        values[node] = copied.create_node(node.op, node.target, args, kwargs, node.name)
        stack = node.meta.get("nn_module_stack") or {}
        stack = {k: (VARIABLE.sub("", str(path)), kind) for k, (path, kind, *_) in stack.items()}
        values[node].meta = {**node.meta, "nn_module_stack": stack}
    return with_attributes(copied, graph, weights), left
