# SPDX-License-Identifier: Apache-2.0
"""Patterns that are made of an operator's interface: loops and a driver in C, next to the oracles.

The networks have one operator of each kind; a driver in `operators_driver.c` computes what it
knows by the arguments that it is handed, and the composite's own loops the rest.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from integer_backend import (
    CONFIGURATION,
    Array,
    Npu,
    common,
    compiled,
    conv,
    dense,
    header_of,
    integers,
    network,
    reason,
    relax,
    rescale,
    results,
)  # fmt: skip
from qdq import Qdq, runtime
from test_tflite_lstm import layer as lstm
from test_tflite_svdf import layer as svdf
from tflite_cases import Case, Tensor, file_of, of, oracle
from tflite_networks import TfliteFile

from umakit import PassPhase, UMABackend, compile_model, patterns, run_library
from umakit.errors import BackendError
from umakit.operators import registry
from umakit.operators.argmax import ArgMax
from umakit.operators.mean import Mean
from umakit.operators.offload.generated import operand_names

ROOT = Path(__file__).parents[1]
DRIVEN = (
    "qsoftmax", "qlookup", "qmean", "qsum", "qglobal_avg_pool", "qargmax", "qrequantize",
    "qbatch_matmul", "qresize_bilinear", "qconv2d_transpose", "qpad", "qconcatenation",
)  # fmt: skip
"""Patterns whose driver is in C with the pattern's own arguments."""

PAIRS = ("qfloat32_sum", "qfloat32_product")
INTERFACES = sorted(each.name for each in registry.operators() if each.interface is not None)
LAYOUTS: dict[str, dict[str, Any]] = {
    name: {"layouts": "NCHW"} for name in ("mean_pool2d", "dilated_max_pool2d")
}


def all_patterns() -> list[Any]:
    """The patterns of all operators that are generated, of any dtypes and rounding."""
    made = [
        getattr(patterns, f"q{name}")(dtypes=None, rounding=None, **LAYOUTS.get(name, {}))
        for name in INTERFACES
    ]
    channels_first: dict[str, Any] = {"rounding": "ort", "layouts": "NCHW"}
    return [
        *made,
        patterns.qconv2d_transpose(),
        patterns.qconv2d_transpose("transposed_nchw", weight_layout="HWIO", **channels_first),
        patterns.qconcatenation(operands=3),
    ]


class OwnPatterns(Npu):
    """A backend of TVM's patterns for all operators, that computes by the composites' loops."""

    def __init__(self, folder: Path) -> None:
        names = {each.name: operand_names(each.name) for each in registry.operators()}
        wildcard = patterns.wildcard
        own = [
            (name, patterns.is_op(f"relax.quantized.{name}")(*[wildcard() for _ in operands]))
            for name, operands in names.items()
            if operands is not None and name != "conv2d_add"
        ]
        super().__init__(folder, own)


class AllOperators(UMABackend):
    """A backend of all patterns that are made, with the driver or without."""

    def __init__(self, folder: Path, drivers: Sequence[str] = ()) -> None:
        self._folder, self._drivers = folder / "all_npu", drivers
        super().__init__()
        for pattern in all_patterns():
            # The driver is written for int8.
            kept = replace(pattern, dtypes="int8") if pattern.name in drivers else pattern
            self._register_pattern(*kept)
        if drivers:
            calls = patterns.driver_calls(**{name: f"all_{name}" for name in drivers})
            self._register_tir_pass(PassPhase.TIR_PHASE_0, calls)
            self._register_codegen(includes=lambda: '#include "operators_driver.h"')
            self._register_driver(["operators_driver.c"], ["operators_driver.h"])

    @property
    def target_name(self) -> str:
        return "all_npu"

    @property
    def folder(self) -> Path:
        if not self._folder.exists():
            self._folder.mkdir(parents=True)
            (self._folder / "accel.toml").write_text(CONFIGURATION.format(name="all_npu"))
            text = (ROOT / "tests" / "operators_driver.c").read_text(encoding="utf-8")
            (self._folder / "operators_driver.c").write_text(text)
            given = {"qconcatenation": patterns.qconcatenation(operands=3)}
            declared = {
                f"all_{name}": given.get(name) or getattr(patterns, name)()
                for name in sorted(set(re.findall(r"^int32_t all_(\w+)\(", text, re.MULTILINE)))
            }
            (self._folder / "operators_driver.h").write_text(header_of(declared))
        return self._folder


