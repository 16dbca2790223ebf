# SPDX-License-Identifier: Apache-2.0
"""An exported program of PyTorch with every size known.

torch itself computes shapes, sizes and values that depend on weights only. The remaining graph has
operators on tensors of static shape, each with torch's type.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sympy
import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from umakit.errors import ModelError
from umakit.frontend.checks import check_wanted_sizes
from umakit.frontend.model import InputShapes, last_line, symbolic_notice
from umakit.frontend.torch.registry import NOT_DECOMPOSED

EVALUATE = "call model.eval() before torch.export.export"
USER_OUTPUTS = (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)
GRAPH_OF_ITS_OWN = "holds a graph of its own (control flow), which is not supported"
NEEDS_REFUSED = "needs the result of an operator whose type only a run can tell"
UNKNOWN = object()
"""Stands for the value of a node that is refused."""


@dataclass(frozen=True)
class StaticProgram:
    """A decomposed graph with torch's types and values.

    Attributes:
        graph: Core ATen operators; symbolic sizes in arguments are replaced by integers.
        inputs: placeholders that a caller fills.
        values: by node, a fake tensor for values that depend on inputs, else the value itself.
    """

    graph: Any
    inputs: tuple[Any, ...]
    values: Mapping[Any, Any]

    def is_constant(self, node: torch.fx.Node) -> bool:
        """Return whether a node's value depends on weights only."""
        return isinstance(self.values[node], torch.Tensor) and not is_fake(self.values[node])


def is_fake(value: object) -> bool:
    """Return whether a value is a fake tensor (a type without data) or contains one."""
    if isinstance(value, (tuple, list)):
        return any(is_fake(inner) for inner in value)
    return isinstance(value, FakeTensor)


def input_sizes(
    program: torch.export.ExportedProgram, wanted: InputShapes, where: str
) -> tuple[dict[str, tuple[int, ...]], list[str]]:
    """Return shapes by input name with symbolic dimensions bound, and notices for the user."""
    placeholders = {
        node.name: node.meta["val"]
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name in program.graph_signature.user_inputs
    }
    tensors = {n: value for n, value in placeholders.items() if isinstance(value, torch.Tensor)}
    check_wanted_sizes(wanted, {name: value.dim() for name, value in tensors.items()}, where)
    symbols: dict[Any, int] = {}
    notices: list[str] = []
    for name, value in tensors.items():
        # Symbols of inputs without wanted sizes are bound to 1 below.
        for size, number in zip(value.shape, wanted.get(name, ()), strict=False):
            _bind_symbol(_expression(size).subs(symbols), int(number), symbols)
    for name, value in tensors.items():
        for size in value.shape:
            for symbol in sorted(_expression(size).free_symbols - symbols.keys(), key=str):
                symbols[symbol] = 1
                notices.append(symbolic_notice(name, str(symbol)))
    for expression, allowed in program.range_constraints.items():
        size = expression.subs(symbols)
        if size.is_number and not allowed.lower <= size <= allowed.upper:
            raise ModelError(
                f"the program needs {allowed.lower} <= {expression} <= {allowed.upper}, not {size}",
                where=where,
                fix="give a size with --input-shapes, or export with other dynamic_shapes",
            )
    shapes = {
        name: tuple(int(_expression(size).subs(symbols)) for size in value.shape)
        for name, value in tensors.items()
    }
    for name, shape in wanted.items():
        if tuple(shape) != shapes[name]:
            raise ModelError(
                f"input {name!r} has the shape {list(tensors[name].shape)}, which cannot be "
                f"{list(shape)}",
                where=where,
                fix="export the program with dynamic_shapes, or give the size that it has",
            )
    return shapes, notices


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(int(size))


def _bind_symbol(expression: Any, number: int, symbols: dict[Any, int]) -> None:
    """Bind the only symbol of a size, if one value makes the size a number."""
    if len(expression.free_symbols) == 1:
        (symbol,) = expression.free_symbols
        solutions = sympy.solve(expression - number, symbol)
        if len(solutions) == 1 and solutions[0].is_Integer and solutions[0] > 0:
            symbols[symbol] = int(solutions[0])


