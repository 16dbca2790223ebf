# SPDX-License-Identifier: Apache-2.0
"""`uma diff`: errors are planted into drivers and into umakit itself, and it must point at them."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from comparisons import some
from execution import vanilla
from networks import Graph, fold_batch_norms, mobilenet_v1, normal, random_inputs, save
from tflite_networks import trained_model
from umakit.cli.main import run_command

import umakit
from umakit.backend.registry import load_backend_folder
from umakit.errors import DeviceError, InputError
from umakit.frontend.onnx import files
from umakit.operators import conv2d
from umakit.testing.differences import Tolerance, compare
from umakit.tools.diff import DiffResult, diff_model
from umakit.tools.diff.blame import explain
from umakit.tools.scaffold import new_backend

PLANTED = "planted"

DONE = """            umakit_device_unmap(device, result_address);
"""
BEFORE = """    status = tensor_bytes(1u, convolution.input_channels"""

Plant = Callable[..., Any]


@pytest.fixture
def plant(tmp_path: Path) -> Plant:
    """A copy of Vanilla whose driver goes wrong in one of its calls."""

    def make(call: int, wrong: str = "", *, before: str = "") -> Any:
        folder = new_backend(PLANTED, tmp_path, "vanilla").folder
        driver = folder / "conv2dnchw.c"
        text = driver.read_text(encoding="utf-8")
        assert text.count(DONE) == text.count(BEFORE) == 1
        count = f"    static int calls;\n    const int planted = calls++ == {call};\n"
        text = text.replace("    struct convolution convolution;\n    umakit_device *device;",
                            f"{count}    struct convolution convolution;\n"
                            "    umakit_device *device;")  # fmt: skip
        text = text.replace(BEFORE, f"    if (planted) {{ {before} }}\n{BEFORE}")
        text = text.replace(DONE, f"{DONE}            if (planted) {{ {wrong} }}\n")
        text = text.replace(
            '#include "conv2dnchw.h"', '#include "conv2dnchw.h"\n#include <stdlib.h>'
        )
        driver.write_text(text, encoding="utf-8")
        return load_backend_folder(folder)

    return make


def residual(*, height: int = 6, width: int = 10) -> onnx.ModelProto:
    """Convolutions of which three are equal, a residual connection, two outputs.

    The driver is called for stem, twin1, twin2, twin3 and head, in this order.
    """
    graph = Graph(seed=3)
    stem = graph.conv(graph.input("image", 1, 4, height, width), 6, name="stem", bias=True)
    stem = graph.node("Relu", stem, name="stem_relu")
    x = graph.node("Relu", graph.conv(stem, 6, name="twin1", bias=True), name="relu1")
    x = graph.node("Relu", graph.conv(x, 6, name="twin2", bias=True), name="relu2")
    x = graph.conv(x, 6, name="twin3", bias=True)
    x = graph.node("Add", x, stem, name="sum")
    x = graph.node("Sigmoid", graph.node("Relu", x, name="sum_relu"), name="gate")
    graph.output(graph.node("GlobalAveragePool", x, name="mean"))
    graph.output(graph.conv(x, 3, (5, 3), name="head"))
    return graph.model()


def blamed(result: DiffResult) -> list[str]:
    """Names of the operators that are to blame."""
    assert not result.agrees and result.blame is not None
    return list(dict.fromkeys(item.name for item in result.blame.operators))


def wrong_layers(result: DiffResult) -> list[str]:
    return [layer.name for layer in result.layers if not layer.agrees]


ELEMENTS = "result_bytes / sizeof(float)"
DOUBLE = f"for (size_t i = 0; i < {ELEMENTS}; i++) result[i] *= 2.0f;"
CHANNELS_LAST = f"""
    const int pixels = ih * iw;
    float *copy = malloc(result_bytes);
    for (int c = 0; c < oc; c++) for (int i = 0; i < pixels; i++)
        copy[i * oc + c] = result[c * pixels + i];
    for (size_t i = 0; i < {ELEMENTS}; i++) result[i] = copy[i];
    free(copy);
"""
COLUMNS_FIRST = f"""
    float *copy = malloc(result_bytes);
    for (int c = 0; c < oc; c++) for (int y = 0; y < ih; y++) for (int x = 0; x < iw; x++)
        copy[(c * iw + x) * ih + y] = result[(c * ih + y) * iw + x];
    for (size_t i = 0; i < {ELEMENTS}; i++) result[i] = copy[i];
    free(copy);
"""
SWAPPED = "convolution.input_width = (uint32_t)ih; convolution.input_height = (uint32_t)iw;"


@pytest.mark.parametrize(
    ("call", "wrong", "before", "name", "sentence"),
    [
        (0, "result[11] += 0.5f;", "", "stem", "wrong only at index 0 of axis 1"),
        (0, "for (int i = 0; i < oc; i++) result[i * ih * iw + i * 7] += 0.5f;", "", "stem", ""),
        (1, DOUBLE, "", "twin1", "equal after multiplying the reference by 2"),
        (2, CHANNELS_LAST, "", "twin2", "transposing axes (0, 2, 3, 1): it is stored channels"),
        (3, COLUMNS_FIRST, "", "twin3", "equal after transposing axes (0, 1, 3, 2)"),
        (2, "", SWAPPED, "twin2", ""),
        (1, "for (int i = 0; i < oc * ih * iw; i++) result[i] = 0.0f;", "", "twin1",
         "every element is 0"),
        (4, f"for (size_t i = 0; i < {ELEMENTS}; i++) result[i] += 0.25f;", "", "head",
         "equal after adding 0.25"),
        (3, f"for (size_t i = {ELEMENTS} - 1; i > 0; i--) result[i] = result[i - 1];", "", "twin3",
         "by +1 along axis 3"),
        (0, f"for (size_t i = 0; i < {ELEMENTS}; i++) if (result[i] < 0) result[i] = 0;", "",
         "stem", "clipping the reference from below at 0"),
    ],
    ids="element elements double nhwc nchw-columns-first swapped zeros offset index relu".split(),
)  # fmt: skip
def test_an_error_in_a_driver_is_found(
    call: int, wrong: str, before: str, name: str, sentence: str, plant: Plant, tmp_path: Path
) -> None:
    path = save(residual(), tmp_path)
    result = diff_model(path, [plant(call, wrong, before=before)])
    assert blamed(result) == [name]
    assert result.blame is not None and not result.blame.shared and not result.blame.also
    assert wrong_layers(result) == [name]
    assert result.blame.layer.where == PLANTED
    assert sentence in result.blame.explanation and bool(sentence) == bool(result.blame.explanation)
    assert result.inferences == 1


def test_a_padding_that_is_off_by_one_is_found(plant: Plant, tmp_path: Path) -> None:
    backend = plant(2)
    driver = Path(backend.folder) / "conv2dnchw.c"
    text = driver.read_text(encoding="utf-8")
    line = "(convolution->kernel_width - 1u) / 2u);"
    assert text.count(line) == 1
    planted = "(convolution->kernel_width - 1u) / 2u + (calls++ == 2));"
    text = text.replace(line, planted).replace(
        "    umakit_device_write32(device, UMAKIT_MAC_ARRAY_IFMAP",
        "    static int calls;\n\n    umakit_device_write32(device, UMAKIT_MAC_ARRAY_IFMAP",
    )
    driver.write_text(text, encoding="utf-8")
    result = diff_model(save(residual(), tmp_path), [load_backend_folder(driver.parent)])
    assert blamed(result) == ["twin2"] == wrong_layers(result)
    assert result.blame is not None
    assert "shifting the reference by +1 along axis 3" in result.blame.explanation


def test_all_wrong_layers_are_told_from_those_that_inherit_errors(
    plant: Plant, tmp_path: Path
) -> None:
    backend = plant(1, DOUBLE)
    driver = Path(backend.folder) / "conv2dnchw.c"
    text = driver.read_text(encoding="utf-8").replace("calls++ == 1", "calls++ % 2 == 1")
    driver.write_text(text, encoding="utf-8")
    result = diff_model(save(residual(), tmp_path), [load_backend_folder(driver.parent)])
    assert blamed(result) == ["twin1"] and wrong_layers(result) == ["twin1", "twin3"]
    inherited = [layer for layer in result.layers if layer.name == "twin2"]
    assert inherited[0].in_the_run is not None and not inherited[0].in_the_run.agrees
    assert not any(item.agrees for item in result.outputs.values())


def test_the_two_tensors_are_those_of_the_layer(plant: Plant, tmp_path: Path) -> None:
    blame = diff_model(save(residual(), tmp_path), [plant(1, DOUBLE)]).blame
    assert blame is not None and blame.layer.own is not None
    assert blame.got.shape == blame.wanted.shape == (1, 6, 6, 10)
    np.testing.assert_allclose(blame.got, 2 * blame.wanted, rtol=1e-6)
    own = blame.layer.own
    assert own.largest == pytest.approx(np.abs(blame.wanted).max())
    assert own.got == blame.got[own.index] and own.wanted == blame.wanted[own.index]
    (fed,) = blame.inputs.values()
    assert fed.shape == (1, 6, 6, 10) and fed.min() == 0


def test_memory_that_is_not_its_own_is_watched(plant: Plant, tmp_path: Path) -> None:
    """twin1 computes what it should, and breaks the tensor that the sum needs much later."""
    backend = plant(1, "float *stem = (float *)(uintptr_t)ifmap; stem[5] = 99.0f;")
    result = diff_model(save(residual(), tmp_path), [backend])
    assert blamed(result) == ["twin1"] and result.blame is not None
    assert "changed what is not its own: the result of stem + stem_relu" in result.blame.explanation
    result = diff_model(save(residual(), tmp_path), [_replant(backend, "result[-1] = 1.0f;")])
    assert blamed(result) == ["twin1"]


def _replant(backend: Any, wrong: str) -> Any:
    driver = Path(backend.folder) / "conv2dnchw.c"
    text = driver.read_text(encoding="utf-8")
    start = text.index("if (planted) { float *stem")
    end = text.index("}\n", start)
    driver.write_text(f"{text[:start]}if (planted) {{ {wrong} {text[end:]}", encoding="utf-8")
    return load_backend_folder(driver.parent)


@pytest.mark.parametrize(
    ("before", "message"),
    [
        ("return 77;", "status 77"),
        ("abort();", r"stopped by signal 6 \(SIGABRT\)"),
    ],
)
def test_a_run_that_stops_says_in_which_layer(
    before: str, message: str, plant: Plant, tmp_path: Path
) -> None:
    with pytest.raises(DeviceError, match=message) as caught:
        diff_model(save(residual(), tmp_path), [plant(2, before=before)])
    assert f"twin2 ({PLANTED})" in caught.value.where


# --- errors of umakit's own ---------------------------------------------------------------------


def of_one_layer(shape: tuple[int, ...], number: int) -> Callable[[Any], bool]:
    """Whether constants are those of the n-th layer whose weights have a shape."""
    seen: list[bytes] = []

    def chosen(weights: Any) -> bool:
        if weights.shape != shape:
            return False
        if weights.tobytes() not in seen:
            seen.append(weights.tobytes())
        return seen.index(weights.tobytes()) == number

    return chosen


def test_a_changed_scale_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The third of four pointwise convolutions that are equal in structure."""
    path, original = trained_model("kws_ref_model.tflite"), conv2d.constants_of
    chosen = of_one_layer((64, 1, 1, 64), 2)
    names: list[str] = []

    def linear(call: Any) -> Any:
        layer = original(call)
        if not chosen(layer.weights):
            return layer
        return replace(layer, multipliers=(layer.multipliers * 0.97).astype(np.int32))

    healthy = diff_model(path, [])
    names += [layer.name for layer in healthy.layers]
    assert healthy.agrees and healthy.reference == "tflite-micro"
    monkeypatch.setattr(conv2d, "constants_of", linear)
    result = diff_model(path, [])
    assert blamed(result) == [names[6]] and wrong_layers(result) == [names[6]]
    assert result.blame is not None and result.blame.shared
    assert diff_model(path, [], reference="cpu").agrees, "the CPU kernels share the error"


def test_a_changed_weight_layout_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original, chosen = conv2d.constants_of, of_one_layer((16, 3, 3, 16), 1)

    def mirrored(call: Any) -> Any:
        layer = original(call)
        if not chosen(layer.weights):
            return layer
        return replace(layer, weights=layer.weights.transpose(0, 2, 1, 3).copy())

    path = trained_model("pretrainedResnet_quant.tflite")
    names = [layer.name for layer in diff_model(path, [], most=1).layers]
    monkeypatch.setattr(conv2d, "constants_of", mirrored)
    result = diff_model(path, [])
    assert blamed(result) == [names[2]] == wrong_layers(result)


def test_a_wrong_rounding_is_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    original, chosen = conv2d.constants_of, of_one_layer((64, 1, 1, 64), 0)

    def linear(call: Any) -> Any:
        layer = original(call)
        # Half a step of the result, or a little less.
        step = 2.0**30 / (layer.multipliers * np.exp2(layer.shifts.astype(float)))
        moved = (layer.bias + 0.4 * step).astype(np.int32)
        return replace(layer, bias=moved) if chosen(layer.weights) else layer

    path = trained_model("kws_ref_model.tflite")
    names = [layer.name for layer in diff_model(path, []).layers]
    monkeypatch.setattr(conv2d, "constants_of", linear)
    result = diff_model(path, [])
    assert blamed(result) == [names[2]] and result.blame is not None
    assert "never off by more than one" in result.blame.explanation


def padded() -> onnx.ModelProto:
    graph = Graph(seed=5)
    x = graph.input("image", 1, 4, 8, 8)
    for number in range(3):
        x = graph.conv(x, 4, 2, name=f"conv{number}", auto_pad="SAME_UPPER", bias=True)
        x = graph.batch_norm(graph.node("Relu", x, name=f"relu{number}"), name=f"norm{number}")
    graph.output(graph.conv(x, 4, 3, name="last"))
    return graph.model()


def test_a_wrong_padding_of_the_import_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    original = files.resolve_padding

    def shifted(node: Any, parameters: Any, constants: Any) -> None:
        if node.name == "conv1":
            mode = next(item for item in node.attribute if item.name == "auto_pad")
            mode.s = b"SAME_LOWER"
        original(node, parameters, constants)

    path = save(padded(), tmp_path)
    assert diff_model(path, [vanilla()]).agrees
    monkeypatch.setattr(files, "resolve_padding", shifted)
    result = diff_model(path, [vanilla()])
    assert blamed(result) == ["conv1"]
    assert result.blame is not None and result.blame.shared
    also = {item.name for item in result.blame.also}
    assert "conv1" in also and not also & {"conv0", "conv2", "relu0", "last"}
    assert diff_model(path, [vanilla()], reference="cpu").agrees


def test_a_wrong_folding_of_a_batch_normalization_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    graph = Graph(seed=6)
    x = graph.input("image", 1, 4, 8, 8)
    for number in range(3):
        x = graph.batch_norm(graph.conv(x, 4, name=f"conv{number}"), name=f"norm{number}")
        x = graph.node("Relu", x, name=f"relu{number}")
    graph.output(x)
    path = save(graph.model(), tmp_path)
    folder = importlib.import_module("umakit.frontend.simplify")._Folder._cls
    original = folder._scaled
    calls: list[int] = []

    def scaled(self: Any, call: Any, layer: Any, weights: Any, scale: Any, shift: Any) -> Any:
        calls.append(1)
        return original(self, call, layer, weights, scale * (1.1 if len(calls) == 2 else 1), shift)

    assert diff_model(path, [vanilla()]).agrees
    monkeypatch.setattr(folder, "_scaled", scaled)
    result = diff_model(path, [vanilla()])
    assert blamed(result) == ["norm1"] and result.blame is not None and result.blame.shared
    assert {item.name for item in result.blame.also} == {"conv1"}


# --- no false alarms ----------------------------------------------------------------------------


def several_results() -> onnx.ModelProto:
    """Split, concatenation, tensors that are outputs and read again, shapes, no accelerator."""
    graph = Graph(seed=7)
    x = graph.conv(graph.input("image", 1, 6, 5, 7), 6, name="conv")
    left, right = graph.nodes("Split", x, results=2, axis=1, name="split")
    both = graph.node("Concat", right, left, axis=1, name="swap")
    flat = graph.node("Flatten", both, name="flat")
    scores = graph.dense(flat, 210, 5, name="scores")
    graph.output(left, scores, graph.node("Softmax", scores, name="probabilities"), both)
    graph.output(graph.node("Identity", graph.node("Exp", x, name="exp"), name="same"))
    return graph.model()


HEALTHY: dict[str, Callable[[], onnx.ModelProto]] = {
    "residual": residual,
    "mobilenet": lambda: mobilenet_v1(0.25, size=32),
    "folded": lambda: fold_batch_norms(mobilenet_v1(0.25, size=32)),
    "several_results": several_results,
}

REFERENCED = {"auto": "onnxruntime", "cpu": "cpu", "numpy": "numpy"}


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "reference"),
    some([(name, reference) for name in HEALTHY for reference in REFERENCED], 5),
)
def test_healthy_networks_agree(name: str, reference: str, tmp_path: Path) -> None:
    result = diff_model(save(HEALTHY[name](), tmp_path), [vanilla()], reference=reference)
    assert result.agrees and not wrong_layers(result), result.blame
    assert result.reference == REFERENCED[reference]
    assert (result.inferences, result.seeds) == (3, True)
    assert set(result.outputs) == {
        o.name for o in onnx.load(tmp_path / "network.onnx").graph.output
    }
    assert all(layer.own is not None for layer in result.layers)
    assert any(layer.where != "cpu" for layer in result.layers)


