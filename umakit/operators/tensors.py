# SPDX-License-Identifier: Apache-2.0
"""Scales and integers of quantize and dequantize operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit import tvm_api
from umakit.operators.numeric.fixed_point import round_half_away
from umakit.tvm_api import Expr


class NoIntegerForm(Exception):
    """The operators before a quantize cannot be computed in integers; the message says why."""


class FloatInTheModel(NoIntegerForm):
    """There is no integer form because the model itself specifies floating point."""


Array = npt.NDArray[Any]
Definition = Callable[[Expr], Expr]
"""The value that a variable is bound to, or the expression itself if it is not a variable."""


@dataclass(frozen=True)
class Scale:
    """The single scale and zero point of a tensor.

    Attributes:
        scale: float32, positive and finite.
        zero_point: integer within the dtype.
        dtype: `int8`, `uint8`, `int16` or `uint16`.
    """

    scale: np.float32
    zero_point: int
    dtype: str

    @property
    def bits(self) -> int:
        """Number of bits of the integers."""
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
    """An integer tensor of one scale."""

    integers: Expr
    scale: Scale


@dataclass(frozen=True)
class Weights:
    """A constant integer tensor with a scale per element.

    Attributes:
        integers: values minus zero points.
        scales: float32, of the same shape.
        model_scales: scales of the model, one or one per output channel; None without scales.
        model_zero_points: zero points of the model, like `model_scales`.
    """

    integers: Array
    scales: Array
    model_scales: Array | None = None
    model_zero_points: Array | None = None

    def transposed(self, order: list[int]) -> Weights:
        """Return the weights with their axes in another order."""
        integers, scales = (array.transpose(order) for array in (self.integers, self.scales))
        return replace(self, integers=integers, scales=scales)

    def reshaped(self, shape: tuple[int, ...]) -> Weights:
        """Return the weights with another shape."""
        integers, scales = (array.reshape(shape) for array in (self.integers, self.scales))
        return replace(self, integers=integers, scales=scales)

    def channel_scales(self) -> Array:
        """The scales along axis 0, as float32[1] if all are equal."""
        rows = self.scales.reshape(self.scales.shape[0], -1)
        if (rows != rows[:, :1]).any():
            raise NoIntegerForm("the weights' scale changes inside an output channel")
        first = rows[:, 0]
        return first[:1] if (first == first[0]).all() else first


INTEGERS = ("int8", "uint8", "int16", "uint16")


def scale_of(call: Expr, dtype: str, allowed: Sequence[str] = INTEGERS) -> Scale:
    """Return the scale of a quantize or dequantize call.

    Raises:
        NoIntegerForm: the dtype is not allowed, or the scale is not one positive constant.
    """
    scale, zero_point = (tvm_api.constant_array(argument) for argument in call.args[1:3])
    if scale is None or zero_point is None:
        raise NoIntegerForm("a scale or zero point is not a constant")
    if scale.size != 1 or zero_point.size != 1:
        raise NoIntegerForm("an activation has a scale for each channel")
    if dtype not in allowed:
        raise NoIntegerForm(f"integers are {dtype}, not {', '.join(allowed[:-1])} or {allowed[-1]}")
    value = np.float32(scale.reshape(-1)[0])
    if not np.isfinite(value) or value <= 0:
        raise NoIntegerForm(f"a scale is {value}")
    return Scale(value, int(zero_point.reshape(-1)[0]), dtype)


def dequantized_weights(
    expression: Expr, definition: Definition, *, symmetric: bool = False, what: str = "the weights"
) -> Weights:
    """Return a constant dequantized tensor after its reshapes and transposes.

    Args:
        symmetric: whether zero points must be 0, as TensorFlow Lite assumes.
    """
    value = definition(expression)
    operator = tvm_api.operator_name(value)
    if operator == "reshape":
        inner = dequantized_weights(value.args[0], definition, symmetric=symmetric, what=what)
        shape = tvm_api.static_shape(value)
        if shape is None:
            raise NoIntegerForm(f"{what}: the shape is not static")
        return inner.reshaped(shape)
    if operator == "permute_dims":
        inner = dequantized_weights(value.args[0], definition, symmetric=symmetric, what=what)
        return inner.transposed(_order(value, inner.integers.ndim))
    if operator != "dequantize":
        found = tvm_api.dtype_of(value) if tvm_api.constant_array(value) is not None else "computed"
        raise NoIntegerForm(f"{what}: {found} where a dequantized constant of integers is needed")
    integers = _constant(value.args[0], definition)
    scale, zero_point = (tvm_api.constant_array(argument) for argument in value.args[1:3])
    if integers is None or scale is None or zero_point is None:
        raise NoIntegerForm(f"{what}: integers, scale or zero point are not constant")
    if not (np.isfinite(scale) & (scale >= 0)).all():
        raise NoIntegerForm(f"{what}: a scale is negative or no number")
    extents = [1] * integers.ndim
    if scale.size > 1:
        axis = int(value.attrs.axis) % integers.ndim
        if integers.shape[axis] != scale.size:
            raise NoIntegerForm(
                f"{what}: {scale.size} scales do not fit axis {axis} of size {integers.shape[axis]}"
            )
        extents[axis] = scale.size
    if np.any(zero_point != 0):
        if symmetric:
            raise NoIntegerForm(
                f"{what}: a zero point is {zero_point[zero_point != 0][0]}, where kernels take 0"
            )
        at = extents if zero_point.size > 1 else [1] * integers.ndim
        integers = _without_zero_point(integers, zero_point.reshape(at))
    scales = np.broadcast_to(scale.reshape(extents), integers.shape)
    return Weights(_signed(integers), scales, scale.reshape(-1), zero_point.reshape(-1))


def _without_zero_point(integers: Array, zero_point: Array) -> Array:
    """Return 8-bit integers minus their zero point, in 16 bits."""
    if integers.dtype.itemsize > 1:
        raise NoIntegerForm("a bias has a zero point other than 0")
    return integers.astype(np.int16) - zero_point.astype(np.int16)


def _signed(integers: Array) -> Array:
    """Return 8- or 16-bit integers as int8 if they fit, else as int16; other integers unchanged."""
    if integers.dtype not in (np.uint8, np.int16):
        return integers
    fit = integers.size == 0 or (integers.min() >= -128 and integers.max() <= 127)
    return integers.astype(np.int8 if fit else np.int16)


def _constant(expression: Expr, definition: Definition) -> Array | None:
    """Return the values of a constant after its reshapes and transposes; None for others.

    Casts are skipped, because importers cast a 64-bit bias, but the bias keeps its dtype here.
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


def _order(call: Expr, rank: int) -> list[int]:
    axes = call.attrs.axes
    return list(range(rank))[::-1] if axes is None else [int(axis) for axis in axes]
