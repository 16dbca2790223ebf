# SPDX-License-Identifier: Apache-2.0
"""CPU kernels of running sums and products along an axis: cumsum and cumprod.

Scans of float32 are accumulated in float64 and each result is rounded once, as in PyTorch: a sum of
many elements stays within half a unit in the last place. Integers wrap around.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from umakit import tvm_api
from umakit.operators.kernels.loops import buffer, int32, kernel, loop, loops, sequence

relax, tirx = tvm_api.relax, tvm_api.tirx

ScanRule = Callable[[Any, Any], Any]
"""A rule for `LegalizeOps`: (block builder, call) -> call_tir."""


def rules() -> dict[str, ScanRule]:
    """Return the rules for `LegalizeOps` by operator."""
    return {
        "relax.cumsum": _scan("cumsum", 0, lambda total, value: total + value),
        "relax.cumprod": _scan("cumprod", 1, lambda total, value: total * value),
    }


def _scan(name: str, start: int, combine: Callable[[Any, Any], Any]) -> ScanRule:
    def rule(builder: tvm_api.BlockBuilder, call: tvm_api.Call) -> tvm_api.Expr:
        data, axis = call.args[0], call.attrs.axis
        shape, result = tvm_api.static_shape(data), tvm_api.static_type_shape(call.ty)
        if shape is None or result is None:
            raise ValueError("an operand has no static shape")
        if axis is None:
            shape = result
            data = builder.emit(relax.op.reshape(data, list(shape)))
        number = int(axis or 0) % len(shape) if shape else 0
        dtype = tvm_api.dtype_of(call)
        total_dtype = "float64" if dtype == "float32" else dtype
        # The sum of -0.0 alone is -0.0; the empty sum is 0.
        keeps_sign = start == 0 and "float" in dtype and not call.attrs.exclusive
        begin = -0.0 if keeps_sign else start
        given = buffer("data", shape, tvm_api.dtype_of(data))
        output = buffer("output", shape, dtype)
        zero = int32(0)

        def row(*place: tvm_api.Expr) -> tvm_api.Stmt:
            total = tirx.decl_buffer([1], total_dtype, "total", scope="local")

            def step(position: tvm_api.Expr) -> tvm_api.Stmt:
                at = (*place[:number], position, *place[number + 1 :])
                value = tirx.Var("value", total_dtype)
                add = tirx.BufferStore(total, combine(total[0], value), [zero])
                store = tirx.BufferStore(output, total[0].astype(dtype), list(at))
                steps = (store, add) if call.attrs.exclusive else (add, store)
                return sequence(tirx.Bind(value, given[at].astype(total_dtype)), *steps)

            first = tirx.BufferStore(total, tirx.const(begin, total_dtype), [zero])
            steps = loop("position", shape[number] if shape else 1, step)
            return sequence(tirx.AllocBuffer(total), first, steps)

        outer = [(f"i{n}", 1 if n == number else extent) for n, extent in enumerate(shape)]
        variable = builder.add_func(kernel([given, output], loops(outer, row)), name)
        return relax.call_tir(variable, relax.Tuple([data]), call.ty)

    return rule
