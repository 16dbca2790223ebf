# SPDX-License-Identifier: Apache-2.0
"""`uma diff` on quantized networks: errors in drivers, scales, layouts, padding, bias, memory."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparisons import some
from integer_backend import CONFIGURATION, DECLARED, DRIVERS, Npu, everything, header_of
from networks import Graph, save
from test_diff import blamed, residual, wrong_layers
from test_patterns_quantized_onnx import DIGITS, onnx_npu
from test_scratchpad import ScratchpadNpu
from tflite_networks import trained_model
from umakit.cli.main import run_command

import umakit.pipeline
from umakit import PassPhase, compile_model, tvm_api
from umakit.errors import InputError
from umakit.patterns import Weighted
from umakit.pipeline import planning
from umakit.tools.diff import diff_model
from umakit.tools.diff.references import island_nodes, nodes_of

KWS = "kws_ref_model.tflite"
RESNET = "pretrainedResnet_quant.tflite"
COUNTER = "    l.per_group = l.channels / groups;\n"


def planted(npu: Any, *replacements: tuple[str, str]) -> Any:
    """A backend whose driver of convolutions goes wrong where `calls` has a value."""
    driver = npu.folder / "integer_driver.c"
    text = driver.read_text(encoding="utf-8")
    text = text.replace(COUNTER, f"{COUNTER}    calls++;\n")
    text = text.replace("struct layer {", "static int calls;\n\nstruct layer {", 1)
    for old, new in replacements:
        assert old in text, old
        text = text.replace(old, new, 1)
    driver.write_text(text, encoding="utf-8")
    return npu


WEIGHT = "return l->weights[o * window + place]; /* OHWI */"
SWAPPED = "c * l->kernel_height * l->kernel_width + ky * l->kernel_width + kx"

DRIVER_ERRORS: dict[str, tuple[tuple[str, str], str]] = {
    "driver": (("int64_t sum = bias[o];", "int64_t sum = bias[o] + (calls == 3) * x * 400;"), ""),
    "padding": (("- a[PAD_TOP]", "- a[PAD_TOP] - (calls == 3)"), ""),
    "bias": (("int64_t sum = bias[o];",
              "int64_t sum = bias[calls == 3 ? (o + 1) % outputs : o];"), ""),
    "layout": ((WEIGHT, f"return l->weights[o * window + (calls == 3 ? {SWAPPED} : place)];"), ""),
    "scale": (("multipliers[s], shifts[s], a[ROUNDING]",
               "multipliers[s] / (calls == 3 && o == 1 ? 2 : 1), shifts[s], a[ROUNDING]"),
              "wrong only at index 1 of axis"),
}  # fmt: skip


def both(what: str, number: int) -> list[tuple[str, str]]:
    """An error in a network of each format: the first of errors in turn in one and the other."""
    formats = ("tflite", "onnx") if number % 2 else ("onnx", "tflite")
    return [(what, name) for name in formats]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("what", "format_"),
    some([pair for number, what in enumerate(DRIVER_ERRORS) for pair in both(what, number)], 2),
)
def test_an_error_in_a_driver(what: str, format_: str, tmp_path: Path) -> None:
    """The third of all convolutions; with layouts, only a window larger than 1x1 shows it."""
    error, sentence = DRIVER_ERRORS[what]
    if format_ == "onnx":
        path, npu = DIGITS, onnx_npu(tmp_path)
        name = "conv3_stride2"
    else:
        path, npu = trained_model(RESNET), Npu(tmp_path, everything(), DRIVERS)
        name = "model/batch_normalization_2/FusedBatchNormV3"
    result = diff_model(path, [planted(npu, error)])
    assert result.blame is not None and result.spoken(result.blame.operators) == name
    assert result.blame.layer.where == npu.target_name and not result.blame.shared
    assert len(wrong_layers(result)) == 1 and not result.blame.also
    assert sentence in result.blame.explanation


def spoiled(
    monkeypatch: pytest.MonkeyPatch, name: str, number: int, change: Callable[[Any], Any]
) -> None:
    """An array of one layer is prepared wrongly; layers are counted by their weights."""
    original, seen = Weighted.stored_arrays, dict[bytes, int]()

    def stored_arrays(self: Any) -> dict[str, Any]:
        arrays = dict(original(self))
        key = self.weights.tobytes()
        if seen.setdefault(key, len(seen)) == number:
            arrays[name] = change(arrays[name]).astype(arrays[name].dtype)
        return arrays

    monkeypatch.setattr(Weighted, "stored_arrays", stored_arrays)


PREPARED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "a scale of one channel": (
        "multipliers",
        lambda a: np.where(np.arange(a.size) == 2, a // 2, a),
    ),
    "a shift": ("shifts", lambda a: a - 1),
    "a weight layout": ("weights", lambda a: a.transpose(0, 2, 1, 3).copy()),
    "a bias": ("bias", lambda a: np.roll(a, 1)),
}


@pytest.mark.parametrize("what", PREPARED)
def test_an_array_that_is_prepared_wrongly(
    what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Layer 1 of the keyword spotter is depthwise, 3x3."""
    path, npu = trained_model(KWS), Npu(tmp_path, everything(), DRIVERS)
    name, change = PREPARED[what]
    spoiled(monkeypatch, name, 1, change)
    result = diff_model(path, [npu])
    assert blamed(result) == ["functional_1/activation_1/Relu"] == wrong_layers(result)
    if "scale" in what:
        assert result.blame is not None
        assert "wrong only at index 2 of axis 3" in result.blame.explanation


