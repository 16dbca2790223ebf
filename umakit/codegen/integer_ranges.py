# SPDX-License-Identifier: Apache-2.0
"""Ranges of the integers of a kernel, to prove that arithmetic cannot overflow.

TIR wraps around and C leaves the overflow of signed integers undefined, so arithmetic on data is
printed with unsigned types unless the range of the result lies in the dtype. The analysis ignores
the order of statements: a variable has the range of all its bound values, a buffer the range of all
stored values. Two kinds of stores need more:

- `sum[i] = sum[i] + x`: the first values, plus x as often as the loops around the store can reach
  one element while the buffer exists (see `element_turns`).
- Other stores of a value that depends on the buffer itself, such as `max(largest[0], x)`: a range
  that contains the first values and that these stores do not leave.

An element of a buffer that the kernel owns is written before it is read, as C demands of locals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from umakit import tvm_api
from umakit.codegen.element_turns import element_turns
from umakit.codegen.kernel_statements import Conditions, KernelStatements, Store
from umakit.lower.index_ranges import Elements, Fact, Range, Ranges, called, dtype_range, within
from umakit.lower.kernels import Kernel
from umakit.operators.numeric import requantize
from umakit.operators.numeric.fixed_point import Arithmetic

tirx = tvm_api.tirx

ARITHMETIC = ("Add", "Sub", "Mul")
MOST_ROUNDS = 3
"""Maximum number of times that stores enlarge the range of a buffer."""


class IntegerRanges(Ranges):
    """Computes ranges of the expressions of one lowered kernel, or of expressions alone."""

    def __init__(
        self,
        constants: Mapping[Any, Elements] | None = None,
        statements: KernelStatements | None = None,
    ) -> None:
        super().__init__(constants or {})
        self._statements = statements or KernelStatements()
        self._sums: set[Any] = set()
        self._found: dict[Any, Range] = {}
        self._assumed: dict[Any, Range] = {}

    def of(self, expression: tvm_api.PrimExpr, facts: Sequence[Fact] = ()) -> Range:
        """Return the range of an integer expression, given some facts."""
        low, high = super().of(expression, facts)
        # Contradictory facts hold in code that never runs.
        return (low, high) if low <= high else self._structural(expression, facts)

    # --- questions ----------------------------------------------------------------------------

    def overflows(self, node: tvm_api.PrimExpr) -> bool:
        """Whether an addition, subtraction or multiplication may leave the range of its dtype."""
        if self._is_proven_sum(node):
            return False
        low, high = self._unlimited(node)
        least, largest = dtype_range(tvm_api.dtype_of(node))
        return low < least or high > largest

    def _is_proven_sum(self, node: tvm_api.PrimExpr) -> bool:
        """Whether an operation adds to a sum whose range counts the additions."""
        if not isinstance(node, (tirx.Add, tirx.Sub)) or not isinstance(node.a, tvm_api.TensorLoad):
            return False
        home = self._statements.home(node.a.source)
        self.of(node.a)
        if home not in self._sums:
            return False
        return any(node.same_as(store.value) for store in self._statements.buffers[home].stores)

    def _unlimited(self, node: tvm_api.PrimExpr) -> Range:
        """Return the range of an arithmetic operation on unbounded integers."""
        (a, b), (c, d) = self.of(node.a), self.of(node.b)
        kind = type(node).__name__
        if kind == "Add":
            return a + c, b + d
        if kind == "Sub":
            return a - d, b - c
        products = (a * c, a * d, b * c, b * d)
        return min(products), max(products)

    # --- conditions ---------------------------------------------------------------------------

    def _facts_under(self, conditions: Conditions) -> list[Fact]:
        """Return the facts implied by the conditions around a statement."""
        facts = [f for c in conditions for f in self.facts_of(c.expression, c.holds)]
        # Loaded values may change inside, variables do not.
        return [fact for fact in facts if not tvm_api.collect(fact[0], tvm_api.TensorLoad)]

    # --- variables and buffers ----------------------------------------------------------------

    def _of_Var(self, node: tvm_api.Var, limits: Range, facts: Sequence[Fact]) -> Range:
        if node not in self._found:
            self._found[node] = self._of_variable(node, limits)
        return self._found[node]

    def _of_variable(self, variable: tvm_api.Var, limits: Range) -> Range:
        loops = self._statements.definitions.loops.get(variable, [])
        values = self._statements.definitions.values.get(variable, [])
        if variable in self._open or not (loops or values):
            return limits
        self._open.add(variable)
        conditions = self._statements.conditions.get(variable, ()) if len(values) == 1 else ()
        about = self._facts_under(conditions)
        ranges = [self.of(value, about) for value in values]
        for loop in loops:
            first, turns = self.of(loop.min), self.of(loop.extent)
            ranges.append((first[0], first[1] + max(turns[1], 1) - 1))
        self._open.discard(variable)
        return within(hull(ranges), limits)

    def _of_Let(self, node: tvm_api.PrimExpr, limits: Range, facts: Sequence[Fact]) -> Range:
        return self.of(node.body, facts)

    def _of_TensorLoad(
        self, node: tvm_api.TensorLoad, limits: Range, facts: Sequence[Fact]
    ) -> Range:
        buffer = self._statements.home(node.source)
        if buffer in self._constants:
            elements: Elements = self._constants[buffer]
            return elements.every
        if buffer in self._assumed:
            return self._assumed[buffer]
        if buffer not in self._statements.buffers or buffer in self._open:
            return limits
        if buffer not in self._found:
            self._open.add(buffer)
            self._found[buffer] = self._of_buffer(buffer, limits)
            self._open.discard(buffer)
        return self._found[buffer]

    def _of_buffer(self, buffer: Any, limits: Range) -> Range:
        """Return the range of all elements of a buffer that only the kernel writes."""
        stores = self._statements.buffers[buffer].stores
        first = [s for s in stores if not self._loads(s.value, buffer)]
        later = [s for s in stores if self._loads(s.value, buffer)]
        if not first:
            return limits
        found = hull([self._of_stored(store.value, store) for store in first])
        if not later:
            return within(found, limits)
        added = [(store, self._added_to(buffer, store)) for store in later]
        if all(parts is not None for _, parts in added):
            grown = self._of_sums(found, [(store, parts or []) for store, parts in added], limits)
            if grown != limits:
                self._sums.add(buffer)
            return grown
        return self._kept_range(buffer, found, later, limits)

    def _added_to(self, buffer: Any, store: Store) -> list[tuple[int, tvm_api.PrimExpr]] | None:
        """Return the terms that a store adds to its own element, with signs; None for other
        stores."""
        parts = _terms(store.value, 1)
        own = [(sign, part) for sign, part in parts if self._loads(part, buffer)]
        if len(own) != 1 or own[0][0] != 1:
            return None
        load = own[0][1]
        same = (
            isinstance(load, tvm_api.TensorLoad)
            and self._statements.home(load.source).same_as(buffer)
            and store.index is not None
            and tvm_api.tvm_ffi.structural_equal(list(load.indices), [store.index])
        )
        return [(sign, part) for sign, part in parts if not part.same_as(load)] if same else None

    def _loads(self, expression: tvm_api.PrimExpr, buffer: Any) -> bool:
        return any(
            self._statements.home(load.source).same_as(buffer)
            for load in tvm_api.collect(expression, tvm_api.TensorLoad)
        )

    def _of_sums(
        self,
        first: Range,
        added: Sequence[tuple[Store, list[tuple[int, tvm_api.PrimExpr]]]],
        limits: Range,
    ) -> Range:
        """Return the range of sums with first values in a range, which grow by terms in loops."""
        growth: dict[int | None, tuple[int, int]] = {None: (0, 0)}
        for store, parts in added:
            turns = element_turns(store.loops, store.index, self._statements.definitions, self.of)
            low, high = 0, 0
            for sign, part in parts:
                ends = [sign * end for end in self._of_stored(part, store)]
                low, high = low + min(ends), high + max(ends)
            if turns is None and (low, high) != (0, 0):
                return limits
            # Sums in between count too, so that each end moves outwards only.
            place = tvm_api.integer_value(store.index)
            before = growth.get(place, (0, 0))
            growth[place] = (
                before[0] + min(0, low) * (turns or 0),
                before[1] + max(0, high) * (turns or 0),
            )
        anywhere = growth.pop(None)
        low, high = hull([(0, 0), *growth.values()])
        return within((first[0] + anywhere[0] + low, first[1] + anywhere[1] + high), limits)

    def _kept_range(
        self, buffer: Any, found: Range, later: Sequence[Store], limits: Range
    ) -> Range:
        """Return a range with the first values that stores depending on the buffer do not leave."""
        found = within(found, limits)
        for _ in range(MOST_ROUNDS):
            new = self._stored_range(buffer, found, later)
            if found[0] <= new[0] and new[1] <= found[1]:
                return found
            found = hull([found, new])
        low = limits[0] if new[0] < found[0] else found[0]
        found = low, limits[1]
        new = self._stored_range(buffer, found, later)
        return found if found[0] <= new[0] else limits

    def _of_stored(self, value: tvm_api.PrimExpr, store: Store) -> Range:
        """Return the range of a value, or of a part of it, at the place of its store."""
        return self.of(value, self._facts_under(store.conditions))

    def _stored_range(self, buffer: Any, assumed: Range, later: Sequence[Store]) -> Range:
        """Return the range of stored values if all elements of the buffer are in a range."""
        outside, sums = dict(self._found), set(self._sums)
        self._assumed[buffer] = assumed
        new = hull([self._of_stored(store.value, store) for store in later])
        del self._assumed[buffer]
        self._found, self._sums = outside, sums  # these hold under the assumption only
        return new

    # --- operations ---------------------------------------------------------------------------

    def _of_Div(self, node: tvm_api.PrimExpr, limits: Range, facts: Sequence[Fact]) -> Range:
        return within(quotient_range(*self._both(node, facts)), limits)

    def _of_Mod(self, node: tvm_api.PrimExpr, limits: Range, facts: Sequence[Fact]) -> Range:
        return within(remainder_range(*self._both(node, facts)), limits)

    def _of_LShift(self, node: tvm_api.PrimExpr, limits: Range, facts: Sequence[Fact]) -> Range:
        return within(shift_left_range(*self._both(node, facts), limits), limits)

    def _of_BitwiseOr(self, node: tvm_api.PrimExpr, limits: Range, facts: Sequence[Fact]) -> Range:
        return within(or_range(*self._both(node, facts)), limits)

    _of_BitwiseXor = _of_BitwiseOr

    def _of_Call(self, node: tvm_api.Call, limits: Range, facts: Sequence[Fact]) -> Range:
        function = requantize.called_function(node)
        if function:
            known = [self.of(argument, facts) for argument in node.args[1:]]
            return within(requantize_range(function, known, limits), limits)
        name, arguments = called(node), list(node.args)
        if name in ("bitwise_or", "bitwise_xor", "shift_left"):
            ranges = self.of(arguments[0], facts), self.of(arguments[1], facts)
            found = shift_left_range(*ranges, limits) if name == "shift_left" else or_range(*ranges)
            return within(found, limits)
        if name == "abs" and limits[0] < 0:
            low, high = self.of(arguments[0], facts)
            return within((max(low, -high, 0), max(-low, high)), limits)
        return super()._of_Call(node, limits, facts)

    def _shifted(
        self, value: tvm_api.PrimExpr, by: tvm_api.PrimExpr, limits: Range, facts: Sequence[Fact]
    ) -> Range:
        return shift_right_range(self.of(value, facts), self.of(by, facts), limits)

    def _masked(
        self, value: tvm_api.PrimExpr, mask: tvm_api.PrimExpr, limits: Range, facts: Sequence[Fact]
    ) -> Range:
        return within(and_range(self.of(value, facts), self.of(mask, facts)), limits)


def kernel_ranges(kernel: Kernel, constants: Mapping[int, Elements] | None = None) -> IntegerRanges:
    """Return the ranges of a kernel's integers."""
    known = {kernel.inputs[number].variable: e for number, e in (constants or {}).items()}
    own = [p.variable for p in (*kernel.outputs, *kernel.scratch) if not p.pool]
    return IntegerRanges(known, KernelStatements(kernel.body, own))


