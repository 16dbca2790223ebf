# SPDX-License-Identifier: Apache-2.0
"""The TVM names that umakit uses and that may change with the next release.

TVM renames parts of its Python interface in each version. Other modules import TVM names from here,
so that a new version changes only this file (docs/tvm-versions.md).
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from umakit.errors import all_errors
from umakit.imports import WithoutTorch

with WithoutTorch():
    import tvm
import tvm_ffi
from tvm import s_tir, topi
from tvm.relax.backend.pattern_registry import get_patterns_with_prefix, register_patterns
from tvm.s_tir.schedule import ScheduleError

if TYPE_CHECKING:
    from umakit.tvm_types import *
else:
    from tvm import relax, te, tirx
    from tvm.ir import BaseFunc as BaseFunction
    from tvm.ir import (
        Call,
        Expr,
        GenericConst,
        GlobalVar,
        Node,
        Op,
        Span,
        StringImm,
        TensorLoad,
        TupleGetItem,
        TupleType,
        Type,
        Var,
    )
    from tvm.ir import Tuple as RelaxTuple
    from tvm.relax import Binding, BlockBuilder, Function, TensorType, VarBinding
    from tvm.relax.backend.utils import has_leaking_intermediate_variables
    from tvm.relax.dpl import DFPattern, is_const, is_op, is_tuple, wildcard
    from tvm.relax.expr_functor import PyExprMutator, mutator
    from tvm.relax.transform import PatternCheckContext
    from tvm.s_tir import Schedule
    from tvm.tirx import Buffer, PrimFunc, Stmt
    from tvm.tirx.expr import ExprOp

    IRModule = tvm.IRModule
    Pass = tvm.transform.Pass
    PrimExpr = Expr
    Sequential = tvm.transform.Sequential
    Target = tvm.target.Target
    relax_transform = relax.transform
    s_tir_transform = s_tir.transform
    tirx_transform = tirx.transform

P = ParamSpec("P")
R = TypeVar("R")
N = TypeVar("N")

Legalization = Callable[["BlockBuilder", "Call"], "Expr"]
"""(block builder, call) -> the expression that takes the call's place."""

_one_at_a_time = threading.RLock()


def one_at_a_time(function: Callable[P, R]) -> Callable[P, R]:
    """Serialize a public function that calls TVM with all other such functions.

    TVM's block builders share one stack per process (`BlockBuilder._stack`): concurrent builds fail
    or mix their bindings.
    """

    @functools.wraps(function)
    def alone(*args: P.args, **kwargs: P.kwargs) -> R:
        with _one_at_a_time:
            return function(*args, **kwargs)

    return alone


VERSION: str = tvm.__version__
FFI_VERSION: str = tvm_ffi.__version__
FFI_WITHOUT_TENSORIZE = ("0.1.15.post1", "0.1.15.post2")
"""Releases of apache-tvm-ffi in which `Schedule.tensorize` ends in SIGSEGV."""

TVM_ERRORS = (RuntimeError, ValueError, TypeError, AttributeError, LookupError, AssertionError)
"""TVM has no exception of its own in 0.27: checks in C++ and in Python arrive as these."""

INJECTIVE_PATTERN = 2
"""`OpPatternKind.kInjective`: an operator that is computed where its result is read."""
OUTPUT_FUSABLE_PATTERN = 4
"""`OpPatternKind.kOutEWiseFusable`: an operator that takes in element-wise ones behind it."""
OPAQUE_OPERATOR_PATTERN = 8
"""`OpPatternKind.kOpaque`: an operator that fusion must leave alone."""


SBlockRealize = s_tir.SBlockRealize

for _error in all_errors():
    # TVM's C++ only keeps the class of registered errors.
    tvm_ffi.register_error(_error.__name__, _error)

# --- Relax --------------------------------------------------------------------------------------


def constant_array(expression: object) -> npt.NDArray[Any] | None:
    """Return the values of a Relax constant; None for other expressions."""
    return expression.value.numpy() if isinstance(expression, GenericConst) else None


def float_value(value: float) -> Expr:
    """Return a scalar argument of a Relax operator."""
    return tirx.FloatImm("float32", value)


def int32(value: int | PrimExpr) -> PrimExpr:
    """A 32-bit constant, or an expression converted to 32 bits."""
    return tirx.IntImm("int32", value) if isinstance(value, int) else value.astype("int32")


