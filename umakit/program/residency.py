# SPDX-License-Identifier: Apache-2.0
"""Residency: results that stay in the scratchpad for the next layer.

A backend's TIR pass generates each layer separately: load the operands, compute, store the result.
If the result of one layer is an operand of a later layer, the driver calls that store and reload
the result are dropped, as long as all simultaneously live scratchpad tensors fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from umakit.lower.driver_calls import DriverCall, DriverCallKind
from umakit.lower.kernels import Kernel
from umakit.program.program import Kept, KernelCall, Program, Resident, Role, Traffic
from umakit.registration.backend import Backend

Fits = Callable[[Program], bool]


@dataclass(frozen=True)
class Copy:
    """A driver call of a step that copies a whole tensor of the program.

    Attributes:
        tensor: name of the tensor in shared memory.
        place: name of the scratch tensor in the scratchpad.
    """

    step: int
    node: DriverCall
    tensor: str
    place: str


@dataclass(frozen=True)
class _Candidate:
    """A tensor that could stay in a scratchpad.

    Attributes:
        holder: copy of the first step with the tensor in the scratchpad.
        readers: later loads to drop.
        elsewhere: whether other steps read the tensor in shared memory, so that its store must
            stay.
    """

    tensor: str
    holder: Copy
    readers: tuple[Copy, ...]
    elsewhere: bool

    @property
    def drops_store(self) -> bool:
        """Return whether the holder computes the tensor and no step reads it in shared memory."""
        return self.holder.node.kind is DriverCallKind.STORE and not self.elsewhere


def keep_in_scratchpads(program: Program, backends: Mapping[str, Backend], fits: Fits) -> Program:
    """Drop the copies of tensors that can stay in a scratchpad, those that save most bytes first.

    `fits` asks the later memory stage whether the scratchpads hold a program's tensors.
    """
    if all(backend.transfers is None for backend in backends.values()):
        return program
    chosen: list[_Candidate] = []
    for candidate in sorted(_candidates(program), key=lambda c: -_saved_bytes(program, c)):
        readers = candidate.readers
        for count in range(len(readers), 0, -1):
            elsewhere = candidate.elsewhere or count < len(readers)
            attempt = replace(candidate, readers=readers[:count], elsewhere=elsewhere)
            if fits(_without_copies(program, [*chosen, attempt])):
                chosen.append(attempt)
                break
    return replace(_without_copies(program, chosen), traffic=_traffic(program, chosen))


def _saved_bytes(program: Program, candidate: _Candidate) -> int:
    copies = len(candidate.readers) + candidate.drops_store
    return program.tensors[candidate.tensor].size * copies


def _traffic(program: Program, chosen: Sequence[_Candidate]) -> Traffic:
    calls = program.calls
    nodes = [node for c in calls if c.kernel for node in program.kernels[c.kernel].driver_calls]
    kept = [
        Kept(
            program.tensors[c.tensor].label,
            calls[c.holder.step].label,
            tuple(calls[copy.step].label for copy in c.readers),
            _saved_bytes(program, c),
        )
        for c in sorted(chosen, key=lambda c: c.holder.step)
    ]
    moved = sum(node.moved_bytes for node in nodes)
    return Traffic(moved - sum(item.saved for item in kept), tuple(kept))


# --- candidates ---------------------------------------------------------------------------------


def _copies(program: Program) -> list[Copy]:
    """Return the copies of whole tensors in order of execution."""
    copies = []
    for step, call in enumerate(program.calls):
        if call.kernel:
            kernel = program.kernels[call.kernel]
            names = dict(zip(kernel.parameters, call.arguments, strict=True))
            for transfer in kernel.transfers():
                place = names[transfer.place]
                copies.append(Copy(step, transfer.node, names[transfer.tensor], place))
    return copies


def _candidates(program: Program) -> list[_Candidate]:
    """Return the tensors that one step holds in a scratchpad and a later step loads again."""
    stored: dict[str, Copy] = {}
    loaded: dict[str, list[Copy]] = {}
    for copy in _copies(program):
        if copy.node.kind is DriverCallKind.STORE:
            stored[copy.tensor] = copy
            continue
        loads = loaded.setdefault(copy.tensor, [])
        # If one step loads an operand twice, the second load stays.
        if not loads or loads[-1].step != copy.step:
            loads.append(copy)
    inputs = [name for call in program.calls for name in call.inputs]
    found = []
    for name, loads in loaded.items():
        tensor = program.tensors[name]
        holder = stored.get(name)
        later = loads if holder else loads[1:]
        if tensor.role is Role.CONSTANT or not later:
            continue
        elsewhere = inputs.count(name) > len(loads) or tensor.role is Role.OUTPUT
        found.append(_Candidate(name, holder or loads[0], tuple(later), elsewhere))
    return [candidate for candidate in found if _is_in_one_scratchpad(program, candidate)]


def _is_in_one_scratchpad(program: Program, candidate: _Candidate) -> bool:
    copies = (candidate.holder, *candidate.readers)
    pools = {program.tensors[copy.place].pool for copy in copies}
    targets = {program.calls[copy.step].target for copy in copies}
    return len(pools) == 1 and len(targets) == 1


# --- dropping copies ----------------------------------------------------------------------------


@dataclass
class _Edit:
    """Changes of one step: dropped copies and renamed scratch tensors."""

    dropped: list[Copy] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)


def _without_copies(program: Program, chosen: Sequence[_Candidate]) -> Program:
    """Return the program with each chosen tensor at one scratchpad location from its holder on."""
    tensors = dict(program.tensors)
    edits: dict[int, _Edit] = {}
    for candidate in chosen:
        holder = edits.setdefault(candidate.holder.step, _Edit())
        place = candidate.holder.place
        label = program.tensors[candidate.tensor].label
        tensors[place] = replace(tensors[place], role=Role.INTERMEDIATE, label=label)
        if candidate.drops_store:
            holder.dropped.append(candidate.holder)
        for copy in candidate.readers:
            edit = edits.setdefault(copy.step, _Edit())
            edit.dropped.append(copy)
            edit.renamed[copy.place] = place
    kernels = dict(program.kernels)
    calls = []
    for step, call in enumerate(program.calls):
        calls.append(_edited_call(program, call, edits[step], kernels) if step in edits else call)
    mentioned = {name for call in calls for name in call.arguments}
    mentioned |= {*program.inputs, *program.outputs}
    used = {call.kernel for call in calls}
    return replace(
        program,
        tensors={name: tensor for name, tensor in tensors.items() if name in mentioned},
        calls=tuple(calls),
        kernels={name: kernel for name, kernel in kernels.items() if name in used},
    )


def _edited_call(
    program: Program, call: KernelCall, edit: _Edit, kernels: dict[str, Kernel]
) -> KernelCall:
    """Return a call of the kernel without the dropped copies, and add the kernel to `kernels`."""
    original = kernel = kernels[call.kernel]
    if edit.dropped:
        kernel = _kernel_without(original, [copy.node for copy in edit.dropped])
        kernels.setdefault(kernel.name, kernel)
    inputs = zip(original.inputs, call.inputs, strict=True)
    outputs = zip(original.outputs, call.outputs, strict=True)
    return replace(
        call,
        kernel=kernel.name,
        inputs=tuple(name for parameter, name in inputs if parameter in kernel.inputs),
        outputs=tuple(name for parameter, name in outputs if parameter in kernel.outputs),
        # A tensor of this call may rename an already renamed place again.
        scratch=tuple(edit.renamed.get(name, name) for name in call.scratch),
        kept=tuple(edit.renamed[name] for name in call.scratch if name in edit.renamed),
        residents=tuple(sorted(_residents(program, call, edit), key=lambda each: each.index)),
    )


def _residents(program: Program, call: KernelCall, edit: _Edit) -> Iterable[Resident]:
    """Yield the tensors whose copies are dropped."""
    for copy in edit.dropped:
        is_result = copy.node.kind is DriverCallKind.STORE
        index = (call.outputs if is_result else call.inputs).index(copy.tensor)
        place = edit.renamed.get(copy.place, copy.place)
        yield Resident(program.tensors[copy.tensor], place, index, is_result)


def _kernel_without(kernel: Kernel, dropped: Sequence[DriverCall]) -> Kernel:
    """Return a kernel that reads operands from the scratchpad or leaves results there."""
    tensors = [transfer.tensor for transfer in kernel.transfers() if transfer.node in dropped]
    parts = [f"without_load_{n}" for n, p in enumerate(kernel.inputs) if p in tensors]
    parts += [f"without_store_{n}" for n, p in enumerate(kernel.outputs) if p in tensors]
    return kernel.without(dropped, "_".join([kernel.name, *parts]))
