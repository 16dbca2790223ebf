# SPDX-License-Identifier: Apache-2.0
"""Simulators that are programs: the protocol, and the kit's side of it on programs that err."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from comparisons import LINKER
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strict import CPP_WARNINGS, WARNINGS

ROOT = Path(__file__).parents[1]
SIM = ROOT / "sim"
ADAPTER = sorted((SIM / "program").glob("*.c"))
PROTOCOL = (ROOT / "docs" / "simulator-protocol.md").read_text(encoding="utf-8")
SANITIZED = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", *LINKER]

SILENT = ("stall", "half-stall", "promises-more")
"""Faults after which the program sends nothing and does not end."""

FAULTS = (
    "exit", "kill", "abort", "half", "header", "huge", "too-large", "largest", "longer", "shorter",
    "empty", "promises-less", "type", "other-type", "note-type", "load-type", "number", "twice",
    "print", "fail", "chatter", "close", *SILENT,
)  # fmt: skip

FRAMES = 25
"""Number of frames that the adder sends in a run."""


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that runs two jobs on a simulator, with sanitizers."""
    output = tmp_path_factory.mktemp("runner") / "runner"
    sources = [*ADAPTER, SIM / "tests" / "test_simulator_program.c"]
    command = ["cc", "-std=c99", *WARNINGS, *SANITIZED, f"-I{SIM / 'include'}", *map(str, sources)]
    subprocess.run([*command, "-o", str(output)], check=True)
    return output


@pytest.fixture(scope="module")
def adder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulator in C++, which does one thing wrong on request."""
    output = tmp_path_factory.mktemp("adder") / "adder"
    source = ROOT / "tests" / "programs" / "adder.cc"
    flags = [flag for flag in CPP_WARNINGS if flag not in ("-Wconversion", "-Wshadow")]
    subprocess.run(["c++", "-std=c++11", *flags, str(source), "-o", str(output)], check=True)
    return output


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The simulator in Python of the documentation."""
    path = tmp_path_factory.mktemp("model") / "model.py"
    path.write_text(PROTOCOL.split("```python")[1].split("```")[0], encoding="utf-8")
    return path


def run(
    runner: Path, *command: str | Path, milliseconds: int = 20_000
) -> subprocess.CompletedProcess[str]:
    words = [str(runner), str(milliseconds), *map(str, command)]
    # The adapter has no heap, and looking for leaks takes half of the time of a run.
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
    result = subprocess.run(
        words, capture_output=True, text=True, timeout=60, check=False, env=environment
    )
    assert result.stderr == ""
    return result


def failure(runner: Path, *command: str | Path, milliseconds: int = 20_000) -> str:
    """Return the sentence with which a run fails."""
    result = run(runner, *command, milliseconds=milliseconds)
    assert result.returncode == 3
    sentence = result.stdout.splitlines()[-1]
    return sentence.removeprefix("failed: the simulator ")


def exchange() -> list[tuple[str, bytes]]:
    """The documented frames, with who sends them."""
    frames: list[tuple[str, bytes]] = []
    for line in PROTOCOL.split("## An exchange")[1].split("```")[1].strip().splitlines():
        content = bytes.fromhex(line[2:50])
        if line[0] == " ":
            sender, start = frames.pop()
            frames.append((sender, start + content))
        else:
            frames.append((line[0], content))
    return frames


