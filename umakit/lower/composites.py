# SPDX-License-Identifier: Apache-2.0
"""Lowering of each composite function to one prim func by its backend's operator strategies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from umakit import tir, tvm_api
from umakit.errors import BackendError, LoweringError, UmakitError, short_path
from umakit.lower.kernels import Kernel
from umakit.lower.offload import pattern_of, plain_rules, prepare_offload
from umakit.registration.backend import Backend
from umakit.registration.code import raised, texts_in
from umakit.registration.registered import RELAX_PHASES
from umakit.registration.target import legalization, private_target
from umakit.text.spelling import closest


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


def lower_composites(module: tvm_api.IRModule, backends: Mapping[str, Backend]) -> tvm_api.IRModule:
    """Replace composite functions by prim funcs, and their calls by `call_tir`.

    Composites that differ only in their names share one prim func: two layers of the same shape
    share one kernel. Composites of `umakit.patterns` are merged later, after the TIR passes, which
    need the arrays of each layer.
    """
    composites = {
        variable: function
        for variable, function in tvm_api.relax_functions(module)
        if tvm_api.function_attribute(function, "Composite") is not None
    }
    if not composites:
        return module
    rewriter = _CallRewriter(module, composites, backends)
    main = module.get_global_var("main")
    rewriter.builder_.update_func(main, rewriter.visit_expr(module["main"]))
    result = rewriter.builder_.get()
    for variable in composites:
        del result[variable]
    return result


@tvm_api.mutator
class _CallRewriter(tvm_api.PyExprMutator):
    """Lowers the composites that `main` calls, in the order of the calls."""

    def __init__(
        self,
        module: tvm_api.IRModule,
        composites: Mapping[Any, Any],
        backends: Mapping[str, Backend],
    ) -> None:
        super().__init__(module)
        self._composites = composites
        self._backends = backends
        self._unique: list[tuple[Any, Any]] = []
        self._lowered: dict[Any, Any] = {}

    def visit_call_(self, call: tvm_api.Call) -> tvm_api.Expr:
        call = self.visit_expr_post_order(call)
        function = self._composites.get(call.op)
        if function is None:
            return call
        name = str(tvm_api.function_attribute(function, "Composite"))
        backend = self._backends[name.split(".", 1)[0]]
        pattern = pattern_of(name, backend)
        if pattern is not None:
            prepared = prepare_offload(pattern, function, list(call.args))
            operands = list(prepared.operands)
            body = _lower_composite(name, prepared.function, backend, prepared.reference())
            # A prim func for each layer, so that a TIR pass sees the layer's arrays; see `lower`.
            prim_func = self._added(call.op, prepared.with_parameters(body))
        else:
            operands = list(call.args)
            prim_func = self._shared(
                call.op, lambda: _lower_composite(name, function, backend, plain_rules())
            )
        several = isinstance(call.ty, tvm_api.TupleType)
        types = list(call.ty.fields) if several else call.ty
        lowered = tvm_api.relax.call_tir(prim_func, tvm_api.relax.Tuple(operands), types)
        return tvm_api.make_call(lowered, span=call.span)

    def _shared(self, variable: tvm_api.Var, lower: Callable[[], Any]) -> tvm_api.GlobalVar:
        """Return the global variable of a composite's prim func; equal composites share one."""
        if variable not in self._lowered:
            prim_func = lower()
            for earlier, earlier_variable in self._unique:
                if tvm_api.tvm_ffi.structural_equal(earlier, prim_func):
                    self._lowered[variable] = earlier_variable
                    break
            else:
                self._lowered[variable] = self._added(variable, prim_func)
                self._unique.append((prim_func, self._lowered[variable]))
        return self._lowered[variable]

    def _added(self, variable: tvm_api.Var, prim_func: tvm_api.PrimFunc) -> tvm_api.GlobalVar:
        return self.builder_.add_func(prim_func, f"{variable.name_hint}_kernel")


def _lower_composite(
    name: str, function: tvm_api.Function, backend: Backend, defaults: Mapping[str, Any]
) -> tvm_api.PrimFunc:
    """Lower one composite by the backend's strategies; its TIR passes run later."""
    target = private_target(backend.target_name, backend.target_attributes)
    rules = dict(defaults) | {
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
            f"cannot be lowered: {raised(error, backend)}",
            where=f"composite {name}",
            fix="correct its operator strategy, or leave it to the CPU by the pattern's predicate",
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


def _with_caller(module: tvm_api.IRModule, composite: tvm_api.GlobalVar) -> tvm_api.IRModule:
    """Add a `main` that calls the composite, since `FuseTIR` fuses called functions only."""
    builder = tvm_api.relax.BlockBuilder(module)
    parameters = [
        tvm_api.relax.Var(parameter.name, parameter.ty) for parameter in module[composite].params
    ]
    with builder.function("main", parameters):
        with builder.dataflow():
            result = builder.emit_output(tvm_api.relax.Call(composite, parameters))
        builder.emit_func_output(result)
    return builder.get()


DRIVER_CALLS = "driver_calls"
"""Name of the pass of `patterns.driver_calls`."""


def check_replaced(kernel: Kernel, composite: str, backend: Backend) -> None:
    """Refuse a kernel that calls no C function though its backend has a driver and TIR passes.

    The loops would run on the CPU, and be reported as offloaded.
    """
    passes = [
        str(getattr(getattr(each, "info", each), "name", "a function that is no pass"))
        for phase, registered in backend.passes.items()
        if phase not in RELAX_PHASES
        for each in registered
    ]
    if set(passes) <= {DRIVER_CALLS}:
        return  # the arguments are the patterns with a driver; other patterns run as loops
    has_driver = bool(backend.driver.sources or backend.driver.compiled or backend.kernels)
    if not passes or not has_driver or kernel.called_functions():
        return
    pattern = composite.partition(".")[2]
    places = [place for name in passes if (place := tir.place_of_pass(name))]
    texts = texts_in(backend.folder)
    known = {f"{backend.target_name}.{each.name}" for each in backend.patterns}
    near = closest(composite, {text for text in texts if "." in text} - known)
    fix = f'let the pass replace it: tir.composite_name(function) is "{composite}" there'
    if pattern in backend.kernels:
        fix = f"register the call of {pattern} with _register_kernel"
    if near:
        fix = f'write "{composite}" instead of "{near}"'
    raise BackendError(
        f"no TIR pass replaced the loops of composite {composite} by a driver call; there are "
        f"{', '.join(dict.fromkeys(passes))}",
        where=texts[near] if near else (places or [short_path(backend.folder)])[0],
        fix=f"{fix}, or do not register the pattern {pattern}",
    )
