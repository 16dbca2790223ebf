# SPDX-License-Identifier: Apache-2.0
"""Counts of a kernel's loads, stores, operations, turns of loops and calls.

The count models an optimizing compiler: loop invariants are computed before the loop, equal
expressions are computed once, loops of few constant turns are unrolled, and an index that is linear
in loop variables is a pointer that each loop advances. A store to an element that does not change
in a loop is made after the loop.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from umakit import tvm_api
from umakit.lower.executed.called import terms_of_call
from umakit.lower.executed.domain import Domain, Unknown
from umakit.lower.executed.facts import KernelFacts
from umakit.lower.executed.values import NOTHING, Value, Values, lanes_of
from umakit.lower.kernels import Kernel
from umakit.operators.kernels.dot_forms import header_of_form

tirx = tvm_api.tirx

IN_PARALLEL = {
    **dict.fromkeys(("load", "store", "turn"), "parallel_{}"),
    **dict.fromkeys(
        (
            "integer", "integer_product", "choice", "float_addition", "float_product",
            "float_choice", "conversion",
        ),
        "parallel_operation",
    ),
}  # fmt: skip
"""Terms in loops that compilers may turn into vectors, by the terms outside of these."""

EARLY_TURNS = 8
"""Turns of a loop up to which compilers unroll it before they look for vectors."""

EVEN_CHANCE = 0.5
"""Share of executions in which a condition on data is taken to hold."""


def executed_operations(kernel: Kernel) -> dict[str, float] | None:
    """Return the number of executions of each term of `umakit.cpu.description` in a kernel.

    Returns:
        Counts by the name of a term, and of functions by `function.NAME`. Counts may be fractions
        where conditions depend on data. None if numbers of turns depend on data, or for kernels
        with driver calls.
    """
    if kernel.driver_calls:
        return None
    counter = _Counter(kernel.statements)
    try:
        return counter.count()
    except Unknown:
        return None


@dataclass
class _Level:
    """A loop around a statement, or the whole kernel.

    Attributes:
        variable: loop variable; None for the kernel.
        is_parallel: whether compilers may vectorize the loop.
        seen: terms that were counted already and are still valid.
    """

    variable: Any
    turns: float
    written: frozenset[Any] = frozenset()
    body: Any = None
    is_parallel: bool = False
    seen: set[Any] = field(default_factory=set)


class _Counter:
    """Counts the statements of one kernel."""

    def __init__(self, statements: Sequence[Any]) -> None:
        self._statements = [*statements]
        self.facts = KernelFacts(self._statements)
        self.counts: defaultdict[str, float] = defaultdict(float)
        self._levels = [_Level(None, 1.0)]
        self._domain = Domain()
        self._versions: Counter[Any] = Counter()
        self.values = Values(self)

    def count(self) -> dict[str, float]:
        """Return all counts."""
        self.counts["call"] += 1
        for statement in self._statements:
            self._statement(statement)
        return {term: amount for term, amount in sorted(self.counts.items()) if amount}

    # --- executions ----------------------------------------------------------------------------

    @property
    def executions(self) -> float:
        """Executions of the statement."""
        return self._domain.executions

    def place_of(self, loops: Iterable[Any]) -> int:
        """Return the number of the innermost level of some loop variables."""
        found = set(loops)
        return max((n for n, each in enumerate(self._levels) if each.variable in found), default=0)

    def executions_of(self, loops: frozenset[Any]) -> float:
        """Return the executions of an expression that depends on some loop variables."""
        unrolled = self.facts.unrolled
        rolled = self.place_of(each for each in loops if each not in unrolled)
        inner = [
            level.variable
            for level in self._levels[rolled + 1 :]
            if level.variable in loops and level.variable in unrolled
        ]
        copies = prod(unrolled[variable] for variable in inner)
        return min(self._levels[rolled].turns * copies, self.executions)

    def add(self, term: str, key: Any, loops: frozenset[Any], amount: float = 1) -> None:
        """Count a term once for each combination of the loop variables that the term depends on.

        Args:
            key: identity of the computed value; equal values are computed once.
        """
        level = self._levels[self.place_of(loops)]
        if (term, key) not in level.seen:
            level.seen.add((term, key))
            self.counts[_term(term, level)] += amount * self.executions_of(loops)

    def add_here(self, term: str, amount: float = 1) -> None:
        """Count a term for each execution of the statement."""
        self.counts[_term(term, self._levels[-1])] += amount * self.executions

    # --- memory -------------------------------------------------------------------------------

    def load(self, buffer: Any, indices: Sequence[Any], lanes: int) -> Value:
        """Count a load and return its value."""
        home = self.facts.home(buffer)
        place = self.values.index(indices)
        loops = place.loops | self._loops_that_write(home)
        value = self.values.new(("load", home, place.key, self._versions[home]), loops)
        if home in self.facts.registers:
            return value
        self._address(home, place)
        cost = place.loops if self._stays(home, place.loops) else loops
        self.add("vector_load" if lanes > 1 else "load", value.key, cost)
        return value

    def store(self, buffer: Any, indices: Sequence[Any], lanes: int) -> None:
        """Count a store."""
        home = self.facts.home(buffer)
        place = self.values.index(indices)
        self._versions[home] += 1
        if home in self.facts.registers:
            return
        self._address(home, place)
        term = "vector_store" if lanes > 1 else "store"
        if self._stays(home, place.loops):
            self.add(term, ("store", home, place.key), place.loops)
        else:
            self.add_here(term)

    def _loops_that_write(self, home: Any) -> frozenset[Any]:
        return frozenset(each.variable for each in self._levels[1:] if home in each.written)

    def _stays(self, home: Any, loops: frozenset[Any]) -> bool:
        """Whether an element stays in a register: no store in the inner loops writes another."""
        unrolled = self.facts.unrolled
        rolled = self.place_of(each for each in loops if each not in unrolled)
        inner = [each for each in self._levels[rolled + 1 :] if each.variable not in unrolled]
        if not inner:
            return False
        copies = prod(unrolled[each] for each in loops if each in unrolled)
        if copies > 8 or any(len(level.written) > 4 for level in inner):
            return False
        variables = {each.variable for each in inner}
        stores = self.facts.stores_to(inner[0].body, home)
        return all(not self.facts.loops_of(list(store.indices)) & variables for store in stores)

    def _address(self, home: Any, place: Value) -> None:
        """Count the operations that advance the pointer to an element."""
        unrolled = set(self.facts.unrolled)
        parts = [part for part in place.parts if part[2] - unrolled]
        parts.sort(key=lambda part: self.place_of(part[2] - unrolled))
        prefix: tuple[Any, ...] = ()
        loops: frozenset[Any] = frozenset()
        for key, factor, those in parts:
            prefix, loops = (*prefix, (key, factor)), loops | (those - unrolled)
            self.add("address", (home, prefix), loops)

    # --- statements ---------------------------------------------------------------------------

    def _statement(self, node: Any) -> None:
        handler = getattr(self, f"_count_{type(node).__name__}", None)
        if handler is None:
            raise Unknown
        handler(node)

    def _count_SeqStmt(self, node: Any) -> None:
        for child in node.seq:
            self._statement(child)

    def _count_AttrStmt(self, node: Any) -> None:
        self._statement(node.body)

    def _count_AllocBuffer(self, node: Any) -> None:
        """An array of the stack costs nothing."""

    def _count_DeclBuffer(self, node: Any) -> None:
        """A view costs nothing."""

    def _count_Bind(self, node: Any) -> None:
        self.values.bind(node.var, node.value)

    def _count_Evaluate(self, node: Any) -> None:
        if tvm_api.is_external_call(node.value) and header_of_form(str(node.value.args[0].value)):
            self._count_products(node.value)
        else:
            self.values.computed(node.value)

    def _count_BufferStore(self, node: Any) -> None:
        self.values.computed(node.value)
        self.store(node.buffer, list(node.indices), lanes_of(node.value))

    def _count_For(self, node: Any) -> None:
        evaluate, bound = self._domain.evaluate, self.facts.bound
        first, extents = evaluate(node.min, bound), evaluate(node.extent, bound)
        self.values.computed(node.extent)
        outside, variable = self._domain, node.loop_var
        inside = outside.in_loop(variable, first, extents, listed=variable in self.facts.listed)
        written = self.facts.written_in(node.body)
        is_parallel = self.facts.is_parallel(node, EARLY_TURNS)
        level = _Level(variable, inside.executions, written, node.body, is_parallel)
        if is_parallel or variable not in self.facts.unrolled:
            self.counts["loop"] += outside.executions
            self.counts[_term("turn", level)] += inside.executions
        self._domain = inside
        self._written(written)
        self._levels.append(level)
        if inside.executions:
            self._statement(node.body)
        self._levels.pop()
        self._written(written)
        self._domain = outside

    def _count_IfThenElse(self, node: Any) -> None:
        share = self.condition(node.condition)
        self._branch(node.then_case, share)
        if node.else_case is not None:
            self._branch(node.else_case, 1 - share)

    def _branch(self, case: Any, share: Any) -> None:
        outside = self._domain
        self._domain = outside.where(share)
        if self.executions:
            self._statement(case)
        self._domain = outside
        self._written(self.facts.written_in(case))

    def _written(self, buffers: Iterable[Any]) -> None:
        for buffer in buffers:
            self._versions[buffer] += 1

    def condition(self, node: Any) -> Any:
        """Count a condition and return the share of executions in which it holds."""
        self.values.computed(node)
        self.add_here("condition")
        try:
            return self._domain.evaluate(node, self.facts.bound) * 1.0
        except Unknown:
            return EVEN_CHANCE

    def either(self, condition: Any, cases: Sequence[Any]) -> list[Value]:
        """Count an expression that computes one of two cases."""
        share = self.condition(condition)
        outside, found = self._domain, []
        for case, part in zip(cases, (share, 1 - share), strict=True):
            self._domain = outside.where(part)
            found.append(self.values.computed(case) if self.executions else NOTHING)
        self._domain = outside
        return found

    def _count_products(self, call: Any) -> None:
        """Count a call of a dot-product function."""
        arguments, domain = list(call.args[1:]), self._domain
        for argument in arguments:
            self.values.computed(argument)
        terms = terms_of_call(
            str(call.args[0].value),
            lambda place: domain.evaluate(arguments[place], self.facts.bound),
        )
        if terms is None:
            raise Unknown
        for term, amount in terms.items():
            self.counts[term] += domain.total(amount)
        self._written(self.facts.written_in(call))


def _term(term: str, level: _Level) -> str:
    return IN_PARALLEL.get(term, term).format(term) if level.is_parallel else term
