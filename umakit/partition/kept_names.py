# SPDX-License-Identifier: Apache-2.0
"""Names of operators that a backend's Relax pass wrote anew, such as with other constants.

A call that a pass builds has no source span, and often another variable. It keeps the name of the
operator that it replaces, so that layers, constants and `uma diff` have the names of the model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from umakit import tvm_api


@dataclass(frozen=True)
class _Operator:
    """A call of `main`: name of its variable, its name, what it computes and yields, and its span.

    `span` is None if it has no name of a node.
    """

    variable: str
    name: str
    kind: tuple[str, str]
    span: tvm_api.Span | None


def with_kept_names(before: tvm_api.IRModule, after: tvm_api.IRModule) -> tvm_api.IRModule:
    """Return the module that a pass made, with the names of the module that it was given.

    A call without a name gets that of the call that had its variable; else those of one operator
    and type get the names that are left of it in their order, if there are as many.
    """
    if before.same_as(after) or "main" not in {v.name_hint for v, _ in _functions(after)}:
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
    return _renamed(after, found) if found else after


def _functions(module: tvm_api.IRModule) -> list[tuple[Any, Any]]:
    return list(tvm_api.relax_functions(module))


def _operators(module: tvm_api.IRModule) -> dict[Any, _Operator]:
    """Return the calls of `main` by the variable that they are bound to."""
    found: dict[Any, _Operator] = {}
    for binding in tvm_api.bindings_of(module["main"]):
        call = binding.value
        if isinstance(call, tvm_api.Call):
            span = call.span if tvm_api.name_of(call) else None
            name = tvm_api.name_of(call) or str(binding.var.name)
            kind = (tvm_api.operator_name(call), str(binding.var.ty))
            found[binding.var] = _Operator(str(binding.var.name), name, kind, span)
    return found


def _renamed(module: tvm_api.IRModule, found: Mapping[Any, _Operator]) -> tvm_api.IRModule:
    @tvm_api.mutator
    class Renamer(tvm_api.PyExprMutator):
        def visit_var_binding_(self, binding: tvm_api.VarBinding) -> None:
            kept = found.get(binding.var)
            value = self.visit_expr(binding.value)
            if kept is not None and isinstance(value, tvm_api.Call):
                value = tvm_api.make_call(value, span=kept.span or tvm_api.name_span(kept.name))
            emitted = tvm_api.emit_like(self.builder_, binding.var, value)
            self.set_var_remap(binding.var, emitted)

    renamer = Renamer(module)
    main = module.get_global_var("main")
    renamer.builder_.update_func(main, renamer.visit_expr(module["main"]))
    return renamer.builder_.get()
