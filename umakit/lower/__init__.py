# SPDX-License-Identifier: Apache-2.0
"""Lowering: composite functions and CPU operators become TIR kernels.

Accelerator regions are inlined. Each composite becomes one prim func by its backend's operator
strategies and TIR passes. All other operators are fused and scheduled for the CPU. The result is a
straight-line list of kernel calls and the kernels, ready for C code generation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from umakit import tir, tvm_api
from umakit.cpu.description import Cpu
from umakit.cpu.kernel_choices import KEY, Choice, KernelChoices, KernelKey, choosing
from umakit.lower.composites import check_replaced, dissolve_regions, lower_composites
from umakit.lower.cpu import constant_elements, index_checks, lower_cpu_operators, prim_func_calls
from umakit.lower.expansion import expand_requantize
from umakit.lower.kernels import Kernel, make_kernel
from umakit.lower.phases import lower_prim_func
from umakit.machine import Layer, Tiling
from umakit.machine.planner import PlannedLayers
from umakit.partition.constant_roles import ConstantRoles
from umakit.partition.partitioner import Partitioned, run_passes
from umakit.partition.report import CPU, OffloadReport
from umakit.patterns.driver import ARRAYS_ATTRIBUTE
from umakit.registration.backend import Backend
from umakit.registration.registered import PassPhase

__all__ = ["Kernel", "Lowered", "accelerator_kernels", "expand_requantize", "lower"]


@dataclass(frozen=True)
class Lowered:
    """A network as a list of kernel calls.

    Attributes:
        main: Relax function in which every call is a `call_tir` or a reshape; the span of a call
            names its rows of the offload report.
        kernels: kernels by their name in `main`; names may share a kernel.
        planned: by target with a planner, the layers that the planner cut into tiles.
    """

    main: Any
    kernels: dict[str, Kernel]
    planned: dict[str, PlannedLayers]
    roles: ConstantRoles = field(default_factory=ConstantRoles)
    choices: KernelChoices = field(default_factory=KernelChoices)


def lower(
    partitioned: Partitioned,
    backends: Sequence[Backend],
    check_indices: bool = True,
    tilings: Mapping[str, Mapping[Layer, Tiling]] | None = None,
    cpu: Cpu | None = None,
    generic_rows: Collection[int] = (),
    choices: Mapping[KernelKey, Choice] | None = None,
) -> Lowered:
    """Lower a partitioned network to kernels.

    Args:
        tilings: tilings by target and layer; replace the planners' defaults.
        cpu: target CPU of kernel schedules; None for any.
        generic_rows: rows of the offload report whose kernels are scheduled as for any CPU.
        choices: choices for kernels on the CPU; replace the rules' choices.

    Raises:
        LoweringError: a backend's strategy or pass failed, or an operator has no lowering.
    """
    given, made = tilings or {}, KernelChoices(choices or {})
    planned: dict[str, PlannedLayers] = {}
    with ExitStack() as compilation:
        for backend in backends:
            if backend.tiling is not None:
                layers = PlannedLayers(given.get(backend.target_name, {}))
                planned[backend.target_name] = layers
                compilation.enter_context(backend.tiling.planning(layers))
        compilation.enter_context(choosing(made))
        main, kernels = _lowered(partitioned, backends, check_indices, cpu, generic_rows, made)
    return Lowered(main, kernels, planned, partitioned.roles, made)


def _lowered(
    partitioned: Partitioned,
    backends: Sequence[Backend],
    check_indices: bool,
    cpu: Cpu | None,
    generic_rows: Collection[int],
    choices: KernelChoices,
) -> tuple[Any, dict[str, Kernel]]:
    by_target = {backend.target_name: backend for backend in backends}
    module = accelerator_kernels(partitioned, backends)
    module = lower_cpu_operators(module, partitioned.report, check_indices, cpu, generic_rows)
    results = _result_counts(module["main"])
    constants, nodes = constant_elements(module["main"]), _nodes(module["main"], partitioned.report)
    kernels: dict[str, Kernel] = {}
    unique: dict[int, list[tuple[Any, Kernel]]] = {}
    for variable, function in tvm_api.prim_functions(module):
        name = variable.name_hint
        if name not in results:
            continue
        target = str(tvm_api.function_attribute(function, "umakit.target") or CPU)
        choices.note_kernel(name, tvm_api.function_attribute(function, KEY))
        checks = index_checks(constants.get(name, []), nodes[name], check_indices)
        backend = by_target.get(target)
        lowered = lower_prim_func(name, function, backend, checks)
        if target == CPU:
            kernels[name] = make_kernel(name, target, lowered, results[name], backend)
            continue
        plain = lowered.without_attr(ARRAYS_ATTRIBUTE).without_attr("global_symbol")
        # Layers with equal code share a kernel; the kernel gets their arrays as pointers.
        alike = unique.setdefault(tvm_api.tvm_ffi.structural_hash(plain), [])
        equal = (k for f, k in alike if tvm_api.tvm_ffi.structural_equal(f, plain))
        kernel = next(equal, None)
        kernels[name] = kernel or make_kernel(name, target, lowered, results[name], backend)
        if kernel is None:
            if backend is not None:
                check_replaced(kernels[name], tir.composite_name(function), backend)
            alike.append((plain, kernels[name]))
    return module["main"], kernels


def accelerator_kernels(partitioned: Partitioned, backends: Sequence[Backend]) -> tvm_api.IRModule:
    """Lower composites to prim funcs, without running the TIR passes of their backends."""
    module = dissolve_regions(partitioned.module)
    for backend in backends:
        module = run_passes(module, backend, PassPhase.POST_PARTITIONING_1)
    if partitioned.provenance is not None:
        module = partitioned.provenance.note(module)
    return lower_composites(module, {backend.target_name: backend for backend in backends})


def _nodes(main: tvm_api.Function, report: OffloadReport) -> dict[str, str]:
    """Return for messages the nodes of the user's model that each prim func computes."""
    found: dict[str, list[str]] = {}
    for name, call in prim_func_calls(main):
        found.setdefault(name, []).extend(report.names(tvm_api.rows_of(call)))
    return {
        name: f"node {', '.join(dict.fromkeys(nodes))}" if nodes else f"kernel {name}"
        for name, nodes in found.items()
    }


def _result_counts(main: tvm_api.Function) -> dict[str, int]:
    """Return the number of results of each prim func that `main` calls, by name."""
    calls = prim_func_calls(main)
    return {name: len(tvm_api.tuple_fields(call.ty_args[0])) for name, call in calls}
