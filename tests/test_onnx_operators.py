# SPDX-License-Identifier: Apache-2.0
"""Single quantized ONNX operators: integers only, and the results of ONNX Runtime and NumPy.

Where ONNX Runtime computes in integers (its optimized graph has a QLinear operator) or only
compares and moves numbers, results are equal. Where it goes through float32, they differ by at most
one step, and seldom: each test says how often.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from comparisons import LINKER, some
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from qdq import (
    EXAMPLES,
    FEWER,
    Qdq,
    assert_equal,
    channels,
    dtypes,
    optimized_operators,
    scales,
    seeds,
    sizes,
)
from strict import WARNINGS

from umakit import run_library
from umakit.devices import build
from umakit.frontend import import_model
from umakit.operators.tables.straight_lines import interpolation_table
from umakit.pipeline import compile_model
from umakit.quantized import quantize_to_integers

all_dtypes = st.sampled_from(["int8", "uint8", "int16", "uint16"])
wide_dtypes = st.sampled_from(["int16", "uint16"])
pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))

SELDOM = 0.01
"""Share of elements next to a tie, for scales that are not multiples of each other."""

TIES = 0.3
"""Share of differing results if many are ties, which float32 rounds up or down by chance."""


def step_of(dtype: str) -> float:
    """About the scale of a tensor with elements up to 4."""
    return 8 / 2**16 if dtype.endswith("16") else 8 / 2**8


# --- convolutions and products ------------------------------------------------------------------


@EXAMPLES
@given(
    all_dtypes, all_dtypes, st.booleans(), st.booleans(), st.booleans(), channels, pairs,
    st.integers(1, 2), st.integers(1, 2), st.sampled_from([1, 2, -1]), seeds,
)  # fmt: skip
def test_convolution_of_mixed_types(
    dtype: str, result: str, flat: bool, per_channel: bool, biased: bool, outputs: int,
    window: tuple[int, int], stride: int, dilation: int, grouping: int, seed: int,
) -> None:  # fmt: skip
    """8 and 16 bits, rows and images, depthwise with a multiplier; in float32 in ONNX Runtime."""
    graph = Qdq(dtype, seed, opset=21)
    groups = 3 if grouping < 0 else grouping
    inputs = groups if grouping < 0 else 2 * groups
    extents = list(window[:1] if flat else window)
    image = [9 + size for size in extents]
    x = graph.input([2, inputs, *image], step_of(dtype))
    weights, weight_scales = graph.weights(
        [outputs * groups, inputs // groups, *extents], "int8", per_channel
    )
    scale = np.float32(step_of(dtype))
    bias = [graph.bias(outputs * groups, scale * weight_scales)] if biased else []
    y = graph.node(
        "Conv", x, weights, *bias, group=groups, strides=[stride] * len(extents),
        pads=[1, 0] * len(extents), dilations=[dilation] * len(extents), kernel_shape=extents,
    )  # fmt: skip
    span = float(weight_scales.max()) * 300 * inputs**0.5
    output = graph.quantize(y, span / (2**16 if result.endswith("16") else 2**8), None, result)
    graph.check_step(output, 4.0, unequal=SELDOM)


@EXAMPLES
@given(
    all_dtypes, st.booleans(), st.booleans(), st.integers(1, 3), st.sampled_from([1, 2, 5]), pairs,
    st.integers(1, 3), st.integers(1, 2), st.booleans(), seeds,
)  # fmt: skip
def test_transposed_convolution(
    dtype: str, flat: bool, per_channel: bool, groups: int, outputs: int, window: tuple[int, int],
    stride: int, dilation: int, biased: bool, seed: int,
) -> None:  # fmt: skip
    """Groups, strides, dilation, padding on each side; in float32 in ONNX Runtime."""
    graph = Qdq(dtype, seed)
    extents = list(window[:1] if flat else window)
    x = graph.input([2, 2 * groups, *([5, 4][: len(extents)])], step_of(dtype))
    weights, weight_scales = graph.weights(
        [2 * groups, outputs, *extents], "int8", per_channel and groups == 1, axis=1
    )
    scale = np.float32(step_of(dtype))
    bias = [graph.bias(outputs * groups, scale * weight_scales)] if biased else []
    y = graph.node(
        "ConvTranspose", x, weights, *bias, group=groups, strides=[stride] * len(extents),
        pads=[1, 0] * len(extents), dilations=[dilation] * len(extents), kernel_shape=extents,
        output_padding=[stride - 1] * len(extents),
    )  # fmt: skip
    output = graph.quantize(y, float(weight_scales.max()) * 200 * step_of(dtype))
    graph.check_step(output, 4.0, unequal=SELDOM)


@EXAMPLES
@given(
    all_dtypes, st.sampled_from([(), (2,), (2, 3)]), st.booleans(), sizes, channels, channels, seeds
)
def test_product_of_two_matrices(
    dtype: str, batch: tuple[int, ...], shared: bool, rows: int, inner: int, columns: int, seed: int
) -> None:
    """Both are data; QLinearMatMul for 8 bits."""
    graph = Qdq(dtype, seed)
    left, right = 1.13 * step_of(dtype), 0.87 * step_of(dtype)
    a = graph.input([*batch, rows, inner], left)
    b = graph.input([*(() if shared else batch), inner, columns], right)
    output = graph.quantize(graph.node("MatMul", a, b), 3 * step_of(dtype) * inner**0.5)
    if dtype.endswith("8"):
        assert "QLinearMatMul" in optimized_operators(graph.model(output))
        graph.check(output, 4.0)
    else:
        graph.check_step(output, 4.0, unequal=SELDOM)


@EXAMPLES
@given(wide_dtypes, st.booleans(), st.booleans(), channels, st.sampled_from([1, 7, 3000]), seeds)
def test_fully_connected_of_16_bits(
    dtype: str, gemm: bool, biased: bool, outputs: int, inputs: int, seed: int
) -> None:
    """Sums of 32 and, for long rows, of 64 bits."""
    graph = Qdq(dtype, seed)
    x = graph.input([3, inputs], step_of(dtype))
    shape = [outputs, inputs] if gemm else [inputs, outputs]
    weights, weight_scales = graph.weights(shape, "int8", gemm)
    bias = [graph.bias(outputs, np.float32(step_of(dtype)) * weight_scales)] if biased else []
    if gemm:
        y = graph.node("Gemm", x, weights, *bias, transB=1)
    else:
        y = graph.node("MatMul", x, weights)
    # float32 sums of thousands of terms are off by more than a step of 16 bits.
    scale = float(weight_scales.max()) * 400 * inputs**0.5 * step_of(dtype)
    graph.check_step(graph.quantize(y, scale), 4.0, unequal=SELDOM)


# --- two tensors --------------------------------------------------------------------------------


@EXAMPLES
@given(
    st.sampled_from(["Add", "Sub", "Mul"]), all_dtypes, all_dtypes, all_dtypes, scales, scales,
    st.sampled_from([(), (1,), (3, 1, 1), (5,)]), seeds,
)  # fmt: skip
def test_sum_difference_and_product(
    operator: str, left_type: str, right_type: str, result: str, left: float, right: float,
    shape: tuple[int, ...], seed: int,
) -> None:  # fmt: skip
    """All types; in float32 in ONNX Runtime unless they are the same and no difference is."""
    assume(left_type != right_type or operator == "Sub" or left_type.endswith("16"))
    graph = Qdq(result, seed, opset=21)
    full = [1, 3, 60, 5]
    a = graph.input(full, left * 200 * step_of(left_type), None, left_type)
    b = graph.input(list(shape) or full, right * 200 * step_of(right_type), None, right_type)
    reach = 800 * max(left, right)
    span = 800 * (left * right * 800 if operator == "Mul" else max(left, right))
    output = graph.quantize(graph.node(operator, a, b), span * step_of(result) / 4)
    graph.check_step(output, reach, unequal=SELDOM)


# --- pools --------------------------------------------------------------------------------------


def windows_start_inside(
    image: list[int], extents: list[int], pads: list[int], stride: int, dilation: int
) -> bool:
    """Whether all windows of sizes that are rounded up start in the image.

    One that starts behind it is one more for ONNX's shapes, and none for TVM: umakit refuses it.
    """
    steps = [
        -(-(side + 2 * before - (extent - 1) * dilation - 1) // stride)
        for side, extent, before in zip(image, extents, pads, strict=True)
    ]
    return all(
        step * stride < side + before for step, side, before in zip(steps, image, pads, strict=True)
    )


@EXAMPLES
@given(
    all_dtypes, st.booleans(), st.sampled_from([1, 3, 70]), sizes, pairs, st.integers(1, 3),
    st.integers(0, 1), st.booleans(), st.booleans(), st.booleans(), seeds,
)  # fmt: skip
def test_average_pool(
    dtype: str, flat: bool, count: int, size: int, window: tuple[int, int], stride: int, pad: int,
    counts_padding: bool, ceil: bool, same_scale: bool, seed: int,
) -> None:  # fmt: skip
    """Padding counted or not, sizes rounded up, rows and images; QLinearAveragePool for 8 bits."""
    graph = Qdq(dtype, seed)
    extents = list(window[:1] if flat else window)
    pads = [min(pad, extent - 1) for extent in extents]
    image = [size + extent for extent in extents]
    # Where ONNX Runtime's operators for 8 bits and for float32 do not agree with each other.
    assume(not (ceil and counts_padding))
    assume(not ceil or windows_start_inside(image, extents, pads, stride, 1))
    x = graph.input([2, count, *image], step_of(dtype))
    y = graph.node(
        "AveragePool", x, kernel_shape=extents, strides=[stride] * len(extents), pads=pads * 2,
        count_include_pad=int(counts_padding), ceil_mode=int(ceil),
    )  # fmt: skip
    output = graph.quantize(y, step_of(dtype) * (1.0 if same_scale else 0.8137))
    fused = "QLinearAveragePool" in optimized_operators(graph.model(output))
    assert fused == dtype.endswith("8")
    graph.check_step(output, 4.0, unequal=TIES if same_scale else SELDOM)


@EXAMPLES
@given(
    all_dtypes, st.booleans(), channels, sizes, pairs, st.integers(1, 3), st.integers(0, 1),
    st.integers(1, 2), st.booleans(), st.booleans(), seeds,
)  # fmt: skip
def test_max_pool(
    dtype: str, flat: bool, count: int, size: int, window: tuple[int, int], stride: int, pad: int,
    dilation: int, ceil: bool, same_scale: bool, seed: int,
) -> None:  # fmt: skip
    """Padding, dilation, sizes rounded up, rows and images."""
    graph = Qdq(dtype, seed)
    extents = list(window[:1] if flat else window)
    pads = [min(pad, extent - 1) for extent in extents]
    image = [size + extent * dilation for extent in extents]
    assume(not ceil or windows_start_inside(image, extents, pads, stride, dilation))
    zero = graph.zero_point()
    x = graph.input([2, count, *image], step_of(dtype), zero)
    y = graph.node(
        "MaxPool", x, kernel_shape=extents, strides=[stride] * len(extents), pads=pads * 2,
        dilations=[dilation] * len(extents), ceil_mode=int(ceil),
    )  # fmt: skip
    if same_scale:
        graph.check(graph.quantize(y, step_of(dtype), zero), 4.0)
    else:
        graph.check_step(graph.quantize(y, step_of(dtype) * 1.337), 4.0, unequal=SELDOM)


@EXAMPLES
@given(
    st.sampled_from(["GlobalAveragePool", "GlobalMaxPool"]), all_dtypes,
    st.sampled_from([[5], [4, 7], [1, 1]]), channels, seeds,
)  # fmt: skip
def test_global_pool(operator: str, dtype: str, image: list[int], count: int, seed: int) -> None:
    """QLinearGlobalAveragePool for 8 bits; the largest needs no arithmetic."""
    graph = Qdq(dtype, seed)
    x = graph.input([3, count, *image], step_of(dtype))
    output = graph.quantize(graph.node(operator, x), step_of(dtype) * 0.737)
    if dtype.endswith("8"):
        fused = "QLinearGlobalAveragePool" in optimized_operators(graph.model(output))
        assert fused == (operator == "GlobalAveragePool")
        graph.check(output, 4.0)
    else:
        graph.check_step(output, 4.0, unequal=SELDOM)


@EXAMPLES
@given(
    all_dtypes, st.sets(st.integers(-4, 3), min_size=1, max_size=3), st.booleans(), st.booleans(),
    seeds,
)  # fmt: skip
def test_mean(dtype: str, axes: set[int], keep: bool, attribute: bool, seed: int) -> None:
    """Any axes, as an attribute or as an input; in float32 in ONNX Runtime."""
    axes = {axis % 4 for axis in axes}
    graph = Qdq(dtype, seed)
    x = graph.input([2, 3, 5, 7], step_of(dtype))
    attribute = attribute and dtype.endswith("8")
    if attribute:
        y = graph.node("ReduceMean", x, axes=sorted(axes), keepdims=int(keep))
    else:
        graph.opset = max(graph.opset, 21)
        y = graph.node("ReduceMean", x, graph.constant(sorted(axes), "int64"), keepdims=int(keep))
    graph.check_step(graph.quantize(y, step_of(dtype) * 0.613), 4.0, unequal=SELDOM)


# --- softmax and functions of one tensor --------------------------------------------------------


@EXAMPLES
@given(
    all_dtypes, st.sampled_from([-1, 1, 0]), st.sampled_from([2, 3, 10, 700]),
    st.floats(0.01, 0.2), st.sampled_from([1 / 256, 1 / 255, 0.0107]), seeds,
)  # fmt: skip
def test_softmax(
    dtype: str, axis: int, length: int, scale: float, result: float, seed: int
) -> None:
    """Any axis; exponentials of QLinearSoftmax are float32, but its results hardly ever differ.

    Of a single element, whose probability is 1, they overflow.
    """
    graph = Qdq(dtype, seed)
    shape = [3, 4, 5]
    shape[axis] = length
    bits = 8 if dtype.endswith("16") else 0
    x = graph.input(shape, scale / 2**bits)
    # ONNX Runtime lets int8 results overflow with other zero points.
    output = graph.quantize(
        graph.node("Softmax", x, axis=axis), result / 2**bits, np.iinfo(dtype).min
    )
    assert ("QLinearSoftmax" in optimized_operators(graph.model(output))) == (bits == 0)
    graph.check_step(output, 128 * scale, unequal=SELDOM)


@pytest.mark.parametrize(("steps", "result"), [(33.5, 16), (35.5, 18)])
def test_halves_are_ties_to_even(steps: float, result: int) -> None:
    """Two equal elements: probabilities of 1/2, of which 33/2 and 35/2 are ties."""
    graph = Qdq("uint8", 1)
    x = graph.input([1, 6, 2], 0.1, 0)
    model = graph.model(graph.quantize(graph.node("Softmax", x), 1 / steps, 0))
    got = assert_equal(model, {"x0": np.ones((1, 1, 6, 2), np.float32)})
    np.testing.assert_allclose(got, result / steps, rtol=1e-6)


FUNCTIONS: dict[str, Callable[[Qdq, str], str]] = {
    "Relu": lambda g, x: g.node("Relu", x),
    "Clip": lambda g, x: g.node("Clip", x, g.constant(-1.0), g.constant(2.5)),
    "ReLU6": lambda g, x: g.node("Clip", x, g.constant(0.0), g.constant(6.0)),
    "LeakyRelu": lambda g, x: g.node("LeakyRelu", x, alpha=0.3),
    "HardSwish": lambda g, x: g.node("HardSwish", x),
    "HardSigmoid": lambda g, x: g.node("HardSigmoid", x, alpha=0.21, beta=0.4),
    "Sigmoid": lambda g, x: g.node("Sigmoid", x),
    "Tanh": lambda g, x: g.node("Tanh", x),
    "Elu": lambda g, x: g.node("Elu", x),
}


@FEWER
@pytest.mark.parametrize("function", FUNCTIONS)
@given(dtypes, all_dtypes, st.floats(0.01, 0.1), st.floats(0.003, 0.05), seeds)
def test_functions_of_8_bits(
    function: str, dtype: str, result: str, scale: float, result_scale: float, seed: int
) -> None:
    """All 256 integers: a table, off by one step at most where ONNX Runtime approximates."""
    graph = Qdq(dtype, seed, opset=21)
    x = graph.input([1, 4096], scale)
    scale = result_scale / (256 if result.endswith("16") else 1)
    output = graph.quantize(FUNCTIONS[function](graph, x), scale, None, result)
    graph.check_step(output, 140 * scale + 10, unequal=SELDOM)


@FEWER
@pytest.mark.parametrize("function", FUNCTIONS)
@given(wide_dtypes, all_dtypes, st.floats(0.05, 2.0), st.floats(0.1, 4.0), seeds)
def test_functions_of_16_bits(
    function: str, dtype: str, result: str, scale: float, result_scale: float, seed: int
) -> None:
    """Changes of scale, or tables: one step off at most, where float32 is next to a tie."""
    graph = Qdq(dtype, seed)
    x = graph.input([1, 4096], scale * step_of(dtype))
    output = graph.quantize(
        FUNCTIONS[function](graph, x), result_scale * step_of(result), None, result
    )
    graph.check_step(output, 6.0, unequal=SELDOM)


@pytest.mark.parametrize("function", [*FUNCTIONS, "Abs", "Neg", "Softsign", "Exp"])
def test_functions_of_all_16_bit_integers(function: str, tmp_path: Path) -> None:
    """Every integer's result is ONNX's, or the other one of two that are equally near.

    Scales and zero points leave no symmetry, and results reach both ends of the range.
    """
    node = FUNCTIONS.get(function, lambda g, x: g.node(function, x))
    scale, result_scale = np.float32(9.7 / 2**16), np.float32(3.1 / 2**16)
    reals = (np.arange(2**16) - 30011) * float(scale)
    for dtype in ("int16", "uint16"):
        limits, graph, path = np.iinfo(dtype), Qdq(dtype, 0), tmp_path / f"{dtype}.onnx"
        x = graph.input([2**16], float(scale), limits.min + 30011)
        output = graph.quantize(node(graph, x), float(result_scale), limits.min + 21001)
        onnx.save(graph.model(output), path)
        inputs = {"x0": reals.astype(np.float32)}
        library = compile_model(path, [], tmp_path / dtype)
        found = run_library(library.path, inputs).outputs["result"]
        with np.errstate(all="ignore"):
            (wanted,) = ReferenceEvaluator(str(path)).run(None, inputs)
        off = np.rint((found - wanted) / result_scale)
        assert np.abs(off).max() <= 1 and np.count_nonzero(off) <= SELDOM * 2**16
        if function in ("Abs", "Neg", "LeakyRelu", "HardSigmoid"):
            assert not off.any()


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint16"])
def test_lines_and_corrections_yield_all_results(dtype: str) -> None:
    """Also of noise; tables of smooth functions have a fraction of the results' size."""
    x, limits = np.linspace(-8, 8, 2**16), np.iinfo(dtype)
    noise = np.random.default_rng(1).integers(limits.min, limits.max, 2**16)
    for values, most in ((np.tanh(x), 0.3), (np.abs(x), 0.3), (x, 0.13), (noise, 1.1)):
        share = (values - values.min()) / (values.max() - values.min())
        results = np.rint(limits.min + share * (limits.max - limits.min)).astype(dtype)
        lines = interpolation_table(results)
        assert lines.table.nbytes <= most * results.nbytes
        place, bits = np.arange(2**16), lines.correction_bits
        index, rest = place >> lines.step_bits, place & ((1 << lines.step_bits) - 1)
        table, count = lines.table.astype(np.int64), (2**16 >> lines.step_bits) + 1
        found = table[index] + ((table[index + 1] - table[index]) * rest >> lines.step_bits)
        if bits:
            stored = lines.table[count:].view(np.uint8)
            assert len(stored) == 2**13 * bits
            fields = np.unpackbits(stored, bitorder="little").reshape(-1, bits)
            fields = fields @ (1 << np.arange(bits))
            found += fields - (1 << bits) * ((bits > 2) & (fields >= 1 << (bits - 1)))
        np.testing.assert_array_equal(found, results)


