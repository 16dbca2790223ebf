# SPDX-License-Identifier: Apache-2.0
"""Simulators of backends' own that lack, miscount or misreport anything: no command is wrong."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper
import pytest
from comparisons import some
from umakit.cli.main import run_command

from umakit import compile_model, find_backend
from umakit.devices import HOST, Device, build, probe
from umakit.devices.designs import DesignObjects
from umakit.devices.libraries import CallableLibrary
from umakit.devices.simulators import Simulator

PROGRAMS = Path(__file__).parent / "programs"
VARIABLE = "UMAKIT_TEST_SIMULATOR"

SIZE = 24
X = np.random.default_rng(5).normal(size=(1, SIZE)).astype("float32")

FIELDS = ("clock", "busy_cycles", "compute_cycles", "dma_cycles", "macs", "bytes_read",
          "bytes_written")  # fmt: skip
SHOWN = {
    "clock_cycles": ("clock",), "cycles": ("busy_cycles",), "array_cycles": ("compute_cycles",),
    "dma_cycles": ("dma_cycles",), "device_macs": ("macs",),
    "moved_bytes": ("bytes_read", "bytes_written"),
}  # fmt: skip
"""The counters that each figure of a layer is made of."""

BROKEN = {
    "version-0": "the version of the simulator's table is not",
    "version-2": "the version of the simulator's table is not",
    "no-table": "the simulator has no table of functions",
    "null-create": "lacks create, read32, write32 or wait",
    "null-read32": "lacks create, read32, write32 or wait",
    "null-write32": "lacks create, read32, write32 or wait",
    "null-wait": "lacks create, read32, write32 or wait",
    "create-fails": "the simulator could not be created",
    "fail-at-once": "it has no licence",
    "fail-in-job": 'the "second" bank is full',
    "wait-never": "did not finish in time|status 6|time",
    "status-wrong": "status",
    "align-3": "map_alignment of the simulator's table is no power of two",
}
"""What ends a run, and what is said."""

HARMLESS = ("without-reset", "with-unmapping", "with-misuse", "align-4", "without-counters",
            "events-none", "events-odd", "events-many")  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a backend, a network, inputs and a library."""
    folder = tmp_path_factory.mktemp("sweep")
    backend = folder / "relu_npu"
    shutil.copytree(PROGRAMS / "relu_npu", backend)
    shutil.copy(PROGRAMS / "any_simulator.c", backend)
    text = (backend / "accel.toml").read_text()
    old = 'program = ["python3", "model.py"]'
    assert old in text
    (backend / "accel.toml").write_text(text.replace(old, 'sources = ["any_simulator.c"]'))
    nodes = [
        onnx.helper.make_node(operator, [source], [target], name=operator.lower() + target)
        for operator, source, target in (("Relu", "x", "a"), ("Neg", "a", "b"), ("Relu", "b", "y"))
    ]
    x, y = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, SIZE]) for name in "xy"
    )
    graph = onnx.helper.make_graph(nodes, "network", [x], [y])
    opset = onnx.helper.make_opsetid("", 17)
    model = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8)
    onnx.save(model, folder / "network.onnx")
    np.savez(folder / "in.npz", x=X)
    compile_model(folder / "network.onnx", [find_backend(backend)], folder / "library")
    return folder


@pytest.fixture(scope="module", autouse=True)
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Programs of the same files, which each command compiles anew, are compiled once.

    All commands run one network, and a variable says what its simulator does.
    """
    folder, compile_c = tmp_path_factory.mktemp("programs"), build.compile_c

    def compile_once(
        sources: list[Path],
        output: Path,
        flags: list[str],
        device: Device = HOST,
        simulators: Sequence[Simulator] = (),
        libraries: Sequence[CallableLibrary] = (),
        designs: DesignObjects = build.NO_DESIGNS,
    ) -> None:
        assert not libraries and not designs.objects
        folders = {source.parent for source in sources}
        folders |= {Path(flag[2:]) for flag in flags if flag.startswith("-I")}
        contents = sorted(
            (path.name, path.read_bytes())
            for path in {*sources, *(path for each in folders for path in each.rglob("*.h"))}
        )
        options = [flag for flag in flags if not flag.startswith("-I")]
        digests = [simulator.digest() for simulator in simulators]
        key = repr([device.name, build.FLAGS, options, digests, contents]).encode()
        program = folder / hashlib.sha256(key).hexdigest()
        if not program.exists():
            compile_c(sources, program, flags, device, simulators)
        shutil.copy(program, output)

    with pytest.MonkeyPatch.context() as patch:
        for module in (build, probe):
            patch.setattr(module, "compile_c", compile_once)
        yield


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("COLUMNS", "200")
    yield
    os.environ.pop(VARIABLE, None)


def said(capsys: pytest.CaptureFixture[str], words: Sequence[object]) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command."""
    code = run_command([str(word) for word in words])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err and code in (0, 1, 2), captured.err
    if code:
        sentences = [line for line in captured.err.splitlines() if line.startswith("error: ")]
        assert len(sentences) == 1, captured.err
    return code, captured.out, " ".join(captured.err.split())


def is_known(figure: str, words: Sequence[str]) -> bool:
    """Whether a simulator that is told these words has the counters of a figure."""
    if "without-counters" in words:
        return False
    kinds = [f"{kind}-{field}" for kind in ("no", "back", "lost") for field in SHOWN[figure]]
    return not {*kinds} & {*words}


