# SPDX-License-Identifier: Apache-2.0
"""Kernels: lowered prim funcs with their scratch buffers turned into parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from umakit import tvm_api
from umakit.lower.check_statements import is_index_check
from umakit.lower.in_place import in_place_inputs
from umakit.operators.kernels.loops import KEEPS_NAMES
from umakit.patterns.driver import ARRAYS_ATTRIBUTE, parameters_of
from umakit.patterns.parameters import Composite

LOCAL_ELEMENTS = 1
"""Scratch of at most this many elements stays a local variable; more goes into the arena."""

LOCAL_BYTES = 576
"""The same for scratch whose scope is `local`: accumulators that belong into registers, and the two
windows of a 3x3 convolution of 16 channels, whose layers are where networks need most memory."""


@dataclass(frozen=True)
class Parameter:
    """A pointer parameter of a kernel.

    Attributes:
        variable: TIR buffer.
        dtype: of its elements.
        elements: how many.
        pool: the scratchpad it lies in, by name; the parameter is then a byte offset. Empty for a
            pointer.
    """

    variable: Any
    dtype: str
    elements: int
    pool: str = ""

    @property
    def size(self) -> int:
        """Bytes."""
        return self.elements * tvm_api.element_bytes(self.dtype)


@dataclass(frozen=True)
class Kernel:
    """A function over flat buffers.

    Attributes:
        name: of the prim func.
        target: `cpu`, or the backend it runs on.
        inputs: parameters that are only read.
        outputs: parameters that are written in full.
        scratch: parameters that want working memory for the time of the call.
        statements: body; buffer declarations are left in, scratch allocations are gone.
        returns_status: whether it returns an `int32_t` status instead of nothing.
        checks_indices: whether one of the statuses is `INDEX_OUT_OF_RANGE`.
        in_place: positions of inputs whose memory the output may take over.
        keeps_names: whether parameters have names of their own, and not those of the network's
            tensors.
        known: parameters of the integer operator that it computes, without its arrays; None where
            it came from no pattern of `umakit.patterns`.
    """

    name: str
    target: str
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    scratch: tuple[Parameter, ...]
    statements: tuple[Any, ...]
    returns_status: bool
    checks_indices: bool = False
    in_place: tuple[int, ...] = ()
    keeps_names: bool = False
    known: Composite | None = None


def make_kernel(name: str, target: str, function: Any, outputs: int) -> Kernel:
    """Turn a lowered prim func into a kernel.

    Args:
        name: of the kernel.
        target: `cpu` or a backend's target name.
        function: a prim func after the last lowering phase.
        outputs: how many of its parameters, the last ones, are results.
    """
    allocations = [
        statement
        for statement in tvm_api.collect(function.body, tvm_api.tirx.AllocBuffer)
        if not _is_local(statement.buffer)
    ]
    buffers = [statement.buffer for statement in allocations]
    body = _without_allocations(function.body, buffers)

    def parameter(variable: Any) -> Parameter:
        scope = tvm_api.buffer_scope(variable).partition(".")[2]
        return Parameter(variable, tvm_api.buffer_dtype(variable), _elements(variable), scope)

    tensors = [parameter(variable) for variable in function.params]
    inputs, results = tensors[: len(tensors) - outputs], tensors[len(tensors) - outputs :]
    in_place: tuple[int, ...] = ()
    if len(results) == 1:
        in_place = in_place_inputs(body, [p.variable for p in inputs], results[0].variable)
    return Kernel(
        name=name,
        target=target,
        inputs=tuple(inputs),
        outputs=tuple(results),
        in_place=in_place,
        scratch=tuple(parameter(buffer) for buffer in buffers),
        statements=tuple(tvm_api.flatten_statements(body)),
        returns_status=bool(tvm_api.collect(body, tvm_api.tirx.Return)),
        checks_indices=any(map(is_index_check, tvm_api.collect(body, tvm_api.tirx.Return))),
        keeps_names=tvm_api.function_attribute(function, KEEPS_NAMES) is not None,
        known=parameters_of(function.without_attr(ARRAYS_ATTRIBUTE)),
    )


def _is_local(buffer: Any) -> bool:
    """Whether scratch is small enough for the stack."""
    scope = tvm_api.buffer_scope(buffer)
    if "." in scope:
        return False
    if _elements(buffer) <= LOCAL_ELEMENTS:
        return True
    return scope == "local" and tvm_api.buffer_bytes(buffer) <= LOCAL_BYTES


def _elements(buffer: Any) -> int:
    count = 1
    for extent in tvm_api.buffer_shape(buffer):
        count *= extent
    return count


def _without_allocations(body: Any, buffers: list[Any]) -> Any:
    def drop(statement: Any) -> Any:
        if any(statement.buffer.same_as(buffer) for buffer in buffers):
            return tvm_api.tirx.Evaluate(tvm_api.tirx.IntImm("int32", 0))
        return statement

    return tvm_api.rewrite(body, [(tvm_api.tirx.AllocBuffer, drop)])