# --- movements ----------------------------------------------------------------------------------


MOVES: dict[str, Callable[[Qdq, str], str]] = {
    "Flatten": lambda g, x: g.node("Flatten", x),
    "Transpose": lambda g, x: g.node("Transpose", x, perm=[0, 2, 3, 1]),
    "Reshape": lambda g, x: g.node("Reshape", x, g.constant([1, -1], "int64")),
    "Squeeze": lambda g, x: g.node("Squeeze", x, g.constant([0], "int64")),
    "Unsqueeze": lambda g, x: g.node("Unsqueeze", x, g.constant([0], "int64")),
    "Pad": lambda g, x: g.node(
        "Pad", x, g.constant([0, 0, 1, 2, 0, 0, 0, 1], "int64"), g.constant(0.37)
    ),
    "Concat": lambda g, x: g.node(
        "Concat", x, g.input([1, 2, 4, 5], 1.7 * step_of(g.dtype)), axis=1
    ),
    "Resize": lambda g, x: g.node("Resize", x, "", g.constant([1, 1, 2, 3]), mode="nearest"),
    "Slice": lambda g, x: g.node(
        "Slice", x, g.constant([1], "int64"), g.constant([3], "int64"), g.constant([2], "int64")
    ),
}


@FEWER
@pytest.mark.parametrize("move", MOVES)
@given(all_dtypes, all_dtypes, st.booleans(), st.floats(0.4, 2.5), seeds)
def test_movements(move: str, dtype: str, result: str, same: bool, ratio: float, seed: int) -> None:
    """With the same scale or another one, and between types: also a change of scale alone."""
    graph = Qdq(dtype, seed, opset=21)
    zero = graph.zero_point()
    x = graph.input([1, 3, 4, 5], step_of(dtype), zero)
    y = MOVES[move](graph, x)
    if same and move != "Concat":
        graph.check(graph.quantize(y, step_of(dtype), zero), 4.0)
    else:
        output = graph.quantize(y, step_of(result) * ratio, None, result)
        graph.check_step(output, 4.0, unequal=SELDOM)