def expected(figure: str, words: Sequence[str]) -> int | None:
    """What a layer of a job counts."""
    if not is_known(figure, words):
        return None
    amount = SIZE * (1 if figure in ("clock_cycles", "cycles", "array_cycles", "dma_cycles") else 4)
    return sum(0 if f"still-{field}" in words else amount for field in SHOWN[figure])


def check_runs(place: Path, words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    """`uma run` as JSON and as a table."""
    os.environ[VARIABLE] = " ".join(words)
    command = ["run", place / "library", "-i", place / "in.npz", "--profile"]
    code, out, err = said(capsys, [*command, "--json"])
    broken = [BROKEN[word] for word in words if word in BROKEN]
    if broken:
        assert code == 1 and not out, (words, err)
        assert any(re.search(sentence, err) for sentence in broken), (words, err)
        return
    assert code == 0, (words, err)
    run_json = out
    for layer in json.loads(run_json)["layers"]:
        for figure in SHOWN:
            wanted = expected(figure, words)
            if layer["where"] == "cpu":
                wanted = wanted and 0
            assert layer[figure] == wanted, (words, layer["name"], figure)
    code, out, err = said(capsys, command)
    assert code == 0 and "total" in out
    totals = [line for line in out.splitlines() if re.match("total(?!:)", line)]
    assert len(totals) == 2, "of the layers, and of the owners of their cycles"
    for total in totals:
        known = is_known("clock_cycles", words)
        assert bool(re.search(" -(?= |$)", total)) != known, (words, out)
    check_accounting(json.loads(run_json)["accounting"], words)


def check_accounting(view: dict[str, Any], words: Sequence[str]) -> None:
    """All parts add up to the clock, whatever the counters are."""
    rows = [row for row in view["rows"] if row["owner"] == "layer"]
    if not is_known("clock_cycles", words):
        assert view["clock_cycles"] is None and all(row["parts"] is None for row in rows)
        return
    assert sum(row["clock_cycles"] for row in view["rows"]) == view["clock_cycles"]
    for row in rows:
        parts = row["parts"]
        cycles = [parts[name] for name in ("computing", "registers", "idle", "undivided")]
        cycles += parts["waits"].values()
        assert sum(cycles) == row["clock_cycles"] and min(cycles) >= 0, words
        assert is_known("cycles", words) or parts["undivided"] == row["clock_cycles"], words


def check_report(place: Path, words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    """`uma report` as a page and as JSON, and `uma diff`."""
    os.environ[VARIABLE] = " ".join(words)
    inputs = [place / "network.onnx", "--backend", place / "relu_npu"]
    page = place / "page.html"
    page.unlink(missing_ok=True)
    code, out, err = said(capsys, ["report", *inputs, "-o", page, "--json"])
    if any(word in BROKEN for word in words):
        assert code == 1 and not page.exists(), (words, err)
        code, _, err = said(capsys, ["diff", *inputs])
        assert code == 1, (words, err)
        return
    assert code == 0, (words, err)
    report = json.loads(out)
    wanted = expected("clock_cycles", words)
    assert report["clock_cycles"] == (None if wanted is None else 2 * wanted), words
    text = page.read_text(encoding="utf-8")
    if wanted is None:
        assert "whose cycles no simulator counts" in text, words
    assert "NaN" not in text and "Infinity" not in text and "18446744" not in text, words
    code, out, err = said(capsys, ["diff", *inputs])
    assert code == 0, (words, out, err)


def drawn(draw: random.Random) -> list[str]:
    """Return words for a random simulator."""
    words = [word for word in HARMLESS if draw.random() < 0.25 and word != "events-many"]
    for field in FIELDS:
        kind = draw.choice(["", "", "", "no", "still", "back", "lost"])
        words += [f"{kind}-{field}"] if kind else []
    if draw.random() < 0.2:
        words.append(draw.choice([*BROKEN]))
    return words


@pytest.mark.parametrize("word", BROKEN)
def test_what_is_broken_is_one_sentence(
    word: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_runs(place, [word], capsys)


@pytest.mark.parametrize("word", HARMLESS)
def test_what_is_missing_is_not_needed(
    word: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_runs(place, [word], capsys)


@pytest.mark.parametrize("kind", ["no", "still", "back", "lost"])
def test_counters_one_by_one(kind: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for field in FIELDS:
        check_runs(place, [f"{kind}-{field}"], capsys)


def test_any_simulator_runs_or_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw = random.Random(0)
    for _ in range(15):
        check_runs(place, drawn(draw), capsys)


@pytest.mark.parametrize(
    "words", ["", "events-odd still-clock", "no-clock", "lost-clock events-odd", "wait-never"]
)
def test_reports_and_differences(
    words: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_report(place, words.split(), capsys)


@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")),
    reason="there is no emulator",
)
def test_emulators_count_the_same(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", place / "library", "-i", place / "in.npz", "--profile", "--json"]
    counted = []
    for device in ("host", "qemu-cortex-m3"):
        code, out, err = said(capsys, [*command, "--device", device])
        assert code == 0, err
        counted.append([[layer[figure] for figure in SHOWN] for layer in json.loads(out)["layers"]])
    assert counted[0] == counted[1] and counted[0][0] == [SIZE] * 4 + [4 * SIZE, 8 * SIZE]


@pytest.mark.soak
def test_sweep(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw = random.Random(int(os.environ.get("SOAK_SEED", "1")))
    for word in some((*BROKEN, *HARMLESS), 3):
        check_report(place, [word], capsys)
    for _ in some(range(24), 6):
        words = drawn(draw)
        check_runs(place, words, capsys)
        check_report(place, words, capsys)
