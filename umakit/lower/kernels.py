# SPDX-License-Identifier: Apache-2.0
"""Kernels: lowered prim funcs with scratch buffers as parameters."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from umakit import tir, tvm_api
from umakit.cpu.weight_tiles import Facts, WeightTiles
from umakit.errors import BackendError
from umakit.lower.check_statements import is_index_check
from umakit.lower.driver_calls import (
    DriverCall,
    DriverCallKind,
    Parameter,
    Transfer,
    driver_call_kind,
    operand_of,
    text_call_of,
)
from umakit.lower.in_place import in_place_inputs
from umakit.lower.parts import Parts
from umakit.operators.kernels import loops as ir
from umakit.operators.registry import PARAMETERS
from umakit.patterns import Composite
from umakit.patterns.driver import ARRAYS_ATTRIBUTE, parameters_of
from umakit.registration.backend import Backend
from umakit.registration.code import place_of
from umakit.tvm_api import Buffer, Call, PrimFunc, Stmt

LOCAL_ELEMENTS = 1
"""Maximum number of elements of a scratch buffer that stays a local variable; larger ones go into
the arena."""

LOCAL_BYTES = 576
"""Maximum size in bytes of a scratch buffer of scope `local` that stays a local variable.

Such buffers are accumulators that belong into registers, and the two windows of a 3x3 convolution
of 16 channels, whose layers determine the peak memory of many networks.
"""


@dataclass(frozen=True)
class Kernel:
    """A function over flat buffers.

    Attributes:
        target: `cpu`, or the name of the backend.
        body: driver calls as nodes and all other code as TIR statements, in execution order,
            with buffer declarations but without scratch allocations.
        in_place: indices of inputs whose memory the output may reuse.
        keeps_names: whether parameters keep their own names, and not the network's names of
            tensors.
        composite: parameters of the integer operator, without arrays; None if the kernel does not
            come from a pattern of `umakit.patterns`.
        weights_layout: axes of the parameter `weights`, for example `OHWI`; empty if unknown.
        packed: storage of weights of float convolutions in tiles, by number of the input.
        layouts: layouts of reordered weights, by number of the input.
        has_vectors: whether the schedule has vectors, with possibly padded channels.
        bias_has_zero_point: whether the bias includes -zero point of the data * sum of weights.
        attributes: attributes, for readers, of the integer operator that the kernel computes on the
            CPU; empty for other kernels.
        ignored: positions of arguments in `main` that a text call does not use, and that are no
            inputs.
        allocating_body: body with the scratch allocations of TIR, for kernels of the CPU; None for
            other kernels.
        parts: ranges of loops; a call of the C function computes one part. None if a call computes
            everything.
    """

    name: str
    target: str
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    scratch: tuple[Parameter, ...]
    body: tuple[DriverCall | Stmt, ...]
    returns_status: bool
    checks_indices: bool = False
    in_place: tuple[int, ...] = ()
    keeps_names: bool = False
    composite: Composite | None = None
    weights_layout: str = ""
    packed: Mapping[int, WeightTiles] = field(default_factory=dict)
    layouts: Mapping[int, str] = field(default_factory=dict)
    has_vectors: bool = False
    bias_has_zero_point: bool = False
    attributes: Mapping[str, Any] = field(default_factory=dict)
    ignored: tuple[int, ...] = ()
    allocating_body: Stmt | None = field(default=None, repr=False)
    parts: Parts | None = None

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters in the order of the C function."""
        return (*self.inputs, *self.outputs, *self.scratch)

    @property
    def driver_calls(self) -> tuple[DriverCall, ...]:
        """The driver calls in the body, in execution order."""
        return tuple(node for node in self.body if isinstance(node, DriverCall))

    @property
    def statements(self) -> tuple[Stmt, ...]:
        """The TIR statements in the body, in execution order."""
        return tuple(node for node in self.body if not isinstance(node, DriverCall))

    @property
    def calls_driver(self) -> bool:
        """Whether the kernel has to check a status of a driver call."""
        return bool(self.driver_calls) or _calls_driver([*self.statements])

    def called_functions(self) -> list[str]:
        """Return the names of the C functions that the kernel calls."""
        return [
            *(name for node in self.driver_calls for name in node.functions),
            *(
                str(call.args[0].value)
                for call in tvm_api.collect([*self.statements], Call)
                if tvm_api.is_external_call(call) or tir.is_driver_call(call)
            ),
        ]

    def transfers(self) -> list[Transfer]:
        """Return the driver calls that copy whole tensors without other uses in the kernel."""
        found = []
        for node in self.driver_calls:
            transfer = self._transfer(node)
            if transfer is not None and self.mentions(transfer.tensor) == 1:
                found.append(transfer)
        return found

    def _transfer(self, node: DriverCall) -> Transfer | None:
        """Return a driver call between a whole tensor and scratch; None for other calls."""
        if not node.moved_bytes:
            return None
        source, destination, _ = node.operands
        is_load = node.kind is DriverCallKind.LOAD
        tensor, place = (source, destination) if is_load else (destination, source)
        if not isinstance(tensor, Parameter) or not isinstance(place, Parameter):
            return None
        if tensor not in (self.inputs if is_load else self.outputs) or place not in self.scratch:
            return None
        if not place.pool or not tensor.size == place.size == node.moved_bytes:
            return None
        return Transfer(node, tensor, place)

    def mentions(self, parameter: Parameter) -> int:
        """Return the number of body nodes that use a parameter."""
        calls = sum(node.mentions(parameter) for node in self.driver_calls)
        return calls + sum(
            any(buffer.same_as(parameter.variable) for buffer in tvm_api.buffers_in(statement))
            for statement in self.statements
        )

    def without(self, nodes: Collection[DriverCall], name: str) -> Kernel:
        """Return the kernel without some driver calls and the tensors of these calls alone."""
        unused = [
            parameter
            for parameter in (*self.inputs, *self.outputs)
            if self.mentions(parameter) == sum(node.mentions(parameter) for node in nodes) > 0
        ]
        return replace(
            self,
            name=name,
            inputs=tuple(p for p in self.inputs if p not in unused),
            outputs=tuple(p for p in self.outputs if p not in unused),
            body=tuple(node for node in self.body if node not in nodes),
        )


