# SPDX-License-Identifier: Apache-2.0
"""Matching: operators in patterns of backends become composite functions.

TVM's `FuseOpsByPattern` matches the patterns and predicates of the backends. The reasons of
predicates for refusals are kept for the offload report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from umakit import tvm_api
from umakit.errors import BackendError, UmakitError, short_path
from umakit.operators.offload.constraints import OtherLayout, OtherOperator
from umakit.operators.offload.generated import operand_names
from umakit.operators.parameters import PREFIX
from umakit.partition.provenance import Provenance
from umakit.registration.backend import Backend
from umakit.registration.code import answer_of
from umakit.registration.registered import Pattern
from umakit.tvm_api import IRModule


@dataclass
class Refusals:
    """Reasons of refused operators by row of the report, and an error of a predicate.

    `on_match` is called with each accepted match. `accepted` has the accelerator's own rounding by
    accepted row, or an empty text. `assigned` has the only accelerator for a row; any accelerator
    may take other rows.
    """

    reasons: dict[int, list[str]] = field(default_factory=dict)
    accepted: dict[int, str] = field(default_factory=dict)
    error: UmakitError | None = None
    on_match: Callable[[Backend, Pattern, tvm_api.PatternCheckContext], None] | None = None
    assigned: Mapping[int, str] = field(default_factory=dict)

    def refuse(self, context: tvm_api.PatternCheckContext, reason: str) -> bool:
        for number in _matched_operators(context):
            reasons = self.reasons.setdefault(number, [])
            if reason not in reasons:
                reasons.append(reason)
        return False

    def take_layouts_off(self, elsewhere: Mapping[int, Sequence[str]]) -> None:
        """Replace a layout as a reason by the accelerator's reasons in its own layout, by row."""
        for row, found in elsewhere.items():
            own = self.reasons.get(row, [])
            others = [reason for reason in own if not isinstance(reason, OtherLayout)]
            if found and len(others) < len(own):
                self.reasons[row] = [*others, *found]

    def given_to_other(self, target: str, context: tvm_api.PatternCheckContext) -> str:
        """Return the other accelerator that an operator of a match is assigned to, or ""."""
        if not self.assigned:
            return ""
        found = (self.assigned.get(row, target) for row in sorted(_matched_operators(context)))
        return next((other for other in found if other != target), "")


def fuse_all(
    module: IRModule, backends: Sequence[Backend], refusals: dict[str, Refusals]
) -> IRModule:
    for backend in backends:
        module = _fuse(module, backend, refusals[backend.target_name])
    if any(backend.merge_compiler_regions for backend in backends):
        module = tvm_api.relax_transform.MergeCompositeFunctions()(module)
    return module


def _fuse(module: IRModule, backend: Backend, refusals: Refusals) -> IRModule:
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
    backend: Backend, pattern: Pattern, refusals: Refusals
) -> Callable[[tvm_api.PatternCheckContext], bool]:

    def check(context: tvm_api.PatternCheckContext) -> bool:
        if refusals.error is not None:
            return False
        if tvm_api.has_leaking_intermediate_variables(context):
            return refusals.refuse(
                context, f"{pattern.name}: a result inside the pattern is used elsewhere too"
            )
        predicate = pattern.predicate or (lambda context: True)
        try:
            answer = answer_of(backend, pattern, lambda: predicate(context))
        except UmakitError as error:  # a bug in the backend must not look like a refusal
            refusals.error = error
            return False
        if answer is True and (other := refusals.given_to_other(backend.target_name, context)):
            return refusals.refuse(context, f"{pattern.name}: was given to {other} for its cycles")
        if answer is True:
            rounding = getattr(pattern.predicate, "own_rounding", "")
            refusals.accepted.update(dict.fromkeys(_matched_operators(context), rounding))
            if refusals.on_match is not None:
                refusals.on_match(backend, pattern, context)
            return True
        return refusals.refuse(context, answer or _no_reason(pattern))

    return check


def _no_reason(pattern: Pattern) -> str:
    code = getattr(pattern.predicate, "__code__", None)
    place = f" ({short_path(code.co_filename)}:{code.co_firstlineno})" if code is not None else ""
    what = f"{pattern.name}: refused without a reason"
    return f"{what}: let its predicate{place} return a sentence instead of False"


def _matched_operators(context: tvm_api.PatternCheckContext) -> set[int]:
    calls = [context.matched_expr, *context.matched_bindings.values()]
    return {row for call in calls for row in tvm_api.rows_of(call)}


def offloaded_rows(module: IRModule, provenance: Provenance) -> dict[int, str]:
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


def reason_of(number: int, operator: str, refusals: dict[str, Refusals]) -> str:
    """Return why an operator stayed on the CPU, for each of several backends."""
    answers = []
    for backend, refused in refusals.items():
        if number in refused.reasons:
            reasons = refused.reasons[number]
            telling = [reason for reason in reasons if not isinstance(reason, OtherOperator)]
            answer = "; ".join(dict.fromkeys(telling or reasons))
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


PARTS = ("args", "left", "right", "pattern")
"""Attributes of TVM's patterns that are patterns."""


def check_own_patterns(backend: Backend) -> None:
    """Refuse patterns that match no call of a quantized operator."""
    for pattern in backend.patterns:
        for alternative in pattern.alternatives:
            for call in _calls(alternative):
                _check_call(call, f"pattern {pattern.name!r} of {backend.target_name}")


def _check_call(call: Any, where: str) -> None:
    name = str(call.op.expr.name)
    names = operand_names(name.removeprefix(f"relax.{PREFIX}"))
    if names is None or call.args is None:
        return
    found = list(call.args)
    listed = ", ".join(names)
    if len(found) != len(names):
        raise BackendError(
            f"{name} has {len(names)} operand{'s' if len(names) > 1 else ''}, {listed}: the pattern"
            f" has {len(found)}, so that it matches none",
            where=where,
            fix="give a wildcard() for each",
        )
    constants = found[1:] if "weights" in names else []
    if any(one.same_as(other) for i, one in enumerate(constants) for other in found[: i + 1]):
        raise BackendError(
            f"one wildcard stands for several of the operands {listed} of {name}, so that it "
            "matches none",
            where=where,
            fix="give a wildcard() for each",
        )


def _calls(pattern: Any) -> Iterator[Any]:
    operator = getattr(getattr(pattern, "op", None), "expr", None)
    if str(getattr(operator, "name", "")).startswith(f"relax.{PREFIX}"):
        yield pattern
    for attribute in PARTS:
        part = getattr(pattern, attribute, None)
        for each in part if attribute == "args" and part is not None else [part]:
            if each is not None:
                yield from _calls(each)
