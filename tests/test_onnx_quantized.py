# SPDX-License-Identifier: Apache-2.0
"""Quantized ONNX files (QDQ): C, LLVM, NumPy and ONNX Runtime agree; files that are refused."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from comparisons import examples, inferences, some
from hypothesis import given
from hypothesis import strategies as st
from networks import Array, fold_batch_norms, mobilenet_v1, onnx_runtime, resnet18
from onnx import TensorProto, helper, numpy_helper
from qdq import (
    EXAMPLES,
    Qdq,
    assert_equal,
    channels,
    dtypes,
    scales,
    seeds,
    sizes,
)
from strict import WARNINGS

import umakit
from umakit.errors import ModelError
from umakit.frontend import import_model
from umakit.operators.numeric.fixed_point import fixed_point
from umakit.operators.numeric.float32 import round_to_float32
from umakit.pipeline import ExportOptions, compile_model


def test_sums_that_are_variables_have_no_index(tmp_path: Path) -> None:
    """A result of one column had a sum whose index was bound, and nothing used it in C."""
    graph = Qdq("int8", 1)
    weights, _ = graph.weights((4, 1, 2, 2), "int8", per_channel=True)
    y = graph.node(
        "Conv", graph.input((1, 4, 6, 4), 0.1, 0), weights, group=4, kernel_shape=[2, 2],
        pads=[2, 2, 0, 0], strides=[1, 3], dilations=[1, 3],
    )  # fmt: skip
    onnx.save(graph.model(graph.quantize(y, 0.2, 0)), str(tmp_path / "net.onnx"))
    library = compile_model(tmp_path / "net.onnx", [], tmp_path / "library")
    host = library.path / "codegen/host"
    command = ["gcc", "-std=c99", *WARNINGS, "-fsyntax-only", f"-I{host / 'include'}"]
    source = str(host / "src/tvmgen_net.c")
    done = subprocess.run([*command, source], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_macs_of_transposed_convolutions_do_not_depend_on_the_layout(
    layout: str, tmp_path: Path
) -> None:
    """Each of 5 x 4 elements of 3 channels is spread over 2 channels of 3 x 2 elements."""
    graph = Qdq("int8", 1)
    weights, _ = graph.weights((3, 2, 3, 2), "int8", per_channel=False)
    x = graph.input((1, 3, 5, 4), 0.1, 0)
    y = graph.node("ConvTranspose", x, weights, kernel_shape=[3, 2], strides=[2, 1])
    onnx.save(graph.model(graph.quantize(y, 0.2, 0)), str(tmp_path / "net.onnx"))
    options = ExportOptions(cpu="x86-64-v3" if layout == "NHWC" else "generic")
    library = compile_model(tmp_path / "net.onnx", [], tmp_path / "library", options=options)
    assert library.report.total_macs == 5 * 4 * 3 * 2 * 3 * 2


# --- the arithmetic -----------------------------------------------------------------------------


@pytest.mark.parametrize("exponent", [-13, -9, -6, -4])
def test_integers_are_rounded_as_float32(exponent: int) -> None:
    values = np.random.default_rng(1).integers(-(2**61), 2**61, 100_000)
    values >>= np.arange(100_000) % 61
    np.testing.assert_array_equal(
        round_to_float32(values), values.astype(np.float32).astype(np.int64)
    )
    factor = np.float32(2.0**exponent * 1.37)
    scaled = fixed_point([float(factor)])
    exact = int(scaled.multipliers[0]) * 2.0 ** (int(scaled.shifts[0]) - 31)
    assert exact == float(factor), "a float32 factor is exact in fixed point"


@pytest.mark.parametrize("factor", [2.0**-7, 0.00255189254, 1.30735823e-05])
def test_every_sum_is_rescaled_as_onnx_runtime_does(factor: float) -> None:
    """All sums whose results are not clipped: ties, neighbours of ties, sums above 2**24."""
    limit = min(int(130 / factor), 2**24 + 2**16)
    sums = np.arange(-limit, limit + 1)
    if len(sums) > 2_000_000:
        product = np.abs(sums * np.float64(np.float32(factor)))
        near = np.abs(product - np.floor(product) - 0.5) < 1e-4
        sums = sums[near | (np.abs(sums) > 2**24 - 1000)]
    # A fully connected layer of no inputs but a bias is a sum for each output.
    for part in np.array_split(sums, -(-len(sums) // 400_000)):
        graph = Qdq("int8", 0)
        x = graph.input([1, 1], 1.0, 0)
        weights = graph.dequantize(
            graph.constant(np.zeros((len(part), 1)), "int8"), np.float32(factor), 0, "int8"
        )
        bias = graph.dequantize(graph.constant(part, "int32"), np.float32(factor), 0, "int32")
        y = graph.quantize(graph.node("Gemm", x, weights, bias, transB=1), 1.0, 0)
        inputs = {"x0": np.zeros((1, 1, 1), np.float32)}
        assert_equal(graph.model(y), inputs, floats=2)


# --- operators ----------------------------------------------------------------------------------


@EXAMPLES
@given(
    dtypes, st.sampled_from(["int8", "int8", "uint8"]), st.booleans(), sizes, sizes, channels,
    channels, st.tuples(st.integers(1, 3), st.integers(1, 3)), st.integers(1, 2),
    st.tuples(*[st.integers(0, 2)] * 4), st.integers(1, 2), st.sampled_from([0, 0, 1, 2]),
    st.booleans(), seeds,
)  # fmt: skip
def test_convolution(
    dtype: str, weight_dtype: str, per_channel: bool, height: int, width: int, inputs: int,
    outputs: int, window: tuple[int, int], stride: int, pads: tuple[int, ...], dilation: int,
    grouping: int, biased: bool, seed: int,
) -> None:  # fmt: skip
    """Groups, depthwise, strides, dilation, uneven padding, weights with a zero point."""
    height += (window[0] - 1) * dilation
    width += (window[1] - 1) * dilation
    groups = (1, inputs, 2)[grouping]
    inputs, outputs = (inputs, outputs) if groups == 1 else (inputs * groups, outputs * groups)
    per_channel = per_channel and weight_dtype == "int8" and outputs > 1
    graph = Qdq(dtype, seed)
    x = graph.input([2, inputs, height, width], 0.03)
    zero = 121 if weight_dtype == "uint8" else 0
    weights, weight_scales = graph.weights(
        [outputs, inputs // groups, *window], weight_dtype, per_channel, zero
    )
    bias = [graph.bias(outputs, np.float32(0.03) * weight_scales)] if biased else []
    y = graph.node(
        "Conv", x, weights, *bias, group=groups, strides=[stride] * 2, pads=list(pads),
        dilations=[dilation] * 2, kernel_shape=list(window),
    )  # fmt: skip
    graph.check(graph.quantize(y, float(weight_scales.max()) * 2), 4.0)


@EXAMPLES
@given(dtypes, st.booleans(), st.booleans(), channels, st.sampled_from([1, 7, 600]), seeds)
def test_fully_connected(
    dtype: str, gemm: bool, per_channel: bool, outputs: int, inputs: int, seed: int
) -> None:
    graph = Qdq(dtype, seed)
    x = graph.input([3, inputs], 0.03)
    weights, weight_scales = graph.weights([outputs, inputs], "int8", gemm and per_channel)
    if gemm:
        bias = graph.bias(outputs, np.float32(0.03) * weight_scales)
        y = graph.node("Gemm", x, weights, bias, transB=1)
    else:
        graph.nodes.pop()
        rows = graph.random.integers(-127, 128, (inputs, outputs))
        name = graph.constant(rows, "int8")
        y = graph.node("MatMul", x, graph.dequantize(name, weight_scales[0], 0, "int8"))
    graph.check(graph.quantize(y, float(weight_scales.max()) * inputs**0.5), 4.0)


@EXAMPLES
@given(
    st.sampled_from(["Add", "Mul"]), dtypes, scales, scales, scales, st.booleans(),
    st.sampled_from([(), (1,), (3, 1, 1), (5,)]), seeds,
)  # fmt: skip
def test_sum_and_product(
    operator: str, dtype: str, left: float, right: float, result: float, ties: bool,
    shape: tuple[int, ...], seed: int,
) -> None:  # fmt: skip
    """All pairs of integers, and operands that broadcast."""
    graph = Qdq(dtype, seed)
    if ties:
        right, result = left, 2 * left
    full = [1, 3, 300, 5] if shape else [1, 3, 100, 100]
    a = graph.input(full, left)
    b = graph.input(list(shape) or full, right)
    result = result * 8 if operator == "Mul" else result
    graph.check(graph.quantize(graph.node(operator, a, b), result), 200 * max(left, right))


@pytest.mark.parametrize("operator", ["Relu", "Clip", "Sigmoid", "Tanh", "LeakyRelu", "HardSwish"])
def test_functions_of_one_tensor_are_tables(operator: str) -> None:
    graph = Qdq("int8", 3)
    x = graph.input([1, 4096], 0.04)
    bounds = (graph.constant(-1.0), graph.constant(2.5)) if operator == "Clip" else ()
    y = graph.node(operator, x, *bounds)
    graph.check(graph.quantize(y, 0.021), 6.0)


@pytest.mark.parametrize("clips", [("Relu", "Clip"), ("Clip", "Relu")])
def test_of_several_clips_the_narrowest_holds(clips: tuple[str, str]) -> None:
    graph = Qdq("int8", 5)
    y = graph.node("Add", graph.input([1, 4096], 0.04), graph.input([1, 4096], 0.03))
    for clip in clips:
        bounds = (graph.constant(-1.0), graph.constant(2.5)) if clip == "Clip" else ()
        y = graph.node(clip, y, *bounds)
    graph.check(graph.quantize(y, 0.021), 6.0)


@EXAMPLES
@given(dtypes, st.booleans(), channels, sizes, st.integers(1, 3), st.integers(0, 1), seeds)
def test_pools(
    dtype: str, everything: bool, count: int, size: int, stride: int, pad: int, seed: int
) -> None:
    graph = Qdq(dtype, seed)
    zero = graph.zero_point()
    x = graph.input([2, count, size + 2, size + 1], 0.05, zero)
    if everything:
        graph.check(graph.quantize(graph.node("GlobalAveragePool", x), 0.031), 5.0)
    else:
        y = graph.node(
            "MaxPool", x, kernel_shape=[2, 2], strides=[stride] * 2, pads=[pad, 0, 0, pad]
        )
        graph.check(graph.quantize(y, 0.05, zero), 5.0)


MOVES: dict[str, Callable[[Qdq, str], str]] = {
    "flatten": lambda g, x: g.node("Flatten", x),
    "transpose": lambda g, x: g.node("Transpose", x, perm=[0, 2, 3, 1]),
    "reshape": lambda g, x: g.node("Reshape", x, g.constant([1, -1], "int64")),
    "pad": lambda g, x: g.node("Pad", x, g.constant([0, 0, 1, 2, 0, 0, 0, 1], "int64")),
    "concat": lambda g, x: g.node("Concat", x, g.input([1, 3, 4, 5], 0.07), axis=1),
    "resize": lambda g, x: g.node("Resize", x, "", g.constant([1, 1, 2, 3]), mode="nearest"),
    "upsample": lambda g, x: g.node(
        "Resize",
        x,
        "",
        g.constant([1, 1, 3, 2]),
        mode="nearest",
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    ),
    "slice": lambda g, x: g.node(
        "Slice", x, g.constant([1], "int64"), g.constant([3], "int64"), g.constant([2], "int64")
    ),
}


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("same_scale", [True, False])
def test_movements_stay_integers(move: str, same_scale: bool) -> None:
    graph = Qdq("uint8", 5)
    x = graph.input([1, 3, 4, 5], 0.05, 77)
    scale, zero = (0.05, 77) if same_scale else (0.11, 130)
    graph.check(graph.quantize(MOVES[move](graph, x), scale, zero), 6.0)


def test_consumers_may_share_a_dequantize() -> None:
    graph = Qdq("uint8", 5)
    x = graph.input([1, 3, 6, 6], 0.05)
    weights, weight_scales = graph.weights([3, 3, 1, 1], "int8", True)
    y = graph.quantize(graph.node("Conv", x, weights), float(weight_scales.max()) * 5, 100)
    y = graph.dequantize(y, float(weight_scales.max()) * 5, 100, "uint8")
    graph.check(graph.quantize(graph.node("Add", x, y), 0.2), 6.0)


# --- whole networks -----------------------------------------------------------------------------


class Calibration:
    """Random images for quantize_static."""

    def __init__(self, name: str, images: Array) -> None:
        self._items = iter([{name: image} for image in images])

    def get_next(self) -> dict[str, Array] | None:
        return next(self._items, None)


def quantized_network(model: onnx.ModelProto, folder: Path, images: Array, kind: str) -> Path:
    """A network as onnxruntime.quantization writes it."""
    quantization = pytest.importorskip("onnxruntime.quantization")
    source, target = folder / "float.onnx", folder / "quantized.onnx"
    onnx.save(fold_batch_norms(model), source)
    types = {"s": quantization.QuantType.QInt8, "u": quantization.QuantType.QUInt8}
    quantization.quantize_static(
        source, target, Calibration(model.graph.input[0].name, images[:4]),
        quant_format=quantization.QuantFormat.QDQ, per_channel=kind != "uu",
        activation_type=types[kind[0]], weight_type=types[kind[1]],
    )  # fmt: skip
    return target


@pytest.mark.soak
@pytest.mark.parametrize(
    ("network", "kind"),
    [
        *[(mobilenet_v1, kind) for kind in some(("ss", "us", "uu"), 2)],
        *[(resnet18, kind) for kind in some(("ss", "us", "uu"), 3)],
    ],
)
def test_networks(network: Any, kind: str, tmp_path: Path) -> None:
    arguments = {"alpha": 0.25} if network is mobilenet_v1 else {}
    model = network(size=32, **arguments)
    count = inferences(20)
    images = np.random.default_rng(0).normal(size=(count, 1, 3, 32, 32)).astype(np.float32)
    path = quantized_network(model, tmp_path, images, kind)
    # ONNX Runtime leaves int8 tensors with two consumers, and what uses them, in float32 on x86.
    unequal = {"us": 0.0, "uu": 0.0, "ss": 1e-5 if network is mobilenet_v1 else 0.2}[kind]
    assert_equal(onnx.load(path), {model.graph.input[0].name: images}, unequal=unequal)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_integers_compile_without_a_warning(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    path = Path(__file__).parents[1] / "examples/digits/digits_int8.onnx"
    library = compile_model(path, [], tmp_path / "library")
    sources = sorted((library.path / "codegen/host/src").rglob("*.c"))
    command = [compiler, "-std=c99", "-O2", *WARNINGS, "-c", *sources]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


# --- files that are refused ---------------------------------------------------------------------


def small() -> tuple[Qdq, onnx.ModelProto]:
    graph = Qdq("int8", 1)
    x = graph.input([1, 2, 3, 3], 0.05)
    weights, _ = graph.weights([2, 2, 1, 1], "int8", False)
    return graph, graph.model(graph.quantize(graph.node("Conv", x, weights), 0.5))


def refusal(model: onnx.ModelProto, folder: Path) -> str:
    path = folder / "bad.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError) as caught:
        import_model(path)
    assert caught.value.exit_code == 2
    return str(caught.value)


def _node(model: onnx.ModelProto, operator: str) -> onnx.NodeProto:
    return next(node for node in model.graph.node if node.op_type == operator)


def test_qoperator_files_are_told_how_to_become_qdq(tmp_path: Path) -> None:
    _, model = small()
    _node(model, "Conv").op_type = "QLinearReduceMean"
    assert "QuantFormat.QDQ" in refusal(model, tmp_path)


def test_scales_must_be_there_and_constant(tmp_path: Path) -> None:
    _, model = small()
    node = _node(model, "QuantizeLinear")
    name = node.input[1]
    del node.input[1:]
    assert "scale" in refusal(model, tmp_path)
    node.input.extend(["given"])
    model.graph.input.append(helper.make_tensor_value_info("given", TensorProto.FLOAT, []))
    assert "is not a constant" in refusal(model, tmp_path)
    node.input[1] = name
    scale = next(tensor for tensor in model.graph.initializer if tensor.name == name)
    scale.CopyFrom(numpy_helper.from_array(np.float32(0.0), name))
    assert "not a positive number" in refusal(model, tmp_path)


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("../secret.bin", "outside the model's folder"),
        ("/etc/passwd", "outside the model's folder"),
        ("..\\secret.bin", "outside the model's folder"),
        ("link.bin", "outside the model's folder"),
        ("missing.bin", "does not exist"),
        ("short.bin", "too short"),
    ],
)
def test_external_data(location: str, words: str, tmp_path: Path) -> None:
    _, model = small()
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(64))
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    (folder / "short.bin").write_bytes(b"1")
    tensor = next(tensor for tensor in model.graph.initializer if len(tensor.dims) == 4)
    onnx.external_data_helper.set_external_data(tensor, location, offset=0, length=4)
    tensor.ClearField("raw_data")
    assert words in refusal(model, folder)


def test_truncated_files_and_custom_operators(tmp_path: Path) -> None:
    _, model = small()
    path = tmp_path / "half.onnx"
    path.write_bytes(model.SerializeToString()[:-40])
    with pytest.raises(ModelError) as caught:
        import_model(path)
    assert caught.value.exit_code == 2
    _node(model, "Conv").domain = "com.acme"
    model.opset_import.append(helper.make_opsetid("com.acme", 1))
    assert "com.acme" in refusal(model, tmp_path)


def test_symbolic_dimensions_are_bound_with_a_notice(tmp_path: Path) -> None:
    graph, model = small()
    dimension = model.graph.input[0].type.tensor_type.shape.dim[0]
    dimension.Clear()
    dimension.dim_param = "batch"
    path = tmp_path / "symbolic.onnx"
    onnx.save(model, path)
    assert any("'batch' is bound to 1" in notice for notice in import_model(path).notices)
    assert graph.shapes == [(1, 2, 3, 3)]


@given(st.lists(st.sampled_from((0.7, 0.99, 1 - 1e-7, 1.0, 1.02, 1.5)), min_size=5, max_size=5))
@examples(4)
def test_a_bias_of_another_scale_than_the_products_is_added_at_its_own(
    factors: list[float],
) -> None:
    """Sums of layers that are left in float32 have another order, which moves some steps."""
    model = onnx.load(str(Path(__file__).parents[1] / "examples/digits/digits_int8.onnx"))
    scales_of_biases = [
        t for t in model.graph.initializer if t.name.endswith("bias_quantized_scale")
    ]
    for tensor, factor in zip(scales_of_biases, factors, strict=True):
        changed = numpy_helper.to_array(tensor) * np.float32(factor)
        tensor.CopyFrom(numpy_helper.from_array(changed.astype(np.float32), tensor.name))
    step = next(
        float(numpy_helper.to_array(t)) for t in model.graph.initializer if t.name == "logits_scale"
    )
    x = np.random.default_rng(1).uniform(0, 1, (8, 1, 8, 8)).astype(np.float32)
    wanted = onnx_runtime(model, {"image": x})["logits"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.onnx"
        onnx.save(model, str(path))
        for rounding in (None, "tflm"):
            name = f"library_{rounding}"
            compile_model(path, [], Path(folder) / name, rounding=rounding)
            found = umakit.run_library(Path(folder) / name, {"image": x[:, None]}).outputs
            difference = np.abs(found["logits"].reshape(wanted.shape) - wanted)
            assert difference.max() <= 3.001 * step
