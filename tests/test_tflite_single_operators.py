# SPDX-License-Identifier: Apache-2.0
"""Single quantized operators beyond convolution, sum and pool: every output equals TFLM's."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from comparisons import SANITIZED
from hypothesis import assume, example, given
from hypothesis import strategies as st
from tflite_exactness import (
    EXAMPLES,
    channels,
    kernels,
    paddings,
    scales,
    seeds,
    sizes,
    strides,
    ties,
    weights_and_bias,
    zero_points,
)
from tflite_exactness import assert_exact as assert_exact_with
from tflite_networks import TfliteFile

assert_exact = partial(assert_exact_with, flags=SANITIZED)
ALL_INTEGERS = np.arange(-128, 128).astype(np.int8).reshape(1, 1, 256)
HARD_SWISH_SCALES = 0.19804100692272186, 0.21648317575454712
dtypes = st.sampled_from(["int8", "int16"])
shapes = st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple)

# --- activations --------------------------------------------------------------------------------


def activation(
    code: str, scale: float, zero_point: int, result: float, result_zero: int, **options: Any
) -> bytes:
    file = TfliteFile()
    x = file.tensor([1, 256], scale=scale, zero_point=zero_point, name="x")
    y = file.tensor([1, 256], scale=result, zero_point=result_zero, name="y")
    file.operator(code, [x], [y], "LeakyReluOptions" if options else "", **options)
    return file.finish([x], [y])


@EXAMPLES
@given(
    st.sampled_from([("LOGISTIC", 1 / 256, -128), ("TANH", 1 / 128, 0)]),
    st.floats(1e-4, 1.0), zero_points,
)  # fmt: skip
def test_logistic_and_tanh_of_all_integers(
    kind: tuple[str, float, int], scale: float, zero_point: int
) -> None:
    code, result, result_zero = kind
    content = activation(code, scale, zero_point, result, result_zero)
    assert_exact(content, (1, 256), inputs=ALL_INTEGERS)


def test_hard_swish_where_float32_would_round_a_multiplier_otherwise() -> None:
    """A pair of scales whose 16-bit multiplier differs between float32 and float64."""
    scale, result = HARD_SWISH_SCALES
    content = activation("HARD_SWISH", scale, -5, result, 9)
    assert_exact(content, (1, 256), inputs=ALL_INTEGERS)


def test_a_clip_behind_a_table_clips_the_table() -> None:
    file = TfliteFile()
    x = file.tensor([1, 256], scale=0.03, zero_point=4, name="x")
    between = file.tensor([1, 256], scale=1 / 128, name="between")
    y = file.tensor([1, 256], scale=1 / 128, name="y")
    file.operator("TANH", [x], [between])
    file.operator("RELU6", [between], [y])
    output = assert_exact(file.finish([x], [y]), (1, 256), inputs=ALL_INTEGERS)
    assert output.min() == 0 and output.max() > 100


@EXAMPLES
@given(scales, zero_points, st.floats(0.6, 60.0), zero_points)
def test_hard_swish_of_all_integers(
    scale: float, zero_point: int, ratio: float, result_zero: int
) -> None:
    content = activation("HARD_SWISH", scale, zero_point, scale * ratio, result_zero)
    assert_exact(content, (1, 256), inputs=ALL_INTEGERS)


@EXAMPLES
@given(
    scales, zero_points, st.one_of(st.floats(0.3, 60.0), ties), zero_points,
    st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0.01, 2.0)),
)  # fmt: skip
def test_leaky_relu_of_all_integers(
    scale: float, zero_point: int, ratio: float, result_zero: int, slope: float
) -> None:
    content = activation("LEAKY_RELU", scale, zero_point, scale * ratio, result_zero, Alpha=slope)
    assert_exact(content, (1, 256), inputs=ALL_INTEGERS)


@EXAMPLES
@given(scales, zero_points, st.one_of(st.floats(0.3, 60.0), ties), zero_points)
def test_relu_of_all_integers(
    scale: float, zero_point: int, ratio: float, result_zero: int
) -> None:
    content = activation("RELU", scale, zero_point, scale * ratio, result_zero)
    assert_exact(content, (1, 256), inputs=ALL_INTEGERS)


# --- arithmetic ---------------------------------------------------------------------------------


@EXAMPLES
@given(
    st.lists(st.integers(1, 7), min_size=2, max_size=4), channels, st.data(), scales, zero_points,
    st.one_of(st.floats(0.1, 3.0), ties), zero_points, st.booleans(), seeds,
)  # fmt: skip
def test_mean(
    outer: list[int], last: int, data: st.DataObject, scale: float, zero_point: int, ratio: float,
    result_zero: int, keep: bool, seed: int,
) -> None:  # fmt: skip
    shape = (*outer[:3], last)
    rank = len(shape)
    axes = data.draw(st.lists(st.integers(-rank, rank - 1), min_size=1, max_size=rank))
    reduced = {axis % rank for axis in axes}
    assume(keep or len(reduced) < rank)
    result = [
        1 if axis in reduced else n for axis, n in enumerate(shape) if keep or axis not in reduced
    ]
    file = TfliteFile()
    x = file.tensor(shape, scale=scale, zero_point=zero_point, name="x")
    over = file.tensor([len(axes)], "int32", data=np.array(axes, np.int32), name="axes")
    y = file.tensor(result, scale=scale * ratio, zero_point=result_zero, name="y")
    file.operator("MEAN", [x, over], [y], "ReducerOptions", KeepDims=keep)
    assert_exact(file.finish([x], [y]), shape, seed)


@EXAMPLES
@given(
    st.integers(1, 2), sizes, sizes, channels, channels, st.tuples(kernels, kernels),
    st.tuples(strides, strides), paddings, scales, zero_points, st.floats(0.5, 300.0), zero_points,
    st.booleans(), st.booleans(), seeds,
)  # fmt: skip
def test_transposed_convolution(
    batch: int, height: int, width: int, inputs: int, outputs: int, window: tuple[int, int],
    step: tuple[int, int], padding: int, scale: float, zero_point: int, ratio: float,
    result_zero: int, per_channel: bool, bias: bool, seed: int,
) -> None:  # fmt: skip
    rows, columns = (
        size * stride if padding == 0 else (size - 1) * stride + extent
        for size, extent, stride in zip((height, width), window, step, strict=True)
    )
    file = TfliteFile()
    shape = np.array([batch, rows, columns, outputs], np.int32)
    size = file.tensor([4], "int32", data=shape, name="shape")
    x = file.tensor([batch, height, width, inputs], scale=scale, zero_point=zero_point, name="x")
    (weights, biases), product = weights_and_bias(
        file, (outputs, *window, inputs), outputs, 0, scale, seed, per_channel
    )
    y = file.tensor(shape, scale=product * ratio, zero_point=result_zero, name="y")
    file.operator(
        "TRANSPOSE_CONV", [size, weights, x, *([biases] if bias else [])], [y],
        "TransposeConvOptions", Padding=padding, StrideH=step[0], StrideW=step[1],
    )  # fmt: skip
    assert_exact(file.finish([x], [y]), (batch, height, width, inputs), seed)


@EXAMPLES
@given(
    st.sampled_from(["MAXIMUM", "MINIMUM"]),
    st.sampled_from([((1, 4, 5, 3), (1, 4, 5, 3)), ((2, 7), (7,)), ((1, 4, 1, 3), (1, 1, 5, 1))]),
    dtypes, scales, zero_points, seeds,
)  # fmt: skip
def test_extremum_with_a_constant(
    code: str, pair: tuple[tuple[int, ...], tuple[int, ...]], dtype: str, scale: float,
    zero_point: int, seed: int,
) -> None:  # fmt: skip
    shape, other = pair
    data = np.random.default_rng(seed).integers(-128, 128, other).astype(dtype)
    quantization = {"scale": scale, "zero_point": 0 if dtype == "int16" else zero_point}
    file = TfliteFile()
    x = file.tensor(shape, dtype, **quantization, name="x")
    c = file.tensor(other, dtype, **quantization, data=data, name="c")
    y = file.tensor(np.broadcast_shapes(shape, other), dtype, **quantization, name="y")
    file.operator(code, [x, c], [y], "MaximumMinimumOptions")
    assert_exact(file.finish([x], [y]), shape, seed, dtype=dtype)


# --- movements ----------------------------------------------------------------------------------


class Moved:
    """A file with one movement of `x`, of one scale for all."""

    def __init__(self, shape: tuple[int, ...], dtype: str, zero_point: int = -3) -> None:
        self.file = TfliteFile()
        self.dtype = dtype
        self.quantization: dict[str, Any] = {
            "scale": 0.25, "zero_point": 0 if dtype == "int16" else zero_point
        }  # fmt: skip
        self.shape = shape
        self.x = self.tensor(shape, "x")

    def tensor(self, shape: tuple[int, ...], name: str, data: Any = None) -> int:
        return self.file.tensor(shape, self.dtype, **self.quantization, name=name, data=data)

    def integers(self, values: Any, name: str) -> int:
        array = np.array(values, np.int32)
        return self.file.tensor(array.shape, "int32", data=array, name=name)

    def check(
        self, code: str, inputs: list[int], result: tuple[int, ...], options: str, **values: Any
    ) -> None:
        y = self.tensor(result, "y")
        self.file.operator(code, inputs, [y], options, **values)
        assert_exact(self.file.finish([self.x], [y]), self.shape, dtype=self.dtype)


@EXAMPLES
@given(shapes, dtypes, st.data())
def test_transpose(shape: tuple[int, ...], dtype: str, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(shape))))
    moved = Moved(shape, dtype)
    result = tuple(shape[axis] for axis in order)
    moved.check("TRANSPOSE", [moved.x, moved.integers(order, "o")], result, "TransposeOptions")


@EXAMPLES
@given(shapes, dtypes, st.booleans(), zero_points, st.data())
def test_pad(
    shape: tuple[int, ...], dtype: str, given_value: bool, zero: int, data: st.DataObject
) -> None:
    amount = st.integers(0, 3)
    widths = data.draw(st.lists(st.tuples(amount, amount), min_size=len(shape), max_size=4))
    widths = widths[: len(shape)]
    moved = Moved(shape, dtype, zero)
    result = tuple(n + sum(width) for n, width in zip(shape, widths, strict=True))
    inputs = [moved.x, moved.integers(widths, "widths")]
    if given_value:
        value = np.array([data.draw(zero_points)], dtype)
        inputs.append(moved.tensor((1,), "value", value))
    code = "PADV2" if given_value else "PAD"
    moved.check(code, inputs, result, "PadV2Options" if given_value else "PadOptions")


@EXAMPLES
@given(shapes, dtypes, st.data())
def test_strided_slice(shape: tuple[int, ...], dtype: str, data: st.DataObject) -> None:
    bound = [st.integers(-n - 2, n + 2) for n in shape]
    begins, ends = (data.draw(st.tuples(*bound)) for _ in range(2))
    steps = data.draw(st.tuples(*[st.sampled_from([1, 1, 2, 3, -1, -2]) for _ in shape]))
    begin_mask, end_mask = (data.draw(st.integers(0, 2 ** len(shape) - 1)) for _ in range(2))
    masks = [
        (None if begin_mask >> axis & 1 else begin, None if end_mask >> axis & 1 else end)
        for axis, (begin, end) in enumerate(zip(begins, ends, strict=True))
    ]
    result = np.empty(shape)[
        tuple(slice(*bounds, step) for bounds, step in zip(masks, steps, strict=True))
    ].shape
    assume(0 not in result)
    moved = Moved(shape, dtype)
    inputs = [moved.x, *(moved.integers(item, name) for item, name in
                         zip((begins, ends, steps), "bes", strict=True))]  # fmt: skip
    moved.check(
        "STRIDED_SLICE", inputs, result, "StridedSliceOptions", BeginMask=begin_mask,
        EndMask=end_mask,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_strided_slice_that_takes_one_element_of_an_axis(dtype: str) -> None:
    moved = Moved((2, 5, 3), dtype)
    inputs = [moved.x, *(moved.integers(item, name) for item, name in
                         zip(([0, -2, 0], [0, 0, 3], [1, 1, 2]), "bes", strict=True))]  # fmt: skip
    moved.check(
        "STRIDED_SLICE", inputs, (2, 2), "StridedSliceOptions", BeginMask=1, EndMask=1,
        ShrinkAxisMask=2,
    )  # fmt: skip


@EXAMPLES
@given(shapes, dtypes, st.data())
def test_slice(shape: tuple[int, ...], dtype: str, data: st.DataObject) -> None:
    begins = data.draw(st.tuples(*[st.integers(0, n - 1) for n in shape]))
    result = data.draw(
        st.tuples(*[st.integers(1, n - b) for n, b in zip(shape, begins, strict=True)])
    )
    sizes = [-1 if b + r == n else r for n, b, r in zip(shape, begins, result, strict=True)]
    moved = Moved(shape, dtype)
    inputs = [moved.x, moved.integers(begins, "begins"), moved.integers(sizes, "sizes")]
    moved.check("SLICE", inputs, result, "SliceOptions")


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("code", ["SPLIT", "SPLIT_V"])
@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_split_and_concatenation_in_another_order(dtype: str, code: str, axis: int) -> None:
    shape = (4, 6, 8)
    sizes = [shape[axis] // 2] * 2 if code == "SPLIT" else [1, shape[axis] - 1]
    moved = Moved(shape, dtype)
    parts = []
    for number, extent in enumerate(sizes):
        part = list(shape)
        part[axis] = extent
        parts.append(moved.tensor(tuple(part), f"part{number}"))
    where = moved.integers([axis] if code == "SPLIT_V" else axis, "axis")
    if code == "SPLIT":
        moved.file.operator(code, [where, moved.x], parts, "SplitOptions", NumSplits=2)
    else:
        inputs = [moved.x, moved.integers(sizes, "sizes"), where]
        moved.file.operator(code, inputs, parts, "SplitVOptions", NumSplits=2)
    moved.check("CONCATENATION", parts[::-1], shape, "ConcatenationOptions", Axis=axis % 3)


@pytest.mark.parametrize(
    ("code", "shape", "options"),
    [("SQUEEZE", (3, 4), "SqueezeOptions"), ("EXPAND_DIMS", (1, 3, 1, 4), "ExpandDimsOptions")],
)
@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_axes_of_one_element(dtype: str, code: str, shape: tuple[int, ...], options: str) -> None:
    moved = Moved((1, 3, 4), dtype)
    inputs = [moved.x] if code == "SQUEEZE" else [moved.x, moved.integers([2], "axis")]
    values = {"SqueezeDims": 0} if code == "SQUEEZE" else {}
    moved.check(code, inputs, shape, options, **values)


@EXAMPLES
@given(dtypes, sizes, sizes, sizes, sizes, channels, st.booleans(), st.booleans())
@example("int8", 4, 3, 7, 8, 2, True, False)
@example("int16", 4, 3, 7, 8, 2, False, True)
@example("int8", 2, 3, 41, 3, 2, False, True)  # float64 would take another neighbour
def test_resize_nearest_neighbor(
    dtype: str, height: int, width: int, rows: int, columns: int, count: int, align: bool,
    half: bool,
) -> None:  # fmt: skip
    moved = Moved((1, height, width, count), dtype)
    size = moved.integers([rows, columns], "size")
    moved.check(
        "RESIZE_NEAREST_NEIGHBOR", [moved.x, size], (1, rows, columns, count),
        "ResizeNearestNeighborOptions", AlignCorners=align, HalfPixelCenters=half,
    )  # fmt: skip