def _terms(node: tvm_api.PrimExpr, sign: int) -> list[tuple[int, tvm_api.PrimExpr]]:
    if isinstance(node, tirx.Add):
        return [*_terms(node.a, sign), *_terms(node.b, sign)]
    if isinstance(node, tirx.Sub):
        return [*_terms(node.a, sign), *_terms(node.b, -sign)]
    return [(sign, node)]


def hull(ranges: Sequence[Range]) -> Range:
    """Return the smallest range that contains all ranges."""
    return min(low for low, _ in ranges), max(high for _, high in ranges)


# Ranges of the results of divisions, shifts, bit operations and functions of requantize.h.
#
# Results are those of unbounded integers and may lie outside of the dtype, where values wrap
# around.

REQUANTIZE = tuple(f"umakit_requantize_{rounding.value}" for rounding in Arithmetic)
INT32 = (-(2**31), 2**31 - 1)


def quotient_range(left: Range, right: Range) -> Range:
    """Return the range of a quotient, rounded towards 0; a division by 0 gives 0."""
    (a, b), (c, d) = left, right
    if c <= 0 <= d:
        most = max(abs(a), abs(b))
        return (0, most) if a >= 0 and c >= 0 else (-most, most)
    quotients = [_truncated(x, y) for x in left for y in right]
    return min(quotients), max(quotients)


