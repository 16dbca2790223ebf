# SPDX-License-Identifier: Apache-2.0
"""The simulated systolic array against NumPy: results, cycles and transfers of drawn shapes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from systolic_device import TO_DEVICE, VALUES, Config, Device
from systolic_layers import Job, Layer, Weights, closed_form, draw_weights, expected, place, windows

Draw = Any

DATAFLOWS = VALUES["DATAFLOW"]


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
    parameters = draw_weights(layer, False, random)
    job = Job(device, layer, "CONVOLUTION")
    device.write("DATAFLOW", DATAFLOWS[dataflow])
    job.put("IFMAP_START", place(layer, data))
    job.put_weights(parameters, False)
    result, cycles = job.run()
    np.testing.assert_array_equal(result, expected(layer, data, parameters, False))
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
    parameters = draw_weights(layer, True, random)
    job = Job(device, layer, "DEPTHWISE")
    device.write("DATAFLOW", DATAFLOWS[dataflow])
    job.put("IFMAP_START", place(layer, data))
    job.put_weights(parameters, True)
    result, cycles = job.run()
    np.testing.assert_array_equal(result, expected(layer, data, parameters, True))
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
    parameters = draw_weights(layer, False, random)
    job = Job(device, layer, "CONVOLUTION")
    job.put("IFMAP_START", data)
    job.put_weights(parameters, False)
    result, _ = job.run()
    np.testing.assert_array_equal(result, expected(layer, data, parameters, False))


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
    parameters = draw_weights(layer, False, random)
    job = Job(device, layer, "CONVOLUTION")
    job.put("IFMAP_START", data)
    job.put_weights(parameters, False)
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
