# SPDX-License-Identifier: Apache-2.0
"""Tensors and operators of a TensorFlow Lite file, as NumPy's kernels see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy_fixed_point import Array

ACTIVATIONS = {0: (-np.inf, np.inf), 1: (0.0, np.inf), 2: (-1.0, 1.0), 3: (0.0, 6.0)}
"""Bounds by `ActivationFunctionType`."""


@dataclass
class Tensor:
    """A tensor: a constant if it has a value from the start, quantized if it has scales."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    scales: Array
    zero_points: Array
    axis: int
    value: Any

    @property
    def scale(self) -> float:
        """The only scale, a float32 in a float64."""
        (scale,) = self.scales
        return float(scale)

    @property
    def zero_point(self) -> int:
        return int(self.zero_points[0])

    @property
    def real(self) -> bool:
        return self.dtype == np.float32

    def distances(self) -> Array:
        """How far the integers are from the zero point, int64; real numbers as they are."""
        if self.real:
            return np.asarray(self.value, np.float64)
        return np.asarray(self.value, np.int64) - self.zero_point

    def integers(self, values: Array, low: float = -np.inf, high: float = np.inf) -> Array:
        """Distances from the zero point as integers of this tensor, within a range of reals."""
        limits = np.iinfo(self.dtype)
        least, most = (
            bound if np.isinf(bound) else round_away(np.float32(bound) / self.scales[0])
            for bound in (low, high)
        )
        least = max(limits.min, least + self.zero_point)
        most = min(limits.max, most + self.zero_point)
        return np.asarray(np.clip(values + self.zero_point, least, most), self.dtype)

    def activated(self, values: Array, options: Any) -> Array:
        """Results of this tensor's type behind the activation function of some options."""
        low, high = ACTIVATIONS[options.FusedActivationFunction() if options else 0]
        if self.real:
            return np.clip(values, low, high).astype(np.float32)
        return self.integers(values, low, high)


@dataclass(frozen=True)
class Operator:
    """A call of an operator; `options` is the table of the file, None where there is none."""

    code: str
    options: Any
    inputs: Sequence[Any]
    outputs: Sequence[Tensor]


Kernel = Callable[[Operator], Any]
"""From an operator whose inputs have values to its result, or to a list of results."""


def round_away(value: Any) -> Any:
    """The nearest integer, ties away from zero."""
    whole = np.trunc(value)
    return whole + np.sign(value) * (np.abs(value - whole) >= 0.5)
