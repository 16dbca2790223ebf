# SPDX-License-Identifier: Apache-2.0
"""`uma doctor` names what was broken in a healthy backend, and what to do about it."""

from __future__ import annotations

import functools
import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from doctor_faults import BACKENDS, CHOCOLATE, STRAWBERRY, VANILLA, copied
from umakit.cli.main import run_command

from umakit.backend import load_backend_folder
from umakit.devices import HOST, find_device
from umakit.tools import versions as installed
from umakit.tools.doctor import (
    Check,
    Diagnosis,
    Status,
    environment,
    examine_backend,
    examine_machine,
)
from umakit.tools.doctor.checks import ok
from umakit.tools.doctor.compiling import StagedDriver
from umakit.tools.doctor.driver import fault_of, stage
from umakit.tools.doctor.probes import start_checks
from umakit.version import TESTED_TVM

CHECKED = {
    name: functools.cache(getattr(environment, name)) for name in ("device_check", "cxx_check")
}


@pytest.fixture(autouse=True)
def compilers_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compilers are tried by the first diagnosis; all others take its results."""
    for name, check in CHECKED.items():
        if request.node.name != "test_the_machine":
            monkeypatch.setattr(environment, name, check)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def shown_check(check: Check) -> str:
    return f"{check.status} {check.name}: {check.where}: {check.message} -> {check.mend}"


def shown(diagnosis: Diagnosis) -> str:
    return "\n".join(map(shown_check, diagnosis.checks))


def errors(diagnosis: Diagnosis) -> list[Check]:
    return [check for check in diagnosis.checks if check.status is Status.ERROR]


@pytest.mark.parametrize("name", [pytest.param(STRAWBERRY, marks=pytest.mark.soak), CHOCOLATE])
def test_healthy_backends_are_healthy(name: str, tmp_path: Path) -> None:
    place = copied(name, tmp_path)
    before = contents(place)
    diagnosis = examine_backend(str(place), HOST)
    assert {check.status for check in diagnosis.checks} == {Status.OK}, shown(diagnosis)
    assert diagnosis.checks[-1].name == "first network"
    assert contents(place) == before


def test_faults_in_headers_of_others_name_the_source(tmp_path: Path) -> None:
    backend = load_backend_folder(copied(VANILLA, tmp_path))
    staged = StagedDriver(backend, HOST, tmp_path)
    fault = fault_of("driver sources", "src/umakit/a.h:3:1: error: bad\n", staged, "driver.c")
    assert (fault.where, fault.message) == ("driver.c", "in umakit/a.h:3: bad")


# --- the command --------------------------------------------------------------------------------


def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = copied(VANILLA, tmp_path)
    before = contents(place)
    assert run_command(["doctor", str(place)]) == 0
    printed_text = capsys.readouterr().out
    assert "first network" in printed_text and "no errors, no warnings" in printed_text
    assert contents(place) == before
    (place / "accel.toml").unlink()
    assert run_command(["doctor", str(place), "--json"]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert printed["errors"] == 1 and printed["warnings"] == 0
    assert {tuple(check) for check in printed["checks"]} == {
        ("name", "status", "message", "where", "mend")
    }
    for words in (["no_such"], [str(tmp_path)], [str(place), "--device", "no_such"], ["--no"]):
        assert run_command(["doctor", *words]) == 2


def test_what_a_backend_prints_does_not_disturb_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = copied(VANILLA, tmp_path)
    (place / "codegen.py").write_text("print('loading')\nraise SystemExit(3)\n")
    assert run_command(["doctor", str(place), "--json"]) == 1
    assert "codegen.py:2" in json.loads(capsys.readouterr().out)["checks"][4]["message"]


def test_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that does not work is an error; emulators that are missing are warnings."""
    monkeypatch.setenv("CC", "false")
    broken = examine_machine(HOST)
    assert [check.name for check in errors(broken)] == ["C compiler"]
    monkeypatch.delenv("CC")
    monkeypatch.setattr("shutil.which", lambda name, *_: None if "riscv" in name else f"/{name}")
    monkeypatch.setattr(environment, "device_check", lambda device: ok(device.name, ""))
    found = environment.other_device_checks(lambda stage: None)
    missing = [check for check in found if check.status is Status.WARNING]
    names = {"qemu-riscv32", "qemu-riscv64", "qemu-riscv64-linux"}
    assert {check.name for check in missing} == names
    assert all("apt-get install" in check.mend for check in missing)


def test_packages_that_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"jinja2": "2.0", "onnx": None}
    real = environment._version
    monkeypatch.setattr(environment, "_version", lambda name: versions.get(name, real(name)))
    found = [shown_check(check) for check in environment.python_checks()]
    assert any("jinja2 is 2.0, umakit needs >=3.1" in text for text in found)
    assert any("onnx is not installed" in t and "pip install 'onnx>=1.16'" in t for t in found)


