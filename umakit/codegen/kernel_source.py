# SPDX-License-Identifier: Apache-2.0
"""C99 text of a kernel: a static function with pointer parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from umakit import tir, tvm_api
from umakit.codegen.c_arithmetic import SUM_COMMENT, dtype
from umakit.codegen.c_types import c_type
from umakit.codegen.driver_call_source import INDENT, DriverCallPrinter
from umakit.codegen.driver_headers import DriverHeaders
from umakit.codegen.expressions import ExpressionPrinter
from umakit.codegen.integer_ranges import IntegerRanges
from umakit.codegen.kernel_statements import scalars
from umakit.codegen.listing import wrapped_call
from umakit.codegen.part_source import PrintedParts, RangeOfPart
from umakit.codegen.signed_sums import with_signed_sums
from umakit.codegen.value_names import AXES, COMMON_SUBEXPRESSION, SCRATCH, VARIABLES, ValueNames
from umakit.lower.check_statements import is_index_check
from umakit.lower.driver_calls import DriverCall, Parameter
from umakit.lower.index_ranges import Elements
from umakit.lower.kernels import Kernel
from umakit.registration.registered import ReplaceCallExtern

tirx = tvm_api.tirx
NO_HEADERS = DriverHeaders()


@dataclass(frozen=True)
class KernelSource:
    """A printed kernel.

    Attributes:
        parameters: C declarations of the parameters.
        body: C text between the braces, indented.
        returns_status: whether the function returns `int32_t` instead of `void`.
        wraps: whether arithmetic could overflow, as far as ranges show.
        parts: ranges of loops; a call computes one of them. None if a call computes everything.
    """

    parameters: tuple[str, ...]
    body: str
    returns_status: bool
    helpers: frozenset[str]
    headers: frozenset[str]
    wraps: bool = False
    parts: PrintedParts | None = None

    def definition(self, name: str) -> str:
        """Return the complete C function."""
        result = "int32_t" if self.returns_status else "void"
        parameters = "".join(f"\n{INDENT}{parameter}," for parameter in self.parameters)[:-1]
        return f"static {result} {name}({parameters})\n{{\n{self.body}}}\n"


def print_kernel(
    kernel: Kernel,
    replace_call_extern: ReplaceCallExtern | None = None,
    overwritten: int | None = None,
    headers: DriverHeaders = NO_HEADERS,
    constants: Mapping[int, Elements] | None = None,
    inputs: Mapping[int, str] | None = None,
) -> KernelSource:
    """Print a kernel.

    Args:
        replace_call_extern: the backend's hook for external calls.
        overwritten: index of the input that the output overwrites: both become one parameter.
        constants: elements of inputs that are constants in all calls, by the input's index, to
            prove that arithmetic cannot overflow.
        inputs: names of inputs by index; other inputs are called `input` and a number.
    """
    kernel, ranges, wrapping_sums = with_signed_sums(kernel, constants)
    expressions = ExpressionPrinter(kernel.name, replace_call_extern, ranges)
    printer = _StatementPrinter(
        kernel, expressions, overwritten, headers, wrapping_sums, inputs or {}
    )
    for store in tvm_api.collect(list(kernel.statements), tirx.BufferStore):
        expressions.write(store.buffer)
    for node in kernel.body:
        printer.print(node)
    if kernel.returns_status and not isinstance(kernel.body[-1], tirx.Return):
        printer.print_end()
    return KernelSource(
        tuple(printer.parameters),
        "".join([*printer.beginning(), *printer.lines]),
        kernel.returns_status,
        frozenset(printer.expressions.helpers),
        frozenset(printer.expressions.headers),
        printer.wraps,
        None if kernel.parts is None else PrintedParts.of(kernel, kernel.parts),
    )


class _StatementPrinter(DriverCallPrinter):
    def __init__(
        self,
        kernel: Kernel,
        expressions: ExpressionPrinter,
        overwritten: int | None,
        headers: DriverHeaders,
        wrapping_sums: frozenset[Any],
        names: Mapping[int, str],
    ) -> None:
        super().__init__(kernel, expressions, headers)
        self.wraps = bool(wrapping_sums)
        self._wrapping_sums = wrapping_sums
        self._value_names = ValueNames(
            kernel.statements, self._known_name, expressions.arithmetic.is_data
        )
        self._scalars = scalars(kernel.statements)
        self._undefined: list[Any] = []
        # Named by their part, not by the network's tensors: equal kernels get equal text. Kernels
        # of our own name what they are given.
        self._keeps_names = kernel.keeps_names
        inputs = [p for number, p in enumerate(kernel.inputs) if number != overwritten]
        wanted = {p: names[n] for n, p in enumerate(kernel.inputs) if n in names}
        self._range = RangeOfPart.of(kernel.parts, self.expressions.own_name)
        self.parameters = [
            *self._pointers(inputs, "input", "const ", wanted),
            *self._pointers(kernel.outputs, "output"),
            *self._pointers(kernel.scratch, "scratch", names=_scratch_names(kernel)),
            *([self._range.parameter] if self._range else []),
        ]
        if overwritten is not None:
            self.expressions.alias(kernel.inputs[overwritten].variable, kernel.outputs[0].variable)

    def _pointers(
        self,
        parameters: Sequence[Parameter],
        part: str,
        qualifier: str = "",
        names: Mapping[Parameter, str] | None = None,
    ) -> list[str]:
        """Return declarations of parameters with names of `names`, else `part`, or `part_0`, ...
        for several."""
        declarations = []
        for number, parameter in enumerate(parameters):
            wanted = part if len(parameters) == 1 else f"{part}_{number}"
            wanted = (names or {}).get(parameter, wanted)
            if self._keeps_names:
                # FuseTIR names the last result of a fused function an intermediate.
                wanted = str(parameter.variable.name).removesuffix("_intermediate")
                wanted += "_offset" if parameter.pool else ""
            name = self.expressions.declare(parameter.variable, wanted)
            offset = tvm_api.symbolic_offset(parameter.variable)
            if offset is not None:
                self.expressions.substitute(offset, "0")
            declarations.append(
                f"uint32_t {name}"
                if parameter.pool
                else f"{qualifier}{c_type(parameter.dtype)} *restrict {name}"
            )
        return declarations

    def beginning(self) -> list[str]:
        """Return the lines in front of all printed lines, after these were printed.

        The lines declare named constants, mark unused parameters as intended, and declare the
        status.
        """
        constants = [f"{name} = {value}" for (_, value), name in self.expressions.constants.items()]
        enumerators = [wrapped_call(f"{INDENT}enum {{ ", constants, " };") + "\n"]
        body = "".join([*self.lines, *(self._range.lines if self._range else [])])
        names = [parameter.rsplit(" ", 1)[1] for parameter in self.parameters]
        unused = [f"{INDENT}(void){n};\n" for n in names if not re.search(rf"\b{n}\b", body)]
        status = [f"{INDENT}int32_t {self._status};\n\n"]
        status = status if self._checks else []
        part = [f"{INDENT}{line}\n" for line in self._range.lines] if self._range else []
        return [
            *(enumerators if constants else []),
            *unused,
            *status,
            *part,
            *(["\n"] if part else []),
        ]

    def print(self, statement: DriverCall | tvm_api.Stmt) -> None:
        if self._undefined and not self._defines(statement):
            self._declare_undefined()
        if isinstance(statement, DriverCall):
            self.print_driver_call(statement)
            return
        kind = type(statement).__name__
        handler = getattr(self, f"_print_{kind}", None)
        if handler is None:
            raise self.expressions.unsupported(f"TIR statement {kind}")
        handler(statement)

    def _block(self, opening: str, body: tvm_api.Stmt, closing: str = "}") -> None:
        self.line(opening)
        self._depth += 1
        with self.expressions.scope():
            self.print(body)
        self._depth -= 1
        if closing:
            self.line(closing)

    def _print_SeqStmt(self, statement: tvm_api.Stmt) -> None:
        for child in statement.seq:
            self.print(child)

    def _print_For(self, statement: tvm_api.Stmt) -> None:
        if statement.thread_binding is not None:
            raise self.expressions.unsupported("a loop bound to a thread")
        first = self.expressions.text(statement.min, 11)
        extent = self.expressions.text(statement.extent, 11 if first == "0" else 12)
        limit = extent if first == "0" else f"{first} + {extent}"
        if self._range is not None and self._range.parts.is_cut(statement):
            first, limit = self._range.first, self._range.end
        step = 1 if statement.step is None else tvm_api.integer_value(statement.step)
        type_ = c_type(dtype(statement.loop_var))
        with self.expressions.scope():
            axis = str(statement.loop_var.name).removesuffix("_init")
            name = self.expressions.declare(statement.loop_var, AXES.get(axis, axis))
            advance = f"++{name}" if step == 1 else f"{name} += {step}"
            self._block(
                f"for ({type_} {name} = {first}; {name} < {limit}; {advance}) {{", statement.body
            )

    def _print_While(self, statement: tvm_api.Stmt) -> None:
        self._block(f"while ({self.expressions.text(statement.condition)}) {{", statement.body)

    def _print_IfThenElse(self, statement: tvm_api.Stmt) -> None:
        has_else = statement.else_case is not None
        condition = self.expressions.text(statement.condition)
        self._block(f"if ({condition}) {{", statement.then_case, "" if has_else else "}")
        if has_else:
            self._block("} else {", statement.else_case)

    def _print_BufferStore(self, statement: tvm_api.Stmt) -> None:
        if self._undefined:
            # The first value of the variable allocated right before.
            (buffer,), self._undefined = self._undefined, []
            if buffer in self._wrapping_sums:
                self.line(SUM_COMMENT)
            value = self.expressions.text(statement.value)
            name = self.expressions.declare(buffer, VARIABLES.get(str(buffer.name)))
            self.line(f"{c_type(tvm_api.buffer_dtype(buffer))} {name} = {value};")
            return
        target = self.expressions.element(statement.buffer, statement.indices)
        added = _added(statement, self.expressions.arithmetic.ranges)
        if added is not None:
            self.line(f"{target} += {self.expressions.text(added)};")
        else:
            self.line(f"{target} = {self.expressions.text(statement.value)};")

    def _defines(self, statement: DriverCall | tvm_api.Stmt) -> bool:
        """Whether a statement initializes the variable allocated right before."""
        return (
            isinstance(statement, tirx.BufferStore)
            and statement.buffer.same_as(self._undefined[0])
            and not any(
                load.source.same_as(statement.buffer)
                for load in tvm_api.collect(statement.value, tvm_api.TensorLoad)
            )
        )

    def _declare_undefined(self) -> None:
        for buffer in self._undefined:
            if buffer in self._wrapping_sums:
                self.line(SUM_COMMENT)
            name = self.expressions.declare(buffer)
            self.line(f"{c_type(tvm_api.buffer_dtype(buffer))} {name};")
        self._undefined = []

    def _print_Bind(self, statement: tvm_api.Stmt) -> None:
        value = self.expressions.text(statement.value)
        self.expressions.arithmetic.bind(statement.var, statement.value)
        type_ = self.expressions.type_of(statement.var)
        is_common = COMMON_SUBEXPRESSION.fullmatch(str(statement.var.name))
        wanted = self._value_names.name(statement) if is_common else None
        self.line(f"const {type_} {self.expressions.declare(statement.var, wanted)} = {value};")

    def _known_name(self, variable: Any) -> str:
        """Return the C name of a declared variable or buffer, else an empty text."""
        knows = self.expressions.knows(variable)
        return self.expressions.name(variable) if knows else ""

    def _print_AllocBuffer(self, statement: tvm_api.Stmt) -> None:
        buffer = statement.buffer
        if buffer in self._scalars:
            self.expressions.scalar(buffer)
            self._undefined = [buffer]
            return
        if buffer in self._wrapping_sums:
            self.line(SUM_COMMENT)
        name = self.expressions.declare(buffer, SCRATCH.get(str(buffer.name)))
        elements = tvm_api.buffer_shape(buffer)[0]
        self.line(f"{c_type(tvm_api.buffer_dtype(buffer))} {name}[{elements}];")

    def _print_DeclBuffer(self, statement: tvm_api.Stmt) -> None:
        sources = tvm_api.buffers_in(statement.data)
        if len(sources) != 1:
            raise self.expressions.unsupported(f"a view {statement.buffer.name} of an expression")
        self.expressions.alias(statement.buffer, sources[0])

    def _print_AttrStmt(self, statement: tvm_api.Stmt) -> None:
        self.print(statement.body)

    def _print_Evaluate(self, statement: tvm_api.Stmt) -> None:
        call = tir.called_driver(statement)
        if call is not None:
            function, arguments = call
            self._checked_call(function, [self._argument(each) for each in arguments])
        elif isinstance(statement.value, tvm_api.Call):
            self.line(f"(void){self.expressions.text(statement.value, 15)};")

    def _print_Return(self, statement: tvm_api.Stmt) -> None:
        if is_index_check(statement):
            self.line("return INDEX_OUT_OF_RANGE;")
            return
        self.line(f"return {self.expressions.text(statement.value)};")

    def _print_Break(self, statement: tvm_api.Stmt) -> None:
        self.line("break;")

    def _print_Continue(self, statement: tvm_api.Stmt) -> None:
        self.line("continue;")


def _scratch_names(kernel: Kernel) -> dict[Parameter, str]:
    names = {parameter: SCRATCH.get(str(parameter.variable.name)) for parameter in kernel.scratch}
    return {parameter: name for parameter, name in names.items() if name is not None}


def _added(store: tvm_api.Stmt, ranges: IntegerRanges) -> tvm_api.PrimExpr | None:
    """Return the value that a store adds to its element, if C computes the sum in the same type;
    else None."""
    value = store.value
    if not isinstance(value, tirx.Add):
        return None
    signed = dtype(value) in ("int32", "int64") and not ranges.overflows(value)
    if not signed and dtype(value) not in ("uint32", "uint64", "float32"):
        return None
    load = value.a
    same = (
        isinstance(load, tvm_api.TensorLoad)
        and load.source.same_as(store.buffer)
        and tvm_api.tvm_ffi.structural_equal(list(load.indices), list(store.indices))
    )
    return value.b if same else None
