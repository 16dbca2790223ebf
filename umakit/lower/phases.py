# SPDX-License-Identifier: Apache-2.0
"""TIR lowering of one prim func in phases, with a backend's passes between the phases.

The order is the order of TVM's S-TIR pipeline (`tvm/s_tir/pipeline.py`), without passes for GPUs,
vector code and TVM's packed calling convention.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from umakit import tir, tvm_api
from umakit.cpu.vector_leaves import vectorize_leaves
from umakit.cpu.vector_loops import cut_loops, shorten_loops
from umakit.cpu.weight_tiles import FACTS
from umakit.errors import BackendError, LoweringError, UmakitError
from umakit.registration.backend import Backend
from umakit.registration.code import raised, with_place
from umakit.registration.registered import PassPhase, Pattern
from umakit.tir import composite_name, prim_func_pass, with_body

NO_FAULT_OF_THE_NETWORK = "this is a fault of umakit or of TVM: report it with the network"


def without_blocks() -> list[Any]:
    """Return TVM's passes that lower blocks to loops, before tensors are flattened."""
    s_tir = tvm_api.s_tir_transform
    return [
        s_tir.CanonicalizeLoop(),
        s_tir.LowerInitBlock(),
        s_tir.PlanAndUpdateBufferAllocationLocation(),
        s_tir.ConvertBlocksToOpaque(),
        s_tir.CompactBufferAllocation(),
        s_tir.LowerMatchBuffer(),
        *without_float_rules(s_tir.StmtSimplify()),
        s_tir.LowerOpaqueBlock(),
    ]


def _phases(checks: Sequence[Any], has_vectors: bool = False) -> list[tuple[PassPhase, list[Any]]]:
    """Return TVM's passes and index checks, each group with the following phase of backend passes.

    Loops that a schedule marks as vectors become vectors with `has_vectors`, else plain loops.
    """
    s_tir, tirx = tvm_api.s_tir_transform, tvm_api.tirx_transform
    flat = [tirx.FlattenBuffer(), tirx.NarrowDataType(32)]
    if has_vectors:
        cut = prim_func_pass("umakit.CutLoops", cut_loops)
        shorten = prim_func_pass("umakit.ShortenLoops", shorten_loops)
        vectors = prim_func_pass("umakit.VectorizeLeaves", vectorize_leaves)
        simplify = without_float_rules(tirx.StmtSimplify())
        flat = [cut, tirx.ConvertSSA(), *simplify, shorten, *flat, vectors, tirx.ConvertSSA()]
    return [
        (PassPhase.TIR_PHASE_0, []),
        (PassPhase.TIR_PHASE_1, [*without_blocks(), *checks, *flat]),
        (PassPhase.TIR_PHASE_2, [tirx.VectorizeLoop(has_vectors)]),
        (
            PassPhase.TIR_PHASE_3,
            [
                *without_float_rules(s_tir.RenormalizeSplitPattern()),
                *without_float_rules(tirx.StmtSimplify()),
                tirx.RemoveNoOp(),
                s_tir.RewriteUnsafeSelect(),
                bind_named_values(),
                _common_subexpressions(),
                plain_indices_of_scalars(),
                tirx.LowerIntrin(),
            ],
        ),
    ]


def _common_subexpressions() -> Any:
    """Return TVM's pass that binds common subexpressions, for functions with stores.

    Around driver calls the bindings would hide the arguments; C compilers find common
    subexpressions as well.
    """
    eliminated = tvm_api.tirx_transform.CommonSubexprElim()

    def apply(function: tvm_api.PrimFunc) -> tvm_api.PrimFunc:
        if not tvm_api.collect(function.body, tvm_api.tirx.BufferStore):
            return function
        return eliminated(tvm_api.IRModule({"main": function}))["main"]

    return prim_func_pass("umakit.CommonSubexpressions", apply)


def _unrolling(function: tvm_api.PrimFunc) -> list[Any]:
    """Return TVM's pass that unrolls loops, if a loop asks for unrolling.

    The pass is not always run, because it also unrolls loops without stores, such as loops of
    driver calls.
    """
    loops = tvm_api.collect(function.body, tvm_api.tirx.For)
    asked = any(loop.kind == tvm_api.tirx.ForKind.UNROLLED for loop in loops)
    return [tvm_api.tirx_transform.UnrollLoop()] if asked else []