@EXAMPLES
@given(all_dtypes, all_dtypes, st.floats(0.4, 2.5), seeds)
def test_change_of_scale(dtype: str, result: str, ratio: float, seed: int) -> None:
    """The input is of integers: ONNX Runtime takes out the middle of three quantizations."""
    graph = Qdq(dtype, seed, opset=21)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph.inputs.append(helper.make_tensor_value_info("x0", kind, [1, 4096]))
    x = graph.dequantize("x0", step_of(dtype), graph.zero_point(), dtype)
    scale = step_of(result) * ratio
    model = graph.model(graph.quantize(x, scale, None, result))
    limits = np.iinfo(dtype)
    data = graph.random.integers(limits.min, limits.max + 1, (2, 1, 4096)).astype(dtype)
    assert_equal(model, {"x0": data}, step=scale, unequal=SELDOM, floats=1)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_concatenation_of_8_bits_is_equal(dtype: str) -> None:
    graph = Qdq(dtype, 7)
    x = graph.input([1, 3, 40, 50], step_of(dtype))
    both = graph.node("Concat", x, graph.input([1, 2, 40, 50], 1.7 * step_of(dtype)), axis=1)
    output = graph.quantize(both, 1.3 * step_of(dtype))
    assert "QLinearConcat" in optimized_operators(graph.model(output))
    graph.check(output, 4.0)


