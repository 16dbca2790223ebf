# SPDX-License-Identifier: Apache-2.0
"""Whatever the machine does to a command, it ends with one sentence and an exit code."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import onnx
import pytest
from commands import COMMANDS
from comparisons import some
from onnx import TensorProto, helper
from remembering import remember
from umakit.cli import faults, main
from umakit.cli.main import run_command

from umakit.devices.build import file_argument
from umakit.errors import AcceleratorConfigError
from umakit.library.packages import FORMATS
from umakit.machine.accelerator_config import load_accelerator_config
from umakit.machine.calibration import Calibration
from umakit.testing.check.report import CheckReport
from umakit.tools.calibration import Outcome
from umakit.tools.cosim import CosimResult
from umakit.version import __version__

START = [sys.executable, "-m", "umakit.cli.start"]
PRODUCT = ["sim", "--gemm", "1,2,3"]
"""A command that imports nothing that takes time."""

Refused = Callable[..., str]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, inputs and a library."""
    folder = tmp_path_factory.mktemp("inputs")
    shape = [1, 4]
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"], "r")],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
    )
    opsets = [helper.make_opsetid("", 17)]
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    np.savez(folder / "in.npz", x=np.ones(shape, np.float32))
    assert run_command(["compile", str(folder / "model.onnx"), "-o", str(folder / "lib")]) == 0
    # The program that this builds is found in each copy.
    assert run_command(["run", str(folder / "lib"), "-i", str(folder / "in.npz")]) == 0
    return folder


@pytest.fixture
def place(exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it as the working folder."""
    shutil.copytree(exported, tmp_path / "place")
    monkeypatch.chdir(tmp_path / "place")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "place"


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refused:
    """Run a command that fails: its one sentence."""

    def run(*words: str, code: int = 2) -> str:
        capsys.readouterr()
        found = run_command(list(words))
        error = re.sub(r"^(\[|note: ).*\n", "", capsys.readouterr().err, flags=re.M)
        assert found == code and error.count("\n") == 1, (words, found, error[:500])
        assert error.startswith("error: ") and "Traceback" not in error and "bug" not in error
        return error

    return run


TUNED = Path(__file__).parents[1] / "examples" / "digits" / "digits_int8.onnx"

WRITING = {
    "new": "new my_npu",
    "compile": "compile model.onnx -o out --memory-map map.svg",
    "compile tar": "compile model.onnx -o out.tar",
    "run": "run lib -i in.npz -o out.npz",
    **{
        f"package {name}": f"package lib --format {name} -o out{form.suffix}"
        for name, form in FORMATS.items()
    },
    "diff": "diff model.onnx -o out",
    "report": "report model.onnx -o out.html",
    "calibrate": "calibrate chocolate_accelerator -o out.json",
    "tune": f"tune {TUNED} -b chocolate_accelerator --clock 1 --simulate 0 --records out.json",
    "sim records": f"sim {TUNED} -b chocolate_accelerator --sweep array.rows=8 --records out.json",
    "sim plot": f"sim {TUNED} -b chocolate_accelerator --sweep array.rows=8 --plot out.svg",
}
READING = {
    "partition": "partition model.onnx",
    "size": "size lib",
    "sim": "sim --gemm 1,2,3",
    "backends": "backends",
    "doctor": "doctor",
    "check": "check vanilla_accelerator --draws 1",
    "cosim": "cosim model.onnx -b strawberry_accelerator",  # writes only if something differs
}
NOTHING_MEASURED = Outcome(
    Calibration("chocolate_accelerator", "host", datetime.now(UTC), __version__, {}, (), ()), 0, ()
)
NOTHING_DRAWN = CheckReport("vanilla_accelerator", 0)
NOTHING_COMPARED = CosimResult((), None, 1, 0.0)
EACH = {**WRITING, **READING}
"""Command lines of all commands: those that write files, and those that print only."""


def tree(folder: Path) -> dict[str, bytes]:
    """All files below a folder but for what a run built."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "build" not in path.relative_to(folder).parts
    }


def test_every_command_is_tried() -> None:
    assert {words.split()[0] for words in EACH.values()} == COMMANDS.keys()


# --- the disk -----------------------------------------------------------------------------------


