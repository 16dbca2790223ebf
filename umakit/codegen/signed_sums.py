# SPDX-License-Identifier: Apache-2.0
"""Local sums as signed integers if they cannot overflow.

Kernels sum in unsigned integers, which wrap around by C's rules. If the ranges of a kernel prove
that a sum of signed integers never leaves the signed type, the local buffer becomes signed: plain
`sum += a * b`, with the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from umakit import tvm_api
from umakit.codegen.integer_ranges import ARITHMETIC, IntegerRanges, kernel_ranges
from umakit.codegen.kernel_statements import escaping
from umakit.lower.driver_calls import DriverCall
from umakit.lower.index_ranges import Elements
from umakit.lower.kernels import Kernel

tirx = tvm_api.tirx


def with_signed_sums(
    kernel: Kernel, constants: Mapping[int, Elements] | None = None
) -> tuple[Kernel, IntegerRanges, frozenset[Any]]:
    """Make local sums that cannot overflow signed.

    Args:
        constants: the elements of constant inputs, by the input's number.

    Returns:
        The kernel, the ranges of its integers, and its unsigned buffers with sums of signed
        integers that could overflow.
    """
    candidates = _sums_of_signed(kernel)
    left = candidates
    while left:
        signed = {buffer: _signed_twin(buffer) for buffer in left}
        changed = replace(kernel, body=tuple(_rewritten(node, signed) for node in kernel.body))
        ranges = kernel_ranges(changed, constants)
        failed = {twin for twin in signed.values() if not _is_exact(changed, twin, ranges)}
        if not failed:
            return changed, ranges, frozenset(candidates) - frozenset(left)
        left = [buffer for buffer in left if signed[buffer] not in failed]
    return kernel, kernel_ranges(kernel, constants), frozenset(candidates)


def _sums_of_signed(kernel: Kernel) -> list[Any]:
    """Return the local unsigned buffers with stores of signed integers."""
    statements = list(kernel.statements)
    unsigned = [
        allocation.buffer
        for allocation in tvm_api.collect(statements, tirx.AllocBuffer)
        if tvm_api.buffer_dtype(allocation.buffer) in ("uint32", "uint64")
    ]
    stores = tvm_api.collect(statements, tirx.BufferStore)
    views = [view.data for view in tvm_api.collect(statements, tirx.DeclBuffer)]
    shared = {*tvm_api.buffers_in(views), *(b for node in kernel.body for b in escaping(node))}
    return [
        buffer
        for buffer in unsigned
        if buffer not in shared
        and any(s.buffer.same_as(buffer) and _has_signed_cast(s.value) for s in stores)
    ]


def _has_signed_cast(value: tvm_api.PrimExpr) -> bool:
    casts = tvm_api.collect(value, tirx.Cast)
    return any(tvm_api.dtype_of(cast.value).startswith("int") for cast in casts)


def _signed_twin(buffer: Any) -> Any:
    dtype = tvm_api.buffer_dtype(buffer).removeprefix("u")
    shape = list(tvm_api.buffer_shape(buffer))
    return tirx.decl_buffer(shape, dtype, buffer.name, scope=tvm_api.buffer_scope(buffer))


def _rewritten(
    node: DriverCall | tvm_api.Stmt, signed: Mapping[Any, Any]
) -> DriverCall | tvm_api.Stmt:
    """Return a statement with signed instead of unsigned buffers."""
    if isinstance(node, DriverCall):
        return node

    def allocation(statement: tvm_api.Stmt) -> tvm_api.Stmt:
        twin = signed.get(statement.buffer)
        return statement if twin is None else tirx.AllocBuffer(twin)

    def load(expression: tvm_api.PrimExpr) -> tvm_api.PrimExpr:
        twin = signed.get(expression.source)
        if twin is None:
            return expression
        value: tvm_api.PrimExpr = twin[tuple(expression.indices)]
        return value.astype(tvm_api.dtype_of(expression))

    def cast(expression: tvm_api.PrimExpr) -> tvm_api.PrimExpr:
        target = tvm_api.dtype_of(expression)
        same_width = f"u{target}" == tvm_api.dtype_of(expression.value)
        if not same_width or not _loads_any(expression.value, signed.values()):
            return expression
        return _signed(expression.value)

    def store(statement: tvm_api.Stmt) -> tvm_api.Stmt:
        twin = signed.get(statement.buffer)
        if twin is None:
            return statement
        return tirx.BufferStore(twin, _signed(statement.value), statement.indices)

    return tvm_api.rewrite(
        node,
        [
            (tirx.AllocBuffer, allocation),
            (tvm_api.TensorLoad, load),
            (tirx.Cast, cast),
            (tirx.BufferStore, store),
        ],
    )


def _signed(node: tvm_api.PrimExpr) -> tvm_api.PrimExpr:
    """Return an unsigned expression as a signed expression of the same bits."""
    dtype = tvm_api.dtype_of(node).removeprefix("u")
    value = tvm_api.integer_value(node)
    if value is not None:
        bits = int(dtype.removeprefix("int"))
        return tirx.IntImm(dtype, value - (1 << bits) if value >> (bits - 1) else value)
    if type(node).__name__ in ARITHMETIC:
        operation: Callable[..., tvm_api.PrimExpr] = type(node)
        return operation(_signed(node.a), _signed(node.b))
    if isinstance(node, tirx.Cast) and tvm_api.dtype_of(node.value).startswith("int"):
        return node.value.astype(dtype)
    return node.astype(dtype)


def _loads_any(expression: tvm_api.PrimExpr, buffers: Iterable[Any]) -> bool:
    sources = [load.source for load in tvm_api.collect(expression, tvm_api.TensorLoad)]
    return any(source.same_as(buffer) for buffer in buffers for source in sources)


def _is_exact(kernel: Kernel, twin: Any, ranges: IntegerRanges) -> bool:
    """Whether a buffer is used as signed only, and no arithmetic with it overflows."""
    statements: Sequence[Any] = list(kernel.statements)
    for cast in tvm_api.collect(statements, tirx.Cast):
        direct = isinstance(cast.value, tvm_api.TensorLoad) and cast.value.source.same_as(twin)
        if direct and tvm_api.dtype_of(cast).startswith("u"):
            return False
    for kind in (tirx.Add, tirx.Sub, tirx.Mul):
        for node in tvm_api.collect(statements, kind):
            signed = tvm_api.dtype_of(node) in ("int32", "int64")
            if signed and _loads_any(node, [twin]) and ranges.overflows(node):
                return False
    return True
