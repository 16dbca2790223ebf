# SPDX-License-Identifier: Apache-2.0
"""Schema of `metadata.json` of an exported library, for writing and reading.

A library may come from an untrusted source. Types are exact, numbers have limits, unknown keys are
refused, names in C, in a shell or in a path are identifiers or plain file names, and the sections
have to be consistent. Displayed texts (names of layers, reasons, notices) are not restricted.
Imports nothing of the pipeline.

The keys under `modules` follow TVM's Model Library Format 7.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from umakit.cpu.description import Cpu
from umakit.machine.energy import EnergySection
from umakit.machine.sources_config import check_flag, check_library
from umakit.text.names import INTERFACE_PREFIX

MODEL_LIBRARY_FORMAT_VERSION = 7

DTYPE_BYTES = {
    **{"bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4},
    **{"int64": 8, "uint64": 8, "float16": 2, "float32": 4, "float64": 8},
}

MOST_AXES = 64

Count = Annotated[int, Field(ge=0, lt=2**63)]
Extent = Annotated[int, Field(ge=0, lt=2**48)]
Identifier = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=255)]
Symbol = Annotated[str, Field(pattern=r"^([A-Za-z_][A-Za-z0-9_]*)?$", max_length=1000)]
Part = Annotated[str, Field(pattern=r"^[A-Za-z0-9_]+$", max_length=240)]
SourcePath = Annotated[
    str,
    Field(
        pattern=r"^[^\x00-\x1f\x7f/\\.-][^\x00-\x1f\x7f/\\]*"
        r"(/[^\x00-\x1f\x7f/\\.-][^\x00-\x1f\x7f/\\]*)*$",
        max_length=4096,
    ),
]
SourcePaths = Annotated[list[SourcePath], Field(max_length=10_000)]
Define = Annotated[
    str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(=[A-Za-z0-9_.+-]*)?$", max_length=1000)
]
CompilerFlag = Annotated[str, AfterValidator(check_flag)]
LibraryName = Annotated[str, AfterValidator(check_library)]
Text = Annotated[str, Field(max_length=10_000_000)]
Dtype = Literal[
    "float32", "float64", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
    "uint64",
]  # fmt: skip
Alignment = Annotated[int, Field(ge=1, le=2**30)]


class Section(BaseModel):
    """Base class of all sections: exact types, no unknown keys."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=())


class TensorView(Section):
    """An input or output.

    Attributes:
        alignment_bytes: alignment of the address for accesses of an accelerator.
        next_state: for an input that is a state, the name of the output with the state's value for
            the next inference. In the first inference all elements are `zero_point`, or 0.
    """

    name: Text
    c_name: Identifier
    shape: Annotated[list[Extent], Field(max_length=MOST_AXES)]
    dtype: Dtype
    size_bytes: Count
    alignment_bytes: Alignment = 1
    scale: Annotated[float, Field(allow_inf_nan=False)] = 1.0
    zero_point: Annotated[int, Field(ge=-(2**31), lt=2**32)] = 0
    next_state: Text = ""

    @model_validator(mode="after")
    def _size(self) -> Self:
        if math.prod(self.shape) * DTYPE_BYTES[self.dtype] != self.size_bytes:
            raise ValueError("size_bytes does not fit shape and dtype")
        return self


class BackendView(Section):
    """An accelerator.

    Attributes:
        computing: names of computing engines in the simulator's reports; empty if the backend
            describes no machine.
        energy: picojoules of events by `accel.toml`; None if not given.
        clock_mhz: clock by `accel.toml`; None if not given.
    """

    name: Identifier
    simulated: bool
    status_base: int = 0
    computing: list[Text] = []
    energy: EnergySection | None = None
    clock_mhz: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None = None


class PlacedTensor(Section):
    """A tensor in a pool."""

    name: Text
    c_name: Identifier
    role: Literal["input", "output", "constant", "intermediate", "scratch"]
    offset_bytes: Count
    size_bytes: Count
    first_layer: Count
    last_layer: Count
    takes_over: Identifier | None


class PoolView(Section):
    """A memory pool and its tensors."""

    name: Identifier
    used_bytes: Count
    size_bytes: Count | None
    alignment_bytes: Alignment
    reachable_by: list[Identifier] | None
    live_set_bound_bytes: Count
    tensors: list[PlacedTensor]

    @model_validator(mode="after")
    def _inside(self) -> Self:
        if self.alignment_bytes & (self.alignment_bytes - 1):
            raise ValueError("alignment_bytes is not a power of two")
        for tensor in self.tensors:
            if tensor.offset_bytes + tensor.size_bytes > self.used_bytes:
                raise ValueError("a tensor reaches beyond used_bytes")
        return self


class KeptView(Section):
    """A tensor that stays in a scratchpad."""

    tensor: Text
    holder: Text
    readers: list[Text]
    saved: Count


class TrafficView(Section):
    """Bytes that move to and from scratchpads."""

    moved: Count
    kept: list[KeptView]


