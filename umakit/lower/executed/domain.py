# SPDX-License-Identifier: Apache-2.0
"""The values of loop variables in all executions of a statement, as arrays.

Extents of loops, conditions and sizes of copies may depend on variables of the loops around them,
such as windows that are clipped at the border of an image. All values of these variables are
evaluated, so that counts are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit import tvm_api
from umakit.lower.index_ranges import called

tirx = tvm_api.tirx

MOST_VALUES = 2**18
"""Most combinations of values that are kept; of more, evenly spaced ones stand for all."""

Numbers = npt.NDArray[Any]


def _quotient(left: Numbers, right: Numbers) -> Numbers:
    return np.trunc(left / right).astype(np.int64)


OPERATIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Max": np.maximum,
    "Min": np.minimum,
    "FloorDiv": np.floor_divide,
    "FloorMod": np.mod,
    "Div": _quotient,
    "Mod": np.fmod,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
    "EQ": np.equal,
    "NE": np.not_equal,
    "And": np.logical_and,
    "Or": np.logical_or,
    "RShift": np.right_shift,
    "LShift": np.left_shift,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
}
CALLS = {
    "shift_right": np.right_shift,
    "shift_left": np.left_shift,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "truncmod": np.fmod,
}


class Unknown(Exception):
    """A value or a number of turns depends on data."""


@dataclass(frozen=True)
class Domain:
    """Combinations of values of loop variables.

    Attributes:
        weights: float64[n], the executions of each combination.
        values: int64[n] for each variable, its value in each combination.
    """

    weights: Numbers = field(default_factory=lambda: np.ones(1))
    values: Mapping[Any, Numbers] = field(default_factory=dict)

    @property
    def executions(self) -> float:
        """The number of executions."""
        return float(self.weights.sum())

    def total(self, numbers: Numbers | float) -> float:
        """Return the sum of numbers over all executions."""
        return float((self.weights * numbers).sum())

    def where(self, share: Numbers) -> Domain:
        """Return the executions under a condition, or a share of each combination."""
        return Domain(self.weights * share, self.values)

    def in_loop(self, variable: Any, first: Numbers, extents: Numbers, *, listed: bool) -> Domain:
        """Return the executions of the body of a loop.

        Args:
            first: first value in each combination.
            listed: whether the values are needed.
        """
        turns = np.maximum(np.broadcast_to(extents, self.weights.shape), 0)
        if not listed:
            return Domain(self.weights * turns, self.values)
        turns = turns.astype(np.int64)
        places = np.repeat(np.arange(len(turns)), turns)
        starts = np.repeat(np.cumsum(turns) - turns, turns)
        index = np.arange(len(places)) - starts + np.broadcast_to(first, turns.shape)[places]
        weights = self.weights[places]
        values = {name: numbers[places] for name, numbers in self.values.items()}
        values[variable] = index
        return Domain(weights, values)._thinned()

    def _thinned(self) -> Domain:
        count = len(self.weights)
        if count <= MOST_VALUES:
            return self
        kept = np.linspace(0, count - 1, MOST_VALUES).astype(np.int64)
        weights = self.weights[kept]
        factor = self.weights.sum() / weights.sum() if weights.sum() else 1.0
        return Domain(weights * factor, {name: each[kept] for name, each in self.values.items()})

    def evaluate(self, node: Any, bound: Mapping[Any, Any]) -> Numbers:
        """Return the value of an expression in each combination.

        Raises:
            Unknown: the value depends on data.
        """
        constant = tvm_api.integer_value(node)
        if constant is not None:
            return np.asarray(constant)
        if node in self.values:
            return self.values[node]
        if node in bound:
            return self.evaluate(bound[node], bound)
        kind = type(node).__name__
        if kind in OPERATIONS:
            left, right = self.evaluate(node.a, bound), self.evaluate(node.b, bound)
            return np.asarray(OPERATIONS[kind](left, right))
        if kind == "Cast":
            return self.evaluate(node.value, bound)
        if kind == "Not":
            return np.logical_not(self.evaluate(node.a, bound))
        if kind == "Select" or (kind == "Call" and called(node) == "if_then_else"):
            parts = (
                node.args if kind == "Call" else (node.condition, node.true_value, node.false_value)
            )
            return np.where(*(self.evaluate(part, bound) for part in parts))
        if kind == "Call" and called(node) == "likely":
            return self.evaluate(node.args[0], bound)
        if kind == "Call" and called(node) in CALLS:
            left, right = (self.evaluate(argument, bound) for argument in node.args)
            return np.asarray(CALLS[called(node)](left, right))
        raise Unknown
