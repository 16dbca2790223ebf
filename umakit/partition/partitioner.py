# SPDX-License-Identifier: Apache-2.0
"""Partitioning: operators that an accelerator supports become composite functions.

Matching is done by TVM's `FuseOpsByPattern` with the patterns and predicates of the backends; the
offload report records the placement of every operator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from umakit import tvm_api
from umakit.cpu.description import Cpu
from umakit.errors import BackendError, UmakitError
from umakit.frontend.relax_modules import with_spans
from umakit.operators.registry import name_for_readers
from umakit.partition.choice import Decision, Key, LayerCosts, by_cycles, by_order
from umakit.partition.constant_roles import ConstantRoles, constant_roles
from umakit.partition.layouts.choose import Fitted, fit_layouts
from umakit.partition.macs import multiply_accumulates
from umakit.partition.matching import Refusals, fuse_all, offloaded_rows, reason_of
from umakit.partition.provenance import Provenance
from umakit.partition.report import (
    CPU,
    OffloadReport,
    OperatorPlacement,
    UnusedBackend,
    unused_backend,
)
from umakit.registration.backend import Backend
from umakit.registration.code import raised
from umakit.registration.registered import PassPhase
from umakit.tvm_api import Call, IRModule


@dataclass(frozen=True)
class Partitioned:
    """A partitioned network.

    Attributes:
        module: a Relax module; accelerator functions have the attribute `Codegen`.
        report: the offload report.
        provenance: mapping of calls to rows of the report; None if unknown.
        roles: roles of constants for their operators.
        keys: operators by row of the report, as in `umakit.partition.choice`; None for added
            transposes.
        transposed: elements moved by added transposes.
    """

    module: IRModule
    report: OffloadReport
    provenance: Provenance | None = None
    roles: ConstantRoles = field(default_factory=ConstantRoles)
    keys: tuple[Key | None, ...] = ()
    transposed: int = 0

    @property
    def notices(self) -> list[str]:
        """Decisions made for the user, one sentence each."""
        comparison = self.report.comparison
        unused = [str(each) for each in self.report.unused]
        return [*([] if comparison is None else [str(comparison)]), *unused]


def partition(
    module: IRModule,
    backends: Sequence[Backend],
    *,
    keep_layout: bool = False,
    costs: LayerCosts | None = None,
    cpu: Cpu | None = None,
) -> Partitioned:
    """Partition a Relax module for backends; earlier backends have precedence."""
    module = _prepare(module, backends)
    keys = operator_keys(module)
    decisions = {}
    if costs is not None:
        decided = by_cycles(costs, [backend.target_name for backend in backends])
        decisions = {row: decided[key] for row, key in enumerate(keys) if key in decided}
    assigned = {row: decision.target for row, decision in decisions.items()}
    fitted = Fitted(module) if keep_layout else fit_layouts(module, backends, assigned, cpu)
    if fitted.target:
        found = _partitioned(fitted, backends, keys, decisions)
        if found.report.offloaded_macs >= fitted.macs:
            return found
        fitted = Fitted(module)  # a predicate changed its answer
    return _partitioned(fitted, backends, keys, decisions)


def operator_keys(module: IRModule) -> list[Key]:
    """Return the key of each operator of `main`, in execution order."""
    seen: dict[str, int] = {}
    keys = []
    for binding in tvm_api.bindings_of(module["main"]):
        if isinstance(binding.value, Call) and tvm_api.operator_name(binding.value):
            name = tvm_api.name_of(binding.value) or str(binding.var.name)
            keys.append((name, seen.setdefault(name, 0)))
            seen[name] += 1
    return keys


def _partitioned(
    fitted: Fitted, backends: Sequence[Backend], keys: Sequence[Key], given: Mapping[int, Decision]
) -> Partitioned:
    module, operators = _number_operators(fitted.module)
    origins = fitted.origins or {row: row for row in range(len(operators))}
    decisions = {row: given[origin] for row, origin in origins.items() if origin in given}
    assigned = {row: decision.target for row, decision in decisions.items()}
    provenance = Provenance(module["main"], lambda binding: tvm_api.rows_of(binding.value))
    roles = constant_roles(module["main"])
    refusals = {backend.target_name: Refusals(assigned=assigned) for backend in backends}
    fused = fuse_all(module, backends, refusals)
    for name, elsewhere in fitted.elsewhere.items():
        refusals[name].take_layouts_off({row: elsewhere.get(origins[row], ()) for row in origins})
    where = offloaded_rows(fused, provenance)
    placements = tuple(fitted.noted(_final_placements(operators, where, refusals)))
    decisions = _decided_by_order(module, backends, provenance) | decisions
    report = OffloadReport(
        tuple(_decided(each, decisions.get(n)) for n, each in enumerate(placements)),
        unused=tuple(_unused(placements, where, refusals)),
    )
    return Partitioned(
        _finish(fused, backends),
        report,
        provenance,
        roles,
        tuple(keys[origins[row]] if row in origins else None for row in range(len(operators))),
        sum(
            size // tvm_api.element_bytes(operators[row].dtype)
            for row, size in fitted.transposed.items()
        ),
    )


def _unused(
    placements: Sequence[OperatorPlacement], where: dict[int, str], refusals: dict[str, Refusals]
) -> Iterator[UnusedBackend]:
    for name, refused in refusals.items():
        if name in where.values():
            continue
        reasons = []
        for row, placement in enumerate(placements):
            reason = reason_of(row, placement.operator, {name: refused})
            is_others = row in where and row not in refused.reasons
            reasons.append(f"{where[row]} takes it" if is_others else reason)
        yield unused_backend(name, placements, reasons)


def _decided(placement: OperatorPlacement, decision: Decision | None) -> OperatorPlacement:
    kept = decision is not None and decision.target == CPU == placement.where
    reason = str(decision) if kept else placement.reason
    return replace(placement, decision=decision, reason=reason)


def _decided_by_order(
    module: IRModule, backends: Sequence[Backend], provenance: Provenance
) -> dict[int, Decision]:
    if len(backends) < 2:
        return {}
    alone = {b.target_name: fuse_all(module, [b], {b.target_name: Refusals()}) for b in backends}
    return by_order({name: offloaded_rows(fused, provenance) for name, fused in alone.items()})


def partition_module(
    module: IRModule, backends: Sequence[Backend], parameters: Mapping[str, Any] | None = None
) -> IRModule:
    """Partition a Relax module with bound `parameters` by TVM's passes alone, without a report."""
    if parameters:
        module = tvm_api.relax_transform.BindParams("main", dict(parameters))(module)
    refusals = {backend.target_name: Refusals() for backend in backends}
    return _finish(fuse_all(_prepare(module, backends), backends, refusals), backends)