def test_an_untested_tvm_is_a_warning_and_no_refusal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "umakit is tested with 0.27.0.post1, not with this version"
    real = environment._version
    for found, warnings in (("0.26.0", 1), ("0.28.0", 1), *((each, 0) for each in TESTED_TVM)):
        versions = {"apache-tvm": found}
        known = functools.partial(lambda known, name: known.get(name) or real(name), versions)
        monkeypatch.setattr(environment, "_version", known)
        checks = [c for c in environment.python_checks() if c.status is not Status.OK]
        assert [check.message for check in checks] == [f"apache-tvm is {found}: {said}"] * warnings
        assert all(check.status is Status.WARNING for check in checks)
    monkeypatch.setattr(installed, "version", lambda name: "0.28.0")
    assert run_command(["--version", "--verbose"]) == 0
    assert f"apache-tvm  0.28.0 ({said})\n" in capsys.readouterr().out


def test_the_page_of_versions_has_those_that_are_tested() -> None:
    """A version is tested when the last row of it has no failures; older rows stay."""
    root = Path(__file__).parents[1]
    page = (root / "docs" / "tvm-versions.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d\S+) \|.* \| (\d+) \| (\d+) \|[^|]*\|$", page, re.MULTILINE)
    failures = {version: int(failed) for version, passed, failed in rows if int(passed)}
    assert tuple(v for v, failed in sorted(failures.items()) if failed == 0) == TESTED_TVM
    locked = (root / "requirements.lock").read_text(encoding="utf-8")
    assert f"apache-tvm=={TESTED_TVM[-1]}\n" in locked


@pytest.mark.skipif(shutil.which("qemu-system-arm") is None, reason="needs QEMU")
def test_on_a_device(tmp_path: Path) -> None:
    place = copied(VANILLA, tmp_path)
    diagnosis = examine_backend(str(place), find_device("qemu-cortex-m3"))
    assert not diagnosis.has_errors, shown(diagnosis)
    assert "ran on the qemu-cortex-m3" in diagnosis.checks[-1].message


