# SPDX-License-Identifier: Apache-2.0
"""References of `uma diff` that are wrong, that disagree, or whose process ends."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from diff_sweep import Coverage, plant_in, sweep
from hypothesis import given
from hypothesis import strategies as st
from networks import Graph, save
from onnx.reference import ReferenceEvaluator
from qdq import Qdq
from tflite_cases import Case, Tensor, file_of, of
from umakit.cli.main import run_command

from umakit import tvm_api
from umakit.errors import InputError
from umakit.testing.differences import Tolerance
from umakit.tools.diff import diff_model, process, references
from umakit.tools.diff.decider import Expected, decided

Uma = Callable[..., tuple[int, str, str]]


@pytest.fixture
def uma(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Uma:
    monkeypatch.setattr(sys, "argv", ["uma"])
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        code = run_command(["diff", *(str(argument) for argument in arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


# --- wrong references ----------------------------------------------------------------------------


def dilated(folder: Path) -> Path:
    """SPACE_TO_BATCH_ND with a padding, whose numbers TensorFlow Lite Micro does not initialize."""
    x = Tensor((1, 5, 6, 3), "int8", 0.1, 5)
    y = Tensor((4, 4, 5, 3), "int8", 0.1, 5)
    case = Case("SPACE_TO_BATCH_ND", [x, of([2, 2]), of([[1, 2], [2, 2]])], [y])
    other = Case("RELU", [Tensor((1, 4), "int8", 0.1, 3)], [Tensor((1, 4), "int8", 0.1, 3)])
    path = folder / "dilated.tflite"
    path.write_bytes(file_of([case, other])[0])
    return path


def test_a_reference_that_is_wrong_is_named(uma: Uma, tmp_path: Path) -> None:
    path = dilated(tmp_path)
    code, printed, _ = uma(path)
    assert code == 0
    assert "layers agree: with NumPy at reshape 'y0_0', where TensorFlow Lite Micro is" in printed
    assert "TensorFlow Lite Micro is wrong at reshape 'y0_0': it differs from NumPy" in printed
    code, document, _ = uma(path, "--json")
    (wrong,) = (found := json.loads(document))["wrong_references"]
    assert wrong["reference"] == "tflite-micro" and wrong["difference"]["differing"] > 0
    assert wrong["operator"]["name"] == "y0_0"
    assert [layer["reference"] for layer in found["layers"]] == ["numpy", "tflite-micro"]


def weight_only(folder: Path) -> Path:
    """A matrix product of 16-bit data and weights of 8 bits, which ONNX Runtime would fuse."""
    graph, random = Graph(seed=2), np.random.default_rng(2)
    scale, zero = graph.constant(0.0002), graph.constant(0, "int16")
    x = graph.node("QuantizeLinear", graph.input("x", 3, 64), scale, zero)
    x = graph.node("Relu", graph.node("DequantizeLinear", x, scale, zero))
    weights = graph.constant(random.integers(-127, 128, (64, 16)), "int8")
    weights = graph.node("DequantizeLinear", weights, graph.constant(0.01))
    graph.output(graph.node("MatMul", x, weights, name="product"))
    return save(graph.model(opset=21), folder)


def test_the_reference_computes_what_the_file_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Products of 16-bit data are not computed in 8 bits."""
    model = onnx.load(weight_only(tmp_path))
    (name,) = (output.name for output in model.graph.output)
    rows = {"x": np.random.default_rng(1).uniform(-3, 3, (3, 64)).astype(np.float32)}
    (wanted,) = ReferenceEvaluator(model).run(None, rows)

    def away() -> float:
        runtime = process.RuntimeProcess("onnxruntime", model.SerializeToString())
        (got,) = runtime.call("run", [name], rows)
        runtime.close()
        return float(np.abs(got - wanted).max() / np.abs(wanted).max())

    assert away() < 1e-6
    worker = process.WORKER.read_text(encoding="utf-8")
    level = '"session.qdq_matmulnbits_accuracy_level", "1"'
    assert level in worker
    fused = tmp_path / "worker.py"
    fused.write_text(worker.replace(level, level.replace('"1"', '"4"')), encoding="utf-8")
    monkeypatch.setattr(process, "WORKER", fused)
    assert away() > 1e-4, "ONNX Runtime computes it otherwise: the setting can go"


