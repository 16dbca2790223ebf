# SPDX-License-Identifier: Apache-2.0
"""Measured costs: of a machine whose description says nothing right, by its own simulator."""

from __future__ import annotations

import io
import itertools
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from umakit.cli.calibrate import INEXACT, _lines, _say_costs, _say_layers
from umakit.cli.main import run_command

from umakit.backend import UMABackend, load_backend_folder
from umakit.machine import Copy, Kind, Layer, TileSizes
from umakit.machine.calibration import Calibrated, Calibration, copy_sizes, read_calibration
from umakit.machine.commands import commands_of
from umakit.machine.simulator_config import program_files
from umakit.machine.space import tiles_on
from umakit.testing.example_networks import QuantizedNetwork
from umakit.tools.calibration import Outcome
from umakit.tools.calibration.calibrate import driver_note
from umakit.tools.calibration.choice import Choice
from umakit.tools.calibration.fit import COPY_SIZES, JOB_SIZES, fitted
from umakit.tools.calibration.measure import MeasuredTiles
from umakit.tools.page import make_page

pytestmark = pytest.mark.optimized_simulators

EXAMPLE = Path(__file__).parents[1] / "examples" / "lane_npu"
PROGRAMS = Path(__file__).parent / "programs"
PROTOCOL = Path(__file__).parents[1] / "umakit" / "testing" / "simulator_program.py"
DIGITS = Path(__file__).parents[1] / "examples" / "digits" / "digits_int8.onnx"
RIGHT_BUSY = re.compile(r'^busy = (""".*?"""|".*?")$', re.MULTILINE | re.DOTALL)
RIGHT_TAIL = re.compile(r'tail = "(pipeline|latency0|latency1)"')
RIGHT_DEPTHWISE = 'busy = "1 + ceil_div(n, lanes) * k * m"'
TILES = "32"


def wrong_backend(folder: Path) -> Path:
    """The example with a description whose costs have nothing to do with the simulator."""
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / "accel.toml"
    text, busy = RIGHT_BUSY.subn('busy = "100"', path.read_text(encoding="utf-8"))
    text, tails = RIGHT_TAIL.subn('tail = "3"', text)
    assert (busy, tails, text.count(RIGHT_DEPTHWISE)) == (3, 4, 1)
    path.write_text(text.replace(RIGHT_DEPTHWISE, 'busy = "7"'), encoding="utf-8")
    return folder


Answers = dict[str, Any]


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Answers]:
    """The folder of the wrong backend after `uma calibrate`, and what that printed as JSON."""
    folder = wrong_backend(tmp_path_factory.mktemp("measured") / "lane_npu")
    output = folder.parent / "printed.json"
    with pytest.MonkeyPatch.context() as patch, output.open("w", encoding="utf-8") as stream:
        patch.setattr("sys.stdout", stream)
        shown = io.StringIO()
        patch.setattr("sys.stderr", shown)
        # By a clock of 3 s a look, each line counts as late: a fast machine shows the same.
        clock = SimpleNamespace(monotonic=itertools.count(0, 3).__next__)
        patch.setattr("umakit.cli.console.time", clock)
        assert run_command(["calibrate", str(folder), "--tiles", TILES, "--json"]) == 0
    progress = re.findall(r"\] (.+): (\d+) of (\d+) layers$", shown.getvalue(), re.MULTILINE)
    printed: Answers = json.loads(output.read_text(encoding="utf-8"))
    return folder, printed | {"progress": progress}


def test_progress_counts_the_layers_of_each_kind(calibrated: tuple[Path, Answers]) -> None:
    counts: dict[str, list[tuple[int, int]]] = {}
    for what, done, count in calibrated[1]["progress"]:
        counts.setdefault(what, []).append((int(done), int(count)))
    assert len(counts) > 3 and counts.pop("fitting")[0][0] == calibrated[1]["measured_layers"]
    whole = 0
    for of_kind in counts.values():
        assert of_kind == sorted(of_kind) and len({count for _, count in of_kind}) == 1
        assert all(done <= count > 0 for done, count in of_kind)
        whole += of_kind[-1][0] == of_kind[-1][1] > int(TILES) // 4
    assert whole >= 3


def machine_of(backend: UMABackend) -> Any:
    assert backend.tiling is not None
    return backend.tiling.machine


