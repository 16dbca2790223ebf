# SPDX-License-Identifier: Apache-2.0
"""What commands say of a design: names of its registers, and that it was the RTL that answered."""

from __future__ import annotations

import tomllib

import pytest
from umakit.cli import check as check_command
from umakit.cli import cosim as cosim_command
from umakit.cli import diff_text

from umakit import find_backend, sim
from umakit.testing.check.cases import read_case
from umakit.testing.check.report import CheckReport
from umakit.tools.cosim import CosimDifference, CosimResult, _with_register
from umakit.tools.diff import DiffResult

MAP = sim.source_directory() / "registers" / "systolic_array.toml"


def test_registers_of_the_kits_own_map_have_their_names() -> None:
    described = tomllib.loads(MAP.read_text(encoding="utf-8"))["register"]
    places = {each["name"]: each["offset"] for each in described}
    hole = next(offset for offset in range(4, 0x1000, 4) if offset not in places.values())
    writes = [[places["CONTROL"], 5], [places["DMA_ROWS"], 0x1F], [hole, 3]]
    facts = {"offset": places["STATUS"], "last_writes": writes}
    found = CosimDifference("conv1", "strawberry_accelerator", "register", "it differs", facts, 0)
    named = _with_register(found, find_backend("strawberry_accelerator"))
    first, _, last = cosim_command.verdict(CosimResult((), named, 1, 1.0))
    assert first == "First difference: layer conv1, register STATUS"
    assert last.endswith(f": CONTROL = 0x5, DMA_ROWS = 0x1f, 0x{hole:x} = 0x3")


@pytest.mark.parametrize("is_rtl", [False, True])
def test_the_cycles_of_the_rtl_are_not_the_simulators(
    is_rtl: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    report = CheckReport("my_npu", 0)
    case = read_case("qdense seed=1")
    report.cycles.add(case, 20, 20)
    words = "./my_npu --rtl" if is_rtl else "./my_npu"
    for worst in ("all 1 layers", "1 of 2 layers; the worst has 40, predicted 30 (-25.00 %)"):
        check_command._print_cycles(report, words)
        said = " ".join(capsys.readouterr().out.split())
        device = "RTL" if is_rtl else "simulator"
        assert said.startswith(f"predicted cycles are those of the {device} for {worst}")
        report.cycles.add(case, 30, 40)
    assert ("uma calibrate" in said) is not is_rtl
    assert ("each register access" in said) is is_rtl


@pytest.mark.parametrize("is_rtl", [False, True])
def test_the_last_sentence_of_a_diff_names_the_rtl(is_rtl: bool) -> None:
    result = DiffResult("", "cpu", 1e-5, 1, True, (), {}, None, {}, ())
    assert diff_text.verdict(result, is_rtl)[-1].endswith("RTL") is is_rtl