# --- TensorFlow Lite -----------------------------------------------------------------------------


def tensor(*shape: int, dtype: str = "int8", scale: float = 0.07, zero: int = 3) -> Tensor:
    return Tensor(shape, dtype, scale, 0 if dtype == "int16" else zero)


def constant(array: Array, scale: float = 0.02, zero: int = 0) -> Tensor:
    return of(array, str(array.dtype), scale, zero)


random = np.random.default_rng(11)
x = tensor
CASES = {
    "softmax": Case("SOFTMAX", [x(3, 17)], [x(3, 17, scale=1 / 256, zero=-128)],
                    "SoftmaxOptions", {"Beta": 1.0}),
    "lookup": Case("LOGISTIC", [x(4, 50)], [x(4, 50, scale=1 / 256, zero=-128)]),
    "lookup of hard swish": Case("HARD_SWISH", [x(4, 50)], [x(4, 50, scale=0.05)]),
    "mean": Case("MEAN", [x(2, 3, 4, 5), of([1, 2])], [x(2, 5, scale=0.05)], "ReducerOptions"),
    "sum": Case("SUM", [x(2, 6), of([1])], [x(2, scale=0.2)], "ReducerOptions"),
    "argmax": Case("ARG_MAX", [x(3, 9), of([1])], [Tensor((3,), "int32")], "ArgMaxOptions",
                   {"OutputType": 2}),
    "argmin": Case("ARG_MIN", [x(3, 9), of([0])], [Tensor((9,), "int32")], "ArgMinOptions",
                   {"OutputType": 2}),
    "requantize": Case("QUANTIZE", [x(4, 30)], [x(4, 30, scale=0.11, zero=-9)],
                       "QuantizeOptions"),
    "quantize": Case("QUANTIZE", [Tensor((4, 30))], [x(4, 30)], "QuantizeOptions"),
    "batch_matmul": Case("BATCH_MATMUL", [x(2, 3, 4), x(2, 4, 5, zero=-7)], [x(2, 3, 5, scale=0.3)],
                         "BatchMatMulOptions"),
    "batch_matmul of transposed": Case(
        "BATCH_MATMUL", [x(2, 4, 3), x(1, 5, 4, zero=-7)], [x(2, 3, 5, scale=0.3)],
        "BatchMatMulOptions", {"AdjX": True, "AdjY": True},
    ),
    "resize_bilinear": Case("RESIZE_BILINEAR", [x(1, 4, 5, 3), of([7, 9])], [x(1, 7, 9, 3)],
                            "ResizeBilinearOptions", {"HalfPixelCenters": True}),
    "resize_bilinear to corners": Case(
        "RESIZE_BILINEAR", [x(1, 4, 5, 3), of([9, 7])], [x(1, 9, 7, 3)],
        "ResizeBilinearOptions", {"AlignCorners": True},
    ),
    "conv2d_transpose": Case(
        "TRANSPOSE_CONV",
        [of([1, 9, 8, 6]), constant(random.integers(-127, 128, (6, 3, 2, 5)).astype(np.int8)),
         x(1, 4, 4, 5), constant(random.integers(-999, 999, 6).astype(np.int32), 0.07 * 0.02)],
        [x(1, 9, 8, 6, scale=0.4)], "TransposeConvOptions",
        {"Padding": 1, "StrideH": 2, "StrideW": 2},
    ),
    "prelu": Case("PRELU", [x(1, 3, 4, 5), constant(integers(1, 1, 5), 0.01, 4)],
                  [x(1, 3, 4, 5, scale=0.06)]),
    "leaky_relu": Case("LEAKY_RELU", [x(4, 40, dtype="int16", scale=0.001)],
                       [x(4, 40, dtype="int16", scale=0.002)], "LeakyReluOptions",
                       {"Alpha": 0.2}),
    "squared_difference": Case("SQUARED_DIFFERENCE", [x(3, 5), x(3, 5, zero=-5)],
                               [x(3, 5, scale=0.9)]),
    "divide": Case("DIV", [x(3, 5, scale=9.0), replace(x(3, 5), values=np.full(
        (5, 3, 5), 77, np.int8))], [x(3, 5)], "DivOptions"),
    "l2_normalization": Case("L2_NORMALIZATION", [x(3, 7)], [x(3, 7, scale=1 / 128, zero=0)],
                             "L2NormOptions"),
    "log_softmax": Case("LOG_SOFTMAX", [x(3, 7)], [x(3, 7, scale=1 / 16, zero=127)],
                        "LogSoftmaxOptions"),
    "nn.pad": Case("PAD", [x(2, 3, 5), of([[1, 0], [0, 2], [3, 1]])], [x(3, 5, 9)]),
    "concat": Case("CONCATENATION", [x(2, 3, 5), x(2, 1, 5), x(2, 4, 5)], [x(2, 8, 5)],
                   "ConcatenationOptions", {"Axis": 1}),
    "softmax_lookup": Case("SOFTMAX", [x(3, 17, dtype="int16", scale=0.001)],
                           [x(3, 17, dtype="int16", scale=1 / 32768)], "SoftmaxOptions",
                           {"Beta": 1.0}),
    "sigmoid_lookup": Case("TANH", [x(4, 60, dtype="int16", scale=1 / 8192)],
                           [x(4, 60, dtype="int16", scale=1 / 32768)]),
}  # fmt: skip


