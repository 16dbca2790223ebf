# SPDX-License-Identifier: Apache-2.0
"""Calls of the functions of `umakit/dot_products*.h`, and what they have to store.

The oracle is NumPy in 64 bits, written from the comments of the headers; it shares no code with
umakit. Files of calls are read by `dot_products_driver.c`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy_fixed_point import doubling_high_product, rounding_divide

Array = npt.NDArray[Any]

COPY, FILL, PRODUCTS, DEPTHWISE, RESULTS, ADD, END = range(7)
HEADER_WORDS = 20
INT32 = np.iinfo(np.int32)
EDGES = (-128, -127, -1, 0, 1, 127)
WINDOW_EDGES = {
    "int8": EDGES,
    "uint8": (0, 1, 127, 128, 254, 255),
    "int16": (*EDGES, 128, 255),
}
OFFSETS = {("uint8", "int8"): -128, ("int8", "uint8"): 128}
"""What is added to data that are copied as another dtype."""

SHIFTS = range(-31, 31)
MULTIPLIERS = {
    "tflm": (0, 2**30, 2**30 + 1, 1518500250, 2**31 - 1),
    "ort": (0, 2**30, 2**30 + 2**7, 1518500224, 2**31 - 2**7),  # 24 significant bits
}


@dataclass(frozen=True)
class Form:
    """A row of the table of `dot_products.h`, and limits of its functions."""

    name: str
    window: str
    positions: int
    channels: int
    group: int
    elements: int
    swapped: bool = False
    depthwise_group: int = 1
    least_depthwise_weight: int = -128


FORMS = {
    form.name: form
    for form in (
        Form("smlad", "int16", 2, 2, 4, 4, swapped=True),
        Form("avx2", "int16", 4, 16, 2, 2, depthwise_group=2),
        Form("vnni", "uint8", 4, 32, 4, 4, depthwise_group=2),
        Form("sdot", "int8", 4, 8, 4, 16),
        Form("rvv", "int8", 4, 16, 1, 1),
        Form("mve", "int8", 2, 2, 0, 1, least_depthwise_weight=-127),
    )
}


@dataclass(frozen=True)
class Call:
    """A call of a function.

    Attributes:
        kind: which function.
        expected: what it stores; what is between rows of sums is `FILLING`.
        arguments, arrays: what it gets, as `dot_products_driver.c` reads them.
        is_unsigned: whether data or results are uint8.
        is_ort: whether results are rounded as ONNX Runtime does.
        place: whether arrays lie at the end of memory, and by how many elements they are not
            aligned.
    """

    kind: int
    expected: Array
    arguments: tuple[int, ...]
    arrays: tuple[Array, ...] = ()
    is_unsigned: bool = False
    is_ort: bool = False
    place: tuple[int, int] = (1, 0)

    def __str__(self) -> str:
        names = ("copy", "fill", "products", "depthwise", "results", "add")
        dtype = "uint8" if self.is_unsigned else "int8"
        rounding = "ort" if self.is_ort else "tflm"
        return f"{names[self.kind]} {self.arguments} {dtype} {rounding} {self.place}"

    def content(self) -> bytes:
        """The record of the file."""
        header = np.zeros(HEADER_WORDS, np.int32)
        values = (self.kind, self.is_unsigned, self.is_ort, *self.place, *self.arguments)
        header[: len(values)] = values
        parts = [header.tobytes()]
        for array in self.arrays:
            raw = np.ascontiguousarray(array).tobytes()
            parts += [raw, bytes(-len(raw) % 4)]
        return b"".join(parts)


FILLING = 0xA5A5A5A5
"""What is between rows of sums before and after."""

LARGE = 2000
"""Bytes of a call above which it is made once."""


def wrapped(values: Array) -> Array:
    """The low 32 bits of integers."""
    return (np.asarray(values, np.int64) & 0xFFFFFFFF).astype(np.uint32).view(np.int32)


def _data(random: np.random.Generator, size: Any, dtype: str) -> Array:
    """Data, half of them extremes."""
    limits = np.iinfo(dtype)
    values = random.integers(limits.min, limits.max + 1, size)
    edges = random.choice(WINDOW_EDGES[dtype], size)
    return np.where(random.random(size) < 0.5, edges, values).astype(dtype)


# --- copies --------------------------------------------------------------------------------------


def copies(form: Form, random: np.random.Generator) -> Iterator[Call]:
    for count, dtype in itertools.product((*range(42), 64, 77), ("int8", "uint8")):
        data = _data(random, count, dtype)
        window = data.astype(np.int64) + OFFSETS.get((dtype, form.window), 0)
        for to_data, stored in ((0, window.astype(form.window)), (1, data)):
            yield Call(COPY, stored, (count, to_data), (data,), is_unsigned=dtype == "uint8")


def fills(form: Form, random: np.random.Generator) -> Iterator[Call]:
    for count in range(0, 20, 3):
        value = int(random.choice(WINDOW_EDGES[form.window]))
        yield Call(FILL, np.full(count, value, form.window), (count, value))
        value = int(random.integers(0, 256))
        yield Call(FILL, np.full(count, value, np.uint8), (count, value), is_unsigned=True)


# --- sums ----------------------------------------------------------------------------------------


def sums_of_products(form: Form, windows: Array, packed: Array, blocks: int) -> Array:
    """int64[positions, blocks * channels]; windows [positions, elements], weights as in memory."""
    elements = windows.shape[1]
    group = form.group or elements
    weights = packed.reshape(blocks, elements // group, form.channels, group).astype(np.int64)
    if form.swapped:
        weights = weights[..., [0, 2, 1, 3]]
    rows = weights.transpose(0, 2, 1, 3).reshape(blocks * form.channels, elements)
    return windows.astype(np.int64) @ rows.T


def _products(
    form: Form, windows: Array, packed: Array, blocks: int, gaps: tuple[int, int]
) -> Call:
    """A call with some elements between rows of sums, and between windows."""
    positions, elements = windows.shape
    width, windows_step = blocks * form.channels + gaps[0], elements + gaps[1]
    expected = np.full((positions, width), FILLING, np.uint32).view(np.int32)
    expected[:, : width - gaps[0]] = wrapped(sums_of_products(form, windows, packed, blocks))
    memory = np.zeros((positions, windows_step), form.window)
    memory[:, :elements] = windows
    used = memory.reshape(-1)[: memory.size - gaps[1]]
    stored = expected.reshape(-1)[: expected.size - gaps[0]]
    arguments = (positions, elements, blocks, width, windows_step)
    return Call(PRODUCTS, stored, arguments, (used, packed))


def products(form: Form, random: np.random.Generator) -> Iterator[Call]:
    data_types = ("int8", "uint8") if form.window == "int16" else (form.window,)
    for count in range(1, 42):
        elements = count * form.elements
        dtype = data_types[count % len(data_types)]
        for positions in range(1, form.positions + 1):
            blocks = int(random.integers(1, 4))
            windows = _data(random, (positions, elements), dtype).astype(form.window)
            packed = _data(random, blocks * form.channels * elements, "int8")
            gaps = tuple(int(each) for each in random.integers(0, 5, 2))
            yield _products(form, windows, packed, blocks, (gaps[0], gaps[1]))
    yield from _all_pairs(form)
    yield from _wrapping(form)


def _all_pairs(form: Form) -> Iterator[Call]:
    """Each pair of extremes alone in a window, in each lane."""
    edges = WINDOW_EDGES[form.window]
    elements = max(form.elements, 16)
    for place, (left, right) in itertools.product(range(elements), itertools.product(edges, EDGES)):
        windows = np.zeros((form.positions, elements), form.window)
        windows[:, place] = left
        packed = np.full(form.channels * elements, right, np.int8)
        yield _products(form, windows, packed, 1, (0, 0))


def _wrapping(form: Form) -> Iterator[Call]:
    """Sums that pass the limits of 32 bits, and those at them."""
    for left in {min(WINDOW_EDGES[form.window]), max(WINDOW_EDGES[form.window])} - {0}:
        right = -128
        for more in (-1, 0, 3):
            count = 2**31 // abs(left * right) // form.elements + more
            elements = count * form.elements
            windows = np.full((form.positions, elements), left, form.window)
            packed = np.full(form.channels * elements, right, np.int8)
            yield _products(form, windows, packed, 1, (0, 0))


def depthwise(form: Form, random: np.random.Generator) -> Iterator[Call]:
    for channels, dtype in itertools.product(range(1, 42), ("int8", "uint8")):
        for _ in range(3):
            rows, columns = (int(each) for each in random.integers(1, 5, 2))
            yield _depthwise(form, random, (rows, columns, channels), dtype)


def _depthwise(
    form: Form, random: np.random.Generator, shape: tuple[int, int, int], dtype: str
) -> Call:
    rows, columns, channels = shape
    column_step = channels + int(random.integers(0, 4))
    row_step = int(random.integers(1, columns * column_step + 9))
    size = (rows - 1) * row_step + (columns - 1) * column_step + channels
    data, group = _data(random, size, dtype), form.depthwise_group
    taps = _data(random, (rows * columns, channels), "int8")
    taps = np.maximum(taps, form.least_depthwise_weight).astype(np.int8)
    filled = np.zeros((-(-len(taps) // group) * group, channels), np.int8)
    filled[: len(taps)] = taps
    packed = filled.reshape(-1, group, channels).transpose(0, 2, 1)
    sums = np.zeros(channels, np.int64)
    for row, column in np.ndindex(rows, columns):
        start = row * row_step + column * column_step
        here = data[start : start + channels].astype(np.int64)
        sums += here * taps[row * columns + column]
    arguments = (rows, columns, channels, row_step, column_step)
    return Call(DEPTHWISE, wrapped(sums), arguments, (data, packed), dtype == "uint8")


# --- results -------------------------------------------------------------------------------------


def scaled_tflm(sums: Array, multipliers: Array, shifts: Array) -> Array:
    """Rounded twice; a left shift keeps the low 32 bits."""
    shifts = shifts.astype(np.int64)
    left = wrapped(sums.astype(np.int64) << np.maximum(shifts, 0))
    product = doubling_high_product(left, multipliers)
    return rounding_divide(product, np.maximum(-shifts, 0))


def scaled_ort(sums: Array, multipliers: Array, shifts: Array) -> Array:
    """float32 as ONNX Runtime computes with it; results are limited to 32 bits."""
    factors = np.ldexp(multipliers.astype(np.float64), shifts.astype(np.int64) - 31)
    single = factors.astype(np.float32)
    assert (single == factors).all(), "a factor is no float32"
    rounded = np.rint(sums.astype(np.float32) * single).astype(np.float64)
    return np.clip(rounded, INT32.min, INT32.max).astype(np.int64)


SCALED: dict[str, Callable[[Array, Array, Array], Array]] = {
    "tflm": scaled_tflm,
    "ort": scaled_ort,
}


def _sums(random: np.random.Generator, multiplier: int, shift: int) -> Array:
    """Sums at limits of 32 bits, near powers of two, and whose results are near ties."""
    edges = [INT32.min, INT32.min + 1, -3, -2, -1, 0, 1, 2, 3, INT32.max - 1, INT32.max]
    powers = [sign * (2**k + more) for k in (7, 23, 24, 30) for sign in (-1, 1) for more in (0, 1)]
    halves = random.integers(-260, 261, 24) / 2
    factor = multiplier * 2.0 ** (shift - 31)
    near = np.rint(halves / factor) if factor else halves
    near += random.integers(-1, 2, near.size)
    whole = np.concatenate([edges, powers, near])
    return whole[(whole >= INT32.min) & (whole <= INT32.max)].astype(np.int64)


@dataclass(frozen=True)
class _Limits:
    zero_point: int
    lowest: int
    highest: int


def _limits(random: np.random.Generator, dtype: str) -> _Limits:
    whole = np.iinfo(dtype)
    zero_points = (int(whole.min), 0, int(whole.max), int(random.integers(whole.min, whole.max)))
    zero_point = zero_points[random.integers(4)]
    if random.random() < 0.5:
        return _Limits(zero_point, int(whole.min), int(whole.max))
    low, high = sorted(int(each) for each in random.integers(whole.min, whole.max + 1, 2))
    return _Limits(zero_point, low, high)


def _results(
    rounding: str,
    dtype: str,
    limits: _Limits,
    step: int,
    columns: tuple[Array, ...],
) -> Call:
    """A call; columns are sums, bias, multipliers and shifts, each for all results."""
    sums, bias, multipliers, shifts = columns
    total = wrapped(sums.astype(np.int64) + bias)
    values = SCALED[rounding](total, multipliers, shifts) + limits.zero_point
    expected = np.clip(values, limits.lowest, limits.highest).astype(dtype)
    scales = slice(None) if step else slice(1)
    arrays = (
        sums.astype(np.int32), bias.astype(np.int32),
        multipliers[scales].astype(np.int32), shifts[scales].astype(np.int8),
    )  # fmt: skip
    arguments = (len(sums), step, limits.zero_point, limits.lowest, limits.highest)
    return Call(RESULTS, expected, arguments, arrays, dtype == "uint8", rounding == "ort")


def results(_: Form, random: np.random.Generator) -> Iterator[Call]:
    for rounding, dtype in itertools.product(SCALED, ("int8", "uint8")):
        columns: list[tuple[Array, ...]] = []
        for multiplier, shift in itertools.product(MULTIPLIERS[rounding], SHIFTS):
            total = _sums(random, multiplier, shift)
            drawn = random.integers(INT32.min, INT32.max + 1, len(total))
            bias = np.where(random.random(len(total)) < 0.5, drawn, 0)
            here = (wrapped(total - bias), bias, *np.full((2, len(total)), [[multiplier], [shift]]))
            columns.append(here)
            if random.random() < 0.3:
                count = int(random.integers(1, 42))
                some = tuple(each[:count] for each in here)
                yield _results(rounding, dtype, _limits(random, dtype), 0, some)
        joined = [np.concatenate(each) for each in zip(*columns, strict=True)]
        order = random.permutation(len(joined[0]))
        whole = tuple(each[order] for each in joined)
        yield _results(rounding, dtype, _limits(random, dtype), 1, whole)
        yield _results(  # nothing but limits of the dtype hides a difference
            rounding, dtype, _Limits(0, *map(int, _range(dtype))), 1, whole,
        )  # fmt: skip
        for count in range(1, 42):
            start = int(random.integers(0, len(order) - count))
            some = tuple(each[start : start + count] for each in whole)
            yield _results(rounding, dtype, _limits(random, dtype), 1, some)


def _range(dtype: str) -> tuple[int, int]:
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


# --- additions -----------------------------------------------------------------------------------


def additions(_: Form, random: np.random.Generator) -> Iterator[Call]:
    """Sums of two operands with scales of their own, as `reference/add.h` of TensorFlow Lite."""
    for count, dtype, in_place in itertools.product(
        (*range(1, 42), 257), ("int8", "uint8"), (0, 1, 2)
    ):
        if count % 3 == in_place or count > 41:
            yield _addition(random, count, dtype, in_place)


def _addition(random: np.random.Generator, count: int, dtype: str, in_place: int) -> Call:
    """A call; the result lies elsewhere (0), or where the left (1) or right (2) operand does."""
    operands = [_data(random, count, dtype) for _ in range(2)]
    limits = _limits(random, dtype)
    zero_points = [_limits(random, dtype).zero_point for _ in range(2)]
    # Operands are scaled by at most 1, the sum by less than 1.
    factors = [(int(random.integers(2**30, 2**31)), int(random.integers(-4, 1))) for _ in range(2)]
    factors.append((int(random.integers(2**30, 2**31)), int(random.integers(-22, -15))))
    if random.random() < 0.5:  # powers of two, so that many results are ties
        factors = [(2**30, 0), (2**30, 0), (2**30, int(random.integers(-22, -17)))]
    total = np.zeros(count, np.int64)
    for operand, zero_point, factor in zip(operands, zero_points, factors[:2], strict=True):
        up = (operand.astype(np.int64) - zero_point) << 20
        total += scaled_tflm(up, *(np.full(count, each) for each in factor))
    scaled = scaled_tflm(wrapped(total), *(np.full(count, each) for each in factors[2]))
    expected = np.clip(scaled + limits.zero_point, limits.lowest, limits.highest).astype(dtype)
    numbers = (number for factor in factors for number in factor)
    arguments = (
        count, in_place, *zero_points, 20, *numbers,
        limits.zero_point, limits.lowest, limits.highest,
    )  # fmt: skip
    return Call(ADD, expected, arguments, tuple(operands), dtype == "uint8")


# --- all -----------------------------------------------------------------------------------------


def calls(form: Form, seed: int = 0) -> list[Call]:
    """All calls, with arrays at varied alignments, and small ones at both ends of memory."""
    random = np.random.default_rng(seed)
    makers = (copies, fills, products, depthwise, results, additions)
    made = [call for maker in makers for call in maker(form, random)]
    offsets = [int(offset) for offset in random.integers(0, 4, len(made))]
    return [
        replace(call, place=(at_end, offset))
        for call, offset in zip(made, offsets, strict=True)
        for at_end in ((1, 0) if len(call.content()) < LARGE else (1,))
    ]
