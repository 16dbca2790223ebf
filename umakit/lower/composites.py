# SPDX-License-Identifier: Apache-2.0
"""Composite functions become prim funcs, one each, by their backend's operator strategies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from umakit import tvm_api
from umakit.backend import UMABackend
from umakit.errors import LoweringError, UmakitError
from umakit.frontend.model import last_line
from umakit.strategy import legalization
from umakit.target import private_target


def lower_composites(module: Any, backends: Mapping[str, UMABackend]) -> Any:
    """Replace every composite function by a prim func and its calls by `call_tir`.

    Composites that are equal but for their names share one prim func, so that two layers of the
    same shape share one kernel.
    """
    lowered: dict[Any, Any] = {}
    builder = _CallRewriter(module, lowered)
    unique: list[tuple[Any, Any]] = []
    for variable, function in sorted(
        tvm_api.relax_functions(module), key=lambda item: str(item[0].name_hint)
    ):
        composite = tvm_api.function_attribute(function, "Composite")
        if composite is None:
            continue
        target = str(composite).split(".", 1)[0]
        prim_func = _lower_composite(str(composite), function, backends[target])
        for known, known_variable in unique:
            if tvm_api.tvm_ffi.structural_equal(known, prim_func):
                lowered[variable] = known_variable
                break
        else:
            added = builder.builder_.add_func(prim_func, f"{variable.name_hint}_kernel")
            unique.append((prim_func, added))
            lowered[variable] = added
    if not lowered:
        return module
    main = module.get_global_var("main")
    builder.builder_.update_func(main, builder.visit_expr(module["main"]))
    result = builder.builder_.get()
    for variable in lowered:
        del result[variable]
    return result


@tvm_api.mutator
class _CallRewriter(tvm_api.PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: Any, lowered: dict[Any, Any]) -> None:
        super().__init__(module)
        self._lowered = lowered

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        prim_func = self._lowered.get(call.op)
        if prim_func is None:
            return call
        tensors = tvm_api.relax.Tuple(list(call.args))
        lowered = tvm_api.relax.call_tir(prim_func, tensors, call.ty)
        return tvm_api.make_call(lowered, span=call.span)


def _lower_composite(name: str, function: Any, backend: UMABackend) -> Any:
    """The prim func of one composite, after the backend's strategies, before its TIR passes."""
    target = private_target(backend.target_name, backend.target_attributes)
    rules = {
        operator: legalization(operator, registered, target)
        for operator, registered in backend.strategies.items()
    }
    transform = tvm_api.relax_transform
    builder = tvm_api.relax.BlockBuilder()
    # Under a global symbol of its own the composite is legalized like any entry function.
    plain = function.without_attr("Primitive").with_attr("global_symbol", "composite")
    composite = builder.add_func(plain, "composite")
    try:
        with tvm_api.c_target():
            legal = transform.LegalizeOps(rules)(builder.get())
            body = legal[composite].without_attr("global_symbol").with_attr("Primitive", 1)
            legal.update_func(composite, body)
            fused = transform.FuseTIR()(_with_caller(legal, composite))
    except UmakitError:
        raise
    except Exception as error:  # whatever a strategy or TVM raises is about this composite
        raise LoweringError(
            f"cannot be lowered: {last_line(error)}", where=f"composite {name}"
        ) from error
    prim_funcs = [f for _, f in tvm_api.prim_functions(fused)]
    if len(prim_funcs) != 1:
        raise LoweringError(
            f"lowers to {len(prim_funcs)} functions instead of one", where=f"composite {name}"
        )
    attributes = {
        "umakit.target": backend.target_name,
        "umakit.composite": name,
        "op_pattern": tvm_api.OPAQUE_OPERATOR_PATTERN,
    }
    return prim_funcs[0].with_attrs(attributes)


def _with_caller(module: Any, composite: Any) -> Any:
    """Add a `main` that calls the composite: `FuseTIR` works on what is called."""
    builder = tvm_api.relax.BlockBuilder(module)
    parameters = [
        tvm_api.relax.Var(parameter.name, parameter.ty) for parameter in module[composite].params
    ]
    with builder.function("main", parameters):
        with builder.dataflow():
            result = builder.emit_output(tvm_api.relax.Call(composite, parameters))
        builder.emit_func_output(result)
    return builder.get()
