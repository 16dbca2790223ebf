# SPDX-License-Identifier: Apache-2.0
"""Building blocks for a backend's TIR passes and operator strategies.

TIR is TVM's loop program. A TIR pass receives each kernel of the accelerator as a prim func and
returns another prim func, usually with driver calls instead of loops. An operator strategy chooses
the tensor expression of an operator before TIR passes run.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from umakit import tvm_api
from umakit.errors import BackendError, short_path

__all__ = [
    "TilePart",
    "allocate",
    "buffer_bytes",
    "buffer_shape",
    "composite_name",
    "driver_call",
    "driver_calls",
    "named",
    "only_if",
    "placeholder",
    "pointer",
    "prim_func_pass",
    "reference_loops",
    "same_computation",
    "schedule",
    "scratchpad_buffer",
    "scratchpad_copy",
    "sequence",
    "tensor_intrinsic",
    "topi",
    "with_body",
]

tirx = tvm_api.tirx

topi = tvm_api.topi
"""TVM's tensor operators, for the computations of operator strategies."""

REDUCTION = tirx.IterVar.CommReduce
"""Iteration kind of reduction loops."""

DRIVER_CALL = "umakit.call_driver"
"""TIR operator of driver calls: its arguments are the C function's name and arguments."""

_DRIVER_CALL = tvm_api.register_intrinsic(DRIVER_CALL, "Calls a driver and checks its status.")

TEXT_CALL = "umakit.text.call_driver"
"""TIR operator of calls that are C text: its arguments are the text, the text of the size that is
compared with `scratch_bytes` or nothing, the names in both, and a value for each."""

_TEXT_CALL = tvm_api.register_intrinsic(TEXT_CALL, "Calls a driver by C text.")

NAMED = "umakit.named"
"""TIR operator of named values: its arguments are the name and the value."""

_NAMED = tvm_api.register_intrinsic(NAMED, "Gives a value a name in C.")

CONSTANT = "umakit.constant"
"""TIR operator of named constants: its arguments are the name and the value."""

_CONSTANT = tvm_api.register_intrinsic(CONSTANT, "Gives a constant a name in C.")


OWN_FOLDER = f"{Path(__file__).parent}{os.sep}"
"""Start of the paths of umakit's code."""


def prim_func_pass(name: str, transform: Callable[[Any], Any]) -> tvm_api.Pass:
    """Make a TIR pass from a function.

    Args:
        name: name of the pass in messages.
        transform: function that receives each prim func and returns it or its replacement.
    """

    _pass_places[name] = _caller(1)

    def apply(function: tvm_api.PrimFunc, module: tvm_api.IRModule, context: object) -> Any:
        _running.append(place_of_pass(name))
        try:
            result = transform(function)
        finally:
            _running.pop()
        if not isinstance(result, tirx.PrimFunc):
            raise BackendError(
                f"the pass {name} returned {type(result).__name__}, which is no prim func",
                where=place_of_pass(name),
                fix="return the function itself, or tir.with_body(function, ...)",
            )
        return result

    return tvm_api.tirx_transform.prim_func_pass(apply, opt_level=0, name=name)


def composite_name(function: tvm_api.PrimFunc) -> str:
    """Return `<target>.<pattern>` of the composite that a prim func was lowered from, if any."""
    return str(tvm_api.function_attribute(function, "umakit.composite") or "")


def buffer_shape(buffer: tvm_api.Buffer) -> tuple[int, ...]:
    """Return the constant shape of a prim func's buffer parameter."""
    return tvm_api.buffer_shape(buffer)


def buffer_bytes(buffer: tvm_api.Buffer) -> int:
    """Return the size of a prim func's buffer in bytes."""
    return tvm_api.buffer_bytes(buffer)


def pointer(buffer: tvm_api.Buffer) -> tvm_api.PrimExpr:
    """Return a buffer's address as an argument for a driver call."""
    return buffer.data


def reference_loops(*tensors: tvm_api.te.Tensor) -> tvm_api.PrimFunc:
    """Return the prim func of a tensor expression, for comparison with other loops.

    Loop variables have 64 bits, as after lowering from Relax.

    Args:
        tensors: te placeholders followed by the result.
    """
    return tvm_api.te.create_prim_func(list(tensors), index_dtype_override="int64")