def int64(value: int | PrimExpr) -> PrimExpr:
    """A 64-bit constant, or an expression converted to 64 bits."""
    return tirx.IntImm("int64", value) if isinstance(value, int) else value.astype("int64")


def float_argument(expression: object) -> float:
    """Return the value of a constant scalar argument of a Relax operator."""
    array = constant_array(expression)
    value = getattr(expression, "value", expression) if array is None else array.reshape(-1)[0]
    if not isinstance(value, (int, float, np.number)):
        raise ValueError("a bound is not a constant")
    return float(value)


def static_shape(expression: Expr) -> tuple[int, ...] | None:
    """Return the shape of a tensor expression; None for non-tensors and symbolic dimensions."""
    return static_type_shape(expression.ty)


def static_type_shape(type_: object) -> tuple[int, ...] | None:
    """Return the shape of a tensor type; None for non-tensors and symbolic dimensions."""
    shape = getattr(type_, "shape", None)
    if shape is None or not hasattr(type_, "dtype"):
        return None
    dimensions = list(shape.values) if hasattr(shape, "values") else list(shape)
    if not all(isinstance(dimension, (int, tirx.IntImm)) for dimension in dimensions):
        return None
    return tuple(int(dimension) for dimension in dimensions)


def dtype_of(expression: Expr) -> str:
    """Return the element type of a tensor expression, such as `float32`; empty for non-tensors."""
    return type_dtype(expression.ty)


def type_dtype(type_: object) -> str:
    """Return the element type of a tensor type; empty for non-tensors."""
    return str(getattr(type_, "dtype", ""))


def tuple_fields(type_: Type) -> list[Type]:
    """Return the field types of a tuple type, or the type itself as the only field."""
    return list(type_.fields) if isinstance(type_, TupleType) else [type_]


def operator_name(call: object) -> str:
    """Return the operator of a Relax call without `relax.`, such as `nn.conv2d`; empty for
    others."""
    operator = getattr(call, "op", None)
    return str(operator.name).removeprefix("relax.") if isinstance(operator, Op) else ""


def bindings_of(function: Function) -> Iterator[Binding]:
    """Yield the bindings of a Relax function in execution order."""
    for block in function.body.blocks:
        yield from block.bindings


def relax_functions(module: IRModule) -> Iterator[tuple[GlobalVar, Function]]:
    """Yield (global variable, function) for each Relax function of a module."""
    for variable, function in module.functions.items():
        if isinstance(function, Function):
            yield variable, function


def prim_functions(module: IRModule) -> Iterator[tuple[GlobalVar, PrimFunc]]:
    """Yield (global variable, function) for each TIR prim func of a module, sorted by name."""
    for variable, function in sorted(module.functions.items(), key=lambda item: item[0].name_hint):
        if isinstance(function, PrimFunc):
            yield variable, function


def function_attribute(function: BaseFunction, name: str) -> Any:
    """Return an attribute of a function; None if absent."""
    return function.attrs[name] if function.attrs and name in function.attrs else None


def make_call(call: Call, *, span: Span | None) -> Call:
    """Return a copy of a Relax call with another span."""
    return relax.Call(call.op, call.args, call.attrs, call.ty_args, span)


def emit_like(builder: BlockBuilder, variable: Var, value: Expr, name: str | None = None) -> Var:
    """Bind a value in a mutator's builder to a new variable of the same kind as `variable`.

    The variable also keeps the name unless `name` is given.
    """
    name = name or str(variable.name)
    dataflow = isinstance(variable, relax.DataflowVar)
    if dataflow or not builder.current_block_is_dataflow():
        return builder.emit(value, name)
    return builder.emit_output(value, name)


def name_span(name: str, result: str = "") -> Span:
    """Return a source span that names the node of the user's model that a call came from.

    Spans carry a call's origin through the pipeline: first the node's name, after partitioning the
    rows of the offload report.

    Args:
        result: name of a later node that yields the call's result, such as the QuantizeLinear
            behind a Conv; empty for the same node.
    """
    later = "" if result == name else result
    return tvm.ir.Span(tvm.ir.SourceName(name + later), 0, 0, len(name), 0)


def name_of(call: object) -> str | None:
    """Return the node name that `name_span` put on a call; None without a name."""
    return span_name(getattr(call, "span", None))


