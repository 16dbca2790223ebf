# SPDX-License-Identifier: Apache-2.0
"""A driver with the arithmetic of `umakit/requantize.h`, and where the header is shipped."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from integer_backend import header_of
from networks import onnx_runtime
from tflite_networks import tflite_micro, trained_model

from umakit import PassPhase, UMABackend, compile_model, patterns, run_library
from umakit.library.export import Library

HERE = Path(__file__).parent
DIGITS = HERE.parent / "examples" / "digits"
HEADER = "codegen/host/src/umakit/requantize.h"
DECLARED = {
    "ruler_qconv2d": patterns.qconv2d(),
    "ruler_qdepthwise": patterns.qdepthwise(),
    "ruler_qconv2d_nchw": patterns.qconv2d(),
    "ruler_qdense": patterns.qdense(),
    "ruler_qadd": patterns.qadd(),
}


class Ruler(UMABackend):
    """An accelerator whose driver needs nothing but a compiler.

    Args:
        folder: becomes the backend's.
        registrations: patterns.
        drivers: C functions by pattern.
    """

    def __init__(self, folder: Path, registrations: Sequence[Any], **drivers: str) -> None:
        self._folder = folder
        (folder / "accel.toml").write_text(
            '[accelerator]\nname = "ruler"\n[array]\nrows = 4\ncolumns = 4\n'
            '[device]\nsimulator = "none"\n'
        )
        shutil.copy(HERE / "requantize_driver.c", folder)
        (folder / "requantize_driver.h").write_text(header_of(DECLARED))
        super().__init__()
        for registration in registrations:
            self._register_pattern(*registration)
        self._register_tir_pass(PassPhase.TIR_PHASE_0, patterns.driver_calls(**drivers))
        self._register_codegen(includes=lambda: '#include "requantize_driver.h"')
        self._register_driver(["requantize_driver.c"], ["requantize_driver.h"])

    @property
    def target_name(self) -> str:
        return "ruler"

    @property
    def folder(self) -> Path:
        return self._folder


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "backend"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("name", ["pretrainedResnet_quant.tflite", "kws_ref_model.tflite"])
def test_tensorflow_lite_micros_results(name: str, place: Path, tmp_path: Path) -> None:
    registrations = [
        patterns.qconv2d(), patterns.qdepthwise(), patterns.qdense(), patterns.qadd(),
    ]  # fmt: skip
    names = ("qconv2d", "qdepthwise", "qdense", "qadd")
    ruler = Ruler(place, registrations, **{kind: f"ruler_{kind}" for kind in names})
    path = trained_model(name)
    library = compile_model(path, [ruler], tmp_path / "library")
    assert library.report.offloaded_macs == library.report.total_macs > 0
    (input_view,) = library.metadata["umakit"]["inputs"]
    inputs = (
        np.random.default_rng(3).integers(-128, 128, (12, *input_view["shape"])).astype(np.int8)
    )
    (output,) = run_library(library.path, {input_view["name"]: inputs}).outputs.values()
    np.testing.assert_array_equal(output, tflite_micro(path.read_bytes(), inputs))
    assert (library.path / HEADER).is_file()


def test_onnx_runtimes_results(place: Path, tmp_path: Path) -> None:
    registrations = [
        patterns.qconv2d(rounding="ort", layouts="NCHW"),
        patterns.qdense(rounding="ort"),
    ]
    ruler = Ruler(place, registrations, qconv2d="ruler_qconv2d_nchw", qdense="ruler_qdense")
    library = compile_model(DIGITS / "digits_int8.onnx", [ruler], tmp_path / "library")
    assert library.report.offloaded_macs == library.report.total_macs > 0
    assert (library.path / HEADER).is_file()
    assert included(library) == {"ruler/requantize_driver.c"}
    images = np.random.default_rng(4).random((60, 1, 1, 8, 8), np.float32)
    (output,) = run_library(library.path, {"image": images}).outputs.values()
    model = onnx.load(str(DIGITS / "digits_int8.onnx"))
    for image, found in zip(images, output, strict=True):
        (expected,) = onnx_runtime(model, {"image": image}).values()
        np.testing.assert_array_equal(found.reshape(expected.shape), expected)


def included(library: Library) -> set[str]:
    """Paths of C files that include the header."""
    folder = library.path / "codegen/host/src"
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.c")
        if "umakit/requantize.h" in path.read_text()
    }


def test_the_header_is_shipped_where_it_is_used(tmp_path: Path) -> None:
    floats = compile_model(DIGITS / "digits.onnx", [], tmp_path / "floats")
    assert not (floats.path / HEADER).exists() and not included(floats)
    integers = compile_model(DIGITS / "digits_int8.onnx", [], tmp_path / "integers")
    assert (integers.path / HEADER).is_file() and included(integers) == {"tvmgen_digits_int8.c"}


def test_two_models_in_one_program_share_the_header(tmp_path: Path) -> None:
    sources: list[Path] = []
    for name in ("one", "two"):
        library = compile_model(DIGITS / "digits_int8.onnx", [], tmp_path / name, name=name)
        sources += sorted((library.path / "codegen/host/src").rglob("*.c"))
    program = tmp_path / "main.c"
    program.write_text("int main(void)\n{\n    return 0;\n}\n")
    flags = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    command = ["cc", *flags, str(program), *map(str, sources), "-lm", "-o", str(tmp_path / "main")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
