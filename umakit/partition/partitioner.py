# SPDX-License-Identifier: Apache-2.0
"""Partitioning: operators that an accelerator supports become composite functions.

Matching is done by TVM's `FuseOpsByPattern` with the patterns and predicates of the backends; the
offload report records the placement of every operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.errors import BackendError, UmakitError
from umakit.operators.offload.constraints import OtherOperator
from umakit.operators.registry import name_for_readers
from umakit.partition.constant_roles import ConstantRoles, constant_roles
from umakit.partition.kept_names import with_kept_names
from umakit.partition.macs import multiply_accumulates
from umakit.partition.own_patterns import check_own_patterns
from umakit.partition.provenance import Provenance
from umakit.partition.report import CPU, OffloadReport, OperatorPlacement
from umakit.partition.window_attributes import window_attributes
from umakit.registration.backend import Backend, PassPhase, Pattern
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


@dataclass
class _Refusals:
    """Reasons why operators were refused, by row of the report, and an error of a predicate.

    `accepted` has the rounding of the accelerator's own by accepted row, or an empty text.
    """

    reasons: dict[int, list[str]] = field(default_factory=dict)
    accepted: dict[int, str] = field(default_factory=dict)
    error: UmakitError | None = None

    def refuse(self, context: tvm_api.PatternCheckContext, reason: str) -> bool:
        for number in _matched_operators(context):
            reasons = self.reasons.setdefault(number, [])
            if reason not in reasons:
                reasons.append(reason)
        return False


def partition(module: tvm_api.IRModule, backends: Sequence[Backend]) -> Partitioned:
    """Partition a Relax module onto backends; earlier backends have precedence.

    Args:
        module: a Relax module with a function `main`.
        backends: backends in order of priority.

    Raises:
        BackendError: a predicate raised an exception or returned neither bool nor str.
    """
    module = _prepare(module, backends)
    module, operators = _number_operators(module)
    provenance = Provenance(module["main"], lambda _, binding: tvm_api.rows_of(binding.value))
    roles = constant_roles(module["main"])
    refusals = {backend.target_name: _Refusals() for backend in backends}
    module = _fuse_all(module, backends, refusals)
    where = _offloaded_rows(module, provenance)
    report = OffloadReport(tuple(_final_placements(operators, where, refusals)))
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
    refusals = {backend.target_name: _Refusals() for backend in backends}
    return _finish(_fuse_all(_prepare(module, backends), backends, refusals), backends)


def _prepare(module: tvm_api.IRModule, backends: Sequence[Backend]) -> tvm_api.IRModule:
    for backend in backends:
        changed = run_passes(module, backend, PassPhase.PRE_PARTITIONING)
        module = with_kept_names(module, changed)
    return tvm_api.relax_transform.ConvertToDataflow(min_size=1)(module)


def _fuse_all(
    module: tvm_api.IRModule, backends: Sequence[Backend], refusals: dict[str, _Refusals]
) -> tvm_api.IRModule:
    for backend in backends:
        module = _fuse(module, backend, refusals[backend.target_name])
    if any(backend.merge_compiler_regions for backend in backends):
        module = tvm_api.relax_transform.MergeCompositeFunctions()(module)
    return module


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


def _fuse(module: tvm_api.IRModule, backend: Backend, refusals: _Refusals) -> tvm_api.IRModule:
    check_own_patterns(backend)
    patterns = [
        (
            f"{backend.target_name}.{pattern.name}",
            alternative,
            dict(pattern.annotations),
            _check(backend, pattern, refusals),
        )
        for pattern in backend.patterns
        for alternative in pattern.alternatives
    ]
    if not patterns:
        return module
    fused = tvm_api.relax_transform.FuseOpsByPattern(
        patterns,
        bind_constants=any(pattern.binds_constants for pattern in backend.patterns),
        annotate_codegen=not backend.merge_compiler_regions,
    )(module)
    if refusals.error is not None:
        raise refusals.error
    return fused


def _check(
    backend: Backend, pattern: Pattern, refusals: _Refusals
) -> Callable[[tvm_api.PatternCheckContext], bool]:
    """Return TVM's check function of a pattern: values used outside, then the predicate."""

    def check(context: tvm_api.PatternCheckContext) -> bool:
        if refusals.error is not None:
            return False
        if tvm_api.has_leaking_intermediate_variables(context):
            return refusals.refuse(
                context, f"{pattern.name}: a result inside the pattern is used elsewhere too"
            )
        try:
            answer: Any = True if pattern.predicate is None else pattern.predicate(context)
        except UmakitError as error:
            refusals.error = error
            return False
        except Exception as error:  # a bug in the backend must not look like a refusal
            refusals.error = BackendError(
                f"predicate of pattern {pattern.name!r} raised {raised(error, backend)}",
                where=backend.target_name,
            )
            refusals.error.__cause__ = error
            return False
        if isinstance(answer, (bool, np.bool_)):
            answer = bool(answer) or ""
        if answer is True:
            rounding = getattr(pattern.predicate, "own_rounding", "")
            refusals.accepted.update(dict.fromkeys(_matched_operators(context), rounding))
            return True
        if isinstance(answer, str):
            reason = answer or f"{pattern.name}: refused without a reason"
            return refusals.refuse(context, reason)
        refusals.error = BackendError(
            f"predicate of pattern {pattern.name!r} returned {type(answer).__name__}",
            where=backend.target_name,
            fix="return True, or a sentence that says why not",
        )
        return False

    return check


def _matched_operators(context: tvm_api.PatternCheckContext) -> set[int]:
    calls = [context.matched_expr, *context.matched_bindings.values()]
    return {row for call in calls for row in tvm_api.rows_of(call)}


def _final_placements(
    operators: list[OperatorPlacement], where: dict[int, str], refusals: dict[str, _Refusals]
) -> Iterator[OperatorPlacement]:
    for row, operator in enumerate(operators):
        if row in where:
            rounding = refusals[where[row]].accepted.get(row, "")
            yield replace(operator, where=where[row], rounding=rounding)
        else:
            yield replace(operator, reason=_reason(row, operator.operator, refusals))


def _reason(number: int, operator: str, refusals: dict[str, _Refusals]) -> str:
    """Return why an operator stayed on the CPU, with the backend's name if there are several."""
    answers = []
    for backend, refused in refusals.items():
        if number in refused.reasons:
            reasons = refused.reasons[number]
            telling = [reason for reason in reasons if not isinstance(reason, OtherOperator)]
            answer = "; ".join(telling or reasons)
        elif number in refused.accepted:
            answer = "accepted, but part of another match that overlaps"
        else:
            answer = f"no pattern covers {operator}"
        answers.append((backend, answer))
    if len({answer for _, answer in answers}) == 1:
        return answers[0][1]
    return (
        "; ".join(f"{backend}: {answer}" for backend, answer in answers) or "no backend was given"
    )


def _offloaded_rows(module: tvm_api.IRModule, provenance: Provenance) -> dict[int, str]:
    """Return the target by row, for the operators inside accelerator functions."""
    where: dict[int, str] = {}
    calls = [
        binding.value
        for binding in tvm_api.bindings_of(module["main"])
        if isinstance(binding.value, tvm_api.Call)
    ]
    for call, rows in zip(calls, provenance.rows_of_calls(module), strict=True):
        if isinstance(call.op, tvm_api.GlobalVar):
            codegen = tvm_api.function_attribute(module[call.op], "Codegen")
            if codegen is not None:
                where.update(dict.fromkeys(rows, str(codegen)))
    return where