def span_name(span: Span | None) -> str | None:
    """Return the node name in a span of `name_span`; None without a name."""
    names = _names_in(span)
    return None if names is None else names[0]


def result_name(span: Span | None) -> str | None:
    """Return the name of the result's node in a span of `name_span`; None without a name."""
    names = _names_in(span)
    return None if names is None else names[1] or names[0]


def span_with_result(span: Span | None, result: Span | None) -> Span | None:
    """Return a span with the node name of `span` and the name of the result's node of `result`, or
    `result` if one of the names is missing."""
    name, last = span_name(span), result_name(result)
    return result if name is None or last is None else name_span(name, last)


def _names_in(span: Span | None) -> tuple[str, str] | None:
    if span is None or int(span.line) != 0:
        return None
    text, length = str(span.source_name.name), int(span.column)
    return text[:length], text[length:]


def rows_span(rows: Iterable[int]) -> Span:
    """Return a source span with the rows of the offload report for a call."""
    name = ",".join(str(row) for row in sorted(set(rows)))
    return tvm.ir.Span(tvm.ir.SourceName(name), 1, 1, 0, 0)


def rows_of(call: object) -> tuple[int, ...]:
    """Return the rows that `rows_span` put on a call; empty without rows."""
    span = getattr(call, "span", None)
    if span is None or int(span.line) != 1 or not span.source_name.name:
        return ()
    return tuple(int(row) for row in str(span.source_name.name).split(","))


def tensor_type(shape: Iterable[int], dtype: str) -> Type:
    """Return the Relax type of a tensor."""
    return relax.TensorType(list(shape), dtype)


def register_operator(
    name: str,
    description: str,
    infer: Callable[[Call, BlockBuilder], Type],
    legalize: Callable[[BlockBuilder, Call], Expr] | None = None,
) -> None:
    """Register a Relax operator `relax.<name>` without side effects.

    Args:
        name: name without `relax.`.
        infer: (call, block builder) -> type of the result.
        legalize: (block builder, call) -> call of a TIR function, for operators with the same
            lowering on every target.
    """
    full_name = f"relax.{name}"
    if full_name not in Op.list_op_names():
        tvm.ir.op._ffi_api.RegisterOp(full_name, description)
        tvm.ir.register_op_attr(full_name, "FInferType", infer)
        tvm.ir.register_op_attr(full_name, "FPurity", True)
        if legalize is not None:
            tvm.ir.register_op_attr(full_name, "FLegalize", legalize)


def operator_call(
    name: str, operands: Iterable[Expr], attributes: Mapping[str, Any], span: Span | None = None
) -> Call:
    """Return a call of an operator of `register_operator`.

    Args:
        name: name without `relax.`.
        attributes: integers, strings, and sequences of integers.
    """
    attrs = tvm.ir.make_node("ir.DictAttrs", **attributes)
    return relax.Call(Op.get(f"relax.{name}"), list(operands), attrs, None, span)


def changed_attributes(attributes: Node, changed: Mapping[str, Any]) -> Node:
    """Return a copy of a call's attributes with some values changed."""
    if isinstance(attributes, tvm.ir.DictAttrs):
        fields = {str(name): value for name, value in attributes.items()}
        return tvm.ir.make_node("ir.DictAttrs", **{**fields, **changed})
    kind: Any = getattr(type(attributes), "__tvm_ffi_type_info__")  # noqa: B009
    fields = {field.name: getattr(attributes, field.name) for field in kind.fields}
    return tvm.ir.make_node(kind.type_key, **{**fields, **changed})


def operand_names(call: Call) -> list[str]:
    """Return the names of a Relax operator's operands; empty for calls of functions."""
    return [str(argument.name) for argument in getattr(call.op, "arguments", None) or ()]


def legalization(operator: str) -> Legalization:
    """Return TVM's legalization of an operator `relax.<name>`: (block builder, call) ->
    expression."""
    return Op.get(operator).get_attr("FLegalize")


@contextlib.contextmanager
def legalizing_by(rules: Mapping[str, Callable[[Any, Any], Any]]) -> Iterator[None]:
    """Override legalizations of operators within the context, also in TVM's constant folding."""
    usual = {name: legalization(name) for name in rules}

    def put(chosen: Mapping[str, Any]) -> None:
        for name, rule in chosen.items():
            Op.get(name).reset_attr("FLegalize")
            tvm.ir.register_op_attr(name, "FLegalize", rule)

    put(rules)
    try:
        yield
    finally:
        put(usual)


