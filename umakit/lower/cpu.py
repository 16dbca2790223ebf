# SPDX-License-Identifier: Apache-2.0
"""Operators that stay on the CPU: legalized, fused and scheduled."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from umakit import tvm_api
from umakit.errors import LoweringError
from umakit.frontend.model import last_line
from umakit.lower.schedule import schedule_for_cpu

Rows = tuple[int, ...]


def lower_cpu_operators(module: Any) -> Any:
    """Lower what is left in `main` to fused, scheduled prim funcs.

    Args:
        module: `main` calls Relax operators and, by `call_tir`, accelerator prim funcs.

    Returns:
        The module; each `call_tir` of `main` says which rows of the offload report it stands for.

    Raises:
        LoweringError: an operator has no legalization.
    """
    transform = tvm_api.relax_transform
    rows = {str(b.var.name): tvm_api.rows_of(b.value) for b in _bindings(module)}
    try:
        with tvm_api.c_target():
            module = transform.LegalizeOps()(module)
            _refuse_unlowered(module)
            # Legalization keeps variable names but drops spans; fusion keeps spans inside groups.
            module = _set_rows(module, lambda _, binding: rows.get(str(binding.var.name), ()), True)
            module = tvm_api.Sequential(
                [
                    transform.DeadCodeElimination(),
                    transform.AnnotateTIROpPattern(),
                    transform.FuseOps(),
                ]
            )(module)
            fused = _rows_of_fused_calls(module)
            module = transform.FuseTIR()(module)
            module = _set_rows(module, lambda number, _: fused[number])
            module = tvm_api.Sequential(
                [
                    transform.RewriteDataflowReshape(),
                    transform.CanonicalizeBindings(),
                    transform.DeadCodeElimination(),
                ]
            )(module)
    except tvm_api.TVM_ERRORS as error:
        raise LoweringError(f"TVM cannot lower the network: {last_line(error)}") from error
    return _schedule(module)


def _bindings(module: Any) -> list[Any]:
    return list(tvm_api.bindings_of(module["main"]))


def _refuse_unlowered(module: Any) -> None:
    for binding in _bindings(module):
        name = tvm_api.operator_name(binding.value)
        if name and name not in ("call_tir", "reshape", "memory.view"):
            raise LoweringError(
                f"operator {name} has no lowering to C",
                where=str(binding.var.name),
                fix="replace it in the model",
            )


def _set_rows(
    module: Any, rows_for: Callable[[int, Any], Sequence[int]], distinct: bool = False
) -> Any:
    """Note on the n-th call of `main` the rows that `rows_for(n, binding)` gives.

    With `distinct`, calls of prim funcs are also made unlike each other.
    """
    numbers = itertools.count()

    @tvm_api.mutator
    class Noter(tvm_api.PyExprMutator):  # type: ignore[misc]
        def visit_var_binding_(self, binding: Any) -> None:
            if isinstance(binding.value, tvm_api.Call):
                number = next(numbers)
                span = tvm_api.rows_span(rows_for(number, binding))
                attributes = tvm_api.distinct_attributes(number) if distinct else None
                call = tvm_api.make_call(binding.value, span=span, attrs=attributes)
                binding = tvm_api.relax.VarBinding(binding.var, call)
            super().visit_var_binding_(binding)

    noter = Noter(module)
    main = module.get_global_var("main")
    noter.builder_.update_func(main, noter.visit_expr(module["main"]))
    return noter.builder_.get()


def _rows_of_fused_calls(module: Any) -> list[Rows]:
    """For each call of `main` in order: the rows of the group that it calls, or its own."""
    found = []
    for binding in _bindings(module):
        if not isinstance(binding.value, tvm_api.Call):
            continue
        called = binding.value.op
        is_group = isinstance(called, tvm_api.GlobalVar)
        inside = tvm_api.rows_inside(module[called]) if is_group else ()
        found.append(inside or tvm_api.rows_of(binding.value))
    return found


def _schedule(module: Any) -> Any:
    """Schedule the prim funcs that belong to no accelerator."""
    scheduled = tvm_api.IRModule(dict(module.functions.items()), module.attrs)
    for variable, function in tvm_api.prim_functions(module):
        if tvm_api.function_attribute(function, "umakit.target") is None:
            scheduled.update_func(variable, schedule_for_cpu(function))
    return scheduled
