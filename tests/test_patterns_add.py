# SPDX-License-Identifier: Apache-2.0
"""`patterns.qconv2d_add`: a convolution and the sum behind it as one call of a driver."""

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
    DRIVERS,
    EXAMPLES,
    Array,
    Npu,
    add,
    common,
    compiled,
    conv,
    everything,
    integers,
    network,
    placements,
    relax,
    rescale,
    results,
    source,
)
from networks import Graph, save
from numpy_fixed_point import quantize_multiplier, rescaled
from onnxruntime.quantization import QuantType, quantize_static
from test_diff import blamed, wrong_layers
from test_diff_quantized import planted
from test_patterns_quantized_onnx import Calibration, onnx_runtime
from tflite_exactness import activations, random_integers, weights_and_bias
from tflite_networks import TfliteFile, tflite_micro, trained_model

from umakit import OpStrategy, PassPhase, compile_model, patterns, run_library, tir, tvm_api
from umakit.diff import diff_model
from umakit.errors import LoweringError
from umakit.quantization.operators import Add, Conv2d

RESNET = "pretrainedResnet_quant.tflite"
SUM = {"qconv2d_add": "npu_qconv2d_add"}
SHAPE = (1, 6, 5, 8)


def residual_npu(folder: Path, *, blocked: bool = False, driver: bool = True) -> Npu:
    """A backend of all patterns, and the sum behind a convolution."""
    options: dict[str, Any] = {}
    drivers = DRIVERS | SUM
    if blocked:
        options = {"weight_layout": BLOCKED, "fold_zero_point": True}
        drivers |= {"qconv2d": "npu_qconv2d_blocked", "qconv2d_add": "npu_qconv2d_add_blocked"}
    registrations = [patterns.qconv2d_add(groups=None, dilation=None, **options)]
    return Npu(folder, [*registrations, *everything(**options)], drivers if driver else None)


def fused(library: Any) -> int:
    """Number of layers that are a convolution and a sum."""
    layers = library.metadata["umakit"]["layers"]
    return sum("qconv2d_add" in layer["kernel"] for layer in layers)


# --- whole networks -----------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["driver", "blocked driver", "loops"])
def test_a_trained_resnet_equals_tensorflow_lite_micro(form: str, tmp_path: Path) -> None:
    """Its three sums are an identity shortcut and two projections."""
    npu = residual_npu(tmp_path, blocked="blocked" in form, driver="driver" in form)
    path = trained_model(RESNET)
    library = compile_model(path, [npu], tmp_path / "library", name="net")
    assert fused(library) == 3
    taken = [row.operator for row in library.report.offloaded]
    assert taken.count("quantized.conv2d") == 9 and taken.count("quantized.add") == 3
    calls = re.findall(r"= npu_(\w+)\(", source(library))
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


# --- which sums are taken -----------------------------------------------------------------------


def summed(left: Any, right: Any, of: str, **values: Any) -> Any:
    """A sum in which zero points fit: `of` says which operands are results of `conv`."""
    call = add(left, right, tvm_api.static_shape(left) or (), **values)
    known = Add.of(call)
    zero_points = tuple(3 if side in of else 5 for side in ("left", "right"))
    return replace(known, zero_points=zero_points).call(list(call.args), None)  # type: ignore[arg-type]


def assert_equal_to_the_cpu(module: Any, npu: Npu, folder: Path, **given_: Array) -> Any:
    """Results on the backend are the CPU's; the library."""
    library = compiled(module, [npu], folder)
    wanted = results(module, [], folder, **given_)
    got = run_library(library.path, given_).outputs.values()
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(one, other)
        assert len(np.unique(one)) > 1
    return library


