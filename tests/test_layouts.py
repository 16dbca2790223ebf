# SPDX-License-Identifier: Apache-2.0
"""Regions of a network get the layout of an accelerator's patterns, where that pays.

Integers are compared with ONNX Runtime or with a library without accelerators, bit for bit; the
choice of layouts with all other choices.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from comparisons import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from integer_backend import Npu
from layout_networks import SCALE, RandomNetwork, Value
from networks import Graph, normal, onnx_runtime, random_inputs, save
from qdq import runtime
from tflite_networks import trained_model

import umakit
from umakit import ExportOptions, compile_model, patterns, run_library, tvm_api
from umakit.errors import BackendError
from umakit.machine import Prediction
from umakit.partition.layouts.choose import Sides
from umakit.partition.layouts.graph import Graph as Layouts
from umakit.partition.layouts.graph import rewrite
from umakit.partition.layouts.rules import Flip
from umakit.partition.partitioner import partition
from umakit.partition.report import OffloadReport
from umakit.pipeline import import_network
from umakit.testing import QuantizedNetwork
from umakit.tools.diff import diff_model

relax = tvm_api.relax


def npu(folder: Path, layout: str, *more: Any) -> Npu:
    """An accelerator of one layout, with C functions as its driver."""
    given: dict[str, Any] = {"rounding": ("ort", "tflm"), "layouts": layout}
    ending = "" if layout == "NHWC" else "_nchw"
    taken = [
        patterns.qconv2d(groups=None, dilation=None, **given),
        patterns.qdepthwise(multipliers=None, **given),
        patterns.qmax_pool2d(layouts=layout),
        *more,
    ]
    return Npu(folder, taken, {each.name: f"npu_{each.name}{ending}" for each in taken})


def report(module: Any, *backends: Any, keep_layout: bool = False) -> OffloadReport:
    return partition(module, backends, keep_layout=keep_layout).report


def module_of(path: Path) -> Any:
    return import_network(path).model.module


def channels_last(module: Any) -> Any:
    """The network with all that is connected to a convolution in NHWC."""
    dataflow = tvm_api.relax_transform.ConvertToDataflow(min_size=1)(module)
    graph = Layouts(dataflow["main"], Flip("NHWC"))
    return rewrite(dataflow, graph, graph.connected(graph.anchors())).module


# --- Results --------------------------------------------------------------------------------------


@settings(examples(3))
@given(st.integers(0, 2**32 - 1))
def test_random_networks_in_the_other_layout_are_exact(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("layouts")
    network = RandomNetwork(seed, exact=seed % 2 == 0)
    path, inputs = folder / "network.onnx", network.inputs()
    onnx.save(network.model(), path)
    accelerator = npu(folder, "NHWC")
    library = compile_model(path, [accelerator], folder / "library", name="net")
    got = run_library(library.path, inputs).outputs
    assert library.report.offloaded_macs >= report(module_of(path)).offloaded_macs
    if seed % 2 == 0:
        session = runtime(path)
        rows = [session.run(list(got), {"x0": row}) for row in inputs["x0"]]
        wanted = {name: np.stack(column) for name, *column in zip(got, *rows, strict=True)}
    else:
        plain = compile_model(path, [], folder / "plain", name="net")
        wanted = run_library(plain.path, inputs).outputs
    for name, array in wanted.items():
        np.testing.assert_array_equal(got[name], array)


@settings(examples(2))
@given(st.integers(0, 2**32 - 1))
def test_twins_in_nhwc_run_on_an_accelerator_of_nchw(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("layouts")
    network = RandomNetwork(seed, exact=True)
    path, inputs = folder / "network.onnx", network.inputs()
    onnx.save(network.model(), path)
    twin, accelerator = channels_last(module_of(path)), npu(folder, "NCHW")
    library = compile_model(twin, [accelerator], folder / "library", name="net")
    assert (
        library.report.offloaded_macs > report(twin, accelerator, keep_layout=True).offloaded_macs
    )
    (name,) = (item["name"] for item in library.metadata["umakit"]["inputs"])
    got = list(run_library(library.path, {name: inputs["x0"]}).outputs.values())
    session = runtime(path)
    for number, row in enumerate(inputs["x0"]):
        for one, wanted in zip(got, session.run(None, {"x0": row}), strict=True):
            np.testing.assert_array_equal(one[number], wanted)


def residual(folder: Path, *, mean: bool = False) -> Path:
    """A residual block, a pool, perhaps a mean, and no operator that keeps its layout."""
    made = RandomNetwork(3, 0)
    zero = made.qdq.zero_point()
    x = Value(made.qdq.input((1, 3, 8, 8), SCALE, zero), (1, 3, 8, 8), SCALE, zero)
    first = made.windowed(x, 4, 3, 1)
    total = made.quantized(
        made.qdq.node("Add", first.name, made.windowed(first, 4, 3, 1).name), first.shape
    )
    pooled = made.max_pool(total)
    assert pooled is not None
    made.outputs = [made.pooled(pooled) if mean else pooled]
    return save(made.model(), folder)


def float_network(folder: Path) -> Path:
    """Convolutions, a branch, a pool, operators with constants, and two outputs."""
    graph = Graph(seed=5)
    x = graph.conv(graph.input("x", 1, 3, 8, 6), 8, bias=True, name="first")
    x = graph.node("Clip", x, graph.constant(0.0), graph.constant(6.0))
    left = graph.node("Sigmoid", graph.conv(x, 8, name="left"))
    both = graph.node("Add", graph.node("Mul", left, graph.random(8, 1, 1)), x)
    small = graph.node("MaxPool", both, kernel_shape=[2, 2], strides=[2, 2])
    softmax = graph.node("Softmax", graph.conv(small, 4, name="last"), axis=1)
    graph.output(softmax, graph.node("GlobalAveragePool", both))
    return save(graph.model(), folder)


def test_a_float_network_of_nhwc_runs_on_vanilla(tmp_path: Path) -> None:
    path = float_network(tmp_path)
    twin, vanilla = channels_last(module_of(path)), umakit.find_backend("vanilla_accelerator")
    library = compile_model(twin, [vanilla], tmp_path / "library", name="net")
    assert [row.operator for row in library.report.offloaded] == ["nn.conv2d"] * 3
    inputs = random_inputs(onnx.load(str(path)))
    (name,) = (item["name"] for item in library.metadata["umakit"]["inputs"])
    got = list(run_library(library.path, {name: inputs["x"]}).outputs.values())
    for one, wanted in zip(got, onnx_runtime(onnx.load(str(path)), inputs).values(), strict=True):
        np.testing.assert_allclose(one.reshape(wanted.shape), wanted, rtol=0, atol=1e-5)


# --- What is transposed ---------------------------------------------------------------------------


def transposes(found: OffloadReport) -> list[tuple[str, str, str]]:
    """Operator, node and reason of the transposes that were added."""
    return [(r.operator, r.name, r.reason) for r in found.placements if r.changes_layout]


def test_only_borders_are_transposed_and_say_what_they_move(tmp_path: Path) -> None:
    path, accelerator = residual(tmp_path), npu(tmp_path, "NHWC")
    found = report(module_of(path), accelerator)
    assert found.offloaded_macs == found.total_macs
    assert transposes(found) == [
        ("permute_dims", "quantizelinear7", "to NHWC, 192 B"),
        ("permute_dims", "maxpool22", "to NCHW, 64 B"),
    ]
    assert {row.axes for row in found.offloaded} == {(0, 2, 3, 1)}
    kept = report(module_of(path), accelerator, keep_layout=True)
    assert kept.offloaded_macs == 0 and not transposes(kept)
    names = [row.name for row in found.placements if not row.changes_layout]
    assert names == [row.name for row in kept.placements]


def convolution(builder: Any, x: Any, outputs: int, layout: str = "NHWC", kernel: int = 3) -> Any:
    """A float convolution that keeps the image's size."""
    shape = tvm_api.static_shape(x) or ()
    channels = shape[layout.index("C")]
    weights = normal(outputs, channels, kernel, kernel)
    order = {"NHWC": "HWIO", "NCHW": "OIHW"}[layout]
    weights = np.ascontiguousarray(weights.transpose(["OIHW".index(axis) for axis in order]))
    made = relax.op.nn.conv2d(
        x, relax.const(weights), padding=kernel // 2, data_layout=layout, kernel_layout=order
    )
    return builder.emit(made)