def offloaded_names(library: Any) -> set[str]:
    found = {row.operator.removeprefix("quantized.") for row in library.report.offloaded}
    cpu = {row.operator: row.reason for row in library.report.placements if row.where == "cpu"}
    assert not any(name.startswith("quantized.") for name in cpu), cpu
    return found


@pytest.fixture(scope="module")
def of_tflite() -> tuple[bytes, dict[str, Array], dict[str, Array]]:
    """A file of all cases, its inputs, and what TensorFlow Lite Micro makes of them."""
    content, tensors, outputs = file_of(list(CASES.values()))
    given = np.random.default_rng(4)
    inputs = {
        name: each.drawn(given) if each.values is None else each.values
        for name, each in tensors.items()
    }
    return content, inputs, oracle(content, inputs, outputs)


@pytest.mark.parametrize("how", ["loops", "driver", "own patterns"])
def test_operators_equal_tensorflow_lite_micro(how: str, of_tflite: Any, tmp_path: Path) -> None:
    content, inputs, wanted = of_tflite
    path = tmp_path / "cases.tflite"
    path.write_bytes(content)
    drivers = (*DRIVEN, "qprelu") if how == "driver" else ()
    npu = OwnPatterns(tmp_path) if how == "own patterns" else AllOperators(tmp_path, drivers)
    library = compile_model(path, [npu], tmp_path / "library")
    names = offloaded_names(library)
    wanted_names = {name.partition(" of ")[0].partition(" to ")[0] for name in CASES}
    assert names == wanted_names - ({"nn.pad", "concat"} if how == "own patterns" else set())
    found = run_library(library.path, inputs).outputs
    for (name, expected), case in zip(wanted.items(), CASES, strict=True):
        np.testing.assert_array_equal(found[name], expected, case)
        assert len(np.unique(expected)) > 2, case
    source = (library.path / "codegen/host/src/tvmgen_cases.c").read_text(encoding="utf-8")
    called = {name for name in drivers if f" all_{name}(" in source}
    assert called == set(drivers) - {"qglobal_avg_pool"}


# --- ONNX ----------------------------------------------------------------------------------------