def test_costs_are_those_of_the_simulator(calibrated: tuple[Path, Answers]) -> None:
    """What the example describes by hand, and its simulator does, on sizes that were not tried."""
    measured = machine_of(load_backend_folder(calibrated[0]))
    by_hand = machine_of(load_backend_folder(EXAMPLE))
    assert isinstance(measured, Calibrated)
    for kind in (Kind.CONVOLUTION, Kind.DEPTHWISE):
        layer = Layer(kind, 1, (30, 30), (28, 28), 80, 80, (3, 3), stored_channels=80, scales=80)
        for rows, columns, outputs, inputs in ((1, 1, 1, 16), (2, 9, 80, 80), (14, 28, 40, 48)):
            sizes = TileSizes(layer, measured.dataflows[0], rows, columns, outputs, inputs)
            right = by_hand.job(sizes)
            found = measured.job(sizes)
            assert (found.busy, found.tail) == (right.busy, right.tail), sizes
    for tensor in ("data", "weights", "parameters", "result"):
        for copied in (Copy(tensor, 1, 1, 1000), Copy(tensor, 3, 11, 49), Copy(tensor, 1, 6, 256)):
            right, found = by_hand.copy(copied), measured.copy(copied)
            assert (found.busy, found.tail) == (right.busy, right.tail), copied


def test_it_says_how_far_it_is_right(calibrated: tuple[Path, Answers]) -> None:
    folder, printed = calibrated
    assert printed["output"] == str(folder / "calibration.json") and printed["is_used"]
    assert printed["exact_commands"] == printed["held_out_commands"] > 20
    assert printed["worst_percent"] == 0 and not printed["changes_nothing"]
    names = {each["layer"] for each in printed["layers"]}
    assert len(names) == 6 and any("with a sum" in each for each in names)
    assert ["data", "addend"] in [each["tensors"] for each in printed["copies"]]
    for layer in printed["layers"]:
        assert layer["clock_cycles"] == layer["predicted_cycles"]
    assert [each["kind"] for each in printed["jobs"]] == ["convolution", "depthwise"]
    assert {each["used"] for each in printed["measured"]} == {"measured"} and printed["holds"]
    assert min(each["evidence_before"]["worst_percent"] for each in printed["measured"]) > 50
    assert max(abs(each["difference_percent_before"]) for each in printed["layers"]) > 50
    assert printed["device"] == "host" and printed["backend"] == "lane_npu"
    (note,) = printed["notes"]
    assert "lane_npu took no max pool, no average pool" in note


def outcome_of(found: Calibration, notes: tuple[str, ...] = ()) -> Outcome:
    """A calibration that replaces one that is the same."""
    costs = (*found.jobs, *found.copies)
    choices = tuple(Choice(each, (each,), each.evidence) for each in costs)
    return Outcome(found, 1, notes, choices, found.layers)


def test_it_says_where_to_look_if_commands_are_right_and_layers_are_not(
    calibrated: tuple[Path, Answers], capsys: pytest.CaptureFixture[str]
) -> None:
    found = read_calibration(calibrated[0] / "calibration.json")
    assert outcome_of(found).hints == ()
    late = replace(found.layers[0], clock_cycles=found.layers[0].clock_cycles + 1)
    off = outcome_of(replace(found, layers=(late, *found.layers[1:])), ("first",))
    (hint,) = off.hints
    _say_layers(off)
    printed = " ".join(capsys.readouterr().out.split())
    count = len(found.layers)
    assert f"whole layers: exact on {count - 1} of {count}" in printed
    for place in ("entries, completion", "depth", "banks, exclusive", "[machine.driver]", "room"):
        assert place in hint and place in printed
    assert off.as_json()["notes"] == ["first", hint]
    job = found.jobs[0]
    wrong = replace(job, evidence=replace(job.evidence, exact=job.evidence.exact - 1))
    costs_off = replace(off.calibration, jobs=(wrong, *found.jobs[1:]))
    assert outcome_of(costs_off).hints == ()


