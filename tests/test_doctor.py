# SPDX-License-Identifier: Apache-2.0
"""`uma doctor` names what was broken in a healthy backend, and what to do about it."""

from __future__ import annotations

import functools
import json
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from umakit.cli.main import run_command

from umakit.backend import load_backend_folder
from umakit.devices import HOST, find_device
from umakit.tools import versions as installed
from umakit.tools.doctor import (
    Check,
    Diagnosis,
    Status,
    environment,
    examination,
    examine_backend,
    examine_machine,
)
from umakit.tools.doctor.checks import ok
from umakit.tools.doctor.driver import StagedDriver, fault_of, stage
from umakit.tools.doctor.simulator import start_checks
from umakit.version import TESTED_TVM

BACKENDS = Path(__file__).parents[1] / "backends"
NAMES = ("vanilla_accelerator", "strawberry_accelerator", "chocolate_accelerator")
VANILLA, STRAWBERRY, CHOCOLATE = NAMES


@dataclass(frozen=True)
class Mutation:
    """A fault that is put into a copy of a backend.

    Attributes:
        label: what is broken.
        backend: name of the backend.
        file: the file that is changed.
        old, new: texts; the first `old` is replaced. An empty `old` deletes the file.
        check: name of the check that must fail.
        shown: regular expression in what it says, place included.
        mend: regular expression in what it says is to be done.
        status: of the fault.
    """

    label: str
    backend: str
    file: str
    old: str
    new: str
    check: str
    shown: str
    mend: str
    status: Status = Status.ERROR

    def apply(self, folder: Path) -> None:
        """Change the copy of the backend in a folder."""
        path = folder / self.file
        if not self.old:
            path.unlink()
            return
        text = path.read_text(encoding="utf-8")
        assert self.old in text, f"{self.label}: {self.file} has no {self.old!r}"
        path.write_text(text.replace(self.old, self.new, 1), encoding="utf-8")

    def is_named(self, diagnosis: Diagnosis) -> bool:
        """Whether a check says what is broken, and what to do."""
        return any(
            check.name == self.check
            and check.status is self.status
            and re.search(self.shown, f"{check.where}: {check.message}") is not None
            and re.search(self.mend, check.mend) is not None
            for check in diagnosis.checks
        )


C, H = "conv2dnchw.c", "conv2dnchw.h"
SC, SH = f"{STRAWBERRY}.c", f"{STRAWBERRY}.h"
CC, CH = f"{CHOCOLATE}.c", f"{CHOCOLATE}.h"
RUN = "vanilla_accelerator_conv2dnchw"

