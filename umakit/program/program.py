# SPDX-License-Identifier: Apache-2.0
"""The program: a straight-line list of kernel calls over named tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy.typing as npt

from umakit import tvm_api
from umakit.cpu.description import Cpu
from umakit.cpu.kernel_choices import KernelChoices
from umakit.frontend.model import Quantization, WeightsQuantization
from umakit.lower import Kernel
from umakit.lower.driver_calls import DriverCall
from umakit.machine.planner import PlannedLayers
from umakit.program.live_sets import Lifetime
from umakit.text.identities import SourceOperator


class Role(Enum):
    """The role of a tensor in the interface of the library."""

    INPUT = "input"
    OUTPUT = "output"
    CONSTANT = "constant"
    INTERMEDIATE = "intermediate"
    SCRATCH = "scratch"


@dataclass(frozen=True)
class Tensor:
    """A named piece of memory.

    Attributes:
        name: a C identifier, unique in the program.
        label: name in the user's model; for a constant, role and layer, such as `weights of conv1`.
        pool: name of the assigned scratchpad; empty if the memory plan may choose.
        next_state: for a state input, label of the output that holds its next value; else empty.
    """

    name: str
    label: str
    shape: tuple[int, ...]
    dtype: str
    role: Role
    quantization: Quantization | None = None
    pool: str = ""
    next_state: str = ""

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def size(self) -> int:
        return self.elements * tvm_api.element_bytes(self.dtype)


@dataclass(frozen=True)
class Resident:
    """A tensor that a step reads or leaves in a scratchpad, without a copy to shared memory.

    Attributes:
        place: name of the scratch tensor that holds the data.
        index: index among the layer's inputs or outputs, counting scratchpad tensors.
    """

    tensor: Tensor
    place: str
    index: int
    is_result: bool


@dataclass(frozen=True)
class Completion:
    """A driver call moved out of its kernel, behind later steps.

    Attributes:
        node: driver call that waits for the accelerator.
        after: number of following CPU steps before this call.
    """

    node: DriverCall
    after: int


@dataclass(frozen=True)
class KernelCall:
    """One step of the program.

    Attributes:
        kernel: name of the kernel; empty for a plain copy of the input to the output.
        outputs: names of the tensors that are written in full.
        kept: scratch tensors that hold an earlier step's result in a scratchpad.
        completion: driver call, behind later steps, that waits for the accelerator; None if the
            kernel returns when all work is done.
        label: unique name of the step for users, for example in profiles: `conv1 + relu1`.
        target: `cpu` or a backend.
        rows: rows of the offload report that the step computes, in order.
        operators: names of the operators in the offload report.
        symbol: unique prefix of the C names of kernel, tensors and constants.
        weights: scales and zero points of quantized weights, by name of the layer in the model.
        attributes: attributes of the only Relax convolution or pool, by name; empty for other
            operators.
        inner: scale and zero point of intermediate results, such as a convolution before an
            addition, by name of the layer in the model.
        roles: known roles of constant inputs of a float operator, such as `weights`, by index of
            the input.
        residents: tensors that the step reads or leaves in a scratchpad, in order of their index.
            They are in neither `inputs` nor `outputs`.
    """

    kernel: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    scratch: tuple[str, ...]
    label: str
    target: str
    macs: int
    rows: tuple[int, ...] = ()
    operators: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    completion: Completion | None = None
    symbol: str = ""
    weights: Mapping[str, WeightsQuantization] = field(default_factory=dict, hash=False)
    attributes: Mapping[str, Any] = field(default_factory=dict, hash=False)
    inner: Mapping[str, Quantization] = field(default_factory=dict, hash=False)
    roles: Mapping[int, str] = field(default_factory=dict, hash=False)
    residents: tuple[Resident, ...] = ()

    @property
    def overlapped(self) -> int:
        """Return the number of following steps that may run while this step is running."""
        return 0 if self.completion is None else self.completion.after

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return the tensors in the order of the kernel's parameters."""
        return (*self.inputs, *self.outputs, *self.scratch)