# --- simulators of a backend's own --------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "check", "shown", "mend"),
    [
        ('extern "C" ', "", "link", "calls tiny_npu_simulator", 'in C++ as extern "C"'),
        ("LANES", "LANE", "simulator", r"tiny_npu/machine\.cc:\d+:.*LANE", "correct this line"),
    ],
)
def test_faults_of_own_simulators_are_named(
    old: str, new: str, check: str, shown: str, mend: str, tmp_path: Path
) -> None:
    page = (BACKENDS.parent / "docs" / "your-simulator.md").read_text(encoding="utf-8")
    form = re.compile(r"`tiny_npu/([\w.]+)`:\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
    (tmp_path / "tiny_npu").mkdir()
    for name, text in form.findall(page):
        changed = text.replace(old, new) if name == "machine.cc" else text
        (tmp_path / "tiny_npu" / name).write_text(changed, encoding="utf-8")
    (fault,) = errors(examine_backend(str(tmp_path / "tiny_npu"), HOST))
    assert fault.name == check and re.search(shown, fault.message) and mend in fault.mend
    for name, text in form.findall(page):  # in a folder of its own: modules are loaded once
        (tmp_path / "mended" / "tiny_npu" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mended" / "tiny_npu" / name).write_text(text, encoding="utf-8")
    assert errors(examine_backend(str(tmp_path / "mended" / "tiny_npu"), HOST)) == []


def test_a_simulator_that_never_returns_is_named(tmp_path: Path) -> None:
    page = (BACKENDS.parent / "docs" / "your-simulator.md").read_text(encoding="utf-8")
    form = re.compile(r"`tiny_npu/([\w.]+)`:\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
    files = dict(form.findall(page))
    begin, wait, rest = files["machine.cc"].partition(
        "bool wait(void *simulator, std::uint64_t cycles)\n{\n"
    )
    assert wait
    files["machine.cc"] = f"{begin}{wait}for (volatile int turn = 0;; turn = 1) {{}}\n{rest}"
    assert "timeout = 60 " in files["accel.toml"]
    files["accel.toml"] = files["accel.toml"].replace("timeout = 60 ", "timeout = 1.5 ")
    (tmp_path / "tiny_npu").mkdir()
    for name, text in files.items():
        (tmp_path / "tiny_npu" / name).write_text(text, encoding="utf-8")
    (fault,) = errors(examine_backend(str(tmp_path / "tiny_npu"), HOST))
    assert fault.name == "first network" and "timeout" in fault.mend
    assert "the simulator of tiny_npu did not return within 1.5 s" in fault.message


PROGRAMS = BACKENDS.parent / "tests" / "programs"
MODULE = BACKENDS.parent / "umakit" / "testing" / "simulator_program.py"


def started(folder: Path, changes: dict[str, tuple[str, str]]) -> Check:
    """What the doctor says of a simulator that is a program, or in C."""
    place = folder / "relu_npu"
    shutil.copytree(PROGRAMS / "relu_npu", place)
    shutil.copy(MODULE, place)
    for name, (old, new) in changes.items():
        text = (place / name).read_text(encoding="utf-8")
        assert old in text
        (place / name).write_text(text.replace(old, new), encoding="utf-8")
    (folder / "staged").mkdir()
    (check,) = start_checks(stage(load_backend_folder(place), HOST, folder / "staged"))
    return check


PROGRAM = 'program = ["python3", "model.py"]'
RAISE = 'raise SystemExit("there is no licence")'


@pytest.mark.parametrize(
    ("old", "new", "status", "shown"),
    [
        ("class Relu", 'print("loading", file=sys.stderr)\n\n\nclass Relu', Status.OK,
         "model.py answers and counts clock, compute_cycles, bytes_read; its standard error: "
         "loading$"),
        ("    def counters", "    def no_counters", Status.OK,
         "counts nothing: its cycles are unknown"),
        ("class Relu", f"{RAISE}\n\n\nclass Relu", Status.ERROR,
         "ended with exit code 1 instead of answering HELO; its last lines: there is no licence"),
        ("serve(", "time.sleep(100)\nserve(", Status.ERROR,
         r"did not answer HELO within 0.4 s .* and was stopped"),
    ],
)  # fmt: skip
def test_programs_are_started(
    old: str, new: str, status: Status, shown: str, tmp_path: Path
) -> None:
    timeout = f"{PROGRAM}\ntimeout = {0.4 if 'sleep' in new else 20.0}"
    changes = {"model.py": (old, new), "accel.toml": (PROGRAM, timeout)}
    check = started(tmp_path, changes)
    assert check.status is status and re.search(shown, check.message), shown_check(check)
    assert bool(check.mend) == (status is Status.ERROR)


def test_a_program_is_started_whatever_the_driver_lacks(tmp_path: Path) -> None:
    place = tmp_path / "relu_npu"
    shutil.copytree(PROGRAMS / "relu_npu", place)
    text = (place / "relu_npu.c").read_text(encoding="utf-8")
    (place / "relu_npu.c").write_text(text.replace("int32_t relu_npu_relu(", "int32_t other("))
    faults = errors(examine_backend(str(place), HOST))  # its module is not next to model.py
    assert [fault.name for fault in faults] == ["link", "simulator"]
    assert "No module named 'simulator_program'" in faults[1].message
    assert faults[1].mend == f"copy {MODULE} next to it"


def test_a_python_without_umakit_is_named(tmp_path: Path) -> None:
    changes = {
        "accel.toml": (PROGRAM, 'program = ["python3", "-I", "-S", "model.py"]'),
        "model.py": ("from simulator_program", "from umakit.testing.simulator_program"),
    }
    check = started(tmp_path, changes)
    assert check.status is Status.ERROR and "No module named 'umakit'" in check.message
    assert f"{shutil.which('python3')} has no umakit" in check.mend
    assert f'program = ["{sys.executable}", ...]' in check.mend and str(MODULE) in check.mend


@pytest.mark.parametrize(
    ("old", "new", "status", "shown"),
    [
        ("wait, counters,", "wait, nullptr,", Status.OK,
         "it can be created and counts nothing: its cycles are unknown"),
        ("{UMAKIT_OWN_SIMULATOR_VERSION", "{77", Status.ERROR, "the version of the simulator's"),
        ("return &relu;", "__builtin_trap();", Status.ERROR, "the program was stopped by signal"),
        ("return &relu;", "for (volatile int turn = 0;; turn = 1) {}", Status.ERROR,
         "^the simulator of relu_npu did not return within 2 s"),
        ("return &relu;", "__builtin_exit(5);", Status.ERROR, "ended with exit code 5 before"),
    ],
)  # fmt: skip
def test_linked_simulators_are_created(
    old: str, new: str, status: Status, shown: str, tmp_path: Path
) -> None:
    old, new = (f"#include <cstdint>\n{old}", new) if old.startswith("#") else (old, new)
    model = BACKENDS.parent / "tests" / "programs" / "relu_npu" / "model.cc"
    if "exit" in new:
        assert "#include <cstdint>" in model.read_text(encoding="utf-8")
        new = new.replace("std::exit", "__builtin_exit")
    section = 'sources = ["model.cc"]' + ("\ntimeout = 2" if "turn" in new else "")
    changes = {"model.cc": (old, new), "accel.toml": (PROGRAM, section)}
    check = started(tmp_path, changes)
    assert check.status is status and re.search(shown, check.message), shown_check(check)