def integers(folder: Path, dtype: str = "int8") -> Path:
    """Two products between dequantize and quantize, side by side."""
    graph, random = Graph(seed=4), np.random.default_rng(4)
    scale, zero = graph.constant(0.05 if dtype == "int8" else 0.0002), graph.constant(1, dtype)
    for name in ("first", "second"):
        x = graph.node("QuantizeLinear", graph.input(f"{name}_in", 4, 30), scale, zero)
        weights = graph.constant(random.integers(-127, 128, (30, 8)), "int8")
        weights = graph.node("DequantizeLinear", weights, graph.constant(0.01))
        x = graph.node("MatMul", graph.node("DequantizeLinear", x, scale, zero), weights, name=name)
        ends = graph.constant(0.1 if dtype == "int8" else 0.0004), zero
        x = graph.node("QuantizeLinear", x, *ends, name=f"{name}_q")
        graph.output(graph.node("DequantizeLinear", x, *ends))
    return save(graph.model(opset=21), folder)


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_a_wrong_reference_hides_no_bug_of_umakits(
    dtype: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The runtime is wrong at the first product, umakit at both: it is blamed for both."""
    path = integers(tmp_path, dtype)
    original = references._OnnxRuntime.run

    def wrong(self: Any, inputs: Mapping[str, Any]) -> Any:
        run = original(self, inputs)
        for value, array in run.values.items():
            if self._every.operators[value[0]].name == "first":
                array[1:] += np.asarray(3, dtype)
        return run

    monkeypatch.setattr(references._OnnxRuntime, "run", wrong)
    result = diff_model(path, [], most=1)
    assert result.agrees, result.blame
    named = {item.operator.name: item.difference for item in result.disagreements}
    assert named["first"].differing == 24 and named["first"].largest >= 3
    assert not any(name.startswith("second") for name in named)
    with plant_in([frozenset({"first"}), frozenset({"second"})], [4, 4]):
        result = diff_model(path, [], most=1)
    assert [layer.name for layer in result.layers if not layer.agrees] == ["first", "second"]
    assert result.blame is not None and result.blame.shared
    assert result.blame.layer.name == "first"


@given(st.integers(-120, 120), st.integers(-3, 3), st.integers(-3, 3), st.floats(-0.49, 0.49))
def test_who_decides(right: int, own: int, theirs: int, away: float) -> None:
    """A runtime stands if it is rounded correctly; else umakit if it is; else the nearest."""
    expected = Expected(np.array([right + away]), slack=0.505)
    arrays = [np.array([right + each], np.int8) for each in (own, theirs)]
    wanted, overruled, also_right = decided(arrays[0], arrays[1], expected, Tolerance())
    is_right = [abs(each - away) <= 0.505 for each in (own, theirs)]
    if own == theirs or is_right[1]:
        assert (wanted[0], overruled) == (right + theirs, False)
    else:
        assert (wanted[0], overruled) == (right, is_right[0])
    assert also_right == is_right[1]
    alone, _, _ = decided(arrays[0], None, expected, Tolerance())
    assert alone[0] == (right + own if is_right[0] else right)


def test_a_runtime_that_rounds_otherwise_next_to_ties_is_not_called_wrong(
    uma: Uma, tmp_path: Path
) -> None:
    """ONNX Runtime approximates tanh, and differs at some of all 16-bit integers."""
    graph, path = Qdq("int16", 0), tmp_path / "tanh.onnx"
    x = graph.input([2**16], 1.3e-4, 17)
    onnx.save(graph.model(graph.quantize(graph.node("Tanh", x), 1 / 32768, 0)), path)
    inputs = tmp_path / "x.npz"
    np.savez(inputs, x0=((np.arange(2**16) - 2**15 - 17) * 1.3e-4).astype(np.float32)[None])
    code, printed, _ = uma(path, "--inputs", inputs)
    assert code == 0 and "ONNX Runtime rounds" in printed and "next to ties" in printed
    assert "wrong at" not in printed
    code, printed, _ = uma(path, "--inputs", inputs, "--json")
    assert all(each["both_right"] for each in json.loads(printed)["wrong_references"])


# --- processes that end --------------------------------------------------------------------------


def softmax(folder: Path) -> Path:
    """A row of 1,016 numbers, which ends TensorFlow Lite Micro where all are equal."""
    tensors = Tensor((1, 1016), "int8", 0.1), Tensor((1, 1016), "int8", 1 / 256, -128)
    path = folder / "softmax.tflite"
    case = Case("SOFTMAX", [tensors[0]], [tensors[1]], "SoftmaxOptions", {"Beta": 1.0})
    path.write_bytes(file_of([case])[0])
    return path


def test_a_reference_that_aborts_is_a_sentence(uma: Uma, tmp_path: Path) -> None:
    path = softmax(tmp_path)
    rows = np.full((3, 1, 1016), 5, np.int8)
    rows[1, 0, 0] = 100
    np.savez(tmp_path / "in.npz", x0_0=rows)
    code, printed, said = uma(path, "--inputs", "in.npz")
    assert code == 0 and "all 1 layers agree" in printed
    assert "compared with TensorFlow Lite Micro" in printed, "the second inference is"
    assert (
        "TensorFlow Lite Micro is not the reference of inferences 0, 2: its process was stopped by "
        "signal 6 (SIGABRT)"
    ) in said
    np.savez(tmp_path / "in.npz", x0_0=rows[:1])
    code, printed, _ = uma(path, "--inputs", "in.npz", "--json")
    found = json.loads(printed)
    assert (code, found["reference"], found["layers"][0]["reference"]) == (0, "numpy", "numpy")
    code, printed, said = uma(path, "--inputs", "in.npz", "--reference", "tflite-micro")
    assert (code, printed) == (2, "") and "cannot be the reference: its process was" in said
    assert "--reference auto compares with what is left" in said
    assert uma(path, "--inputs", "in.npz", "--reference", "auto")[0] == 0  # as the sentence says


FAULTS = {
    "os.abort()": "its process was stopped by signal 6 (SIGABRT)",
    "sys.stderr.write('no kernel\\n'); sys.stderr.flush(); os._exit(3)":
        "its process ended with code 3: no kernel",
    "raise ValueError('no kernel')": "it refuses the inputs: no kernel",
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_reference_may_end_in_any_way(
    fault: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, text = integers(tmp_path), process.WORKER.read_text(encoding="utf-8")
    line = "        return list(self._session.run(list(names), dict(inputs)))"
    assert line in text
    faulty = tmp_path / "worker.py"
    faulty.write_text(text.replace(line, f"        {fault}"), encoding="utf-8")
    monkeypatch.setattr(process, "WORKER", faulty)
    result = diff_model(path, [], most=1)
    assert result.agrees and result.reference == "numpy"
    assert any(FAULTS[fault] in notice for notice in result.notices), result.notices
    with pytest.raises(InputError, match="ONNX Runtime cannot be the reference"):
        diff_model(path, [], most=1, reference="onnxruntime")


def test_a_reference_that_ends_while_it_loads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, text = integers(tmp_path), process.WORKER.read_text(encoding="utf-8")
    faulty = tmp_path / "worker.py"
    faulty.write_text(text.replace("        states =", "        os.abort()\n        states ="))
    monkeypatch.setattr(process, "WORKER", faulty)
    result = diff_model(path, [], most=1)
    assert result.agrees and result.reference == "numpy"
    assert any("was stopped by signal 6 (SIGABRT)" in notice for notice in result.notices)


def test_no_process_is_left_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ended: list[Any] = []
    original = process.RuntimeProcess._end

    def end(self: Any, **named: Any) -> None:
        ended.append(self._process)
        original(self, **named)

    monkeypatch.setattr(process.RuntimeProcess, "_end", end)
    assert diff_model(integers(tmp_path), [], most=1).agrees
    (only,) = ended
    assert only.poll() is not None


# --- the sweep -----------------------------------------------------------------------------------


def assert_clean(coverage: Coverage) -> None:
    print(coverage.table())
    assert not coverage.complaints, "\n".join(coverage.complaints)


def test_drawn_operators_are_blamed_only_if_they_are_wrong() -> None:
    """Two files of each format; `make soak` tries all of them."""
    assert_clean(sweep(1, ["Conv", "Softmax", "SPACE_TO_BATCH_ND", "SOFTMAX"]))


@pytest.mark.soak
@pytest.mark.skipif("UMAKIT_EXAMPLES" not in os.environ, reason="make soak")
def test_all_drawn_operators_are_blamed_only_if_they_are_wrong() -> None:
    assert_clean(sweep(3))


# --- what is compared with what -------------------------------------------------------------------


def test_a_cpu_that_cannot_run_here_is_named_with_what_helps_here(uma: Uma, tmp_path: Path) -> None:
    graph = Graph(seed=7)
    graph.output(graph.node("Relu", graph.input("input", 1, 4)))
    model = save(graph.model(), tmp_path)
    code, _, printed = uma(model, "--cpu", "cortex-m4")
    (error,) = [line for line in printed.splitlines() if line.startswith("error")]
    assert code == 2 and error.startswith("error: --cpu cortex-m4: its code cannot run: this mach")
    assert "umakit-diff" not in error and "uma compile" not in error
    assert error.endswith("choose --device qemu-cortex-m4 or qemu-cortex-m7 or qemu-cortex-m55, or "
                          "leave out --cpu")  # fmt: skip
    assert uma(model)[0] == 0
    if shutil.which("qemu-system-arm") and shutil.which("arm-none-eabi-gcc"):
        assert uma(model, "--cpu", "cortex-m4", "--device", "qemu-cortex-m4", "--most", 1)[0] == 0


def test_a_comparison_of_umakit_with_itself_says_so(uma: Uma, tmp_path: Path) -> None:
    """A Relax module has no runtime; with an accelerator, its layers are compared."""
    relax, said = tvm_api.relax, "note: umakit's CPU kernels are compared with themselves"
    builder = relax.BlockBuilder()
    x = relax.Var("x", tvm_api.tensor_type((1, 3, 8, 8), "float32"))
    weights = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit(relax.op.nn.conv2d(x, relax.const(weights), padding=1))
            result = builder.emit_output(result)
        builder.emit_func_output(result)
    module = tmp_path / "module.json"
    module.write_text(tvm_api.tvm.ir.save_json(builder.get()), encoding="utf-8")
    code, _, printed = uma(module)
    assert code == 0 and said in printed
    assert "compare the network as a file of ONNX or TensorFlow Lite" in printed
    code, _, printed = uma(module, "-b", "vanilla_accelerator")
    assert code == 0 and said not in printed and "nothing runs" not in printed
    graph = Graph(seed=7)
    graph.output(graph.node("Relu", graph.input("input", 1, 4)))
    model = save(graph.model(), tmp_path)
    code, _, printed = uma(model, "--reference", "cpu")
    assert code == 0 and said in printed and "leave out --reference cpu" in printed
    code, _, printed = uma(model)
    assert code == 0 and said not in printed