def test_a_network_with_a_pad_is_compared(tmp_path: Path) -> None:
    """A pad is a function of TIR from the import on."""
    graph = Graph()
    x = graph.node("Sigmoid", graph.input("x", 1, 5, 7))
    graph.output(graph.node("Pad", x, graph.constant([0, 0, 0, 0, 1, 1], "int64")))
    result = diff_model(save(graph.model(), tmp_path), [], most=1)
    assert result.agrees and all(layer.own is not None for layer in result.layers)


@pytest.mark.parametrize("name", ["ad01_int8.tflite", "pretrainedResnet.tflite"])
def test_healthy_tensorflow_lite_models_agree(name: str) -> None:
    result = diff_model(trained_model(name), [], most=2)
    assert result.agrees and result.inferences == 2
    assert {layer.reference for layer in result.layers} == {"tflite-micro"}


def test_an_error_that_only_some_inputs_show_is_found(plant: Plant, tmp_path: Path) -> None:
    model = residual()
    inputs = {name: np.stack([array] * 4) for name, array in random_inputs(model).items()}
    inputs["image"][2] *= -1
    inputs["labels"] = np.arange(4)
    sign = np.sign(inputs["image"][2].flat[0])
    wrong = f"if (ifmap[0] * {sign} > 0) result[3] = 7.0f;"
    path, backend = save(model, tmp_path), plant(0, wrong)
    result = diff_model(path, [backend], inputs=inputs)
    assert blamed(result) == ["stem"] and result.inferences == 3 and not result.seeds
    np.testing.assert_array_equal(result.inputs["image"], inputs["image"][2])
    assert diff_model(path, [backend], inputs=inputs, most=2).agrees


