# SPDX-License-Identifier: Apache-2.0
"""The kernels of a program as C functions; kernels of equal text share a function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from umakit.codegen.driver_headers import DriverHeaders, driver_headers
from umakit.codegen.kernel_source import NO_HEADERS, KernelSource, print_kernel
from umakit.lower.index_ranges import Elements
from umakit.memory.plan import MemoryPlan
from umakit.memory.planning import taken_over
from umakit.program.program import KernelCall, Program, Role
from umakit.program.symbols import room
from umakit.registration.backend import Backend
from umakit.registration.code import call_replacement
from umakit.text.names import cut, symbol_part


@dataclass(frozen=True)
class KernelUse:
    """A kernel with the input that its output overwrites, if any."""

    kernel: str
    overwritten: int | None


def kernel_use(call: KernelCall, plan: MemoryPlan) -> KernelUse:
    """Return a call's use of a kernel."""
    return KernelUse(call.kernel, taken_over(call, plan.shared))


def kernel_name(program: Program, calls: Sequence[KernelCall]) -> str:
    """Return the name of a kernel: of its layer; of several layers, the operators and the result.

    For example `add_relu_16x8x8`, without the number of images if that is 1.
    """
    first = calls[0]
    if len(calls) == 1 or not first.operators:
        return first.symbol or symbol_part(first.kernel)
    operators = "_".join(symbol_part(name.rpartition(".")[2]) for name in first.operators)
    result, _ = program.results_of(first)[0]
    sizes = result.shape[1:] if result.shape[:1] == (1,) else result.shape
    name = f"{operators}_{'x'.join(map(str, sizes))}".rstrip("_")
    return cut(name, name, room(program.name) - len("_kernel_2"))


def print_kernels(
    program: Program, plan: MemoryPlan, backends: Mapping[str, Backend], constants_are_known: bool
) -> list[tuple[KernelSource, list[KernelUse]]]:
    """Print all kernels in order of use, each text once with all its uses.

    The sharing of functions does not depend on the values of constants. Then the range of all
    constants of the calls shows the sums that cannot overflow.

    Args:
        constants_are_known: whether constants are part of the code; constants of a weights blob may
            be exchanged.
    """
    calls: dict[KernelUse, list[KernelCall]] = {}
    for call in program.calls:
        if call.kernel:
            calls.setdefault(kernel_use(call, plan), []).append(call)
    headers = {name: driver_headers(backend) for name, backend in backends.items()}
    shared: dict[object, tuple[KernelSource, list[KernelUse]]] = {}
    for use in calls:
        source = _printed(program, use, backends, headers, {}, {})
        shared.setdefault((source.parameters, source.body, source.parts), (source, []))[1].append(
            use
        )
    printed = []
    for source, uses in shared.values():
        users = [call for use in uses for call in calls[use]]
        ranges = _constant_elements(program, users) if source.wraps and constants_are_known else {}
        backend = backends.get(program.kernels[uses[0].kernel].target)
        # A hook sees the names of operands, so they stay unchanged.
        plain = len(uses) == 1 and call_replacement(backend) is None
        names = _operand_names(program, users, uses[0].overwritten) if plain else {}
        if ranges or names:
            source = _printed(program, uses[0], backends, headers, ranges, names)
        printed.append((source, uses))
    return printed


def _printed(
    program: Program,
    use: KernelUse,
    backends: Mapping[str, Backend],
    headers: Mapping[str, DriverHeaders],
    constants: Mapping[int, Elements],
    inputs: Mapping[int, str],
) -> KernelSource:
    kernel = program.kernels[use.kernel]
    hook = call_replacement(backends.get(kernel.target))
    names = headers.get(kernel.target, NO_HEADERS)
    return print_kernel(kernel, hook, use.overwritten, names, constants, inputs)


def _operand_names(
    program: Program, calls: Sequence[KernelCall], overwritten: int | None
) -> dict[int, str]:
    """Return names of inputs by index, by the roles of constants in all calls.

    Equal kernels are found before, so names of operands never split a function.
    """
    first = calls[0]
    roles = dict(first.roles)
    if not roles or first.residents or any(call.roles != roles for call in calls):
        return {}
    if len(set(roles.values())) < len(roles):
        return {}
    unnamed = [n for n in range(len(first.inputs)) if n not in roles and n != overwritten]
    if len(unnamed) > 1 or any(
        program.tensors[first.inputs[n]].role is Role.CONSTANT for n in unnamed
    ):
        return {}
    return roles | dict.fromkeys(unnamed, "data")


def _constant_elements(program: Program, calls: Sequence[KernelCall]) -> dict[int, Elements]:
    """Return the ranges of inputs that are integer constants in all calls, by index."""
    found = {}
    for number, names in enumerate(zip(*(call.inputs for call in calls), strict=True)):
        arrays = [program.constants.get(name) for name in names]
        known = [a for a in arrays if a is not None and a.size and a.dtype.kind in "iu"]
        if len(known) == len(names):
            ranges = [(int(array.min()), int(array.max())) for array in known]
            found[number] = Elements((min(r[0] for r in ranges), max(r[1] for r in ranges)))
    return found
