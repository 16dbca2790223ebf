# SPDX-License-Identifier: Apache-2.0
"""Machines whose costs are drawn: formulas express some of them and not others.

A calibration leaves no predictions of further layers worse than they were, and `uma tune` adds and
compares cycles of one kind, which libraries with its tilings take. Simulators are those of
`examples/lane_npu` and of `uma new --kind tiles`, with more cycles in some commands.
"""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from umakit.cli.main import run_command

from umakit.backend import UMABackend, load_backend_folder
from umakit.devices.run import run_library
from umakit.machine import Kind, Layer
from umakit.pipeline import ExportOptions, compile_model
from umakit.tools.calibration.measure import Measurement, measure
from umakit.tools.calibration.tiles import Tile
from umakit.tools.scaffold import new_backend

pytestmark = pytest.mark.optimized_simulators

EXAMPLES = Path(__file__).parents[1] / "examples"
DIGITS = EXAMPLES / "digits" / "digits_int8.onnx"
BUSY = re.compile(r'^busy = (""".*?"""|".*?")$', re.MULTILINE | re.DOTALL)
NOISE = "(std::uint64_t(counters.clock) * 2654435761u >> 9)"

COPIES = {
    "as described": "0",
    "bursts": "3ull * words_[3] * words_[4] * ((words_[5] + 63) / 64)",
    "alignment steps": "words_[3] * words_[4] * (words_[1] % 16 != 0 ? 5ull : 0)",
    "pages": "words_[3] * words_[4] * ((words_[1] % 256 + words_[5]) / 256) * 12ull",
    "noise": f"{NOISE} % 30",
}
"""Cycles that a copy takes more, in C++, by what they come from."""

JOBS = {
    "as described": "0",
    "drain": "12ull * ((OUTPUTS + 31) / 32)",
    "bank conflicts": "AREA * (words_[6] / 4096 % 3)",
    "data": "std::uint64_t(BYTES[33] & 31) * 9",
    "no formula": "job.macs() * job.macs() % 97 * 5",
    "noise": f"job.cycles() * ({NOISE} % 40) / 100",
}
"""The same of a job."""

EXPRESSIBLE = {"as described", "bursts", "drain"}
"""Costs that formulas can say."""

DESCRIPTIONS = ("right", "a data sheet's", "nonsense", "right, but for the driver")
"""What `accel.toml` says of the machine without these cycles."""


@dataclass(frozen=True)
class Family:
    """Where a kind of backend has what is changed.

    Attributes:
        write: writes the backend into a folder of its own in a folder.
        machine: file of its simulator.
        macros: C++ of the names in `JOBS`.
        macs: formula of its multiply-accumulates in a cycle.
    """

    write: Callable[[Path], Path]
    machine: str
    macros: dict[str, str]
    macs: str


def _copied(folder: Path) -> Path:
    path = folder / "lane_npu"
    return shutil.copytree(EXAMPLES / path.name, path, ignore=shutil.ignore_patterns("__py*"))


def _generated(folder: Path) -> Path:
    flags = {"operators": "conv2d,depthwise,dense", "array": "8x16", "scratchpad": "32K",
             "layout": "both", "rounding": "both"}  # fmt: skip
    new_backend("my_npu", folder, kind="tiles", flags=flags)
    return folder / "my_npu"


