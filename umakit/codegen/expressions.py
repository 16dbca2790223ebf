# SPDX-License-Identifier: Apache-2.0
"""C99 text of TIR expressions."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from umakit import tir, tvm_api
from umakit.codegen.c_arithmetic import (
    BY_DTYPE,
    SMALL_INTEGERS,
    CArithmetic,
    WrappingOperation,
    dtype,
    is_promotion,
)
from umakit.codegen.c_types import c_type, float_literal, integer_literal
from umakit.codegen.helpers import needed_helpers
from umakit.codegen.integer_ranges import ARITHMETIC, IntegerRanges
from umakit.errors import LoweringError
from umakit.operators.kernels.dot_forms import header_of_form
from umakit.operators.numeric import requantize
from umakit.registration.registered import ReplaceCallExtern
from umakit.text.escaping import shown
from umakit.text.names import (
    MATH_HEADER,
    MEMORY_HEADER,
    VECTOR_FUNCTIONS,
    c_identifier,
    header_of,
    is_identifier,
    unique,
)

tirx = tvm_api.tirx

PRIMARY, UNARY, SUM, COMPARISON, CONDITIONAL, COMMA = 20, 15, 11, 8, 2, 0
BINARY = {
    "Mul": ("*", 12), "Div": ("/", 12), "Mod": ("%", 12), "Add": ("+", 11), "Sub": ("-", 11),
    "And": ("&&", 4), "Or": ("||", 3),
}  # fmt: skip
COMPARISONS = {
    "LT": ("<", 9), "LE": ("<=", 9), "GT": (">", 9), "GE": (">=", 9), "EQ": ("==", 8),
    "NE": ("!=", 8),
}  # fmt: skip
DIVISIONS = {"Div": "quotient", "Mod": "remainder"}
OPPOSITE = {"Add": "-", "Sub": "+"}
EXTREMES = {"Max": ("maximum", "at_least"), "Min": ("minimum", "at_most")}
BITWISE = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"}
"""C's operators always get parentheses, because their precedences are surprising."""
BIT_OPERATIONS = {
    "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor",
    "BitwiseNot": "bitwise_not", "LShift": "shift_left", "RShift": "shift_right",
}  # fmt: skip
"""Nodes of operations that TIR has as calls too, with the names of the calls."""
MATH_FUNCTIONS = frozenset(
    "acos acosh asin asinh atan atan2 atanh ceil copysign cos cosh erf exp exp2 floor fmod hypot "
    "log log10 log1p log2 nearbyint pow round sin sinh sqrt tan tanh trunc".split()
)
HELPERS_OF_MATH = ("rsqrt", "sigmoid")
FLOATS = ("float32", "float64")