@dataclass(frozen=True)
class Kept:
    """A tensor that stays in a scratchpad.

    Attributes:
        tensor: name in the user's model.
        holder: label of the first step with the tensor in the scratchpad.
        readers: labels of the steps that read the tensor there.
        saved: bytes per inference that are not copied.
    """

    tensor: str
    holder: str
    readers: tuple[str, ...]
    saved: int


@dataclass(frozen=True)
class Traffic:
    """Bytes that move between shared memory and scratchpads.

    Attributes:
        moved: bytes per inference.
    """

    moved: int
    kept: tuple[Kept, ...]

    @property
    def saved(self) -> int:
        return sum(item.saved for item in self.kept)


@dataclass(frozen=True)
class Program:
    """A network as a straight-line list of kernel calls.

    Attributes:
        name: C identifier of the model.
        tensors: tensors by name, in order of their first mention.
        calls: steps in execution order.
        inputs: tensor names in the order of the model's inputs.
        outputs: tensor names in the order of the model's outputs.
        fingerprint: SHA-256 of the model file; empty for a model that was an object.
        traffic: traffic between shared memory and scratchpads; None if no backend has transfers.
        planned: tilings of layers, by target.
        notices: decisions made on the user's behalf and operators in floating point, one sentence
            each.
        index_checks: whether kernels check indices that are computed at run time.
        cpu: the CPU that kernels are scheduled for; None for any.
        quantizations: per-tensor quantization of intermediate tensors, by name.
        parts: maximum number of concurrent parts of a kernel; 0 if the library has no function with
            a callback for parts.
    """

    name: str
    tensors: dict[str, Tensor]
    constants: dict[str, npt.NDArray[Any]]
    calls: tuple[KernelCall, ...]
    kernels: dict[str, Kernel]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    fingerprint: str = ""
    traffic: Traffic | None = None
    planned: Mapping[str, PlannedLayers] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    index_checks: bool = True
    cpu: Cpu | None = None
    quantizations: Mapping[str, Quantization] = field(default_factory=dict)
    sources: Mapping[str, SourceOperator] = field(default_factory=dict)
    parts: int = 0
    choices: KernelChoices = field(default_factory=KernelChoices)

    def quantization_of(self, tensor: Tensor) -> Quantization | None:
        """Return scale and zero point of a tensor with per-tensor quantization."""
        return tensor.quantization or self.quantizations.get(tensor.name)

    def operands_of(self, call: KernelCall) -> list[tuple[Tensor, str]]:
        """Return all tensors that a step reads, each with the scratch tensor that holds it, or
        empty."""
        return self._with_residents(call, call.inputs, is_result=False)

    def results_of(self, call: KernelCall) -> list[tuple[Tensor, str]]:
        """Return all tensors that a step computes; see `operands_of`."""
        return self._with_residents(call, call.outputs, is_result=True)

    def _with_residents(
        self, call: KernelCall, names: tuple[str, ...], *, is_result: bool
    ) -> list[tuple[Tensor, str]]:
        tensors = [(self.tensors[name], "") for name in names]
        for resident in call.residents:
            if resident.is_result == is_result:
                tensors.insert(resident.index, (resident.tensor, resident.place))
        return tensors


IN_ARENA = (Role.INTERMEDIATE, Role.SCRATCH)


def tensor_lifetimes(program: Program) -> list[Lifetime]:
    """Return the lifetime of each tensor of the arena, in order of first use."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for step, call in enumerate(program.calls):
        for name in call.arguments:
            if program.tensors[name].role in IN_ARENA:
                first.setdefault(name, step)
                last[name] = max(last.get(name, step), step + call.overlapped)
    return [Lifetime(name, program.tensors[name].size, first[name], last[name]) for name in first]


def tensor_users(program: Program) -> dict[str, frozenset[str]]:
    """Return the targets whose kernels access each tensor of the arena."""
    users: dict[str, frozenset[str]] = {}
    for call in program.calls:
        for name in call.arguments:
            if program.tensors[name].role in IN_ARENA:
                users[name] = users.get(name, frozenset()) | {call.target}
    return users


def running_tensors(program: Program, step: int) -> set[str]:
    """Return the tensors of earlier steps that may still be running during a step."""
    return {
        name
        for earlier, call in enumerate(program.calls[:step])
        if call.overlapped and earlier + call.overlapped >= step
        for name in call.arguments
    }