# --- references and mistakes --------------------------------------------------------------------


def test_without_another_runtime_numpy_is_the_reference(
    monkeypatch: pytest.MonkeyPatch, plant: Plant, tmp_path: Path
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if "onnxr" in name else find(name, *a)
    )
    result = diff_model(save(residual(), tmp_path), [plant(2, DOUBLE)])
    assert blamed(result) == ["twin2"] and result.reference == "numpy"
    assert {layer.reference for layer in result.layers} == {"cpu", "numpy"}
    assert any("onnxruntime is not installed" in notice for notice in result.notices)
    with pytest.raises(InputError, match="not installed"):
        diff_model(save(residual(), tmp_path), [], reference="onnxruntime")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reference": "tflite-micro"}, "does not read this model"),
        ({"reference": "oracle"}, "choose from auto, cpu"),
        ({"tolerance": -1.0}, "tolerance is -1"),
        ({"tolerance": float("nan")}, "tolerance is nan"),
        ({"most": 0}, "run at least one"),
        ({"inputs": {"image": np.zeros((3, 3), "float32")}}, "has shape"),
        ({"inputs": {"image": np.zeros((1, 4, 6, 10))}}, "is float64"),
    ],
)
def test_mistakes_are_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        diff_model(save(residual(), tmp_path), [], **options)


