# SPDX-License-Identifier: Apache-2.0
"""Limits of programs: what becomes of one does not depend on what else the machine does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
from busy import busy_machine

from umakit.devices import HOST, find_device
from umakit.devices.execution import SilenceError, execute
from umakit.errors import DeviceError
from umakit.files import processes
from umakit.files.processes import Limits, TimeLimitError, run_limited, started, usage_of

PROCESSOR, IDLE = 0.6, 0.5
"""Limits in seconds."""

BURN = "import time\nend = time.process_time() + {}\nwhile time.process_time() < end: pass\n"
CHILD = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', {!r}])\n"

LATE, HANGS, SLEEPS = "did not end within", "hangs", "import time\ntime.sleep(100)\n"

PLANTED = {
    "computes": (BURN.format(0.2), "0"),
    "computes for too long": ("while True: pass", LATE),
    "a child computes": (CHILD.format(BURN.format(0.2)), "0"),
    "a child computes for too long": (CHILD.format("while True: pass"), LATE),
    "children compute for too long together": (
        f"for _ in range(9): {CHILD.format(BURN.format(0.2)).replace(chr(10), '; ')}", LATE,
    ),
    "waits": (SLEEPS, HANGS),
    "waits, as a child does": (CHILD.format(SLEEPS), HANGS),
    "looks around now and then": ("import time\nwhile True: time.sleep(0.01)", HANGS),
    "ignores SIGTERM": (f"import signal\nsignal.signal(15, signal.SIG_IGN)\n{SLEEPS}", HANGS),
    "a pipe that nobody writes": ("import os\nos.read(os.pipe()[0], 1)", HANGS),
    "prints now and then": (
        "import time\nfor n in range(12): print(n, flush=True); time.sleep(0.1)",
        "0",
    ),
    "leaves a child behind": (
        f"import os, sys\nif os.fork() == 0:\n  {SLEEPS.strip().replace(chr(10), '; ')}", "0",
    ),
    "crashes": ("import os\nos.abort()", "signal 6"),
    "fails": ("raise SystemExit(3)", "3"),
}  # fmt: skip
"""Programs, and what becomes of each: an exit code, or words of the error."""

WAYS: dict[str, Callable[[Path], subprocess.CompletedProcess[str]]] = {
    "alone": lambda program: run_limited([program], program.parent, None, LIMITS),
    "on the host": lambda program: execute(HOST, program, [], program.parent, PROCESSOR, idle=IDLE),
}

LIMITS = Limits(PROCESSOR, IDLE)

LOOKS = 200
"""For a program that is to end."""


def became(way: str, program: Path) -> str:
    """Run a program; return its exit code, or its error."""
    try:
        code = WAYS[way](program).returncode
    except DeviceError as error:
        return str(error)
    return str(code) if code >= 0 else f"signal {-code}"


@pytest.mark.parametrize("load", ["idle", "busy"])
def test_what_becomes_of_a_program_does_not_depend_on_the_load(
    load: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    there: AbstractContextManager[None] = busy_machine() if load == "busy" else nullcontext()
    tried = 0
    with there:
        for number, (name, (text, wanted)) in enumerate(PLANTED.items()):
            program = tmp_path / f"program{number}"
            program.write_text(f"#!{sys.executable}\n{text}\n")
            program.chmod(0o755)
            for way in WAYS if number % 2 and load == "busy" else list(WAYS)[:1]:
                found = became(way, program)
                assert (found == wanted) if wanted.isdigit() else wanted in found, (name, way)
                assert not left_behind(program), (name, way)
                tried += 1
    print(f"{tried} runs of {len(PLANTED)} planted programs, {len(WAYS)} ways to run, {load}")
    record_property("runs", tried)


def left_behind(program: Path) -> list[str]:
    """Processes that still run a program or a child of one."""
    listed = subprocess.run(
        ["ps", "-A", "-ww", "-o", "stat=,pid=,args="], capture_output=True, text=True
    )
    return [
        line for line in listed.stdout.splitlines()
        if str(program) in line and not line.startswith("Z")
    ]  # fmt: skip


def test_results_that_come_renew_the_limit(tmp_path: Path) -> None:
    """The limit of `uma check`: each layer may use as much, however many there are."""
    loop = f"for n in range(4):\n  {BURN.format(0.3).strip().replace(chr(10), chr(10) + '  ')}\n"
    text = f"{loop}  open('results', 'a').write('layer')\n"
    command = [sys.executable, "-c", text]
    limits = Limits(PROCESSOR, IDLE, tmp_path / "results")
    assert run_limited(command, tmp_path, None, limits).returncode == 0
    with pytest.raises(TimeLimitError, match=LATE):
        run_limited(command, tmp_path, None, LIMITS)


def test_a_board_that_says_nothing_is_no_wrong_program(tmp_path: Path) -> None:
    """What runs elsewhere uses no processor time here."""
    (tmp_path / "board.toml").write_text(
        'name = "board"\ncompiler = "cc"\n'
        'run = ["sh", "-c", "sleep 100", "{program}", "{arguments}"]\n'
        "timeout_seconds = 0.3\n"
    )
    with pytest.raises(SilenceError, match=r"did not end within 0\.3 s"):
        execute(find_device(tmp_path / "board.toml"), tmp_path / "none", [], tmp_path)


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_program_ends_with_the_one_that_runs_it(end: signal.Signals, tmp_path: Path) -> None:
    waiting = tmp_path / "waiting"
    waiting.write_text(f"#!{sys.executable}\nopen('begun', 'w').close()\nwhile True: pass\n")
    waiting.chmod(0o755)
    text = (
        "from pathlib import Path\nfrom umakit.files.processes import run_limited\n"
        f"run_limited([{str(waiting)!r}], Path({str(tmp_path)!r}))"
    )
    with subprocess.Popen([sys.executable, "-c", text], stderr=subprocess.DEVNULL) as process:
        while not (tmp_path / "begun").exists():
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(end)
    for _ in range(LOOKS):
        if not left_behind(waiting):
            return
    for line in left_behind(waiting):
        os.kill(int(line.split()[1]), signal.SIGKILL)
    pytest.fail("the program goes on")


def test_a_conversation_may_pause_as_long_as_nobody_asks(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print(input(), flush=True)\ninput()"]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with started(command, tmp_path, None, Limits(None, 0.2), **streams) as (process, watch):
        watch.is_asked = False
        time.sleep(0.6)
        assert process.poll() is None and not watch.hangs
        process.stdin.write("7\n")
        process.stdin.flush()
        assert process.stdout.readline() == "7\n"
        watch.is_asked = True
        assert process.stdout.read() == "" and watch.hangs
    assert os.WIFSIGNALED(-process.returncode) or process.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    "program, at_work", [(f"{BURN.format(2.2)}{SLEEPS}", False), ("while True: pass", True)]
)
def test_ps_measures_what_proc_measures(
    program: str, at_work: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Systems without /proc, such as macOS, have only ps, which rounds to seconds on Linux."""
    child = CHILD.format(program)
    process = subprocess.Popen([sys.executable, "-c", child], start_new_session=True)
    try:
        while usage_of(process.pid).seconds < 2.2 or usage_of(process.pid).is_at_work != at_work:
            time.sleep(0.05)
        with monkeypatch.context() as patch:
            patch.setattr(processes, "PROC", tmp_path / "absent")
            by_ps = usage_of(process.pid)
        by_proc = usage_of(process.pid)
        assert sorted(by_ps.processes) == sorted(by_proc.processes) and len(by_ps.processes) == 2
        assert by_ps.is_at_work == at_work
        assert 1 <= by_ps.seconds <= by_proc.seconds
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
