# SPDX-License-Identifier: Apache-2.0
"""Search for the operator of a network for which a pass fails."""

from __future__ import annotations

from collections.abc import Callable

from umakit import tvm_api
from umakit.tvm_api import Call, IRModule, relax


def failing_call(
    module: IRModule, run: Callable[[IRModule], object]
) -> tuple[Call, tvm_api.Var] | None:
    """Return the first operator call of `main` for which a pass fails in isolation.

    Args:
        module: a Relax module.
        run: pass that failed for the whole module; raises one of `TVM_ERRORS`.

    Returns:
        The call and its variable, or None if the pass succeeds for every single call.
    """
    for binding in tvm_api.bindings_of(module["main"]):
        call = binding.value
        if not isinstance(call, Call) or not tvm_api.operator_name(call) or call.ty is None:
            continue
        try:
            run(_alone(call))
        except tvm_api.TVM_ERRORS:
            return call, binding.var
    return None


def operand_types(call: Call) -> list[str]:
    """Return dtype and shape of each tensor operand, for example `float32[1, 3]`."""
    shown = []
    for argument in call.args:
        for item in argument.fields if isinstance(argument, tvm_api.RelaxTuple) else [argument]:
            dtype = tvm_api.dtype_of(item) if hasattr(item, "ty") else ""
            shape = tvm_api.static_shape(item) if dtype else None
            if shape is not None:
                shown.append(f"{dtype}{list(shape)}")
    return shown or ["its operands"]


def _alone(call: Call) -> IRModule:
    parameters: list[tvm_api.Var] = []
    for variable in tvm_api.collect(call, tvm_api.Var):
        is_tensor = tvm_api.dtype_of(variable) and hasattr(variable.ty, "shape")
        if is_tensor and not any(variable.same_as(parameter) for parameter in parameters):
            parameters.append(variable)
    result = relax.Var("result", call.ty)
    block = relax.BindingBlock([relax.VarBinding(result, call)])
    function = relax.Function(parameters, relax.SeqExpr([block], result), call.ty)
    return IRModule({"main": function.with_attr("global_symbol", "main")})
