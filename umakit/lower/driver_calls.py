# SPDX-License-Identifier: Apache-2.0
"""Driver calls as nodes: what a kernel asks of its accelerator, over the kernel's parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from umakit import tvm_api
from umakit.lower.parameters import Parameter
from umakit.registration.backend import Backend

TRANSFER_ARGUMENTS = 3
"""Source, destination and bytes."""


class DriverCallKind(Enum):
    """What a driver call does, as far as its backend registered it."""

    LOAD = "copy from shared memory to a scratchpad"
    STORE = "copy from a scratchpad to shared memory"
    FINISH = "return when the accelerator has completed its work"
    OTHER = "anything else, such as configuring or starting a job"


@dataclass(frozen=True, eq=False)
class DriverCall:
    """A call of a driver's C function, whose status ends the kernel if it is not zero.

    Two nodes are equal only if they are the same one.

    Attributes:
        function: name of the C function, which returns int32.
        kind: what it does.
        operands: in the order of the C function; a parameter of the kernel stands for its pointer,
            or for its offset in a scratchpad. Anything else is a TIR expression.
    """

    function: str
    kind: DriverCallKind
    operands: tuple[Parameter | tvm_api.PrimExpr, ...]

    @property
    def moved_bytes(self) -> int:
        """Bytes of a load or a store; 0 for other calls, and where no constant says how many."""
        if self.kind not in (DriverCallKind.LOAD, DriverCallKind.STORE):
            return 0
        if len(self.operands) != TRANSFER_ARGUMENTS:
            return 0
        return tvm_api.integer_value(self.operands[-1]) or 0

    def mentions(self, parameter: Parameter) -> bool:
        """Whether an operand is a parameter of the kernel, or is computed from one."""
        return any(
            operand is parameter
            if isinstance(operand, Parameter)
            else any(b.same_as(parameter.variable) for b in tvm_api.buffers_in(operand))
            for operand in self.operands
        )


@dataclass(frozen=True)
class Transfer:
    """A driver call that copies a whole tensor, and is all that its kernel does with the tensor.

    Attributes:
        node: the call.
        tensor: the kernel's input that is loaded, or its output that is stored.
        place: where in a scratchpad the copy or the original is.
    """

    node: DriverCall
    tensor: Parameter
    place: Parameter


def driver_call_kind(function: str, backend: Backend | None) -> DriverCallKind:
    """What a C function does, by what its backend registered."""
    if backend is None:
        return DriverCallKind.OTHER
    if backend.transfers is not None:
        if function == backend.transfers.load:
            return DriverCallKind.LOAD
        if function == backend.transfers.store:
            return DriverCallKind.STORE
    return DriverCallKind.FINISH if function == backend.completion else DriverCallKind.OTHER


def operand_of(
    argument: tvm_api.PrimExpr, parameters: Mapping[tvm_api.Buffer, Parameter]
) -> Parameter | tvm_api.PrimExpr:
    """A driver call's operand: the parameter of the kernel that an argument points to.

    Args:
        argument: of the call, a TIR expression.
        parameters: by the buffers that show them.
    """
    buffer = tvm_api.pointed_buffer(argument)
    return argument if buffer is None else parameters.get(buffer, argument)