def test_shortcuts_of_every_kind(tmp_path: Path) -> None:
    def two_convolutions(b: Any, x: Any) -> Any:
        small = b.emit(conv(x, kernel=(1, 1), padding=(0,) * 4))
        return summed(b.emit(conv(x)), small, "left right")

    def a_second_that_reads_the_first(b: Any, x: Any) -> Any:
        first = b.emit(conv(x))
        return summed(first, b.emit(conv(first)), "left right")

    def one_tensor_as_data_and_addend(b: Any, x: Any) -> Any:
        return summed(x, b.emit(conv(x)), "right")

    def a_constant(b: Any, x: Any) -> Any:
        return summed(b.emit(conv(x)), relax.const(integers(*SHAPE)), "left")

    def around_the_cpu(b: Any, x: Any) -> Any:
        first = b.emit(conv(x))
        beside = b.emit(relax.op.bitwise_not(first))
        return summed(b.emit(conv(first)), beside, "left")

    def one_behind_the_other(b: Any, x: Any) -> Any:
        first = b.emit(summed(b.emit(conv(x)), x, "left", output_zero_point=5))
        return summed(first, b.emit(conv(first)), "right")

    kinds = {
        two_convolutions: 1, a_second_that_reads_the_first: 1, one_tensor_as_data_and_addend: 1,
        a_constant: 1, around_the_cpu: 1, one_behind_the_other: 2,
    }  # fmt: skip
    for build, wanted in kinds.items():
        module, npu = network(build, SHAPE), residual_npu(tmp_path)
        library = assert_equal_to_the_cpu(module, npu, tmp_path, x=integers(3, *SHAPE))
        assert fused(library) == wanted, build.__name__
        stays = {r.operator for r in library.report.placements if r.where == "cpu"}
        assert stays <= {"bitwise_not"}, build.__name__


def test_the_convolution_that_can_be_taken_is(tmp_path: Path) -> None:
    """Of two, each in its turn."""

    def build(b: Any, x: Any) -> Any:
        small = b.emit(conv(x, kernel=(1, 1), padding=(0,) * 4))
        return summed(b.emit(conv(x)), small, "left right")

    module = network(build, SHAPE)
    for kernel in (1, 3):
        pattern = patterns.qconv2d_add(kernels=kernel)
        npu = Npu(tmp_path, [pattern], SUM)
        rows = placements(module, npu)
        assert [row.operator for row in rows if row.where != "cpu"] == [
            "quantized.conv2d", "quantized.add",
        ]  # fmt: skip
        assert_equal_to_the_cpu(module, npu, tmp_path, x=integers(2, *SHAPE))


def test_what_stands_behind_the_sum_is_part_of_it(tmp_path: Path) -> None:
    followers: list[Any] = [
        lambda x: relax.op.clip(x, -10, 40), relax.op.nn.relu,
        lambda x: rescale(x, 1.0, clip=(0, 50)),
    ]  # fmt: skip

    def build(b: Any, x: Any, y: Any) -> Any:
        sums = [
            summed(*((b.emit(conv(x)), y) if side == "left" else (y, b.emit(conv(x)))), side)
            for side in ("left", "right")
        ]
        return [follower(b.emit(total)) for total in sums for follower in followers[:1]] + [
            follower(b.emit(summed(b.emit(conv(x)), y, "left"))) for follower in followers
        ]

    npu = residual_npu(tmp_path)
    given_ = {"x": integers(3, *SHAPE), "y": integers(3, *SHAPE)}
    library = assert_equal_to_the_cpu(network(build, SHAPE, SHAPE), npu, tmp_path, **given_)
    assert {row.where for row in library.report.placements} == {npu.target_name}
    assert fused(library) == 5 and not re.search(r"\bfor \(", source(library))


def test_a_second_change_of_scale_behind_the_sum(tmp_path: Path) -> None:
    def build(b: Any, x: Any, y: Any) -> Any:
        total = b.emit(summed(b.emit(conv(x)), y, "left"))
        return rescale(total, 1.7, output_zero_point=-4)

    module = network(build, SHAPE, SHAPE)
    given_ = {"x": integers(3, *SHAPE), "y": integers(3, *SHAPE)}
    first, second, third = placements(module, residual_npu(tmp_path))
    assert third.reason == (
        "qconv2d_add: a second change of scale behind it: the accelerator rescales a result once"
    )
    assert "cpu" not in (first.where, second.where)
    asks = Npu(tmp_path, [patterns.qconv2d_add(requantize=True)])
    library = assert_equal_to_the_cpu(module, asks, tmp_path, **given_)
    assert {row.where for row in library.report.placements} == {asks.target_name}


