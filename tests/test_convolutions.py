# SPDX-License-Identifier: Apache-2.0
"""Single convolutions: which ones the Vanilla accelerator takes, and that all of them are right."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from execution import DRIVER, VANILLA, execute, vanilla
from networks import Array, Graph, assert_close, convolve, normal, same_pads, save
from onnx import numpy_helper

import umakit
from umakit.errors import LoweringError, UmakitError
from umakit.partition.partitioner import partition
from umakit.partition.report import OperatorPlacement
from umakit.testing.harness import AOTModel, compile_and_run, conv2d_model
from umakit.tvm_api import IRModule, relax, tirx


def relax_convolution(ifmap: Any, weights: Array, **attributes: Any) -> IRModule:
    """A Relax module of one convolution; `ifmap` is an array or a shape."""
    shape = ifmap.shape if isinstance(ifmap, np.ndarray) else ifmap
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, str(weights.dtype)))
    with builder.function("main", [x]):
        with builder.dataflow():
            convolution = relax.op.nn.conv2d(
                x, relax.const(weights, str(weights.dtype)), **attributes
            )
            result = builder.emit_output(convolution, "conv")
        builder.emit_func_output(result)
    return builder.get()


def run_relax(
    module: IRModule, ifmap: Array, expected: Array, tolerance: float = 1e-5
) -> OperatorPlacement:
    """Run a convolution, compare its result, and return its row of the report."""
    model = AOTModel(
        module, {"x": ifmap}, {"output": expected}, tolerance * float(np.abs(expected).max())
    )
    (row,) = compile_and_run(model, vanilla()).offload.placements
    return row


# --- What the accelerator computes ----------------------------------------------------------------


@pytest.mark.parametrize("interface", ["c", "unpacked"])
@pytest.mark.parametrize(
    ("channels", "height", "width", "filters", "kernel"),
    [
        # The shapes of UMA v1's lowering and Vanilla tests.
        (3, 224, 224, 4, 3),
        (3, 224, 224, 4, 5),
        (3, 224, 224, 4, 7),
        (3, 224, 320, 4, 7),
        (32, 14, 14, 32, 3),
        # The smallest, channels without a spatial extent, and a kernel larger than the image.
        (1, 1, 1, 1, 1),
        (16, 9, 7, 24, 1),
        (5, 3, 2, 3, 7),
    ],
)
def test_same_padded_convolution_runs_on_the_accelerator(
    channels: int, height: int, width: int, filters: int, kernel: int, interface: str
) -> None:
    model = conv2d_model(
        channels=channels, height=height, width=width, filters=filters, kernel=kernel
    )
    ifmap = model.inputs["x"]
    (weights,) = [c.value.numpy() for c in constants(model.module)]
    expected = convolve(ifmap, weights, same_pads(kernel, kernel)).astype("float32")
    scaled = AOTModel(
        model.module, model.inputs, {"output": expected}, 1e-5 * float(np.abs(expected).max())
    )
    report = compile_and_run(scaled, vanilla(), interface_api=interface)
    assert [row.where for row in report.offload.placements] == [VANILLA]


def constants(module: IRModule) -> list[Any]:
    """The constants among the arguments of the calls of `main`."""
    bindings = [b for block in module["main"].body.blocks for b in block.bindings]
    arguments = [a for b in bindings for a in getattr(b.value, "args", [])]
    return [argument for argument in arguments if hasattr(argument, "value")]


@pytest.mark.parametrize(
    "kernel", [(2, 2), (4, 4), (1, 3), (3, 1), (2, 5), (4, 1)], ids=lambda k: f"{k[0]}x{k[1]}"
)
def test_even_and_oblong_kernels_padded_after_the_image_run_on_the_accelerator(
    kernel: tuple[int, int],
) -> None:
    ifmap, weights = normal(1, 3, 6, 9), normal(4, 3, *kernel, seed=1)
    pads = same_pads(*kernel)
    expected = convolve(ifmap, weights, pads).astype("float32")
    row = run_relax(relax_convolution(ifmap, weights, padding=pads), ifmap, expected)
    assert row.where == VANILLA


@pytest.mark.parametrize("kernel", [1, 2, 3, 4])
@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
def test_automatic_padding_is_right_and_refused_only_where_it_pads_more_before(
    mode: str, kernel: int, tmp_path: Path
) -> None:
    graph = Graph()
    x = graph.input("x", 1, 3, 6, 9)
    graph.output(graph.conv(x, 4, kernel, auto_pad=mode, name="conv"))
    model = graph.model()
    ifmap = normal(1, 3, 6, 9)
    weights = np.frombuffer(model.graph.initializer[0].raw_data, "float32")
    pads = same_pads(kernel, kernel, lower=mode == "SAME_LOWER")
    expected = convolve(ifmap, weights.reshape(4, 3, kernel, kernel), pads).astype("float32")
    execution = execute(model, tmp_path, {"x": ifmap}, {"conv": expected})
    if mode == "SAME_LOWER" and kernel % 2 == 0:
        needed = list(same_pads(kernel, kernel))
        assert execution.reason("conv") == (
            f"padding {list(pads)}: same padding of {kernel}x{kernel} is {needed}"
        )
    else:
        assert execution.offloaded == ["conv"]


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_automatic_padding_follows_strides(mode: str, tmp_path: Path) -> None:
    graph = Graph()
    x = graph.input("x", 1, 3, 8, 11)
    graph.output(graph.conv(x, 4, (2, 3), auto_pad=mode, strides=[2, 3], name="conv"))
    assert execute(graph.model(), tmp_path).offloaded == []


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
def test_automatic_padding_follows_dilations(mode: str, tmp_path: Path) -> None:
    graph = Graph()
    ifmap, weights = normal(1, 3, 8, 11), normal(4, 3, 2, 2)
    x = graph.input("x", *ifmap.shape)
    steps = {"auto_pad": mode, "dilations": [3, 2]}
    graph.output(graph.node("Conv", x, graph.constant(weights), name="conv", **steps))
    # ONNX Runtime refuses this; a dilated kernel is a larger one with zeros in it.
    dilated = np.zeros((4, 3, 4, 3), "float32")
    dilated[:, :, ::3, ::2] = weights
    pads = same_pads(4, 3, lower=mode == "SAME_LOWER")
    expected = convolve(ifmap, dilated, pads).astype("float32")
    execute(graph.model(), tmp_path, {"x": ifmap}, {"conv": expected})


def test_bias_is_added_on_the_cpu(tmp_path: Path) -> None:
    graph = Graph()
    graph.output(graph.conv(graph.input("x", 1, 3, 6, 9), 4, bias=True, name="conv"))
    execution = execute(graph.model(), tmp_path)
    assert [(row.operator, row.where) for row in execution.placements] == [
        ("nn.conv2d", VANILLA),
        ("add", "cpu"),
    ]


# --- What it refuses, and why ---------------------------------------------------------------------

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "stride": ({"strides": [2, 2]}, "stride 2x2: the array steps by 1x1"),
    "stride of columns": ({"strides": [1, 2]}, "stride 1x2: the array steps by 1x1"),
    "no padding": (
        {"pads": [0, 0, 0, 0]},
        "padding [0, 0, 0, 0]: same padding of 3x3 is [1, 1, 1, 1]",
    ),
    "uneven padding": (
        {"pads": [2, 1, 0, 1]},
        "padding [2, 1, 0, 1]: same padding of 3x3 is [1, 1, 1, 1]",
    ),
    "groups": ({"group": 2}, "groups=2: the array has no grouped or depthwise mode"),
    "depthwise": ({"group": 0}, "groups=4: the array has no grouped or depthwise mode"),
    "dilation": (
        {"dilations": [2, 2], "pads": [2, 2, 2, 2]},
        "dilation 2x2: the array has no dilation",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_convolution_is_right_on_the_cpu_and_says_why(case: str, tmp_path: Path) -> None:
    attributes, reason = REFUSED[case]
    graph = Graph()
    x = graph.input("x", 1, 4, 7, 10)
    graph.output(graph.conv(x, 8, name="conv", **attributes))
    execution = execute(graph.model(), tmp_path)
    assert execution.offloaded == []
    assert execution.reason("conv") == reason
    assert DRIVER not in execution.model_source


@pytest.mark.parametrize("case", REFUSED)
def test_a_predicate_that_lets_too_much_through_is_an_error_not_a_wrong_result(
    case: str, tmp_path: Path
) -> None:
    graph = Graph()
    x = graph.input("x", 1, 4, 7, 10)
    graph.output(graph.conv(x, 8, name="conv", **REFUSED[case][0]))
    careless = umakit.find_backend(VANILLA)
    careless.patterns = [replace(pattern, predicate=None) for pattern in careless.patterns]
    with pytest.raises(LoweringError, match="not the convolution that the array computes"):
        umakit.compile_model(save(graph.model(), tmp_path), [careless], tmp_path / "library")


def test_batch_of_two_is_refused(tmp_path: Path) -> None:
    graph = Graph()
    graph.output(graph.conv(graph.input("x", 2, 3, 6, 9), 4, name="conv"))
    execution = execute(graph.model(), tmp_path)
    assert execution.reason("conv") == "batch 2: the array computes one image at a time"


def test_float64_is_refused_and_computed_in_float64_on_the_cpu() -> None:
    ifmap, weights = normal(1, 3, 6, 9, dtype="float64"), normal(4, 3, 3, 3, dtype="float64")
    module = relax_convolution(ifmap, weights, padding=(1, 1, 1, 1))
    expected = convolve(ifmap, weights, (1, 1, 1, 1))
    row = run_relax(module, ifmap, expected, tolerance=1e-14)
    assert (row.where, row.dtype) == ("cpu", "float64")
    assert row.reason == "dtype float64 x float64: the array computes float32"


def test_float16_is_refused_by_the_accelerator_and_named_by_the_c_printer() -> None:
    ifmap, weights = normal(1, 3, 6, 9, dtype="float16"), normal(4, 3, 3, 3, dtype="float16")
    module = relax_convolution(ifmap, weights, padding=(1, 1, 1, 1))
    (row,) = partition(module, [vanilla()]).report.placements
    assert row.reason == "dtype float16 x float16: the array computes float32"
    with pytest.raises(UmakitError, match="float16, which C99 has no type for"):
        compile_and_run(AOTModel(module, {"x": ifmap}), vanilla())


@pytest.mark.parametrize(
    ("data", "kernel", "reason"),
    [
        ("NHWC", "HWIO", "layout NHWC/HWIO: the driver reads NCHW/OIHW"),
        ("NHWC", "OHWI", "layout NHWC/OHWI: the driver reads NCHW/OIHW"),
    ],
)
def test_other_layouts_are_refused_as_they_are_and_right_when_transposed(
    data: str, kernel: str, reason: str
) -> None:
    ifmap, weights = normal(1, 3, 6, 9), normal(4, 3, 3, 2, seed=1)
    pads = same_pads(3, 2)
    expected = convolve(ifmap, weights, pads).astype("float32")
    order = ["OIHW".index(axis) for axis in kernel]
    module = relax_convolution(
        np.moveaxis(ifmap, 1, 3),
        np.ascontiguousarray(weights.transpose(order)),
        padding=pads,
        data_layout=data,
        kernel_layout=kernel,
    )
    (row,) = partition(module, [vanilla()], keep_layout=True).report.placements
    assert (row.where, row.reason) == ("cpu", reason)
    model = AOTModel(
        module, {"x": np.moveaxis(ifmap, 1, 3)}, {"output": np.moveaxis(expected, 1, 3)}, 1e-4
    )
    (row,) = compile_and_run(model, vanilla()).offload.offloaded
    assert row.axes == (0, 3, 1, 2)


def test_symbolic_shape_is_refused() -> None:
    height, width = tirx.Var("h", "int64"), tirx.Var("w", "int64")
    module = relax_convolution((1, 3, height, width), normal(4, 3, 3, 3), padding=(1, 1, 1, 1))
    (row,) = partition(module, [vanilla()]).report.placements
    assert row.where == "cpu"
    assert row.reason == "a symbolic shape: the driver needs every size at compile time"


def test_weights_that_are_an_input_run_on_the_accelerator(tmp_path: Path) -> None:
    graph = Graph()
    x, weights = graph.input("x", 1, 3, 6, 9), graph.input("weights", 4, 3, 3, 3)
    graph.output(graph.node("Conv", x, weights, pads=[1, 1, 1, 1], name="conv"))
    assert execute(graph.model(), tmp_path).offloaded == ["conv"]


def test_weights_of_a_constant_node_run_on_the_accelerator(tmp_path: Path) -> None:
    graph = Graph()
    values = numpy_helper.from_array(normal(4, 3, 3, 3))
    x, weights = graph.input("x", 1, 3, 6, 9), graph.node("Constant", value=values)
    graph.output(graph.node("Conv", x, weights, auto_pad="SAME_UPPER", name="conv"))
    assert execute(graph.model(), tmp_path).offloaded == ["conv"]


def test_weights_that_are_computed_from_constants_run_on_the_accelerator(tmp_path: Path) -> None:
    graph = Graph()
    x, weights = graph.input("x", 1, 3, 6, 9), graph.random(3, 3, 3, 4)
    moved = graph.node("Transpose", weights, perm=[3, 2, 0, 1])
    graph.output(graph.node("Conv", x, moved, pads=[1, 1, 1, 1], name="conv"))
    execution = execute(graph.model(), tmp_path)
    assert [layer.name for layer in execution.result.layers] == ["conv"]
    assert execution.offloaded == ["conv"]


def test_three_dimensional_data_is_no_business_of_the_accelerator(tmp_path: Path) -> None:
    graph = Graph()
    x, weights = graph.input("x", 1, 3, 12), graph.random(4, 3, 3)
    graph.output(graph.node("Conv", x, weights, pads=[1, 1], name="conv"))
    execution = execute(graph.model(), tmp_path)
    assert execution.reason("conv") == "no pattern covers nn.conv1d"


# --- What the device counts -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("channels", "height", "width", "filters", "kernel", "macs", "cycles"),
    [
        # ceil(H*W/8) * ceil(filters/8) folds of 8 + 8 + channels*kernel^2 - 2 cycles.
        (1, 1, 1, 1, 1, 1, 15),
        (3, 5, 7, 9, 3, 8_505, 5 * 2 * 41),
        (32, 14, 14, 32, 3, 1_806_336, 25 * 4 * 302),
    ],
)
def test_device_counts_multiply_accumulates_and_cycles(
    channels: int,
    height: int,
    width: int,
    filters: int,
    kernel: int,
    macs: int,
    cycles: int,
    tmp_path: Path,
) -> None:
    graph = Graph()
    x = graph.input("x", 1, channels, height, width)
    graph.output(graph.conv(x, filters, kernel, name="conv"))
    (layer,) = execute(graph.model(), tmp_path).result.layers
    assert (layer.macs, layer.device_macs, layer.cycles) == (macs, macs, cycles)


def test_cycles_follow_the_array_of_accel_toml(tmp_path: Path) -> None:
    folder = shutil.copytree(vanilla().folder, tmp_path / VANILLA)
    facts = folder / "accel.toml"
    text = facts.read_text(encoding="utf-8")
    text = re.sub(r"^rows = \d+", "rows = 4", text, flags=re.MULTILINE)
    text = re.sub(r"^columns = \d+", "columns = 16", text, flags=re.MULTILINE)
    facts.write_text(text, encoding="utf-8")
    model = conv2d_model(channels=3, height=5, width=7, filters=9, kernel=3)
    library = umakit.compile_model(
        model.module, [umakit.find_backend(folder)], tmp_path / "library"
    )
    (layer,) = umakit.run_library(library.path, model.inputs, profile=True).layers
    assert layer.cycles == 9 * 1 * (4 + 16 + 27 - 2)


# --- Generated C ----------------------------------------------------------------------------------


def test_layers_of_equal_shape_share_one_kernel_and_call_it_once_each(tmp_path: Path) -> None:
    graph = Graph()
    x = graph.input("x", 1, 4, 6, 9)
    for number in range(3):
        x = graph.node("Relu", graph.conv(x, 4, name=f"conv{number}"))
    graph.output(x)
    execution = execute(graph.model(), tmp_path)
    functions = {
        layer["function"]
        for layer in execution.library.metadata["umakit"]["layers"]
        if layer["where"] == VANILLA
    }
    assert len(functions) == 1
    source = execution.model_source
    assert source.count(f"{DRIVER}(") == 1
    assert source.count(f"{functions.pop()}(") == 1 + 3  # definition and calls
    assert execution.accelerator_layers == 3


def test_report_lists_every_one_of_several_equal_layers_as_offloaded(tmp_path: Path) -> None:
    graph = Graph()
    x = graph.input("x", 1, 4, 6, 9)
    for number in range(3):
        x = graph.conv(x, 4, name=f"conv{number}")
    graph.output(x)
    execution = execute(graph.model(), tmp_path)
    names = ["conv0", "conv1", "conv2"]
    assert execution.offloaded == names
    assert [layer.name for layer in execution.result.layers] == names


def test_equal_weights_are_stored_once(tmp_path: Path) -> None:
    graph = Graph()
    x, weights = graph.input("x", 1, 3, 6, 9), normal(4, 3, 3, 3)
    for name in ("left", "right"):
        graph.output(graph.node("Conv", x, graph.constant(weights), pads=[1] * 4, name=name))
    memory = execute(graph.model(), tmp_path).library.metadata["umakit"]["memory"]
    assert memory["constants_bytes"] == weights.nbytes


def test_layers_of_different_shape_have_kernels_of_their_own(tmp_path: Path) -> None:
    graph = Graph()
    x = graph.input("x", 1, 4, 6, 9)
    graph.output(graph.conv(graph.conv(x, 4, 3), 4, 5))
    assert execute(graph.model(), tmp_path).model_source.count(f"{DRIVER}(") == 2


def test_result_is_the_same_in_every_run() -> None:
    model = conv2d_model(channels=3, height=9, width=7, filters=5, kernel=3)
    first, second = (compile_and_run(model, vanilla()).outputs["output"] for _ in range(2))
    assert_close(first, second, tolerance=0)