def placeholder(shape: Sequence[int], dtype: str, name: str) -> tvm_api.te.Tensor:
    """Return an input of a tensor expression."""
    return tvm_api.te.placeholder(list(shape), dtype=dtype, name=name)


def same_computation(function: tvm_api.PrimFunc, expected: tvm_api.PrimFunc) -> bool:
    """Return whether two prim funcs have the same loops, blocks and expressions, except for names.

    Equality is structural, node by node, including every index and bound, and thus a proof.
    """

    def bare(func: tvm_api.PrimFunc) -> tvm_api.PrimFunc:
        return tirx.PrimFunc(func.params, func.body)

    return bool(tvm_api.tvm_ffi.structural_equal(bare(function), bare(expected)))


def scratchpad_buffer(name: str, elements: int, dtype: str, pool: str) -> tvm_api.Buffer:
    """Return a buffer in a scratchpad of the accelerator that exists during a prim func.

    The memory plan assigns its offset. In C, the buffer is a `uint32_t`, the bytes from the
    scratchpad's start. `allocate` declares the buffer in a body, and `pointer` makes the buffer an
    argument of a driver call.

    Args:
        name: name of the buffer in generated C.
        elements: number of elements.
        dtype: dtype of the elements.
        pool: name of a `[[memory]]` of `accel.toml` with `address = "offset"`.
    """
    return tirx.decl_buffer([elements], dtype, name, scope=f"global.{pool}")


def scratchpad_copy(tensor: tvm_api.Buffer, pool: str) -> tvm_api.Buffer:
    """Return a `scratchpad_buffer` with the size of a tensor of a prim func."""
    elements = math.prod(buffer_shape(tensor))
    return scratchpad_buffer(tensor.name, elements, tvm_api.buffer_dtype(tensor), pool)


def allocate(buffers: Sequence[Any], body: tvm_api.Stmt) -> tvm_api.Stmt:
    """Return a body with buffers allocated around it."""
    return sequence([*(tirx.AllocBuffer(buffer) for buffer in buffers), body])


def sequence(statements: Sequence[Any]) -> tvm_api.Stmt:
    """Return a sequence of statements."""
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(list(statements))


def only_if(conditions: Sequence[Any], body: tvm_api.Stmt) -> tvm_api.Stmt:
    """Return a body that runs if all conditions hold. Without conditions, it always runs."""
    if not conditions:
        return body
    return tirx.IfThenElse(tirx.all(*conditions), body, None)


def driver_calls(calls: Sequence[tuple[str, Sequence[Any]]]) -> tvm_api.Stmt:
    """Return driver calls in sequence. The first nonzero status ends the sequence.

    Args:
        calls: names of C functions that return int, each with arguments as in `driver_call`.
    """
    return sequence([driver_call(name, arguments) for name, arguments in calls])


def driver_call(name: str, arguments: Sequence[Any]) -> tvm_api.Stmt:
    """Return a statement that calls a driver and returns a nonzero status.

    The call is one TIR node until the C printer writes `status = name(arguments...);` and the
    return of a nonzero status.

    Args:
        name: name of a C function that returns int.
        arguments: TIR expressions (pointers by `pointer`) and Python integers.
    """
    _places[name, len(arguments)] = _caller(1)
    return tirx.Evaluate(tvm_api.intrinsic_call("int32", DRIVER_CALL, [name, *arguments]))


_places: dict[tuple[str, int], str] = {}
"""File and line of the Python that made the last call of a function with a number of arguments."""


_pass_places: dict[str, str] = {}
"""File and line of the Python that made a pass, by the name of the pass."""

_running: list[str] = []
"""Places of the running passes, used for driver calls from umakit's own code."""


def place_of_pass(name: str) -> str:
    """Return file and line of the Python code that made a pass; empty if unknown."""
    return _pass_places.get(name, "")


def place_of_call(name: str, count: int) -> str:
    """Return file and line of the Python code that called `driver_call`; empty if unknown."""
    return _places.get((name, count), "")


