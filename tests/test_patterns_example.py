# SPDX-License-Identifier: Apache-2.0
"""The backend that `docs/patterns.md` prints, written to files as the page says."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from integer_backend import compiled, conv, dense, integers, network, results
from tflite_networks import tflite_micro, trained_model

from umakit import compile_model, patterns, run_library, sim
from umakit.backend.registry import load_backend_folder
from umakit.tools.diff import diff_model

PAGE = Path(__file__).parents[1] / "docs" / "patterns.md"
FILES = {"backend.py": "python", "berry.h": "c", "berry.c": "c", "accel.toml": "toml"}
RESIDUAL_FILES = {"backend.py": "python", "residual.c": "c"}


@pytest.fixture
def berry(tmp_path: Path) -> Any:
    """The files of the page."""
    folder = tmp_path / "berry"
    folder.mkdir()
    for name, text in blocks("An accelerator", FILES):
        (folder / name).write_text(text, encoding="utf-8")
    return load_backend_folder(folder)


def blocks(section: str, files: dict[str, str]) -> Iterator[tuple[str, str]]:
    """(file, text): the code of a section of the page.

    Args:
        section: beginning of its title.
        files: language of each block, by the name of the file that it is.
    """
    (text,) = re.findall(rf"^## {section}(.*?)^## ", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    found = re.findall(r"^```(\w+)\n(.*?)^```", text, re.M | re.S)
    assert [language for language, _ in found] == list(files.values())
    yield from zip(files, (code for _, code in found), strict=True)


def test_it_runs_a_trained_model_as_tensorflow_lite_micro(berry: Any, tmp_path: Path) -> None:
    path = trained_model("pretrainedResnet_quant.tflite")
    library = compile_model(path, [berry], tmp_path / "library")
    taken = [row for row in library.report.offloaded if row.operator == "quantized.conv2d"]
    assert len(taken) == 9 and library.report.offloaded_macs > 0.99 * library.report.total_macs
    inputs = integers(12, 1, 32, 32, 3)
    (output,) = run_library(library.path, {"input_1_int8": inputs}).outputs.values()
    np.testing.assert_array_equal(output, tflite_micro(path.read_bytes(), inputs))
    assert diff_model(path, [berry], most=1).agrees


@pytest.mark.parametrize("outputs", [1, 7, 8, 17])
def test_channels_that_fill_no_block(outputs: int, berry: Any, tmp_path: Path) -> None:
    module = network(
        lambda b, x: [
            conv(x, outputs, (3, 3), strides=(2, 2), padding=(1, 0, 1, 1)),
            conv(x, outputs, (1, 1), padding=(0, 0, 0, 0), scales=1, clip=(-90, 70)),
            conv(x, outputs, (5, 5), padding=(2, 2, 2, 2)),
        ],
        (1, 9, 8, 3),
    )
    library = compiled(module, [berry], tmp_path)
    assert {row.where for row in library.report.placements} == {"berry"}
    x = integers(4, 1, 9, 8, 3)
    wanted = results(module, [], tmp_path, x=x)
    for got, expected in zip(
        run_library(library.path, {"x": x}).outputs.values(), wanted, strict=True
    ):
        np.testing.assert_array_equal(got, expected)


def test_what_does_not_fit_is_refused_with_its_size(berry: Any, tmp_path: Path) -> None:
    module = network(lambda b, x: conv(x, 2), (1, 4, 90, 40))
    (row,) = compiled(module, [berry], tmp_path).report.placements
    assert row.reason == "90x40 bytes a row: the local memory has 8192"


def assert_clean(source: Path, *others: str) -> None:
    """Strict compilers have nothing to say."""
    include = f"-I{sim.source_directory() / 'include'}"
    for compiler in ("gcc", "clang"):
        if shutil.which(compiler):
            flags = "-std=c99 -O2 -Wall -Wextra -Wpedantic -Wshadow -Werror -c -o".split()
            output = str(source.with_suffix(".o"))
            command = [compiler, include, *others, *flags, output, str(source)]
            subprocess.run(command, check=True)


def test_its_c_is_clean(berry: Any) -> None:
    assert_clean(berry.folder / "berry.c")


# --- weights in a memory of the accelerator -------------------------------------------------------

LOCAL_FILES = {"backend.py": "python", "accel.toml": "toml", "local.h": "c", "local.c": "c"}


def test_weights_are_copied_into_a_memory_of_the_accelerator(tmp_path: Path) -> None:
    folder = tmp_path / "local"
    folder.mkdir()
    for name, text in blocks("Where constants", LOCAL_FILES):
        (folder / name).write_text(text, encoding="utf-8")
    backend = load_backend_folder(folder)
    module = network(lambda b, x: dense(b.emit(dense(x, 16, scales=16)), 9), (3, 40))
    library = compiled(module, [backend], tmp_path)
    assert {row.where for row in library.report.placements} == {"local"}
    (pool,) = library.metadata["umakit"]["memory"]["scratchpads"]
    assert [tensor["size_bytes"] for tensor in pool["tensors"]] == [640, 144]
    x = integers(5, 3, 40)
    (got,) = run_library(library.path, {"x": x}).outputs.values()
    np.testing.assert_array_equal(got, results(module, [], tmp_path, x=x)[0])
    (row,) = compiled(network(lambda b, x: dense(x, 64), (1, 80)), [backend], tmp_path
                      ).report.placements  # fmt: skip
    assert row.reason == "5120 bytes of weights: the accelerator's memory has 4096"
    assert_clean(folder / "local.c")


# --- a sum behind a convolution -----------------------------------------------------------------

SUMS = """
{convolution}
{{
    return ruler_qconv2d({plain});
}}