def network(build: Any, shape: tuple[int, ...]) -> Any:
    """A Relax network of one input."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(build(builder, x))
        builder.emit_func_output(result)
    return builder.get()


def vanilla() -> Any:
    return umakit.find_backend("vanilla_accelerator")


def test_transposes_of_the_network_vanish_in_a_region() -> None:
    """As converters write models of NHWC in ONNX, for an accelerator of NHWC and back."""

    def build(b: Any, x: Any) -> Any:
        first = convolution(b, b.emit(relax.op.permute_dims(x, (0, 2, 3, 1))), 8)
        return relax.op.permute_dims(b.emit(relax.op.nn.relu(first)), (0, 3, 1, 2))

    found = report(network(build, (1, 4, 6, 6)), vanilla())
    assert [row.operator for row in found.placements] == ["nn.conv2d", "nn.relu"]
    assert found.offloaded_macs == found.total_macs


def test_transposes_of_signals_vanish_too(tmp_path: Path) -> None:
    """The order of three axes is its own inverse."""

    def build(b: Any, x: Any) -> Any:
        weights = relax.const(normal(8, 4, 3))
        made = relax.op.nn.conv1d(b.emit(relax.op.permute_dims(x, (0, 2, 1))), weights, padding=1)
        return relax.op.permute_dims(b.emit(made), (0, 2, 1))

    def takes(context: Any) -> bool:
        return str(context.matched_expr.attrs.data_layout) == "NWC"

    accelerator = of_own(tmp_path, takes, operator="nn.conv1d", layouts="NHWC")
    (row,) = report(network(build, (1, 16, 4)), accelerator).placements
    assert (row.operator, row.where) == ("nn.conv1d", accelerator.target_name)


def test_other_transposes_are_merged_with_the_border() -> None:
    def build(b: Any, x: Any) -> Any:
        return relax.op.permute_dims(convolution(b, x, 8), (0, 2, 1, 3))

    found = report(network(build, (1, 6, 5, 4)), vanilla())
    assert [row.operator for row in found.placements] == [
        "permute_dims",
        "nn.conv2d",
        "permute_dims",
    ]
    assert [row.changes_layout for row in found.placements] == [True, False, False]


@pytest.mark.parametrize("shape", [(1, 1, 1, 64), (1, 16, 16, 1)])
def test_axes_of_one_element_move_for_free(shape: tuple[int, ...]) -> None:
    outputs = shape[3]
    found = report(network(lambda b, x: convolution(b, x, outputs), shape), vanilla())
    assert [row.operator for row in found.placements] == ["reshape", "nn.conv2d", "reshape"]
    assert all(row.reason.endswith("moves nothing") for row in found.placements[::2])


def test_a_region_that_does_not_pay_stays_with_that_reason() -> None:
    """One multiply-accumulate for each element, and twice as many elements to transpose."""
    found = report(network(lambda b, x: convolution(b, x, 2, kernel=1), (1, 8, 8, 2)), vanilla())
    (row,) = found.placements
    assert row.where == "cpu"
    assert row.reason == (
        "layout NHWC/HWIO: the driver reads NCHW/OIHW; "
        "NCHW does not pay: it has 256 MACs, and up to 256 elements to transpose"
    )


class Planner:
    """A cost model that predicts the same for each layer."""

    def __init__(self, cycles: int) -> None:
        self.cycles = cycles

    def tiles_of(self, composite: Any, tilings: Any) -> Any:
        assert not tilings
        return composite

    def predict(self, tiles: Any) -> Prediction:
        return Prediction(self.cycles, None, None)  # type: ignore[arg-type]


def test_cycles_of_a_cost_model_count(tmp_path: Path) -> None:
    """Two convolutions of 6,912 and 9,216 multiply-accumulates, and borders of 256 elements."""
    module, accelerator = module_of(residual(tmp_path)), npu(tmp_path, "NHWC")
    accelerator.tiling = Planner(6000)  # type: ignore[assignment]
    assert len(report(module, accelerator).offloaded) == 3  # with the pool
    accelerator.tiling = Planner(9100)  # type: ignore[assignment]
    found = report(module, accelerator)
    assert not found.offloaded
    assert [row.reason.partition("; ")[2] for row in found.placements if row.macs] == [
        "NHWC does not pay: it has 6,912 MACs, 9,100 cycles for them, and up to 448 elements to "
        "transpose",
        "NHWC does not pay: it has 9,216 MACs, 9,100 cycles for them, and up to 512 elements to "
        "transpose",
    ]


def test_a_region_goes_on_where_that_moves_less() -> None:
    """The border is behind the pool, which is on the CPU in both layouts, and not before it."""

    def build(b: Any, x: Any) -> Any:
        image = convolution(b, x, 16)
        return relax.op.nn.max_pool2d(image, (2, 2), (2, 2), layout="NHWC")

    found = report(network(build, (1, 8, 8, 3)), vanilla())
    assert transposes(found)[1] == ("permute_dims", "gv", "to NHWC, 1,024 B")


def quantized(layout: str, rounding: str) -> Any:
    """A chain of layers; between images and the fully connected layer is a reshape."""
    made = QuantizedNetwork(8, 8, 3, layout=layout, rounding=rounding)
    made.conv2d(12).conv2d(12, depthwise=True, stride=2).conv2d(16, kernel=1).dense(10)
    return made.model().module


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_a_network_that_fits_is_untouched(layout: str, tmp_path: Path) -> None:
    module = quantized(layout, "ort")
    accelerator = npu(tmp_path, layout)
    plain, found = (partition(module, [accelerator], keep_layout=keep) for keep in (True, False))
    assert tvm_api.tvm_ffi.structural_equal(plain.module, found.module)
    assert plain.report == found.report


def test_twins_offload_the_same_multiply_accumulates(tmp_path: Path) -> None:
    accelerators = npu(tmp_path, "NHWC"), npu(tmp_path, "NCHW")
    for rounding in ("ort", "tflm"):
        twins = [quantized(layout, rounding) for layout in ("NHWC", "NCHW")]
        taken = {report(m, a).offloaded_macs for m in twins for a in accelerators}
        assert len(taken) == 1 and taken != {0}


def resnet8(folder: Path) -> Path:
    """The layers of MLPerf Tiny's ResNet-8 in ONNX, with other weights."""
    made = RandomNetwork(8, 0)
    zero = made.qdq.zero_point()
    image = Value(made.qdq.input((1, 3, 32, 32), SCALE, zero), (1, 3, 32, 32), SCALE, zero)
    x = made.windowed(image, 16, 3, 1)
    for channels, stride in ((16, 1), (32, 2), (64, 2)):
        inner = made.windowed(made.windowed(x, channels, 3, stride), channels, 3, 1)
        other = x if stride == 1 else made.windowed(x, channels, 1, stride)
        total = made.qdq.node("Add", inner.name, other.name)
        x = made.quantized(total, inner.shape, 2 * SCALE)
    pooled = made.pooled(x)
    flat = made.moved(made.qdq.node("Flatten", pooled.name), (1, 64), pooled)
    weights, deviation = made.qdq.weights((10, 64), "int8", per_channel=False)
    bias = made.qdq.bias(10, np.float32(flat.scale) * deviation)
    scores = made.qdq.node("Gemm", flat.name, weights, bias, transB=1)
    made.outputs = [made.quantized(scores, (1, 10))]
    return save(made.model(), folder)