# --- memory plans -------------------------------------------------------------------------------


def overlapping_plan(monkeypatch: pytest.MonkeyPatch, pick: Callable[[Any], Any]) -> None:
    """The first plan, which is the library's, puts a tensor where another one is still needed."""
    original, calls = planning.plan_memory, [0]

    def plan_memory(program: Any, pools: Any, planner: str) -> Any:
        plan = original(program, pools, planner)
        calls[0] += 1
        if calls[0] > 1:
            return plan
        (pool,) = plan.pools
        first, second = pick(program)
        moved = {**pool.offsets, second: pool.offsets[first]}
        return replace(plan, pools=(replace(pool, offsets=moved),))

    monkeypatch.setattr(planning, "plan_memory", plan_memory)
    monkeypatch.setattr(planning, "validate_plan", lambda program, plan: None)


def test_a_memory_plan_that_overlaps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The result of relu1 is put over that of stem, which the sum needs three layers later."""

    def pick(program: Any) -> tuple[str, str]:
        labels = {tensor.label: name for name, tensor in program.tensors.items()}
        return labels["stem + stem_relu"], labels["twin1 + relu1"]

    path = save(residual(), tmp_path)
    assert diff_model(path, []).agrees
    overlapping_plan(monkeypatch, pick)
    result = diff_model(path, [])
    assert result.blame is not None and result.spoken(result.blame.operators) == "twin1 + relu1"
    assert "belong to stem + stem_relu and to twin1 + relu1" in result.blame.overlap
    assert result.as_json()["first"]["memory_overlap"] == result.blame.overlap


def test_results_that_stay_in_a_scratchpad(tmp_path: Path) -> None:
    """They are found by a library whose layers store them."""
    path, npu = trained_model(RESNET), ScratchpadNpu(tmp_path, 65536)
    assert diff_model(path, [npu], most=1).agrees
    result = diff_model(path, [planted(npu, DRIVER_ERRORS["padding"][0])], most=1)
    assert blamed(result) == ["model/batch_normalization_2/FusedBatchNormV3"]
    assert any("stay in a scratchpad" in notice for notice in result.notices)
    library = compile_model(path, [npu], tmp_path / "library").path
    unseen = diff_model(path, [], library=library, most=1)
    assert unseen.blame is not None and "--backend instead of --library" in unseen.notices[-1]
    assert "model/batch_normalization_2/FusedBatchNormV3" in {o.name for o in unseen.blame.also}


# --- backends that change the network -----------------------------------------------------------


class Rewriting(Npu):
    """A pass before partitioning that takes relu apart: max(x, 0) * 1."""

    def __init__(self, folder: Path, registrations: Any) -> None:
        super().__init__(folder, registrations)

        def rewrite(module: Any, context: Any) -> Any:
            relax = tvm_api.relax

            def replaced(call: Any) -> Any:
                if tvm_api.operator_name(call) != "nn.relu":
                    return call
                zero = relax.const(np.zeros((), "float32"))
                larger = relax.Call(tvm_api.tvm.ir.Op.get("relax.maximum"), [call.args[0], zero])
                return relax.Call(larger.op, larger.args, larger.attrs, span=call.span)

            main = tvm_api.rewrite(module["main"], [(tvm_api.Call, replaced)])
            changed = tvm_api.IRModule({"main": main})
            return tvm_api.relax_transform.Normalize()(changed)

        transform = tvm_api.tvm.ir.transform.module_pass(rewrite, opt_level=0, name="rewrite")
        self._register_relax_pass(PassPhase.PRE_PARTITIONING, transform)


def test_a_backend_that_rewrites_the_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, npu = save(residual(), tmp_path), Rewriting(tmp_path, [])
    healthy = diff_model(path, [npu])
    assert healthy.agrees and all(layer.own is not None for layer in healthy.layers)
    library = compile_model(path, [npu], tmp_path / "library")
    operators = {row.operator for row in library.report.placements}
    assert "maximum" in operators and "nn.relu" not in operators
    assert diff_model(path, [], library=library.path).agrees
    source = library.path / "codegen/host/src/tvmgen_network.c"
    text = source.read_text(encoding="utf-8")
    assert "0x0p+0f" in text or "0.0f" in text


# --- the library that is shipped ----------------------------------------------------------------


def test_a_written_library_is_compared_as_it_lies_there(tmp_path: Path) -> None:
    path, npu = trained_model(KWS), Npu(tmp_path, everything(), DRIVERS)
    library = compile_model(path, [npu], tmp_path / "library").path
    assert diff_model(path, [], library=library, most=1).agrees
    driver = next(library.glob("codegen/host/src/*/integer_driver.c"))
    text = driver.read_text(encoding="utf-8")
    driver.write_text(text.replace("int64_t sum = bias[o];", "int64_t sum = bias[0];", 1))
    result = diff_model(path, [], library=library)
    assert blamed(result) == ["functional_1/activation/Relu"]
    with pytest.raises(InputError, match="library of another model"):
        diff_model(DIGITS, [], library=library)


def test_libraries_in_tar_files_and_with_blobs(tmp_path: Path) -> None:
    options = umakit.pipeline.ExportOptions(weights="blob", planner="greedy_by_size")
    library = compile_model(DIGITS, [], tmp_path / "reference.tar", options=options)
    assert diff_model(DIGITS, [], library=library.path, most=1).agrees
    assert diff_model(DIGITS, [], options=options, most=1).agrees


@pytest.mark.parametrize("device", ["qemu-cortex-m3", "qemu-aarch64"])
def test_errors_that_only_another_machine_makes(device: str, tmp_path: Path) -> None:
    from umakit.devices import find_device
    from umakit.errors import BuildError

    machine = find_device(device)
    try:
        machine.compiler()
        machine.check_emulator()
    except BuildError as error:
        pytest.skip(str(error))
    macro = {"qemu-cortex-m3": "__thumb__", "qemu-aarch64": "__aarch64__"}[device]
    error = (
        "int64_t sum = bias[o];",
        f"int64_t sum = bias[o];\n#ifdef {macro}\nsum += calls == 2 ? 900 : 0;\n#endif",
    )
    npu = planted(onnx_npu(tmp_path), error)
    assert diff_model(DIGITS, [npu], most=1).agrees
    result = diff_model(DIGITS, [npu], most=1, device=device)
    assert result.spoken(result.blame.operators) == "conv2"  # type: ignore[union-attr]


# --- names --------------------------------------------------------------------------------------


def test_islands_are_called_by_their_nodes(tmp_path: Path) -> None:
    nodes = island_nodes(DIGITS)
    assert nodes["relu1_out_QuantizeLinear"] == ("conv1", "relu1_out_QuantizeLinear")
    assert "image_QuantizeLinear" not in nodes
    graph = Graph(seed=1)
    graph.output(graph.node("Relu", graph.input("x", 1, 4), name="alone"))
    assert island_nodes(save(graph.model(), tmp_path)) == {}


def test_a_result_that_is_quantized_twice(tmp_path: Path) -> None:
    """Both layers have the name of the convolution; each is compared with its own quantize."""
    graph = Graph(seed=5)
    scale, zero = graph.constant(0.05), graph.constant(3, "int8")
    x = graph.node("QuantizeLinear", graph.input("x", 1, 3, 6, 6), scale, zero, name="before")
    weights = graph.constant(np.arange(54).reshape(2, 3, 3, 3) - 27, "int8")
    weights = graph.node(
        "DequantizeLinear", weights, graph.constant(0.01), graph.constant(0, "int8")
    )
    x = graph.node("Conv", graph.node("DequantizeLinear", x, scale, zero), weights, name="conv")
    for number, step in enumerate((0.02, 0.3)):
        ends = graph.constant(step), graph.constant(number, "int8")
        result = graph.node("QuantizeLinear", x, *ends, name=f"after_{number}")
        graph.output(graph.node("DequantizeLinear", result, *ends))
    result = diff_model(save(graph.model(), tmp_path), [], most=2)
    assert result.agrees
    twice = [layer for layer in result.layers if layer.name in ("conv", "conv #2")]
    assert [layer.reference for layer in twice] == ["onnxruntime"] * 2
    assert result.nodes["conv"] == ("conv", "after_0", "after_1")


def test_a_pytorch_program_has_no_nodes_of_a_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "program.pt2.npz", np.zeros(1))  # a zip file, as a .pt2 is
    assert nodes_of(tmp_path / "program.pt2.npz", []) == {} == nodes_of(object(), [])


def write_backend(folder: Path) -> Path:
    """A backend of convolutions of quantized ONNX files."""
    place = folder / "npu"
    place.mkdir()
    (place / "integer_driver.h").write_text(header_of(DECLARED))
    driver = Path(__file__).parent / "integer_driver.c"
    text = driver.read_text(encoding="utf-8")
    (place / "integer_driver.c").write_text(
        text.replace("int64_t sum = bias[o];", "int64_t sum = bias[o] + (outputs == 32) * 900;", 1)
    )
    (place / "accel.toml").write_text(CONFIGURATION.format(name="npu"))
    (place / "backend.py").write_text("""
