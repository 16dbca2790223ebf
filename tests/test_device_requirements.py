# SPDX-License-Identifier: Apache-2.0
"""What the README of an export says about the device, tried on devices of other configurations."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from umakit import compile_model, run_library
from umakit.backend.registry import find_backend
from umakit.errors import DeviceError
from umakit.library.export import Library

CHOCOLATE = "chocolate_accelerator"
DIGITS = Path(__file__).parents[1] / "examples" / "digits"
ACCUMULATORS = ".accumulator_bytes = 32768u"
SCRATCHPAD = ".scratchpad_bytes = 131072u"
BANK = 4096


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    folder = tmp_path_factory.mktemp("digits")
    return compile_model(DIGITS / "digits_int8.onnx", [find_backend(CHOCOLATE)], folder / "library")


def on_another_device(
    library: Library, folder: Path, before: str, after: str, backend: str = CHOCOLATE
) -> np.ndarray:
    """The logits of an image on a simulated device with a changed configuration."""
    shutil.copytree(library.path, folder)
    device = folder / f"codegen/host/src/{backend}/{backend}_device.c"
    text = device.read_text(encoding="utf-8")
    assert before in text
    device.write_text(text.replace(before, after), encoding="utf-8")
    images = np.load(DIGITS / "held_out.npz")
    (result,) = run_library(folder, {"image": images["image"][:1]}).outputs.values()
    return result


def test_a_scratchpad_of_the_size_in_the_readme_is_enough(library: Library, tmp_path: Path) -> None:
    readme = (library.path / "README.md").read_text(encoding="utf-8")
    (least,) = map(int, re.findall(r"`SCRATCHPAD_BYTES` \| at least (\d+) \|", readme))
    assert 0 < least < 131072 and least % BANK == 0
    wanted = on_another_device(library, tmp_path / "as_it_is", SCRATCHPAD, SCRATCHPAD)
    smaller = f".scratchpad_bytes = {least}u, .scratchpad_banks = {least // BANK}u"
    before = f"{SCRATCHPAD},\n        .scratchpad_banks = 32u"
    result = on_another_device(library, tmp_path / "smaller", before, smaller)
    np.testing.assert_array_equal(result, wanted)


def test_accumulators_and_features_of_the_readme_are_all_that_is_needed(
    library: Library, tmp_path: Path
) -> None:
    readme = (library.path / "README.md").read_text(encoding="utf-8")
    (least,) = map(int, re.findall(r"`ACCUMULATOR_BYTES` \| at least (\d+) \|", readme))
    (features,) = re.findall(r"`FEATURES` \| ([A-Z_, ]+) \|", readme)
    assert features == "OUTPUT_STATIONARY, WEIGHT_STATIONARY, POOLING"
    assert "`VERSION` | major 1, minor at least 1 |" in readme
    others = "        .input_stationary = true,\n        .depthwise = true,\n"
    enough = on_another_device(library, tmp_path / "features", others, "")
    sums = on_another_device(
        library, tmp_path / "sums", ACCUMULATORS, f".accumulator_bytes = {least}u"
    )
    np.testing.assert_array_equal(enough, sums)
    fewer = f".accumulator_bytes = {least - 4}u"
    with pytest.raises(DeviceError, match="address or size out of range"):
        on_another_device(library, tmp_path / "fewer", ACCUMULATORS, fewer)
    (cycles,) = map(int, re.findall(r"the (\d+) cycles that the longest layer takes", readme))
    images = np.load(DIGITS / "held_out.npz")["image"][:1]
    profiled = run_library(library.path, {"image": images}, profile=True)
    assert cycles == max(layer.clock_cycles or 0 for layer in profiled.layers)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (SCRATCHPAD, ".scratchpad_bytes = 4096u", "address or size out of range"),
        (".dma_alignment = 1u", ".dma_alignment = 64u", "misaligned address"),
    ],
    ids=["scratchpad", "alignment"],
)
def test_a_device_that_lacks_something_has_no_result(
    before: str, after: str, message: str, library: Library, tmp_path: Path
) -> None:
    readme = (library.path / "README.md").read_text(encoding="utf-8")
    assert "`UMAKIT_OUT_OF_RANGE`" in readme and "`UMAKIT_MISALIGNED`" in readme
    with pytest.raises(DeviceError, match=message):
        on_another_device(library, tmp_path / "library", before, after)


def test_a_backend_without_tiles_says_what_it_needs(tmp_path: Path) -> None:
    name, size = "strawberry_accelerator", ".scratchpad_bytes = 65536u"
    backend = find_backend(name)
    library = compile_model(DIGITS / "digits_int8.onnx", [backend], tmp_path / "library")
    readme = (library.path / "README.md").read_text(encoding="utf-8")
    (least,) = map(int, re.findall(r"`SCRATCHPAD_BYTES` \| at least (\d+) \|", readme))
    smallest = f".scratchpad_bytes = {least}u"
    wanted = on_another_device(library, tmp_path / "as_it_is", size, size, name)
    found = on_another_device(library, tmp_path / "smallest", size, smallest, name)
    np.testing.assert_array_equal(found, wanted)
    with pytest.raises(DeviceError, match="address or size out of range"):
        fewer = f".scratchpad_bytes = {least - 16}u"
        on_another_device(library, tmp_path / "fewer", size, fewer, name)
    assert "| `FEATURES` | OUTPUT_STATIONARY |" in readme and "ACCUMULATOR_BYTES" not in readme
