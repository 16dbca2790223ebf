# SPDX-License-Identifier: Apache-2.0
"""Layers of the simulated systolic array: placed in its scratchpad, run, and computed by NumPy."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from systolic_device import VALUES, Array, Device

OPERATIONS = VALUES["OPERATION"]


@dataclass(frozen=True)
class Layer:
    """One job of the array; sizes as (height, width)."""

    size: tuple[int, int]
    channels: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    pad: tuple[int, int]
    output: tuple[int, int]
    channels_first: tuple[bool, bool]
    gap: int
    zero_points: tuple[int, int]
    clip: tuple[int, int]
    per_channel: bool
    rounding: int
    seed: int


def strides(size: tuple[int, int], channels: int, first: bool, gap: int) -> tuple[int, int, int]:
    """Return strides of rows, columns and channels in bytes, with a gap after each row of bytes."""
    height, width = size
    if first:
        return width + gap, 1, (width + gap) * height
    return width * (channels + gap), channels + gap, 1


def windows(layer: Layer, data: Array, fill: int) -> tuple[Array, Array]:
    """Inputs and whether they are inside: [oh, ow, kh, kw, channels], [oh, ow, kh, kw]."""
    positions = [
        np.arange(layer.output[axis])[:, None] * layer.stride[axis]
        - layer.pad[axis]
        + np.arange(layer.kernel[axis]) * layer.dilation[axis]
        for axis in (0, 1)
    ]
    inside = [(p >= 0) & (p < s) for p, s in zip(positions, layer.size, strict=True)]
    rows, columns = (np.clip(p, 0, s - 1) for p, s in zip(positions, layer.size, strict=True))
    taken = data[rows[:, None, :, None], columns[None, :, None, :]].astype(np.int64)
    valid = inside[0][:, None, :, None] & inside[1][None, :, None, :]
    return np.where(valid[..., None], taken, fill), valid


def float32_result(sums: Array, factors: Array) -> Array:
    """What ONNX Runtime computes: a float32 product, rounded to the nearest even integer."""
    return np.rint(sums.astype(np.float32) * factors.astype(np.float32)).astype(np.float64)


def tflm_result(sums: Array, multipliers: Array, shifts: Array) -> Array:
    """gemmlowp's two roundings with Python's unlimited integers."""

    def one(value: int, multiplier: int, shift: int) -> int:
        value <<= max(shift, 0)
        high = (value * multiplier + 2**30) >> 31
        right = max(-shift, 0)
        if not right:
            return high
        magnitude = (abs(high) + (1 << (right - 1))) >> right
        return magnitude if high >= 0 else -magnitude

    flat = [
        one(int(v), int(m), int(s))
        for v, m, s in zip(sums.ravel(), multipliers.ravel(), shifts.ravel(), strict=True)
    ]
    return np.array(flat, np.float64).reshape(sums.shape)


@dataclass
class Weights:
    """Values of a layer's constants."""

    weights: Array
    bias: Array
    multipliers: Array
    shifts: Array


def draw_weights(layer: Layer, depthwise: bool, random: np.random.Generator) -> Weights:
    inputs, outputs = layer.channels
    scales = outputs if layer.per_channel else 1
    shape = (outputs, *layer.kernel, 1 if depthwise else inputs)
    # 24 significant bits, so that a float32 holds the factor.
    multipliers = random.integers(2**23, 2**24, scales) << 7
    return Weights(
        random.integers(-128, 128, shape).astype(np.int8),
        random.integers(-(2**17), 2**17, outputs).astype(np.int32),
        multipliers.astype(np.int32),
        random.integers(-12, 1, scales).astype(np.int8),
    )


