# SPDX-License-Identifier: Apache-2.0
"""Dissolve accelerator regions: `main` calls every composite function directly.

Regions (`MergeCompositeFunctions`) matter to a runtime that switches devices. An ahead-of-time
program is one list of calls, so they are opened up again.
"""

from __future__ import annotations

from typing import Any

from umakit import tvm_api
from umakit.errors import LoweringError


def dissolve_regions(module: Any) -> Any:
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
class _RegionInliner(tvm_api.PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: Any, regions: dict[Any, Any]) -> None:
        super().__init__(module)
        self._regions = regions

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        region = self._regions.get(call.op)
        return call if region is None else self._inline(region, list(call.args))

    def _inline(self, region: Any, arguments: list[Any]) -> Any:
        region = tvm_api.relax.utils.copy_with_new_vars(region)
        known = dict(zip(region.params, arguments, strict=True))
        for binding in tvm_api.bindings_of(region):
            value = binding.value
            if isinstance(value, tvm_api.Function):
                known[binding.var] = self._add_composite(value)
            elif isinstance(value, tvm_api.Call) and value.op in known:
                inner = [_substitute(argument, known) for argument in value.args]
                known[binding.var] = self.builder_.emit(tvm_api.relax.Call(known[value.op], inner))
            elif isinstance(value, tvm_api.Call) and isinstance(value.op, tvm_api.GlobalVar):
                inner = [_substitute(argument, known) for argument in value.args]
                known[binding.var] = self.builder_.emit(tvm_api.relax.Call(value.op, inner))
            else:
                known[binding.var] = self.builder_.emit(_substitute(value, known))
        return _substitute(region.body.body, known)

    def _add_composite(self, function: Any) -> Any:
        composite = str(tvm_api.function_attribute(function, "Composite") or "")
        if not composite:
            raise LoweringError("an accelerator region holds a function that is no composite")
        name = "_".join(composite.replace(".", "_").split())
        return self.builder_.add_func(function.with_attr("Primitive", 1), name)


def _substitute(expression: Any, known: dict[Any, Any]) -> Any:
    if isinstance(expression, tvm_api.Var):
        return known.get(expression, expression)
    if isinstance(expression, tvm_api.RelaxTuple):
        return tvm_api.relax.Tuple([_substitute(field, known) for field in expression.fields])
    if isinstance(expression, tvm_api.TupleGetItem):
        inner = _substitute(expression.tuple_value, known)
        return tvm_api.relax.TupleGetItem(inner, expression.index)
    return expression
