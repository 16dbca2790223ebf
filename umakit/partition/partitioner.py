# SPDX-License-Identifier: Apache-2.0
"""Partitioning: operators that an accelerator supports become composite functions.

Matching is done by TVM's `FuseOpsByPattern` with the patterns and predicates of the backends; the
offload report records the placement of every operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from umakit import tvm_api
from umakit.errors import BackendError, UmakitError
from umakit.operators.registry import name_for_readers
from umakit.partition.constant_roles import ConstantRoles, constant_roles
from umakit.partition.kept_names import with_kept_names
from umakit.partition.layouts.choose import Fitted, fit_layouts
from umakit.partition.macs import multiply_accumulates
from umakit.partition.matching import Refusals, fuse_all, offloaded_rows, reason_of
from umakit.partition.provenance import Provenance
from umakit.partition.report import CPU, OffloadReport, OperatorPlacement
from umakit.partition.window_attributes import window_attributes
from umakit.registration.backend import Backend, PassPhase
from umakit.registration.code import raised


@dataclass(frozen=True)
class Partitioned:
    """A partitioned network.

    Attributes:
        module: a Relax module whose accelerator functions carry `Codegen`.
        report: the offload report.
        provenance: maps calls of the module to rows of the report; None if unknown.
        roles: what constants are for their operators.
    """

    module: tvm_api.IRModule
    report: OffloadReport
    provenance: Provenance | None = None
    roles: ConstantRoles = field(default_factory=ConstantRoles)


def partition(
    module: tvm_api.IRModule, backends: Sequence[Backend], *, keep_layout: bool = False
) -> Partitioned:
    """Partition a Relax module onto backends; earlier backends have precedence.

    Args:
        module: a Relax module with a function `main`.
        backends: backends in order of priority.
        keep_layout: whether no region gets another layout, as `layouts.choose` describes.

    Raises:
        BackendError: a predicate raised an exception or returned neither bool nor str.
    """
    module = _prepare(module, backends)
    fitted = Fitted(module) if keep_layout else fit_layouts(module, backends)
    if fitted.target:
        found = _partitioned(fitted, backends)
        if found.report.offloaded_macs >= fitted.macs:
            return found
        fitted = Fitted(module)  # a predicate answers otherwise than it did before
    return _partitioned(fitted, backends)


def _partitioned(fitted: Fitted, backends: Sequence[Backend]) -> Partitioned:
    module, operators = _number_operators(fitted.module)
    provenance = Provenance(module["main"], lambda _, binding: tvm_api.rows_of(binding.value))
    roles = constant_roles(module["main"])
    refusals = {backend.target_name: Refusals() for backend in backends}
    module = fuse_all(module, backends, refusals)
    where = offloaded_rows(module, provenance)
    placements = _final_placements(operators, where, refusals)
    report = OffloadReport(tuple(fitted.noted(placements)))
    return Partitioned(_finish(module, backends), report, provenance, roles)


def partition_module(
    module: tvm_api.IRModule,
    backends: Sequence[Backend],
    parameters: Mapping[str, Any] | None = None,
) -> tvm_api.IRModule:
    """Partition a Relax module without a report, only with TVM's own passes.

    Args:
        module, backends: as in `partition`.
        parameters: values of the module's parameters by name, bound as constants first.

    Raises:
        BackendError: as in `partition`.
    """
    if parameters:
        module = tvm_api.relax_transform.BindParams("main", dict(parameters))(module)
    refusals = {backend.target_name: Refusals() for backend in backends}
    return _finish(fuse_all(_prepare(module, backends), backends, refusals), backends)


def _prepare(module: tvm_api.IRModule, backends: Sequence[Backend]) -> tvm_api.IRModule:
    for backend in backends:
        changed = run_passes(module, backend, PassPhase.PRE_PARTITIONING)
        module = with_kept_names(module, changed)
    return tvm_api.relax_transform.ConvertToDataflow(min_size=1)(module)


def _finish(module: tvm_api.IRModule, backends: Sequence[Backend]) -> tvm_api.IRModule:
    for backend in backends:
        module = run_passes(module, backend, PassPhase.POST_PARTITIONING_0)
    return module


def run_passes(module: tvm_api.IRModule, backend: Backend, phase: PassPhase) -> tvm_api.IRModule:
    """Run a backend's passes of one phase in the order of their registration."""
    for registered in backend.passes[phase]:
        try:
            module = registered(module)
        except UmakitError:
            raise
        except Exception as error:  # a backend's pass may raise anything
            raise BackendError(
                f"a pass of {phase.name} failed: {raised(error, backend)}",
                where=backend.target_name,
            ) from error
    return module


def _number_operators(
    module: tvm_api.IRModule,
) -> tuple[tvm_api.IRModule, list[OperatorPlacement]]:
    """List the operators of `main`, and attach to each call its row in the list."""
    operators: list[OperatorPlacement] = []

    @tvm_api.mutator
    class Numberer(tvm_api.PyExprMutator):
        def visit_var_binding_(self, binding: tvm_api.VarBinding) -> None:
            call = binding.value
            name = tvm_api.operator_name(call)
            if isinstance(call, tvm_api.Call) and name:
                node = tvm_api.name_of(call) or str(binding.var.name)
                last = tvm_api.result_name(call.span) or node
                call = tvm_api.make_call(call, span=tvm_api.rows_span([len(operators)]))
                placement = _placement(name, node, call, binding.var, module)
                operators.append(replace(placement, last="" if last == node else last))
                binding = tvm_api.relax.VarBinding(binding.var, call)
            super().visit_var_binding_(binding)

    numberer = Numberer(module)
    main = module.get_global_var("main")
    numberer.builder_.update_func(main, numberer.visit_expr(module["main"]))
    return numberer.builder_.get(), operators


def _placement(
    operator: str, name: str, call: tvm_api.Call, variable: tvm_api.Var, module: tvm_api.IRModule
) -> OperatorPlacement:
    first = tvm_api.tuple_fields(variable.ty)[0]
    lowered = operator == "call_tir"
    if lowered:
        operator = str(call.args[0].name_hint)
    return OperatorPlacement(
        operator=operator if lowered else name_for_readers(call),
        name=name,
        where=CPU,
        reason="",
        macs=multiply_accumulates(operator, call, variable),
        shape=tvm_api.static_type_shape(first) or (),
        dtype=tvm_api.type_dtype(first),
        attributes=window_attributes(call),
    )


def _final_placements(
    operators: list[OperatorPlacement], where: dict[int, str], refusals: dict[str, Refusals]
) -> Iterator[OperatorPlacement]:
    for row, operator in enumerate(operators):
        if row in where:
            rounding = refusals[where[row]].accepted.get(row, "")
            yield replace(operator, where=where[row], rounding=rounding)
        else:
            yield replace(operator, reason=reason_of(row, operator.operator, refusals))