from umakit import PassPhase, UMABackend, patterns
from comparisons import some

class NpuBackend(UMABackend):
    def __init__(self):
        super().__init__()
        self._register_pattern(*patterns.qconv2d(rounding="ort", layouts="NCHW"))
        drivers = patterns.driver_calls(qconv2d="npu_qconv2d_nchw")
        self._register_tir_pass(PassPhase.TIR_PHASE_0, drivers)
        self._register_codegen(includes=lambda: '#include "integer_driver.h"')
        self._register_driver(["integer_driver.c"], ["integer_driver.h"])

    @property
    def target_name(self):
        return "npu"
""")
    return place


def test_the_command_on_a_new_backend(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["uma"])
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    place = write_backend(tmp_path)
    capsys.readouterr()
    options = ["--backend", str(place), "--pool", "sram=64K", "--planner", "greedy_by_size"]
    assert run_command(["diff", str(DIGITS), *options]) == 1
    lines = capsys.readouterr().out.splitlines()
    (line,) = (line for line in lines if line.startswith("first difference"))
    assert "quantized.conv2d 'conv3_stride2' on npu (layer 4 " in line
    (result,) = (line for line in lines if line.startswith("  result"))
    assert "int8[1, 32, 2, 2]" in result and "first at [0, 1, 0, 0]" in result
    assert any("wrong too     conv4_1x1" in line for line in lines)
    again = lines[-1].removeprefix("Again: uma ").split()
    assert again[2:8] == options and again[8] == "--inputs"
    assert run_command([*again, "--json"]) == 1
    report: Mapping[str, Any] = json.loads(capsys.readouterr().out)
    (operator,) = report["first"]["operators"]
    assert operator["nodes"] == ["conv3_stride2", "relu3_out_QuantizeLinear"]
    blamed_layer = report["layers"][report["first"]["layer"]]["own"]
    assert blamed_layer["first"] == [0, 1, 0, 0] and blamed_layer["differing"] > 0
    mixed = ["diff", str(DIGITS), "--library", "x", "--pool", "sram"]
    assert run_command(mixed) == 2
    assert "--pool is for compiling" in capsys.readouterr().err
