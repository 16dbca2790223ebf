# SPDX-License-Identifier: Apache-2.0
"""Designs that umakit brings, elaborated by slang: a compiler stricter than Verilator, as those of
synthesis are (names are declared before they are used, types of ports are equal)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from umakit.devices.designs import design_of

ROOT = Path(__file__).parents[1]
DESIGNS = ("strawberry_accelerator", "small_chocolate_accelerator")

SLANG = """
import sys
from pyslang import driver

slang = driver.Driver()
slang.addStandardArgs()
assert slang.parseCommandLine(" ".join(["slang", *sys.argv[1:]]))
assert slang.processOptions() and slang.parseAllSources()
compilation = slang.createCompilation()
slang.reportCompilation(compilation, True)
slang.reportDiagnostics(True)
print("diagnostics:", slang.diagEngine.numErrors + slang.diagEngine.numWarnings)
"""


def said_by_slang(sources: list[Path], top: str) -> str:
    """Return the errors and warnings of slang about a design, and their number in the last line."""
    # In a process of its own: at its end pyslang writes what Python has not freed.
    command = [sys.executable, "-c", SLANG, "--top", top, *map(str, sources)]
    ended = subprocess.run(command, capture_output=True, text=True)
    text = ended.stdout + ended.stderr.partition("nanobind: leaked")[0]
    assert ended.returncode == 0, text
    return text


@pytest.mark.parametrize("name", DESIGNS)
def test_a_design_has_no_errors_and_warnings(name: str) -> None:
    files = design_of(ROOT / "backends" / name).files
    text = said_by_slang(list(files.sources), files.top)
    assert "diagnostics: 0\n" in text, text


def test_what_synthesis_refuses_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "late.sv"
    path.write_text(
        "module late (input logic a, output logic b);\n"
        "  assign b = c;\n  logic c;\n  assign c = a;\nendmodule\n"
    )
    assert "diagnostics: 0\n" not in said_by_slang([path], "late")
