# SPDX-License-Identifier: Apache-2.0
"""Energy from counts and figures, by hand; what has no figure is never added up or assumed."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_npu import NETWORK, said_by_uma, write_backend
from umakit.cli.console import print_whole
from umakit.cli.main import run_command
from umakit.cli.tables import new_table

from umakit.backend.registry import load_backend_folder
from umakit.errors import AcceleratorConfigError
from umakit.library.identities import cpu_steps
from umakit.machine.energy import EnergySection, EventCounts, MemoryCounts, MemoryEnergy
from umakit.tools.energy import Energy, energy_of
from umakit.tools.energy.columns import energy_text, missing_text

ROOT = Path(__file__).parents[1]
FIGURES = """
[energy]
mac = 0.25
wasted_mac = 0
bus_read_byte = 8
bus_written_byte = 16.0
register_access = 1
cycle = 2
[energy.memory.scratchpad]
read = 4
written_byte = 0.5
[energy.memory.accumulator]
read_byte = 0.125
write = 2
"""


def chocolate(folder: Path, energy: str = FIGURES) -> Path:
    """A copy of Chocolate with other figures."""
    source = ROOT / "backends" / "chocolate_accelerator"
    shutil.copytree(source, folder / "chocolate_accelerator")
    path = folder / "chocolate_accelerator" / "accel.toml"
    path.write_text(path.read_text(encoding="utf-8") + energy, encoding="utf-8")
    return path.parent


# --- the sum --------------------------------------------------------------------------------------

COUNTS = EventCounts(
    macs=1000, wasted_macs=24, bus_read_bytes=100, bus_written_bytes=10, register_accesses=7,
    cycles=50, idle_cycles=3, memories={"data": MemoryCounts(20, 300, 0, 0)},
)  # fmt: skip
ALL = EnergySection(
    mac=0.5, wasted_mac=0.25, bus_read_byte=2, bus_written_byte=3, register_access=4, cycle=1,
    memory={"data": MemoryEnergy(read=5, read_byte=0.5)},
)  # fmt: skip


def test_energy_is_the_sum_of_counts_times_figures() -> None:
    energy = energy_of(COUNTS, ALL)
    assert energy.total == 500 + 6 + 200 + 30 + 28 + 50 + (100 + 150)
    assert energy.at_least == energy.total and not energy.missing
    assert energy_text(energy) == "1.064" and missing_text(energy) == ""
    idle = energy_of(COUNTS, ALL.model_copy(update={"idle_cycle": 10.0}))
    assert idle.total == energy.total + 30


@pytest.mark.parametrize(
    ("counts", "figures", "missing", "less"),
    [
        ({}, {"mac": None}, {"macs": "no figure"}, 500),
        ({"macs": None}, {}, {"macs": "not counted"}, 500),
        ({"wasted_macs": 0}, {"wasted_mac": None}, {}, 6),
        ({"wasted_macs": None}, {"wasted_mac": None}, {"wasted_macs": "no figure"}, 6),
        ({}, {"memory": {}}, {"memory.data.reads": "no figure"}, 250),
        ({"memories": None}, {"memory": {}}, {"memory": "no figure"}, 250),
        ({"memories": {}}, {"memory": {}}, {}, 250),
        (
            {"memories": {"data": MemoryCounts(None, 300, None, 0)}},
            {},
            {"memory.data.reads": "not counted"},
            100,
        ),
        (
            {"memories": {"data": MemoryCounts(20, 300, 9, 90)}},
            {},
            {"memory.data.writes": "no figure"},
            0,
        ),
        (
            {"memories": {}},
            {},
            {"memory.data.reads": "not counted", "memory.data.read_bytes": "not counted",
             "memory.data.writes": "no figure"},
            250,
        ),
    ],
)  # fmt: skip
def test_what_has_no_figure_or_no_count_is_listed(
    counts: dict[str, Any], figures: dict[str, Any], missing: dict[str, str], less: float
) -> None:
    found = energy_of(EventCounts(**{**vars(COUNTS), **counts}), ALL.model_copy(update=figures))
    assert found.missing == missing and found.at_least == 1064 - less
    assert found.total == (None if missing else 1064 - less)
    assert found.as_json()["total_picojoules"] == found.total
    assert energy_text(found).startswith(">= " if missing else "")


def test_sums_know_what_one_of_them_lacks() -> None:
    whole = Energy({"macs": 1.5}, {})
    part = Energy({"cycles": 2.0}, {"macs": "not counted"})
    both = Energy.sum([whole, part])
    assert both.at_least == 3.5 and both.total is None and both.missing == {"macs": "not counted"}
    counts = EventCounts.total([COUNTS, EventCounts(macs=1, cycles=None, memories={})])
    assert counts.macs == 1001 and counts.cycles is None
    assert counts.memories == {"data": MemoryCounts()}


# --- the section ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[energy]\nmacs = 1", "energy.macs: there is no such key; remove it, or write mac"),
        ("[energy]\nmac = -1", "energy.mac: Input should be greater than or equal to 0"),
        ("[energy]\nmac = nan", "energy.mac: Input should be a finite number"),
        ('[energy]\nmac = "1"', "energy.mac: Input should be a valid number"),
        (
            "[energy.memory.scrachpad]\nread = 1",
            "energy.memory.scrachpad: there is no such memory; write scratchpad",
        ),
        (
            "[energy.memory.sram]\nread = 1",
            "energy.memory.sram: there is no such memory; memories are accumulator, scratchpad",
        ),
        (
            "[energy.memory.scratchpad]\nreads = 1",
            "energy.memory.scratchpad.reads: there is no such key",
        ),
    ],
)
def test_mistakes_are_refused_in_one_sentence(text: str, said: str, tmp_path: Path) -> None:
    folder = chocolate(tmp_path, f"\n{text}\n")
    with pytest.raises(AcceleratorConfigError) as error:
        _ = load_backend_folder(folder).configuration
    assert said in str(error.value)
    assert re.search(r"accel\.toml:\d+", str(error.value))


# --- the commands ---------------------------------------------------------------------------------


def test_the_report_predicts_what_is_measured_and_the_page_shows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, page = chocolate(tmp_path), tmp_path / "page.html"
    code, out, _ = said_by_uma(capsys, "report", NETWORK, "--backend", folder, "--json", "-o", page)
    assert code == 0
    events = json.loads(out)["events"]
    assert len(events["layers"]) == 6 and events["cpu_steps"] == ["quantize", "dequantize"]
    for layer in events["layers"]:
        assert layer["predicted"] == layer["measured"]
        assert layer["measured"]["energy"]["total_picojoules"] == _by_hand(layer["measured"])
    whole = events["accelerators"]["chocolate_accelerator"]["measured"]
    assert whole["macs"] == 180480 and whole["energy"]["not_counted"] == {}
    total = sum(_by_hand(layer["measured"]) for layer in events["layers"])
    assert whole["energy"]["total_picojoules"] == pytest.approx(total)
    assert events["energy"]["total_picojoules"] is None
    assert events["energy"]["not_counted"] == {"CPU steps": "not counted"}
    text = page.read_text(encoding="utf-8")
    assert "Events and energy" in text and f"\u2265 {total / 1000:,.3f}" in text
    energy = whole["energy"]["counted"]
    plain = {"macs", "wasted_macs", "bus_read_bytes", "bus_written_bytes", "register_accesses"}
    left_out = [name for name in energy if name not in plain and "_bytes" not in name]
    assert left_out and f"which --json has: {', '.join(left_out)}" in text

    # Without running it: the same counts, and a sweep over a figure.
    code, out, _ = said_by_uma(capsys, "sim", NETWORK, "-b", folder, "--json")
    assert code == 0
    simulated = [layer["events"] for layer in json.loads(out)["layers"] if layer["events"]]
    assert simulated == [layer["predicted"] for layer in events["layers"]]
    assert json.loads(out)["energy"] == events["energy"]
    code, out, _ = said_by_uma(capsys, "sim", NETWORK, "-b", folder)
    assert re.search(rf"all on the accelerator.* {total / 1000:,.3f}", out)
    assert "energy is without CPU steps (not counted)" in out
    sweep = ["--sweep", "energy.mac=0.25,1.25", "--json"]
    code, out, _ = said_by_uma(capsys, "sim", NETWORK, "-b", folder, *sweep)
    assert code == 0
    first, second = json.loads(out)["points"]
    assert first["picojoules"] == pytest.approx(total) and first["energy_is_whole"]
    assert second["picojoules"] - first["picojoules"] == pytest.approx(180480)


def _by_hand(counts: dict[str, Any]) -> float:
    """The energy of a layer with the figures above."""
    scratchpad, sums = counts["memories"]["scratchpad"], counts["memories"]["accumulator"]
    return float(
        0.25 * counts["macs"] + 8 * counts["bus_read_bytes"] + 16 * counts["bus_written_bytes"]
        + counts["register_accesses"] + 2 * counts["cycles"] + 4 * scratchpad["reads"]
        + 0.5 * scratchpad["written_bytes"] + 0.125 * sums["read_bytes"] + 2 * sums["writes"]
    )  # fmt: skip


@pytest.mark.parametrize("reports", [True, False])
def test_a_simulator_of_ones_own_counts_the_memories_that_it_names(
    reports: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    access = """    const umakit_memory_access access = {"weights", UMAKIT_UNKNOWN, bytes, 2, 0};
    umakit_host_access(machine.host, &access);
