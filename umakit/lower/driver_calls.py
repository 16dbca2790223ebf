# SPDX-License-Identifier: Apache-2.0
"""Driver calls as nodes of a kernel; operands refer to the kernel's parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from umakit import tir, tvm_api
from umakit.registration.backend import Backend
from umakit.text.c_text import CText, read_expression
from umakit.tvm_api import Buffer, PrimExpr, Stmt


@dataclass(frozen=True, eq=False)
class Parameter:
    """A pointer parameter of a kernel.

    Attributes:
        pool: name of the scratchpad if the parameter is a byte offset; empty for a pointer.
    """

    variable: Buffer
    dtype: str
    elements: int
    pool: str = ""

    @property
    def own_name(self) -> str:
        """Name in a kernel that keeps names, for example `weights`."""
        # FuseTIR names the last result of a fused function an intermediate.
        return str(self.variable.name).removesuffix("_intermediate")

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self.elements * tvm_api.element_bytes(self.dtype)


TRANSFER_ARGUMENTS = 3
"""Number of arguments of a load or store: source, destination and size in bytes."""


class DriverCallKind(Enum):
    """The purpose of a driver call, as registered by its backend."""

    LOAD = "copy from shared memory to a scratchpad"
    STORE = "copy from a scratchpad to shared memory"
    FINISH = "return when the accelerator has completed its work"
    OTHER = "anything else, such as configuring or starting a job"


@dataclass(frozen=True)
class TextCall:
    """A call as C text.

    Attributes:
        scratch: C text of the required bytes of scratch; None if nothing has to be checked.
        names: names of the operands in both texts.
    """

    call: CText
    scratch: CText | None
    names: tuple[str, ...]

    @property
    def identifiers(self) -> set[str]:
        """The identifiers of C in both texts."""
        return {*self.call.identifiers, *(self.scratch.identifiers if self.scratch else ())}


@dataclass(frozen=True, eq=False)
class DriverCall:
    """A call of a driver's C function; a status other than zero ends the kernel.

    Nodes are compared by identity.

    Attributes:
        function: name of the C function, which returns int32.
        operands: arguments in the order of the C function. A parameter of the kernel stands for its
            pointer, or for its offset in a scratchpad; other operands are TIR expressions.
        text: C text of a text call; the operands then belong to the names in the text.
    """

    function: str
    kind: DriverCallKind
    operands: tuple[Parameter | PrimExpr, ...]
    text: TextCall | None = None

    @property
    def moved_bytes(self) -> int:
        """The bytes that a load or store moves; 0 for other calls and non-constant sizes."""
        if self.kind not in (DriverCallKind.LOAD, DriverCallKind.STORE):
            return 0
        if len(self.operands) != TRANSFER_ARGUMENTS:
            return 0
        return tvm_api.integer_value(self.operands[-1]) or 0

    @property
    def functions(self) -> tuple[str, ...]:
        """The C function, followed by the function that computes its scratch, if there is one."""
        scratch = None if self.text is None else self.text.scratch
        return (self.function, *([scratch.function] if scratch and scratch.function else ()))

    def mentions(self, parameter: Parameter) -> bool:
        """Whether an operand is, or is computed from, a parameter of the kernel."""
        return any(
            operand is parameter
            if isinstance(operand, Parameter)
            else any(b.same_as(parameter.variable) for b in tvm_api.buffers_in(operand))
            for operand in self.operands
        )


@dataclass(frozen=True)
class Transfer:
    """A driver call that copies a whole tensor and is the kernel's only use of the tensor.

    Attributes:
        tensor: the loaded input or the stored output of the kernel.
        place: the scratch parameter in the scratchpad, the destination or source of the copy.
    """

    node: DriverCall
    tensor: Parameter
    place: Parameter


def driver_call_kind(function: str, backend: Backend | None) -> DriverCallKind:
    """Return the purpose of a C function, as registered by its backend."""
    if backend is None:
        return DriverCallKind.OTHER
    kinds = {backend.completion: DriverCallKind.FINISH}
    if backend.transfers is not None:
        kinds[backend.transfers.store] = DriverCallKind.STORE
        kinds[backend.transfers.load] = DriverCallKind.LOAD
    return kinds.get(function, DriverCallKind.OTHER)


def text_call_of(statement: Stmt, parameters: Mapping[Buffer, Parameter]) -> DriverCall | None:
    """Return the node of a statement of `tir.text_call`; None for other statements."""
    found = tir.called_text(statement)
    if found is None:
        return None
    text, scratch, operands = found
    call = read_expression(text)
    checked = read_expression(scratch) if scratch else None
    values = tuple(operand_of(value, parameters) for value in operands.values())
    node = TextCall(call, checked, tuple(operands))
    return DriverCall(call.function, DriverCallKind.OTHER, values, node)


def operand_of(argument: PrimExpr, parameters: Mapping[Buffer, Parameter]) -> Parameter | PrimExpr:
    """Return the operand for an argument: the parameter of a pointer, else the expression."""
    buffer = tvm_api.pointed_buffer(argument)
    return argument if buffer is None else parameters.get(buffer, argument)