def _prepare(module: IRModule, backends: Sequence[Backend]) -> IRModule:
    for backend in backends:
        changed = run_passes(module, backend, PassPhase.PRE_PARTITIONING)
        module = with_kept_names(module, changed)
    return tvm_api.relax_transform.ConvertToDataflow(min_size=1)(module)


def _finish(module: IRModule, backends: Sequence[Backend]) -> IRModule:
    for backend in backends:
        module = run_passes(module, backend, PassPhase.POST_PARTITIONING_0)
    return module


def run_passes(module: IRModule, backend: Backend, phase: PassPhase) -> IRModule:
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


def _number_operators(module: IRModule) -> tuple[IRModule, list[OperatorPlacement]]:
    """List the operators of `main`, and attach its row to each call."""
    operators: list[OperatorPlacement] = []

    @tvm_api.mutator
    class Numberer(tvm_api.PyExprMutator):
        def visit_var_binding_(self, binding: tvm_api.VarBinding) -> None:
            call = binding.value
            name = tvm_api.operator_name(call)
            if isinstance(call, Call) and name:
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
    operator: str, name: str, call: Call, variable: tvm_api.Var, module: IRModule
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


# Names of operators that a backend's Relax pass rewrote, such as with other constants.
#
# A call that a pass builds has no source span, and often another variable. It keeps the name of the
# operator that it replaces, so that layers, constants and `uma diff` have the names of the model.


@dataclass(frozen=True)
class _Operator:
    """A call of `main`: variable, name, kind and type, and span.

    `span` is None without a name of a node.
    """

    variable: str
    name: str
    kind: tuple[str, str]
    span: tvm_api.Span | None


def with_kept_names(before: IRModule, after: IRModule) -> IRModule:
    """Return a pass's result with the names of the pass's input.

    A call without a name gets the name of the old call with the same variable. Other calls of one
    operator and type get the remaining names in order, if the numbers agree.
    """
    functions = tvm_api.relax_functions(after)
    if before.same_as(after) or "main" not in {variable.name_hint for variable, _ in functions}:
        return after
    old, new = list(_operators(before).values()), _operators(after)
    names = {item.name for item in new.values()}
    left = [item for item in old if item.name not in names]
    found: dict[Any, _Operator] = {}
    for variable, item in new.items():
        same = [each for each in left if each.variable == item.variable]
        if item.span is None and len(same) == 1:
            found[variable] = same[0]
            left.remove(same[0])
    known = {(item.name, item.kind) for item in old}
    lost = {
        variable: item.kind
        for variable, item in new.items()
        if item.span is None and variable not in found and (item.name, item.kind) not in known
    }
    counts = Counter(item.kind for item in left), Counter(lost.values())
    for variable, kind in lost.items():
        if counts[0][kind] == counts[1][kind]:
            found[variable] = next(item for item in left if item.kind == kind)
            left.remove(found[variable])

    def span_of(binding: tvm_api.VarBinding) -> tvm_api.Span | None:
        kept = found.get(binding.var)
        return None if kept is None else kept.span or tvm_api.name_span(kept.name)

    return with_spans(after, span_of) if found else after


def _operators(module: IRModule) -> dict[Any, _Operator]:
    found: dict[Any, _Operator] = {}
    for binding in tvm_api.bindings_of(module["main"]):
        call, variable = binding.value, str(binding.var.name)
        if isinstance(call, Call):
            name, kind = tvm_api.name_of(call), (tvm_api.operator_name(call), str(binding.var.ty))
            span = call.span if name else None
            found[binding.var] = _Operator(variable, name or variable, kind, span)
    return found


NAMES = {
    "pool_size": "window",
    "strides": "strides",
    "padding": "padding",
    "output_padding": "output_padding",
    "dilation": "dilation",
    "groups": "groups",
    "data_layout": "layout",
    "layout": "layout",
    "kernel_layout": "weights_layout",
}
"""Names of attributes for readers, as in integer operators, by Relax name."""


def window_attributes(call: Call) -> dict[str, Any]:
    """Return strides, padding, dilation, groups and layouts of a convolution or pool by name."""
    attributes = call.attrs
    if not tvm_api.operator_name(call).startswith("nn.") or not hasattr(attributes, "strides"):
        return {}
    found = {
        name: getattr(attributes, relax) for relax, name in NAMES.items()
        if hasattr(attributes, relax)
    }  # fmt: skip
    return {
        name: str(value) if name.endswith("layout")
        else int(value) if isinstance(value, int) else tuple(map(int, value))
        for name, value in found.items()
    }  # fmt: skip
