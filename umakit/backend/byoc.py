# SPDX-License-Identifier: Apache-2.0
"""Bring Your Own Codegen: running a backend's functions inside a TVM process.

After `backend.register()`, plain Relax works: `FuseOpsByPattern` with the backend's patterns,
`MergeCompositeFunctions`, `RunCodegen`, `tvm.compile`, `VirtualMachine`. The accelerator's part is
the same C, driver and simulator as in an exported library, built into a shared object that TVM
loads. The rest of the network may run on any TVM target, such as LLVM or CUDA.
"""

from __future__ import annotations

import atexit
import functools
import itertools
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from umakit import tvm_api
from umakit.devices.build import compile_c, library_sources
from umakit.devices.libraries import libraries_of
from umakit.devices.simulators import simulators_of
from umakit.errors import BackendError
from umakit.frontend.model import Model, type_specification
from umakit.partition.partitioner import Partitioned
from umakit.partition.report import OffloadReport
from umakit.pipeline import export_program
from umakit.registration.backend import Backend
from umakit.registration.registered import Pattern
from umakit.text.escaping import shown
from umakit.text.names import is_identifier, symbol_part
from umakit.text.rendering import render

_numbers = itertools.count()


def register_backend(backend: Backend) -> None:
    """Register a backend's codegen with TVM, and its patterns, of which the first has priority."""
    # TVM gives the last pattern of its list priority, UMA the first pattern.
    tvm_api.register_patterns(
        [
            (f"{backend.target_name}.{p.name}", pattern, dict(p.annotations), _check(p))
            for p in reversed(backend.patterns)
            for pattern in reversed(p.alternatives)
        ]
    )
    tvm_api.tvm_ffi.register_global_func(
        f"relax.ext.{backend.target_name}", _codegen(backend), override=True
    )


def _check(pattern: Pattern) -> Callable[[Any], bool]:
    def check(context: tvm_api.PatternCheckContext) -> bool:
        if tvm_api.has_leaking_intermediate_variables(context):
            return False
        return pattern.predicate is None or pattern.predicate(context) is True

    return check


def _codegen(backend: Backend) -> Callable[[Any, Any, Any], list[Any]]:
    def compile_functions(
        functions: Iterable[tvm_api.Function], options: object, constant_names: object
    ) -> list[Any]:
        return [build_function(function, backend) for function in functions]

    return compile_functions


@tvm_api.one_at_a_time
def build_function(function: tvm_api.Function, backend: Backend) -> tvm_api.Node:
    """Build a runtime module with one accelerator function, whose body calls composites."""
    symbol = str(tvm_api.function_attribute(function, "global_symbol"))
    if not is_identifier(symbol):
        raise BackendError(f"the function's symbol {shown(symbol, 100)!r} is not a C identifier")
    folder = _work_folder() / f"{symbol}_{next(_numbers)}"
    model = _as_model(symbol, function, backend.target_name)
    partitioned = Partitioned(model.module, OffloadReport(()))
    library = export_program(model, partitioned, [backend], folder)
    description = library.metadata["umakit"]
    wrapper = folder / "packed.c"
    wrapper.write_text(
        render(
            "byoc/packed.c.j2",
            prefix=description["interface"],
            symbol=symbol,
            inputs=[{"name": item["c_name"]} for item in description["inputs"]],
            outputs=[{"name": item["c_name"]} for item in description["outputs"]],
        ),
        encoding="utf-8",
    )
    shared = folder / f"{symbol}.so"
    flags = ["-shared", "-fPIC", f"-I{folder}", *tvm_api.ffi_build_flags()]
    sources = [*library_sources(folder), wrapper]
    compile_c(
        sources, shared, flags, simulators=simulators_of(folder), libraries=libraries_of(folder)
    )
    return tvm_api.load_module(shared)


def _as_model(symbol: str, function: tvm_api.Function, target: str) -> Model:
    if str(tvm_api.function_attribute(function, "Codegen") or target) != target:
        raise BackendError("the function belongs to another backend", where=symbol)
    builder = tvm_api.relax.BlockBuilder()
    region = builder.add_func(function.with_attr("Codegen", target), symbol)
    parameters = [tvm_api.relax.Var(p.name, p.ty) for p in function.params]
    with builder.function("main", parameters):
        with builder.dataflow():
            result = builder.emit_output(tvm_api.relax.Call(region, parameters))
        builder.emit_func_output(result)
    fields = tvm_api.tuple_fields(function.ret_ty)
    return Model(
        symbol_part(symbol),
        builder.get(),
        tuple(type_specification(p.name, p.ty, symbol) for p in function.params),
        tuple(type_specification(f"output_{i}", f, symbol) for i, f in enumerate(fields)),
    )


@functools.cache
def _work_folder() -> Path:
    temporary = tempfile.TemporaryDirectory(prefix="umakit-byoc-")
    atexit.register(temporary.cleanup)
    return Path(temporary.name)