# --- the command --------------------------------------------------------------------------------

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


def test_the_command_says_where(uma: Uma, plant: Plant, tmp_path: Path) -> None:
    path, folder = save(residual(), tmp_path), Path(plant(2, DOUBLE).folder)
    code, output, _ = uma(path, "--backend", folder)
    assert code == 1
    assert f"first difference: nn.conv2d 'twin2' on {PLANTED} (layer " in output
    assert "looks like    equal after multiplying the reference by 2" in output
    assert "output head: differs at" in output
    written = {p.stem: np.load(p) for p in (tmp_path / "network_diff").glob("*.npz")}
    assert set(written) == {"inputs", "library", "reference", "layer_inputs"}
    np.testing.assert_allclose(written["library"]["twin2"], 2 * written["reference"]["twin2"])
    again = output.splitlines()[-1].removeprefix("Again: uma diff ").split()
    code, repeated, _ = uma(*again, "--json", "--output", "kept")
    report = json.loads(repeated)
    assert code == 1 and report["first"]["operators"][0]["name"] == "twin2"
    assert Path(report["files"]["library"]) == Path("kept/library.npz")
    assert Path(report["files"]["library"]).is_file() and not report["agrees"]


def test_the_command_says_that_all_agrees(uma: Uma, tmp_path: Path) -> None:
    path = save(residual(), tmp_path)
    code, output, _ = uma(path, "-b", "vanilla_accelerator")
    assert code == 0 and "layers agree" in output and "seeds 0 to 2" in output
    assert not (tmp_path / "network_diff").exists()
    code, printed, _ = uma(path, "--most", "1", "--json")
    keys = [layer["identity"]["key"] for layer in json.loads(printed)["layers"]]
    assert code == 0 and len(set(keys)) == len(keys) > 1
    umakit.compile_model(path, [], tmp_path / "library")
    layers = json.loads((tmp_path / "library" / "metadata.json").read_text())["umakit"]["layers"]
    assert keys == [layer["identity"]["key"] for layer in layers]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.onnx"], "no such file"),
        (["network.onnx", "-b", "nobody"], "nobody"),
        (["network.onnx", "--inputs", "none.npz"], "no such file"),
        (["network.onnx", "--output", "network.onnx"], "is not a folder"),
        (["network.onnx", "--reference", "oracle"], "no reference"),
    ],
)
def test_the_command_refuses_mistakes(
    arguments: list[str], message: str, uma: Uma, tmp_path: Path
) -> None:
    save(residual(), tmp_path)
    code, output, error = uma(*arguments)
    assert (code, output) == (2, "") and message in error and "Traceback" not in error