def test_the_documented_model_answers_as_documented(model: Path) -> None:
    child = subprocess.Popen([sys.executable, model], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None and child.stdout is not None
    for sender, frame in exchange():
        if sender == ">":
            child.stdin.write(frame)
            child.stdin.flush()
        else:
            assert child.stdout.read(len(frame)) == frame
    rest, _ = child.communicate()
    assert (rest, child.returncode) == (b"", 0)


def test_the_kit_sends_what_is_documented(runner: Path, tmp_path: Path) -> None:
    program = tmp_path / "replay.py"
    program.write_text(
        "import sys\n"
        f"for sender, frame in {exchange()!r}:\n"
        "    if sender == '<':\n"
        "        sys.stdout.buffer.write(frame)\n"
        "        sys.stdout.buffer.flush()\n"
        "    elif (sent := sys.stdin.buffer.read(len(frame))) != frame:\n"
        "        sys.exit(f'{sent} instead of {frame}')\n"
    )
    assert failure(runner, sys.executable, program) == (
        "ended with exit code 0 instead of answering WRIT"
    )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulator in C++ that could be linked, served by `umakit/serve_simulator.h`."""
    output = tmp_path_factory.mktemp("served") / "served"
    source = ROOT / "tests" / "programs" / "served_adder.cc"
    command = ["c++", "-std=c++11", *CPP_WARNINGS, *SANITIZED, f"-I{SIM / 'include'}", str(source)]
    subprocess.run([*command, "-o", str(output)], check=True)
    return output


@pytest.mark.parametrize("language", ["C++", "a table in C++", "Python"])
def test_a_program_computes(
    language: str, runner: Path, adder: Path, served: Path, model: Path
) -> None:
    commands = {"C++": [adder], "a table in C++": [served], "Python": [sys.executable, model]}
    command = commands[language]
    result = run(runner, *command)
    assert result.returncode == 0
    assert result.stdout.splitlines() == [
        "event adder 'add 1' 0 5 5",
        " clock 5 busy - compute - dma - macs - read - written -",
        "event adder 'add 1' 5 70005 70005",
        " clock 0 busy - compute - dma - macs - read - written -",
        "right",
    ]


@pytest.fixture(scope="module")
def right(runner: Path, adder: Path) -> list[str]:
    """The lines of a run without a fault."""
    return run(runner, adder).stdout.splitlines()


def try_fault(fault: str, frame: int, right: list[str], runner: Path, adder: Path) -> None:
    """Do something wrong at a frame: the result is right, or there is a sentence."""
    milliseconds = 100 if fault in SILENT else 20_000
    result = run(runner, adder, str(frame), fault, milliseconds=milliseconds)
    if result.returncode == 0:
        lines = result.stdout.splitlines()
        if fault == "twice":  # a note that is sent twice is another event
            lines = [line for before, line in zip(["", *lines], lines, strict=False)
                     if line != before]  # fmt: skip
        assert lines == right, frame
    else:
        assert result.returncode == 3, (frame, result.stdout)
        assert result.stdout.splitlines()[-1].startswith("failed: the simulator "), frame


@pytest.mark.soak
@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_at_any_frame_is_a_wrong_result(
    fault: str, right: list[str], runner: Path, adder: Path
) -> None:
    with ThreadPoolExecutor(8 if fault in (*SILENT, "close") else 1) as pool:  # those that wait
        tries = [
            pool.submit(try_fault, fault, frame, right, runner, adder) for frame in range(FRAMES)
        ]
        for each in tries:
            each.result()


def test_a_fault_ends_the_run(runner: Path, adder: Path) -> None:
    """The sweep would be empty if faults had no effect."""
    changing = set(FAULTS) - {"chatter", "empty", "shorter", "largest", "promises-less"}
    for fault in sorted(changing - {*SILENT, "close"}):
        assert run(runner, adder, "11", fault).returncode == 3, fault


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(content=st.binary(max_size=200))
def test_arbitrary_bytes_are_no_answers(content: bytes, runner: Path, tmp_path: Path) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(content)
    assert run(runner, "cat", path).returncode == 3


@pytest.mark.parametrize(
    ("frame", "fault", "sentence"),
    [
        (2, "exit", "ended with exit code 7 instead of answering WRIT; its last lines: "
         "adder: leaving"),
        (2, "kill", "was ended by signal 9 instead of answering WRIT"),
        (9, "stall", "did not answer WAIT within 0.1 s ([simulator] timeout in accel.toml) and was "
         "stopped"),
        (10, "print", 'sent "debug: here " instead of answering READ, which is no frame of the '
         "protocol; is it printed to standard output?"),
        (10, "longer", "answered READ with 5 bytes instead of 4"),
        (10, "fail", "gave up at READ: the weights are lost"),
        (0, "close", "closed its standard input or output instead of answering HELO"),
        (0, "number", "sent a frame with the number of another request than HELO"),
        (5, "empty", "sent a frame LOAD of 0 bytes, which it must not, instead of answering WRIT"),
    ],
)  # fmt: skip
def test_sentences(frame: int, fault: str, sentence: str, runner: Path, adder: Path) -> None:
    milliseconds = 100 if fault == "stall" else 20_000
    assert failure(runner, adder, str(frame), fault, milliseconds=milliseconds) == sentence


def test_a_program_that_does_not_start(runner: Path, tmp_path: Path) -> None:
    reason = "cannot be started in .: "
    assert failure(runner, tmp_path / "none") == f"{reason}No such file or directory"
    (tmp_path / "text").write_text("hello")
    assert failure(runner, tmp_path / "text") == f"{reason}Permission denied"


def test_another_version_is_refused(runner: Path, tmp_path: Path) -> None:
    answer = tmp_path / "answer"
    answer.write_bytes(bytes.fromhex("04000000 68656c6f 01000000 02000000"))
    assert failure(runner, "cat", answer) == (
        "speaks a version of the protocol that is not 1 but 2"
    )


def test_the_last_lines_are_quoted(runner: Path) -> None:
    script = (
        "for i in 1 2 3 4 5; do echo line $i >&2; done; printf '\\ta\\033[1mb\\n\\n' >&2; exit 4"
    )
    assert failure(runner, "sh", "-c", script) == (
        "ended with exit code 4 instead of answering HELO; its last lines: "
        "line 4 | line 5 |  a [1mb"
    )
    assert "x" * 100 in failure(runner, "sh", "-c", "printf 'x%.0s' $(seq 5000) >&2; exit 4")


def is_running(process: int) -> bool:
    """Whether a process runs, and is no zombie."""
    found = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True, check=False
    )
    return bool(found.stdout.strip()) and not found.stdout.strip().startswith("Z")


def wait_for(path: Path) -> int:
    """Return the number that a script writes to a file."""
    for _ in range(300):
        if path.exists() and path.read_text().endswith("\n"):
            return int(path.read_text())
        time.sleep(0.01)
    raise AssertionError("the program did not start")


def assert_ends(process: int) -> None:
    for _ in range(300):
        if not is_running(process):
            return
        time.sleep(0.01)
    os.kill(process, signal.SIGKILL)
    raise AssertionError("the program still runs")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_program_ends_with_a_runner_that_is_killed(
    number: signal.Signals, runner: Path, tmp_path: Path
) -> None:
    note = tmp_path / "process"
    script = f"sleep 1000 & echo $! > {note}; while :; do wait; done"
    started = subprocess.Popen([runner, "100000", "sh", "-c", script])
    process = wait_for(note)
    started.send_signal(number)
    started.wait()
    assert_ends(process)


def test_what_a_program_started_ends_with_it(runner: Path, tmp_path: Path) -> None:
    note = tmp_path / "process"
    script = f"sleep 1000 & echo $! > {note}; exit 3"
    assert "exit code 3" in failure(runner, "sh", "-c", script)
    assert_ends(wait_for(note))


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_the_adapter_compiles_without_warnings(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    command = [compiler, "-std=c99", *WARNINGS, "-O2", f"-I{SIM / 'include'}", "-c"]
    subprocess.run([*command, *map(str, ADAPTER)], check=True, cwd=tmp_path)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_a_served_simulator_compiles_without_warnings(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    (tmp_path / "main.c").write_text(
        '#include "umakit/serve_simulator.h"\n'
        "const struct umakit_own_simulator *adder_simulator(void);\n"
        "int main(void) { return umakit_serve_simulator(adder_simulator()); }\n"
    )
    command = [compiler, "-std=c99", *WARNINGS, "-O2", f"-I{SIM / 'include'}", "-c", "main.c"]
    subprocess.run(command, check=True, cwd=tmp_path)


def test_a_served_simulator_says_why_it_fails(runner: Path, served: Path) -> None:
    assert failure(runner, served, "create") == (
        "gave up at HELO: there are no weights; its last lines: printed"
    )


def test_the_adapter_has_no_heap() -> None:
    sources = [*ADAPTER, SIM / "include" / "umakit" / "serve_simulator.h"]
    text = "".join(path.read_text(encoding="utf-8") for path in sources)
    assert not re.search(r"\b(malloc|calloc|realloc|free|strdup|popen|system)\s*\(", text)


def test_python_programs_need_no_package(tmp_path: Path) -> None:
    """The module can be copied, and importing it does not import TVM."""
    source = ROOT / "umakit" / "testing" / "simulator_program.py"
    names = re.findall(r"^(?:import|from) (\w+)", source.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(names) <= sys.stdlib_module_names
    program = (
        "import sys, umakit.testing.simulator_program; print({'tvm', 'numpy'} & {*sys.modules})"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout == "set()\n"