def expected(layer: Layer, data: Array, parameters: Weights, depthwise: bool) -> Array:
    """[oh, ow, channels] by the definition."""
    inputs, outputs = layer.channels
    taken, _ = windows(layer, data, layer.zero_points[0])
    taken = taken - layer.zero_points[0]
    weights = parameters.weights.astype(np.int64)
    if depthwise:
        taken = np.repeat(taken, outputs // inputs, axis=4)
        sums = np.einsum("yxhwo,ohw->yxo", taken, weights[..., 0])
    else:
        sums = np.einsum("yxhwi,ohwi->yxo", taken, weights)
    sums = sums + parameters.bias
    multipliers = np.broadcast_to(parameters.multipliers.astype(np.int64), sums.shape)
    shifts = np.broadcast_to(parameters.shifts.astype(np.int64), sums.shape)
    if layer.rounding:
        scaled = float32_result(sums, np.ldexp(multipliers.astype(np.float64), shifts - 31))
    else:
        scaled = tflm_result(sums, multipliers, shifts)
    return np.clip(scaled + layer.zero_points[1], *layer.clip).astype(np.int8)


def blocked(weights: Array, columns: int) -> Array:
    """[O, H, W, I] to [ceil(O / columns), H, W, I, columns]; rubbish fills the last block."""
    blocks = -(-weights.shape[0] // columns)
    full = np.full((blocks * columns, *weights.shape[1:]), 99, np.int8)
    full[: weights.shape[0]] = weights
    return full.reshape(blocks, columns, *weights.shape[1:]).transpose(0, 2, 3, 4, 1)


def place(layer: Layer, data: Array) -> Array:
    """The bytes of an input [height, width, channels] in the layer's layout."""
    row, column, channel = strides(
        layer.size, layer.channels[0], layer.channels_first[0], layer.gap
    )
    height, width, channels = data.shape
    image = np.full((height - 1) * row + (width - 1) * column + (channels - 1) * channel + 1, 77)
    image = image.astype(np.int8)
    view = np.lib.stride_tricks.as_strided(image, data.shape, (row, column, channel))
    view[...] = data
    return image


class Job:
    """A layer in the scratchpad of a device."""

    def __init__(self, device: Device, layer: Layer, operation: str) -> None:
        self.device, self.layer = device, layer
        self._next = 0
        names = ("ROW", "COLUMN", "CHANNEL")
        self.output_strides = strides(
            layer.output, layer.channels[1], layer.channels_first[1], layer.gap
        )
        input_strides = strides(layer.size, layer.channels[0], layer.channels_first[0], layer.gap)
        device.program(
            OPERATION=OPERATIONS[operation],
            INPUT_HEIGHT=layer.size[0], INPUT_WIDTH=layer.size[1],
            INPUT_CHANNELS=layer.channels[0], OUTPUT_CHANNELS=layer.channels[1],
            OUTPUT_HEIGHT=layer.output[0], OUTPUT_WIDTH=layer.output[1],
            KERNEL_HEIGHT=layer.kernel[0], KERNEL_WIDTH=layer.kernel[1],
            STRIDE_HEIGHT=layer.stride[0], STRIDE_WIDTH=layer.stride[1],
            DILATION_HEIGHT=layer.dilation[0], DILATION_WIDTH=layer.dilation[1],
            PAD_TOP=layer.pad[0], PAD_LEFT=layer.pad[1],
            INPUT_ZERO_POINT=layer.zero_points[0], OUTPUT_ZERO_POINT=layer.zero_points[1],
            CLIP_LOWEST=layer.clip[0], CLIP_HIGHEST=layer.clip[1], ROUNDING=layer.rounding,
            **{f"IFMAP_{n}_STRIDE": v for n, v in zip(names, input_strides, strict=True)},
            **{f"OFMAP_{n}_STRIDE": v for n, v in zip(names, self.output_strides, strict=True)},
        )  # fmt: skip

    def put(self, register: str, data: Array) -> None:
        """Load an operand at the next free offset."""
        self.device.load(data, self._next)
        self.device.write(register, self._next)
        self._next += -(-data.nbytes // 4) * 4

    def put_weights(self, parameters: Weights, depthwise: bool) -> None:
        weights = (
            parameters.weights[..., 0].transpose(1, 2, 0)
            if depthwise
            else blocked(parameters.weights, self.device.config.array_columns)
        )
        self.put("WEIGHTS_START", weights)
        self.put("BIAS_START", parameters.bias)
        self.put("MULTIPLIERS_START", parameters.multipliers)
        self.put("SHIFTS_START", parameters.shifts)
        self.device.write("SCALE_COUNT", parameters.shifts.size)

    def run(self) -> tuple[Array, int]:
        """The result [oh, ow, channels] and the cycles that it took."""
        start, device = self._next, self.device
        shape = (*self.layer.output, self.layer.channels[1])
        device.write("OFMAP_START", start)
        before = device.scratchpad.copy()
        cycles = device.start("ARRAY_START")
        assert device.error() == "OK" and device.status() >= {"IDLE", "ARRAY_DONE"}
        view = np.lib.stride_tricks.as_strided(
            device.scratchpad[start:].view(np.int8), shape, self.output_strides
        )
        result = view.copy()
        # Nothing else was written: not the gaps, not what lies behind.
        view[...] = np.lib.stride_tricks.as_strided(
            before[start:].view(np.int8), shape, self.output_strides
        )
        np.testing.assert_array_equal(device.scratchpad, before)
        return result, cycles


def closed_form(dataflow: str, m: int, n: int, k: int, rows: int, columns: int, drain: int) -> int:
    """SCALE-Sim's cycles; see `reference/README.md` of the issue."""
    if dataflow == "OUTPUT_STATIONARY":
        folds, one = math.ceil(m / rows) * math.ceil(n / columns), rows + columns + k - 2
    elif dataflow == "WEIGHT_STATIONARY":
        folds, one = math.ceil(k / rows) * math.ceil(n / columns), 2 * rows + columns + m - 2
    else:
        folds, one = math.ceil(k / rows) * math.ceil(m / columns), 2 * rows + columns + n - 2
    return folds * (one + drain)
