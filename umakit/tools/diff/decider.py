# SPDX-License-Identifier: Apache-2.0
"""NumPy as the judge between umakit's kernels and a runtime, or without a runtime.

NumPy computes an operator in float64, as the model file defines. umakit's integers equal a
runtime's bit by bit, and differ from NumPy's by the runtime's rounding. NumPy therefore decides
against a runtime only if rounding explains the result of umakit and not the result of the runtime.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from umakit.testing.differences import Tolerance, distances

Array = npt.NDArray[Any]


class NotDecided(Exception):
    """NumPy does not know an operator."""


@dataclass(frozen=True)
class Expected:
    """The numbers of a tensor according to the model file.

    Attributes:
        numbers: unrounded numbers in units of the tensor's integers, within their range.
        slack: largest distance of a correct integer; for real numbers the tolerance applies.
        is_exact: whether only the runtime's result is correct within the slack: for integers that
            runtimes compute in integers.
    """

    numbers: Array
    slack: float = 0.0
    is_exact: bool = True

    def nearest(self, dtype: Any) -> Array:
        """Return the nearest numbers of a dtype."""
        kind = np.dtype(dtype).kind
        if kind == "f" or kind == "b" or self.numbers.dtype.kind != "f":
            return self.numbers.astype(dtype)
        return np.rint(self.numbers).astype(dtype)


class Decider(Protocol):
    """A model file that NumPy computes operator by operator."""

    def expected(self, tensor: Any, known: Mapping[Any, Array]) -> Expected:
        """Return the expected values of a tensor according to the file.

        Args:
            tensor: name of the tensor in the file.
            known: values of tensors to start from, including the inputs of the network.

        Raises:
            NotDecided: an operator before the tensor is unknown to NumPy.
        """


def decided(
    own: Array, theirs: Array | None, expected: Expected, tolerance: Tolerance
) -> tuple[Array, bool, bool]:
    """Return the correct values of a tensor, and two facts about the runtime's values.

    Args:
        own: values by umakit's kernel.
        theirs: values by the runtime from the same inputs; None without a runtime.
        expected: the values by NumPy.
        tolerance: the largest deviation that counts as agreement.

    Returns:
        The values; whether some differ from the runtime's; and whether the runtime is correct too,
        as both integers next to a tie are.
    """
    is_own = _is_right(own, expected, tolerance)
    nearest = expected.nearest(own.dtype)
    if theirs is None:
        return np.where(is_own, own, nearest), True, False
    is_theirs = _is_right(theirs, expected, tolerance)
    differ = distances(own, theirs) > tolerance.limit(theirs)
    is_umakits = differ & is_own & (~is_theirs | (not expected.is_exact))
    right = np.where(is_umakits, own, theirs)
    right = np.where(differ & ~is_own & ~is_theirs, nearest, right)
    return right, bool(is_umakits.any()), bool(is_theirs.all())


def _is_right(values: Array, expected: Expected, tolerance: Tolerance) -> Array:
    numbers = expected.numbers
    if values.shape != numbers.shape:
        raise NotDecided(f"NumPy has shape {numbers.shape}")
    if values.dtype.kind == "f":
        return distances(values, numbers) <= tolerance.limit(numbers)
    if numbers.dtype.kind != "f":
        return distances(values, numbers.astype(values.dtype)) <= tolerance.limit(values)
    return distances(values.astype(np.float64), numbers) <= expected.slack + tolerance.lsb


def in_range(numbers: Array, dtype: Any, slack: float, *, is_exact: bool = True) -> Expected:
    """Return expected values for integers of a dtype, which saturate."""
    limits = np.iinfo(dtype)
    return Expected(np.clip(numbers, limits.min, limits.max), slack, is_exact)