# --- tensors ------------------------------------------------------------------------------------


def test_floats_differ_by_more_than_the_tolerance() -> None:
    wanted = np.array([[0.0, -100.0], [3.0, np.inf]], "float32")
    near = wanted + np.array([[0.0009, 0.0], [0.0, 0.0]], "float32")
    assert compare(near, wanted).agrees and compare(near, wanted).limit == pytest.approx(1e-3)
    far = wanted + np.array([[0.002, 0.0], [0.0, 0.0]], "float32")
    item = compare(far, wanted)
    assert (item.differing, item.index, item.wanted) == (1, (0, 0), 0.0)
    assert compare(np.zeros(3, "float32"), np.zeros(3, "float32")).agrees
    assert compare(np.zeros((0, 2)), np.zeros((0, 2))).agrees


def test_numbers_that_are_not_finite() -> None:
    wanted = np.array([np.nan, np.inf, -np.inf, 1.0])
    assert compare(wanted.copy(), wanted).agrees
    for place, value in ((0, 0.0), (1, -np.inf), (2, np.nan), (3, np.nan), (3, np.inf)):
        got = wanted.copy()
        got[place] = value
        item = compare(got, wanted)
        assert (item.differing, item.index, item.largest) == (1, (place,), np.inf)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64", "int64", "bool"])
