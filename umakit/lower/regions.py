# SPDX-License-Identifier: Apache-2.0
"""Inlining of accelerator regions, so that `main` calls every composite function directly.

Regions (`MergeCompositeFunctions`) are for runtimes that switch devices. An ahead-of-time program
is one list of calls, so regions are inlined.
"""

from __future__ import annotations

from typing import Any

from umakit import tvm_api
from umakit.errors import LoweringError


def dissolve_regions(module: tvm_api.IRModule) -> tvm_api.IRModule:
    """Inline functions with a `Codegen` attribute; their composites become global functions.

    Each composite function keeps its `Composite` attribute, `<target>.<pattern>`.
    """
    regions = {
        variable: function
        for variable, function in tvm_api.relax_functions(module)
        if tvm_api.function_attribute(function, "Codegen")
    }
    if not regions:
        return module
    inliner = _RegionInliner(module, regions)
    main = module.get_global_var("main")
    inliner.builder_.update_func(main, inliner.visit_expr(module["main"]))
    dissolved = inliner.builder_.get()
    for variable in regions:
        del dissolved[variable]
    return tvm_api.relax_transform.CanonicalizeBindings()(dissolved)


@tvm_api.mutator
class _RegionInliner(tvm_api.PyExprMutator):
    def __init__(self, module: tvm_api.IRModule, regions: dict[Any, Any]) -> None:
        super().__init__(module)
        self._regions = regions

    def visit_call_(self, call: tvm_api.Call) -> tvm_api.Expr:
        call = self.visit_expr_post_order(call)
        region = self._regions.get(call.op)
        return call if region is None else self._inline(region, list(call.args))

    def _inline(self, region: tvm_api.Function, arguments: list[Any]) -> tvm_api.Expr:
        region = tvm_api.relax.utils.copy_with_new_vars(region)
        values = dict(zip(region.params, arguments, strict=True))
        composites: dict[Any, tuple[Any, list[Any]]] = {}
        for binding in tvm_api.bindings_of(region):
            value = binding.value
            if isinstance(value, tvm_api.Function):
                composites[binding.var] = self._add_composite(value)
            elif isinstance(value, tvm_api.Call) and value.op in composites:
                composite, constants = composites[value.op]
                inner = [_substitute(argument, values) for argument in value.args]
                call = tvm_api.relax.Call(composite, [*inner, *constants])
                values[binding.var] = self.builder_.emit(call)
            else:
                values[binding.var] = self.builder_.emit(_substitute(value, values))
        return _substitute(region.body.body, values)

    def _add_composite(self, function: tvm_api.Function) -> tuple[Any, list[Any]]:
        """Add a global function for a composite; return the function and its constants."""
        composite = str(tvm_api.function_attribute(function, "Composite") or "")
        if not composite:
            raise LoweringError("an accelerator region holds a function that is not a composite")
        lifted, constants = _lift_constants(function)
        variable = self.builder_.add_func(
            lifted.with_attr("Primitive", 1), composite.replace(".", "_")
        )
        return variable, constants


def _lift_constants(function: tvm_api.Function) -> tuple[Any, list[Any]]:
    """Turn constants inside a function into parameters, since prim funcs cannot contain them."""
    constants: list[Any] = []
    parameters: list[Any] = []

    def lift(constant: tvm_api.PrimExpr) -> tvm_api.GlobalVar:
        constants.append(constant)
        name = f"constant_{len(constants)}"
        parameters.append(tvm_api.relax.Var(name, constant.ty))
        return parameters[-1]

    body = tvm_api.rewrite(function.body, [(tvm_api.GenericConst, lift)])
    if not constants:
        return function, []
    lifted = tvm_api.relax.Function(
        [*function.params, *parameters], body, function.ret_ty, function.is_pure, function.attrs
    )
    return lifted, constants


def _substitute(expression: tvm_api.PrimExpr, values: dict[Any, Any]) -> tvm_api.Expr:
    if isinstance(expression, tvm_api.Var):
        return values.get(expression, expression)
    if isinstance(expression, tvm_api.RelaxTuple):
        return tvm_api.relax.Tuple([_substitute(field, values) for field in expression.fields])
    if isinstance(expression, tvm_api.TupleGetItem):
        inner = _substitute(expression.tuple_value, values)
        return tvm_api.relax.TupleGetItem(inner, expression.index)
    return expression