# --- Walking and rewriting TIR ------------------------------------------------------------------


def walk(root: object, callbacks: list[tuple[Any, Callable[[Any], Any]]]) -> None:
    """Call the first callback whose type fits for each node below `root`, children first."""

    def silent(function: Callable[[Any], Any]) -> Callable[[Any], None]:
        def call(node: object) -> None:
            function(node)

        return call

    _walk(root, [(kind, silent(function)) for kind, function in callbacks])


def rewrite(root: N, callbacks: list[tuple[Any, Callable[[Any], Any]]]) -> N:
    """Return a copy of `root` with nodes of given types replaced by the results of callbacks."""
    rewritten: N = tvm_ffi._ffi_api.StructuralMap(root, _entries(callbacks), [], _CHILDREN_FIRST)
    return rewritten


# `tvm_ffi.structural_walk` and `structural_map` look up the types of callbacks again in every
# call, which takes longer than to walk through an expression.
_CHILDREN_FIRST = int(tvm_ffi.WalkOrder.POSTORDER)


@functools.cache
def _type_index(kind: Any) -> int:
    index: int = tvm_ffi.core.TypeSchema.from_annotation(kind).origin_type_index
    return index


def _entries(callbacks: Sequence[tuple[Any, Callable[[Any], Any]]]) -> list[tuple[int, Any]]:
    """Return type indices with callbacks, the form that TVM's walks take."""
    return [(_type_index(kind), function) for kind, function in callbacks]


def _walk(root: object, callbacks: list[tuple[Any, Callable[[Any], None]]]) -> None:
    tvm_ffi._ffi_api.StructuralWalk(root, _entries(callbacks), [], _CHILDREN_FIRST)


LEAVES = (tirx.IntImm, tirx.FloatImm, tirx.Var)
"""Types of nodes without children."""


def collect(root: object, kind: type[N]) -> list[N]:
    """Return all nodes of one type below `root`, children first."""
    if isinstance(root, LEAVES):  # a walk takes longer to begin than to do
        return [root] if isinstance(root, kind) else []
    found: list[N] = []
    _walk(root, [(kind, found.append)])
    return found


def flatten_statements(statement: Stmt) -> list[Stmt]:
    """Return the statements of nested sequences as one flat list."""
    if isinstance(statement, tirx.SeqStmt):
        return [inner for child in statement.seq for inner in flatten_statements(child)]
    return [statement]


def buffer_shape(buffer: Buffer) -> tuple[int, ...]:
    """Return the constant shape of a TIR buffer."""
    return tuple(int(extent) for extent in buffer.ty.shape)


def buffer_dtype(buffer: Buffer) -> str:
    """Return the element type of a TIR buffer."""
    return str(buffer.ty.dtype)


def buffer_scope(buffer: Buffer) -> str:
    """Return the storage scope of a TIR buffer, for example `global` or `local`."""
    return str(buffer.ty.storage_scope)


def buffer_bytes(buffer: Buffer) -> int:
    """Return the size of a TIR buffer in bytes."""
    return int(np.prod(buffer_shape(buffer), dtype=np.int64)) * element_bytes(buffer_dtype(buffer))


def whole_region(buffer: Buffer) -> Node:
    """Return the region of a whole buffer, for the reads and writes of a block."""
    ranges = [tvm.ir.Range.from_min_extent(0, extent) for extent in buffer.shape]
    return tirx.BufferRegion(buffer, ranges)


def element_bytes(dtype: str) -> int:
    """Return the bytes of one element of a TVM dtype. A bool takes one byte."""
    return np.dtype(dtype).itemsize


def register_intrinsic(name: str, description: str) -> Op:
    """Return a TIR operator with side effects, registered on first use."""
    if name not in Op.list_op_names():
        tvm.ir.op._ffi_api.RegisterOp(name, description)
        effect = Op.get("tirx.call_extern").get_attr("TCallEffectKind")
        tvm.ir.register_op_attr(name, "TCallEffectKind", effect)
    return Op.get(name)


def operator_names() -> list[str]:
    """Return the names of all registered TVM operators."""
    return [str(name) for name in Op.list_op_names()]