FAMILIES = (
    Family(
        _copied, "machine.cc",
        {"AREA": "(words_[10] & 0xFFFFull) * (words_[10] >> 16)", "OUTPUTS": "words_[11]",
         "BYTES": "memories_.data.at(0, 64)"}, "lanes * step",
    ),
    Family(
        _generated, "my_npu_simulator.cc",
        {"AREA": "(std::uint64_t(words_[11]) * words_[12])", "OUTPUTS": "words_[13]",
         "BYTES": "memories_.at(0, 64)"}, "lanes * inputs",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Drawn:
    """A machine.

    Attributes:
        family: what it is made from.
        copies, jobs: what takes more cycles.
        description: one of `DESCRIPTIONS`.
        tiles: `--tiles` of its calibration.
        use_inexact: whether that has `--use-inexact`.
    """

    family: Family
    copies: str
    jobs: str
    description: str
    tiles: int
    use_inexact: bool

    @property
    def is_expressible(self) -> bool:
        """Whether formulas can say all costs."""
        return {self.copies, self.jobs} <= EXPRESSIBLE

    def __str__(self) -> str:
        folder = self.family.machine.partition(".")[0]
        inexact = " --use-inexact" if self.use_inexact else ""
        return (
            f"{folder}, copies: {self.copies}, jobs: {self.jobs}, description: "
            f"{self.description}, --tiles {self.tiles}{inexact}"
        )

    def backend(self, folder: Path) -> Path:
        """Write the backend and return its folder."""
        path = self.family.write(folder)
        machine = path / "simulator" / self.family.machine
        text = machine.read_text(encoding="utf-8")
        for name, extra in (("job", JOBS[self.jobs]), ("copied", COPIES[self.copies])):
            for macro, code in self.family.macros.items():
                extra = extra.replace(macro, code)
            assert text.count(f"{name}.cycles(),") == 1
            text = text.replace(f"{name}.cycles(),", f"{name}.cycles() + ({extra}),")
        machine.write_text(text, encoding="utf-8")
        figures = path / "accel.toml"
        text = figures.read_text(encoding="utf-8")
        sheet = BUSY.sub(f'busy = "ceil_div(m * n * k, {self.family.macs})"', text, count=1)
        other = BUSY.sub('busy = "100"', text, count=1)
        changed = {
            "right": text,
            "a data sheet's": sheet.replace("planes * rows * ceil_div(row_bytes", "ceil_div(bytes"),
            "nonsense": other.replace('tail = "latency', 'tail = "70 + latency'),
            "right, but for the driver": re.sub("(?m)^transfer = .*", "transfer = 12", text),
        }
        assert len(set(changed.values())) == len(DESCRIPTIONS)
        figures.write_text(changed[self.description], encoding="utf-8")
        return path


def drawn(seed: int) -> Drawn:
    """Draw a machine: each cost and each description comes about as often as any other."""
    chosen = random.Random(seed)
    copies, jobs = list(COPIES), list(JOBS)
    return Drawn(
        FAMILIES[seed % 3 == 2], copies[seed % len(copies)], jobs[(seed // 2 + 1) % len(jobs)],
        DESCRIPTIONS[seed % len(DESCRIPTIONS)], chosen.choice((12, 24, 48)), seed % 4 == 1,
    )  # fmt: skip


def further_layers(seed: int) -> list[Layer]:
    """Layers of sizes that networks have, none of which a calibration measures."""
    chosen = random.Random(1000 + seed)
    found = []
    for number in range(8):
        kind = Kind.DEPTHWISE if number % 3 == 2 else Kind.CONVOLUTION
        size, window = (chosen.randint(3, 25), chosen.randint(3, 25)), chosen.choice((1, 3, 3, 5))
        inputs, outputs = chosen.randint(3, 90), chosen.randint(5, 90)
        inputs = outputs if kind is Kind.DEPTHWISE else inputs
        given = (size[0] + window - 1, size[1] + window - 1)
        shape = (kind, 1, given, size, inputs, outputs, (window, window))
        found.append(Layer(*shape, scales=outputs, stored_channels=outputs))
    return found


def measured_layers(seed: int, before: UMABackend, after: UMABackend) -> Measurement:
    """Measure further layers with the tilings that they had, and with those that they have now."""
    tilings = {
        Tile(layer, tiling): None
        for layer in further_layers(seed)
        for backend in (before, after)
        if backend.tiling and (tiling := backend.tiling.default(layer))
    }
    found = Measurement()
    measure(after, list(tilings), "host", found)
    assert not found.failures and len(found.layers) == len(tilings) >= 6
    return found


def deviations(measured: Measurement, backend: UMABackend) -> list[float]:
    """By how much a backend's predictions are off, in percent of what was measured."""
    assert backend.tiling is not None
    return [
        100 * abs(backend.tiling.predict(each.tiles).cycles / (each.clock_cycles or 0) - 1)
        for each in measured.layers
    ]


@pytest.mark.parametrize("seed", range(12))
def test_a_calibration_makes_no_prediction_worse(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    record_property: Callable[[str, object], None],
) -> None:  # fmt: skip
    machine = drawn(seed)
    folder = machine.backend(tmp_path)
    before = load_backend_folder(folder)
    options = ["--tiles", str(machine.tiles), *["--use-inexact"][: machine.use_inexact]]
    code = run_command(["calibrate", str(folder), "--json", *options])
    view = json.loads(capsys.readouterr().out)
    after = load_backend_folder(folder)
    found = measured_layers(seed, before, after)
    old, new = deviations(found, before), deviations(found, after)
    used = [each for each in view["measured"] if each["used"] == "measured"]
    record_property(
        "covered",
        f"{machine}: {len(used)} of {len(view['measured'])} formulas used, exit code {code}; "
        f"{len(new)} further layers were off by {fmean(old):.2f} % (worst {max(old):.2f} %) and "
        f"are by {fmean(new):.2f} % ({max(new):.2f} %)",
    )
    # Where cycles are noise, a layer moves with the other commands of its timeline.
    noise = 0.1 if "noise" in (machine.copies, machine.jobs) else 1e-9
    assert max(new) <= max(old) + noise and fmean(new) <= fmean(old) + 1e-9
    for each in view["measured"]:
        was, now = each["evidence_before"]["worst_percent"], each["evidence"]["worst_percent"]
        if each["used"] == "measured":
            assert now <= was and each["reason"] == ""
            assert machine.use_inexact or (now <= 5 and each["evidence"]["held_out"])
        else:
            assert each["used"] == "described" and each["reason"]
    in_use = [costs["evidence"]["worst_percent"] for costs in (*view["jobs"], *view["copies"])]
    assert view["worst_percent"] == max(in_use)
    assert view["holds"] == (max(in_use) <= 5)
    assert code == (0 if view["holds"] or machine.use_inexact else 1)
    if machine.is_expressible and machine.tiles > 12:
        assert view["holds"] and (max(new) == 0 or "driver" in machine.description)


def clock_cycles(library: Path, inputs: dict[str, Any]) -> int:
    """The cycles of all layers of a library on the accelerator."""
    layers = run_library(library, inputs, profile=True).layers
    return sum(each.clock_cycles or 0 for each in layers if each.where != "cpu")


@pytest.mark.parametrize("seed", [0, 1, 5, 6, 7, 8])
def test_tuning_compares_what_was_measured_with_what_was_measured(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    record_property: Callable[[str, object], None],
) -> None:  # fmt: skip
    machine = drawn(seed)
    folder = machine.backend(tmp_path)
    backend, records = load_backend_folder(folder), tmp_path / "records.json"
    call = ["tune", str(DIGITS), "-b", str(folder), "-r", str(records), "--clock", "8", "--json"]
    assert run_command([*call, "--simulate", "0"]) == 0
    view = json.loads(capsys.readouterr().out)
    assert {each["cycles_are"] for each in view["layers"]} == {"predicted"}
    (total,) = view["totals"]
    assert (total["cycles_are"], total["best"] <= total["default"]) == ("predicted", True)
    assert run_command([*call, "--simulate", "2"]) == 0
    view = json.loads(capsys.readouterr().out)
    assert {each["cycles_are"] for each in view["layers"]} == {"measured"}
    (total,) = view["totals"]
    for name, kind in (("default_cycles", "default"), ("cycles", "best")):
        of_layers = [len(each["operators"]) * each[name] for each in view["layers"]]
        assert total[kind] == sum(of_layers)
    assert all(each["cycles"] <= each["default_cycles"] for each in view["layers"])
    assert total["cycles_are"] == "measured"
    inputs = {"image": np.zeros((1, 1, 8, 8), np.float32)}
    options = {"default": ExportOptions(), "best": ExportOptions(records=records)}
    ran = {
        name: clock_cycles(
            compile_model(DIGITS, [backend], tmp_path / name, options=each).path, inputs
        )
        for name, each in options.items()
    }
    predicted = sum(each["default"] for each in view["layers"])
    record_property(
        "covered",
        f"{machine}: tuned from {total['default']:,} to {total['best']:,} measured cycles "
        f"({predicted:,} predicted by default); libraries take {ran['default']:,} and "
        f"{ran['best']:,}",
    )
    if machine.is_expressible:  # nothing depends on addresses, values or time
        assert ran == {name: total[name] for name in options}


# --- what `uma calibrate` says is to be done ------------------------------------------------------


def said(
    folder: Path, capsys: pytest.CaptureFixture[str], tiles: int = 12
) -> tuple[int, list[str]]:
    """The exit code of a calibration, and its notes but that of layers that are not measured."""
    capsys.readouterr()
    code = run_command(["calibrate", str(folder), "--tiles", str(tiles), "--json"])
    printed = capsys.readouterr()
    if not printed.out:
        return code, printed.err.splitlines()[-1:]
    notes = json.loads(printed.out)["notes"]
    return code, [each for each in notes if " took no " not in each]


def changed(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.search(old, text)
    path.write_text(re.sub(old, new, text), encoding="utf-8")


@pytest.mark.soak
def test_more_layers_mend_a_formula(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = Drawn(FAMILIES[0], "bursts", "drain", "a data sheet's", 12, False)
    folder = machine.backend(tmp_path)
    code, notes = said(folder, capsys)
    tiles = re.search(
        r"; --tiles (\d+) measures more layers, by which a formula may hold$", notes[0]
    )
    assert code == 1 and tiles
    assert said(folder, capsys, int(tiles[1])) == (0, [])


@pytest.mark.soak
def test_a_description_mends_what_no_formula_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Drawn(FAMILIES[0], "as described", "no formula", "right", 120, False)
    folder = machine.backend(tmp_path)
    code, notes = said(folder, capsys, 120)
    assert code == 1 and notes
    assert all("; accel.toml can say what such a formula cannot" in each for each in notes)
    more = " + m * n * k * m * n * k % 97 * 5"
    changed(folder / "accel.toml", r"(\* max\(m, step\)|lanes\) \* k \* m)(?=\")", rf"\1{more}")
    assert said(folder, capsys) == (0, [])


@pytest.mark.parametrize("description", ["driver", "queues", "no simulator"])
def test_what_it_says_of_a_description_mends_it(
    description: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _copied(tmp_path)
    path = folder / "accel.toml"
    right = path.read_text(encoding="utf-8")
    if description == "driver":
        changed(path, "transfer = 9", "transfer = 12")
        changed(path, "configure = 8", "configure = 5")
        _, notes = said(folder, capsys)
        told = re.findall(r"(\w+) = (\d+) instead of (\d+)", notes[0])
        assert len(told) == 2 and "[machine.driver] of accel.toml should say" in notes[0]
        for name, new, old in told:
            changed(path, f"(?m)^{name} = {old}$", f"{name} = {new}")
        assert path.read_text(encoding="utf-8") == right
    elif description == "queues":
        changed(path, 'entries = "entries"', "entries = 1")
        _, notes = said(folder, capsys)
        assert any("queues (entries, completion, in_order)" in each for each in notes)
        path.write_text(right, encoding="utf-8")
    else:
        changed(path, 'simulator = "own"', 'simulator = "none"')
        changed(path, r"(?s)\[simulator\].*?(?=\[machine\])", "")
        code, errors = said(folder, capsys)
        assert code == 2 and "give it one, see docs/your-simulator.md" in errors[0]
        path.write_text(right, encoding="utf-8")
    assert said(folder, capsys) == (0, [])
