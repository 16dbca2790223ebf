# SPDX-License-Identifier: Apache-2.0
"""Faults of data/rtl_faults.toml, and checks that can fail; `make soak-rtl` looks for them all."""

from __future__ import annotations

import os
import shutil
import tomllib
from pathlib import Path

import pytest
from rtl_faults import CHOCOLATE, DATA, DIGITS, ROOT, STRAWBERRY, RtlFault, manual_faults
from rtl_mutator import mutants
from square import SOURCES

from umakit import find_backend
from umakit.testing import check_backend
from umakit.tools.cosim import cosim_model

FAULTS = manual_faults()
KINDS = (
    "adder width", "swapped stride", "lost interrupt", "FIFO drops when full", "saturation",
    "byte enables", "read during write", "driver",
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _verilator() -> None:
    if shutil.which("verilator") is None and not os.environ.get("UMAKIT_CI"):
        pytest.skip("Verilator is not installed")


def the_fault(word: str) -> RtlFault:
    (found,) = [each for each in FAULTS if word in each.kind]
    return found


def test_every_fault_is_one_edit_of_a_file_and_all_kinds_are_there() -> None:
    assert {each.name: each.text.count(each.old) for each in FAULTS} == {
        each.name: 1 for each in FAULTS
    }
    assert len({each.name for each in FAULTS}) == len(FAULTS)
    assert [kind for kind in KINDS if not any(kind in each.kind for each in FAULTS)] == []


def test_every_mutant_that_counts_as_equivalent_is_one_of_the_designs() -> None:
    content = tomllib.loads(DATA.read_text(encoding="utf-8"))
    folders = [ROOT / STRAWBERRY / "rtl", ROOT / CHOCOLATE / "rtl", SOURCES]
    for each in content["equivalent"]:
        told = (each["code"], each["old"], each["new"])
        paths = [folder / each["file"] for folder in folders]
        texts = [path.read_text(encoding="utf-8") for path in paths if path.exists()]
        found = [mutant for text in texts for mutant in mutants(text, each["file"])
                 if (mutant.code, mutant.old, mutant.new) == told]  # fmt: skip
        assert found, each
        assert len(each["why"]) > 50


@pytest.mark.parametrize("layer", ["conv2", "dense"])
def test_corrupted_values_fail_in_the_layer_that_has_them(layer: str) -> None:
    backends = [find_backend(str(ROOT / STRAWBERRY))]
    result = cosim_model(DIGITS, backends, corrupt=layer)
    assert result.difference is not None
    assert result.difference.layer == layer
    assert f"layer {layer}" in result.difference.sentence or layer in result.difference.sentence


def test_the_design_passes_digits_and_drawn_layers() -> None:
    backend = find_backend(str(ROOT / STRAWBERRY))
    assert cosim_model(DIGITS, [backend]).difference is None
    report = check_backend(backend, draws=12, seconds=300.0, device="rtl")
    assert [each.what for each in report.failures] == []
    assert report.programs is not None
    assert report.programs.outcomes["ok"] > 20 and report.programs.outcomes["error"] > 5
    assert sum(counts.ran for counts in report.operators.values()) > 0


def test_a_fault_in_the_design_fails_digits(tmp_path: Path) -> None:
    backend = find_backend(str(the_fault("swapped strides of rows and columns").planted(tmp_path)))
    difference = cosim_model(DIGITS, [backend]).difference
    assert difference is not None
    assert difference.kind == "memory"


def test_a_fault_in_the_driver_fails_drawn_layers(tmp_path: Path) -> None:
    # Model and RTL are given the same wrong commands: only a reference shows it.
    backend = find_backend(str(the_fault("driver: a copy of an odd number").planted(tmp_path)))
    report = check_backend(backend, draws=20, seconds=120.0, device="rtl")
    assert not report.passed
    assert {each.pattern for each in report.failures} <= {"qconv2d", "qdepthwise", "qdense"}