@pytest.mark.parametrize("command", WRITING)
def test_a_file_that_cannot_be_written(
    command: str, place: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(place)
    write = Path.write_bytes
    number = 0

    def failing(path: Path, data: bytes) -> int:
        if path.is_relative_to(place):
            raise OSError(number, os.strerror(number))
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", failing)
    remember(
        monkeypatch,
        "umakit.tools.diff.diff_model",
        "umakit.tools.page.make_page",
        "umakit.pipeline.planning.lower",
        "umakit.tools.sweeps.sweep.predict_machine",
    )
    monkeypatch.setattr("umakit.tools.calibration.calibrate", lambda *_, **__: NOTHING_MEASURED)
    for number in (errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO):
        error = refused(*EACH[command].split())
        assert f"cannot be written: {os.strerror(number)}" in error
        assert tree(place) == before


@pytest.mark.parametrize("command", ["run", "diff", "report", "size"])
def test_no_place_for_temporary_files(
    command: str, place: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere(*arguments: object, **options: object) -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr("tempfile.mkdtemp", nowhere)
    error = refused(*EACH[command].split())
    assert "emporary" in error


def test_a_disk_that_fills_up_while_a_program_runs(
    place: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("umakit.devices.run.execute", full)
    error = refused("run", "lib", "-i", "in.npz")
    assert "cannot be written: No space left on device; make room, or set TMPDIR" in error


@pytest.mark.parametrize("home", ["read-only", "none", "a file"])
def test_a_cache_that_cannot_be_written_is_done_without(
    home: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library is read-only too: its programs are built in a temporary folder."""
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    if home == "none":
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", str(blocked if home == "a file" else "/proc/self"))
    shutil.rmtree(place / "lib" / "build", ignore_errors=True)
    (place / "lib" / "build").write_text("a file, where programs would go")
    assert run_command(["run", "lib", "-i", "in.npz", "-o", "out.npz"]) == 0
    with np.load("out.npz") as found:
        assert np.array_equal(found["y"], np.ones((1, 4), np.float32))


# --- names --------------------------------------------------------------------------------------

STRANGE = [
    "-dash",
    "@at",
    "[red]",
    "a b/quote'\" label: /new\nline/\u00e4\u4e2d/byte\udcff/$HOME;x",
]


@pytest.mark.parametrize("name", STRANGE)
def test_any_name_of_a_folder_does(
    name: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(place / "lib" / "build")  # a compiler gets the name
    (place / name).parent.mkdir(parents=True, exist_ok=True)
    (place / "lib").rename(place / name)
    for words in (["run", "-i", "in.npz"], ["size"], ["package", "--format", "tar", "-o", "p.tar"]):
        code = run_command([*words, "--", name])
        assert code == 0, (words, capsys.readouterr().err)
    for words in (["run", "-i", "in.npz", "-o", f"{name}.npz"],):
        assert run_command([*words, "--", name]) == 0, capsys.readouterr().err
    assert (place / f"{name}.npz").is_file()


def test_a_compile_into_a_folder_with_a_dash(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["compile", "model.onnx", "-o", "-dash"]) == 0, capsys.readouterr().err
    assert (place / "-dash" / "metadata.json").is_file()
    for name in ("-dash/x.c", "@file.c"):
        assert file_argument(Path(name)) == f"./{name}"


LONG = "a" * 300


@pytest.mark.parametrize(
    "words",
    [
        f"partition {LONG}", f"partition model.onnx -b ./{LONG}", f"compile model.onnx -o {LONG}",
        f"compile model.onnx -o x --memory-map {LONG}.svg", f"compile model.onnx -o {LONG}.tar",
        f"run {LONG} -i in.npz", f"run lib -i {LONG}", f"run lib -i in.npz -o {LONG}",
        f"package {LONG} --format tar", f"package lib --format tar -o {LONG}.tar", f"size {LONG}",
        f"new x -d {LONG}", f"report model.onnx -o {LONG}", f"diff model.onnx -o {LONG}",
        f"tune model.onnx -b chocolate_accelerator --records {LONG}",
    ],
)  # fmt: skip
def test_names_that_are_too_long(words: str, place: Path, refused: Refused) -> None:
    assert "File name too long" in refused(*words.split()) or f"{LONG}" in words
    assert sorted(path.name for path in place.iterdir()) == ["in.npz", "lib", "model.onnx"]


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "empty", "loop", "missing"])
@pytest.mark.parametrize(
    "words",
    [
        "partition X", "compile X -o out", "compile model.onnx -o out -b ./X", "run X -i in.npz",
        "run lib -i X", "package X --format tar", "size X", "diff X", "report X",
        "diff model.onnx --inputs X", "diff model.onnx --library X",
        "compile model.onnx -b chocolate_accelerator --records X -o out",
        "tune X -b chocolate_accelerator --records new.json",
    ],
)  # fmt: skip
def test_inputs_that_are_no_files(kind: str, words: str, place: Path, refused: Refused) -> None:
    special = place / "X"
    if kind == "pipe":
        os.mkfifo(special)
    elif kind == "folder":
        special.mkdir()
    elif kind == "empty":
        special.touch()
    elif kind in ("device", "loop"):
        special.symlink_to("/dev/zero" if kind == "device" else "X")
    error = refused(*words.split())
    assert re.search(r"\bX\b|/dev/zero", error)


NUMBERS = ["9" * 4200, "9" * 5000, "-" + "9" * 5000]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize(
    "words",
    [
        "run lib -i in.npz --repeat=N", "compile model.onnx -o out --pool=sram=N",
        "compile model.onnx -o out --pool=sram=5,align=N", "sim --gemm=N,1,1", "sim --gemm=1,1,N",
        "sim --gemm=1,1,1 --rows=N", "report model.onnx --seed=N", "diff model.onnx --most=N",
        "compile model.onnx -o out --input-shapes=x:[1,N]", "run lib -i in.npz --timeout=N",
        "run lib -i in.npz --profile --inferences=N",
    ],
)  # fmt: skip
def test_numbers_of_thousands_of_digits(
    words: str, number: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run_command(words.replace("N", number).split())
    error = capsys.readouterr().err
    # As many inferences as there are, and any seed, are no mistakes.
    assert code == 2 or (code == 0 and ("--most" in words or "--seed" in words)), error[:300]
    assert "Traceback" not in error and "bug" not in error
    assert len(error) < 12_000


def test_numbers_in_accel_toml(place: Path) -> None:
    assert run_command(["new", "my_npu", "--tutorial", "vanilla"]) == 0
    path = place / "my_npu" / "accel.toml"
    text = path.read_text()
    for number in NUMBERS:
        path.write_text(re.sub(r"rows = \d+", f"rows = {number}", text))
        with pytest.raises(AcceleratorConfigError, match=r"accel\.toml(:\d+)?: "):
            load_accelerator_config(path)


# --- the process --------------------------------------------------------------------------------


def test_a_bug_is_said_to_be_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object) -> None:
        raise KeyError("what\nwas missing")

    monkeypatch.setattr("umakit.cli.sim.systolic_cycles", broken)
    monkeypatch.delenv("UMAKIT_TRACEBACK", raising=False)
    assert run_command(PRODUCT) == 70
    error = capsys.readouterr().err
    assert error.startswith("error: this is a bug of umakit: KeyError: ") and error.count("\n") == 1
    assert re.search(r"\(\S*sim\.py:\d+\)", error) and "UMAKIT_TRACEBACK=1" in error
    monkeypatch.setenv("UMAKIT_TRACEBACK", "1")
    assert run_command(PRODUCT) == 70
    assert "Traceback (most recent call last)" in capsys.readouterr().err


@pytest.mark.parametrize("as_what", [KeyboardInterrupt, RuntimeError, None])
def test_ctrl_c_is_130_whatever_it_is_turned_into(
    as_what: type[BaseException] | None, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def interrupted(*arguments: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            if as_what is None:
                raise
            raise as_what from None

    monkeypatch.setattr("umakit.cli.sim.systolic_cycles", interrupted)
    assert run_command(PRODUCT) == 130
    assert capsys.readouterr().err == "interrupted\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_no_memory_is_one_sentence(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    def large(*arguments: object) -> None:
        raise MemoryError

    monkeypatch.setattr("umakit.cli.sim.systolic_cycles", large)
    assert "not enough memory" in refused(*PRODUCT)


def shell(line: str, folder: Path, **environment: str) -> tuple[int, str]:
    """What a command line of bash ends with, and what it prints as errors."""
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail\n{line.replace('UMA', ' '.join(START))}"],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.soak
@pytest.mark.parametrize(
    "words", some(["sim --gemm 1,2,3 --json", "sim --gemm 1,2,3", "--help"], 2)
)
def test_output_that_nobody_reads_or_that_cannot_be_written(words: str, tmp_path: Path) -> None:
    assert shell(f"UMA {words} | true", tmp_path) in ((141, ""), (0, ""))
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*START, *words.split()], stdout=writing, stderr=subprocess.PIPE, cwd=tmp_path, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")
    sentence = "error: standard output cannot be written: {}\n"
    closed, full = (
        sentence.format("Bad file descriptor"),
        sentence.format("No space left on device"),
    )
    assert shell(f"UMA {words} >&-", tmp_path) == (2, closed)
    assert shell(f"UMA {words} > /dev/full", tmp_path) == (2, full)


@pytest.mark.parametrize("command", EACH)
def test_an_output_that_takes_nothing(
    command: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    remember(
        monkeypatch,
        "umakit.tools.diff.diff_model",
        "umakit.tools.page.make_page",
        "umakit.pipeline.planning.lower",
    )
    monkeypatch.setattr("umakit.tools.calibration.calibrate", lambda *_, **__: NOTHING_MEASURED)
    monkeypatch.setattr("umakit.testing.check.check_backend", lambda *_, **__: NOTHING_DRAWN)
    monkeypatch.setattr("umakit.tools.cosim.cosim_model", lambda *_, **__: NOTHING_COMPARED)
    code = None
    with (
        contextlib.suppress(OSError),  # when it is closed
        Path("/dev/full").open("w") as full,
        monkeypatch.context() as patch,
    ):
        patch.setattr("sys.stdout", full)
        code = run_command(EACH[command].split())
    assert code == 2
    error = capsys.readouterr().err
    assert error.endswith("error: standard output cannot be written: No space left on device\n")


def test_other_streams_may_be_closed(tmp_path: Path) -> None:
    assert shell("UMA sim --gemm 1,2,3 <&- 2>&-", tmp_path) == (0, "")
    assert shell("UMA sim --gemm x 2>&-", tmp_path) == (2, "")
    assert shell("UMA sim --gemm x 2>/dev/full", tmp_path) == (2, "")


def test_any_locale_does(tmp_path: Path) -> None:
    for environment in ({"LC_ALL": "C"}, {"PYTHONIOENCODING": "ascii"}, {"LANG": "xx_XX"}):
        code, error = shell("UMA sim --gemm 1,2,3 && UMA size $'\\xff\\xe4'", tmp_path,
                            **environment)  # fmt: skip
        error = re.sub(r"^\[.*\n", "", error, flags=re.M)
        assert code == 2 and error.count("\n") == 1 and "not a umakit library" in error, error


def test_a_deleted_working_folder(tmp_path: Path) -> None:
    line = "mkdir gone && cd gone && rmdir ../gone && UMA sim --gemm 1,2,3"
    sentence = "error: the working folder was deleted; change to another one\n"
    assert shell(line, tmp_path) == (2, sentence)
    # A recompile into it puts another one in its place.
    again = "mkdir place && cd place && rmdir ../place && mkdir ../place && UMA sim --gemm 1,2,3"
    assert shell(again, tmp_path) == (0, "")


STARTED = "from umakit.cli.start import main; print('started', flush=True); main()"
"""What the program `uma` does, after a line that says when: Python itself takes a while."""


def test_ctrl_c_at_any_moment_leaves_no_traceback(tmp_path: Path) -> None:
    """From the start of the program on: while it imports, and while it works."""
    for delay in (0.05, 0.8):
        process = subprocess.Popen(
            [sys.executable, "-c", STARTED, "tune", "missing.onnx", "-b", "chocolate_accelerator",
             "--records", "r.json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path, text=True,
        )  # fmt: skip
        assert process.stdout is not None and process.stdout.readline() == "started\n"
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
        assert process.returncode in (130, 2, -signal.SIGINT), (delay, error)
        assert "Traceback" not in error, (delay, error)


def test_in_a_thread_a_command_runs_as_well() -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(main.run_command, PRODUCT).result() == 0


def test_ctrl_c_in_a_callback_that_cannot_raise_is_silent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Python calls back when objects are deleted, in importing too, and prints what that raises."""

    class Last:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    with faults._interrupts() as is_interrupted:
        assert not is_interrupted()
        Last()
        assert is_interrupted()
    assert capsys.readouterr().err == ""