class GenericLayerView(Section):
    """A layer with the kernel for any CPU, as in `umakit.memory.plan.GenericLayer`."""

    name: Text
    scratch_bytes: Count | None


class ScratchView(Section):
    """The limit of the arena of a library for a CPU, as in `umakit.memory.plan.ScratchUse`."""

    limit_percent: Count
    generic_arena_bytes: Count
    limit_bytes: Count
    generic_layers: list[GenericLayerView]
    keeps_layout: bool


class MemoryView(Section):
    """The memory plan and the size of the constants."""

    arena_bytes: Count
    live_set_bound_bytes: Count
    constants_bytes: Count
    planner: Annotated[str, Field(max_length=100)]
    traffic: TrafficView | None
    pools: list[PoolView]
    scratchpads: list[PoolView]
    scratch: ScratchView | None = None


class TilingsView(Section):
    """The number of cut layers, and of layers cut by tuning records."""

    layers: Count
    tuned: Count


class ChoicesView(Section):
    """The number of kernels on the CPU with a choice, and of kernels with a tuned choice."""

    kernels: Count
    tuned: Count


class SourceOperatorView(Section):
    """An operator of the model, as in `umakit.text.identities.SourceOperator`."""

    name: Text
    given: Text
    index: Count | None
    path: Text
    kind: Text


class IdentityView(Section):
    """The identity of a layer in terms of the model, as in
    `umakit.text.identities.LayerIdentity`."""

    key: Text
    role: Literal["operators", "layout change", "copy", "unknown"]
    operators: list[SourceOperatorView]
    part: Count


class LayerView(Section):
    """A step of the program.

    Attributes:
        predicted_cycles: cycles of the accelerator's clock by its cost model; None without a cost
            model, and on the CPU.
        identity: None in a library from before identities.
        cpu_instructions, cpu_cycles: cost of a step on the CPU by the description of the CPU; None
            if unknown.
    """

    name: Text
    where: Identifier
    macs: Count
    kernel: Text
    function: Symbol
    operators: list[Count]
    inputs: list[Identifier]
    outputs: list[Identifier]
    arena_bytes: Count
    scratch_bytes: Count
    constants_bytes: Count
    predicted_cycles: Count | None = None
    identity: IdentityView | None = None
    parts: Count = 1
    cpu_instructions: Count | None = None
    cpu_cycles: Count | None = None


class OperatorView(Section):
    """A row of the offload report."""

    operator: Text
    name: Text
    where: Identifier
    reason: Text
    rounding: Text = ""
    axes: list[Count] = []
    changes_layout: bool = False
    transposes: int | None = None


class UnusedBackendView(Section):
    """An accelerator without layers, with the reason and advice."""

    backend: Identifier
    reason: Text
    fix: Text


class OwnSimulator(Section):
    """The build of a backend's own simulator.

    Attributes:
        sources: C and C++ files, as paths relative to `simulator/NAME`.
        include: folders of headers in `simulator/NAME`, in addition to the folder itself.
        libraries: names of installed libraries, and library files as paths in `simulator/NAME`.
        program: program and arguments that the sources start, on the host only; empty if the
            sources are the simulator.
        timeout: seconds for a function of a linked simulator to return in umakit's programs for the
            host; the generated source has the timeout of a program.
    """

    sources: SourcePaths
    include: SourcePaths
    defines: list[Define]
    libraries: SourcePaths
    program: list[Text] = []
    timeout: Annotated[float, Field(ge=0.001, le=1_000_000.0)] = 60.0


class KernelLibrary(Section):
    """The files of a backend's library of C functions in the export.

    Attributes:
        sources: compiled C and C++ files, as paths relative to `codegen/host/src`.
        included: other files that `sources` and generated C include.
        defines: macros for these files and for generated C.
        flags: compiler flags for `sources` alone.
        link: names of libraries to link instead.
        licence: files with the terms of the licence.
        digest: digest of the whole library; `sources` are only the files that this network calls.
    """

    sources: SourcePaths
    included: SourcePaths
    include: SourcePaths
    defines: list[Define]
    flags: list[CompilerFlag]
    link: list[LibraryName]
    licence: SourcePaths
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Sources(Section):
    """Files by role, as paths relative to `codegen/host/src`.

    Attributes:
        model: C files of the network itself.
        static_workspace: C files with `_run`; callers that pass a workspace do not need them.
        status: C files of the statuses that drivers return.
        simulator: C files of all simulated devices.
        kinds: additional C files of the simulator, by kind of device.
        devices: C files of the simulated device, by backend; a board has its own.
        simulated_as: kind of umakit's simulator, by backend.
        headers: headers of the driver and its device, by backend.
        own: simulators other than umakit's in `simulator/NAME`, by backend.
        compiled: objects and libraries of drivers, by backend, as paths relative to
            `codegen/host/lib` in link order.
    """

    model_config = ConfigDict(frozen=False)

    model: SourcePaths
    static_workspace: SourcePaths
    status: SourcePaths
    simulator: SourcePaths
    kinds: dict[Identifier, SourcePaths]
    drivers: dict[Identifier, SourcePaths]
    devices: dict[Identifier, SourcePaths]
    simulated_as: dict[Identifier, Identifier]
    headers: dict[Identifier, SourcePaths]
    own: dict[Identifier, OwnSimulator] = {}
    compiled: dict[Identifier, SourcePaths] = {}
    libraries: dict[Identifier, KernelLibrary] = {}

    @property
    def simulated(self) -> list[str]:
        """The files left out on a board."""
        optional = (*self.kinds.values(), *self.devices.values())
        return [*self.simulator, *(name for names in optional for name in names)]