def test_twins_of_resnet8_offload_the_same_multiply_accumulates(tmp_path: Path) -> None:
    dense = patterns.qdense(rounding=("ort", "tflm"))
    accelerators = [
        npu(tmp_path, "NHWC", dense),
        npu(tmp_path, "NCHW", dense),
        umakit.find_backend("strawberry_accelerator"),
    ]
    for path in (trained_model("pretrainedResnet_quant.tflite"), resnet8(tmp_path)):
        module = module_of(path)
        assert [report(module, one).offloaded_macs for one in accelerators] == [12_501_632] * 3


# --- What stays that of the model -----------------------------------------------------------------


def test_layers_are_compared_in_the_layout_of_the_model(tmp_path: Path) -> None:
    path, accelerator = residual(tmp_path), npu(tmp_path, "NHWC")
    result = diff_model(path, [accelerator], most=1)
    assert result.agrees
    assert [layer.shape for layer in result.layers if layer.own is None] == []
    shapes = {row.name: row.shape for row in report(module_of(path)).placements}
    assert {layer.shape for layer in result.layers} <= {*shapes.values(), (1, 3, 8, 8)}


def test_a_mean_over_images_moves_its_border_to_the_channels(tmp_path: Path) -> None:
    path, accelerator = residual(tmp_path, mean=True), npu(tmp_path, "NHWC")
    found = report(module_of(path), accelerator)
    assert [row.operator for row in found.placements[-3:]] == [
        "quantized.mean", "reshape", "dequantize",
    ]  # fmt: skip
    result = diff_model(path, [accelerator], reference="cpu", most=1)
    assert result.agrees and all(layer.own is not None for layer in result.layers)