def intrinsic_call(dtype: str, name: str, arguments: Iterable[Any]) -> Call:
    """Return a call of a TIR operator."""
    return tirx.call_intrin(dtype, name, *arguments)


def call_of_pattern(pattern: DFPattern) -> tuple[str, list[DFPattern]] | None:
    """Return the operator name and operand patterns of a call pattern; None for other patterns.

    For `a | b`, the result describes `a`. Conditions on attributes, dtype and shape are ignored.
    """
    while True:
        inner = getattr(pattern, "pattern", None) or getattr(pattern, "left", None)
        if inner is None:
            break
        pattern = inner
    name = getattr(getattr(getattr(pattern, "op", None), "expr", None), "name", None)
    return None if name is None else (str(name), list(pattern.args))


def is_constant_pattern(pattern: DFPattern) -> bool:
    """Return whether a pattern matches constants only."""
    return type(pattern).__name__ == "ConstantPattern"


def dtype_of_expression(expression: PrimExpr) -> str:
    """Return the dtype of a TIR expression."""
    return str(expression.ty.dtype)


def pointed_buffer(expression: Expr) -> Buffer | None:
    """Return the buffer whose address an expression is, such as `buffer.data`; None for others."""
    if not isinstance(expression, Call) or not str(expression.op.name).endswith("buffer_data"):
        return None
    return expression.args[0]


def is_external_call(expression: object) -> bool:
    """Return whether a TIR expression calls a C function by name."""
    name = str(getattr(getattr(expression, "op", None), "name", ""))
    return isinstance(expression, Call) and name.endswith(("call_extern", "call_pure_extern"))


def integer_value(expression: object) -> int | None:
    """Return the value of a constant integer expression; None for other expressions."""
    if isinstance(expression, int):
        return expression
    return int(expression.value) if isinstance(expression, tirx.IntImm) else None


def simplified(expression: Expr) -> Expr:
    """Return a simplified integer expression."""
    return tvm.sym.Analyzer().simplify(expression)


def buffers_in(expression: object) -> list[Buffer]:
    """Return the buffers that an expression mentions."""
    return [v for v in collect(expression, Var) if tirx.is_buffer_var(v)]


def symbolic_offset(buffer: Buffer) -> Var | None:
    """Return the variable for a buffer's offset in its allocation; None without a variable.

    Tensors of a Relax network start at their pointer, so the value is always 0.
    """
    offset = buffer.ty.elem_offset
    return offset if isinstance(offset, Var) else None


# --- Targets, reference executables ---------------------------------------------------------------


def c_target() -> Target:
    """Return the target for CPU code: C, as its own host."""
    target = Target("c")
    return target.with_host(target)


SHORTENING = ("tirx.RemoveNoOp", "s_tir.HoistIfThenElse")
"""Passes of an LLVM build that only make TIR shorter, in up to half of the time of a small one."""

SIMPLIFYING = (
    "s_tir.CompactBufferAllocation", "s_tir.StmtSimplify", "s_tir.RenormalizeSplitPattern",
    "tirx.StmtSimplify",
)  # fmt: skip
"""Passes that take half of the rest, and save time only where a network runs long."""


def llvm_executable(
    module: IRModule, parameters: Mapping[str, Any] | None = None, *, optimize: bool = False
) -> relax.VirtualMachine:
    """Build a Relax module by TVM's LLVM backend and return a virtual machine on the CPU.

    Args:
        optimize: whether LLVM optimizes, which takes longer than a run of a small network.
    """
    if parameters:
        module = relax_transform.BindParams("main", dict(parameters))(module)
    target = Target({"kind": "llvm", "opt-level": int(optimize)})
    unneeded = SHORTENING if optimize else SHORTENING + SIMPLIFYING
    with tvm.transform.PassContext(disabled_pass=list(unneeded)):
        executable = tvm.compile(module, target=target)
    if not optimize:
        _link(executable.mod)
    return relax.VirtualMachine(executable, tvm.cpu())


