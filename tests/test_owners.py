# SPDX-License-Identifier: Apache-2.0
"""Every cycle of an inference has one owner, and all owners together have them all.

The oracle is a C program of its own, which asks the simulated device for its counters before and
after an inference; it is built without a profile and shares no code with the profile's program.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from layout_networks import RandomNetwork
from umakit.cli.main import run_command
from umakit.cli.tables import profile_table

import umakit
from umakit.devices.build import compile_c, library_sources
from umakit.devices.profiles import CommandTimes, LayerProfile, _Mean, profiles_of
from umakit.devices.run import RunResult
from umakit.errors import InputError
from umakit.library.metadata import load_metadata
from umakit.tools.accounting import Parts, RunReport, account
from umakit.tools.accounting.account import waits_of
from umakit.tools.accounting.columns import owner_table
from umakit.tools.page import html, make_page

DIGITS = Path(__file__).parents[1] / "examples" / "digits"
COUNTERS = (
    "clock compute_cycles drain_cycles stall_cycles idle_cycles register_reads register_writes"
    " bytes_read bytes_written"
).split()

PROGRAM = """
#include "{interface}.h"
#include "{backend}/{backend}_device.h"
#include <inttypes.h>
#include <stdio.h>

{buffers}

static struct umakit_simulator_counters now(void)
{{
    struct umakit_simulator_counters counters;
    (void){backend}_device();
    {backend}_counters(&counters);
    return counters;
}}