def test_a_library_is_compared_as_it_was_written(tmp_path: Path) -> None:
    path, accelerator = residual(tmp_path), npu(tmp_path, "NHWC")
    library = compile_model(path, [accelerator], tmp_path / "library")
    result = diff_model(path, [], library=library.path, most=1)
    assert result.agrees and all(layer.own is not None for layer in result.layers)


def test_an_option_keeps_the_layout(tmp_path: Path) -> None:
    path, accelerator = residual(tmp_path), npu(tmp_path, "NHWC")
    options = ExportOptions(keep_layout=True)
    library = compile_model(path, [accelerator], tmp_path / "library", options=options)
    assert library.report.offloaded == ()


def test_vanilla_takes_convolutions_of_a_tensorflow_lite_network() -> None:
    (row, *rest) = report(module_of(trained_model("pretrainedResnet.tflite")), vanilla()).offloaded
    assert (row.name, len(rest)) == ("model/activation/Relu", 4)
    assert sum(each.macs for each in (row, *rest)) == 442_368 + 4 * 2_359_296


# --- What patterns say ----------------------------------------------------------------------------


def test_a_layout_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    accelerator = Npu(tmp_path, [])
    with pytest.raises(BackendError, match="layout 'CHW' is unknown; say NHWC or NCHW"):
        accelerator._register_pattern("a", tvm_api.wildcard(), layouts="CHW")