def _pattern_of(function: tvm_api.PrimFunc, backend: Backend | None) -> Pattern | None:
    """Return the pattern of a prim func's composite; None if there is none."""
    name = (composite_name(function) or "").partition(".")[2]
    patterns = backend.patterns if backend else []
    return next((each for each in patterns if each.name == name), None)


def lower_prim_func(
    name: str, function: tvm_api.PrimFunc, backend: Backend | None, checks: Sequence[Any] = ()
) -> tvm_api.PrimFunc:
    """Lower a prim func from loops over blocks to flat loops over flat buffers.

    Args:
        backend: backend with the TIR passes; None for CPU code.
    """
    module = tvm_api.IRModule({name: function.with_attr("global_symbol", name)})
    module = tvm_api.tirx_transform.BindTarget(tvm_api.c_target())(module)
    where = f"kernel {name}"
    facts = tvm_api.function_attribute(function, FACTS)
    with tvm_api.c_target():
        for phase, passes in _phases(checks, facts is not None):
            try:
                if phase is PassPhase.TIR_PHASE_2:
                    passes = [*passes, *_unrolling(module[name])]
                module = tvm_api.Sequential(passes)(module)
                if backend is None and phase is PassPhase.TIR_PHASE_2:
                    module = drop_unused_bindings()(module)
                for registered in backend.passes[phase] if backend else []:
                    module = registered(module)
            except BackendError as error:
                raise with_place(error, _pattern_of(function, backend)) from error
            except UmakitError:
                raise
            except Exception as error:  # a backend's pass may raise anything
                owner = f"{backend.target_name}, " if backend else ""
                raise LoweringError(
                    f"a pass of {phase.name} failed: {raised(error, backend)}",
                    where=f"{owner}{where}",
                    fix="correct the pass" if backend else NO_FAULT_OF_THE_NETWORK,
                ) from error
    lowered = module[name]  # passes drop attributes unknown to TVM
    return lowered if facts is None else lowered.with_attr(FACTS, facts)


tirx = tvm_api.tirx


def drop_unused_bindings() -> tvm_api.Pass:
    return prim_func_pass("umakit.DropUnusedBindings", _without_unused)


def plain_indices_of_scalars() -> tvm_api.Pass:
    """Return a TIR pass that gives accesses to arrays of one element the index 0.

    Such arrays are variables in C, and the bound index would be unused.
    """
    return prim_func_pass("umakit.PlainIndicesOfScalars", _with_plain_indices)


def _with_plain_indices(function: tvm_api.PrimFunc) -> tvm_api.PrimFunc:
    allocations = tvm_api.collect(function.body, tirx.AllocBuffer)
    scalars = {each.buffer for each in allocations if tvm_api.buffer_shape(each.buffer) == (1,)}
    found: list[Any] = []

    def loaded(load: Any) -> Any:
        if load.source in scalars and tvm_api.integer_value(load.indices[0]) is None:
            found.append(load)
            return load.source[0]
        return load

    def stored(store: Any) -> Any:
        if store.buffer in scalars and tvm_api.integer_value(store.indices[0]) is None:
            found.append(store)
            return tirx.BufferStore(store.buffer, store.value, [tirx.IntImm("int32", 0)])
        return store

    kinds = [(tvm_api.TensorLoad, loaded), (tirx.BufferStore, stored)]
    body = tvm_api.rewrite(function.body, kinds)
    return _without_unused(with_body(function, body)) if found else function


def _without_unused(function: tvm_api.PrimFunc) -> tvm_api.PrimFunc:
    body = function.body
    while True:
        uses = Counter(tvm_api.collect(body, tvm_api.Var))
        bindings = tvm_api.collect(body, tirx.Bind)
        definitions = Counter(binding.var for binding in bindings)
        unused = {variable for variable in definitions if uses[variable] <= definitions[variable]}
        if not unused:
            return with_body(function, body)
        body = tvm_api.rewrite(body, [(tirx.SeqStmt, partial(_kept, unused))])


def _kept(unused: set[Any], sequence: tvm_api.Stmt) -> tvm_api.Stmt:
    kept = [
        statement
        for statement in sequence.seq
        if not (isinstance(statement, tirx.Bind) and statement.var in unused)
    ]
    return kept[0] if len(kept) == 1 else tirx.SeqStmt(kept)


# TVM's simplification passes without rules that change floating-point results.
#
# TVM's simplifier treats floats as real numbers: it rewrites `x - x` to 0, `x == x` to true,
# `!(x < y)` to `y <= x` and `(x + c) - c` to `x`, which is wrong for infinities, NaN and rounding.
# So such operations are replaced by opaque calls while its passes run.

