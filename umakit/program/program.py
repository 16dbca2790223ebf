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
from umakit.frontend.model import Quantization, WeightsQuantization
from umakit.lower import Kernel
from umakit.lower.driver_calls import DriverCall
from umakit.machine.cpu import Cpu
from umakit.machine.kernel_choices import KernelChoices
from umakit.machine.tilings import PlannedLayers
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
        label: its name in the user's model; of a constant, what it is: `weights of conv1`.
        pool: name of the scratchpad that it is assigned to; empty if the memory plan may choose.
        next_state: label of the output that an input gets in the next inference; empty for none.
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
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self.elements * tvm_api.element_bytes(self.dtype)


@dataclass(frozen=True)
class Resident:
    """A tensor of the model that a step reads or leaves in a scratchpad, without a copy.

    Attributes:
        tensor: as it would be in shared memory.
        place: name of the scratch tensor that holds it.
        index: among the inputs of the layer, or its outputs, with the tensors in scratchpads.
        is_result: whether the step computes it.
    """

    tensor: Tensor
    place: str
    index: int
    is_result: bool


@dataclass(frozen=True)
class Completion:
    """A driver call that was moved out of its kernel, behind later steps.

    Attributes:
        node: the driver call that waits until the accelerator is done.
        after: number of following steps that run on the CPU before this call.
    """

    node: DriverCall
    after: int


@dataclass(frozen=True)
class KernelCall:
    """One step of the program.

    Attributes:
        kernel: name of the kernel; empty for a plain copy of the input to the output.
        inputs: names of the tensors that are read.
        outputs: names of the tensors that are written in full.
        scratch: names of the tensors that are working memory of this step.
        kept: scratch tensors that hold an earlier step's result in a scratchpad.
        completion: the driver call that waits for the accelerator, if it comes after later steps;
            None if the kernel returns when all work is done.
        label: name of the step for users, for example in profiles: `conv1 + relu1`; no other step
            of the program has it.
        target: `cpu` or a backend.
        macs: multiply-accumulates of the step.
        rows: rows of the offload report that the step computes, in order.
        operators: the names of these operators, as in the offload report.
        symbol: start of the C names of its kernel, tensors and constants, unique in the program.
        weights: scales and zero points of quantized weights, by name of the layer in the model.
        attributes: of its only convolution or pool of Relax, by name; empty for other operators.
        inner: scale and zero point of results that it computes but does not write, such as that of
            a convolution before an addition, by name of the layer in the model.
        roles: what its operator in floating point takes a constant input for, such as `weights`, by
            index of the input; of those whose role is known.
        residents: tensors that it reads or leaves in a scratchpad and that are thus neither among
            `inputs` nor among `outputs`, in order of their index.
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
        """The number of following steps that may run while this step is still running."""
        return 0 if self.completion is None else self.completion.after

    @property
    def arguments(self) -> tuple[str, ...]:
        """The tensors in the order of the kernel's parameters."""
        return (*self.inputs, *self.outputs, *self.scratch)


@dataclass(frozen=True)
class Kept:
    """A tensor that stays in a scratchpad.

    Attributes:
        tensor: its name in the user's model.
        holder: label of the first step that has it in the scratchpad.
        readers: labels of the steps that read it there.
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
        kept: tensors that stay in a scratchpad and would otherwise move too.
    """

    moved: int
    kept: tuple[Kept, ...]

    @property
    def saved(self) -> int:
        """The number of bytes per inference that are not copied."""
        return sum(item.saved for item in self.kept)


@dataclass(frozen=True)
class Program:
    """A network as a straight-line list of kernel calls.

    Attributes:
        name: C identifier of the model.
        tensors: by name, in order of their first mention.
        constants: values of constant tensors.
        calls: in execution order.
        kernels: by name.
        inputs: tensor names in the order of the model's inputs.
        outputs: tensor names in the order of the model's outputs.
        fingerprint: SHA-256 of the model file; empty for a model that was an object.
        traffic: between shared memory and scratchpads; None if no backend has transfers.
        planned: by target, how layers were cut into tiles.
        notices: what was decided on the user's behalf, and what computes in floating point, one
            sentence each.
        index_checks: whether kernels check indices that are computed at run time.
        cpu: the CPU that kernels are scheduled for; None for any.
        quantizations: of intermediate tensors with one scale, by name.
        sources: operators of the model file by name.
        parts: the maximum number of parts of a kernel that may run at the same time; 0 if the
            library has no function that takes a callback for that.
        choices: what the rules for kernels on the CPU chose.
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
        """Return scale and zero point of a tensor if it has one of each."""
        return tensor.quantization or self.quantizations.get(tensor.name)

    def operands_of(self, call: KernelCall) -> list[tuple[Tensor, str]]:
        """Return all tensors that a step reads, those that stay in a scratchpad among them.

        Each with the name of the scratch tensor that holds it, empty for one in shared memory.
        """
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