@pytest.mark.parametrize("columns", [60, 80, 100, 116, 140])
def test_formulas_are_broken_between_factors(
    columns: int, calibrated: tuple[Path, Answers], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    folder, view = calibrated
    monkeypatch.setenv("COLUMNS", str(columns))
    _say_costs(outcome_of(read_calibration(folder / "calibration.json")))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    texts = [each["busy"] for each in (*view["jobs"], *view["copies"])]
    for factor in {factor for text in texts for factor in re.split(r" [*+-] ", text)}:
        assert any(factor in line for line in lines), factor
    if columns <= 100:  # below the table, so that nothing stands between their lines
        together = " ".join(" ".join(lines).split())
        assert all(text in together for text in texts)


def test_factors_stay_whole() -> None:
    formula = "5 - max(ceil_div(m * n * k, 7), 2) * n + 2 * k; then 8"
    assert _lines(formula, 39) == ["5 - max(ceil_div(m * n * k, 7), 2) * n", "+ 2 * k; then 8"]
    assert _lines(formula, 1)[:3] == ["5", "- max(ceil_div(m * n * k, 7), 2)", "* n"]


def test_networks_are_predicted_from_it(calibrated: tuple[Path, Answers], tmp_path: Path) -> None:
    """Tilings of several buffers and loops, and an addition, none of which was measured."""
    network = QuantizedNetwork(18, 15, 24).conv2d(24).residual().conv2d(24, depthwise=True)
    model = network.conv2d(70, 1).model("held_out")
    page = make_page(model.module, [load_backend_folder(calibrated[0])], inputs=model.inputs)
    assert next(layer.kind for layer in page.tiled) == "convolution with a sum"
    assert len(page.tiled) == 3
    for layer in page.tiled:
        assert layer.tiled is not None and layer.difference == 0
    wrong = wrong_backend(tmp_path / "lane_npu")
    page = make_page(model.module, [load_backend_folder(wrong)], inputs=model.inputs)
    assert all(abs(layer.difference or 0) > 2 for layer in page.tiled)


def test_profiles_say_how_far_predictions_were_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = wrong_backend(tmp_path / "lane_npu")
    library = tmp_path / "library"
    assert run_command(["compile", str(DIGITS), "-b", str(folder), "-o", str(library)]) == 0
    names = json.loads((library / "metadata.json").read_text(encoding="utf-8"))["umakit"]["layers"]
    promised = {layer["name"]: layer["predicted_cycles"] for layer in names}
    command = ["run", str(library), "-i", str(DIGITS.parent / "held_out.npz"), "--profile"]
    capsys.readouterr()
    assert run_command([*command, "--json"]) == 0
    view = json.loads(capsys.readouterr().out)
    own = [layer for layer in view["layers"] if layer["where"] == "lane_npu"]
    assert len(own) == 5
    for layer in view["layers"]:
        assert layer["predicted_cycles"] == promised[layer["name"]]
        assert (layer["source"] == "cpu") == (layer["predicted_cycles"] is None)
    for layer in own:
        off = 100 * (layer["predicted_cycles"] - layer["clock_cycles"]) / layer["clock_cycles"]
        assert abs(layer["difference_percent"] - off) < 1e-9 and abs(off) > 2
    totals = view["totals"]
    sums = [sum(layer[name] for layer in own) for name in ("clock_cycles", "predicted_cycles")]
    assert [totals["clock_cycles"], totals["predicted_cycles"]] == sums
    assert abs(totals["difference_percent"] - 100 * (sums[1] - sums[0]) / sums[0]) < 1e-9
    assert run_command(command) == 0
    text = capsys.readouterr().out
    said = "(5 of 5 layers on accelerators measured) + 3 CPU steps, unknown"
    assert said in " ".join(text.split())
    (row,) = re.findall(r"^conv2 +([\d,]+) +([\d,]+) +([+-][\d.]+) %$", text, re.MULTILINE)
    conv2 = next(layer for layer in own if layer["name"] == "conv2")
    assert row[0] == f"{conv2['clock_cycles']:,}" and row[1] == f"{conv2['predicted_cycles']:,}"
    assert row[2] == f"{conv2['difference_percent']:+.2f}"


Change = Callable[[Path], object]


def edit(name: str, old: str, new: str) -> Change:
    def change(folder: Path) -> None:
        text = (folder / name).read_text(encoding="utf-8")
        assert text.count(old) >= 1
        (folder / name).write_text(text.replace(old, new, 1), encoding="utf-8")

    return change


def program_backend(folder: Path) -> Path:
    """The wrong backend with a program that only keeps time as its simulator."""
    wrong_backend(folder)
    shutil.copy(PROGRAMS / "lane_npu_model.py", folder / "model.py")
    shutil.copy(PROTOCOL, folder)
    text = (folder / "accel.toml").read_text(encoding="utf-8")
    section = '[simulator]\nprogram = ["python3", "model.py"]\n\n[machine]'
    text, count = re.subn(r"\[simulator\].*?\[machine\]", section, text, flags=re.DOTALL)
    (folder / "accel.toml").write_text(text, encoding="utf-8")
    assert count == 1
    return folder


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('return {"clock": self.clock}', "return {}", "counts no cycles of a clock"),
        ("self.event(", "(lambda *_: None)(", "report what engines do as NOTE"),
        ('f"dma{channel}"', '"copies"', "expects 2; the timeline has array, copies"),
    ],
)
def test_it_says_what_a_program_lacks(
    old: str, new: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = program_backend(tmp_path / "lane_npu")
    edit("model.py", old, new)(folder)
    assert run_command(["calibrate", str(folder), "--tiles", "12"]) in (1, 2)
    error = capsys.readouterr().err.splitlines()[-1]
    assert words in error and error.startswith("error: ") and "lane_npu" in error
    edit("model.py", new, old)(folder)  # as it says
    assert run_command(["calibrate", str(folder), "--tiles", "12"]) in (0, INEXACT)
    assert (folder / "calibration.json").is_file()


HANGING = """\
#include "umakit/own_simulator.h"

static void *create(umakit_host *host) { return host; }
static uint32_t read32(void *simulator, uint32_t offset)
{
    for (volatile uint32_t turn = 0; simulator; turn = offset) {}
    return 0;
}

static void write32(void *simulator, uint32_t offset, uint32_t value)
{
    (void)simulator, (void)offset, (void)value;
}

static bool wait(void *simulator, uint64_t cycles) { return (void)simulator, (void)cycles, true; }

const struct umakit_own_simulator *lane_npu_simulator(void)
{
    static const struct umakit_own_simulator table = {
        .version = UMAKIT_OWN_SIMULATOR_VERSION, .create = create,
        .read32 = read32, .write32 = write32, .wait = wait};
    return &table;
}
"""


def test_a_simulator_that_never_returns_ends_it_and_tuning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = wrong_backend(tmp_path / "lane_npu")
    text = (folder / "accel.toml").read_text(encoding="utf-8")
    section = '[simulator]\nsources = ["hanging.c"]\ntimeout = 0.3\n\n[machine]'
    text, count = re.subn(r"\[simulator\].*?\[machine\]", section, text, flags=re.DOTALL)
    assert count == 1
    (folder / "accel.toml").write_text(text, encoding="utf-8")
    (folder / "hanging.c").write_text(HANGING, encoding="utf-8")
    records = str(tmp_path / "records.json")
    tune = ["tune", str(DIGITS), "-b", str(folder), "-r", records, "--simulate", "1"]
    places = {r"convolution \w+, \w+ to \w+": ["calibrate", str(folder)],
              r"layer 1 of 5, conv1": tune}  # fmt: skip
    for place, command in places.items():
        assert run_command(command) == 1
        error = " ".join(capsys.readouterr().err.split())
        sentence = "the simulator of lane_npu did not return from read32 within 0.3 s"
        assert re.search(rf"error: {place}[^:]*: {sentence}", error), error


def test_a_program_that_takes_fully_connected_layers_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = program_backend(tmp_path / "lane_npu")
    edit("patterns.py", "def layers(", "def all_layers(")(folder)
    edit("patterns.py", '"rounding": ("tflm", "ort")', '"rounding": ("ort",)')(folder)
    with (folder / "patterns.py").open("a", encoding="utf-8") as file:
        file.write("\n\ndef layers(planner):\n    return all_layers(planner)[-1:]\n")
    assert run_command(["calibrate", str(folder), "--tiles", "20", "--json"]) == 0
    view = json.loads(capsys.readouterr().out)
    assert view["exact_commands"] == view["held_out_commands"] > 10
    (job,) = view["jobs"]
    assert (job["kind"], job["tail"]) == ("convolution", "5")
    measured = machine_of(load_backend_folder(folder))
    for rows, inputs, outputs in ((1, 400, 100), (7, 48, 33), (1, 16, 250)):
        layer = Layer(Kind.CONVOLUTION, 1, (rows, 1), (rows, 1), inputs, outputs, (1, 1))
        sizes = TileSizes(layer, measured.dataflows[0], rows, 1, outputs, inputs)
        assert measured.job(sizes).busy == 9 + rows * -(-outputs // 32) * -(-inputs // 16)
        copied = measured.copy(Copy("data", 1, rows, inputs))
        assert (copied.busy, copied.tail) == (rows * -(-inputs // 8), 21)
    before, after = view["layers"]  # one layer, with the tilings of both costs
    assert before["layer"] == after["layer"] and before["clock_cycles"] > after["clock_cycles"]
    assert before["layer"].startswith("convolution 1x1")
    assert "lane_npu took fully connected layers, and no convolution" in view["notes"][1]
    edit("simulator_program.py", "VERSION = 1", "VERSION = 1 ")(folder)  # which model.py imports
    (notice,) = load_backend_folder(shutil.move(folder, tmp_path / "changed")).notices
    assert "digest of the files of [simulator] was" in notice


def test_costs_in_another_file_are_not_used(
    calibrated: tuple[Path, Answers], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(calibrated[0], tmp_path / "lane_npu")
    before = (folder / "calibration.json").read_bytes()
    for right, wrong in (("transfer = 9", "transfer = 11"), ("begin = 3", "begin = 1")):
        edit("accel.toml", right, wrong)(folder)
    output = tmp_path / "measured.json"
    assert run_command(["calibrate", str(folder), "--tiles", TILES, "-o", str(output)]) == 0
    printed, notes = capsys.readouterr()
    assert (
        "note: by the driver's register accesses in all layers, [machine.driver] of accel.toml "
        "should say begin = 3 instead of 1, transfer = 9 instead of 11 "
    ) in " ".join(notes.split()) + " "
    assert "Next: cp " in printed and f"Wrote {output}" in printed
    assert "dma1.load:" in printed  # a narrow table wraps names
    assert output.is_file() and (folder / "calibration.json").read_bytes() == before


def test_figures_of_a_driver_that_explain_not_all_layers_are_not_told() -> None:
    backend = load_backend_folder(EXAMPLE)
    planner = backend.tiling
    assert planner is not None and planner.driver.transfer == 9
    layers = []
    for channels in (16, 48, 80, 160, 320):
        layer = Layer(
            Kind.CONVOLUTION, 1, (30, 30), (28, 28), channels, channels, (3, 3),
            stored_channels=channels, scales=channels,
        )  # fmt: skip
        tiling = planner.default(layer)
        assert tiling is not None
        tiles = tiles_on(layer, tiling, planner.machine)
        commands = commands_of(tiles, planner.machine, planner.driver)
        accesses = sum(command.issue for command in commands) + planner.driver.finish
        cycles = planner.predict(tiles).cycles
        layers.append(MeasuredTiles(tiles, cycles, (), accesses))
    right = planner.driver
    assert driver_note(planner, layers) == ""
    planner.driver = replace(right, job=14, configure_add=1)
    note = driver_note(planner, layers)
    assert note.endswith("the DriverCosts of the planner should say job = 13 instead of 14")
    assert planner.driver == replace(right, job=14, configure_add=1)
    polling = [*layers[:-1], replace(layers[-1], accesses=layers[-1].accesses + 1)]
    assert driver_note(planner, polling) == ""
    assert driver_note(planner, layers[:3]) == ""
    unknown = [replace(each, accesses=None) for each in layers]
    assert driver_note(planner, unknown) == ""
    # Commands that reach the machine without accesses: their time stays, and 0 is no figure.
    planner.driver = right
    transfers = [sum(1 for each in commands_of(layer.tiles, planner.machine, right)
                     if each.issue == right.transfer) for layer in layers]  # fmt: skip
    assert len(set(transfers)) > 3
    for each in (0, 2):
        elsewhere = [replace(layer, accesses=layer.accesses - (right.transfer - each) * count)
                     for layer, count in zip(layers, transfers, strict=True)]  # fmt: skip
        assert driver_note(planner, elsewhere) == ""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (edit("accel.toml", "65536", "32768"), "was 65536, and is 32768 now"),
        (
            edit("accel.toml", "width1 = 8", "width1 = 4"),
            "width1 of accel.toml was 8, and is 4 now",
        ),
        (edit("simulator/machine.cc", "\n", "\n\n"), "digest of the files"),
        (edit("calibration.json", '"backend": "lane_npu"', '"backend": "other"'), "is of other"),
    ],
)
def test_costs_of_another_machine_are_not_used(
    change: Change, words: str, calibrated: tuple[Path, Answers], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    folder = tmp_path / "lane_npu"
    shutil.copytree(calibrated[0], folder)
    assert load_backend_folder(folder).notices == ()
    change(shutil.move(folder, tmp_path / "changed"))
    backend = load_backend_folder(tmp_path / "changed")
    assert not isinstance(machine_of(backend), Calibrated)
    (notice,) = backend.notices
    assert words in notice and "calibration.json is not used: " in notice
    assert run_command(["partition", str(DIGITS), "-b", str(tmp_path / "changed")]) == 0
    assert f"note: {notice}\n" in capsys.readouterr().err


def test_files_of_a_program_are_those_that_it_names_and_imports(tmp_path: Path) -> None:
    folder = tmp_path / "npu"
    texts = {
        "model.py": "import array, parts.memory\nimport tables as t\nfrom deep import one\n",
        "tables.py": "def f():\n    import late\n",
        "late.py": "import model\n",
        "other.py": "",
        "parts/__init__.py": "from . import rows\n",
        "parts/memory.py": "from ..outside import x\n",
        "parts/rows.py": "this is no Python\n",
        "parts/unused.py": "",
        "deep/one.py": "",
        "weights.bin": "",
        "data/table.csv": "",
        "../outside.py": "",
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    modules = ["deep/one.py", "late.py", "model.py", "parts/__init__.py"]
    modules += ["parts/memory.py", "parts/rows.py", "tables.py"]

    def files(*program: str) -> list[str]:
        return list(program_files(program, folder))

    assert files("python3", "model.py") == files("python3", "-m", "model") == modules
    assert files("python3", "-m", "parts") == ["parts/__init__.py", "parts/rows.py"]
    assert files("./other.py", "--weights=weights.bin", "data", "9" * 5000) == [
        "other.py", "weights.bin",
    ]  # fmt: skip
    assert files("sh", "-c", "true", ".", "../outside.py", str(tmp_path / "outside.py")) == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "calibration.json: is not valid JSON"),
        ("[]", "holds no measured costs"),
        ('{"format": "umakit calibration", "version": 9}', "is of version 9, this umakit reads 1"),
        ('{"format": "umakit calibration", "version": 1}', "backend: Field required"),
    ],
)
def test_a_damaged_file_is_refused(
    content: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "lane_npu"
    shutil.copytree(EXAMPLE, folder)
    (folder / "calibration.json").write_text(content, encoding="utf-8")
    assert run_command(["calibrate", str(folder)]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1 and "uma calibrate" in error


def test_what_cannot_be_measured_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(folder: str | Path, words: str) -> None:
        assert run_command(["calibrate", str(folder), "--tiles", "12"]) == 2
        error = capsys.readouterr().err
        assert words in error and error.splitlines()[-1].startswith("error: ")
        assert not list(tmp_path.glob("*/calibration.json"))

    refused("vanilla_accelerator", "does not cut layers into tiles")
    other = shutil.copytree(EXAMPLE, tmp_path / "other")
    edit("patterns.py", "    return [", "    return []\n    return [")(other)
    refused(other, "takes none of the layers that are measured: convolutions")
    silent = shutil.copytree(EXAMPLE, tmp_path / "silent")
    text = (silent / "simulator" / "machine.cc").read_text(encoding="utf-8")
    assert "umakit_host_event(" in text
    text = text.replace("umakit_host_event(", "(void)(")
    (silent / "simulator" / "machine.cc").write_text(text, encoding="utf-8")
    refused(silent, "the simulator of lane_npu on the device host reports no timeline")
    renamed = shutil.copytree(EXAMPLE, tmp_path / "renamed")
    text = (renamed / "accel.toml").read_text(encoding="utf-8")
    for name in ("array", "dma0", "dma1"):
        text = text.replace(f'name = "{name}"', f'name = "my_{name}"')
    (renamed / "accel.toml").write_text(text, encoding="utf-8")
    refused(renamed, "commands cannot be told apart")


# --- the fit --------------------------------------------------------------------------------------

SIZE = st.integers(1, 70)
PART = st.sampled_from((1, 3, 4, 7, 8, 12, 16, 24, 32))


@settings(max_examples=6)
@given(
    st.lists(st.tuples(SIZE, SIZE, SIZE), min_size=90, max_size=120, unique=True),
    PART, PART, PART, st.integers(0, 50), st.integers(1, 9), st.sampled_from((0, 5)),
)  # fmt: skip
def test_costs_of_an_array_are_found(
    tiles: list[tuple[int, int, int]], rows: int, columns: int, depth: int, start: int, each: int,
    per_fold: int,
) -> None:  # fmt: skip
    def cycles(m: int, n: int, k: int) -> int:
        folds = ((m + rows - 1) // rows) * ((n + columns - 1) // columns)
        return start + folds * (per_fold + each * ((k + depth - 1) // depth))

    def sizes(m: int, n: int, k: int) -> dict[str, int]:
        others = {"rows": m, "columns": 1, "input_channels": k, "window": 1, "described": 1}
        return {"m": m, "n": n, "k": k, "macs": m * n * k, **others}

    fitted_ones, held_out = tiles[:75], tiles[75:]
    formula = fitted([(sizes(*tile), cycles(*tile)) for tile in fitted_ones], JOB_SIZES)
    right = sum(formula.of(sizes(*tile)) == cycles(*tile) for tile in held_out)
    assert right >= len(held_out) - 2, str(formula)


@pytest.mark.parametrize(("width", "latency", "burst"), [(4, 0, 64), (32, 16, 64), (8, 20, 256)])
def test_costs_of_bursts_are_found(width: int, latency: int, burst: int) -> None:
    def cycles(copied: Copy) -> int:
        bursts = (copied.row_bytes + burst - 1) // burst
        words = (copied.row_bytes + width - 1) // width
        return copied.planes * copied.rows * (bursts * latency + words)

    copies = [
        Copy("data", planes, rows, row_bytes)
        for planes, rows in ((1, 1), (1, 2), (3, 1), (2, 5))
        for row_bytes in (1, 3, 4, 5, 8, 9, 31, 32, 33, 63, 64, 65, 100, 128, 129, 255, 257, 700)
    ]
    samples = [({**copy_sizes(each), "described": 1}, cycles(each)) for each in copies]
    formula = fitted(samples, COPY_SIZES)
    for each in (Copy("data", 4, 7, 500), Copy("data", 1, 9, 77), Copy("data", 2, 2, 1024)):
        assert formula.of({**copy_sizes(each), "described": 1}) == cycles(each), str(formula)


def test_described_costs_that_are_right_stay() -> None:
    samples = [
        ({**copy_sizes(Copy("data", 1, 1, n)), "described": n * n}, n * n) for n in range(1, 40)
    ]
    assert str(fitted(samples, COPY_SIZES)) == "described"
    late = [(sizes, cycles + 5) for sizes, cycles in samples]
    assert str(fitted(late, COPY_SIZES)) == "5 + described"


def test_a_cost_that_has_no_such_form_is_not_called_exact() -> None:
    tiles = [(m, n, k) for m in (1, 5, 9, 30) for n in (1, 7, 40) for k in (3, 16, 65)]
    samples = [
        ({"m": m, "n": n, "k": k, "macs": m * n * k, "described": 1}, 50 + (m * n * k) ** 2 % 97)
        for m, n, k in tiles
    ]
    choices = [("described",), ("macs",), ("m", "n", "k")]
    formula = fitted(samples, choices)
    assert any(formula.of(sizes) != cycles for sizes, cycles in samples)


@pytest.mark.parametrize("percent", [0.0, 5.0, 63.8])
def test_formulas_that_are_far_off_are_named(
    percent: float, calibrated: tuple[Path, Answers], capsys: pytest.CaptureFixture[str]
) -> None:
    found = read_calibration(calibrated[0] / "calibration.json")
    first, *others = found.copies
    exact = first.evidence.held_out if percent == 0 else 0
    evidence = replace(first.evidence, exact=exact, worst_percent=percent)
    whole = outcome_of(replace(found, copies=(replace(first, evidence=evidence), *others)))
    outcome = replace(whole, tiles=32)
    _say_layers(outcome)
    printed = " ".join(capsys.readouterr().out.split())
    assert outcome.holds is (percent <= 5)
    assert (f"note: {first.name}: what is used is off by up to" in printed) is (percent > 5)
    if percent > 5:
        assert "63.8 % on commands that were held out" in printed
        assert "--tiles 120 measures more layers" in printed
        assert outcome.as_json()["notes"][-1] == outcome.hints[0]
