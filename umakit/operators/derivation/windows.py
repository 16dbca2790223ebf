# SPDX-License-Identifier: Apache-2.0
"""Windows of Relax's convolutions and pools as windows of images, in one or two dimensions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, SupportsInt, TypeVar

from umakit import tvm_api
from umakit.operators.derivation.expressions import integers_of_result
from umakit.operators.islands import Island, Result
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.parameters import Pair, Pool2d, WindowFields
from umakit.operators.tensors import NoIntegerForm, Quantized, Weights
from umakit.tvm_api import Call

LAYOUTS = {"NHWC": "NHWC", "NCHW": "NCHW", "NCW": "NCHW"}
"""Rows of numbers are images of one row."""


@dataclass(frozen=True)
class Window:
    """A sliding window.

    Attributes:
        size: rows, columns of a pool's window; 0, 0 for convolutions.
        strides, dilation: rows, columns.
        padding: top, left, bottom, right.
        layout: `NHWC` or `NCHW`.
    """

    size: Pair
    strides: Pair
    dilation: Pair
    padding: tuple[int, int, int, int]
    layout: str

    @classmethod
    def of(cls, attributes: Any) -> Window:
        """Return the window of a convolution or pool."""
        layout = str(getattr(attributes, "data_layout", None) or attributes.layout)
        if layout not in LAYOUTS:
            raise NoIntegerForm(f"the data layout is {layout}, not NHWC or NCHW")
        flat = layout == "NCW"
        return cls(
            _pair(getattr(attributes, "pool_size", (0,) if flat else (0, 0))),
            _pair(attributes.strides),
            _pair(attributes.dilation),
            _padding(attributes.padding, flat),
            LAYOUTS[layout],
        )

    def common(self) -> WindowFields:
        """Return the fields of all `WindowParameters`."""
        return {"strides": self.strides, "padding": self.padding, "layout": self.layout}

    def ordered(self, weights: Weights, layout: str) -> Weights:
        """Weights as [O, KH, KW, I] for data in NHWC, as [O, I, KH, KW] for data in NCHW.

        Args:
            layout: axes of the weights, for example `OIHW`, `IOHW` or `OIW`.
        """
        if "H" not in layout:
            layout = layout.replace("W", "HW")
            at = layout.index("H")
            shape = weights.integers.shape
            weights = weights.reshaped((*shape[:at], 1, *shape[at:]))
        order = "OIHW" if self.layout == "NCHW" else "OHWI"
        return weights.transposed([layout.index(axis) for axis in order])


def on_images(
    island: Island, source: Quantized, make: Callable[[Island, Quantized], tvm_api.Call]
) -> tvm_api.Call:
    """Return a call of an operator on images, between two reshapes if the data is [N, C, W].

    Args:
        make: (island with a result of rank 4, data of rank 4) -> call.
    """
    shape = island.result.shape
    if len(shape) == 4:
        return make(island, source)
    reshape = tvm_api.relax.op.reshape
    span = island.result.span
    batch, channels, *rest = tvm_api.static_shape(source.integers) or ()
    if len(shape) != 3 or len(rest) != 1:
        raise NoIntegerForm(f"there is no integer form for {len(shape)} dimensions")
    image = tvm_api.make_call(reshape(source.integers, (batch, channels, 1, *rest)), span=span)
    data = Quantized(island.emit(image), source.scale)
    call = make(island.with_result(shape=(*shape[:2], 1, *shape[2:])), data)
    return tvm_api.make_call(reshape(island.emit(call), shape), span=span)


def same_padding(size: int, window: int, stride: int, dilation: int = 1) -> tuple[int, int]:
    """Return the padding before and after for TensorFlow's SAME: ceil(size / stride) positions."""
    reach = (-(-size // stride) - 1) * stride + (window - 1) * dilation + 1
    total = max(reach - size, 0)
    return total // 2, total - total // 2


def _pair(values: Iterable[SupportsInt]) -> Pair:
    """Return numbers for rows and columns; a single number is for columns, with 1 for rows."""
    numbers = [int(value) for value in values]
    first, second = [1] * (2 - len(numbers)) + numbers
    return first, second


def _padding(values: Iterable[SupportsInt], flat: bool) -> tuple[int, int, int, int]:
    numbers = [int(value) for value in values]
    if flat:
        left, right = numbers * (2 // len(numbers))
        return 0, left, 0, right
    if len(numbers) == 2:
        numbers *= 2
    top, left, bottom, right = numbers
    return top, left, bottom, right


P = TypeVar("P", bound=Pool2d)


class PoolFields(WindowFields):
    """The fields of `Pool2d` beyond the fields of all operators."""

    window: Pair


def plain_pool(kind: type[P], result: Result, call: Call, arithmetic: Arithmetic) -> P:
    """Return the parameters of a pool without dilation.

    Raises:
        NoIntegerForm: the integer pools do not support the attributes.
    """
    attributes = call.attrs
    window = Window.of(attributes)
    if window.dilation != (1, 1) or bool(attributes.ceil_mode):
        raise NoIntegerForm("a pool is dilated or rounds its size up")
    return kind(**result.common(arithmetic), **window.common(), window=window.size)


def tflm_pool(kind: type[Pool2d], island: Island) -> Call:
    """Return a call of a pool of data and result of the same scale."""
    source = island.operand()
    if source.scale != island.result.scale:
        raise NoIntegerForm("a pool's input and output have different scales")
    arithmetic = island.arithmetic_of(source)
    parameters = plain_pool(kind, island.result, island.call, arithmetic)
    return parameters.call([source.integers], island.result.span)


def pool_of_images(island: Island, parameters_of: Callable[[Result, tvm_api.Expr], Pool2d]) -> Call:
    """Return a call of a pool of images or rows; the pool compares integers of the result's scale.

    Args:
        parameters_of: (result of rank 4, integers [N, C, H, W]) -> parameters.
    """

    def pool(image: Island, source: Quantized) -> Call:
        integers = integers_of_result(image, source)
        parameters = parameters_of(image.result, integers)
        return parameters.call([integers], image.result.span)

    return on_images(island, island.operand(), pool)


def pool_fields(window: Window, result: Result, data: tvm_api.Expr) -> PoolFields:
    """Return the fields of all pools, with more padding for an output size that is rounded up."""
    sizes = (tvm_api.static_shape(data) or ())[2:]
    top, left, *after = window.padding
    for axis, before in enumerate((top, left)):
        reach = (result.shape[2 + axis] - 1) * window.strides[axis]
        reach += (window.size[axis] - 1) * window.dilation[axis] + 1
        after[axis] = max(after[axis], reach - before - sizes[axis])
    padding = (top, left, after[0], after[1])
    return {**window.common(), "padding": padding, "window": window.size}