class ExpressionPrinter:
    """Prints expressions of one kernel.

    Attributes:
        helpers: names of the inline helpers (`maximum_float32`, ...) in the text.
        constants: names of the enumerators in the text, by wanted name and value.
        wrapping: signed operations of the statement that could overflow and wrap around.
    """

    def __init__(
        self,
        kernel: str,
        replace_call_extern: ReplaceCallExtern | None = None,
        ranges: IntegerRanges | None = None,
    ) -> None:
        self._kernel = kernel
        self.arithmetic = CArithmetic(ranges)
        self.wrapping: list[WrappingOperation] = []
        self._replace_call_extern = replace_call_extern
        self._names: dict[Any, str] = {}
        self._values: dict[Any, str] = {}
        self._scalars: set[Any] = set()
        self._taken: set[str] = set()
        self._written: set[Any] = set()
        self.constants: dict[tuple[str, int], str] = {}
        self.helpers: set[str] = set()
        self.headers: set[str] = set()

    # --- names --------------------------------------------------------------------------------

    def declare(self, variable: tvm_api.Var, wanted: str | None = None) -> str:
        """Assign a variable or buffer a new C name, derived from `wanted` or its own name."""
        name = unique(c_identifier(wanted or str(variable.name)), self._taken)
        self._names[variable] = name
        return name

    def own_name(self, name: str) -> str:
        """Return a name that no variable of the kernel gets; derived from `name` if a called
        function has this name."""
        return unique(name, self._taken)

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Open a C block; names declared in the block are free again at its end."""
        outside = set(self._taken)
        yield
        self._taken = outside

    def substitute(self, variable: tvm_api.Var, text: str) -> None:
        """Print a variable as a text, which must not need parentheses."""
        self._values[variable] = text

    def reserve(self, name: str) -> None:
        """Reserve a name for a function that the kernel calls."""
        self._taken.add(name.lower())

    def alias(self, buffer: tvm_api.Buffer, original: tvm_api.Buffer) -> None:
        """Give a view the name of its buffer."""
        if tvm_api.buffer_dtype(buffer) != tvm_api.buffer_dtype(original):
            raise self.unsupported(f"a view of {original.name} as another dtype")
        self._names[buffer] = self.name(original)

    def name(self, variable: tvm_api.Var) -> str:
        """Return the C name of a declared variable or buffer."""
        if variable not in self._names:
            raise self.unsupported(f"undeclared variable {variable.name}")
        return self._names[variable]

    def knows(self, variable: tvm_api.Var) -> bool:
        """Whether a variable or buffer is declared."""
        return variable in self._names

    def unsupported(self, what: str) -> LoweringError:
        """Return the error for a construct without C text."""
        return LoweringError(f"{what} cannot become C", where=f"kernel {self._kernel}")

    # --- expressions --------------------------------------------------------------------------

    def text(self, expression: tvm_api.PrimExpr, minimum: int = COMMA) -> str:
        """Return C text of an expression, in parentheses if its precedence is below `minimum`."""
        text, precedence = self._print(expression)
        return f"({text})" if precedence < minimum else text

    def scalar(self, buffer: tvm_api.Buffer) -> None:
        """Print a buffer of one element as a plain variable."""
        self._scalars.add(buffer)

    def element(self, buffer: tvm_api.Buffer, indices: Sequence[tvm_api.PrimExpr]) -> str:
        """Return C text of `buffer[index]`."""
        if buffer in self._scalars:
            return self.name(buffer)
        if len(indices) != 1:
            raise self.unsupported(f"access to {buffer.name} with {len(indices)} indices")
        if isinstance(indices[0], tirx.Ramp):
            return self._vector_at(buffer, indices[0])
        return f"{self.name(buffer)}[{self.text(indices[0])}]"

    def _vector_at(self, buffer: tvm_api.Buffer, index: tvm_api.PrimExpr) -> str:
        """Return C text of a vector of consecutive elements."""
        if tvm_api.integer_value(index.stride) != 1:
            raise self.unsupported(f"access to every other element of {buffer.name}")
        lanes = tvm_api.integer_value(index.lanes)
        vector = self._vector(f"{tvm_api.buffer_dtype(buffer)}x{lanes}")
        qualifier = "" if buffer in self._written else "const "
        return f"*({qualifier}{vector} *)&{self.name(buffer)}[{self.text(index.base)}]"

    def _vector(self, type_: str) -> str:
        """Return the C type of a vector, and note its definition as required."""
        self.helpers.add(f"vector_{type_}")
        return type_

    def type_of(self, expression: tvm_api.PrimExpr) -> str:
        """Return the C type of an expression, which may be a vector."""
        type_ = dtype(expression)
        return self._vector(type_) if "x" in type_ else c_type(type_)

    def write(self, buffer: tvm_api.Buffer) -> None:
        """Note a store to a buffer: pointers to its vectors are then not const."""
        self._written.add(buffer)

    def _print_Broadcast(self, node: tvm_api.PrimExpr) -> tuple[str, int]:
        vector = self._vector(dtype(node))
        self.helpers.add(f"broadcast_{vector}")
        return f"broadcast_{vector}({self.text(node.value)})", PRIMARY

    def _print_Shuffle(self, node: tvm_api.PrimExpr) -> tuple[str, int]:
        """Print the lower or the upper half of two interleaved vectors."""
        vector, order = dtype(node), [tvm_api.integer_value(each) or 0 for each in node.indices]
        lanes = len(order)
        for half, first in (("lower", 0), ("upper", lanes // 2)):
            if order == [first + n // 2 + lanes * (n % 2) for n in range(lanes)]:
                self._vector(vector)
                self.helpers.add(f"{half}_{vector}")
                operands = ", ".join(self.text(each) for each in node.vectors)
                return f"{half}_{vector}({operands})", PRIMARY
        raise self.unsupported("a shuffle of vectors")

    def _print(self, node: tvm_api.PrimExpr) -> tuple[str, int]:
        kind = type(node).__name__
        if kind in COMPARISONS:
            return self._comparison(node, kind)
        if kind in BINARY:
            return self._binary(node, kind)
        if kind in BIT_OPERATIONS:
            operands = [node.a] if kind == "BitwiseNot" else [node.a, node.b]
            return self._on_bits(BIT_OPERATIONS[kind], *operands)
        if kind in EXTREMES:
            return self._extreme(node, *EXTREMES[kind]), PRIMARY
        handler: Callable[[Any], tuple[str, int]] | None = getattr(self, f"_print_{kind}", None)
        if handler is None:
            raise self.unsupported(f"TIR expression {kind}")
        return handler(node)

    def _comparison(self, node: tvm_api.PrimExpr, kind: str) -> tuple[str, int]:
        symbol, precedence = COMPARISONS[kind]
        for constant, outcome in (
            (node.b, {"GE": "true", "LT": "false"}),
            (node.a, {"LE": "true", "GT": "false"}),
        ):
            # Compilers warn about constant conditions: an unsigned number is never negative.
            unsigned = dtype(constant).startswith("uint")
            if unsigned and tvm_api.integer_value(constant) == 0 and kind in outcome:
                return outcome[kind], PRIMARY
        # Operands that are comparisons get parentheses, as compilers want it.
        return f"{self.text(node.a, SUM)} {symbol} {self.text(node.b, SUM)}", precedence

    def _binary(self, node: tvm_api.PrimExpr, kind: str) -> tuple[str, int]:
        type_ = dtype(node)
        kind = "And" if kind == "Mul" and type_ == "bool" else kind
        symbol, precedence = BINARY[kind]
        if kind == "Mod" and type_ in FLOATS:
            return self._math("fmod", type_, [node.a, node.b]), PRIMARY
        if kind == "Or":
            return f"{self.text(node.a, COMPARISON)} || {self.text(node.b, COMPARISON)}", precedence
        if kind == "Mul" and type_ == "uint16":
            # C would multiply in int, and 65535 * 65535 overflows.
            left, right = self.text(node.a, UNARY), self.text(node.b, precedence + 1)
            return f"(uint16_t)((uint32_t){left} * {right})", UNARY
        if kind in DIVISIONS and self.arithmetic.needs_guard(node):
            return self._helper(DIVISIONS[kind], node.a, node.b), PRIMARY
        if kind not in ARITHMETIC:
            return self._joined(node.a, symbol, node.b, precedence), precedence
        other, negated = node.b, _without_sign(node.b)
        if kind in OPPOSITE and negated is not None:
            symbol, other = OPPOSITE[kind], negated  # x - -128 is x + 128
        if type_ in ("int32", "int64") and self.arithmetic.may_wrap_around(node):
            # Data may overflow and TIR wraps around, which C defines for unsigned types only.
            left, right = self.text(node.a, UNARY), self.text(other, UNARY)
            plain = f"{left} {symbol} {right}"
            self.wrapping.append(WrappingOperation(kind, c_type(type_), plain))
            unsigned = f"(u{type_}_t)"
            return f"({c_type(type_)})({unsigned}{left} {symbol} {unsigned}{right})", UNARY
        text = self._joined(node.a, symbol, other, precedence)
        if type_ in SMALL_INTEGERS and BY_DTYPE.overflows(node):
            # C computes in int; TIR wraps around in the small type. Where only the kernel shows
            # that the result fits, compilers want a cast too.
            return f"({c_type(type_)})({text})", UNARY
        if type_ == "int32" and self.arithmetic.needs_more_than_int(node):
            right = self.text(other, precedence + 1)
            return f"(int32_t){self.text(node.a, UNARY)} {symbol} {right}", precedence
        return text, precedence

    def _joined(
        self, left: tvm_api.PrimExpr, symbol: str, right: tvm_api.PrimExpr, precedence: int
    ) -> str:
        return f"{self.text(left, precedence)} {symbol} {self.text(right, precedence + 1)}"

    def _on_bits(self, name: str, value: Any, *others: Any) -> tuple[str, int]:
        """Print an operation on the bits of integers."""
        if name in BITWISE:
            operands = (self.text(each, UNARY) for each in (value, *others))
            return f"({f' {BITWISE[name]} '.join(operands)})", PRIMARY
        type_ = dtype(value)
        if name == "bitwise_not":
            if type_ in ("uint8", "uint16"):
                # In an expression the complement is a negative int, which compilers warn about.
                return self._helper("complement", value), PRIMARY
            text = self.text(value, UNARY)
            return f"!{text}" if type_ == "bool" else f"({c_type(type_)})~{text}", UNARY
        if self.arithmetic.may_leave_width(value, *others):
            return self._helper(name, value, *others), PRIMARY
        text, amount = self.text(value, UNARY), self.text(others[0], UNARY)
        if name == "shift_right":
            return f"({text} >> {amount})", PRIMARY
        # Shifting a negative number left is undefined in C: go through the unsigned type.
        unsigned = f"u{c_type(type_).removeprefix('u')}"
        return f"({c_type(type_)})(({unsigned}){text} << {amount})", UNARY

    def _print_Let(self, node: tvm_api.PrimExpr) -> tuple[str, int]:
        # Substitute the value: a condition around the variable may guard the value too.
        self.arithmetic.bind(node.var, node.value)
        self.substitute(node.var, self.text(node.value, PRIMARY))
        return self._print(node.body)

    def _print_IntImm(self, node: tvm_api.PrimExpr) -> tuple[str, int]:
        value = int(node.value)
        return integer_literal(value, dtype(node)), PRIMARY if value >= 0 else UNARY

    def _print_FloatImm(self, node: tvm_api.PrimExpr) -> tuple[str, int]:
        text = float_literal(float(node.value), dtype(node))
        if not math.isfinite(node.value):
            self.headers.add(MATH_HEADER)
        return text, UNARY if text.startswith(("-", "(")) else PRIMARY

    def _print_Var(self, node: tvm_api.Var) -> tuple[str, int]:
        if node in self._values:
            return self._values[node], PRIMARY
        return self.name(node), PRIMARY

    def _print_TensorLoad(self, node: tvm_api.TensorLoad) -> tuple[str, int]:
        text = self.element(node.source, node.indices)
        return text, UNARY if text.startswith("*") else PRIMARY

    def _print_Not(self, node: tvm_api.PrimExpr) -> tuple[str, int]:
        return f"!{self.text(node.a, UNARY)}", UNARY

    def _print_Cast(self, node: tvm_api.PrimExpr) -> tuple[str, int]:
        if dtype(node) == "bool":
            return f"{self.text(node.value, 9)} != 0", 8
        if is_promotion(node):
            return self._print(node.value)
        from_float = dtype(node.value) in FLOATS and dtype(node) not in FLOATS
        if from_float and self.arithmetic.depends_on_data(node.value):
            return self._helper(f"{dtype(node)}_from", node.value), PRIMARY
        return f"({c_type(dtype(node))}){self.text(node.value, UNARY)}", UNARY

    def _print_Select(self, node: tvm_api.PrimExpr) -> tuple[str, int]:
        return self._conditional(node.condition, node.true_value, node.false_value)

    def _extreme(self, node: tvm_api.PrimExpr, name: str, limit_name: str) -> str:
        for limit, value in ((node.a, node.b), (node.b, node.a)):
            number = limit.value if isinstance(limit, tirx.Broadcast) else limit
            if isinstance(number, tirx.FloatImm) and not math.isnan(number.value):
                return self._helper(limit_name, limit, value)
        return self._helper(name, node.a, node.b)

    def _conditional(
        self, condition: tvm_api.PrimExpr, yes: tvm_api.PrimExpr, no: tvm_api.PrimExpr
    ) -> tuple[str, int]:
        first, second = self.text(yes, 3), self.text(no, CONDITIONAL)
        if "x" in dtype(yes):  # gcc: a sum of two vectors of our type has another type
            first, second = (
                f"({self.type_of(each)}){self.text(each, UNARY)}" for each in (yes, no)
            )
        return f"{self.text(condition, 3)} ? {first} : {second}", CONDITIONAL

    def _helper(self, name: str, *arguments: Any) -> str:
        helper = f"{name}_{dtype(arguments[0])}"
        self.helpers.add(helper)
        _, is_vector, lanes = dtype(arguments[0]).partition("x")
        if is_vector:  # masks of vectors
            self._vector(f"int32x{lanes}")
        if name in HELPERS_OF_MATH:
            self.headers.add(MATH_HEADER)
        return f"{helper}({', '.join(self.text(argument) for argument in arguments)})"

    # --- calls --------------------------------------------------------------------------------

    def _print_Call(self, node: tvm_api.Call) -> tuple[str, int]:
        name = re.sub(r"^(prim|tirx|s_tir|tir)\.", "", str(getattr(node.op, "name", node.op)))
        arguments = list(node.args)
        if tir.is_constant(node):
            return self._constant(node), PRIMARY
        if name in ("call_extern", "call_pure_extern"):
            operands = [self.text(argument) for argument in arguments[1:]]
            return self.external_call(str(arguments[0].value), operands), PRIMARY
        if name == "if_then_else":
            return self._conditional(*arguments)
        if name in VECTOR_FUNCTIONS and "x" in dtype(node):
            vector = dtype(arguments[0])
            self.helpers |= needed_helpers(name, vector)
            return f"{name}_{vector}({self.text(arguments[0])})", PRIMARY
        if name in MATH_FUNCTIONS:
            return self._math(name, dtype(node), arguments), PRIMARY
        if name in BIT_OPERATIONS.values():
            return self._on_bits(name, *arguments)
        if name in ("fabs", "abs") and dtype(arguments[0]) in FLOATS:
            return self._math("fabs", dtype(arguments[0]), arguments[:1]), PRIMARY
        if name in ("fabs", "abs"):
            return self._helper("absolute", arguments[0]), PRIMARY
        if name in ("isnan", "isinf", "isfinite"):
            self.headers.add(MATH_HEADER)
            return f"({name}({self.text(arguments[0])}) != 0)", PRIMARY
        if name in HELPERS_OF_MATH:
            return self._helper(name, arguments[0]), PRIMARY
        if name == "likely":
            return self._print(arguments[0])
        return self._pointer(name, arguments)

    def _constant(self, node: tvm_api.Call) -> str:
        """Return the name of a named constant; the kernel declares the constant at its start."""
        wanted, value = tir.name_and_value(node)
        key = (wanted, tvm_api.integer_value(value) or 0)
        if key not in self.constants:
            self.constants[key] = self.own_name(wanted)
        return self.constants[key]

    def _pointer(self, name: str, arguments: list[Any]) -> tuple[str, int]:
        if name == "buffer_data":
            return self.name(arguments[0]), PRIMARY
        if name == "address_of":
            load = arguments[0]
            return f"&{self.element(load.source, load.indices)}", UNARY
        if name == "tvm_access_ptr":
            base, offset = self.text(arguments[1], 11), self.text(arguments[2], 12)
            return (base, PRIMARY) if offset == "0" else (f"{base} + {offset}", 11)
        raise self.unsupported(f"TIR intrinsic {name}")

    def external_call(self, function: str, operands: Sequence[str]) -> str:
        """Return C text of a call of a C function; the backend may replace the text."""
        if not is_identifier(function):
            raise self.unsupported(f"a call of {shown(function, 100)!r}")
        if self._replace_call_extern is not None:
            replacement = self._replace_call_extern([function, *operands])
            if replacement is not None:
                self.headers |= {MATH_HEADER, MEMORY_HEADER}  # whatever a backend calls
                return replacement
        declared = requantize.HEADER if function in requantize.RESULTS else header_of(function)
        declared = declared or header_of_form(function)
        if declared is not None:
            self.headers.add(declared)
        return f"{function}({', '.join(operands)})"

    def _math(self, name: str, type_: str, arguments: list[Any]) -> str:
        if type_ not in FLOATS:
            raise self.unsupported(f"{name} of {type_}")
        self.headers.add(MATH_HEADER)
        suffix = "f" if type_ == "float32" else ""
        return f"{name}{suffix}({', '.join(self.text(argument) for argument in arguments)})"


def _without_sign(node: tvm_api.PrimExpr) -> tvm_api.PrimExpr | None:
    """Return the negation of a negative constant of a signed type, if it is representable."""
    value, type_ = tvm_api.integer_value(node), dtype(node)
    if value is None or value >= 0 or value == np.iinfo(type_).min:
        return None
    return tirx.IntImm(type_, -value)