def _link(executable: Node) -> None:
    """Replace the LLVM module of a virtual machine's executable by a shared library.

    TVM would compile the module in memory, always with optimization, which takes three times as
    long as writing and linking an object file. Without a compiler, the module stays.
    """
    modules, compiler = list(executable.imports), shutil.which("cc")
    if compiler is None or [module.kind for module in modules] != ["llvm"]:
        return
    # Without a temporary folder or a working `cc`, the module stays in memory.
    with (
        contextlib.suppress(OSError),
        tempfile.TemporaryDirectory(prefix="umakit-llvm-") as folder,
    ):
        file, library = f"{folder}/network.o", f"{folder}/network.so"
        modules[0].write_to_file(file)
        command = [compiler, "-shared", "-Wl,-z,now", file, "-o", library, "-lm"]
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            return
        try:
            linked = tvm.runtime.load_module(library)
        except TVM_ERRORS:
            return
        executable.clear_imports()
        executable.import_module(linked)


def to_device(array: npt.NDArray[Any]) -> Node:
    """Return a NumPy array as a TVM tensor on the CPU."""
    return tvm.runtime.tensor(np.ascontiguousarray(array))


def abandon(builder: BlockBuilder) -> None:
    """Close the open blocks of a block builder, which would otherwise print a warning."""
    try:
        builder._end_block()
    except TVM_ERRORS:
        return


def onnx_frontend() -> ModuleType:
    """Return TVM's ONNX frontend, imported on first use."""
    from tvm.relax.frontend.onnx import onnx_frontend as module

    return module


def tflite_frontend() -> ModuleType:
    """Return TVM's TensorFlow Lite frontend, imported on first use."""
    from tvm.relax.frontend.tflite import tflite_frontend as module

    return module


def torch_frontend() -> ModuleType:
    """Return TVM's frontend for exported PyTorch programs. Requires torch."""
    from tvm.relax.frontend.torch import exported_program_translator as module

    return module


def load_json(text: str) -> object:
    """Return the object that `tvm.ir.save_json` saved; damaged text raises any exception."""
    return tvm.ir.load_json(text)


def load_module(path: Path) -> Node:
    """Load a runtime module from a shared object with TVM's calling convention."""
    return tvm.runtime.load_module(str(path))


def ffi_build_flags() -> list[str]:
    """Return C compiler flags to build against TVM's foreign function interface."""
    library = Path(tvm_ffi.libinfo.find_libtvm_ffi())
    return [
        f"-I{tvm_ffi.libinfo.find_include_path()}",
        f"-I{tvm_ffi.libinfo.find_dlpack_include_path()}",
        str(library),
        f"-Wl,-rpath,{library.parent}",
    ]


def ffi_headers() -> list[str]:
    """Return C compiler flags for the headers of TVM's foreign function interface."""
    folders = (tvm_ffi.libinfo.find_include_path(), tvm_ffi.libinfo.find_dlpack_include_path())
    return [word for folder in folders for word in ("-isystem", str(folder))]


# --- RPC ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def rpc_session(host: str, port: int, seconds: float) -> Iterator[Any]:
    """Connect to TVM's RPC server."""
    from tvm import rpc

    session = rpc.connect(host, port, session_timeout=seconds)
    try:
        yield session
    finally:
        # The connection closes when no references remain.
        session._remote_funcs.clear()
        del session


def rpc_machine(session: Any) -> str:
    """Return the architecture in an RPC server's target triple, such as `x86_64`."""
    triple = session.get_function("tvm.codegen.llvm.GetDefaultTargetTriple")()
    return str(triple).partition("-")[0]


@contextlib.contextmanager
def uploaded(session: Any, name: str, content: bytes) -> Iterator[None]:
    """Upload a file to an RPC server and remove it at the end of the context."""
    session.upload(bytearray(content), name)
    try:
        yield
    finally:
        with contextlib.suppress(*TVM_ERRORS):  # the connection may be lost
            session.remove(name)


def bytes_there(session: Any, data: bytes) -> Any:
    """Return a tensor of bytes on an RPC server."""
    array = np.frombuffer(data or b"\0", np.uint8)
    return tvm.runtime.tensor(array, device=session.cpu(0))


def bytes_from(session: Any, module: Any, stream: int) -> bytes:
    """Return the output of a program on an RPC server to a stream, see platform_rpc.c."""
    size = int(module["umakit_size"](stream))
    if size <= 0:
        return b""
    tensor = tvm.runtime.empty((size,), "uint8", session.cpu(0))
    module["umakit_fetch"](stream, tensor)
    return bytes(tensor.numpy().tobytes())
