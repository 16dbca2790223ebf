# SPDX-License-Identifier: Apache-2.0
"""C text of a kernel's driver calls: each call, and the return of a status that is not zero."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from umakit import tvm_api
from umakit.codegen.c_arithmetic import overflow_comment
from umakit.codegen.driver_headers import Argument, DriverHeaders, named_arguments
from umakit.codegen.expressions import COMMA, PRIMARY, UNARY, ExpressionPrinter
from umakit.codegen.listing import wrapped, wrapped_call
from umakit.codegen.statuses import SCRATCH_TOO_SMALL, status_function
from umakit.lower.driver_calls import DriverCall, Parameter, TextCall
from umakit.lower.kernels import Kernel
from umakit.registration.kernels import SCRATCH_BYTES
from umakit.text.c_text import filled

INDENT = "    "


@dataclass(frozen=True)
class _CheckedCall:
    """A printed driver call with the check of its status, and a way to print the call as a
    return."""

    print_return: Callable[[], None]
    start: int
    end: int


class DriverCallPrinter:
    """Prints lines of a kernel, and its driver calls with the names of the driver's headers."""

    def __init__(
        self, kernel: Kernel, expressions: ExpressionPrinter, headers: DriverHeaders
    ) -> None:
        self._headers = headers
        self.expressions = expressions
        self.wraps = False
        self.lines: list[str] = []
        self._depth = 1
        for function in kernel.called_functions():
            for name in (function, *headers.names(function)):
                self.expressions.reserve(name)
        for text in (node.text for node in kernel.driver_calls if node.text is not None):
            for name in (*text.identifiers, status_function(kernel.target)):
                self.expressions.reserve(name)
        self._target = kernel.target
        self._status: str | None = None
        if kernel.calls_driver:
            self._status = self.expressions.own_name("status")
        self._checks = 0
        self._last_call: _CheckedCall | None = None

    def line(self, text: str) -> None:
        """Print a line of C, after a comment if its arithmetic could overflow."""
        self._comment_overflow()
        self.lines.append(wrapped(f"{INDENT * self._depth}{text}") + "\n")

    def _comment_overflow(self) -> None:
        """Print a comment if arithmetic in the latest texts could overflow."""
        wrapping, self.expressions.wrapping = self.expressions.wrapping, []
        if wrapping:
            self.wraps = True
            self.lines.append(f"{INDENT * self._depth}{overflow_comment(wrapping)}\n")

    def print_driver_call(self, node: DriverCall) -> None:
        """Print a driver call with named operands."""
        if node.text is not None:
            texts = [
                self.expressions.name(operand.variable)
                if isinstance(operand, Parameter)
                else self.expressions.text(operand, PRIMARY)
                for operand in node.operands
            ]
            self._text_call(node.text, dict(zip(node.text.names, texts, strict=True)))
            return
        arguments = [
            Argument(self.expressions.name(operand.variable), is_integer=bool(operand.pool))
            if isinstance(operand, Parameter)
            else self._argument(operand)
            for operand in node.operands
        ]
        self._checked_call(node.function, arguments)

    def _text_call(self, node: TextCall, operands: Mapping[str, str]) -> None:
        """Print a text call after a check that its scratch suffices."""
        self._comment_overflow()
        if node.scratch is not None:
            size = node.scratch.filled(operands)
            size = size if node.scratch.function else f"({size})"
            self.line(f"if ((int64_t){size} > (int64_t){operands[SCRATCH_BYTES]}) {{")
            self.line(f"{INDENT}return {SCRATCH_TOO_SMALL};")
            self.line("}")
        arguments = [filled(each, operands) for each in node.call.arguments]
        start = f"{INDENT * self._depth}"
        if not node.call.returns_status:
            call = f"{start}(void){node.call.function}("
            self.lines.append(wrapped_call(call, arguments) + "\n")
            return
        # The function's result may be an enumeration.
        call = f"{status_function(self._target)}((int32_t){node.call.function}("
        first = len(self.lines)
        self.lines.append(wrapped_call(f"{start}{self._status} = {call}", arguments, "));") + "\n")
        self._return_status()
        returned = wrapped_call(f"{start}return {call}", arguments, "));") + "\n"
        self._note_last(first, lambda: self.lines.append(returned))

    def _argument(self, expression: tvm_api.PrimExpr) -> Argument:
        plain, operand = (self.expressions.text(expression, least) for least in (COMMA, UNARY))
        value = tvm_api.integer_value(expression)
        return Argument(plain, value, _is_integer(expression), plain != operand)

    def _checked_call(self, function: str, arguments: Sequence[Argument]) -> None:
        """Print a driver call and a return of its status if the status is not zero."""
        self._comment_overflow()
        first = len(self.lines)
        call = self.expressions.external_call(function, [item.text for item in arguments])
        self._call(f"{self._status} = ", call, function, arguments)
        self._return_status()
        self._note_last(first, lambda: self._call("return ", call, function, arguments))

    def _return_status(self) -> None:
        """Print a return of the status if the status is not zero."""
        self.line(f"if ({self._status} != 0) {{")
        self.line(f"{INDENT}return {self._status};")
        self.line("}")
        self._checks += 1

    def _note_last(self, first: int, print_return: Callable[[], None]) -> None:
        """Note a call with a status as possibly the last call of the kernel."""
        if self._depth == 1:
            self._last_call = _CheckedCall(print_return, first, len(self.lines))

    def _call(self, start: str, call: str, function: str, arguments: Sequence[Argument]) -> None:
        """Print a driver call after the start of a statement."""
        if call == f"{function}({', '.join(item.text for item in arguments)})":
            parameters = self._headers.parameters(function, len(arguments))
            start = f"{INDENT * self._depth}{start}{function}("
            self.lines.append(wrapped_call(start, named_arguments(arguments, parameters)) + "\n")
        else:  # the backend's own text
            self.line(f"{start}{call};")

    def print_end(self) -> None:
        """Print the return of 0, or of the last driver call's status if no statement follows the
        call."""
        last = self._last_call
        if last is None or last.end != len(self.lines):
            self.line("return 0;")
            return
        del self.lines[last.start :]
        self._checks -= 1
        last.print_return()


def _is_integer(expression: tvm_api.PrimExpr) -> bool:
    is_pointer = tvm_api.pointed_buffer(expression) is not None
    type_ = str(getattr(expression.ty, "dtype", ""))
    return not is_pointer and type_.startswith(("int", "uint"))