def test_integers_are_equal_or_not(dtype: str) -> None:
    wanted = np.ones(4, dtype)
    got = wanted.copy()
    got[2] = 0
    item = compare(got, wanted, tolerance=Tolerance(0.9))
    assert (item.differing, item.index, item.largest, item.limit) == (1, (2,), 1.0, 0.0)
    assert compare(wanted.copy(), wanted).agrees


def test_large_integers_are_compared_exactly() -> None:
    big = np.array([2**62 + 1, np.iinfo("int64").max])
    other = np.array([2**62, np.iinfo("int64").min])
    item = compare(big, other)
    assert item.differing == 2 and item.largest == 2.0**64
    assert compare(np.array([-128], "int8"), np.array([127], "int8")).largest == 255


TENSOR = normal(1, 3, 5, 7, seed=9)
INTEGERS = np.random.default_rng(2).integers(-120, 120, (1, 5, 4, 6)).astype("int8")


@pytest.mark.parametrize(
    ("got", "wanted", "sentence"),
    [
        (TENSOR.transpose(0, 2, 3, 1).reshape(TENSOR.shape), TENSOR, "channels last"),
        (TENSOR.transpose(0, 1, 3, 2).reshape(TENSOR.shape), TENSOR, "axes (0, 1, 3, 2)"),
        (TENSOR[:, :, ::-1], TENSOR, "flipping axis 2"),
        (TENSOR[:, ::-1, :, ::-1], TENSOR, "flipping axes (1, 3)"),
        (TENSOR + np.float32(0.5), TENSOR, "adding 0.5"),
        (TENSOR * np.float32(-3), TENSOR, "multiplying the reference by -3"),
        (np.clip(TENSOR, -1, 1), TENSOR, "from below at -1 and from above at 1"),
        (TENSOR, np.maximum(TENSOR, 0), "clipping the library's result from below at 0"),
        (np.roll(TENSOR, 1, 3), TENSOR, "by +1 along axis 3"),
        (np.roll(TENSOR, -1, 2), TENSOR, "by -1 along axis 2"),
        (np.zeros_like(TENSOR), TENSOR, "every element is 0"),
        (np.where(TENSOR > 1, np.nan, TENSOR), TENSOR, "NaN or infinite"),
        (INTEGERS + np.int8(1), INTEGERS, "adding 1"),
        (INTEGERS + (INTEGERS % 2), INTEGERS, "never off by more than one"),
        (normal(1, 3, 5, 7, seed=10), TENSOR, ""),
        (np.where(np.arange(7) == 3, 9, TENSOR), TENSOR, "wrong only at index 3 of axis 3"),
    ],
)
def test_simple_explanations(got: Any, wanted: Any, sentence: str) -> None:
    said = explain(got.astype(wanted.dtype), wanted, Tolerance(1e-5))
    assert sentence in said and bool(sentence) == bool(said)