def _caller(depth: int) -> str:
    """Return file and line of the first caller outside of umakit.

    Without such a caller, return the place of the running pass; empty if none runs.
    """
    frame: FrameType | None = sys._getframe(1 + depth)
    while frame is not None and frame.f_code.co_filename.startswith(OWN_FOLDER):
        frame = frame.f_back
    if frame is None or "site-packages" in frame.f_code.co_filename:  # TVM called a pass of umakit
        return _running[-1] if _running else ""
    return f"{short_path(frame.f_code.co_filename)}:{frame.f_lineno}"


def text_call(text: str, scratch: str, operands: Mapping[str, Any]) -> tvm_api.Stmt:
    """Return a statement that calls a C function given as text and returns a nonzero status.

    Args:
        text: C text of the call, with `$name` for each operand.
        scratch: C text of the required scratch bytes. If it exceeds the operand `scratch_bytes`,
            the call is skipped. May be empty.
    """
    values = [_operand(name, value) for name, value in operands.items()]
    arguments = [text, scratch, " ".join(operands), *values]
    return tirx.Evaluate(tvm_api.intrinsic_call("int32", TEXT_CALL, arguments))


def _operand(name: str, value: Any) -> Any:
    if not isinstance(value, int):
        return value
    fits = -(2**31) <= value < 2**31
    return constant(name, value) if fits else tirx.IntImm("int64", value)


def called_text(statement: tvm_api.Stmt) -> tuple[str, str, dict[str, Any]] | None:
    """Return text, scratch and operands of a statement of `text_call`; None for other
    statements."""
    if not isinstance(statement, tirx.Evaluate) or not is_driver_call(statement.value):
        return None
    if not statement.value.op.same_as(_TEXT_CALL):
        return None
    text, scratch, names, *values = statement.value.args
    operands = dict(zip(str(names.value).split(), values, strict=True))
    return str(text.value), str(scratch.value), operands


def called_driver(statement: tvm_api.Stmt) -> tuple[str, list[Any]] | None:
    """Return name and arguments of a statement of `driver_call`; None for other statements."""
    if not isinstance(statement, tirx.Evaluate) or not is_driver_call(statement.value):
        return None
    if statement.value.op.same_as(_TEXT_CALL):
        return None
    function, *arguments = statement.value.args
    return str(function.value), arguments


def is_driver_call(expression: tvm_api.PrimExpr) -> bool:
    """Return whether an expression is the call in a statement of `driver_call` or `text_call`."""
    calls = (_DRIVER_CALL, _TEXT_CALL)
    return isinstance(expression, tvm_api.Call) and any(map(expression.op.same_as, calls))


def named(name: str, value: Any) -> Any:
    """Return a value with a name in the generated C: `const int32_t first_row = ...;`.

    Equal values with one name become one variable, in the innermost loop that the value depends on.

    Args:
        name: name of the variable, with a number if it is taken.
        value: TIR expression of an integer type without side effects; a Python integer is returned
            unchanged.
    """
    if tvm_api.integer_value(value) is not None:
        return value
    return tvm_api.intrinsic_call(tvm_api.dtype_of_expression(value), NAMED, [name, value])


def is_named(expression: tvm_api.PrimExpr) -> bool:
    """Return whether an expression is a result of `named`."""
    return isinstance(expression, tvm_api.Call) and expression.op.same_as(_NAMED)


def name_and_value(expression: tvm_api.Call) -> tuple[str, tvm_api.PrimExpr]:
    """Return name and value of a result of `named` or `constant`."""
    name, value = expression.args
    return str(name.value), value


def constant(name: str, value: int) -> tvm_api.PrimExpr:
    """Return an int32 constant with a name in the generated C: `enum { TILE_BYTES = 64 };`.

    TVM's simplifier does not fold the constant.

    Args:
        name: name of the enumerator, with a number if it is taken.
        value: value within int32.
    """
    return tvm_api.intrinsic_call("int32", CONSTANT, [name, tvm_api.tirx.IntImm("int32", value)])


