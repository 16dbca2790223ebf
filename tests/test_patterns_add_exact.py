# SPDX-License-Identifier: Apache-2.0
"""`patterns.qconv2d_add`, bit by bit, beside TensorFlow Lite Micro, ONNX Runtime and NumPy."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from integer_backend import (
    BLOCKED,
    EXAMPLES,
    SUM,
    Array,
    Npu,
    common,
    compiled,
    fused,
    integers,
    relax,
    residual_npu,
    source,
)
from networks import Graph, save
from numpy_fixed_point import quantize_multiplier, rescaled
from onnxruntime.quantization import QuantType, quantize_static
from test_patterns_quantized_onnx import Calibration, onnx_runtime
from tflite_exactness import activations, random_integers, weights_and_bias
from tflite_networks import TfliteFile, tflite_micro, trained_model

from umakit import compile_model, patterns, run_library
from umakit.operators.add import Add
from umakit.operators.conv2d import Conv2d

RESNET = "pretrainedResnet_quant.tflite"

# --- whole networks -----------------------------------------------------------------------------


@pytest.mark.optimized
@pytest.mark.parametrize("form", ["driver", "blocked driver", "loops"])
def test_a_trained_resnet_equals_tensorflow_lite_micro(form: str, tmp_path: Path) -> None:
    """Its three sums are an identity shortcut and two projections."""
    npu = residual_npu(tmp_path, blocked="blocked" in form, driver="driver" in form)
    path = trained_model(RESNET)
    library = compile_model(path, [npu], tmp_path / "library", name="net")
    assert fused(library) == 3
    taken = [row.operator for row in library.report.offloaded]
    assert taken.count("quantized.conv2d") == 9 and taken.count("quantized.add") == 3
    calls = re.findall(r"(?:=|return) npu_(\w+)\(", source(library))
    assert ("qadd" not in calls) and (bool(calls) == ("driver" in form))
    noise = np.random.default_rng(4)
    inputs = noise.integers(-128, 128, (10, 1, 32, 32, 3))
    smooth = np.clip(noise.normal(0, 9, inputs.shape).cumsum(axis=2).cumsum(axis=3), -128, 127)
    inputs = np.concatenate([inputs, smooth]).astype(np.int8)
    (output,) = run_library(library.path, {"input_1_int8": inputs}).outputs.values()
    expected = tflite_micro(path.read_bytes(), inputs)
    assert len(np.unique(expected)) > 20
    np.testing.assert_array_equal(output, expected)


shortcuts = st.sampled_from(["identity left", "identity right", "projection"])
scales = st.floats(5e-3, 0.5)
zero_points = st.integers(-128, 127)


def residual_file(data: Any, shortcut: str, channels: int, seed: int) -> tuple[bytes, Any]:
    """A sum behind a convolution, its scales and zero points drawn; the file and its input."""
    file = TfliteFile()
    shape, step = (1, 6, 7, channels), 2 if shortcut == "projection" else 1
    scale = data.draw(scales)
    x = file.tensor(shape, scale=scale, zero_point=data.draw(zero_points), name="x")
    result = (1, -(-6 // step), -(-7 // step), channels)

    def convolution(kernel: int, number: int) -> int:
        window = (channels, kernel, kernel, channels)
        constants, product = weights_and_bias(
            file, window, channels, 0, scale, seed + number, data.draw(st.booleans())
        )
        y = file.tensor(result, scale=product * data.draw(st.floats(100, 3000)),
                        zero_point=data.draw(zero_points), name=f"conv{number}")  # fmt: skip
        file.operator(
            "CONV_2D", [x, *constants], [y], "Conv2DOptions", Padding=0, StrideH=step,
            StrideW=step, DilationHFactor=1, DilationWFactor=1,
            FusedActivationFunction=data.draw(activations),
        )  # fmt: skip
        return y

    first = convolution(3, 0)
    second = convolution(1, 1) if shortcut == "projection" else x
    operands = [second, first] if shortcut == "identity left" else [first, second]
    total = file.tensor(result, scale=data.draw(st.floats(0.01, 2)),
                        zero_point=data.draw(zero_points), name="sum")  # fmt: skip
    activation = {"FusedActivationFunction": data.draw(activations)}
    file.operator("ADD", operands, [total], "AddOptions", **activation)
    return file.finish([x], [total]), shape


@EXAMPLES
@given(st.data(), shortcuts, st.sampled_from([1, 3, 8, 9]), st.integers(0, 2**16), st.booleans())
def test_drawn_shortcuts_equal_tensorflow_lite_micro(
    data: Any, shortcut: str, channels: int, seed: int, blocked: bool
) -> None:
    file, shape = residual_file(data, shortcut, channels, seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "residual.tflite").write_bytes(file)
        npu = residual_npu(folder, blocked=blocked)
        library = compile_model(folder / "residual.tflite", [npu], folder / "library", name="net")
        assert {row.where for row in library.report.placements} == {npu.target_name}
        assert fused(library) == 1 and "npu_qadd(" not in source(library)
        inputs = random_integers(shape, seed)
        (output,) = run_library(library.path, {"x": inputs}).outputs.values()
    np.testing.assert_array_equal(output, tflite_micro(file, inputs))


def test_sums_of_16_bits(tmp_path: Path) -> None:
    file, shape = TfliteFile(), (1, 5, 6, 8)
    x = file.tensor(shape, "int16", scale=0.01, name="x")
    window = (8, 3, 3, 8)
    constants, product = weights_and_bias(file, window, 8, 0, 0.01, 5, True, "int64")
    y, z = (file.tensor(shape, "int16", scale=product * 900 * n, name="yz"[n - 1]) for n in (1, 2))
    steps = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
    file.operator("CONV_2D", [x, *constants], [y], "Conv2DOptions", Padding=0, **steps)
    file.operator("ADD", [x, y], [z], "AddOptions", FusedActivationFunction=1)
    path = tmp_path / "wide.tflite"
    path.write_bytes(file.finish([x], [z]))
    npu = Npu(tmp_path, [patterns.qconv2d_add(dtypes="int16", fold_zero_point=True)])
    library = compile_model(path, [npu], tmp_path / "library")
    assert {row.where for row in library.report.placements} == {npu.target_name}
    declared = patterns.c_declaration("f", patterns.qconv2d_add(), "int16")
    assert "const int16_t *addend" in declared and "const int64_t *bias" in declared
    inputs = integers(20, *shape, dtype="int16") * np.int16(200)
    (output,) = run_library(library.path, {"x": inputs}).outputs.values()
    expected = tflite_micro(path.read_bytes(), inputs)
    assert len(np.unique(expected)) > 20
    np.testing.assert_array_equal(output, expected)


def test_sums_of_onnx_files_stay_beside_their_convolutions(tmp_path: Path) -> None:
    """ONNX Runtime adds in float32, which is another operator."""
    graph = Graph(seed=3)
    x = graph.input("x", 1, 3, 9, 8)
    x = graph.node("Relu", graph.conv(x, 8, 3, bias=True, pads=[1, 1, 1, 1]))
    total = graph.node("Add", graph.conv(x, 8, 3, bias=True, pads=[1, 1, 1, 1]), x)
    graph.output(graph.node("Relu", total))
    path = save(graph.model(), tmp_path)
    target, options = tmp_path / "quantized.onnx", {"activation_type": QuantType.QInt8}
    quantize_static(path, target, Calibration((1, 3, 9, 8)), **options)
    given_: dict[str, Any] = {"rounding": "ort", "layouts": "NCHW"}
    npu = Npu(tmp_path, [patterns.qconv2d_add(**given_), patterns.qconv2d(**given_)])
    library = compile_model(target, [npu], tmp_path / "library")
    reasons = {row.operator: row.reason for row in library.report.placements if row.where == "cpu"}
    assert reasons["quantized.float32_sum"] == "no pattern covers quantized.float32_sum"
    assert [row.operator for row in library.report.offloaded] == ["quantized.conv2d"] * 2
    inputs = np.random.default_rng(3).normal(size=(20, 1, 3, 9, 8)).astype("f4")
    (output,) = run_library(library.path, {"x": inputs}).outputs.values()
    np.testing.assert_array_equal(output, onnx_runtime(target, inputs))


# --- drawn layers of both layouts and roundings ---------------------------------------------------


@dataclass(frozen=True)
class Layer:
    """A convolution and a sum, as numbers; shapes and axes are those of NHWC.

    Attributes:
        convolution, added: parameters as `umakit` has them, but for layout and fixed point.
        factors: of the convolution's sums.
        total_factors: of the convolution's result, the addend and the sum.
        weights: [O, KH, KW, I / groups].
        addend: position of the addend.
    """

    convolution: Conv2d
    added: Add
    factors: Array
    total_factors: tuple[float, float, float]
    weights: Array
    bias: Array
    addend: int

    def call(self, builder: Any, x: Any, y: Any) -> Any:
        """The sum of a convolution of `x` and `y`."""
        channels_first = self.convolution.layout == "NCHW"
        weights = self.weights.transpose(0, 3, 1, 2) if channels_first else self.weights
        pairs = [quantize_multiplier(float(factor)) for factor in self.factors]
        multipliers = np.array([pair[0] for pair in pairs], np.int32)
        shifts = np.array([pair[1] for pair in pairs], np.int8)
        constants = [np.ascontiguousarray(weights), self.bias, multipliers, shifts]
        shape = in_layout(self.convolution.output_shape, channels_first)
        known = replace(self.convolution, output_shape=shape)
        convolved = builder.emit(known.call([x, *map(relax.const, constants)], None))
        sides = [convolved, y]
        numbers = [self.convolution.output_zero_point, self.added.zero_points[1]]
        factors = list(self.total_factors)
        if self.addend == 0:
            sides, numbers = sides[::-1], numbers[::-1]
            factors[:2] = factors[1::-1]
        scaled = [quantize_multiplier(factor) for factor in factors]
        added = replace(
            self.added,
            output_shape=shape,
            zero_points=(numbers[0], numbers[1]),
            multipliers=tuple(pair[0] for pair in scaled),
            shifts=tuple(pair[1] for pair in scaled),
        )
        return added.call(sides, None)

    def computed(self, x: Array, y: Array) -> Array:
        """By NumPy: x and y in NHWC."""
        known, added = self.convolution, self.added
        sums = convolved(x.astype(np.int64) - known.input_zero_point, self.weights, known)
        result = self._rescaled(sums + self.bias, self.factors) + known.output_zero_point
        left = np.clip(result, *known.clip) - known.output_zero_point
        right = y.astype(np.int64) - added.zero_points[1]
        first, second, third = self.total_factors
        total = self._rescaled(left << added.left_shift, first)
        total = total + self._rescaled(right << added.left_shift, second)
        total = self._rescaled(total, third) + added.output_zero_point
        return np.clip(total, *added.clip).astype(np.int8)

    def _rescaled(self, values: Array, factors: Any) -> Array:
        if self.convolution.rounding == "ort":
            product = values.astype(np.float32) * np.asarray(factors, np.float32)
            return np.asarray(np.rint(product).astype(np.int64))
        pairs = [quantize_multiplier(float(factor)) for factor in np.atleast_1d(factors)]
        mantissas, exponents = np.array(pairs).T
        return rescaled(values, mantissas, exponents)


def in_layout(shape: Sequence[int], channels_first: bool) -> tuple[int, ...]:
    n, h, w, c = shape
    return (n, c, h, w) if channels_first else (n, h, w, c)


def convolved(distances: Array, weights: Array, known: Conv2d) -> Array:
    """Sums of products in NHWC, int64."""
    top, left, bottom, right = known.padding
    padded = np.pad(distances, [(0, 0), (top, bottom), (left, right), (0, 0)])
    _, rows, columns, outputs = known.output_shape
    per_group = weights.shape[3]
    sums = np.zeros((len(distances), rows, columns, outputs), np.int64)
    for o, y, x in np.ndindex(outputs, rows, columns):
        first = o // (outputs // known.groups) * per_group
        ys, xs = (
            start * step + np.arange(size) * far
            for start, step, size, far in zip(
                (y, x), known.strides, weights.shape[1:3], known.dilation, strict=True
            )
        )
        window = padded[:, ys][:, :, xs][..., first : first + per_group]
        sums[:, y, x, o] = (window * weights[o].astype(np.int64)).sum(axis=(1, 2, 3))
    return sums


@st.composite
def layers(draw: st.DrawFn, channels: int) -> Layer:
    """For data of 6x5, in either layout, rounded either way."""
    groups = draw(st.sampled_from([1, 1] + [2] * (channels % 2 == 0 and channels > 2)))
    outputs = groups * draw(st.integers(1, 9))
    kernel = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    strides = draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    dilation = draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    padding = tuple(draw(st.integers(0, k - 1)) for k in (*kernel, *kernel))
    rounding = draw(st.sampled_from(["tflm", "ort"]))
    sizes = [
        (size + first + last - (k - 1) * far - 1) // step + 1
        for size, first, last, k, far, step in zip(
            (6, 5), padding[:2], padding[2:], kernel, dilation, strides, strict=True
        )
    ]
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    clips = [tuple(sorted((draw(zero_points), draw(zero_points)))) for _ in range(2)]
    clip, sum_clip = (c if draw(st.booleans()) else (-128, 127) for c in clips)
    fields = common((1, *sizes, outputs), rounding=rounding)
    known = Conv2d(
        **fields | {"clip": clip, "output_zero_point": draw(zero_points)},
        strides=strides, padding=padding, dilation=dilation, groups=groups,
        input_zero_point=draw(zero_points), layout=draw(st.sampled_from(["NHWC", "NCHW"])),
    )  # fmt: skip
    scales = [draw(st.floats(0.01, 0.5)) for _ in range(3)]
    twice_largest = 2 * max(scales[:2])
    factors = (*(s / twice_largest for s in scales[:2]), twice_largest / (2**20 * scales[2]))
    added = Add(
        **fields | {"clip": sum_clip, "output_zero_point": draw(zero_points)},
        zero_points=(0, draw(zero_points)), left_shift=20, multipliers=(0, 0, 0),
        shifts=(0, 0, 0),
    )  # fmt: skip
    scaled = random.uniform(1e-4, 5e-3, draw(st.sampled_from([1, outputs])))
    exact = [np.float32, np.float64][rounding == "tflm"]  # what rounds as float32 multiplies with
    return Layer(
        known, added, scaled.astype(exact), tuple(float(exact(f)) for f in factors),  # type: ignore[arg-type]
        random.integers(-127, 128, (outputs, *kernel, channels // groups)).astype(np.int8),
        random.integers(-3000, 3000, outputs).astype(np.int32), draw(st.integers(0, 1)),
    )  # fmt: skip


@EXAMPLES
@given(st.data(), st.sampled_from([1, 3, 8]))
def test_layers_of_any_shape_equal_numpy(data: Any, channels: int) -> None:
    """Eight of them in one network: by the driver, and as the loops that say what it computes."""
    chosen = [data.draw(layers(channels)) for _ in range(8)]
    builder = relax.BlockBuilder()
    inputs: dict[str, tuple[int, ...]] = {}
    for number, layer in enumerate(chosen):
        first = layer.convolution.layout == "NCHW"
        inputs[f"x{number}"] = in_layout((1, 6, 5, channels), first)
        inputs[f"y{number}"] = in_layout(layer.convolution.output_shape, first)
    variables = {n: relax.Var(n, relax.TensorType(list(s), "int8")) for n, s in inputs.items()}
    with builder.function("main", list(variables.values())):
        with builder.dataflow():
            calls = [
                layer.call(builder, variables[f"x{number}"], variables[f"y{number}"])
                for number, layer in enumerate(chosen)
            ]
            output = builder.emit_output(relax.Tuple([builder.emit(call) for call in calls]))
        builder.emit_func_output(output)
    given_: dict[str, Array] = {name: integers(3, *shape) for name, shape in inputs.items()}
    options: dict[str, Any] = {"groups": None, "dilation": None, "rounding": ("tflm", "ort")}
    prepared = {"weight_layout": BLOCKED, "fold_zero_point": True, "layouts": "NCHW"}
    registrations = [
        patterns.qconv2d_add(**options),
        patterns.qconv2d_add("nchw_add", **options, **prepared),
    ]
    drivers = SUM | {"nchw_add": "npu_qconv2d_add_blocked_nchw"}
    with tempfile.TemporaryDirectory() as folder:
        for npu in (Npu(Path(folder), registrations, drivers), Npu(Path(folder), registrations)):
            library = compiled(builder.get(), [npu], Path(folder))
            rows = library.report.placements
            assert {row.where for row in rows} == {npu.target_name}, [row.reason for row in rows]
            got = run_library(library.path, given_).outputs.values()
            for number, (layer, one) in enumerate(zip(chosen, got, strict=True)):
                x, y = given_[f"x{number}"], given_[f"y{number}"]
                if layer.convolution.layout == "NCHW":
                    x, y, one = (array.transpose(0, 1, 3, 4, 2) for array in (x, y, one))
                expected = layer.computed(x[:, 0], y[:, 0])
                np.testing.assert_array_equal(one[:, 0], expected, str(layer))
