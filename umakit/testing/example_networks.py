# SPDX-License-Identifier: Apache-2.0
"""Small int8 and int16 networks with random weights, for testing backends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit import tvm_api
from umakit.errors import InputError
from umakit.operators.numeric.fixed_point import fixed_point
from umakit.operators.parameters import Parameters
from umakit.operators.registry import parameters_class
from umakit.testing.harness import AOTModel

Array = npt.NDArray[Any]

Pair = tuple[int, int]

INPUT_ZERO_POINT, ZERO_POINT = -7, 3
ADD_LEFT_SHIFT = 20
"""Left shift in bits of the operands of an addition, as in TensorFlow Lite for int8."""


class QuantizedNetwork:
    """A chain of int8 or int16 layers; each method appends a layer and returns the network.

    Args:
        height, width, channels: size of the input.
        layout: layout of all images, `NHWC` or `NCHW`.
        batch: number of images.
        rounding: `tflm` or `ort`, see `umakit.operators`.
        dtype: dtype of images: `int8`, or `int16` with int64 biases and zero points of 0. Weights
            are int8.
        seed: seed of weights, bias, scales and input.
    """

    def __init__(
        self,
        height: int,
        width: int,
        channels: int,
        *,
        layout: str = "NHWC",
        rounding: str = "tflm",
        dtype: str = "int8",
        batch: int = 1,
        seed: int = 0,
    ) -> None:
        if dtype not in ("int8", "int16"):
            raise InputError(f"there are no networks of {dtype}", fix="choose int8 or int16")
        self._random = np.random.default_rng(seed)
        self._layout = layout
        self._rounding = rounding
        self._dtype = dtype
        self._batch = batch
        self._size = (height, width, channels)
        limits = np.iinfo(dtype)
        values = self._random.integers(limits.min, int(limits.max) + 1, self._shape(self._size))
        self._input = values.astype(dtype)
        self._layers: list[tuple[str, Parameters, list[Array]]] = []
        self._zero_point = 0 if self._is_wide else INPUT_ZERO_POINT

    @property
    def channels(self) -> int:
        """The number of channels of the last layer's output."""
        return self._size[2]

    def conv2d(
        self,
        filters: int,
        kernel: int | tuple[int, int] = 3,
        stride: int | Pair = 1,
        *,
        padding: str = "same",
        dilation: int | Pair = 1,
        depthwise: bool = False,
        per_channel: bool = True,
    ) -> QuantizedNetwork:
        """Append a convolution with bias.

        Args:
            filters: output channels; for a depthwise convolution a multiple of the input's.
            kernel: rows and columns.
            stride, dilation: in both directions, or of rows and columns.
            padding: `same` (TensorFlow's) or `valid`.
            depthwise: whether each input channel is a group of its own.
            per_channel: whether each output channel has its own scale.

        Raises:
            InputError: the kernel is larger than the image, or the channels do not divide.
        """
        window, strides, dilations = _pair(kernel), _pair(stride), _pair(dilation)
        channels = self.channels
        groups = channels if depthwise else 1
        if filters % groups:
            raise InputError(f"{filters} filters are not a multiple of {channels} channels")
        pads = self._slide(window, strides, dilations, padding)
        self._size = (*self._size[:2], filters)
        parameters = parameters_class("conv2d")(
            **self._common(self._shape(self._size)),
            input_zero_point=self._zero_point,
            strides=strides,
            padding=pads,
            dilation=dilations,
            groups=groups,
            layout=self._layout,
        )
        shape = (filters, *window, channels // groups)
        if self._layout == "NCHW":  # weights are OIHW
            shape = (filters, channels // groups, *window)
        return self._add("conv", parameters, self._weighted(shape, per_channel))

    def pool2d(
        self, kind: str, window: int | Pair = 2, stride: int | Pair = 2, *, padding: str = "valid"
    ) -> QuantizedNetwork:
        """Append a pooling layer, which ignores padding.

        Args:
            kind: `max` or `average`.
            window: rows and columns.
            stride: stride of both directions, or of rows and columns.
            padding: `same` (TensorFlow's) or `valid`.

        Raises:
            InputError: the kind is unknown, or the window is larger than the image.
        """
        kinds = {"max": "max_pool2d", "average": "avg_pool2d"}
        if kind not in kinds:
            raise InputError(f"there is no {kind} pool", fix="choose max or average")
        taps, strides = _pair(window), _pair(stride)
        pads = self._slide(taps, strides, (1, 1), padding)
        common = self._common(self._shape(self._size)) | {"output_zero_point": self._zero_point}
        parameters = parameters_class(kinds[kind])(
            **common, strides=strides, padding=pads, window=taps, layout=self._layout
        )
        return self._add(f"{kind}_pool", parameters, [])

    def residual(self, *, swapped: bool = False) -> QuantizedNetwork:
        """Append the sum of the last layer's input and output, which have the same shape.

        Args:
            swapped: whether the last layer's output is the right operand.

        Raises:
            InputError: there is no layer, the shapes differ, or the dtype is int16.
        """
        shape, other = self._last_input()
        scales = self._random.uniform(0.5, 1.5, 2)
        twice = 2 * float(max(scales))
        # The sum fills the dtype's range and saturates now and then.
        scaled = fixed_point([*(float(each) / twice for each in scales), 1.3 / 2**ADD_LEFT_SHIFT])
        first, second, third = (int(each) for each in scaled.multipliers)
        shifts = [int(each) for each in scaled.shifts]
        zero_points = (other, self._zero_point) if swapped else (self._zero_point, other)
        parameters = parameters_class("add")(
            **self._common(shape),
            zero_points=zero_points,
            left_shift=ADD_LEFT_SHIFT,
            multipliers=(first, second, third),
            shifts=(shifts[0], shifts[1], shifts[2]),
        )
        return self._add("swapped_add" if swapped else "add", parameters, [])

    def product(self) -> QuantizedNetwork:
        """Append the product of the last layer's output and input, which have the same shape.

        Raises:
            InputError: there is no layer, the shapes differ, or the dtype is int16.
        """
        shape, other = self._last_input()
        # Products of values that fill the dtype's range fill it again, and saturate now and then.
        scaled = fixed_point([float(self._random.uniform(1, 2)) / 90])
        parameters = parameters_class("multiply")(
            **self._common(shape),
            zero_points=(self._zero_point, other),
            multiplier=int(scaled.multipliers[0]),
            shift=int(scaled.shifts[0]),
        )
        return self._add("multiply", parameters, [])

    def dense(self, outputs: int, *, per_channel: bool = False) -> QuantizedNetwork:
        """Append a fully connected layer with bias on all elements of the last layer's output."""
        inputs = math.prod(self._size)
        self._size = (1, 1, outputs)
        parameters = parameters_class("dense")(
            **self._common((self._batch, outputs)), input_zero_point=self._zero_point
        )
        return self._add("dense", parameters, self._weighted((outputs, inputs), per_channel))

    @tvm_api.one_at_a_time
    def model(self, name: str = "quantized") -> AOTModel:
        """Return the network with a random input.

        Args:
            name: name of the model in C.
        """
        relax = tvm_api.relax
        builder = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorType(self._input.shape, self._dtype))
        with builder.function("main", [x]):
            with builder.dataflow():
                value: Any = x
                before: Any = x  # input of the last layer
                for label, parameters, constants in self._layers:
                    if parameters.operator == "dense":
                        flat = relax.op.reshape(value, (self._batch, constants[0].shape[1]))
                        value = builder.emit(flat, f"{label}_input")
                    operands = [
                        value,
                        *(relax.const(array, str(array.dtype)) for array in constants),
                    ]
                    if parameters.operator in ("add", "multiply"):
                        operands.append(before)
                    if label.startswith("swapped"):
                        operands.reverse()
                    before, value = value, builder.emit(parameters.call(operands, None), label)
                result = builder.emit_output(value)
            builder.emit_func_output(result)
        return AOTModel(builder.get(), {"x": self._input}, name=name)

    def _last_input(self) -> tuple[tuple[int, ...], int]:
        if not self._layers or self._is_wide:
            raise InputError("sums and products with its input need an int8 layer before them")
        before = self._layers[-2][1] if len(self._layers) > 1 else None
        shape = tuple(self._input.shape if before is None else before.output_shape)
        if shape != self._layers[-1][1].output_shape:
            raise InputError(f"{shape} and {self._layers[-1][1].output_shape} are not one shape")
        return shape, INPUT_ZERO_POINT if before is None else before.output_zero_point

    def _common(self, shape: Sequence[int]) -> dict[str, Any]:
        limits = np.iinfo(self._dtype)
        return {
            "output_shape": tuple(shape),
            "output_dtype": self._dtype,
            "output_zero_point": 0 if self._is_wide else ZERO_POINT,
            "clip": (int(limits.min), int(limits.max)),
            "rounding": self._rounding,
        }

    @property
    def _is_wide(self) -> bool:
        return self._dtype == "int16"

    def _add(self, kind: str, parameters: Parameters, constants: list[Array]) -> QuantizedNetwork:
        self._layers.append((f"{kind}{len(self._layers) + 1}", parameters, constants))
        self._zero_point = parameters.output_zero_point
        return self

    def _slide(self, window: Pair, strides: Pair, dilation: Pair, padding: str) -> Any:
        axes = list(zip(self._size[:2], window, strides, dilation, strict=True))
        sides = [_padding(*each, padding) for each in axes]
        rows, columns = (
            (size + sum(pads) - (taps - 1) * step - 1) // stride + 1
            for (size, taps, stride, step), pads in zip(axes, sides, strict=True)
        )
        if min(rows, columns) < 1:
            raise InputError(f"a {window[0]}x{window[1]} kernel is larger than its input")
        self._size = (rows, columns, self._size[2])
        return (sides[0][0], sides[1][0], sides[0][1], sides[1][1])

    def _weighted(self, shape: tuple[int, ...], per_channel: bool) -> list[Array]:
        weights = self._random.integers(-127, 128, shape).astype(np.int8)
        largest = 2000 * 256 if self._is_wide else 2000
        bias = self._random.integers(-largest, largest, shape[0])
        # Scale sums of products so that results fill the dtype's range: with half the deviation of
        # the uniformly distributed network input, and the same deviation in later layers.
        gain = 1.0 if self._layers else 0.5
        spread = gain / (75 * math.sqrt(math.prod(shape[1:])))
        count = shape[0] if per_channel else 1
        scaled = fixed_point([float(f) for f in spread * self._random.uniform(0.5, 1.5, count)])
        multipliers = scaled.multipliers
        if self._is_wide:  # sums of 64 bits have multipliers of 15
            multipliers = np.minimum((multipliers.astype(np.int64) + 2**15) >> 16, 2**15 - 1)
        return [
            weights,
            bias.astype(np.int64 if self._is_wide else np.int32),
            multipliers.astype(np.int32),
            scaled.shifts,
        ]

    def _shape(self, size: tuple[int, int, int]) -> tuple[int, ...]:
        height, width, channels = size
        if self._layout == "NCHW":
            return (self._batch, channels, height, width)
        return (self._batch, height, width, channels)


def _pair(value: int | Pair) -> Pair:
    return (value, value) if isinstance(value, int) else value


def _padding(size: int, taps: int, stride: int, dilation: int, padding: str) -> tuple[int, int]:
    """Return the numbers of padded rows or columns before and after."""
    if padding == "valid":
        return 0, 0
    outputs = -(-size // stride)
    total = max((outputs - 1) * stride + (taps - 1) * dilation + 1 - size, 0)
    return total // 2, total - total // 2