@EXAMPLES
@given(all_dtypes, st.sampled_from([[1, 3], [2, 2], None]), st.booleans(), seeds)
def test_split(dtype: str, parts: list[int] | None, both: bool, seed: int) -> None:
    graph = Qdq(dtype, seed)
    zero = graph.zero_point()
    x = graph.input([1, 4, 3, 5], step_of(dtype), zero)
    sizes_ = [graph.constant(parts, "int64")] if parts else []
    even = {} if parts or "8" in dtype else {"num_outputs": 2}
    graph.nodes.append(helper.make_node("Split", [x, *sizes_], ["a", "b"], "split", axis=1, **even))
    if both:
        first = graph.quantize("a", step_of(dtype), zero)
        second = graph.quantize("b", step_of(dtype), zero)
        pair = [graph.dequantize(name, step_of(dtype), zero, dtype) for name in (second, first)]
        graph.check(graph.quantize(graph.node("Concat", *pair, axis=1), step_of(dtype), zero), 4.0)
    else:
        graph.check(graph.quantize("b", step_of(dtype), zero), 4.0)


# --- the C --------------------------------------------------------------------------------------


def all_operators(dtype: str) -> tuple[Qdq, str]:
    """A network with each kernel once, and its result."""
    graph = Qdq(dtype, 11, opset=21)
    step = step_of(dtype)
    weights, first = graph.weights([6, 2, 3, 3], "int8", True)
    spread, second = graph.weights([6, 2, 2, 2], "int8", False)

    def again(value: str, scale: float = step) -> str:
        zero = graph.zero_point()
        return graph.dequantize(graph.quantize(value, scale, zero), scale, zero, dtype)

    x = graph.input([1, 4, 9, 9], step)
    y = graph.node("Conv", x, weights, group=2, pads=[1, 1, 0, 1], dilations=[1, 2])
    y = again(y, float(first.max()) * 500 * step)
    y = again(graph.node("AveragePool", y, kernel_shape=[3, 2], pads=[1, 0, 1, 0]), step)
    y = graph.node("ConvTranspose", y, spread, group=3, strides=[2, 2], dilations=[2, 1])
    y = again(y, float(second.max()) * 300 * step)
    y = again(graph.node("MaxPool", y, kernel_shape=[2, 2], dilations=[2, 2], strides=[2, 2]))
    y = again(graph.node("HardSwish", y), 0.7 * step)
    y = again(graph.node("Sub", y, again(graph.node("Tanh", y), 0.3 * step)), 0.8 * step)
    turned = again(graph.node("Transpose", y, perm=[0, 1, 3, 2]), 0.8 * step)
    y = again(graph.node("MatMul", turned, y), 3 * step)
    y = again(graph.node("Mul", y, again(graph.node("GlobalAveragePool", y))), 2 * step)
    y = again(graph.node("Softmax", y, axis=1), step / 8)
    mean = graph.node("ReduceMean", y, graph.constant([1, 3], "int64"))
    return graph, graph.quantize(mean, step / 16)


