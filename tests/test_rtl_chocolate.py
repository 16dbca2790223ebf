# SPDX-License-Identifier: Apache-2.0
"""The SystemVerilog of Chocolate: clean under Verilator's warnings, and equal to the C model."""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from rtl import compare_chocolate
from rtl.compare_chocolate import RTL, sources

STRAWBERRY = RTL.parents[1] / "strawberry_accelerator" / "rtl"
TEMPLATES = RTL.parents[2] / "templates"
SHARED = ("axi_lite_registers", "dma_engine", "fixed_point_pkg", "requantizer")


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that runs register accesses on both."""
    if shutil.which("verilator") is None:
        assert not os.environ.get("UMAKIT_CI"), "CI lacks verilator: see .ci/run"
        pytest.skip("verilator is not installed")
    return compare_chocolate.build(tmp_path_factory.mktemp("chocolate"))


@pytest.mark.parametrize("seed", ["1", "2"])
def test_random_programs_do_the_same_on_both(comparison: Path, seed: str) -> None:
    result = subprocess.run([comparison, "60", seed], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
    assert result.stdout.startswith("0 differences"), result.stdout


def test_cycles_of_long_streams_are_those_of_the_model(comparison: Path) -> None:
    result = subprocess.run([comparison, "150", "3"], capture_output=True, text=True, check=False)
    rows = [line.split() for line in result.stdout.splitlines() if "%" in line]
    worst = [float(row[-1].rstrip("%")) for row in rows if row[0] in ("10,000", "from")]
    assert worst
    assert all(abs(off) <= 2 for off in worst), result.stdout


def test_accel_toml_has_the_parameters_of_the_top() -> None:
    text = (RTL / "chocolate.sv").read_text(encoding="utf-8")
    config = tomllib.loads((RTL.parent / "accel.toml").read_text(encoding="utf-8"))
    scratchpad = config["memory"][0]
    expected = {
        "ROWS": config["array"]["rows"],
        "COLUMNS": config["array"]["columns"],
        "BANKS": scratchpad["banks"],
        "BANK_BYTES": scratchpad["size"] // scratchpad["banks"],
        "ACCUMULATOR_BYTES": config["array"]["accumulator_bytes"],
        "QUEUE_DEPTH": config["device"]["command_queue"],
        "BURST_BYTES": config["dma"]["burst_bytes"],
    }
    for name, value in expected.items():
        assert f"parameter int {name} = {value}" in text


def test_the_leaf_modules_are_those_of_strawberry() -> None:
    names = {file.stem for file in sources(RTL)}
    assert names.issuperset(SHARED)
    for name in SHARED:
        template = TEMPLATES / "design" / "rtl" / f"{name}.sv.j2"
        assert template.read_bytes() == (RTL / f"{name}.sv").read_bytes()
        assert template.read_bytes() == (STRAWBERRY / f"{name}.sv").read_bytes()
