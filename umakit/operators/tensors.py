# SPDX-License-Identifier: Apache-2.0
"""What quantize and dequantize operators say about the integers they are applied to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit import tvm_api
from umakit.operators.numeric.fixed_point import round_half_away
from umakit.operators.refusals import NotAnIsland

Array = npt.NDArray[Any]
Definition = Callable[[tvm_api.Expr], tvm_api.Expr]
"""The value that a variable is bound to, or the expression itself if it is no variable."""


@dataclass(frozen=True)
class Scale:
    """Scale and zero point of a tensor that has one of each.

    Attributes:
        scale: float32, positive and finite.
        zero_point: within the dtype.
        dtype: `int8`, `uint8`, `int16` or `uint16`.
    """

    scale: np.float32
    zero_point: int
    dtype: str

    @property
    def bits(self) -> int:
        """Of the integers."""
        return 8 * np.dtype(self.dtype).itemsize

    @property
    def magnitude(self) -> int:
        """The largest absolute difference to the zero point."""
        return max(abs(limit - self.zero_point) for limit in self.limits)

    @property
    def limits(self) -> tuple[int, int]:
        """Least and largest integer."""
        limits = np.iinfo(self.dtype)
        return int(limits.min), int(limits.max)

    def integer(self, value: float) -> int:
        """The integer for a real number, not limited to the dtype."""
        if not np.isfinite(value):
            return self.limits[value > 0]
        quotient = np.float32(value) / self.scale
        limited = min(max(float(quotient), -(2.0**31)), 2.0**31)
        return self.zero_point + round_half_away(limited)


@dataclass(frozen=True)
class Quantized:
    """An integer tensor of one scale.

    Attributes:
        integers: a Relax expression.
        scale: of it.
    """

    integers: tvm_api.Expr
    scale: Scale


@dataclass(frozen=True)
class Weights:
    """A constant integer tensor whose scale may differ from element to element.

    Attributes:
        integers: the values.
        scales: float32, of the same shape.
    """

    integers: Array
    scales: Array

    def transposed(self, order: list[int]) -> Weights:
        """With its axes in another order."""
        return Weights(self.integers.transpose(order), self.scales.transpose(order))

    def reshaped(self, shape: tuple[int, ...]) -> Weights:
        """With other axes."""
        return Weights(self.integers.reshape(shape), self.scales.reshape(shape))

    def channel_scales(self) -> Array:
        """The scales along axis 0, as float32[1] if all are equal.

        Raises:
            NotAnIsland: elements of one channel have different scales.
        """
        rows = self.scales.reshape(self.scales.shape[0], -1)
        if (rows != rows[:, :1]).any():
            raise NotAnIsland("the weights' scale changes inside an output channel")
        first = rows[:, 0]
        return first[:1] if (first == first[0]).all() else first


INTEGERS = ("int8", "uint8", "int16", "uint16")


def scale_of(call: tvm_api.Expr, dtype: str, allowed: Sequence[str] = INTEGERS) -> Scale:
    """The scale of a quantize or dequantize call.

    Args:
        call: the call.
        dtype: of its integers.
        allowed: what dtypes are.

    Raises:
        NotAnIsland: another dtype, several scales, or one that is no constant or no number.
    """
    scale, zero_point = (tvm_api.constant_array(argument) for argument in call.args[1:3])
    if scale is None or zero_point is None:
        raise NotAnIsland("a scale or zero point is no constant")
    if scale.size != 1 or zero_point.size != 1:
        raise NotAnIsland("an activation has a scale for each channel")
    if dtype not in allowed:
        raise NotAnIsland(f"integers are {dtype}, not {', '.join(allowed[:-1])} or {allowed[-1]}")
    value = np.float32(scale.reshape(-1)[0])
    if not np.isfinite(value) or value <= 0:
        raise NotAnIsland(f"a scale is {value}")
    return Scale(value, int(zero_point.reshape(-1)[0]), dtype)


def dequantized_weights(
    expression: tvm_api.Expr, definition: Definition, *, symmetric: bool = False
) -> Weights:
    """A constant, dequantized tensor, looked at through reshapes and transpositions.

    Args:
        expression: of the real numbers.
        definition: finds what variables are bound to.
        symmetric: whether zero points must be 0, as TensorFlow Lite takes them for granted.

    Raises:
        NotAnIsland: it is something else, or has scales that make no sense.
    """
    value = definition(expression)
    operator = tvm_api.operator_name(value)
    if operator == "reshape":
        inner = dequantized_weights(value.args[0], definition, symmetric=symmetric)
        shape = tvm_api.static_shape(value)
        if shape is None:
            raise NotAnIsland("the weights have no static shape")
        return inner.reshaped(shape)
    if operator == "permute_dims":
        inner = dequantized_weights(value.args[0], definition, symmetric=symmetric)
        return inner.transposed(_order(value, inner.integers.ndim))
    if operator != "dequantize":
        raise NotAnIsland("the weights are no dequantized constant")
    integers = _constant(value.args[0], definition)
    scale, zero_point = (tvm_api.constant_array(argument) for argument in value.args[1:3])
    if integers is None or scale is None or zero_point is None:
        raise NotAnIsland("the weights, their scale or zero point are no constant")
    if not (np.isfinite(scale) & (scale >= 0)).all():
        raise NotAnIsland("a scale of the weights is negative or no number")
    extents = [1] * integers.ndim
    if scale.size > 1:
        axis = int(value.attrs.axis) % integers.ndim
        if integers.shape[axis] != scale.size:
            raise NotAnIsland("the weights' scales do not fit their axis")
        extents[axis] = scale.size
    if np.any(zero_point != 0):
        if symmetric:
            raise NotAnIsland("the weights have a zero point other than 0")
        at = extents if zero_point.size > 1 else [1] * integers.ndim
        integers = _without_zero_point(integers, zero_point.reshape(at))
    return Weights(_signed(integers), np.broadcast_to(scale.reshape(extents), integers.shape))


def _without_zero_point(integers: Array, zero_point: Array) -> Array:
    """8-bit integers less their zero point, in 16 bits.

    Raises:
        NotAnIsland: they have more bits.
    """
    if integers.dtype.itemsize > 1:
        raise NotAnIsland("a bias has a zero point other than 0")
    return integers.astype(np.int16) - zero_point.astype(np.int16)


def _signed(integers: Array) -> Array:
    """8 or 16-bit integers as int8 where they fit, else as int16; others as they are."""
    if integers.dtype not in (np.uint8, np.int16):
        return integers
    fit = integers.size == 0 or (integers.min() >= -128 and integers.max() <= 127)
    return integers.astype(np.int8 if fit else np.int16)


def _constant(expression: tvm_api.Expr, definition: Definition) -> Array | None:
    """The values of a constant, looked at through reshapes, transpositions and casts.

    A cast of a constant is what becomes of a bias of 64 bits; it keeps its dtype here.
    """
    value = definition(expression)
    array = tvm_api.constant_array(value)
    if array is not None:
        return array
    operator = tvm_api.operator_name(value)
    if operator not in ("reshape", "permute_dims", "astype"):
        return None
    inner = _constant(value.args[0], definition)
    if inner is None:
        return None
    if operator == "astype":
        return inner if inner.dtype == np.int64 else None
    if operator == "permute_dims":
        return inner.transpose(_order(value, inner.ndim))
    shape = tvm_api.static_shape(value)
    return None if shape is None else inner.reshape(shape)


def _order(call: tvm_api.Expr, rank: int) -> list[int]:
    """The axes of a permute_dims call."""
    axes = call.attrs.axes
    return list(range(rank))[::-1] if axes is None else [int(axis) for axis in axes]
