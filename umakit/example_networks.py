# SPDX-License-Identifier: Apache-2.0
"""Small int8 networks with random weights, to try a backend on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit import tvm_api
from umakit.errors import InputError
from umakit.harness import AOTModel
from umakit.quantization.fixed_point import fixed_point
from umakit.quantization.operators import Conv2d, Dense, Parameters

Array = npt.NDArray[Any]

INPUT_ZERO_POINT, ZERO_POINT = -7, 3


class QuantizedNetwork:
    """A chain of int8 or int16 layers; each method adds one and returns the network.

    Args:
        height, width, channels: of the input.
        layout: `NHWC` or `NCHW`, of all images; the batch is 1.
        rounding: `tflm` or `ort`, see `umakit.quantization.Rounding`.
        dtype: of images: `int8`, or `int16` with biases of int64 and zero points of 0. Weights are
            int8.
        seed: of weights, bias, scales and input.
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
        seed: int = 0,
    ) -> None:
        if dtype not in ("int8", "int16"):
            raise InputError(f"there are no networks of {dtype}", fix="choose int8 or int16")
        self._random = np.random.default_rng(seed)
        self._layout = layout
        self._rounding = rounding
        self._dtype = dtype
        self._size = (height, width, channels)
        self._input = self._image(self._size)
        self._layers: list[tuple[str, Parameters, list[Array]]] = []

    @property
    def channels(self) -> int:
        """Of what the last layer yields."""
        return self._size[2]

    def conv2d(
        self,
        filters: int,
        kernel: int | tuple[int, int] = 3,
        stride: int = 1,
        *,
        padding: str = "same",
        dilation: int = 1,
        depthwise: bool = False,
        per_channel: bool = True,
    ) -> QuantizedNetwork:
        """A convolution with bias.

        Args:
            filters: output channels; of a depthwise convolution a multiple of the input's.
            kernel: rows and columns.
            stride, dilation: in both directions.
            padding: `same` (TensorFlow's) or `valid`.
            depthwise: whether each input channel is a group of its own.
            per_channel: whether each output channel has a scale of its own.

        Raises:
            InputError: the kernel is larger than the image, or the channels do not divide.
        """
        window = (kernel, kernel) if isinstance(kernel, int) else kernel
        height, width, channels = self._size
        groups = channels if depthwise else 1
        if filters % groups:
            raise InputError(f"{filters} filters are no multiple of {channels} channels")
        sides = [
            _padding(size, taps, stride, dilation, padding)
            for size, taps in zip((height, width), window, strict=True)
        ]
        rows, columns = (
            (size + first + last - (taps - 1) * dilation - 1) // stride + 1
            for size, taps, (first, last) in zip((height, width), window, sides, strict=True)
        )
        if min(rows, columns) < 1:
            raise InputError(f"a {window[0]}x{window[1]} kernel is larger than its input")
        self._size = (rows, columns, filters)
        known = Conv2d(
            **self._common(self._shape(self._size)),
            strides=(stride, stride),
            padding=(sides[0][0], sides[1][0], sides[0][1], sides[1][1]),
            dilation=(dilation, dilation),
            groups=groups,
            layout=self._layout,
        )
        shape = (filters, *window, channels // groups)
        if self._layout == "NCHW":  # whose weights are OIHW
            shape = (filters, channels // groups, *window)
        return self._add("conv", known, shape, per_channel)

    def dense(self, outputs: int, *, per_channel: bool = False) -> QuantizedNetwork:
        """A fully connected layer with bias, on all elements of what was there before."""
        inputs = math.prod(self._size)
        self._size = (1, 1, outputs)
        known = Dense(**self._common((1, outputs)))
        return self._add("dense", known, (outputs, inputs), per_channel)

    def model(self, name: str = "quantized") -> AOTModel:
        """The network with an input.

        Args:
            name: of the model in C.
        """
        relax = tvm_api.relax
        builder = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorType(self._input.shape, self._dtype))
        with builder.function("main", [x]):
            with builder.dataflow():
                value: Any = x
                for label, known, constants in self._layers:
                    if isinstance(known, Dense):
                        flat = relax.op.reshape(value, (1, constants[0].shape[1]))
                        value = builder.emit(flat, f"{label}_input")
                    operands = [
                        value,
                        *(relax.const(array, str(array.dtype)) for array in constants),
                    ]
                    value = builder.emit(known.call(operands, None), label)
                result = builder.emit_output(value)
            builder.emit_func_output(result)
        return AOTModel(builder.get(), {"x": self._input}, name=name)

    def _common(self, shape: Sequence[int]) -> dict[str, Any]:
        """Attributes that all layers have."""
        limits = np.iinfo(self._dtype)
        first, later = (0, 0) if self._is_wide else (INPUT_ZERO_POINT, ZERO_POINT)
        return {
            "output_shape": tuple(shape),
            "output_dtype": self._dtype,
            "output_zero_point": later,
            "clip": (int(limits.min), int(limits.max)),
            "rounding": self._rounding,
            "input_zero_point": later if self._layers else first,
        }

    @property
    def _is_wide(self) -> bool:
        return self._dtype == "int16"

    def _add(
        self, kind: str, known: Parameters, shape: tuple[int, ...], per_channel: bool
    ) -> QuantizedNetwork:
        """Add a layer with weights of a shape, whose first axis is that of output channels."""
        weights = self._random.integers(-127, 128, shape).astype(np.int8)
        largest = 2000 * 256 if self._is_wide else 2000
        bias = self._random.integers(-largest, largest, shape[0])
        # Sums of that many products become values that fill the dtype.
        spread = 0.5 / (75 * math.sqrt(math.prod(shape[1:])))
        count = shape[0] if per_channel else 1
        scaled = fixed_point([float(f) for f in spread * self._random.uniform(0.5, 1.5, count)])
        multipliers = scaled.multipliers
        if self._is_wide:  # sums of 64 bits have multipliers of 15
            multipliers = np.minimum((multipliers.astype(np.int64) + 2**15) >> 16, 2**15 - 1)
        arrays = [
            weights,
            bias.astype(np.int64 if self._is_wide else np.int32),
            multipliers.astype(np.int32),
            scaled.shifts,
        ]
        self._layers.append((f"{kind}{len(self._layers) + 1}", known, arrays))
        return self

    def _shape(self, size: tuple[int, int, int]) -> tuple[int, ...]:
        height, width, channels = size
        if self._layout == "NCHW":
            return (1, channels, height, width)
        return (1, height, width, channels)

    def _image(self, size: tuple[int, int, int]) -> Array:
        limits = np.iinfo(self._dtype)
        values = self._random.integers(limits.min, int(limits.max) + 1, self._shape(size))
        return values.astype(self._dtype)


def _padding(size: int, taps: int, stride: int, dilation: int, padding: str) -> tuple[int, int]:
    """Rows or columns before and behind."""
    if padding == "valid":
        return 0, 0
    outputs = -(-size // stride)
    total = max((outputs - 1) * stride + (taps - 1) * dilation + 1 - size, 0)
    return total // 2, total - total // 2