def test_a_result_that_is_used_elsewhere_too_is_not_fused(tmp_path: Path) -> None:
    def build(b: Any, x: Any, y: Any) -> Any:
        convolution = b.emit(conv(x))
        return [summed(convolution, y, "left"), convolution]

    module, npu = network(build, SHAPE, SHAPE), residual_npu(tmp_path)
    given_ = {"x": integers(2, *SHAPE), "y": integers(2, *SHAPE)}
    library = assert_equal_to_the_cpu(module, npu, tmp_path, **given_)
    assert fused(library) == 0
    assert {row.where for row in library.report.placements} == {npu.target_name}
    _, total = placements(module, Npu(tmp_path, [patterns.qconv2d_add(), patterns.qconv2d()]))
    assert total.reason == "qconv2d_add: a result inside the pattern is used elsewhere too"


def test_sums_run_inside_a_tvm_process(tmp_path: Path) -> None:
    def build(b: Any, x: Any) -> Any:
        total = b.emit(summed(x, b.emit(conv(x)), "right"))
        return relax.op.bitwise_not(total)

    module, npu = network(build, SHAPE), residual_npu(tmp_path, blocked=True)
    npu.register()
    generated = tvm_api.relax_transform.RunCodegen()(npu.partition(module))
    x = integers(*SHAPE)
    got = tvm_api.llvm_executable(generated)["main"](tvm_api.to_device(x)).numpy()
    np.testing.assert_array_equal(got, *results(module, [], tmp_path, x=x))


# --- refusals -----------------------------------------------------------------------------------

WIDE = (1, 6, 5, 12)


def sum_of(
    right: tuple[int, ...] = SHAPE, dtype: str = "int8", of: str = "left", **values: Any
) -> Any:
    """conv(x) + y."""

    def build(b: Any, x: Any, y: Any) -> Any:
        return summed(b.emit(conv(x)), y, of, **values)

    builder = relax.BlockBuilder()
    x, y = (
        relax.Var(name, relax.TensorType(list(shape), kind))
        for name, shape, kind in (("x", SHAPE, "int8"), ("y", right, dtype))
    )
    with builder.function("main", [x, y]):
        with builder.dataflow():
            output = builder.emit_output(build(builder, x, y))
        builder.emit_func_output(output)
    return builder.get()


def depthwise(b: Any, x: Any, y: Any) -> Any:
    return summed(b.emit(conv(x, groups=8)), y, "left")


def doubled(b: Any, x: Any, y: Any) -> Any:
    convolution = b.emit(conv(x))
    return summed(convolution, convolution, "left right")


def refused(message: str, module: Any, **options: Any) -> tuple[str, Any, Any]:
    return message, module, patterns.qconv2d_add(**options)