"""
    line = "    const std::uint64_t cycles = (bytes + 3) / 4;\n"
    figures = "\n[energy]\nmac = 2\n[energy.memory.weights]\nread_byte = 3\n"
    folder = write_backend(
        tmp_path,
        {
            "machine.cc": {line: line + access if reports else line},
            "accel.toml": {"[accelerator]": f"{figures}\n[accelerator]"},
        },
    )
    library = tmp_path / "library"
    code, out, err = said_by_uma(
        capsys, "compile", NETWORK, "--backend", folder, "-o", library, "--json"
    )
    assert code == 0, err
    shown = json.loads(out)
    steps = [step for step in shown["layers"] if step["where"] == "cpu"]
    assert [step["name"] for step in shown["cpu_steps"]] == [step["name"] for step in steps]
    np.savez(tmp_path / "in.npz", image=np.zeros((1, 1, 8, 8), np.float32))
    command = ["run", library, "-i", tmp_path / "in.npz", "--profile", "--json"]
    code, out, err = said_by_uma(capsys, *command)
    assert code == 0, err
    (layer,) = json.loads(out)["events"]["layers"]
    counts = layer["measured"]
    assert layer["predicted"] is None and counts["wasted_macs"] is None
    energy = counts["energy"]
    assert energy["total_picojoules"] is None
    if reports:
        moved = counts["bus_read_bytes"] + counts["bus_written_bytes"]
        assert counts["memories"]["weights"]["read_bytes"] == moved > 0
        assert counts["memories"]["weights"]["reads"] is None
        assert counts["memories"]["weights"]["writes"] == 4
        assert energy["at_least_picojoules"] == 2 * counts["macs"] + 3 * moved
    else:
        assert counts["memories"] is None
        assert energy["at_least_picojoules"] == 2 * counts["macs"]
        assert energy["not_counted"]["memory.weights.read_bytes"] == "not counted"


@pytest.mark.parametrize("command", ["report", "tune"])
def test_narrow_terminals_lack_no_digits(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    folder = chocolate(tmp_path)
    more = (
        ["-o", tmp_path / "p.html"] if command == "report" else ["--records", tmp_path / "r.json"]
    )
    more += [] if command == "report" else ["--simulate", "0"]
    texts = []
    for columns in ("300", "60"):
        monkeypatch.setenv("COLUMNS", columns)
        code, out, err = (
            said_by_uma(capsys, command, NETWORK, "--backend", folder, *more, "--force")
            if command == "report"
            else said_by_uma(capsys, command, NETWORK, "--backend", folder, *more)
        )
        assert code == 0, err
        out = re.sub(r"\d[\d,]*\.\d\b", "0.0", out)  # times of two runs
        texts.append(sorted(re.findall(r"\d[\d,]*\.?\d*", out)))
    assert "147,456" in texts[0] or command == "tune"
    assert texts[0] == texts[1]


def test_names_of_layers_are_broken_behind_slashes_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    name = "model/batch_normalization_2/FusedBatchNormV3 + model/activation_2/Relu"
    table = new_table("layer", "cycles", "bytes of the bus", right=("cycles", "bytes of the bus"))
    table.add_row(name, "1,234,567", "12")
    table.add_row("a_name_that_has_no_slash_to_break_it_at", "1", "2")
    print_whole(table)
    lines = [line[:40].rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[2:] == [
        "model/batch_normalization_2/", "FusedBatchNormV3 +", "model/activation_2/Relu",
        "a_name_that_has_no_slash_to_break_it_at",
    ]  # fmt: skip


def test_each_step_on_the_cpu_has_a_name_and_a_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """NCHW on a backend that takes NHWC alone has layout changes, which are no operators."""
    backend = ROOT / "examples" / "nova_nn"
    library = tmp_path / "library"
    words = ["compile", NETWORK, "--backend", backend, "--rounding", "tflm", "-o", library]
    assert run_command([str(word) for word in words]) == 0
    out = capsys.readouterr().out
    description = json.loads((library / "metadata.json").read_text(encoding="utf-8"))["umakit"]
    steps = cpu_steps(description)
    where = [layer["where"] for layer in description["layers"]]
    assert len(steps) == where.count("cpu") == 3
    assert f"{len(steps)} steps on the CPU:\n" in out and "more, which" not in out
    for step in steps:
        assert step.reasons and f"  {step.name} ({step.kind}): " in out
    assert any("layout change" in step.kind for step in steps)
    assert len({step.identity.key for step in steps}) == len(steps)