int main(void)
{{
    const struct {interface}_inputs inputs = {{{inputs}}};
    const struct {interface}_outputs outputs = {{{outputs}}};
    const struct umakit_simulator_counters before = now();
    const int status = (int){interface}_run(&inputs, &outputs);
    const struct umakit_simulator_counters after = now();
    {prints}
    return status;
}}
"""
TYPES = {"float32": "float", "int8": "int8_t", "uint8": "uint8_t", "int32": "int32_t"}


def counted(library: Path, backend: str) -> dict[str, int]:
    """What the device counts in an inference with inputs of 0."""
    view = load_metadata(library)["umakit"]
    tensors = [*view["inputs"], *view["outputs"]]
    text = PROGRAM.format(
        interface=view["interface"],
        backend=backend,
        buffers="\n".join(
            f"_Alignas(64) static {TYPES[each['dtype']]} {each['c_name']}_bytes"
            f"[{int(np.prod(each['shape']))}];"
            for each in tensors
        ),
        inputs=", ".join(f"{each['c_name']}_bytes" for each in view["inputs"]),
        outputs=", ".join(f"{each['c_name']}_bytes" for each in view["outputs"]),
        prints="\n    ".join(
            f'printf("{name} %" PRIu64 "\\n", after.{name} - before.{name});' for name in COUNTERS
        ),
    )
    folder = library.parent / f"{library.name}_oracle"
    folder.mkdir()
    (folder / "oracle.c").write_text(text)
    headers = ["-std=c11", f"-I{library}/codegen/host/src", f"-I{library}/codegen/host/include"]
    compile_c([folder / "oracle.c", *library_sources(library)], folder / "oracle", headers)
    lines = subprocess.run([folder / "oracle"], check=True, capture_output=True, text=True).stdout
    return {name: int(value) for name, value in map(str.split, lines.splitlines())}


def zeros(library: Path) -> dict[str, Any]:
    inputs = load_metadata(library)["umakit"]["inputs"]
    return {each["name"]: np.zeros(each["shape"], each["dtype"]) for each in inputs}


def run(library: Path, **options: Any) -> RunResult:
    return umakit.run_library(
        library, zeros(library), profile=True, record_commands=True, **options
    )


def check_sums(accounting: RunReport) -> None:
    """All parts add up, in each row and over all rows, in the figures that are printed too."""
    view = json.loads(json.dumps(accounting.as_json(), allow_nan=False))
    for row in view["rows"]:
        if row["parts"] is not None:
            parts = {**row["parts"], **row["parts"]["waits"]}
            del parts["waits"]
            assert sum(parts.values()) == row["clock_cycles"]
            assert all(value >= 0 for value in parts.values())
    known = [row["clock_cycles"] or 0 for row in view["rows"]]
    assert sum(known) == view["clock_cycles"]
    parts = {**view["parts"], **view["parts"]["waits"]}
    del parts["waits"]
    assert sum(parts.values()) == view["clock_cycles"]
    table = owner_table(accounting)
    assert table is not None
    for column in range(len(table.headers)):
        cells = [line.cells[column].partition(" ")[0] for line in table.lines]
        numbers = [int(cell.replace(",", "")) for cell in cells if cell not in ("", "-")]
        assert table.total.cells[column].replace(",", "") == (str(sum(numbers) or ""))
    keys = [row["identity"]["key"] for row in view["rows"] if row["identity"]]
    assert len(set(keys)) == len(keys) == len(view["rows"]) - 1


def generated(folder: Path) -> Path:
    """A network whose operators only some accelerators take: `reshape`, `concat` and others."""
    network = RandomNetwork(10, steps=9)
    onnx.save(network.model(), folder / "generated.onnx")
    return folder / "generated.onnx"


CASES = [
    ("digits.onnx", "vanilla_accelerator"),
    ("digits_int8.onnx", "strawberry_accelerator"),
    ("digits_int8.onnx", "chocolate_accelerator"),
    ("digits_int8.onnx", "small_chocolate_accelerator"),
    ("generated", "chocolate_accelerator"),
]


@pytest.mark.parametrize(("name", "backend"), CASES)
def test_all_parts_are_what_the_device_counts(name: str, backend: str, tmp_path: Path) -> None:
    model = generated(tmp_path) if name == "generated" else DIGITS / name
    library = tmp_path / "library"
    umakit.compile_model(model, [umakit.find_backend(backend)], library)
    accounting = account(load_metadata(library)["umakit"], run(library))
    check_sums(accounting)
    device, parts = counted(library, backend), accounting.parts
    assert parts is not None and accounting.is_whole
    assert accounting.clock_cycles == device["clock"] > 0
    assert parts.computing == device["compute_cycles"] + device["drain_cycles"] > 0
    assert sum(parts.waits.values()) == device["stall_cycles"]
    assert set(parts.waits) <= {"load", "store"}
    assert parts.registers == device["idle_cycles"] and parts.idle == parts.undivided == 0
    accesses = [(row.register_reads or 0) + (row.register_writes or 0) for row in accounting.rows]
    assert sum(accesses) == device["register_reads"] + device["register_writes"]
    moved = [row.moved_bytes or 0 for row in accounting.rows]
    assert sum(moved) == device["bytes_read"] + device["bytes_written"]
    assert accounting.cpu_steps and accounting.cycles is None
    assert all(row.cycles is None and row.source == "unknown" for row in accounting.cpu_steps)
    assert f"+ {len(accounting.cpu_steps)} CPU steps, unknown" in accounting.total_text


@pytest.fixture(scope="module")
def chocolate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("chocolate") / "library"
    model = DIGITS / "digits_int8.onnx"
    umakit.compile_model(model, [umakit.find_backend("chocolate_accelerator")], library)
    return library


def without_host(view: dict[str, Any]) -> dict[str, Any]:
    """An accounting without host times."""
    times = {"seconds": None, "device_seconds": None}
    return {**view, "host": None, "rows": [row | times for row in view["rows"]]}


def test_profile_and_report_show_one_accounting(
    chocolate: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    np.savez(tmp_path / "in.npz", **zeros(chocolate))
    command = ["run", str(chocolate), "-i", str(tmp_path / "in.npz"), "--profile"]
    assert run_command([*command, "--json"]) == 0
    profile = json.loads(capsys.readouterr().out)
    backend = umakit.find_backend("chocolate_accelerator")
    page = make_page(DIGITS / "digits_int8.onnx", [backend], inputs=zeros(chocolate))
    report = json.loads(json.dumps(page.as_json()))
    assert without_host(profile["accounting"]) == without_host(report["accounting"])
    assert [each["identity"] for each in profile["layers"]] == [
        each["identity"] for each in report["layers"]
    ]
    total = profile["accounting"]["clock_cycles"]
    assert total == report["clock_cycles"] == profile["totals"]["clock_cycles"]
    table = owner_table(page.accounting)
    assert table is not None and run_command(command) == 0
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    for line in (*table.lines, table.total):
        assert [*line.name.split(), *" ".join(line.cells).split()] in printed
    assert (
        f"{total:,} cycles (6 of 6 layers on accelerators measured)" in page.accounting.total_text
    )
    assert page.accounting.headline == (
        "100.0 % of 180,480 MACs on accelerators; 2 steps on the CPU: quantize, dequantize"
    )
    text = html(page)
    assert page.accounting.headline in text and "image_QuantizeLinear (CPU)" in text


def test_host_time_is_scaled_only_by_a_clock(chocolate: Path, tmp_path: Path) -> None:
    view, result = load_metadata(chocolate)["umakit"], run(chocolate, repeat=50)
    scaled = account(view, result, cpu_clock=3e9)
    check_sums(scaled)
    for row, layer in zip(scaled.cpu_steps, (result.layers[0], result.layers[-1]), strict=True):
        assert layer.seconds is not None and row.source == "scaled"
        assert row.cycles == round(layer.seconds * 3e9) > 0
    assert scaled.clock_cycles is not None and scaled.cpu_cycles is not None
    assert scaled.cycles == scaled.clock_cycles + scaled.cpu_cycles
    assert scaled.parts == account(view, result).parts
    assert "scaled from host time at 3,000,000,000 Hz" in scaled.total_text
    cells = list(profile_table(scaled).columns[3].cells)
    assert cells[0].endswith(" scaled") and not cells[1].endswith(" scaled")
    emulated = tuple(replace(layer, seconds=None) for layer in result.layers)
    with pytest.raises(InputError, match="without a time of its own"):
        account(view, replace(result, layers=emulated), cpu_clock=1e9)
    np.savez(tmp_path / "in.npz", **zeros(chocolate))
    command = ["run", str(chocolate), "-i", str(tmp_path / "in.npz"), "--cpu-clock", "1e9"]
    assert run_command(command) == 2
    assert run_command([*command, "--profile", "--device", "qemu-cortex-m3"]) == 2


def test_bytes_of_steps_on_the_cpu_are_those_of_their_tensors(chocolate: Path) -> None:
    first, last = account(load_metadata(chocolate)["umakit"], run(chocolate)).cpu_steps
    assert (first.kind, first.read_bytes, first.written_bytes) == ("quantize", 4 * 64, 64)
    assert (last.kind, last.read_bytes, last.written_bytes) == ("dequantize", 10, 4 * 10)


def test_without_commands_waits_are_copies(chocolate: Path) -> None:
    view = load_metadata(chocolate)["umakit"]
    with_commands = account(view, run(chocolate))
    result = umakit.run_library(chocolate, zeros(chocolate), profile=True)
    without = account(view, result)
    check_sums(without)
    assert with_commands.parts is not None and without.parts is not None
    assert without.parts == replace(
        with_commands.parts, waits={"copies": sum(with_commands.parts.waits.values())}
    )


def test_a_library_that_does_not_count_inferences_has_the_sum_of_its_layers(
    chocolate: Path, tmp_path: Path
) -> None:
    """As libraries of older versions, whose layers have no identity either."""
    library = tmp_path / "library"
    shutil.copytree(chocolate, library)
    program = library / "runtime" / "main.c"
    text = program.read_text()
    begin = text.index('    umakit_platform_print("\\"inference\\"')
    end = text.index("#endif", begin)
    program.write_text(text[:begin] + text[end:])
    metadata = json.loads((library / "metadata.json").read_text())
    for layer in metadata["umakit"]["layers"]:
        del layer["identity"]
    (library / "metadata.json").write_text(json.dumps(metadata))
    result = run(library)
    assert result.whole is not None and result.whole.clock_cycles is None
    accounting = account(load_metadata(library)["umakit"], result)
    new = account(load_metadata(chocolate)["umakit"], run(chocolate))
    assert not accounting.is_whole and new.is_whole
    assert accounting.clock_cycles == new.clock_cycles
    assert accounting.rows[-1].cycles is None
    old_keys = [row.identity.key for row in accounting.rows if row.identity]
    assert old_keys == [row.identity.key for row in new.rows if row.identity]
    assert all(each.index is None for row in accounting.rows if row.identity
               for each in row.identity.operators)  # fmt: skip


# --- parts of it --------------------------------------------------------------------------------


def profile_of(commands: list[CommandTimes], busy: int, computing: int) -> LayerProfile:
    return LayerProfile(
        "layer", "npu", 0, 0, busy, busy, computing, 0, 0, 0.0, None, tuple(commands)
    )


def test_waits_are_those_of_each_cycle() -> None:
    """Against a set of engines for each cycle."""
    drawn = random.Random(3)
    seen = set()
    for _ in range(200):
        commands = []
        for _ in range(drawn.randrange(1, 12)):
            start = drawn.randrange(40)
            stop = start + drawn.randrange(1, 9)
            commands.append(CommandTimes(drawn.choice("ABC"), start, stop, stop))
        at_work = [
            {each.stream for each in commands if each.start <= cycle < each.completion}
            for cycle in range(60)
        ]
        busy, computing = sum(map(bool, at_work)), sum("A" in engines for engines in at_work)
        waits: dict[str, int] = {}
        for engines in at_work:
            if engines and "A" not in engines:
                name = " + ".join(sorted(engines))
                waits[name] = waits.get(name, 0) + 1
        seen |= set(waits)
        assert waits_of(profile_of(commands, busy, computing), ("A",)) == waits
        # Commands of another inference, or not all of them, say nothing.
        assert waits_of(profile_of(commands, busy + 1, computing), ("A",)) is None
        partly = replace(profile_of(commands, busy, computing), commands_left_out=1)
        assert waits_of(partly, ("A",)) is None
    assert seen == {"B", "C", "B + C"}


def test_means_add_up_to_the_mean_of_the_sum() -> None:
    drawn = random.Random(5)
    for _ in range(300):
        runs = drawn.randrange(1, 50)
        counts = [drawn.randrange(0, 1000) for _ in range(drawn.randrange(1, 30))]
        mean = _Mean(runs)
        means = [mean.next(count) for count in counts]
        assert abs(sum(means) - sum(counts) / runs) <= 0.5
        assert all(abs(one - count / runs) <= 1 for one, count in zip(means, counts, strict=True))
        assert min(means) >= 0


def test_inferences_of_different_lengths_add_up(chocolate: Path) -> None:
    """Three inferences whose counters are not multiples of three, with a gap between layers."""
    view = load_metadata(chocolate)["umakit"]
    drawn = random.Random(9)
    layers = []
    for layer in view["layers"]:
        on_cpu = layer["where"] == "cpu"
        array = 0 if on_cpu else drawn.randrange(100, 200)
        busy = array if on_cpu else array + drawn.randrange(50)
        clock = busy if on_cpu else busy + drawn.randrange(50)
        figures = dict.fromkeys(("macs", "dma_cycles", "moved_bytes", "nanoseconds"), 0)
        figures |= {"register_reads": 30, "register_writes": 40, "instructions": 0}
        layers.append({**figures, "array_cycles": array, "cycles": busy, "clock_cycles": clock})
    gap = 10
    clock = sum(each["clock_cycles"] for each in layers) + gap
    report = {"layers": layers, "inference": {"clock_cycles": clock}, "unknown": {}}
    profiles, whole = profiles_of(umakit.devices.HOST, view, report, 3, [])
    result = RunResult({}, (), profiles, (), 3, whole)
    accounting = account(view, result)
    check_sums(accounting)
    assert accounting.clock_cycles is not None
    assert abs(accounting.clock_cycles - clock / 3) <= 0.5
    assert accounting.rows[-1].owner == "between layers" and accounting.rows[-1].cycles in (3, 4)
    assert accounting.inferences == 3


def test_parts_are_named_once() -> None:
    parts = Parts(1, {"load": 2, "store": 3}, 4, 5, 6)
    assert parts.cycles == sum(parts.named().values()) == 21
    assert Parts.total([parts, parts]).named() == {
        name: 2 * value for name, value in parts.named().items()
    }