@contextmanager
def quiet_torch() -> Iterator[None]:
    """Suppress torch's warnings about its own deprecated calls."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def make_static(
    program: torch.export.ExportedProgram,
    shapes: Mapping[str, tuple[int, ...]],
    fail: Callable[[Any, str], ModelError],
    where: str,
    refused: dict[Any, ModelError] | None = None,
) -> StaticProgram:
    """Decompose a program into Core ATen and compute every type and constant.

    `fail` returns the error about a node. If `refused` is given, it collects these errors, and
    writes to state are not checked.
    """
    program = _decomposed(program, where)
    if refused is None:
        check_no_state(program, where)
    sources = _constants(program, where)
    values: dict[Any, Any] = {}
    inputs: list[Any] = []
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    graph = program.graph_module.graph
    for node in list(graph.nodes):
        if node.op == "placeholder":
            if node.name in sources:
                values[node] = sources[node.name]
            elif node.name in shapes:
                with mode:
                    values[node] = torch.empty(shapes[node.name], dtype=node.meta["val"].dtype)
                inputs.append(node)
            else:
                values[node] = node.meta.get("val")
        elif node.op == "call_function":
            node.args, node.kwargs = torch.fx.node.map_arg(
                (node.args, node.kwargs), lambda used: _number_or_node(used, values)
            )
            try:
                values[node] = _evaluate(node, values, mode, fail)
            except ModelError as error:
                if refused is None:
                    raise
                refused[node], values[node] = error, _type_by_torch(node, mode)
        elif node.op != "output":
            if refused is None:
                raise fail(node, GRAPH_OF_ITS_OWN)
            values[node] = UNKNOWN
    return StaticProgram(graph, tuple(inputs), values)


def _decomposed(program: torch.export.ExportedProgram, where: str) -> torch.export.ExportedProgram:
    try:
        with quiet_torch():
            return program.run_decompositions(_decompositions(NOT_DECOMPOSED))
    except Exception as error:  # torch's tracing raises arbitrary exceptions
        raise ModelError(
            f"torch cannot decompose the program: {last_line(error)}",
            where=where,
            fix="export it again with this version of torch",
        ) from error


def _decompositions(whole: Collection[str]) -> Any:
    table = torch.export.default_decompositions()
    for name in whole:
        packet, overload = name.split(".")
        table.pop(getattr(getattr(torch.ops.aten, packet), overload), None)
    return table


def check_no_state(program: torch.export.ExportedProgram, where: str) -> None:
    """Refuse a program that writes a buffer or an input.

    Decomposition turns `buffer += 1` into an output that torch writes back.
    """
    for spec in program.graph_signature.output_specs:
        if spec.kind not in USER_OUTPUTS:
            raise ModelError(
                f"the program writes {spec.target or spec.arg.name!r}, which a library without "
                "state cannot",
                where=where,
                fix=f"{EVALUATE}, or pass the state as input and output",
            )


def _number_or_node(used: Any, values: Mapping[Any, Any]) -> Any:
    """Return the number of a symbolic size, or any other node itself."""
    value = values[used]
    return value if isinstance(value, (bool, int, float)) or value is None else used


def _constants(program: torch.export.ExportedProgram, where: str) -> dict[str, Any]:
    signature, constants = program.graph_signature, {}
    for spec in signature.input_specs:
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            stored = program.state_dict if spec.target in program.state_dict else program.constants
            constants[spec.arg.name] = stored[spec.target].detach().cpu()
        elif spec.kind != InputKind.USER_INPUT:
            raise ModelError(
                f"{spec.arg.name!r} is a {spec.kind.name.lower()}, not a tensor",
                where=where,
                fix="make it a tensor, or keep it out of the program",
            )
    return constants


def _evaluate(
    node: torch.fx.Node,
    values: Mapping[Any, Any],
    mode: Any,
    fail: Callable[[Any, str], ModelError],
) -> Any:
    """Return a node's value if it depends on weights only, else its fake tensor."""
    arguments: list[Any] = []

    def value_of(used: Any) -> Any:
        arguments.append(values[used])
        return values[used]

    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), value_of)
    if any(value is UNKNOWN for value in arguments):
        control = isinstance(node.target, torch._ops.HigherOrderOperator)
        raise fail(node, GRAPH_OF_ITS_OWN if control else NEEDS_REFUSED)
    try:
        with torch.no_grad():
            if not any(is_fake(value) for value in arguments) and _is_foldable(node.target):
                return node.target(*args, **kwargs)
            with mode:
                return node.target(*args, **kwargs)
    except Exception as error:  # whatever torch's kernels find wrong with the arguments
        raise fail(node, f"cannot be given a static type: {last_line(error)}") from error


def _type_by_torch(node: torch.fx.Node, mode: Any) -> Any:
    """Return the type that torch recorded at export; `UNKNOWN` for varying sizes."""

    def static(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not all(type(n) is int for n in value.shape):
            raise ValueError
        with mode:
            return torch.empty(tuple(value.shape), dtype=value.dtype)

    try:
        return pytree.tree_map(static, node.meta["val"])
    except (KeyError, ValueError):
        return UNKNOWN


def _is_foldable(target: Any) -> bool:
    """Return whether an operator is a pure function of tensors and numbers."""
    if not isinstance(target, torch._ops.OpOverload):
        return True
    texts = any(str(argument.type).startswith(("str", "Optional[str")) for argument in
                target._schema.arguments if argument.name != "rounding_mode")  # fmt: skip
    # A dequantize of weights stays: quantized layers compute with the integers.
    pure = target.namespace == "aten" or (
        target.namespace == "quantized_decomposed" and target.__name__.startswith("quantize_per_")
    )
    return pure and not target._schema.is_mutable and not texts