REFUSED = [
    refused("kernel 3x3: the accelerator has 1x1", sum_of(), kernels=1),
    refused("rounding tflm: the accelerator rounds as ort", sum_of(), rounding="ort"),
    refused("layout NHWC: the accelerator reads NCHW", sum_of(), layouts="NCHW"),
    refused(
        "shapes 1x6x5x8 and 1x1x1x8: the accelerator adds equal ones", sum_of((1, 1, 1, 8))
    ),
    refused("int8 and uint8 make int8: the accelerator adds equal ones", sum_of(dtype="uint8")),
    refused(
        "int8 and int8 make uint8: the accelerator adds equal ones",
        sum_of(output_dtype="uint8", clip=(0, 255)),
    ),
    refused("rounding tflm, and ort of the sum", sum_of(rounding="ort"), rounding=None),
    refused(
        "zero point 3 of its result, which the addition takes for 5", sum_of(of="neither")
    ),
    refused(
        "a depthwise convolution, 8 groups of one channel",
        network(depthwise, SHAPE, SHAPE), groups=None,
    ),
    refused(
        "its result is added to itself: the accelerator adds another tensor",
        network(doubled, SHAPE, SHAPE),
    ),
    refused("240 bytes: none are left", sum_of(),
            predicate=lambda known: f"{known.operand_bytes['addend']} bytes: none are left"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("message", "module", "pattern"), REFUSED, ids=[message[:40] for message, _, _ in REFUSED]
)
def test_a_refused_sum_says_why_and_its_convolution_is_taken_alone(
    message: str, module: Any, pattern: Any, tmp_path: Path
) -> None:
    convolution, total = placements(module, Npu(tmp_path, [pattern]))
    assert [convolution.where, total.where] == ["cpu", "cpu"]
    assert total.reason == convolution.reason == f"qconv2d_add: {message}"
    alone = Npu(tmp_path, [pattern, patterns.qconv2d(groups=None), patterns.qdepthwise()])
    convolution, total = placements(module, alone)
    assert (convolution.where, total.where) == (alone.target_name, "cpu")
    assert total.reason == f"qconv2d_add: {message}"


def test_the_convolution_is_told_its_own_reason_only(tmp_path: Path) -> None:
    both = Npu(tmp_path, [patterns.qconv2d_add(kernels=5), patterns.qconv2d(kernels=1)])
    convolution, total = placements(sum_of(), both)
    assert convolution.reason == "kernel 3x3: the accelerator has 1x1"
    assert total.reason == "qconv2d_add: kernel 3x3: the accelerator has 5x5"


def test_a_sum_without_a_convolution_has_no_pattern(tmp_path: Path) -> None:
    module = network(lambda b, x, y: add(x, y, SHAPE), SHAPE, SHAPE)
    (row,) = placements(module, Npu(tmp_path, [patterns.qconv2d_add()]))
    assert row.reason == "no pattern covers quantized.add"


# --- parameters ---------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["left", "right"])
def test_what_a_backend_is_told(side: str, tmp_path: Path) -> None:
    """In a predicate, a strategy and a TIR pass; the convolution is always on the left."""
    seen: list[Any] = []

    def build(b: Any, x: Any, y: Any) -> Any:
        convolution = b.emit(conv(x, 12))
        operands = (convolution, y) if side == "left" else (y, convolution)
        return summed(*operands, side, clip=(-20, 90), output_zero_point=-2)

    def predicate(known: Any) -> bool:
        seen.append(known)
        return True

    def note(function: Any) -> Any:
        seen.append(patterns.parameters_of(function))
        assert [p.name for p in function.params][:3] == ["data", "addend", "weights"]
        return function

    module = network(build, SHAPE, WIDE)
    options: dict[str, Any] = {"weight_layout": BLOCKED, "fold_zero_point": True}
    npu = Npu(tmp_path, [patterns.qconv2d_add(predicate=predicate, **options)])
    npu._register_tir_pass(PassPhase.TIR_PHASE_0, tir.prim_func_pass("note", note))
    compiled(module, [npu], tmp_path)
    assert len(seen) == 2 and seen[0] == seen[1]
    known = seen[1]
    assert isinstance(known, patterns.QConv2dAdd) and isinstance(known, patterns.QConv2d)
    (original,) = (
        Add.of(b.value)
        for b in tvm_api.bindings_of(module["main"])
        if tvm_api.operator_name(b.value) == "quantized.add"
    )
    order = (0, 1, 2) if side == "left" else (1, 0, 2)
    assert known.addition.zero_points == (3, 5)
    assert known.addition.multipliers == tuple(original.multipliers[i] for i in order)
    assert known.addition.shifts == tuple(original.shifts[i] for i in order)
    assert (known.output_zero_point, known.clip) == (3, (-128, 127))
    assert (known.addition.output_zero_point, known.addition.clip) == (-2, (-20, 90))
    assert known.operand_shapes == {
        "data": SHAPE, "addend": WIDE, "weights": (2, 3, 3, 8, 8), "bias": (16,),
        "multipliers": (16,), "shifts": (16,), "result": WIDE,
    }  # fmt: skip
    assert list(known.operand_shapes) == list(known.POINTERS) == list(known.pointer_types)
    assert known.operand_bytes["addend"] == known.operand_bytes["result"] == 6 * 5 * 12
    shapes = {name: array.shape for name, array in known.stored_arrays().items()}
    assert shapes == known.stored_shapes
    multipliers, shifts = known.addition.multipliers, known.addition.shifts
    plain = example_scalars(patterns.qconv2d())
    assert list(known.scalars)[: len(plain)] == plain
    assert dict(list(known.scalars.items())[len(plain) :]) == {
        "add_left_shift": 20, "convolution_multiplier": multipliers[0],
        "convolution_shift": shifts[0], "addend_zero_point": 5,
        "addend_multiplier": multipliers[1], "addend_shift": shifts[1],
        "sum_multiplier": multipliers[2], "sum_shift": shifts[2], "sum_zero_point": -2,
        "sum_lowest": -20, "sum_highest": 90,
    }  # fmt: skip


def example_scalars(pattern: patterns.Offer) -> list[str]:
    """Names of the integers that a driver gets."""
    return re.findall(r"int32_t (\w+)[,)]", patterns.c_declaration("f", pattern))


def test_a_second_change_of_scale_has_the_last_arguments() -> None:
    scalars = example_scalars(patterns.qconv2d_add(requantize=True))
    assert scalars[-7:-5] == ["sum_highest", "then_multiplier"]
    assert scalars[-1] == "then_highest" and len(set(scalars)) == len(scalars)


def test_a_strategy_of_convolutions_is_not_asked(tmp_path: Path) -> None:
    """The composite is one operator of its own, of which a strategy may be registered."""
    seen: list[Any] = []

    def of_convolutions(attrs: Any, inputs: Any, out_type: Any, target: Any) -> OpStrategy:
        raise AssertionError

    def of_sums(attrs: Any, inputs: Any, out_type: Any, target: Any) -> OpStrategy:
        seen.append(patterns.parameters_of(attrs))
        chosen = OpStrategy()
        chosen.add_implementation(lambda attrs, inputs, out_type: tvm_api.te.compute(
            SHAPE, lambda *i: inputs[1][i], name="addend"
        ))  # fmt: skip
        return chosen

    npu = Npu(tmp_path, [patterns.qconv2d_add()])
    npu._register_operator_strategy("quantized.conv2d", of_convolutions)
    npu._register_operator_strategy("quantized.conv2d_add", of_sums)
    y = integers(2, *SHAPE)
    (got,) = results(sum_of(), [npu], tmp_path, x=integers(2, *SHAPE), y=y)
    np.testing.assert_array_equal(got, y)
    (known,) = seen
    assert known.addition.left_shift == 20 and known.weights is None


def test_a_pass_that_takes_the_composite_apart_is_told(tmp_path: Path) -> None:
    """A pass between partitioning and lowering may leave what no driver call stands for."""

    def without_sum(module: Any, context: Any) -> Any:
        for variable, function in tvm_api.relax_functions(module):
            if tvm_api.function_attribute(function, "Composite") is None:
                continue
            first = next(iter(tvm_api.bindings_of(function)))
            builder = relax.BlockBuilder()
            with builder.function("composite", list(function.params)):
                with builder.dataflow():
                    result = builder.emit_output(first.value)
                builder.emit_func_output(result)
            made = builder.get()["composite"].with_attrs(dict(function.attrs))
            module.update_func(variable, made.without_attr("global_symbol"))
        return module

    npu = Npu(tmp_path, [patterns.qconv2d_add()])
    change = tvm_api.tvm.ir.transform.module_pass(without_sum, opt_level=0, name="without_sum")
    npu._register_relax_pass(PassPhase.POST_PARTITIONING_1, change)
    with pytest.raises(LoweringError, match="as qconv2d_add matches it"):
        compiled(sum_of(), [npu], tmp_path)


# --- uma diff -----------------------------------------------------------------------------------


def test_diff_compares_behind_the_sum(tmp_path: Path) -> None:
    path = trained_model(RESNET)
    assert diff_model(path, [residual_npu(tmp_path)], most=1).agrees
    error = ("added(sum_of, (int8_t)sum, addend[place])",
             "added(sum_of, (int8_t)sum, addend[calls == 6 ? place ^ 1 : place])")  # fmt: skip
    result = diff_model(path, [planted(residual_npu(tmp_path), error)], most=1)
    names = ["model/conv2d_5/BiasAdd", "model/activation_4/Relu"]
    assert blamed(result) == names and wrong_layers(result) == [" + ".join(names)]
    assert result.blame is not None
    operators = [operator.operator for operator in result.blame.operators]
    assert operators == ["quantized.conv2d", "quantized.add"]
