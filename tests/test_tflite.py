# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite files: trained int8 models bit by bit, and files that must be refused."""

from __future__ import annotations

import importlib.util
import random
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparisons import inferences
from strict import WARNINGS
from tflite_networks import Array, TfliteFile, tflite_micro, trained_model

import umakit
from umakit.errors import InputError, ModelError, UmakitError
from umakit.frontend import import_model
from umakit.pipeline import compile_model
from umakit.quantized import quantize_to_integers

pytestmark = pytest.mark.optimized

INT8_MODELS = ("ad01_int8.tflite", "pretrainedResnet_quant.tflite", "kws_ref_model.tflite")
EACH = max(100, inferences(0) // 3)
"""Inputs of each kind."""


def model_inputs(shape: tuple[int, ...]) -> Array:
    """Uniform noise, smooth images, extremes, and single pixels on a flat ground."""
    noise = np.random.default_rng(5)
    many = (EACH, *shape)
    uniform = noise.integers(-128, 128, many)
    steps = noise.normal(0, 6, many).cumsum(axis=-1)
    if len(shape) == 4:
        steps = (steps.cumsum(axis=-2) + noise.normal(0, 6, many).cumsum(axis=-3)) / 2
    smooth = np.clip(steps + noise.normal(0, 40, (EACH, *[1] * len(shape))), -128, 127)
    extremes = noise.choice([-128, 127], (EACH // 2, *shape))
    flat = np.repeat(np.linspace(-128, 127, EACH // 2), int(np.prod(shape)))
    flat = flat.reshape(EACH // 2, *shape)
    flat.reshape(EACH // 2, -1)[:, 7] = 127
    return np.concatenate([uniform, smooth, extremes, flat]).astype(np.int8)


@cache
def compiled(name: str, folder: Path) -> tuple[Path, umakit.Library]:
    path = trained_model(name)
    return path, compile_model(path, [], folder / path.stem)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    folder = tmp_path_factory.mktemp("tflite")
    return lambda name: compiled(name, folder)


def bound(name: str) -> int:
    """The live-set bound that the models' table lists, in bytes."""
    table = (trained_model(name).parent / "README.md").read_text(encoding="utf-8")
    (row,) = (line for line in table.splitlines() if line.startswith(f"| `{name}`"))
    return int(row.split("|")[5].replace(",", "").removesuffix(" B ").strip())


@pytest.mark.soak
@pytest.mark.parametrize("name", INT8_MODELS)
def test_int8_models_equal_tensorflow_lite_micro(name: str, library: Callable[[str], Any]) -> None:
    path, exported = library(name)
    (known,) = exported.metadata["umakit"]["inputs"]
    inputs = model_inputs(tuple(known["shape"]))
    expected = tflite_micro(path.read_bytes(), inputs)
    result = umakit.run_library(exported.path, {known["name"]: inputs})
    (output,) = result.outputs.values()
    assert len(np.unique(expected)) > 20
    assert output.dtype == expected.dtype == np.int8
    np.testing.assert_array_equal(output, expected)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("name", INT8_MODELS)
def test_int8_models_compile_without_a_warning(
    name: str, compiler: str, library: Callable[[str], Any], tmp_path: Path
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    sources = sorted((library(name)[1].path / "codegen/host/src").rglob("*.c"))
    command = [compiler, "-std=c99", "-O2", *WARNINGS, "-c", *sources]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("name", INT8_MODELS)
def test_int8_models_need_no_more_than_their_live_set(
    name: str, library: Callable[[str], Any]
) -> None:
    _, exported = library(name)
    assert 0 < exported.metadata["umakit"]["memory"]["arena_bytes"] <= bound(name)


@pytest.mark.parametrize("name", INT8_MODELS)
def test_int8_models_use_no_floating_point(name: str, library: Callable[[str], Any]) -> None:
    _, exported = library(name)
    for source in (exported.path / "codegen" / "host").rglob("*.[ch]"):
        text = source.read_text(encoding="utf-8")
        assert not re.search(r"\b(float|double)\b", text), source.name


@pytest.mark.parametrize("name", INT8_MODELS)
def test_reports_call_operators_as_the_model_does(name: str, library: Callable[[str], Any]) -> None:
    path, exported = library(name)
    placements = exported.report.placements
    assert all(row.operator.startswith("quantized.") or row.operator == "reshape"
               for row in placements)  # fmt: skip
    assert placements[-1].name.startswith("Identity")
    assert len({row.name for row in placements}) == len(placements)
    macs = int(re.search(  # type: ignore[union-attr]
        rf"`{name}`.*?\| ([\d,]+) \|", (path.parent / "README.md").read_text()
    )[1].replace(",", ""))  # fmt: skip
    assert exported.report.total_macs == macs


def test_a_float_model_equals_tensorflow_lite_micro(library: Callable[[str], Any]) -> None:
    path, exported = library("pretrainedResnet.tflite")
    (known,) = exported.metadata["umakit"]["inputs"]
    inputs = (
        np.random.default_rng(3).uniform(0, 255, (EACH // 10, *known["shape"])).astype(np.float32)
    )
    expected = tflite_micro(path.read_bytes(), inputs)
    (output,) = umakit.run_library(exported.path, {known["name"]: inputs}).outputs.values()
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_inputs_and_outputs_say_what_their_integers_stand_for() -> None:
    model = import_model(trained_model("ad01_int8.tflite"))
    (given,), (result,) = model.inputs, model.outputs
    assert (given.name, result.name) == ("input_1", "Identity")
    assert given.quantization is not None and result.quantization is not None
    assert given.quantization.zero_point == 89
    assert given.quantization.scale == pytest.approx(0.391015, abs=1e-6)
    assert any("dimension 0 has no fixed size" in notice for notice in model.notices)


# --- small files --------------------------------------------------------------------------------


def convolution(
    *, dtype: str = "int8", scale: float | tuple[()] = 0.1, stride: int = 1,
    shape: tuple[int, ...] = (1, 4, 4, 2), version: int = 3, weights_zero_point: int = 0,
) -> bytes:  # fmt: skip
    """One convolution, with something wrong with it or not."""
    file = TfliteFile(version)
    x = file.tensor(shape, dtype, scale=scale, zero_point=3, name="x")
    weights = np.arange(-9, 9, dtype=np.int8).reshape(1, 3, 3, 2)
    w = file.tensor(
        [1, 3, 3, 2], scale=0.5, zero_point=weights_zero_point, data=weights, name="weights"
    )
    y = file.tensor([1, 4, 4, 1], dtype, scale=2.0, zero_point=1, name="conv/y")
    file.operator(
        "CONV_2D", [x, w, -1], [y], "Conv2DOptions", StrideH=stride, StrideW=1,
        DilationHFactor=1, DilationWFactor=1,
    )  # fmt: skip
    return file.finish([x], [y])


def single(code: str, options: str = "", dtype: str = "int8", **values: Any) -> bytes:
    """One operator with one input."""
    file = TfliteFile()
    known: Any = {"scale": 0.1} if dtype != "float32" else {}
    x = file.tensor([1, 4], dtype, **known, name="x")
    y = file.tensor([1, 4], dtype, **known, name="y")
    custom = values.pop("custom", "")
    file.operator(code, [x], [y], options, custom=custom, **values)
    return file.finish([x], [y])


def write(folder: Path, content: bytes, name: str = "net.tflite") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def compile_quietly(path: Path, folder: Path) -> umakit.Library:
    return compile_model(path, [], folder / "library")


def test_a_file_is_known_by_its_content(tmp_path: Path) -> None:
    assert import_model(write(tmp_path, convolution(), "net.onnx")).inputs[0].name == "x"


def test_a_library_from_a_damaged_or_foreign_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is not a TensorFlow Lite file"):
        import_model(write(tmp_path, b"something else altogether"))
    with pytest.raises(ModelError, match="no such file"):
        import_model(tmp_path / "missing.tflite")


REFUSED = {
    "a dynamic shape": (convolution(shape=(1, -1, 4, 2)), "tensor 'x' has the dynamic shape"),
    "no scale": (convolution(scale=()), "CONV_2D that writes 'conv/y': tensor 'x' has no scale"),
    "a stride of 0": (convolution(stride=0), "CONV_2D that writes 'conv/y': its StrideH is 0"),
    "weights of another width": (convolution(dtype="uint8"), "uint8, int8 to uint8; let data"),
    "int16": (convolution(dtype="int16"), "tensor 'x' has a zero point that is not int16"),
    "weights of another type": (convolution(dtype="float32"), "float32, int8 to float32"),
    "weights with a zero point": (
        convolution(weights_zero_point=2), "'weights' have the zero point 2, which kernels"
    ),
    "another schema": (convolution(version=2), "has schema version 2, not 3"),
    "a custom operator": (single("CUSTOM", custom="Magic"), "CUSTOM Magic that writes 'y' is not"),
    "an operator of strings": (
        single("SKIP_GRAM", dtype="float32"), "SKIP_GRAM that writes 'y' is not"
    ),
    "a quantized one": (single("EXP"), "EXP that writes 'y' is not supported as a quant"),
    "a hot softmax": (single("SOFTMAX", "SoftmaxOptions", Beta=0.5), "its beta is 0.5"),
    "options of nothing": (single("SOFTMAX"), "its options are missing"),
    "a strange scale": (
        single("SOFTMAX", "SoftmaxOptions", Beta=1.0), "softmax's result has a scale other than"
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_files_are_refused_with_operator_tensor_and_file(why: str, tmp_path: Path) -> None:
    content, message = REFUSED[why]
    with pytest.raises(ModelError, match=message) as refused:
        quantize_to_integers(import_model(write(tmp_path, content)))
    assert "net" in str(refused.value)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, convolution())
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"pip install 'umakit\[tflite\]'"):
        import_model(path)


def test_shapes_that_the_file_does_not_have_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, convolution())
    import_model(path, input_shapes={"x": [1, 4, 4, 2]})
    with pytest.raises(ModelError, match=r"has the shape \[1, 4, 4, 2\], not \[2, 4, 4, 2\]"):
        import_model(path, input_shapes={"x": [2, 4, 4, 2]})
    with pytest.raises(ModelError, match="there is no input 'z'; inputs are x"):
        import_model(path, input_shapes={"z": [1]})


def test_tensors_of_the_same_name_are_kept_apart(tmp_path: Path) -> None:
    file = TfliteFile()
    known = {"scale": 0.5, "zero_point": 0}
    x = file.tensor([1, 4], **known, name="same")
    y, z = (file.tensor([1, 4], **known, name="same") for _ in range(2))
    file.operator("RELU", [x], [y])
    file.operator("ADD", [x, y], [z], "AddOptions")
    content = file.finish([x], [z])
    inputs = np.array([[[-128, -1, 0, 60]]], np.int8)
    exported = compile_quietly(write(tmp_path, content), tmp_path)
    (output,) = umakit.run_library(exported.path, {"same": inputs}).outputs.values()
    np.testing.assert_array_equal(output, tflite_micro(content, inputs))


def softmax_of(length: int) -> bytes:
    file = TfliteFile()
    x = file.tensor([1, length], scale=0.1, zero_point=0, name="x")
    y = file.tensor([1, length], scale=1 / 256, zero_point=-128, name="y")
    file.operator("SOFTMAX", [x], [y], "SoftmaxOptions", Beta=1.0)
    return file.finish([x], [y])


@pytest.mark.parametrize("length", [511, 4095])
def test_softmax_is_over_as_many_equal_elements_as_its_sum_holds(
    length: int, tmp_path: Path
) -> None:
    """Quotients below 1/512 are 0; TensorFlow Lite ends the program where all of a row are."""
    inputs = np.full((2, 1, length), 7, np.int8)
    inputs[1, 0, 9] = 127
    exported = compile_quietly(write(tmp_path, softmax_of(length)), tmp_path)
    (output,) = umakit.run_library(exported.path, {"x": inputs}).outputs.values()
    powers = np.exp((inputs - inputs.max(axis=2, keepdims=True).astype(int)) * 0.1)
    wanted = np.rint(256 * powers / powers.sum(axis=2, keepdims=True)) - 128
    np.testing.assert_array_equal(output, wanted.clip(-128, 127))
    if length == 511:
        np.testing.assert_array_equal(output, tflite_micro(softmax_of(length), inputs))


def test_softmax_whose_sum_overflows_is_refused(tmp_path: Path) -> None:
    """The reference's int32 overflows at 4,096 exponentials of 2**19, which C does not define."""
    with pytest.raises(ModelError, match=r"'y'.* softmax is over 4096 elements: .* than 4095 are"):
        quantize_to_integers(import_model(write(tmp_path, softmax_of(4096))))


def test_explicit_quantize_and_dequantize_stay_in_float_and_are_named(tmp_path: Path) -> None:
    """Between DEQUANTIZE and QUANTIZE TensorFlow Lite computes in float, and so do we."""
    file = TfliteFile()
    x = file.tensor([1, 12], scale=0.07, zero_point=4, name="x")
    real = file.tensor([1, 12], "float32", name="real")
    probable = file.tensor([1, 12], "float32", name="probable")
    y = file.tensor([1, 12], scale=1 / 256, zero_point=-128, name="y")
    file.operator("DEQUANTIZE", [x], [real], "DequantizeOptions")
    file.operator("SOFTMAX", [real], [probable], "SoftmaxOptions", Beta=1.0)
    file.operator("QUANTIZE", [probable], [y], "QuantizeOptions")
    content = file.finish([x], [y])
    path, said = write(tmp_path, content), []
    exported = compile_model(path, [], tmp_path / "library", notice=said.append)
    inputs = np.random.default_rng(0).integers(-128, 128, (40, 1, 12)).astype(np.int8)
    output = umakit.run_library(exported.path, {"x": inputs}).outputs["y"]
    np.testing.assert_array_equal(output, tflite_micro(content, inputs))
    assert any("'probable' (nn.softmax) computes in floating point" in line for line in said)


# --- damaged files ------------------------------------------------------------------------------


def damaged(content: bytes, count: int, seed: int) -> list[bytes]:
    """Truncated files, and files with a few bytes changed."""
    chance = random.Random(seed)
    files = [content[: chance.randrange(8, len(content))] for _ in range(count // 3)]
    for _ in range(count - len(files)):
        changed = bytearray(content)
        for _ in range(chance.choice([1, 1, 2, 8])):
            changed[chance.randrange(8, len(changed))] = chance.choice([0, 1, 127, 128, 255])
        files.append(bytes(changed))
    return files


@pytest.mark.parametrize("seed", range(3))
def test_damaged_files_never_end_in_a_crash(seed: int, tmp_path: Path) -> None:
    for content in damaged(convolution(), 60, seed):
        path = write(tmp_path, content)
        try:
            compile_quietly(path, tmp_path)
        except UmakitError as error:
            assert not isinstance(error, InputError)