def _truncated(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def remainder_range(left: Range, right: Range) -> Range:
    """Return the range of a remainder with the sign of the dividend."""
    (a, b), (c, d) = left, right
    most = max(abs(c), abs(d)) - 1
    return max(min(a, 0), -max(most, 0)), min(max(b, 0), max(most, 0))


def shift_left_range(value: Range, by: Range, limits: Range) -> Range:
    """Return the range of a left shift; the limits of the dtype for possibly too large amounts."""
    if by[0] < 0 or by[1] >= bits_of(limits):
        return limits
    ends = [x << amount for x in value for amount in by]
    return min(ends), max(ends)


def shift_right_range(value: Range, by: Range, limits: Range) -> Range:
    """Return the range of a right shift, rounded down; too large amounts shift all bits out."""
    if by[0] < 0 or by[1] >= bits_of(limits):
        return min(value[0], 0), max(value[1], 0)
    ends = [x >> amount for x in value for amount in by]
    return min(ends), max(ends)


def bits_of(limits: Range) -> int:
    """Return the number of bits of the dtype with some limits."""
    return (limits[1] - limits[0]).bit_length()


def and_range(left: Range, right: Range) -> Range:
    """Return the range of a bitwise and."""
    largest = [high for low, high in (left, right) if low >= 0]
    if largest:
        return 0, min(largest)
    return _all_of(left, right)


def or_range(left: Range, right: Range) -> Range:
    """Return the range of a bitwise or, or exclusive or."""
    low, high = _all_of(left, right)
    return (0, high) if left[0] >= 0 and right[0] >= 0 else (low, high)


def _all_of(left: Range, right: Range) -> Range:
    """Return the range of all signed integers with the bits of two ranges."""
    magnitudes = [end if end >= 0 else ~end for end in (*left, *right)]
    power = 1 << max(magnitudes).bit_length()
    return -power, power - 1


def requantize_range(function: str, arguments: Sequence[Range], limits: Range) -> Range:
    """Return the range of the result of a function of `umakit/requantize.h`."""
    magnitudes = [max(abs(low), abs(high)) for low, high in arguments]
    if function == "umakit_add_and_clamp":
        return arguments[2][0], arguments[3][1]
    if function == "umakit_leading_zeros":
        return 0, 32
    if function == "umakit_saturate":
        low, high = (min(max(end, INT32[0]), INT32[1]) for end in arguments[0])
        return low, high
    if function == "umakit_high_product":
        most = (magnitudes[0] * magnitudes[1] >> 31) + 1
        return -most, most
    if function in ("umakit_divide_by_power_of_two", "umakit_divide_to_even"):
        most = (magnitudes[0] >> max(arguments[1][0], 0)) + 1
        return -most, most
    if function == "umakit_round_to_float32":
        most = 1 << magnitudes[0].bit_length()
        return -most, most
    if function in REQUANTIZE:
        return _requantized(function, magnitudes, arguments[2], limits)
    return limits


def _requantized(function: str, magnitudes: Sequence[int], shift: Range, limits: Range) -> Range:
    """Return the range of a product with multiplier * 2^(shift - 31)."""
    value, multiplier = magnitudes[:2]
    left = max(shift[1], 0)
    # Only TensorFlow Lite Micro's left shift wraps around, the others saturate.
    wraps = function.endswith("tflm") and value << min(left, 64) >= 2**31
    if wraps or left > 31:
        return limits
    # Rounded up twice at most; float32 rounds to the next power of two at most.
    power = 1 << ((value * multiplier >> min(31 - shift[1], 62)) + 2).bit_length()
    return max(-power, limits[0]), min(power, limits[1])