class CpuSection(Section):
    """The part of a library for several CPUs that depends on the CPU.

    Attributes:
        suffix: ending of the names of the CPU's C files and of its `_run_unpacked`.
    """

    cpu: Cpu
    suffix: Part
    memory: MemoryView
    tilings: TilingsView | None
    layers: list[LayerView]
    operators: list[OperatorView]
    choices: ChoicesView | None = None


class Description(Section):
    """The section `umakit` of the file.

    Attributes:
        cpu: target CPU of kernel schedules; None for any.
        most_parts: the maximum number of parts of a layer; 0 for a library without parts.
        suffix: suffix of the section's CPU, see `CpuSection`; empty in a library for one CPU.
        cpus: sections of a library for several CPUs, in the order of the compiler's choice; the
            last CPU is also the whole section. Empty in a library for one CPU.
    """

    version: Annotated[str, Field(max_length=100)]
    name: Part
    interface: Identifier
    model_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    weights: Literal["c", "blob"]
    inputs: list[TensorView]
    outputs: list[TensorView]
    backends: list[BackendView]
    memory: MemoryView
    tilings: TilingsView | None
    layers: list[LayerView]
    operators: list[OperatorView]
    notices: list[Text]
    unused_backends: list[UnusedBackendView] = []
    index_checks: bool = False
    cpu: Cpu | None = None
    most_parts: Count = 0
    suffix: Annotated[str, Field(pattern=r"^[a-z0-9_]*$", max_length=60)] = ""
    cpus: list[CpuSection] = []
    choices: ChoicesView | None = None
    sources: Sources

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.interface != INTERFACE_PREFIX + self.name:
            raise ValueError(f"interface is not {INTERFACE_PREFIX} and the name")
        c_names = [tensor.c_name for tensor in (*self.inputs, *self.outputs)]
        if len(set(c_names)) != len(c_names):
            raise ValueError("two inputs or outputs have one c_name")
        yielded = {(tensor.name, tensor.dtype, *tensor.shape) for tensor in self.outputs}
        for tensor in self.inputs:
            following = (tensor.next_state, tensor.dtype, *tensor.shape)
            if tensor.next_state and following not in yielded:
                raise ValueError("next_state is not an output of the input's shape and dtype")
        names = [each.cpu.name for each in self.cpus]
        if len(set(names)) != len(names):
            raise ValueError("cpus: two have one name")
        sections: list[Description | CpuSection] = [self, *self.cpus]
        for section in sections:
            self._check_layers(section)
        return self

    def _check_layers(self, section: Description | CpuSection) -> None:
        targets = {"cpu", *(backend.name for backend in self.backends)}
        for number, layer in enumerate(section.layers):
            if layer.where not in targets:
                raise ValueError(f"layers.{number}.where is not a backend of the library")
            if not all(row < len(section.operators) for row in layer.operators):
                raise ValueError(f"layers.{number}.operators are not in operators")
            if layer.function and not layer.function.startswith(f"{self.interface}_"):
                raise ValueError(f"layers.{number}.function is not one of {self.interface}")
        for pool in (*section.memory.pools, *section.memory.scratchpads):
            if any(tensor.last_layer >= len(section.layers) for tensor in pool.tensors):
                raise ValueError(f"memory: a tensor of {pool.name} outlives the last layer")


# Sections in TVM's format.


class ModuleTensor(Section):
    size: Count
    dtype: Dtype


class ModuleMain(Section):
    device: Count
    workspace_size_bytes: Count
    constants_size_bytes: Count
    io_size_bytes: Count
    inputs: dict[Text, ModuleTensor]
    outputs: dict[Text, ModuleTensor]
    workspace_pools: dict[Identifier, Count]


class ModuleWorkspace(Section):
    device: Count
    workspace_size_bytes: Count


class ModuleFunction(Section):
    function_name: Identifier
    workspace: list[ModuleWorkspace]


class ModuleFunctions(Section):
    main: list[ModuleMain]
    operator_functions: list[ModuleFunction]


class ModuleMemory(Section):
    functions: ModuleFunctions


class ModuleView(Section):
    model_name: Part
    style: Literal["full-model"]
    executors: list[Literal["aot"]]
    target: list[Identifier]
    external_dependencies: list[Any] = Field(max_length=0)
    memory: ModuleMemory


class Metadata(Section):
    """The whole file."""

    version: Literal[7]
    modules: dict[Part, ModuleView]
    umakit: Description