KINDS = {
    kind.__name__: kind
    for kind in (
        tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Mod, tirx.Max, tirx.Min,
        tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE,
    )
}  # fmt: skip
PREFIX = "umakit_hidden_"


def without_float_rules(simplification: tvm_api.Pass) -> list[Any]:
    """Return passes that hide float operations, run a pass of TVM, and restore them."""
    return [_pass("umakit.HideFloats", _hidden), simplification, _pass("umakit.ShowFloats", _shown)]


def _pass(name: str, change: Callable[[Any], Any]) -> tvm_api.Pass:
    return prim_func_pass(name, lambda function: with_body(function, change(function.body)))


def _hidden(body: tvm_api.Stmt) -> tvm_api.Stmt:
    def hide(node: Any) -> tvm_api.PrimExpr:
        if not str(node.a.ty.dtype).startswith("float"):
            return node
        name = f"{PREFIX}{type(node).__name__}"
        return tirx.call_pure_extern(str(node.ty.dtype), name, node.a, node.b)

    return tvm_api.rewrite(body, [(kind, hide) for kind in KINDS.values()])


def _shown(body: tvm_api.Stmt) -> tvm_api.Stmt:
    def show(call: tvm_api.Call) -> tvm_api.PrimExpr:
        if not str(getattr(call.op, "name", "")).endswith("call_pure_extern"):
            return call
        name = str(call.args[0].value)
        if not name.startswith(PREFIX):
            return call
        return KINDS[name.removeprefix(PREFIX)](*call.args[1:])

    return tvm_api.rewrite(body, [(tvm_api.Call, show)])


# Bindings of the values that a backend's TIR pass gave names with `tir.named`.
#
# A name is a call around the value, which TVM's simplifier does not look behind: a binding it would
# dissolve. After simplification the calls become bindings, at the start of the innermost loop whose
# variable a value depends on.


def bind_named_values() -> tvm_api.Pass:
    """Return a TIR pass that turns calls of `tir.named` into bindings."""
    return tir.prim_func_pass("umakit.BindNamedValues", _bound)


def _bound(function: tvm_api.PrimFunc) -> tvm_api.PrimFunc:
    if not _named(function.body):
        return function
    body = tvm_api.rewrite(function.body, [(tirx.For, _bound_in_loop)])
    return tir.with_body(function, _with_bindings(body, None))


def _bound_in_loop(loop: tvm_api.Stmt) -> tvm_api.Stmt:
    """Return a loop with bindings of the values that depend on its or an inner variable."""
    body = _with_bindings(loop.body, {loop.loop_var})
    return tirx.For(
        loop.loop_var, loop.min, loop.extent, loop.kind, body, loop.thread_binding,
        loop.annotations, loop.step,
    )  # fmt: skip


def _with_bindings(body: tvm_api.Stmt, changing: set[Any] | None) -> tvm_api.Stmt:
    """Return a body that starts with bindings of named values.

    Args:
        changing: variables; values that depend on none of these variables stay calls, for an outer
            loop to bind. None binds all values.
    """
    bindings: list[tvm_api.Stmt] = []
    seen = set() if changing is None else set(changing)
    while True:
        calls = _named(body)
        if changing is not None:
            calls = [
                call for call in calls if not seen.isdisjoint(tvm_api.collect(call, tvm_api.Var))
            ]
        call = next(iter(calls), None)
        if call is None:
            return tir.sequence([*bindings, *tvm_api.flatten_statements(body)])
        name, value = tir.name_and_value(call)
        if tvm_api.integer_value(value) is not None or isinstance(value, tirx.Var):
            replacement = value
        else:
            replacement = tirx.Var(name, tvm_api.dtype_of_expression(value))
            bindings.append(tirx.Bind(replacement, value))
            seen.add(replacement)
        body = _replaced(body, call, replacement)


def _replaced(body: tvm_api.Stmt, call: tvm_api.Call, value: tvm_api.PrimExpr) -> tvm_api.Stmt:
    def replace(other: tvm_api.Call) -> tvm_api.PrimExpr:
        return value if tvm_api.tvm_ffi.structural_equal(other, call) else other

    return tvm_api.rewrite(body, [(tvm_api.Call, replace)])


def _named(body: tvm_api.Stmt) -> list[tvm_api.Call]:
    """Return the calls of `tir.named`, inner calls before outer calls."""
    return [call for call in tvm_api.collect(body, tvm_api.Call) if tir.is_named(call)]