MUTATIONS = (
    Mutation("a source is deleted", VANILLA, C, "", "",
             "driver files", rf"{C}: does not exist", "write it, or correct _register_driver"),
    Mutation("a header is deleted", VANILLA, H, "", "",
             "driver files", rf"{H}: does not exist", "write it, or correct _register_driver"),
    Mutation("accel.toml is deleted", VANILLA, "accel.toml", "", "",
             "accel.toml", "accel.toml: no such file", "uma new"),
    Mutation("a module is deleted", VANILLA, "passes.py", "", "",
             "backend", r"ModuleNotFoundError: .*backend\.py:\d+\)", r"write .*passes\.py"),
    Mutation("a function has another name in the header", VANILLA, H, RUN, f"{RUN}2",
             "driver calls", rf"passes\.py:\d+: pattern conv2d call {RUN}, which no header",
             rf"declare it in {H}, or write {RUN}2 \(.*{H}:\d+\)"),
    Mutation("a function has another name in the source", VANILLA, C, f"int {RUN}(",
             f"int {RUN}_2(", "link", rf"{H}:\d+: pattern conv2d call {RUN}, which no source",
             rf"rename {RUN}_2 \(.*{C}:\d+\)"),
    Mutation("a function has another name in the pass", VANILLA, "passes.py", RUN, f"{RUN}s",
             "driver calls", rf"passes\.py:\d+: pattern conv2d call {RUN}s, which no header",
             rf"or write {RUN} \(.*{H}:\d+\)"),
    Mutation("a call lacks an argument", VANILLA, "passes.py", "*pointers, oc, ", "*pointers, ",
             "driver calls", rf"{H}:\d+: .*{RUN} with 8 arguments, it is declared with 9",
             r"the call in .*passes\.py:\d+ agree"),
    Mutation("the header lacks an argument", VANILLA, H, "int iw, ", "",
             "driver calls", rf"{H}:\d+: .* with 9 arguments, it is declared with 8", "agree"),
    Mutation("header and source differ", VANILLA, H, "int iw, ", "",
             "driver sources", rf"{C}:\d+: conflicting types for '{RUN}'",
             "the same arguments in the header and in the source"),
    Mutation("TOML is broken", VANILLA, "accel.toml", "rows = 8", "rows = ",
             "accel.toml", r"accel\.toml:8: is not valid TOML", "correct it"),
    Mutation("a key is misspelt", VANILLA, "accel.toml", "columns = 8", "colums = 8",
             "accel.toml", r"accel\.toml:9: array\.columns: is missing",
             "write columns instead of colums"),
    Mutation("a value is out of range", VANILLA, "accel.toml", "rows = 8", "rows = 0",
             "accel.toml", r"accel\.toml:8: array\.rows", "correct it"),
    Mutation("there is no such simulator", VANILLA, "accel.toml", '"mac_array"', '"mac"',
             "accel.toml", r"accel\.toml:13: device\.simulator", "correct it"),
    Mutation("the simulator is left out", VANILLA, "accel.toml", 'simulator = "mac_array"', "",
             "driver sources", rf"{H}:\d+: umakit/device.h", "set simulator in"),
    Mutation("accel.toml is of another backend", VANILLA, "accel.toml", f'"{VANILLA}"', '"other"',
             "accel.toml", r"accel\.toml.*describes other", "accelerator.name"),
    Mutation("Python has a syntax error", VANILLA, "patterns.py", "return True", "return return",
             "backend", r"patterns\.py:\d+: syntax error", "correct this line"),
    Mutation("a phase does not exist", VANILLA, "backend.py", "TIR_PHASE_0", "TIR_PHASE_9",
             "backend", r"TIR_PHASE_9.*backend\.py:\d+", "PRE_PARTITIONING, .*TIR_PHASE_0"),
    Mutation("a phase is of the other kind", VANILLA, "backend.py", "TIR_PHASE_0",
             "PRE_PARTITIONING", "backend", "PRE_PARTITIONING is a Relax phase",
             "_register_relax_pass"),
    Mutation("a phase is a string", VANILLA, "backend.py", "PassPhase.TIR_PHASE_0", '"TIR_PHASE_0"',
             "backend", "'TIR_PHASE_0' is no phase", "PassPhase.TIR_PHASE_0"),
    Mutation("a pass is a function", VANILLA, "passes.py",
             'tir.prim_func_pass("VanillaConv2DPass", replace_convolution)', "replace_convolution",
             "passes", "replace_convolution in TIR_PHASE_0 is no pass", "tir.prim_func_pass"),
    Mutation("an include is missing in the source", VANILLA, C, f'#include "{H}"', "",
             "driver sources", rf"{C}:\d+: .*{VANILLA}_device",
             rf"include the header that declares it \(.*{H}:\d+\)"),
    Mutation("an include does not exist", VANILLA, C, f'#include "{H}"', '#include "conv2dnch.h"',
             "driver sources", rf"{C}:\d+: conv2dnch.h", f"include {H}"),
    Mutation("generated C includes a file that does not exist", VANILLA, "codegen.py", H, "no.h",
             "driver calls", r"codegen\.py:\d+: what _register_codegen.*: no\.h", "write it"),
    Mutation("the header is not registered", VANILLA, "backend.py", f'headers=["{H}"]',
             "headers=[]", "driver sources", rf"{C}:\d+: {H}", "_register_driver\\(headers="),
    Mutation("the source is not registered", VANILLA, "backend.py", f'sources=["{C}"]',
             "sources=[]", "link", f"call {RUN}, which no source", f"{C} defines it: _register_"),
    Mutation("C has a syntax error", VANILLA, C, "umakit_device *device;",
             "umakit_device *device", "driver sources", rf"{C}:\d+: expected", "correct this line"),
    Mutation("the source calls what is not there", VANILLA, C, f"int {RUN}(",
             f"int helper(void);\nint {RUN}_x(void);\nint {RUN}_x(void) {{ return helper(); }}\n"
             f"int {RUN}(", "link", rf"{C}:\d+: calls helper, which nothing defines", "define it"),
    Mutation("the pass raises", VANILLA, "passes.py", "ifmap, weights, result = function.params",
             "ifmap, weights = function.params", "patterns", r"ValueError.*passes\.py:\d+",
             "correct the pass"),
    Mutation("the predicate raises", VANILLA, "patterns.py", "convolution = context.matched_expr",
             "convolution = context.matched", "patterns", r"AttributeError.*patterns\.py:\d+",
             "correct the line"),
    Mutation("the result is wrong", VANILLA, "passes.py", "oc, iw, ih, ic, kh, kw]))",
             "oc, iw, ih, ic - 1, kh, kw]))", "first network", "instead of", "uma diff"),
    Mutation("the time limit is too short", VANILLA, C, "TIMEOUT_CYCLES 4000000000u",
             "TIMEOUT_CYCLES 1u", "first network", r"layer \d+, .*status 7: timeout",
             "umakit_device_wait: .*or raise that limit"),
    Mutation("an axis has another name", CHOCOLATE, "passes.py",
             "def compute(position: Any) -> Any:\n",
             'def compute(position: Any) -> Any:\n        assert position["width"] == 0\n',
             "patterns",
             r"there is no axis width; axes are images, .* \(.*passes\.py:\d+", "correct the pass"),
    Mutation("a tensor is not loaded by tiles", CHOCOLATE, "passes.py", "tiles.load(tensor,",
             'tiles.load("parameters",', "patterns",
             r"there is no load of parameters; .*passes\.py:\d+", "correct the pass"),
    Mutation("a block has another name", CHOCOLATE, "passes.py", '"compute": compute',
             '"computes": compute', "patterns", "there is no block computes; blocks are load_data,",
             "correct the pass"),
    Mutation("a memory is removed", STRAWBERRY, "accel.toml", "[[memory]]", "[memory]",
             "accel.toml", r"accel\.toml:\d+: memory", "correct it"),
    Mutation("a memory has another name", STRAWBERRY, "accel.toml", 'name = "scratchpad"',
             'name = "sram"', "memories", r"accel\.toml: .*use a scratchpad 'scratchpad'",
             r'name = "scratchpad".*or name sram in .*passes\.py:\d+'),
    Mutation("code uses a memory of another name", CHOCOLATE, "passes.py", '"int8", "scratchpad"',
             '"int8", "spm"', "memories", "use a scratchpad 'spm'", "name scratchpad in .*passes"),
    Mutation("a copy is not declared", STRAWBERRY, "backend.py", "load=DMA_IN", 'load="dma_on"',
             "driver calls", "_register_transfers call dma_on", "declare it in"),
    Mutation("a transfer function has another name in the header", STRAWBERRY, SH,
             "strawberry_accelerator_dma_out(", "strawberry_accelerator_dma_ou(",
             "driver calls", r"passes\.py:\d+: .*strawberry_accelerator_dma_out, which no header",
             "strawberry_accelerator_dma_ou "),
    Mutation("the completion is not defined", CHOCOLATE, CC, "int chocolate_accelerator_finish(",
             "int chocolate_accelerator_finished(", "link",
             "chocolate_accelerator_finish, which no source", "chocolate_accelerator_finished"),
    Mutation("the call of one pattern lacks an argument", CHOCOLATE, "passes.py",
             "[added.zero_points[1], added.left_shift,", "[added.left_shift,", "driver calls",
             rf"{CH}:\d+: pattern qconv2d_add call .*_configure_add with 10 arguments, .* 11",
             "agree"),
    Mutation("the header has another number of arguments", CHOCOLATE, CH,
             "int32_t columns, enum", "enum", "driver calls",
             rf"{CH}:\d+: .*_begin with 2 arguments, it is declared with 1 argument", "agree"),
    Mutation("a scratchpad is missing for the simulator", CHOCOLATE, "accel.toml",
             'address = "offset"', "", "accel.toml", "needs one", "correct it"),
)  # fmt: skip

