# SPDX-License-Identifier: Apache-2.0
"""The simulated systolic array against NumPy: results, cycles and transfers of drawn shapes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from systolic_device import TO_DEVICE, VALUES, Array, Config, Device

Draw = Any

DATAFLOWS = VALUES["DATAFLOW"]
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


@st.composite
def layers(draw: Draw, depthwise: bool = False, pool: bool = False) -> Layer:
    """Layers whose operands fit the scratchpad; outputs may begin and end in padding."""

    def pair(low: int, high: int) -> tuple[int, int]:
        return draw(st.integers(low, high)), draw(st.integers(low, high))

    size, kernel, stride, dilation = pair(1, 9), pair(1, 4), pair(1, 3), pair(1, 3)
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    # A pool's window must have an input; with dilation only a small padding is sure to leave one.
    limit = [0 if pool and d > 1 else e - 1 for e, d in zip(extent, dilation, strict=True)]
    pad = tuple(draw(st.integers(0, most)) for most in limit)
    if pool and any(d > 1 for d in dilation):
        size = tuple(max(s, e) for s, e in zip(size, extent, strict=True))  # type: ignore[assignment]
    reach = [
        (s - 1 + p) if pool and d == 1 else (s + p - 1)
        for s, p, d in zip(size, pad, dilation, strict=True)
    ]
    if pool and any(d > 1 for d in dilation):
        reach = [r - (e - 1) for r, e in zip(reach, extent, strict=True)]
    most = [max(r, 0) // s + 1 for r, s in zip(reach, stride, strict=True)]
    extra = 0 if pool else draw(st.integers(0, 1))
    output = tuple(draw(st.integers(1, m)) + extra for m in most)
    inputs = draw(st.integers(1, 19))
    outputs = draw(st.integers(1, 45))
    if depthwise:
        outputs = inputs * draw(st.integers(1, 3))
    if pool:
        outputs = inputs
    clip = sorted(pair(-128, 127))
    return Layer(
        size, (inputs, outputs), kernel, stride, dilation, pad, output,
        (draw(st.booleans()), draw(st.booleans())), draw(st.integers(0, 3)),
        pair(-128, 127), (clip[0], clip[1]), draw(st.booleans()), draw(st.integers(0, 1)),
        draw(st.integers(0, 2**32 - 1)),
    )  # fmt: skip


def strides(size: tuple[int, int], channels: int, first: bool, gap: int) -> tuple[int, int, int]:
    """Of rows, columns and channels, in bytes, with a gap behind each row of bytes."""
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


def expected(layer: Layer, data: Array, known: Weights, depthwise: bool) -> Array:
    """[oh, ow, channels] by the definition."""
    inputs, outputs = layer.channels
    taken, _ = windows(layer, data, layer.zero_points[0])
    taken = taken - layer.zero_points[0]
    weights = known.weights.astype(np.int64)
    if depthwise:
        taken = np.repeat(taken, outputs // inputs, axis=4)
        sums = np.einsum("yxhwo,ohw->yxo", taken, weights[..., 0])
    else:
        sums = np.einsum("yxhwi,ohwi->yxo", taken, weights)
    sums = sums + known.bias
    multipliers = np.broadcast_to(known.multipliers.astype(np.int64), sums.shape)
    shifts = np.broadcast_to(known.shifts.astype(np.int64), sums.shape)
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

    def put_weights(self, known: Weights, depthwise: bool) -> None:
        weights = (
            known.weights[..., 0].transpose(1, 2, 0)
            if depthwise
            else blocked(known.weights, self.device.config.array_columns)
        )
        self.put("WEIGHTS_START", weights)
        self.put("BIAS_START", known.bias)
        self.put("MULTIPLIERS_START", known.multipliers)
        self.put("SHIFTS_START", known.shifts)
        self.device.write("SCALE_COUNT", known.shifts.size)

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


ARRAYS = st.tuples(st.sampled_from([1, 3, 8, 16]), st.sampled_from([1, 4, 8, 12, 16]))


@settings(max_examples=150, deadline=None)
@given(layers(), ARRAYS, st.sampled_from(sorted(DATAFLOWS)), st.integers(0, 9))
def test_convolutions_are_those_of_numpy(
    layer: Layer, array: tuple[int, int], dataflow: str, drain: int
) -> None:
    device = Device(Config(array_rows=array[0], array_columns=array[1], drain_cycles_per_fold=drain,
                           scratchpad_bytes=1 << 17))  # fmt: skip
    random = np.random.default_rng(layer.seed)
    data = random.integers(-128, 128, (*layer.size, layer.channels[0])).astype(np.int8)
    known = draw_weights(layer, False, random)
    job = Job(device, layer, "CONVOLUTION")
    device.write("DATAFLOW", DATAFLOWS[dataflow])
    job.put("IFMAP_START", place(layer, data))
    job.put_weights(known, False)
    result, cycles = job.run()
    np.testing.assert_array_equal(result, expected(layer, data, known, False))
    m, n = math.prod(layer.output), layer.channels[1]
    k = math.prod(layer.kernel) * layer.channels[0]
    assert cycles == closed_form(dataflow, m, n, k, *array, drain)
    assert device.counter("DRAIN_CYCLES") == cycles - closed_form(dataflow, m, n, k, *array, 0)
    assert device.counter("USEFUL_MACS") == m * n * k <= device.counter("MACS")


@settings(max_examples=100, deadline=None)
@given(layers(depthwise=True), ARRAYS, st.sampled_from(["OUTPUT_STATIONARY", "WEIGHT_STATIONARY"]))
def test_depthwise_convolutions_are_those_of_numpy(
    layer: Layer, array: tuple[int, int], dataflow: str
) -> None:
    device = Device(Config(array_rows=array[0], array_columns=array[1]))
    random = np.random.default_rng(layer.seed)
    data = random.integers(-128, 128, (*layer.size, layer.channels[0])).astype(np.int8)
    known = draw_weights(layer, True, random)
    job = Job(device, layer, "DEPTHWISE")
    device.write("DATAFLOW", DATAFLOWS[dataflow])
    job.put("IFMAP_START", place(layer, data))
    job.put_weights(known, True)
    result, cycles = job.run()
    np.testing.assert_array_equal(result, expected(layer, data, known, True))
    m, n, k = math.prod(layer.output), layer.channels[1], math.prod(layer.kernel)
    assert cycles == closed_form(dataflow, m, n, k, *array, 0)
    assert device.counter("USEFUL_MACS") == m * n * k


@settings(max_examples=100, deadline=None)
@given(layers(pool=True), st.sampled_from(["MAX_POOL", "AVERAGE_POOL"]), st.integers(1, 9))
def test_pools_are_those_of_numpy(layer: Layer, operation: str, lanes: int) -> None:
    device = Device(Config(pooling_lanes=lanes))
    random = np.random.default_rng(layer.seed)
    data = random.integers(-128, 128, (*layer.size, layer.channels[0])).astype(np.int8)
    taken, valid = windows(layer, data, -1000 if operation == "MAX_POOL" else 0)
    job = Job(device, layer, operation)
    job.put("IFMAP_START", place(layer, data))
    if not valid.any(axis=(2, 3)).all():
        device.write("OFMAP_START", 1 << 15)
        device.start("ARRAY_START")
        assert device.error() == "INVALID_ARGUMENT"
        return
    result, cycles = job.run()
    if operation == "MAX_POOL":
        wanted = taken.max(axis=(2, 3))
    else:
        count = valid.sum(axis=(2, 3))[..., None]
        sums = taken.sum(axis=(2, 3))
        wanted = np.sign(sums) * ((2 * np.abs(sums) + count) // (2 * count))
    np.testing.assert_array_equal(result, np.clip(wanted, *layer.clip))
    taps = math.prod(layer.output) * math.prod(layer.kernel)
    assert cycles == taps * math.ceil(layer.channels[0] / lanes)


def test_a_fully_connected_layer_is_a_convolution_of_one_position() -> None:
    layer = Layer(
        (1, 1), (500, 30), (1, 1), (1, 1), (1, 1), (0, 0), (1, 1), (False, False), 0,
        (-3, 5), (-128, 127), True, 0, 7,
    )  # fmt: skip
    device = Device()
    random = np.random.default_rng(1)
    data = random.integers(-128, 128, (1, 1, 500)).astype(np.int8)
    known = draw_weights(layer, False, random)
    job = Job(device, layer, "CONVOLUTION")
    job.put("IFMAP_START", data)
    job.put_weights(known, False)
    result, _ = job.run()
    np.testing.assert_array_equal(result, expected(layer, data, known, False))


def test_sums_wrap_at_32_bits() -> None:
    layer = Layer(
        (1, 1), (1, 1), (1, 1), (1, 1), (1, 1), (0, 0), (1, 1), (False, False), 0,
        (0, 0), (-128, 127), False, 0, 7,
    )  # fmt: skip
    device = Device()
    job = Job(device, layer, "CONVOLUTION")
    job.put("IFMAP_START", np.int8([[[1]]]))
    one = Weights(np.ones((1, 1, 1, 1), np.int8), np.int32([2**31 - 1]), np.int32([2**30]),
                  np.int8([-24]))  # fmt: skip
    job.put_weights(one, False)
    result, _ = job.run()
    assert result.item() == -64, "-2**31 * 2**-25"


# --- time ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("banks", [1, 2, 4])
def test_engines_overlap_unless_they_share_a_bank(banks: int) -> None:
    device = Device(Config(scratchpad_banks=banks))
    layer = Layer(
        (9, 9), (8, 8), (3, 3), (1, 1), (1, 1), (1, 1), (9, 9), (False, False), 0,
        (0, 0), (-128, 127), False, 0, 3,
    )  # fmt: skip
    random = np.random.default_rng(3)
    data = random.integers(-128, 128, (9, 9, 8)).astype(np.int8)
    known = draw_weights(layer, False, random)
    job = Job(device, layer, "CONVOLUTION")
    job.put("IFMAP_START", data)
    job.put_weights(known, False)
    result, cycles = job.run()

    source = np.full(1 << 13, 55, np.uint8)
    address = device.map(source, TO_DEVICE)
    far = device.config.scratchpad_bytes // 2
    device.program(DMA_BUS_ADDRESS=address, DMA_SCRATCHPAD_START=far, DMA_ROW_BYTES=source.size)
    transfer = source.size // 8 + source.size // 64 * 10
    device.control("CLEAR", "RESET_COUNTERS", "ARRAY_START", "DMA_START")
    while not {"ARRAY_DONE", "DMA_DONE"} <= device.status():
        assert device.wait() == 0
        device.write("INTERRUPT_PENDING", 3)
    counters = device.counters()
    assert (device.scratchpad[far : far + source.size] == 55).all()
    assert counters["COMPUTE_CYCLES"] == cycles and counters["DMA_CYCLES"] == transfer
    alone = transfer if banks == 1 else max(transfer - cycles, 0)
    assert counters["STALL_CYCLES"] == alone
    assert result.shape == (9, 9, 8)


def test_every_cycle_is_one_of_four() -> None:
    device = Device(Config(drain_cycles_per_fold=8))
    device.load(np.zeros(1000, np.int8), 0)
    layer = Layer(
        (5, 5), (3, 9), (3, 3), (1, 1), (1, 1), (1, 1), (5, 5), (False, False), 0,
        (0, 0), (-128, 127), False, 0, 3,
    )  # fmt: skip
    random = np.random.default_rng(3)
    job = Job(device, layer, "CONVOLUTION")
    job.put("IFMAP_START", np.zeros((5, 5, 3), np.int8))
    job.put_weights(draw_weights(layer, False, random), False)
    device.write("OFMAP_START", 4096)
    device.control("CLEAR", "RESET_COUNTERS", "ARRAY_START")
    for _ in range(40):
        parts = ("CLOCK", "COMPUTE_CYCLES", "DRAIN_CYCLES", "STALL_CYCLES", "IDLE_CYCLES")
        low = [device.read(f"{name}_LOW") for name in parts]
        # Each read moves the clock on by one.
        assert low[0] <= sum(low[1:]) <= low[0] + 4
        device.wait(17)
    assert low[3] == 0 and min(low[1], low[2], low[4]) > 0
