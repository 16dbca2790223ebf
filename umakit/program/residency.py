# SPDX-License-Identifier: Apache-2.0
"""Between the fourth and fifth stage: results stay in the scratchpad where the next layer wants
them.

A backend's TIR pass writes every layer alone: load the operands, calculate, store the result. When
the result of one layer is an operand of a later one, the copy out and the copy back in are left
away, as long as everything that has to lie in the scratchpad at the same time still fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from umakit import tvm_api
from umakit.backend.base import Transfers, UMABackend
from umakit.lower import Kernel
from umakit.memory import PLANNERS, MemoryPool, tensor_lifetimes
from umakit.memory.planners import arena_size, live_set_bound
from umakit.program.program import Kept, KernelCall, Program, Role, Traffic

_COPY_ARGUMENTS = 3
"""Source, destination and bytes."""


@dataclass(frozen=True)
class Copy:
    """A driver call that moves a whole tensor between shared memory and a scratchpad.

    Attributes:
        statement: position of the call among the kernel's statements.
        tensor: position of the tensor among the kernel's inputs (a load) or outputs (a store).
        scratch: position of the place in the scratchpad among the kernel's scratch.
    """

    statement: int
    tensor: int
    scratch: int


@dataclass(frozen=True)
class Copies:
    """What a kernel moves.

    Attributes:
        loads, stores: copies that may be left away, because they are all that the kernel does
            with a tensor in shared memory.
        moved: bytes of all its transfers.
    """

    loads: tuple[Copy, ...]
    stores: tuple[Copy, ...]
    moved: int


@dataclass(frozen=True)
class _Use:
    """A copy of a tensor by one call."""

    step: int
    copy: Copy


@dataclass(frozen=True)
class _Candidate:
    """A tensor that could stay.

    Attributes:
        tensor: its name.
        holder: the call that has it in the scratchpad first; by a store if `stored`.
        stored: whether the holder computes it, and does not load it.
        readers: later loads that would not be needed.
        elsewhere: whether somebody else reads it, so that it has to be stored anyway.
    """

    tensor: str
    holder: _Use
    stored: bool
    readers: tuple[_Use, ...]
    elsewhere: bool

    @property
    def copies_saved(self) -> int:
        """How many copies go away."""
        return len(self.readers) + (self.stored and not self.elsewhere)


def keep_in_scratchpads(
    program: Program,
    backends: Mapping[str, UMABackend],
    pools: Sequence[MemoryPool],
    planner: str,
) -> Program:
    """Leave away copies of tensors that can stay in a scratchpad from one layer to another.

    The tensors that save most bytes are tried first; one stays if the memory planner still finds
    a place for everything.

    Args:
        program: whose kernels load and store each for itself.
        backends: by target, with what they registered by `_register_transfers`.
        pools: of the build.
        planner: of memory, a name of `umakit.memory.PLANNERS`.

    Returns:
        The program with fewer copies, and with its `traffic`; the same one if no backend
        registered transfers.
    """
    transfers = {name: b.transfers for name, b in backends.items() if b.transfers is not None}
    if not transfers:
        return program
    copies = {
        kernel.name: _copies(kernel, transfers[kernel.target])
        for kernel in program.kernels.values()
        if kernel.target in transfers
    }
    scratchpads = {pool.name: pool for pool in pools if pool.by_offset}
    chosen: list[_Candidate] = []
    for candidate in sorted(_candidates(program, copies), key=lambda c: -_gain(program, c)):
        for count in range(len(candidate.readers), 0, -1):
            attempt = _shortened(candidate, count)
            changed = _without_copies(program, copies, [*chosen, attempt])
            if _fits(changed, scratchpads, planner):
                chosen.append(attempt)
                break
    return replace(
        _without_copies(program, copies, chosen), traffic=_traffic(program, copies, chosen)
    )


def _gain(program: Program, candidate: _Candidate) -> int:
    return program.tensors[candidate.tensor].size * candidate.copies_saved


def _shortened(candidate: _Candidate, readers: int) -> _Candidate:
    """The candidate for its first readers only."""
    fewer = readers < len(candidate.readers)
    return replace(
        candidate,
        readers=candidate.readers[:readers],
        elsewhere=candidate.elsewhere or fewer,
    )


def _traffic(
    program: Program, copies: Mapping[str, Copies], chosen: Sequence[_Candidate]
) -> Traffic:
    calls = program.calls
    moved = sum(copies[call.kernel].moved for call in calls if call.kernel in copies)
    kept = [
        Kept(
            program.tensors[c.tensor].label,
            calls[c.holder.step].label,
            tuple(calls[use.step].label for use in c.readers),
            _gain(program, c),
        )
        for c in sorted(chosen, key=lambda c: c.holder.step)
    ]
    return Traffic(moved - sum(item.saved for item in kept), tuple(kept))


# --- what a kernel copies -----------------------------------------------------------------------


def _copies(kernel: Kernel, transfers: Transfers) -> Copies:
    """The transfers of a kernel, found in its statements."""
    homes: dict[Any, Any] = {}
    for statement in kernel.statements:
        if isinstance(statement, tvm_api.tirx.DeclBuffer):
            homes[statement.buffer] = tvm_api.buffers_in(statement.data)[0]
    loads: list[Copy] = []
    stores: list[Copy] = []
    moved = 0
    for number, name, arguments in _driver_calls(kernel):
        if name not in (transfers.load, transfers.store) or len(arguments) != _COPY_ARGUMENTS:
            continue
        size = tvm_api.integer_value(arguments[2])
        found = [tvm_api.buffers_in(argument) for argument in arguments[:2]]
        if size is None or [len(buffers) for buffers in found] != [1, 1]:
            continue
        moved += size
        source, destination = (homes.get(b[0], b[0]) for b in found)
        is_load = name == transfers.load
        tensor, scratch = (source, destination) if is_load else (destination, source)
        parameters = kernel.inputs if is_load else kernel.outputs
        copy = _whole_copy(kernel, number, (tensor, scratch), parameters, size)
        if copy is not None and _mentions(kernel, homes, tensor) == 1:
            (loads if is_load else stores).append(copy)
    return Copies(tuple(loads), tuple(stores), moved)


def _whole_copy(
    kernel: Kernel, statement: int, ends: tuple[Any, Any], parameters: Sequence[Any], size: int
) -> Copy | None:
    """The copy, if it moves a whole tensor from or to a whole buffer of the scratchpad."""
    tensors = [p.variable.same_as(ends[0]) and p.size == size for p in parameters]
    scratch = [
        p.variable.same_as(ends[1]) and p.size == size and p.pool != "" for p in kernel.scratch
    ]
    if True not in tensors or True not in scratch:
        return None
    return Copy(statement, tensors.index(True), scratch.index(True))


def _driver_calls(kernel: Kernel) -> Iterator[tuple[int, str, list[Any]]]:
    """Position, function name and arguments of each external call whose status is checked."""
    for number, statement in enumerate(kernel.statements):
        if isinstance(statement, tvm_api.tirx.Bind) and isinstance(statement.value, tvm_api.Call):
            call = statement.value
            if str(getattr(call.op, "name", "")).endswith("call_extern"):
                yield number, str(call.args[0].value), list(call.args[1:])


def _mentions(kernel: Kernel, homes: Mapping[Any, Any], tensor: Any) -> int:
    """How many statements use a parameter."""
    return sum(
        any(homes.get(buffer, buffer).same_as(tensor) for buffer in tvm_api.buffers_in(statement))
        for statement in kernel.statements
        if not isinstance(statement, tvm_api.tirx.DeclBuffer)
    )


# --- what could stay ----------------------------------------------------------------------------


def _candidates(program: Program, copies: Mapping[str, Copies]) -> list[_Candidate]:
    """Tensors that one call has in a scratchpad and a later call loads again."""
    stored: dict[str, _Use] = {}
    loaded: dict[str, list[_Use]] = {}
    readers: dict[str, int] = {}
    for step, call in enumerate(program.calls):
        for name in call.inputs:
            readers[name] = readers.get(name, 0) + 1
        known = copies.get(call.kernel)
        if known is None:
            continue
        for copy in known.loads:
            uses = loaded.setdefault(call.inputs[copy.tensor], [])
            # An operand that is loaded twice by one call keeps its second copy.
            if not uses or uses[-1].step != step:
                uses.append(_Use(step, copy))
        for copy in known.stores:
            stored[call.outputs[copy.tensor]] = _Use(step, copy)
    found = []
    for name, uses in loaded.items():
        tensor = program.tensors[name]
        holder = stored.get(name)
        later = uses if holder else uses[1:]
        if tensor.role is Role.CONSTANT or not later:
            continue
        elsewhere = readers[name] > len(uses) or tensor.role is Role.OUTPUT
        found.append(
            _Candidate(name, holder or uses[0], holder is not None, tuple(later), elsewhere)
        )
    return [c for c in found if _same_scratchpad(program, c)]


def _same_scratchpad(program: Program, candidate: _Candidate) -> bool:
    uses = (candidate.holder, *candidate.readers)
    pools = {_scratch_of(program, use).pool for use in uses}
    targets = {program.calls[use.step].target for use in uses}
    return len(pools) == 1 and len(targets) == 1


def _scratch_of(program: Program, use: _Use) -> Any:
    return program.tensors[program.calls[use.step].scratch[use.copy.scratch]]


def _fits(program: Program, scratchpads: Mapping[str, MemoryPool], planner: str) -> bool:
    """Whether the planner finds a place for everything in the scratchpads."""
    lifetimes = tensor_lifetimes(program)
    for pool in scratchpads.values():
        inside = [
            replace(item, size=pool.rounded(item.size))
            for item in lifetimes
            if program.tensors[item.name].pool == pool.name
        ]
        if pool.size is None:
            continue
        if live_set_bound(inside) > pool.size:
            return False
        if arena_size(inside, PLANNERS[planner](inside)) > pool.size:
            return False
    return True


# --- leaving copies away ------------------------------------------------------------------------


class _Edit:
    """What changes at one call."""

    def __init__(self) -> None:
        self.loads: set[Copy] = set()
        self.stores: set[Copy] = set()
        self.renamed: dict[str, str] = {}


def _without_copies(
    program: Program, copies: Mapping[str, Copies], chosen: Sequence[_Candidate]
) -> Program:
    """The program with each chosen tensor in one place of the scratchpad from its holder on."""
    tensors = dict(program.tensors)
    edits: dict[int, _Edit] = {}
    for candidate in chosen:
        holder = edits.setdefault(candidate.holder.step, _Edit())
        place = _scratch_of(program, candidate.holder).name
        label = program.tensors[candidate.tensor].label
        tensors[place] = replace(tensors[place], role=Role.INTERMEDIATE, label=label)
        if candidate.stored and not candidate.elsewhere:
            holder.stores.add(candidate.holder.copy)
        for use in candidate.readers:
            edit = edits.setdefault(use.step, _Edit())
            edit.loads.add(use.copy)
            edit.renamed[_scratch_of(program, use).name] = place
    kernels = dict(program.kernels)
    calls = []
    for step, call in enumerate(program.calls):
        calls.append(_edited_call(call, edits[step], kernels) if step in edits else call)
    mentioned = {name for call in calls for name in call.arguments}
    mentioned |= {*program.inputs, *program.outputs}
    used = {call.kernel for call in calls}
    return replace(
        program,
        tensors={name: tensor for name, tensor in tensors.items() if name in mentioned},
        calls=tuple(calls),
        kernels={name: kernel for name, kernel in kernels.items() if name in used},
    )


def _edited_call(call: KernelCall, edit: _Edit, kernels: dict[str, Kernel]) -> KernelCall:
    """A call of the kernel without the copies; the kernel is added to `kernels`."""
    # A place that was renamed earlier may be renamed again by a tensor of this call.
    scratch = tuple(edit.renamed.get(name, name) for name in call.scratch)
    kept = tuple(edit.renamed[name] for name in call.scratch if name in edit.renamed)
    loads = {copy.tensor for copy in edit.loads}
    stores = {copy.tensor for copy in edit.stores}
    kernel = kernels[call.kernel]
    if loads or stores:
        kernel = _kernel_without(kernel, edit)
        kernels.setdefault(kernel.name, kernel)
    return replace(
        call,
        kernel=kernel.name,
        inputs=tuple(name for number, name in enumerate(call.inputs) if number not in loads),
        outputs=tuple(name for number, name in enumerate(call.outputs) if number not in stores),
        scratch=scratch,
        kept=kept,
    )


def _kernel_without(kernel: Kernel, edit: _Edit) -> Kernel:
    """A kernel that finds operands in the scratchpad, or leaves results there."""
    dropped: set[int] = set()
    for copy in (*edit.loads, *edit.stores):
        # The call, and the check of its status behind it.
        dropped |= {copy.statement, copy.statement + 1}
    loads = {copy.tensor for copy in edit.loads}
    stores = {copy.tensor for copy in edit.stores}
    gone = [kernel.inputs[n].variable for n in loads] + [kernel.outputs[n].variable for n in stores]
    statements = [
        statement
        for number, statement in enumerate(kernel.statements)
        if number not in dropped and not _declares_view_of(statement, gone)
    ]
    parts = [f"without_load_{n}" for n in sorted(loads)]
    parts += [f"without_store_{n}" for n in sorted(stores)]
    return replace(
        kernel,
        name="_".join([kernel.name, *parts]),
        inputs=tuple(p for n, p in enumerate(kernel.inputs) if n not in loads),
        outputs=tuple(p for n, p in enumerate(kernel.outputs) if n not in stores),
        statements=tuple(statements),
    )


def _declares_view_of(statement: Any, variables: Sequence[Any]) -> bool:
    if not isinstance(statement, tvm_api.tirx.DeclBuffer):
        return False
    sources = tvm_api.buffers_in(statement.data)
    return any(source.same_as(variable) for source in sources for variable in variables)
