# SPDX-License-Identifier: Apache-2.0
"""Sums of the simulated systolic array that stay in its accumulator, and its fused addition."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy_fixed_point import quantize_multiplier, rescaled
from systolic_device import BITS, OFFSETS, VALUES, Array, Config, Device
from systolic_layers import (
    Job,
    Layer,
    Weights,
    blocked,
    draw_weights,
    expected,
    float32_result,
    place,
    strides,
    windows,
)
from test_systolic_array import layers

Draw = Any

ARRAYS = st.tuples(st.sampled_from([1, 3, 8]), st.sampled_from([1, 4, 8]))
CONTINUE, KEEP = (BITS["ACCUMULATE"][name] for name in ("CONTINUE", "KEEP"))


@st.composite
def cuts(draw: Draw, channels: int) -> list[int]:
    """0, channels, and some channels between them."""
    inner = draw(st.lists(st.integers(1, channels), max_size=3))
    return sorted({0, channels, *inner})


def whole_sums(layer: Layer, data: Array, parameters: Weights) -> Array:
    """int32 [oh, ow, channels] before they are scaled."""
    taken, _ = windows(layer, data, layer.zero_points[0])
    weights = parameters.weights.astype(np.int64)
    return np.asarray(
        np.einsum("yxhwi,ohwi->yxo", taken - layer.zero_points[0], weights) + parameters.bias
    )


class Tiled(Job):
    """A convolution as a job for each of several ranges of input channels."""

    def put_all(self, data: Array, parameters: Weights, limits: list[int]) -> None:
        columns = self.device.config.array_columns
        self.put_weights(parameters, False)  # for bias, multipliers and shifts
        self.put("IFMAP_START", place(self.layer, data))
        self.image = self.device.read("IFMAP_START")
        self.starts = []
        for first, end in itertools.pairwise(limits):
            self.put("WEIGHTS_START", blocked(parameters.weights[..., first:end], columns))
            self.starts.append(self.device.read("WEIGHTS_START"))
        self.limits = limits

    def select(self, index: int) -> None:
        """Program the tile of a number."""
        first, end = self.limits[index], self.limits[index + 1]
        stride = self.device.read("IFMAP_CHANNEL_STRIDE")
        is_last = index == len(self.starts) - 1
        self.device.program(
            IFMAP_START=self.image + first * stride, INPUT_CHANNELS=end - first,
            WEIGHTS_START=self.starts[index],
            ACCUMULATE=(CONTINUE if index else 0) | (0 if is_last else KEEP),
        )  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.data(), layers(), ARRAYS, st.sampled_from(sorted(VALUES["DATAFLOW"])))
def test_tiles_of_input_channels_make_the_whole(
    data: Any, layer: Layer, array: tuple[int, int], dataflow: str
) -> None:
    limits = data.draw(cuts(layer.channels[0]))
    start = 4 * data.draw(st.integers(0, 5))
    sums = math.prod(layer.output) * layer.channels[1]
    device = Device(Config(array_rows=array[0], array_columns=array[1], scratchpad_bytes=1 << 17,
                           accumulator_bytes=start + 4 * sums))  # fmt: skip
    device.accumulator[:] = 12345
    random = np.random.default_rng(layer.seed)
    image = random.integers(-128, 128, (*layer.size, layer.channels[0])).astype(np.int8)
    parameters = draw_weights(layer, False, random)
    job = Tiled(device, layer, "CONVOLUTION")
    job.put_all(image, parameters, limits)
    device.program(DATAFLOW=VALUES["DATAFLOW"][dataflow], ACCUMULATOR_START=start)
    before = device.scratchpad.copy()
    for index in range(len(job.starts) - 1):
        job.select(index)
        device.start("ARRAY_START")
        assert device.error() == "OK"
        part = limits[index + 1]
        few = dataclasses.replace(layer, channels=(part, layer.channels[1]))
        few_weights = dataclasses.replace(parameters, weights=parameters.weights[..., :part])
        wanted = whole_sums(few, image[..., :part], few_weights)
        np.testing.assert_array_equal(device.accumulator[start // 4 :], wanted.ravel())
        np.testing.assert_array_equal(device.scratchpad, before)
    job.select(len(job.starts) - 1)
    kept = device.accumulator.copy()
    result, _ = job.run()
    np.testing.assert_array_equal(result, expected(layer, image, parameters, False))
    np.testing.assert_array_equal(device.accumulator, kept)
    assert (device.accumulator[: start // 4] == 12345).all()


SMALL = Layer(
    (3, 4), (6, 5), (1, 1), (1, 1), (1, 1), (0, 0), (3, 4), (False, False), 0,
    (0, 0), (-128, 127), False, 0, 3,
)  # fmt: skip


def small_job(config: Config) -> Device:
    """12 positions of 5 channels, ready to run."""
    device = Device(config)
    random = np.random.default_rng(0)
    job = Job(device, SMALL, "CONVOLUTION")
    job.put("IFMAP_START", random.integers(-128, 128, (3, 4, 6)).astype(np.int8))
    job.put_weights(draw_weights(SMALL, False, random), False)
    device.write("OFMAP_START", 4096)
    return device


@pytest.mark.parametrize(
    ("size", "registers", "error", "register"),
    [
        (0, {"ACCUMULATE": 1}, "UNSUPPORTED", "ACCUMULATE"),
        (0, {"ACCUMULATE": 2}, "UNSUPPORTED", "ACCUMULATE"),
        (0, {"DATAFLOW": 1}, "OK", ""),
        (240, {"ACCUMULATE": 4}, "INVALID_ARGUMENT", "ACCUMULATE"),
        (240, {"ACCUMULATE": 2}, "OK", ""),
        (240, {"ACCUMULATE": 2, "ACCUMULATOR_START": 2}, "MISALIGNED", "ACCUMULATOR_START"),
        (240, {"ACCUMULATE": 1, "ACCUMULATOR_START": 4}, "OUT_OF_RANGE", "ACCUMULATOR_START"),
        (240, {"ACCUMULATE": 1, "ACCUMULATOR_START": 2**32 - 4}, "OUT_OF_RANGE",
         "ACCUMULATOR_START"),
        (240, {"ACCUMULATOR_START": 2}, "OK", ""),
        (236, {"ACCUMULATE": 2}, "OUT_OF_RANGE", "ACCUMULATOR_START"),
        # Sums of 12 positions and 4 of 5 channels, of 4 positions and 5 channels, and of none.
        (4 * 48, {"DATAFLOW": 1}, "OK", ""),
        (4 * 47, {"DATAFLOW": 1}, "OUT_OF_RANGE", "ACCUMULATOR_START"),
        (4 * 20, {"DATAFLOW": 2}, "OK", ""),
        (4 * 19, {"DATAFLOW": 2}, "OUT_OF_RANGE", "ACCUMULATOR_START"),
        (4, {"DATAFLOW": 0}, "OK", ""),
    ],
)  # fmt: skip
def test_room_in_the_accumulator(
    size: int, registers: dict[str, int], error: str, register: str
) -> None:
    device = small_job(Config(array_rows=4, array_columns=4, accumulator_bytes=size))
    device.program(**registers)
    device.start("ARRAY_START")
    assert device.error() == error
    if register:
        assert device.read("ERROR_ADDRESS") == OFFSETS[register]


def test_a_job_that_keeps_its_sums_needs_no_scale_and_no_place() -> None:
    device = small_job(Config(array_rows=4, array_columns=4, accumulator_bytes=1 << 10))
    outside = 2**32 - 4
    device.program(ACCUMULATE=KEEP, MULTIPLIERS_START=outside, SHIFTS_START=outside,
                   OFMAP_START=outside, OFMAP_ROW_STRIDE=outside, ADD=1)  # fmt: skip
    device.start("ARRAY_START")
    assert device.error() == "OK"
    device.program(ACCUMULATE=KEEP | CONTINUE, BIAS_START=outside)
    device.start("ARRAY_START")
    assert device.error() == "OK"
    device.program(ACCUMULATE=KEEP)
    device.start("ARRAY_START")
    assert device.error() == "OUT_OF_RANGE"


def test_pools_do_not_look_at_it() -> None:
    device = Device(Config())
    device.program(OPERATION=VALUES["OPERATION"]["MAX_POOL"], ACCUMULATE=3, ADD=7,
                   INPUT_HEIGHT=1, INPUT_WIDTH=1, INPUT_CHANNELS=2, OUTPUT_HEIGHT=1,
                   OUTPUT_WIDTH=1, OUTPUT_CHANNELS=2, KERNEL_HEIGHT=1, KERNEL_WIDTH=1,
                   IFMAP_CHANNEL_STRIDE=1, OFMAP_CHANNEL_STRIDE=1, OFMAP_START=64,
                   CLIP_HIGHEST=127)  # fmt: skip
    device.scratchpad[:2] = 5, 9
    device.start("ARRAY_START")
    assert device.error() == "OK" and list(device.scratchpad[64:66]) == [5, 9]


# --- the fused addition -------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Addition:
    """Scales, zero points and limits of an integer addition."""

    scales: tuple[float, float, float]
    zero_points: tuple[int, int]
    clip: tuple[int, int]
    left_shift: int

    def factors(self, exact: bool) -> list[tuple[int, int]]:
        """Multiplier and shift of the result, the addend and the sum."""
        common = 2 * max(self.scales[:2])
        real = [scale / common for scale in self.scales[:2]]
        real.append(common / (2.0**self.left_shift * self.scales[2]))
        found = [quantize_multiplier(factor) for factor in real]
        # 24 significant bits, so that a float32 holds the factor.
        return [(m & ~127 if exact else m, s) for m, s in found]


@st.composite
def additions(draw: Draw) -> Addition:
    def byte() -> int:
        return int(draw(st.integers(-128, 127)))

    scales = tuple(draw(st.floats(0.001, 1.0)) for _ in range(3))
    low, high = sorted((byte(), byte()))
    return Addition(scales, (byte(), byte()), (low, high), draw(st.sampled_from([15, 20])))  # type: ignore[arg-type]


def numpy_sum(layer: Layer, result: Array, addend: Array, addition: Addition) -> Array:
    """The addition in int64, or as ONNX Runtime rounds."""
    factors = addition.factors(layer.rounding == 1)
    zero_points = (layer.zero_points[1], addition.zero_points[0])

    def scaled(values: Array, factor: tuple[int, int]) -> Array:
        if layer.rounding:
            rounded = float32_result(values, np.float64(math.ldexp(factor[0], factor[1] - 31)))
            return np.asarray(rounded, np.int64)
        return rescaled(values, *factor)

    parts = [
        scaled((values.astype(np.int64) - zero_point) << addition.left_shift, factor)
        for values, zero_point, factor in zip((result, addend), zero_points, factors, strict=False)
    ]
    total = scaled(parts[0] + parts[1], factors[2])
    return np.clip(total + addition.zero_points[1], *addition.clip).astype(np.int8)


def put_addition(device: Device, addition: Addition, exact: bool) -> None:
    (first, second, total) = addition.factors(exact)
    device.program(
        ADD=1, ADD_LEFT_SHIFT=addition.left_shift, ADDEND_ZERO_POINT=addition.zero_points[0],
        ADD_RESULT_MULTIPLIER=first[0], ADD_RESULT_SHIFT=first[1],
        ADD_ADDEND_MULTIPLIER=second[0], ADD_ADDEND_SHIFT=second[1],
        ADD_MULTIPLIER=total[0], ADD_SHIFT=total[1], SUM_ZERO_POINT=addition.zero_points[1],
        SUM_CLIP_LOWEST=addition.clip[0], SUM_CLIP_HIGHEST=addition.clip[1],
    )  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    st.booleans().flatmap(lambda depthwise: st.tuples(st.just(depthwise), layers(depthwise))),
    additions(),
    st.booleans(),
)
def test_a_result_is_added_to_an_addend(
    drawn: tuple[bool, Layer], addition: Addition, in_place: bool
) -> None:
    depthwise, layer = drawn
    device = Device(Config(scratchpad_bytes=1 << 17, drain_cycles_per_fold=2))
    random = np.random.default_rng(layer.seed)
    data = random.integers(-128, 128, (*layer.size, layer.channels[0])).astype(np.int8)
    parameters = draw_weights(layer, depthwise, random)
    shape = (*layer.output, layer.channels[1])
    addend = random.integers(-128, 128, shape).astype(np.int8)
    job = Job(device, layer, "DEPTHWISE" if depthwise else "CONVOLUTION")
    job.put("IFMAP_START", place(layer, data))
    job.put_weights(parameters, depthwise)
    result, cycles = job.run()

    as_result = dataclasses.replace(
        layer, size=layer.output, channels=(layer.channels[1],) * 2,
        channels_first=(layer.channels_first[1],) * 2,
    )  # fmt: skip
    job.put("ADDEND_START", place(as_result, addend))
    put_addition(device, addition, layer.rounding == 1)
    if in_place:
        start = device.read("ADDEND_START")
        steps = strides(layer.output, layer.channels[1], layer.channels_first[1], layer.gap)
        device.write("OFMAP_START", start)
        added_cycles = device.start("ARRAY_START")
        assert device.error() == "OK"
        bytes_ = device.scratchpad[start:].view(np.int8)
        added = np.lib.stride_tricks.as_strided(bytes_, shape, steps)
    else:
        added, added_cycles = job.run()
    wanted = numpy_sum(layer, expected(layer, data, parameters, depthwise), addend, addition)
    np.testing.assert_array_equal(added, wanted)
    assert added_cycles == cycles
    assert result.shape == added.shape


@pytest.mark.parametrize(
    ("registers", "error"),
    [
        ({}, "OK"),
        ({"ADD": 2}, "INVALID_ARGUMENT"),
        ({"ADD_LEFT_SHIFT": 23}, "INVALID_ARGUMENT"),
        ({"ADDEND_ZERO_POINT": 128}, "INVALID_ARGUMENT"),
        ({"ADD_RESULT_MULTIPLIER": 2**31}, "INVALID_ARGUMENT"),
        ({"ADD_RESULT_SHIFT": 31}, "INVALID_ARGUMENT"),
        ({"ADD_ADDEND_MULTIPLIER": -1}, "INVALID_ARGUMENT"),
        ({"ADD_ADDEND_SHIFT": -32}, "INVALID_ARGUMENT"),
        ({"ADD_MULTIPLIER": 2**31}, "INVALID_ARGUMENT"),
        ({"ADD_SHIFT": 100}, "INVALID_ARGUMENT"),
        ({"SUM_ZERO_POINT": -129}, "INVALID_ARGUMENT"),
        ({"SUM_CLIP_LOWEST": 1, "SUM_CLIP_HIGHEST": 0}, "INVALID_ARGUMENT"),
        ({"SUM_CLIP_HIGHEST": 128}, "INVALID_ARGUMENT"),
        ({"ADDEND_START": (1 << 16) - 59}, "OUT_OF_RANGE"),
        ({"ADDEND_START": 4096 + 1}, "INVALID_ARGUMENT"),
        ({"ADDEND_START": 4096}, "OK"),
        ({"ADD": 0, "ADDEND_START": 2**32 - 1, "ADD_LEFT_SHIFT": 99}, "OK"),
    ],
)
def test_additions_that_are_refused(registers: dict[str, int], error: str) -> None:
    device = small_job(Config())
    addition = Addition((0.5, 0.25, 0.5), (3, -4), (-100, 100), 20)
    put_addition(device, addition, False)
    device.program(ADDEND_START=8192)
    device.program(**registers)
    device.start("ARRAY_START")
    assert device.error() == error