CHECKED = {
    name: functools.cache(getattr(environment, name)) for name in ("device_check", "cxx_check")
}


@pytest.fixture(autouse=True)
def compilers_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compilers are tried by the first diagnosis; all others take its results."""
    for name, check in CHECKED.items():
        if request.node.name != "test_the_machine":
            monkeypatch.setattr(examination, name, check)


def copied(name: str, folder: Path) -> Path:
    """Return a copy of a reference backend."""
    place = folder / name
    shutil.copytree(BACKENDS / name, place, ignore=shutil.ignore_patterns("__pycache__"))
    return place


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def shown_check(check: Check) -> str:
    return f"{check.status} {check.name}: {check.where}: {check.message} -> {check.mend}"


def shown(diagnosis: Diagnosis) -> str:
    return "\n".join(map(shown_check, diagnosis.checks))


def errors(diagnosis: Diagnosis) -> list[Check]:
    return [check for check in diagnosis.checks if check.status is Status.ERROR]


def examined(mutation: Mutation, folder: Path) -> Diagnosis:
    place = copied(mutation.backend, folder)
    mutation.apply(place)
    before = contents(place)
    diagnosis = examine_backend(str(place), HOST)
    assert contents(place) == before, "doctor wrote into the folder"
    return diagnosis


@pytest.mark.soak
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.label)
def test_what_is_broken_is_named(mutation: Mutation, tmp_path: Path) -> None:
    diagnosis = examined(mutation, tmp_path)
    assert mutation.is_named(diagnosis), shown(diagnosis)


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
    assert f"copy {MODULE} next to it" in faults[1].mend


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