def make_kernel(
    name: str,
    target: str,
    function: PrimFunc,
    outputs: int,
    backend: Backend | None = None,
) -> Kernel:
    """Turn a lowered prim func into a kernel.

    Args:
        function: a prim func after the last lowering phase.
        outputs: number of results, the last parameters.
        backend: backend of the target, for the purposes of driver calls; None for CPU code.
    """
    facts = Facts.of(function)
    allocations = [
        statement
        for statement in tvm_api.collect(function.body, tvm_api.tirx.AllocBuffer)
        if not _is_local(statement.buffer, facts.register_bytes)
    ]
    buffers = [statement.buffer for statement in allocations]
    body = _without_allocations(function.body, buffers)
    tensors = [_parameter(variable) for variable in function.params]
    scratch = [_parameter(buffer) for buffer in buffers]
    inputs, results = tensors[: len(tensors) - outputs], tensors[len(tensors) - outputs :]
    returns = tvm_api.collect(body, tvm_api.tirx.Return)
    composite = parameters_of(function.without_attr(ARRAYS_ATTRIBUTE))
    layout = tvm_api.function_attribute(function, ir.WEIGHTS_LAYOUT)
    attributes = tvm_api.function_attribute(function, PARAMETERS)
    nodes = _nodes(body, [*tensors, *scratch], backend)
    ignored = _unused(inputs, nodes)
    kernel = Kernel(
        name=name,
        target=target,
        inputs=tuple(p for number, p in enumerate(inputs) if number not in ignored),
        outputs=tuple(results),
        in_place=_in_place(function, body, inputs, results),
        scratch=tuple(scratch),
        body=nodes,
        ignored=ignored,
        returns_status=bool(returns) or _calls_driver(body),
        checks_indices=any(map(is_index_check, returns)),
        keeps_names=tvm_api.function_attribute(function, ir.KEEPS_NAMES) is not None,
        composite=composite,
        weights_layout=str(layout or getattr(composite, "stored_layout", "")),
        bias_has_zero_point=_bias_has_zero_point(function, composite),
        attributes={} if attributes is None else json.loads(str(attributes)),
        packed=facts.packed,
        layouts=facts.layouts,
        has_vectors=facts.register_bytes > 0,
        allocating_body=function.body if backend is None else None,
    )
    if backend is not None:
        _check_transfers(kernel, backend)
    return kernel


def _in_place(
    function: PrimFunc,
    body: Stmt,
    inputs: Sequence[Parameter],
    results: Sequence[Parameter],
) -> tuple[int, ...]:
    if len(results) != 1:
        return ()
    if tvm_api.function_attribute(function, ir.ELEMENTWISE) is not None:
        return tuple(range(len(inputs)))
    return in_place_inputs(body, [p.variable for p in inputs], results[0].variable)


def _check_transfers(kernel: Kernel, backend: Backend) -> None:
    """Compare the bytes of copies with the bytes of the tensor and of its place in a scratchpad."""
    for node in kernel.driver_calls:
        for end in node.operands[:-1] if node.moved_bytes else ():
            if not isinstance(end, Parameter) or end.size == node.moved_bytes:
                continue
            if node.moved_bytes > end.size or _is_needed_whole(kernel, end):
                where = place_of(node.function, backend.folder) or backend.target_name
                raise BackendError(
                    f"kernel {kernel.name}: {node.function} copies {node.moved_bytes:,} bytes, "
                    f"and {end.own_name} has {end.size:,}",
                    where=where,
                    fix="let the TIR pass give the bytes of the tensor, tir.buffer_bytes(tensor)",
                )