@pytest.mark.soak
@pytest.mark.parametrize("dtype", some(["int8", "uint8", "uint16", "int16"], 2))
def test_kernels_are_clean_c(dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No warning of gcc and clang, nothing undefined, and no error that adds up."""
    graph, output = all_operators(dtype)
    model = graph.model(output)
    path = tmp_path / "network.onnx"
    onnx.save(model, path)
    library = compile_model(path, [], tmp_path / "library")
    sources = sorted((library.path / "codegen/host/src").rglob("*.c"))
    for compiler in filter(shutil.which, ("gcc", "clang")):
        command = [compiler, "-std=c99", "-O2", *WARNINGS, "-c", *sources]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (result.returncode, result.stderr) == (0, "")
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", *LINKER]
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, *sanitizers))
    assert_equal(model, graph.samples(4.0), step=2 * step_of(dtype) / 16, floats=2)


# --- what stays in floating point ---------------------------------------------------------------


@pytest.mark.parametrize("operator", ["Erf", "Div"])
def test_operators_without_an_integer_form_are_named_and_run_in_float(
    operator: str, tmp_path: Path
) -> None:
    """A network of integers around it; the float part runs on the CPU."""
    graph = Qdq("uint8", 3)
    x = graph.input([1, 3, 6, 6], 0.03)
    weights, weight_scales = graph.weights([3, 3, 3, 3], "int8", True)
    scale = float(weight_scales.max()) * 4
    y = graph.quantize(graph.node("Conv", x, weights), scale, 128)
    y = graph.dequantize(y, scale, 128, "uint8")
    other = [graph.input([1, 3, 4, 4], 0.01, 0)] if operator == "Div" else []
    y = graph.quantize(graph.node(operator, y, *other), 0.02, 100)
    y = graph.dequantize(y, 0.02, 100, "uint8")
    output = graph.quantize(graph.node("AveragePool", y, kernel_shape=[2, 2]), 0.0173, 100)
    model, inputs = graph.model(output), graph.samples(4.0)
    if operator == "Div":
        inputs["x1"] = np.abs(inputs["x1"]) + np.float32(0.1)
    assert_equal(model, inputs, step=2 * 0.02)
    path = tmp_path / "mixed.onnx"
    onnx.save(model, path)
    notices: list[str] = []
    compile_model(path, [], tmp_path / "library", notice=notices.append)
    reason = f"there is no integer form of {'erf' if operator == 'Erf' else 'divide'}"
    assert any(reason in notice and "computes in floating point" in notice for notice in notices)
    assert not any("conv" in notice or "averagepool" in notice for notice in notices), notices


def test_scales_without_a_fixed_point_are_named(tmp_path: Path) -> None:
    """A result's scale so small that its factor has no multiplier."""
    graph = Qdq("int8", 3)
    a, b = graph.input([1, 8], 1000.0, 0), graph.input([8, 4], 1000.0, 0)
    output = graph.quantize(graph.node("MatMul", a, b), 1e-6, 0)
    path = tmp_path / "scales.onnx"
    onnx.save(graph.model(output), path)
    notices = quantize_to_integers(import_model(path)).notices
    assert any("the result's scale is too small" in notice for notice in notices), notices


def test_a_chain_of_all_integers_has_no_float_but_its_edges() -> None:
    """Integer inputs and outputs: the C has no float at all."""
    graph = Qdq("int8", 9)
    x = helper.make_tensor_value_info("x", TensorProto.INT8, [1, 4, 8, 8])
    graph.inputs.append(x)
    weights, weight_scales = graph.weights([6, 4, 3, 3], "int8", True)
    y = graph.node("Conv", graph.dequantize("x", 0.05, 3, "int8"), weights)
    scale = float(weight_scales.max()) * 5

    def again(value: str, scale: float) -> str:
        return graph.dequantize(graph.quantize(value, scale, -5), scale, -5, "int8")

    y = again(graph.node("HardSwish", again(y, scale)), scale)
    y = again(graph.node("AveragePool", y, kernel_shape=[2, 2], strides=[2, 2]), scale)
    y = again(graph.node("Sub", y, y), scale)
    output = graph.quantize(graph.node("Softmax", y, axis=1), 1 / 256, -128)
    result = helper.make_tensor_value_info(output, TensorProto.INT8, None)
    model = helper.make_model(
        helper.make_graph(graph.nodes, "g", [x], [result], graph.constants),
        opset_imports=[helper.make_opsetid("", 17)], ir_version=8,
    )  # fmt: skip
    images = graph.random.integers(-128, 128, (4, 1, 4, 8, 8)).astype(np.int8)
    got = assert_equal(onnx.shape_inference.infer_shapes(model), {"x": images}, floats=0)
    assert got.dtype == np.int8