def of_own(folder: Path, predicate: Any, *, operator: str = "nn.conv2d", **given: Any) -> Npu:
    """An accelerator with a pattern of its own."""
    accelerator = Npu(folder, [])
    convolutions = tvm_api.is_op(f"relax.{operator}")(tvm_api.wildcard(), tvm_api.wildcard())
    accelerator._register_pattern("convolution", convolutions, predicate, **given)
    return accelerator


def test_patterns_of_ones_own_say_their_layout(tmp_path: Path) -> None:
    def takes(context: Any) -> bool:
        return str(context.matched_expr.attrs.data_layout) == "NCHW"

    module = network(lambda b, x: convolution(b, x, 8), (1, 6, 5, 4))
    assert not report(module, of_own(tmp_path, takes)).offloaded
    (row,) = report(module, of_own(tmp_path, takes, layouts="NCHW")).offloaded
    assert row.axes == (0, 3, 1, 2)


def test_a_predicate_that_fails_in_the_other_layout_keeps_the_network(tmp_path: Path) -> None:
    def takes(context: Any) -> bool:
        assert str(context.matched_expr.attrs.data_layout) == "NHWC"
        return False

    module = network(lambda b, x: convolution(b, x, 8), (1, 6, 5, 4))
    (row,) = report(module, of_own(tmp_path, takes, layouts="NCHW")).placements
    assert row.where == "cpu"


# --- The choice -----------------------------------------------------------------------------------


@settings(examples(60), max_examples=60)
@given(st.data())
def test_no_other_choice_costs_less(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 6))
    small = st.integers(0, 9)
    single = [(data.draw(small), data.draw(small)) for _ in range(count)]
    groups = data.draw(
        st.lists(
            st.tuples(st.sets(st.integers(0, count - 1), min_size=1), small, st.booleans()),
            max_size=6,
        )
    )
    sides = Sides()
    for item, (taken, left) in enumerate(single):
        sides.cost(item, taken=taken, left=left)
    for members, cost, left in groups:
        sides.together(sorted(members), cost, left=left)

    def total(chosen: set[int]) -> int:
        alone = sum(taken if item in chosen else left for item, (taken, left) in enumerate(single))
        split = [
            cost
            for members, cost, left in groups
            if members & chosen and (left or not members <= chosen)
        ]
        return alone + sum(split)

    found = {int(str(item)) for item in sides.taken()}
    every = [
        set(some) for n in range(count + 1) for some in itertools.combinations(range(count), n)
    ]
    best = min(map(total, every))
    assert total(found) == best
    assert len(found) == min(len(some) for some in every if total(some) == best)
