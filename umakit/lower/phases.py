# SPDX-License-Identifier: Apache-2.0
"""TIR lowering of one prim func in phases, with a backend's passes in between.

The order is that of TVM's own S-TIR pipeline (`tvm/s_tir/pipeline.py`), without what concerns
GPUs, vector code and TVM's packed calling convention.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from umakit import tvm_api
from umakit.errors import BackendError, LoweringError, UmakitError
from umakit.lower.bindings import drop_unused_bindings, plain_indices_of_scalars
from umakit.lower.cut_loops import cut_loops, shorten_loops
from umakit.lower.float_expressions import without_float_rules
from umakit.lower.kernel_facts import FACTS
from umakit.lower.named_values import bind_named_values
from umakit.lower.vector_leaves import vectorize_leaves
from umakit.registration.backend import Backend
from umakit.registration.code import raised, with_place
from umakit.registration.registered import PassPhase, Pattern
from umakit.tir import composite_name, prim_func_pass

NO_FAULT_OF_THE_NETWORK = "this is a fault of umakit or of TVM: report it with the network"


def without_blocks() -> list[Any]:
    """Return TVM's passes that lower blocks to loops over tensors that are not flattened."""
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
    """Return TVM's passes, each with the phase of backend passes that follows, and index checks.

    Loops that a schedule calls vectors become vectors with `has_vectors`, else loops again.
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
    """Return TVM's pass that binds common subexpressions, of functions that compute.

    Around driver calls it would only hide what an argument is; a C compiler finds them as well.
    """
    eliminated = tvm_api.tirx_transform.CommonSubexprElim()

    def apply(function: tvm_api.PrimFunc) -> tvm_api.PrimFunc:
        if not tvm_api.collect(function.body, tvm_api.tirx.BufferStore):
            return function
        return eliminated(tvm_api.IRModule({"main": function}))["main"]

    return prim_func_pass("umakit.CommonSubexpressions", apply)


def _unrolling(function: tvm_api.PrimFunc) -> list[Any]:
    """Return TVM's pass that unrolls loops, if a loop asks for it.

    The pass is not always run, because it also unrolls loops without stores, such as loops around
    driver calls, that do not ask for it.
    """
    loops = tvm_api.collect(function.body, tvm_api.tirx.For)
    asked = any(loop.kind == tvm_api.tirx.ForKind.UNROLLED for loop in loops)
    return [tvm_api.tirx_transform.UnrollLoop()] if asked else []


def _pattern_of(function: tvm_api.PrimFunc, backend: Backend | None) -> Pattern | None:
    """Return the pattern of the composite that a prim func was lowered from."""
    name = (composite_name(function) or "").partition(".")[2]
    patterns = backend.patterns if backend else []
    return next((each for each in patterns if each.name == name), None)


def lower_prim_func(
    name: str, function: tvm_api.PrimFunc, backend: Backend | None, checks: Sequence[Any] = ()
) -> tvm_api.PrimFunc:
    """Lower a prim func from loops over blocks to flat loops over flat buffers.

    Args:
        name: name of the kernel, for messages.
        function: the prim func.
        backend: backend whose TIR passes are run; None for CPU code.
        checks: TIR passes that run before tensors are flattened, see `index_checks`.

    Raises:
        LoweringError: a pass failed; names the pass's phase and the kernel.
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
    lowered = module[name]  # passes drop attributes that TVM does not know
    return lowered if facts is None else lowered.with_attr(FACTS, facts)