def _is_needed_whole(kernel: Kernel, tensor: Parameter) -> bool:
    """Whether the only driver call with a tensor has to copy all of it.

    True for results, constants, and data that windows cover completely.
    """
    if tensor in kernel.scratch or kernel.mentions(tensor) > 1:
        return False
    if tensor in kernel.outputs:
        return True
    strides = getattr(kernel.composite, "strides", (1,))
    return kernel.composite is not None and (tensor.own_name != "data" or max(strides) == 1)


def _bias_has_zero_point(function: PrimFunc, composite: Composite | None) -> bool:
    zero_point = getattr(composite, "input_zero_point", 0)
    if composite is not None and getattr(composite, "zero_point_in_bias", False):
        return bool(zero_point != 0)
    return tvm_api.function_attribute(function, ir.BIAS_HAS_ZERO_POINT) is not None


def _calls_driver(body: Stmt | list[Stmt]) -> bool:
    return any(map(tir.is_driver_call, tvm_api.collect(body, Call)))


def _parameter(variable: Buffer) -> Parameter:
    scope = tvm_api.buffer_scope(variable).partition(".")[2]
    return Parameter(variable, tvm_api.buffer_dtype(variable), _elements(variable), scope)


def _nodes(
    body: Stmt, parameters: Sequence[Parameter], backend: Backend | None
) -> tuple[DriverCall | Stmt, ...]:
    """Convert driver calls of a kernel's body to nodes; driver calls in loops stay TIR."""
    statements = tvm_api.flatten_statements(body)
    shown = {parameter.variable: parameter for parameter in parameters}
    for view in statements:
        if isinstance(view, tvm_api.tirx.DeclBuffer):
            source = shown.get(tvm_api.buffers_in(view.data)[0])
            # A driver cannot get a view as another dtype as a plain pointer.
            if source is not None and source.dtype == tvm_api.buffer_dtype(view.buffer):
                shown[view.buffer] = source
    nodes: list[DriverCall | Stmt] = []
    for statement in statements:
        call, text = tir.called_driver(statement), text_call_of(statement, shown)
        if text is not None:
            nodes.append(text)
        elif call is None:
            nodes.append(statement)
        else:
            operands = tuple(operand_of(argument, shown) for argument in call[1])
            nodes.append(DriverCall(call[0], driver_call_kind(call[0], backend), operands))
    used = {buffer for node in nodes for buffer in _used_buffers(node)}
    return tuple(
        node
        for node in nodes
        if not isinstance(node, tvm_api.tirx.DeclBuffer)
        or node.buffer in used
        or node.buffer not in shown
    )


def _unused(inputs: Sequence[Parameter], nodes: Sequence[DriverCall | Stmt]) -> tuple[int, ...]:
    """Return the positions of inputs without use in a kernel that is a single text call."""
    node = nodes[0] if len(nodes) == 1 else None
    if not isinstance(node, DriverCall) or node.text is None:
        return ()
    return tuple(n for n, parameter in enumerate(inputs) if not node.mentions(parameter))


def _used_buffers(node: DriverCall | Stmt) -> list[Buffer]:
    """Return the buffers that a node uses; the declaration of a view uses its source."""
    if isinstance(node, DriverCall):
        expressions = [operand for operand in node.operands if not isinstance(operand, Parameter)]
        return tvm_api.buffers_in(expressions)
    declares = isinstance(node, tvm_api.tirx.DeclBuffer)
    return tvm_api.buffers_in(node.data if declares else node)


def _is_local(buffer: Buffer, most: int = 0) -> bool:
    """Whether a scratch buffer is small enough for the stack.

    Args:
        most: most bytes of arrays of sums in the registers of the kernel's CPU.
    """
    scope = tvm_api.buffer_scope(buffer)
    if "." in scope:
        return False
    if _elements(buffer) <= LOCAL_ELEMENTS or 0 < tvm_api.buffer_bytes(buffer) <= most:
        return True
    return scope == "local" and tvm_api.buffer_bytes(buffer) <= LOCAL_BYTES


def _elements(buffer: Buffer) -> int:
    return math.prod(tvm_api.buffer_shape(buffer))


def _without_allocations(body: Stmt, buffers: list[Any]) -> Stmt:
    def drop(statement: Stmt) -> Stmt:
        if any(statement.buffer.same_as(buffer) for buffer in buffers):
            return tvm_api.tirx.Evaluate(tvm_api.tirx.IntImm("int32", 0))
        return statement

    return tvm_api.rewrite(body, [(tvm_api.tirx.AllocBuffer, drop)])