{both}
{{
    const int32_t status = ruler_qconv2d({plain});
    for (int32_t i = 0; i < batch * output_height * output_width * output_channels; ++i) {{
        result[i] = added(result[i], addend[i], output_zero_point, rounding, {numbers});
    }}
    return status;
}}
"""


@pytest.fixture
def residual(tmp_path: Path) -> Any:
    """The section's backend; its sums stand behind the convolution of `requantize_driver.c`."""
    folder = tmp_path / "residual"
    folder.mkdir()
    for name, text in blocks("A sum behind a convolution", RESIDUAL_FILES):
        (folder / name).write_text(text, encoding="utf-8")
    convolution = patterns.c_declaration("residual_conv2d", patterns.qconv2d())
    both = patterns.c_declaration("residual_conv2d_add", patterns.qconv2d_add())
    header = ["#pragma once", "#include <stdint.h>", convolution, both, ""]
    (folder / "residual.h").write_text("\n".join(header), encoding="utf-8")
    plain, arguments = (re.findall(r"(\w+)[,)]", text) for text in (convolution, both))
    sums = SUMS.format(
        convolution=convolution.rstrip(";"),
        both=both.rstrip(";"),
        plain=", ".join(plain),
        numbers=", ".join(arguments[arguments.index("add_left_shift") :]),
    )
    driver = (Path(__file__).parent / "requantize_driver.c").read_text(encoding="utf-8")
    with (folder / "residual.c").open("a", encoding="utf-8") as stream:
        stream.write(driver.replace("requantize_driver.h", "residual.h") + sums)
    (folder / "__init__.py").touch()
    (folder / "accel.toml").write_text(
        '[accelerator]\nname = "residual"\n[array]\nrows = 8\ncolumns = 8\n', encoding="utf-8"
    )
    return load_backend_folder(folder)


def test_the_sum_equals_tensorflow_lite_micro(residual: Any, tmp_path: Path) -> None:
    path = trained_model("pretrainedResnet_quant.tflite")
    library = compile_model(path, [residual], tmp_path / "library", name="net")
    taken = [row.operator for row in library.report.offloaded]
    assert taken.count("quantized.conv2d") == 9 and taken.count("quantized.add") == 3
    text = (library.path / "codegen/host/src/tvmgen_net.c").read_text(encoding="utf-8")
    assert len(re.findall(r"(?:=|return) residual_conv2d_add\(", text)) == 3
    inputs = integers(12, 1, 32, 32, 3)
    (output,) = run_library(library.path, {"input_1_int8": inputs}).outputs.values()
    np.testing.assert_array_equal(output, tflite_micro(path.read_bytes(), inputs))


def test_its_c_is_clean_too(residual: Any) -> None:
    assert_clean(residual.folder / "residual.c")