def onnx_network() -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Operators of quantized ONNX files, one output for each, and inputs."""
    graph = Qdq("int8", 5, opset=21)
    a, b = graph.input([1, 6, 8, 7], 0.03), graph.input([1, 6, 8, 7], 0.05)
    wide = graph.input([2, 300], 0.0001, 0, "int16")
    weights, scales = graph.weights([6, 4, 3, 3], "int8", per_channel=False)
    spread = graph.node("ConvTranspose", a, weights, strides=[2, 1], pads=[1, 0, 1, 1])
    ends = [
        graph.quantize(spread, float(scales[0]) * 4),
        graph.quantize(graph.node("Add", a, b), 0.09),
        graph.quantize(graph.node("Sub", a, b), 0.11),
        graph.quantize(graph.node("Mul", a, b), 0.2),
        graph.quantize(graph.node("GlobalAveragePool", a), 0.004),
        graph.quantize(graph.node("AveragePool", b, kernel_shape=[3, 2], pads=[1, 0, 1, 1]), 0.06),
        graph.quantize(
            graph.node("MaxPool", a, kernel_shape=[2, 2], dilations=[2, 1]), 0.03, zero_of(graph, a)
        ),
        graph.quantize(graph.node("Softmax", b, axis=1), 1 / 256, -128),
        graph.quantize(graph.node("Sigmoid", wide), 1 / 32768, 0, "int16"),
    ]
    model = graph.model(ends[0])
    names = [f"result{number}" for number in range(len(ends))]
    del model.graph.output[:], model.graph.node[-1:]
    for end, name in zip(ends, names, strict=True):
        (node,) = (node for node in model.graph.node if node.output[0] == end)
        model.graph.node.append(
            onnx.helper.make_node("DequantizeLinear", [end, *node.input[1:]], [name], name)
        )
        model.graph.output.append(onnx.helper.make_tensor_value_info(name, 1, None))
    return onnx.shape_inference.infer_shapes(model), graph.samples(4.0)


def zero_of(graph: Qdq, x: str) -> int:
    """The zero point of a dequantized tensor."""
    node = next(node for node in graph.nodes if node.output[0] == x)
    (zero,) = (c for c in graph.constants if c.name == node.input[2])
    return int(onnx.numpy_helper.to_array(zero))


@pytest.mark.parametrize("drivers", [(), (*PAIRS, "qglobal_avg_pool")], ids=["loops", "driver"])
def test_operators_equal_those_of_the_cpu_and_onnx_runtime(
    drivers: Sequence[str], tmp_path: Path
) -> None:
    model, inputs = onnx_network()
    path = tmp_path / "net.onnx"
    onnx.save(model, path)
    library = compile_model(path, [AllOperators(tmp_path, drivers)], tmp_path / "library")
    assert offloaded_names(library) == {
        "float32_sum", "float32_product", "global_avg_pool", "mean_pool2d", "dilated_max_pool2d",
        "probabilities", "interpolation", "conv2d_transpose",
    }  # fmt: skip
    found = run_library(library.path, inputs).outputs
    cpu = run_library(compile_model(path, [], tmp_path / "cpu").path, inputs).outputs
    session = runtime(path)
    for name, values in cpu.items():
        np.testing.assert_array_equal(found[name], values, name)
        wanted = np.stack([
            session.run([name], {key: rows[i] for key, rows in inputs.items()})[0]
            for i in range(len(values))
        ])  # fmt: skip
        step = np.diff(np.unique(wanted)).min()
        np.testing.assert_allclose(found[name], wanted, atol=1.01 * step, err_msg=name)


@pytest.mark.parametrize("kind", ["svdf", "lstm"])
def test_layers_with_states_have_those_of_the_cpu(kind: str, tmp_path: Path) -> None:
    file = TfliteFile()
    if kind == "svdf":
        x, y = svdf(file, "svdf", (2, 5, 1, 6, 4), 3, state="int16", zeros=(3, 0, -7))
    else:
        x, y = lstm(file, "lstm", (2, 3, 4, 5), 3, dtype="int8")
    path = tmp_path / "layer.tflite"
    path.write_bytes(file.finish([x], [y]))
    npu = Npu(tmp_path, all_patterns())
    library = compile_model(path, [npu], tmp_path / "library")
    assert offloaded_names(library) == {"svdf", "svdf_state"} if kind == "svdf" else {"lstm"}
    given = {
        known["name"]: integers(9, *known["shape"], dtype=known["dtype"])
        for known in library.metadata["umakit"]["inputs"]
    }
    found = run_library(library.path, given).outputs
    wanted = run_library(compile_model(path, [], tmp_path / "cpu").path, given).outputs
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name], values, name)
        assert len(np.unique(values)) > 5
    if kind == "lstm":
        driven = compile_model(path, [Npu(tmp_path, [patterns.qlstm()], {"qlstm": "npu_lstm"})],
                               tmp_path / "driven")  # fmt: skip
        text = (driven.path / "codegen/host/src/tvmgen_layer.c").read_text(encoding="utf-8")
        call = " ".join(text.partition("return npu_lstm(")[2].partition(");")[0].split())
        call = re.sub(r"/\*\w+=\*/", "", call)
        assert call.startswith("data, input_weights, input_bias, recurrent_weights, ")
        assert ", 2, 3, 4, 5, 0, " in call, "batch, steps, inputs, units, time_major"
        assert re.search(r", outputs_?, \w+, \w+, 2, ", call), "three results"


# --- what is offered, and what is refused --------------------------------------------------------


def test_every_operator_with_a_kernel_is_offered() -> None:
    kernels = {each.name for each in registry.operators() if each.kernel is not None}
    assert kernels <= {each.name for each in registry.operators() if operand_names(each.name)}


def mean(x: Any, axes: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    fields = common(shape)
    return Mean(**fields, axes=axes, input_zero_point=3, multiplier=2**30, shift=-2).call([x], None)


def argmax(x: Any, dtype: str) -> Any:
    fields = common((3,), output_dtype=dtype, output_zero_point=0)
    return ArgMax(**fields, axis=1).call([x], None)


REFUSED = [
    (
        patterns.qmean(), network(lambda b, x: mean(x, (0, 2), (4, 5)), (2, 4, 3, 5)),
        "axes 0, 2 are not adjacent: the driver is told one length",
    ),
    (
        patterns.qmean(rounding="ort"), network(lambda b, x: mean(x, (1,), (3,)), (3, 4)),
        "rounding tflm: the accelerator rounds as ort",
    ),
    (
        patterns.qargmax(), network(lambda b, x: argmax(x, "int64"), (3, 4)),
        "int64 result: the driver writes int32",
    ),
    (
        patterns.qconcatenation(operands=3),
        network(lambda b, x, y: relax.op.concat([x, y], 0), (2, 3), (2, 3)),
        "2 tensors: the accelerator concatenates 3",
    ),
    (
        patterns.qpad(),
        network(lambda b, x: relax.op.nn.pad(x, [0, 1, 2, 0]), (2, 3), dtype="float32"),
        "a pad of float32, constant: the accelerator pads with an integer",
    ),
    (
        patterns.qargmax(dtypes="uint8"), network(lambda b, x: argmax(x, "int32"), (3, 4)),
        "int8 data: the accelerator computes uint8",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "module", "wanted"), REFUSED, ids=lambda v: str(v)[:40])
def test_what_the_arguments_cannot_say_is_refused(
    pattern: Any, module: Any, wanted: str, tmp_path: Path
) -> None:
    assert reason(module, pattern, folder=tmp_path) == wanted


def test_axes_of_one_element_may_lie_between(tmp_path: Path) -> None:
    module = network(lambda b, x: mean(x, (1, 3), (2, 1, 5)), (2, 4, 1, 3, 5))
    assert reason(module, patterns.qmean(), folder=tmp_path) == ""


def test_a_change_of_scale_behind_is_taken_by_those_that_ask_for_it(tmp_path: Path) -> None:
    module = network(
        lambda b, x: rescale(b.emit(mean(x, (1,), (3, 5))), 0.7, output_zero_point=-9), (3, 4, 5)
    )
    data = integers(3, 4, 5)
    npu = Npu(tmp_path, [patterns.qmean(requantize=True)])
    library = compiled(module, [npu], tmp_path)
    assert len(library.report.offloaded) == 2
    (found,) = run_library(library.path, {"x": data}).outputs.values()
    np.testing.assert_array_equal(found, results(module, [], tmp_path, x=data)[0])
    assert patterns.c_declaration("f", patterns.qmean(requantize=True)).count("then_") == 6
    with pytest.raises(BackendError, match="an operator of its own"):
        patterns.qlookup(requantize=True)


def test_a_rounding_of_ones_own_is_for_those_that_rescale(tmp_path: Path) -> None:
    module = network(lambda b, x: mean(x, (1,), (3, 5)), (3, 4, 5))
    assert reason(module, patterns.qmean(rounding="own:my_round"), folder=tmp_path) == ""
    with pytest.raises(BackendError, match="'own:my_round' is unknown"):
        patterns.qsoftmax(rounding="own:my_round")


def test_patterns_that_match_no_call_are_refused(tmp_path: Path) -> None:
    wildcard, softmax = patterns.wildcard, patterns.is_op("relax.quantized.softmax")
    module = network(lambda b, x: mean(x, (1,), (3,)), (3, 4))
    relu = patterns.is_op("relax.nn.relu")
    for pattern in (softmax(wildcard()), relu(softmax(*[wildcard() for _ in range(3)]))):
        with pytest.raises(BackendError, match=r"quantized\.softmax has 2 operands, data, expone"):
            compiled(module, [Npu(tmp_path, [("own", pattern)])], tmp_path)
    convolution = patterns.is_op("relax.quantized.conv2d")(*[wildcard()] * 5)
    with pytest.raises(BackendError, match="one wildcard stands for several of the operands data"):
        compiled(module, [Npu(tmp_path, [("own", convolution)])], tmp_path)


def test_patterns_of_ones_own_take_layers_with_weights(tmp_path: Path) -> None:
    def build(builder: Any, x: Any) -> Any:
        return dense(builder.emit(relax.op.reshape(builder.emit(conv(x)), (1, 6 * 5 * 8))))

    module, data = network(build, (1, 6, 5, 12)), integers(1, 6, 5, 12)
    library = compiled(module, [OwnPatterns(tmp_path)], tmp_path)
    assert [row.operator for row in library.report.offloaded] == [
        "quantized.conv2d", "quantized.dense",
    ]  # fmt: skip
    (found,) = run_library(library.path, {"x": data}).outputs.values()
    np.testing.assert_array_equal(found, results(module, [], tmp_path, x=data)[0])


def test_depthwise_and_transposed_convolutions_are_no_convolutions_by_accident() -> None:
    for kind in (patterns.QDepthwise, patterns.QConv2dTranspose):
        assert not issubclass(kind, patterns.QConv2d)
        assert issubclass(kind, patterns.QConvolution)
    with pytest.raises(BackendError, match="fold_zero_point=True"):
        patterns.qconv2d_transpose(fold_zero_point=True)
    with pytest.raises(BackendError, match="padding='same'"):
        patterns.qconv2d_transpose(padding="same")


# --- the page ------------------------------------------------------------------------------------


def test_the_page_lists_pointers_and_integers_of_every_pattern(
    request: pytest.FixtureRequest,
) -> None:
    """Of those that are made of an interface; `--update-golden` writes the table."""
    page = ROOT / "docs" / "patterns.md"
    before, start, rest = page.read_text("utf-8").partition("| pattern | pointers | integers |\n")
    _, end, behind = rest.partition("\n\n")
    table = "".join([start, "|---|---|---|\n", *map(row_of, INTERFACES)]).rstrip("\n")
    if request.config.getoption("--update-golden"):
        page.write_text(f"{before}{table}{end}{behind}", encoding="utf-8")
    assert table in page.read_text(encoding="utf-8")
    listed = set(re.findall(r"`(q\w+)`", page.read_text("utf-8").partition("## An acc")[0]))
    assert {each for each in patterns.__all__ if each.startswith("q")} <= listed | {
        f"q{name}" for name in INTERFACES
    }


def row_of(name: str) -> str:
    pattern = getattr(patterns, f"q{name}")()
    declared = re.findall(r"(\w+)[,)]", patterns.c_declaration("f", pattern))
    pointers = [*pattern.KIND.POINTERS]
    integers = declared[len(pointers) :]
    ends = integers[-4:] == ["output_zero_point", "lowest", "highest", "rounding"]
    listed = [f"`{each}`" for each in (integers[:-4] if ends else integers)]
    text = ", ".join([*listed, *(["ending"] if ends else [])])
    return f"| `q{name}` | {', '.join(f'`{each}`' for each in pointers)} | {text} |\n"
