# SPDX-License-Identifier: Apache-2.0
"""Building blocks for a backend's TIR passes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from umakit import tvm_api

tirx = tvm_api.tirx


def prim_func_pass(name: str, transform: Callable[[Any], Any]) -> Any:
    """A TIR pass from a function.

    Args:
        name: of the pass, for messages.
        transform: receives each prim func and returns it, or what replaces it.
    """

    def apply(function: Any, module: Any, context: Any) -> Any:
        return transform(function)

    return tvm_api.tirx_transform.prim_func_pass(apply, opt_level=0, name=name)


def composite_name(function: Any) -> str:
    """`<target>.<pattern>` of the composite that a prim func was lowered from; may be empty."""
    return str(tvm_api.function_attribute(function, "umakit.composite") or "")


def buffer_shape(buffer: Any) -> tuple[int, ...]:
    """The constant shape of a prim func's buffer parameter."""
    return tvm_api.buffer_shape(buffer)


def buffer_bytes(buffer: Any) -> int:
    """The size of a prim func's buffer."""
    return tvm_api.buffer_bytes(buffer)


def pointer(buffer: Any) -> Any:
    """A buffer's address, as an argument for a driver call."""
    return buffer.data


def reference_loops(*tensors: Any) -> Any:
    """The prim func that TVM makes of a tensor expression, to compare loops with.

    Loop variables have 64 bits, as in what Relax lowers to.

    Args:
        tensors: te placeholders followed by the result.
    """
    return tvm_api.te.create_prim_func(list(tensors), index_dtype_override="int64")


def placeholder(shape: Sequence[int], dtype: str, name: str) -> Any:
    """An input of a tensor expression."""
    return tvm_api.te.placeholder(list(shape), dtype=dtype, name=name)


def same_computation(function: Any, expected: Any) -> bool:
    """Whether two prim funcs have the same loops, blocks and expressions, but for names.

    This is a proof: equality is structural, node by node, including every index and bound.
    """

    def bare(func: Any) -> Any:
        return tirx.PrimFunc(func.params, func.body)

    return bool(tvm_api.tvm_ffi.structural_equal(bare(function), bare(expected)))


def scratchpad_buffer(name: str, elements: int, dtype: str, pool: str) -> Any:
    """Memory in a scratchpad of the accelerator for the time of a prim func.

    The memory plan gives it an offset; in C it is a `uint32_t`, bytes from the scratchpad's start.
    `allocate` declares it in a body, `pointer` makes it an argument for a driver call.

    Args:
        name: of the buffer, for readers.
        elements: how many.
        dtype: of the elements.
        pool: name of a `[[memory]]` of `accel.toml` with `address = "offset"`.
    """
    return tirx.decl_buffer([elements], dtype, name, scope=f"global.{pool}")


def scratchpad_copy(tensor: Any, pool: str) -> Any:
    """A place in a scratchpad as large as a tensor of a prim func, see `scratchpad_buffer`."""
    elements = math.prod(buffer_shape(tensor))
    return scratchpad_buffer(tensor.name, elements, tvm_api.buffer_dtype(tensor), pool)


def allocate(buffers: Sequence[Any], body: Any) -> Any:
    """A body with memory for the time that it runs."""
    return tirx.SeqStmt([*(tirx.AllocBuffer(buffer) for buffer in buffers), body])


def sequence(statements: Sequence[Any]) -> Any:
    """Statements one after the other."""
    return tirx.SeqStmt(list(statements))


def only_if(conditions: Sequence[Any], body: Any) -> Any:
    """A body that runs if all conditions hold; always, if there are none."""
    if not conditions:
        return body
    return tirx.IfThenElse(tirx.all(*conditions), body, None)


def driver_calls(calls: Sequence[tuple[str, Sequence[Any]]]) -> Any:
    """Statements that call drivers one after the other, up to the first status that is not zero.

    Args:
        calls: names of C functions that return int, with their arguments as in `driver_call`.
    """
    return tirx.SeqStmt([driver_call(name, arguments) for name, arguments in calls])


def driver_call(name: str, arguments: Sequence[Any]) -> Any:
    """A statement that calls a driver and returns its status if that is not zero.

    In C: `const int32_t status_code = name(arguments...);` and a return if it is not zero.

    Args:
        name: of a C function that returns int.
        arguments: TIR expressions (pointers by `pointer`) and Python integers.
    """
    status = tirx.Var("status_code", "int32")
    call = tirx.call_extern("int32", name, *arguments)
    stop = tirx.IfThenElse(status != 0, tirx.stmt.Return(status), None)
    return tirx.SeqStmt([tirx.Bind(status, call), stop])


def with_body(function: Any, body: Any) -> Any:
    """A prim func with another body and the same parameters and attributes."""
    return tirx.PrimFunc(function.params, body, function.ret_type, function.attrs)
