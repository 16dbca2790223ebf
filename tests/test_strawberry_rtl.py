# SPDX-License-Identifier: Apache-2.0
"""Strawberry's RTL against the C model, through registers; its buses against their rules."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rtl_builds import need_verilator

FOLDER = Path(__file__).with_name("rtl")
sys.path.insert(0, str(FOLDER))

import compare  # noqa: E402
import compare_faults  # noqa: E402
import layers  # noqa: E402
import verilated_strawberry  # noqa: E402

LONGEST_LAYERS = ("16 to 16", "32 to 32", "64 to 64")
REST_CYCLES = 6
"""Cycles of a layer beyond the model's and a cycle for each access to a register."""


@pytest.fixture(scope="module")
def rtl() -> verilated_strawberry.RtlDevice:
    need_verilator()
    return verilated_strawberry.RtlDevice()


@pytest.mark.parametrize("parameters", [{}, {"ROWS": 4, "COLUMNS": 16, "DRAIN_CYCLES": 9}])
def test_verilator_has_no_warning_about_the_design(parameters: dict[str, int]) -> None:
    need_verilator()
    options = [f"-G{name}={value}" for name, value in parameters.items()]
    files = [str(path) for path in verilated_strawberry.sources()]
    command = ["verilator", "--lint-only", "-Wall", "--top-module", "strawberry", *options, *files]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout + result.stderr) == (0, "")


def test_random_programs_end_as_on_the_model(rtl: verilated_strawberry.RtlDevice) -> None:
    report = compare.Report()
    for seed in range(32):
        rtl.randomize(seed + 1, seed if seed % 4 == 3 else 0)
        compare.run_program(compare.Pair(rtl, report), seed)
    rtl.randomize(0, 0)
    rtl.reset()  # which ends the pauses
    assert report.differences == [] and report.compared > 1000


@pytest.mark.parametrize("phase", compare_faults.PHASES, ids=lambda phase: phase.__name__)
def test_what_goes_wrong_is_answered_as_by_the_model(
    rtl: verilated_strawberry.RtlDevice, phase: Callable[[Any], None]
) -> None:
    report = compare.Report()
    compare_faults.run_phase(phase, rtl, report)
    assert report.differences == [] and report.compared > 100


def test_layers_take_as_many_cycles_as_the_page_says(rtl: verilated_strawberry.RtlDevice) -> None:
    model = layers.ModelDevice()
    for layer in layers.LAYERS:
        if layer[0].endswith(LONGEST_LAYERS):
            continue
        expected, accesses, result = layers.run_layer(model, layer)
        found, rtl_accesses, rtl_result = layers.run_layer(rtl, layer)
        assert rtl_result == result, layer
        assert rtl_accesses == accesses
        assert 0 <= found - expected - accesses <= REST_CYCLES, layer


def test_the_register_bus_keeps_its_rules(tmp_path: Path) -> None:
    need_verilator()
    folder = verilated_strawberry.verilated().parent
    program = tmp_path / "bus"
    command = ["g++", "-std=c++17", "-O1", *verilated_strawberry.include_flags(folder), "-o",
               program, FOLDER / "strawberry_bus.cc", folder / "design.o", "-pthread"]  # fmt: skip
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    result = subprocess.run([program, "200000", "3"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
