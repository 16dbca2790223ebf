# SPDX-License-Identifier: Apache-2.0
"""Devices as TOML files: umakit's own, and those of users."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from networks import Graph, save
from umakit.cli.main import run_command
from umakit.cli.options import device_of, device_of_library

import umakit
from umakit.backend import registry
from umakit.backend.registry import BackendSource
from umakit.devices import DEVICES, HOST, Device, device, execute, find_device
from umakit.devices.board_files import FOLDER
from umakit.devices.device import SUPPORT
from umakit.devices.run import run_library
from umakit.errors import BuildError, DeviceError, InputError, MissingProgramError, UmakitError
from umakit.library.layout import RUNTIME
from umakit.tools.doctor.environment import device_check

PROGRAM, WORDS, PLACE = Path("/p/run-1"), ["in,puts", "out", "1"], Path("/p")


# --- umakit's own -------------------------------------------------------------------------------


SEMIHOSTING = "enable=on,target=native,arg=main,arg=in,,puts,arg=out,arg=1"
QUIET = ["-display", "none", "-monitor", "none", "-serial", "none", "-icount", "shift=0"]
SECTIONS = ["-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections", "-nostartfiles"]

COMMANDS = {
    "qemu-cortex-m4": (
        [
            "arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard",
            "-mfpu=fpv4-sp-d16",
        ],
        [*SECTIONS, f"-L{SUPPORT}", "-T", f"{SUPPORT}/cortex_m3.ld"],
        [
            "cortex_m.S", "cortex_m.c", "platform_semihosting.c", "semihosting.c", "expf.c",
            "tanhf.c",
        ],
        [
            "qemu-system-arm", "-M", "mps2-an386", *QUIET,
            "-semihosting-config", SEMIHOSTING, "-kernel", "/p/run-1",
        ],
    ),
    "qemu-riscv64-linux": (
        [
            "clang-16", "--target=riscv64-linux-gnu", "-march=rv64gc", "-mabi=lp64d",
            "-mllvm", "-vectorize-loops=0", "-mllvm", "-vectorize-slp=0",
        ],
        ["-static"],
        ["umakit_platform_hosted.c", "tanhf.c"],
        ["qemu-riscv64", "-cpu", "rv64,v=true,vext_spec=v1.0", "/p/run-1", *WORDS],
    ),
    "qemu-riscv32": (
        [
            "riscv64-unknown-elf-gcc", "--specs=picolibc.specs", "-march=rv32imac", "-mabi=ilp32",
            "-mcmodel=medany",
        ],
        [*SECTIONS, f"-L{SUPPORT}", "-T", f"{SUPPORT}/riscv.ld"],
        ["riscv.S", "riscv.c", "platform_semihosting.c", "semihosting.c", "expf.c"],
        [
            "qemu-system-riscv32", "-M", "virt", "-m", "128M", "-bios", "none", *QUIET,
            "-semihosting-config", SEMIHOSTING, "-kernel", "/p/run-1",
        ],
    ),
}  # fmt: skip
"""Commands of devices as they were when devices were Python: compiler, flags, files, run."""


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_of_devices_are_those_that_they_were(name: str) -> None:
    compiler, flags, sources, run = COMMANDS[name]
    device = find_device(name)
    assert [device.command, *device.architecture] == compiler
    assert device.program_flags() == [f"-I{RUNTIME}", *flags]
    assert [path.name for path in device.platform_sources(RUNTIME)] == sources
    assert all(path.exists() for path in device.platform_sources(RUNTIME))
    assert device.run_command(PROGRAM, WORDS, PLACE) == run
    assert device.load_command(PROGRAM, WORDS, PLACE) == []


def test_each_file_is_a_device_with_numbers_in_order() -> None:
    files = {path.stem for path in FOLDER.glob("*.toml")}
    assert {device.name for device in DEVICES} - {"host"} == files
    names = [device.name for device in DEVICES]
    assert names.index("qemu-cortex-m7") < names.index("qemu-cortex-m55")
    for path in FOLDER.glob("*.toml"):
        text = path.read_text(encoding="utf-8")
        assert "SPDX-License-Identifier: Apache-2.0" in text
        # A device that is the base of a user's has no path relative to its own file.
        assert not re.search(r'"(\.|\w+\.(c|S|ld)")|\{here\}', text), path.name
        assert find_device(path.stem).own_file is None


# --- mistakes in a file -------------------------------------------------------------------------


BASE = 'base = "qemu-cortex-m4"\n'

MISTAKES = {
    "unknown key": (
        f'{BASE}linker_scrip = "x.ld"\n',
        ":2: linker_scrip: there is no such key; remove it, or write linker_script",
    ),
    "wrong type": (f"{BASE}\nflags = 3\n", ":3: flags: Input should be a valid"),
    "text for a number": (f'{BASE}timeout_seconds = "4"\n', ":2: timeout_seconds: Input should"),
    "no time": (f"{BASE}timeout_seconds = 0\n", ":2: timeout_seconds: Input should be greater"),
    "value": (
        f'{BASE}output = "semi-hosting"\n',
        """:2: output: Input should be 'files'.*; write "semihosting" instead of "semi-hosting\"""",
    ),
    "no toml": ("\nrun = 3 4\n", ":2: is no TOML: .*; correct it"),
    "no compiler": ('run = ["a", "{program}", "{arguments}"]\n', ": compiler: is missing; set"),
    "base": ('base = "qemu-cortex-m5"\n', ": base: there is no device 'qemu-cortex-m5'; choose"),
    "base of another type": ("base = [1]\n", ": base: there is no device"),
    "placeholder": (
        f'{BASE}run = ["qemu", "{{programm}}"]\n',
        r":2: run: there is no placeholder \{programm\} here; write \{program\}",
    ),
    "placeholder of a command": (
        f'{BASE}flags = ["-D{{program}}"]\n',
        r":2: flags: .* \{program\} here; there are \{support\}, \{here\}",
    ),
    "no program": (f'{BASE}run = ["qemu", "{{arguments}}"]\n', r":2: run: .* has \{program\}"),
    "no arguments": (f'{BASE}run = ["qemu", "{{program}}"]\n', ":2: run: .* gets no arguments"),
    "no run": (f"{BASE}run = []\n", ":2: run: is missing, which output"),
    "load alone": (
        'compiler = "cc"\nload = ["flash", "{program}"]\n', ": run: is missing, which load needs",
    ),
    "no script": (f'{BASE}linker_script = ""\n', ":2: linker_script: is missing"),
    "name of umakit": (f'{BASE}name = "host"\n', ": name: host is a device of umakit; choose"),
    "name": (f'{BASE}name = "a/b"\n', ":2: name: String should match"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_with_file_and_line(
    mistake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, wanted = MISTAKES[mistake]
    path = tmp_path / "board.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        find_device(path)
    assert re.match(re.escape(str(path)) + wanted, str(caught.value)), caught.value
    assert run_command(["doctor", "--device", str(path)]) == 2
    assert "\n" not in capsys.readouterr().err.strip()


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.toml: cannot be read: No such file"):
        find_device(tmp_path / "nowhere.toml")
    with pytest.raises(
        InputError, match=r"devices are host, qemu-aarch64, .*rpc://HOST:PORT, or a board's TOML"
    ):
        find_device("pdp11")


# --- what a file says ---------------------------------------------------------------------------


def test_paths_are_relative_to_the_file_and_the_rest_is_of_the_base(tmp_path: Path) -> None:
    (tmp_path / "boards").mkdir()
    path = tmp_path / "boards" / "mine.toml"
    path.write_text(
        f"{BASE}"
        'sources = ["start.c", "../common/uart.c", "{support}/cortex_m.S"]\n'
        'linker_script = "mine.ld"\n'
        'flags = ["-I{here}/include"]\n'
        'load = ["./flash.sh", "--image={program}", "{folder}"]\n'
        'run = ["../run.sh", "{arguments}", "cmd {arguments}", "{program}", "{semihosting}"]\n'
        "timeout_seconds = 5\n",
        encoding="utf-8",
    )
    device, here = find_device(path), tmp_path / "boards"
    assert device.name == "mine" and find_device(device) is device
    assert device.own_file == path and device.toolchain_file is None
    assert device.sources == (here / "start.c", tmp_path / "common/uart.c", SUPPORT / "cortex_m.S")
    assert device.linker_script == here / "mine.ld"
    assert device.program_flags()[-4:] == [f"-L{here}", f"-L{SUPPORT}", "-T", str(here / "mine.ld")]
    assert device.architecture == (f"-I{here}/include",)
    base = find_device("qemu-cortex-m4")
    assert (device.command, device.features) == (base.command, base.features)
    assert (device.is_bare_metal, device.counts_instructions) == (True, True)
    assert device.timeout_seconds == 5
    program = Path("/a b/{folder}/run")
    words = ["in", "{program}"]
    assert device.load_command(program, words, PLACE) == [
        str(here / "flash.sh"), f"--image={program}", "/p",
    ]  # fmt: skip
    assert device.run_command(program, words, PLACE) == [
        str(tmp_path / "run.sh"), "in", "{program}", "cmd in {program}", str(program),
        "enable=on,target=native,arg=main,arg=in,arg={program}",
    ]  # fmt: skip


# --- runs ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """y = -x, for four numbers."""
    folder = tmp_path_factory.mktemp("negative")
    graph = Graph("negative")
    graph.output(graph.node("Neg", graph.input("x", 4), name="y"))
    np.savez(folder / "in.npz", x=np.float32([1, 2, 3, 4]))
    return Path(umakit.compile_model(save(graph.model(), folder), [], folder / "library").path)


@pytest.fixture(autouse=True)
def nothing_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_said", set())


def here_board(folder: Path, script: str, more: str = "") -> Path:
    """A board that is this machine, reached by a shell script."""
    (folder / "run.sh").write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    (folder / "run.sh").chmod(0o755)
    path = folder / "here.toml"
    path.write_text(
        f'compiler = "gcc"\nrun = ["./run.sh", "{{program}}", "{{arguments}}"]\n{more}',
        encoding="utf-8",
    )
    return path


X = np.float32([1, 2, 3, 4])


def test_a_board_of_a_user_runs_and_its_commands_are_said_once(
    library: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    board = here_board(tmp_path, 'exec "$@"')
    inputs = library.parent / "in.npz"
    command = ["run", str(library), "--inputs", str(inputs), "--device", str(board), "--json"]
    assert run_command(command) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["outputs"] == {"y": {"shape": [4], "dtype": "float32"}}
    compiles, runs = printed.err.splitlines()
    assert compiles == "compiles with: gcc"
    program = f"{library}/build/here/run-[0-9a-f]{{16}}"
    assert re.fullmatch(f"runs: {tmp_path}/run.sh {program} inputs.bin outputs.bin 1 1", runs)
    np.testing.assert_array_equal(run_library(library, {"x": X}, device=board).outputs["y"], -X)
    assert capsys.readouterr().err == ""


def test_commands_take_a_file_as_they_take_a_name(
    library: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    board = str(here_board(tmp_path, 'exec "$@"', 'flags = ["-O1"]\n'))
    model = str(library.parent / "network.onnx")
    assert run_command(["size", str(library), "--device", board, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["compiler"].startswith("gcc -O1 ")
    assert run_command(["diff", model, "--library", str(library), "--device", board]) == 0
    assert "runs: " in capsys.readouterr().err
    assert run_command(["report", model, "--device", board, "--json"]) == 0
    assert "runs: " not in capsys.readouterr().err  # the same command of the same file
    tune = ["tune", model, "--cpu", "generic", "--device", board, "--records"]
    assert run_command([*tune, board]) == 2
    assert "no times, and does not count" in capsys.readouterr().err


def test_a_board_of_a_backend_is_found_by_its_name(tmp_path: Path) -> None:
    backend = tmp_path / "my_npu"
    (backend / "devices").mkdir(parents=True)
    (backend / "backend.py").write_text("", encoding="utf-8")
    board = here_board(tmp_path, 'exec "$@"').rename(backend / "devices" / "bench.toml")
    given = ["vanilla_accelerator", str(backend)]
    assert device_of("bench", given) == str(board) and find_device(board).name == "bench"
    assert device_of("host", given) == "host" and device_of("qemu-arm", given) == "qemu-arm"
    assert device_of("other.toml", given) == "other.toml" and device_of("other", given) == "other"
    assert device_of("bench", None) == "bench"


def test_a_board_of_a_backend_is_found_where_a_library_runs(
    library: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Those of the library's backends come first, then those of all that are known by name."""
    for name in ("first_npu", "second_npu"):
        (tmp_path / name / "devices").mkdir(parents=True)
        (tmp_path / name / "backend.py").write_text("", encoding="utf-8")
    board = here_board(tmp_path / "second_npu" / "devices", 'exec "$@"')
    board = board.rename(board.with_name("bench.toml"))
    other = here_board(tmp_path / "first_npu" / "devices", "exit 1")
    other.rename(other.with_name("bench.toml"))
    sources = [
        BackendSource(name, "test", str(tmp_path / name)) for name in ("first_npu", "second_npu")
    ]
    monkeypatch.setattr(registry, "list_backends", lambda: sources)
    assert device_of_library("bench") == str(other.with_name("bench.toml"))
    assert device_of_library("host") == "host" and device_of_library("none") == "none"
    mine = tmp_path / "library"
    shutil.copytree(library, mine)
    text = (mine / "metadata.json").read_text(encoding="utf-8")
    described = json.loads(text)
    monkeypatch.setattr(
        "umakit.library.metadata.load_metadata",
        lambda path: {"umakit": {**described["umakit"], "backends": [{"name": "second_npu"}]}},
    )
    assert device_of_library("bench", mine) == str(board)
    monkeypatch.undo()
    monkeypatch.setattr(registry, "list_backends", lambda: sources[1:])
    words = ["--device", "bench", "--json"]
    assert run_command(["run", str(library), "-i", str(library.parent / "in.npz"), *words]) == 0
    assert run_command(["size", str(library), *words]) == 0
    tune = ["tune", str(library.parent / "network.onnx"), "--cpu", "generic", "--device", "bench"]
    capsys.readouterr()
    assert run_command([*tune, "--records", str(tmp_path / "r.json")]) == 2
    assert "bench has no times" in capsys.readouterr().err


def test_a_board_of_a_backend_is_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vanilla = Path(__file__).parents[1] / "backends" / "vanilla_accelerator"
    backend = tmp_path / "vanilla_accelerator"
    shutil.copytree(vanilla, backend, ignore=shutil.ignore_patterns("__pycache__"))
    (backend / "devices").mkdir()
    here_board(backend / "devices", 'exec "$@"').rename(backend / "devices" / "bench.toml")
    words = ["check", str(backend), "--device", "bench", "--draws", "2", "--jobs", "1"]
    assert run_command(words) == 3  # two layers do not have every value
    assert f"runs: {backend}/devices/run.sh /" in capsys.readouterr().err


def test_devices_of_umakit_say_no_command(
    library: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_library(library, {"x": X})
    assert capsys.readouterr().err == ""


def test_a_program_is_loaded_before_it_runs(library: Path, tmp_path: Path) -> None:
    load = 'load = ["cp", "{program}", "{here}/flash"]\n'
    board = here_board(tmp_path, f'shift; exec {tmp_path}/flash "$@"', load)
    outputs = run_library(library, {"x": X}, device=board).outputs
    np.testing.assert_array_equal(outputs["y"], -X)
    here_board(
        tmp_path, "exit 0", 'load = ["sh", "-c", "echo no board >&2; exit 3", "{program}"]\n'
    )
    with pytest.raises(DeviceError) as caught:
        run_library(library, {"x": X}, device=board)
    assert str(caught.value) == "here: the program was not loaded: sh ended with 3: no board"


@pytest.mark.parametrize("command", ["load", "run"])
def test_a_hang_ends_with_all_that_was_started(command: str, library: Path, tmp_path: Path) -> None:
    """Here of a grandchild that keeps the pipes open."""
    script = f"sleep 1000 & echo $! > {tmp_path}/pid; wait"
    load = f'load = ["sh", "-c", "{script}"]\n' if command == "load" else ""
    board = here_board(tmp_path, script, f"timeout_seconds = 0.5\n{load}")
    started = time.monotonic()
    with pytest.raises(
        DeviceError, match=r"^here: .* did not end within 0\.5 s; if it is only slow"
    ):
        run_library(library, {"x": X}, device=board)
    assert time.monotonic() - started < 30
    pid = int((tmp_path / "pid").read_text())
    for _ in range(100):
        if not is_running(pid):
            return
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    pytest.fail("the command that the script started is still there")


def is_running(pid: int) -> bool:
    """Whether a process exists and is not one that has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


FAULTS = {
    "a crash": ("kill -SEGV $$", "was stopped by signal 11"),
    "an exit code": ("echo no probe >&2; exit 9", "the program failed: no probe"),
    "nothing": ("exit 0", "the program failed: it printed nothing"),
    "garbage": ("echo hello", "the program failed: it printed nothing"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_run_that_fails_is_one_sentence(fault: str, library: Path, tmp_path: Path) -> None:
    script, wanted = FAULTS[fault]
    with pytest.raises(UmakitError, match=wanted) as caught:
        run_library(library, {"x": X}, device=here_board(tmp_path, script))
    assert "\n" not in str(caught.value)


def test_programs_that_are_not_there_are_named(library: Path, tmp_path: Path) -> None:
    board = here_board(tmp_path, "exit 0")
    (tmp_path / "run.sh").chmod(0o644)
    with pytest.raises(MissingProgramError, match=r"here needs .*/run\.sh, which is not installed"):
        run_library(library, {"x": X}, device=board)
    board.write_text('compiler = "no-such-cc"\npackages = ["cc-of-mine"]\n', encoding="utf-8")
    with pytest.raises(MissingProgramError, match=r"no-such-cc.* apt-get install cc-of-mine"):
        run_library(library, {"x": X}, device=board)
    board.write_text('compiler = "gcc"\nreplaced = ["none.c"]\n', encoding="utf-8")
    with pytest.raises(BuildError, match=r"none\.c"):
        run_library(library, {"x": X}, device=board)


def test_a_program_is_built_again_when_a_file_of_the_board_changes(
    library: Path, tmp_path: Path
) -> None:
    """Also a header that only a file of the board includes."""
    board = here_board(tmp_path, 'exec "$@"', 'sources = ["own.c"]\nflags = ["-I{here}/include"]\n')
    (tmp_path / "include").mkdir()
    header = tmp_path / "include" / "own.h"
    header.write_text("#define OWN 1\n", encoding="utf-8")
    (tmp_path / "own.c").write_text(
        '#include "own.h"\nint own(void);\nint own(void) { return OWN; }\n', encoding="utf-8"
    )
    programs = library / "build" / "here"
    run_library(library, {"x": X}, device=board)
    first = set(programs.iterdir())
    run_library(library, {"x": X}, device=board)
    assert set(programs.iterdir()) == first
    header.write_text("#define OWN 2\n", encoding="utf-8")
    run_library(library, {"x": X}, device=board)
    assert len(set(programs.iterdir()) - first) == 1


SMALL = """
MEMORY
{
    FLASH (rx) : ORIGIN = 0x00000000, LENGTH = 4M
    RAM (rw)   : ORIGIN = 0x20000000, LENGTH = LENGTH_OF_RAM
}
REGION_ALIAS("VECTORS", FLASH)
__tick_quarter_nanoseconds = 160;
INCLUDE cortex_m.ld
"""


def need(device: Device) -> None:
    """Skip a test without the programs of a device; on CI none is missing, see conftest.py."""
    device.compiler()
    device.check_emulator()


def test_another_machine_with_another_memory(
    library: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    need(find_device("qemu-cortex-m4"))
    script = tmp_path / "small.ld"
    script.write_text(SMALL.replace("LENGTH_OF_RAM", "128K"), encoding="utf-8")
    board = tmp_path / "other.toml"
    board.write_text(
        f'{BASE}linker_script = "small.ld"\nrun = ["qemu-system-arm", "-M", "mps2-an500", '
        '"-display", "none", "-icount", "shift=0", '
        '"-semihosting-config", "{semihosting}", "-kernel", "{program}"]\n',
        encoding="utf-8",
    )
    result = run_library(library, {"x": X}, device=str(board))
    np.testing.assert_array_equal(result.outputs["y"], -X)
    assert len(result.instructions) == 1 and "mps2-an500" in capsys.readouterr().err
    script.write_text(SMALL.replace("LENGTH_OF_RAM", "32K"), encoding="utf-8")
    with pytest.raises(BuildError, match="is too large for other: it overflows RAM by"):
        run_library(library, {"x": X}, device=board)


def test_a_board_may_have_no_command_to_run(tmp_path: Path) -> None:
    """This machine runs its programs."""
    board = tmp_path / "here.toml"
    board.write_text('compiler = "gcc"\n', encoding="utf-8")
    device = find_device(board)
    source = tmp_path / "main.c"
    source.write_text("int main(void) { return 3; }\n", encoding="utf-8")
    subprocess.run(["gcc", source, "-o", tmp_path / "main"], check=True)
    assert execute(device, tmp_path / "main", [], tmp_path).returncode == 3
    assert not device.is_host and HOST.own_file is None
    assert device_check(device).status == "ok"
    here_board(tmp_path, "exit 5")
    check = device_check(find_device(board))
    assert (check.status, check.mend) == ("error", f"install its programs, or correct {board}")
