# SPDX-License-Identifier: Apache-2.0
"""Checks of RTL on a design whose model is written by the kit; `rtl_faults.py` has many faults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from square import DESIGN, write_square
from tiny_npu import fast_compilers, needs_verilator

from umakit import find_backend
from umakit.testing.check.backend_check import check_only_programs, check_only_registers
from umakit.testing.programs.program_check import Wanted

pytestmark = needs_verilator


@pytest.fixture(autouse=True, scope="module")
def compiled_fast() -> Iterator[None]:
    with fast_compilers():
        yield


def changed(folder: Path, changes: dict[str, str]) -> Path:
    """Return a backend whose design has other texts."""
    backend = write_square(folder)
    text = (backend / DESIGN).read_text(encoding="utf-8")
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (backend / DESIGN).write_text(text, encoding="utf-8")
    return backend


def test_a_model_that_counts_a_job_at_its_start_does_not_differ(tmp_path: Path) -> None:
    report = check_only_programs(find_backend(str(write_square(tmp_path))), Wanted(most=60))
    assert not report.differences, report.differences[0].sentence
    assert min(report.jobs) < 100
    assert max(report.jobs) > 1000
    assert report.outcomes["ok"] + report.outcomes["error"] > 30, report.summary


def test_a_padding_and_a_bus_error_are_named(tmp_path: Path) -> None:
    end = "y + stride + edge_size > rows + top + "
    changes = {
        f"{end}bottom;": f"{end}top;",
        "assign s_axil_rresp = 2'b00;": "logic is_hole;\n"
        "  always_ff @(posedge clk) is_hole <= s_axil_arvalid && s_axil_araddr == 8'h0c;\n"
        "  assign s_axil_rresp = {is_hole, 1'b0};",
    }
    backend = find_backend(str(changed(tmp_path, changes)))
    registers = check_only_registers(backend, device="rtl")
    (sentence,) = (each.what for each in registers.failures)
    hole = "a read of 0x00C, where there is no register, gives the bus error SLVERR instead of 0"
    assert hole in sentence
    found = check_only_programs(backend, Wanted(most=100)).differences
    wrong = [each for each in found if each.kind == "memory" and "RESULT" in each.place]
    assert wrong and all(each.is_failure for each in wrong), found