def is_constant(expression: tvm_api.PrimExpr) -> bool:
    """Return whether an expression is a result of `constant`."""
    return isinstance(expression, tvm_api.Call) and expression.op.same_as(_CONSTANT)


def schedule(function: tvm_api.PrimFunc) -> tvm_api.Schedule:
    """Return a `tvm.s_tir.Schedule` of a prim func before lowering (`PassPhase.TIR_PHASE_0`).

    Its primitives (`split`, `reorder`, `decompose_reduction`, `tensorize`, ...) refuse changes of
    the result. `with_body(function, schedule.mod["main"].body)` returns the scheduled prim func.
    """
    return tvm_api.Schedule(tirx.PrimFunc(function.params, function.body))


@dataclass(frozen=True)
class TilePart:
    """A tile of a tensor, operand or result of a tensor intrinsic.

    Attributes:
        pointer: pointer to the first element.
        strides: stride of each axis in elements; the last one is 1.
    """

    pointer: Any
    strides: tuple[Any, ...]


def tensor_intrinsic(
    name: str, tile: tvm_api.PrimFunc, call: Callable[[Sequence[TilePart]], Any]
) -> str:
    """Register the computation of an instruction for `schedule.tensorize(loop, name)`.

    Tensorize compares the loops below `loop` with the loops of `tile`, node by node, and replaces
    the loops by the call.

    Args:
        name: name of the intrinsic; it replaces an existing one of the same name.
        tile: computation from `reference_loops`. A reduction accumulates into the result: split off
            its initialization by `schedule.decompose_reduction` before.
        call: receives the tile's tensors, operands and result, and returns statements, such as
            `driver_call`.

    Returns:
        The name.

    Raises:
        BackendError: the installed apache-tvm-ffi crashes in `tensorize`.
    """
    if tvm_api.FFI_VERSION in tvm_api.FFI_WITHOUT_TENSORIZE:
        raise BackendError(
            f"apache-tvm-ffi {tvm_api.FFI_VERSION} ends the process in Schedule.tensorize",
            where=f"tensor intrinsic {name}",
            fix="pip install apache-tvm-ffi==0.1.14.post1",
        )
    loops = tvm_api.Schedule(tile)
    (block,) = loops.get_child_blocks(loops.get_sblock("root"))
    outer = loops.get_loops(block)[0]
    if any(each.iter_type == REDUCTION for each in loops.get(block).iter_vars):
        loops.decompose_reduction(block, outer)
    parts = {}
    for tensor in tile.params:
        shape = [tirx.IntImm("int64", extent) for extent in buffer_shape(tensor)]
        strides = [tirx.Var(f"{tensor.name}_stride", "int64") for _ in shape[1:]]
        parts[tensor] = tirx.decl_buffer(
            shape,
            tvm_api.buffer_dtype(tensor),
            tensor.name,
            strides=[*strides, tirx.IntImm("int64", 1)],
            offset_factor=1,
        )
    reads = [region.source for region in loops.get(block).reads]
    writes = [region.source for region in loops.get(block).writes]
    body = call([TilePart(part.ptr_to([0] * len(part.shape)), tuple(part.strides))
                 for part in parts.values()])  # fmt: skip
    described = _whole_block(reads, writes, loops.get(outer))
    done = _whole_block([parts[each] for each in reads], [parts[each] for each in writes], body)
    tvm_api.s_tir.TensorIntrin.register(
        name,
        tirx.PrimFunc(tile.params, described),
        tirx.PrimFunc(list(parts.values()), done),
        override=True,
    )
    return name


def _whole_block(reads: Sequence[Any], writes: Sequence[Any], body: tvm_api.Stmt) -> tvm_api.Stmt:
    regions = [[tvm_api.whole_region(tensor) for tensor in each] for each in (reads, writes)]
    return tvm_api.SBlockRealize([], True, tvm_api.s_tir.SBlock([], *regions, "root", body))


def with_body(function: tvm_api.PrimFunc, body: tvm_api.Stmt) -> tvm_api.PrimFunc:
    """Return a prim func with another body and the same parameters and attributes."""
    return tirx.PrimFunc(function.params, body, function.ret_type, function.attrs)
