# SPDX-License-Identifier: Apache-2.0
"""What `uma doctor`, `uma check` and `uma calibrate` say is to be done mends the case, and nothing
new comes; the inventory at the end has all that they can say, and where that is applied."""

from __future__ import annotations

import ast
import functools
import importlib
import platform
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
from doctor_faults import BACKENDS, MENDS, MUTATIONS, Mutation, copied, named_lines
from packaging.requirements import Requirement
from umakit.cli.main import app

from umakit.backend import load_backend_folder
from umakit.devices import HOST
from umakit.errors import BuildError, RegisterMapError
from umakit.machine.registers.register_map import read_register_map
from umakit.testing import simulator_program
from umakit.testing.registers.register_check import configured_values
from umakit.tools.doctor import Check, Diagnosis, Status, environment, examine_backend
from umakit.tools.doctor.driver import file_checks, stage
from umakit.tools.doctor.examination import memory_checks
from umakit.tools.doctor.probes import Probes, start_checks

ROOT = Path(__file__).parents[1]

CHECKED = {
    name: functools.cache(getattr(environment, name)) for name in ("device_check", "cxx_check")
}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def shown(diagnosis: Diagnosis) -> str:
    return "\n".join(
        f"{each.status} {each.name}: {each.where}: {each.message} -> {each.mend}"
        for each in diagnosis.checks
    )


@pytest.mark.soak
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.label)
def test_what_is_to_be_done_mends_what_is_broken(
    mutation: Mutation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:  # fmt: skip
    for name, check in CHECKED.items():  # compilers are tried once
        monkeypatch.setattr(environment, name, check)
    broken = copied(mutation.backend, tmp_path / "broken")
    mutation.apply(broken)
    before = contents(broken)
    diagnosis = examine_backend(str(broken), HOST)
    assert contents(broken) == before, "doctor wrote into the folder"
    fault = mutation.named(diagnosis)
    assert fault is not None, shown(diagnosis)
    mends = MENDS.get(mutation.label, (named_lines,))
    for number, mend in enumerate(mends):
        mended = tmp_path / str(number) / broken.name
        shutil.copytree(broken, mended)
        mend(mended, BACKENDS / mutation.backend, fault)
        found = examine_backend(str(mended), HOST)
        assert {each.status for each in found.checks} == {Status.OK}, f"{fault}\n{shown(found)}"
    record_property("covered", f"advice, {len(mends)} applied: {fault.mend}")


# --- simulators of a backend's own ----------------------------------------------------------------

MODULE = Path(simulator_program.__file__)
PROGRAM = 'program = ["python3", "model.py"]'
LINKED = 'sources = ["model.cc"]'
Edits = tuple[tuple[str, str, str], ...]
"""Files, and texts in them that are replaced; {0} is what `named` finds in what is to be done."""


@dataclass(frozen=True)
class Starting:
    """A fault of a simulator, found when it is started.

    Attributes:
        broken: how it comes about.
        mend: what is said to be done, a regular expression; its group is {0} of the edits.
        mends: how each alternative is applied.
    """

    broken: Edits
    mend: str
    mends: tuple[Edits, ...]


COPIED = ("simulator_program.py", "", "{0}")
HAS_NO_UMAKIT = (
    ("accel.toml", PROGRAM, 'program = ["./python3", "model.py"]'),
    ("python3", "", f'#!/bin/sh\nexec "{sys.executable}" -S -E "$@"\n'),
    ("model.py", "from simulator_program", "from umakit.testing.simulator_program"),
)
CORRECT = "^correct program in \\[simulator\\], or the program: see docs/simulator-protocol.md$"
STARTING = {
    "the module is not there": Starting(
        (("simulator_program.py", "", None),), r"^copy (\S+) next to it$", ((COPIED,),)  # type: ignore[arg-type]
    ),
    "its Python has no umakit": Starting(
        HAS_NO_UMAKIT, r"or copy (\S+) next to it and import simulator_program$",
        ((("accel.toml", '"./python3"', f'"{sys.executable}"'),),
         (COPIED, ("model.py", "from umakit.testing.simulator_program", "from simulator_program"))),
    ),
    "the program is not there": Starting(
        (("accel.toml", '"model.py"', '"modle.py"'),), "()" + CORRECT,
        ((("accel.toml", '"modle.py"', '"model.py"'),),),
    ),
    "the program ends": Starting(
        (("model.py", "class Relu", "raise SystemExit(1)\n\n\nclass Relu"),), "()" + CORRECT,
        ((("model.py", "raise SystemExit(1)\n", ""),),),
    ),
    "the table is of another version": Starting(
        (("accel.toml", PROGRAM, LINKED), ("model.cc", "{UMAKIT_OWN_SIMULATOR_VERSION", "{77")),
        "^()correct the table of the simulator: see umakit/own_simulator.h$",
        ((("model.cc", "{77", "{UMAKIT_OWN_SIMULATOR_VERSION"),),),
    ),
    "create ends the program": Starting(
        (("accel.toml", PROGRAM, LINKED), ("model.cc", "return &relu;", "__builtin_exit(5);")),
        "^()let create return: the program ended in it$",
        ((("model.cc", "__builtin_exit(5);", "return &relu;"),),),
    ),
    "create is stopped by a signal": Starting(
        (("accel.toml", PROGRAM, LINKED), ("model.cc", "return &relu;", "__builtin_trap();")),
        "^()run it in a debugger: it fails before the driver's first access$",
        ((("model.cc", "__builtin_trap();", "return &relu;"),),),
    ),
    "create never returns": Starting(
        (("accel.toml", PROGRAM, LINKED + "\ntimeout = 1.5"),
         ("model.cc", "return &relu;", "for (volatile int turn = 0;; turn = 1) {}")),
        "^()let its functions return, wait too when no interrupt comes",
        ((("model.cc", "for (volatile int turn = 0;; turn = 1) {}", "return &relu;"),),),
    ),
}  # fmt: skip


def edit(folder: Path, edits: Edits, found: str = "") -> None:
    for name, old, new in edits:
        path = folder / name
        if new is None:
            path.unlink()
        elif new == "{0}":
            shutil.copy(found, path)
        elif not old:
            path.write_text(new, encoding="utf-8")
            path.chmod(0o755)
        else:
            text = path.read_text(encoding="utf-8")
            assert old in text, (name, old)
            path.write_text(text.replace(old, new), encoding="utf-8")


def started(folder: Path, stages: Path) -> Check:
    stages.mkdir()
    (check,) = start_checks(stage(load_backend_folder(folder), HOST, stages))
    return check


@pytest.mark.soak
@pytest.mark.parametrize("label", STARTING)
def test_a_simulator_that_is_mended_starts(
    label: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    fault, broken = STARTING[label], tmp_path / "broken" / "relu_npu"
    shutil.copytree(ROOT / "tests" / "programs" / "relu_npu", broken)
    shutil.copy(MODULE, broken)
    edit(broken, fault.broken)
    check = started(broken, tmp_path / "staged")
    found = re.search(fault.mend, check.mend)
    assert check.status is Status.ERROR and found, check
    for number, mend in enumerate(fault.mends):
        mended = tmp_path / str(number) / broken.name
        shutil.copytree(broken, mended)
        edit(mended, mend, found[1])
        check = started(mended, tmp_path / f"staged{number}")
        assert check.status is Status.OK, check
    record_property("covered", f"advice, {len(fault.mends)} applied: {found.string}")


# --- the machine ----------------------------------------------------------------------------------


def installed(mend: str) -> Requirement:
    """What a command for pip would install; the command has the form that pip takes."""
    words = shlex.split(mend.removeprefix("install it: "))
    assert words[:2] == ["pip", "install"] and len(words) == 3
    return Requirement(words[2])


def not_ok(checks: Any) -> list[Check]:
    return [each for each in checks if each.status is not Status.OK]


def test_packages_that_are_installed_as_told_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    real = environment._version
    for name in ("jinja2", "torch", "onnxruntime", "tflite_micro"):
        absent = [name]
        version = functools.partial(
            lambda absent, each: None if each in absent else real(each), absent
        )
        monkeypatch.setattr(environment, "_version", version)
        checks = [*environment.python_checks(), *environment.optional_checks()]
        (fault,) = [each for each in not_ok(checks) if name in (each.name, each.message.split()[0])]
        wanted = installed(fault.mend)
        assert wanted.name in (name.replace("_", "-"), "umakit")
        if wanted.name == "umakit":  # what the extra brings has the package
            (extra,) = wanted.extras
            needed = environment.metadata("umakit").get_all("Requires-Dist") or []
            of_extra = [Requirement(each) for each in needed]
            assert any(
                each.marker
                and each.marker.evaluate({"extra": extra})
                and each.name.replace("-", "_") == name
                for each in of_extra
            )
        absent.clear()
        checks = [*environment.python_checks(), *environment.optional_checks()]
        assert fault not in checks


def test_python_and_umakit_that_are_installed_as_told_are_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(platform, "python_version", lambda: "3.9.1")
        (fault,) = not_ok(environment.python_checks())
        wanted = re.search(r"with Python (\S+) and install umakit in it$", fault.mend)
        assert wanted and Requirement(f"python{wanted[1]}").specifier.contains("3.11.7")
        patched.setattr(platform, "python_version", lambda: "3.11.7")
        assert not_ok(environment.python_checks()) == []

        def absent(name: str) -> Any:
            raise PackageNotFoundError(name)

        patched.setattr(environment, "metadata", absent)
        (fault,) = not_ok(environment.python_checks())
        assert installed(fault.mend) == Requirement("umakit")
    with monkeypatch.context() as patched:

        def broken(name: str) -> Any:
            raise ImportError("libtvm.so: wrong ELF class")

        patched.setattr(importlib, "import_module", broken)
        assert environment.tvm_check().mend == "pip install --force-reinstall umakit"
    assert environment.tvm_check().status is Status.OK


def test_compilers_that_are_set_as_told_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compilers = {"CC": shutil.which("cc") or "cc", "CXX": shutil.which("c++") or "c++"}
    for name, path in compilers.items():
        check = {
            "CC": lambda: environment.device_check(HOST),
            "CXX": lambda: environment.cxx_check(HOST, "machine.cc"),
        }[name]
        monkeypatch.setenv(name, "false")
        fault = check()
        assert fault.status is Status.ERROR
        assert fault.mend == f"let {name} be a compiler that works, or unset it"
        monkeypatch.setenv(name, path)
        assert check().status is Status.OK
        monkeypatch.delenv(name)
        assert check().status is Status.OK
        with monkeypatch.context() as patched:
            patched.setenv("PATH", str(tmp_path))
            assert "install g" in check().mend

            def refuse(*given: Any) -> None:
                raise BuildError("crt1.o: No such file")

            patched.undo()
            patched.setattr(environment, "compile_c", refuse)
            assert check().mend.startswith("on Debian: apt-get install g")
            own = replace(HOST, name="own", packages=(), own_file="own.toml")
            fault = environment.device_check(own)
            assert fault.mend == "install its programs, or correct own.toml"
        assert check().status is environment.device_check(own).status is Status.OK


def test_folders_that_are_set_as_told_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = environment.temporary_folder

    def refusing(prefix: str) -> Any:
        if "TMPDIR" not in environment.os.environ:
            raise OSError("Read-only file system")
        return real(prefix)

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    with monkeypatch.context() as patched:
        patched.delenv("TMPDIR", raising=False)
        patched.setattr(environment, "temporary_folder", refusing)
        fault = environment.folder_check()
        assert fault.status is Status.ERROR and fault.mend.startswith("set TMPDIR to a folder")
        patched.setenv("TMPDIR", str(tmp_path))
        assert environment.folder_check().status is Status.OK
    with monkeypatch.context() as patched:
        patched.delenv("XDG_CACHE_HOME", raising=False)
        patched.setattr(Path, "home", no_home)
        fault = environment.folder_check()
        assert (fault.status, fault.mend) == (Status.WARNING, "set XDG_CACHE_HOME")
        patched.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert environment.folder_check().status is Status.OK
    with monkeypatch.context() as patched:
        patched.delenv("XDG_CACHE_HOME", raising=False)
        patched.setattr(
            environment.os, "access", lambda path, mode: tmp_path in (path, *path.parents)
        )
        fault = environment.folder_check()
        assert fault.status is Status.WARNING and fault.mend.startswith("set XDG_CACHE_HOME to a")
        patched.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert environment.folder_check().status is Status.OK


def test_a_file_that_may_be_read_as_told_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied("vanilla_accelerator", tmp_path)
    backend, path = load_backend_folder(folder), folder / "conv2dnchw.c"
    real = Path.read_bytes

    def read(self: Path) -> bytes:  # root may read everything
        if self == path and not self.stat().st_mode & 0o400:
            raise PermissionError(13, "Permission denied")
        return real(self)

    monkeypatch.setattr(Path, "read_bytes", read)
    monkeypatch.setattr(Path, "read_text", lambda self, **options: read(self).decode())
    path.chmod(0)
    (fault,) = not_ok(file_checks(backend))
    words = shlex.split(fault.mend.removeprefix("let it be read: "))
    assert words[:2] == ["chmod", "u+r"]
    Path(words[2]).chmod(0o400)
    assert not_ok(file_checks(backend)) == []


# --- memories and registers -----------------------------------------------------------------------


def memories(folder: Path, probes: Probes) -> list[Check]:
    """What is wrong with the memories of a copy of a backend, which is loaded anew."""
    again = folder.parent / f"{len(list(folder.parent.iterdir()))}" / folder.name
    shutil.copytree(folder, again)
    return not_ok(memory_checks(load_backend_folder(again), probes))


def test_memories_that_are_described_as_told_are_right(tmp_path: Path) -> None:
    folder = copied("vanilla_accelerator", tmp_path)
    path, used = folder / "accel.toml", Probes(memories={"sram": {"conv2d"}})
    before = path.read_text(encoding="utf-8")
    (fault,) = memories(folder, used)
    told = re.fullmatch(
        r"describe it: (\[\[memory\]\]) with (.*), size and (.*) and (.*)", fault.mend
    )
    assert told
    path.write_text("\n".join((before, *told.groups(), "size = 4096", "")), encoding="utf-8")
    assert memories(folder, used) == []
    path.write_text(f'{before}\n[[memory]]\nname = "sram"\nsize = 4096\n', encoding="utf-8")
    (fault,) = memories(folder, used)
    told = re.fullmatch("write (.*) and (.*)", fault.mend)
    assert told
    with path.open("a", encoding="utf-8") as file:
        file.write("\n".join((*told.groups(), "")))
    assert memories(folder, used) == []
    unused = Probes(first=object())  # type: ignore[arg-type]
    (fault,) = memories(folder, unused)
    assert fault.mend == "remove it, or allocate buffers in it: tir.scratchpad_buffer"
    assert memories(folder, used) == []
    path.write_text(before, encoding="utf-8")
    assert memories(folder, unused) == []


def test_memories_of_a_machine_that_hold_what_is_told_are_right(tmp_path: Path) -> None:
    folder = tmp_path / "lane_npu"
    shutil.copytree(ROOT / "examples" / folder.name, folder)
    path, probes = folder / "accel.toml", Probes()
    healthy = path.read_text(encoding="utf-8")
    offset = 'address = "offset"\nreachable_by = ["accelerator"]\n'
    spare = f'\n[[memory]]\nname = "spare"\nsize = 4096\n{offset}'
    path.write_text(healthy + spare, encoding="utf-8")
    (fault,) = memories(folder, probes)
    assert re.fullmatch("set holds, a list of .*parameters.*, or remove the memory", fault.mend)
    holds = healthy.replace('holds = ["weights", "parameters"]', 'holds = ["weights"]')
    path.write_text(f'{holds}{spare}holds = ["parameters"]\n', encoding="utf-8")
    assert holds != healthy and memories(folder, probes) == []
    path.write_text(healthy, encoding="utf-8")
    assert memories(folder, probes) == []


def test_registers_that_are_configured_as_told_are_read(tmp_path: Path) -> None:
    backend = load_backend_folder(copied("strawberry_accelerator", tmp_path))
    form = '[[register]]\nname = "QUEUES"\noffset = 0\naccess = "ro"\nconfigured = {}\n'

    def values(configured: str) -> dict[str, int]:
        found = read_register_map(form.format(configured), "registers.toml")
        return configured_values(found, backend.configuration, "registers.toml")

    with pytest.raises(RegisterMapError) as caught:
        values('"device.queues"')
    assert caught.value.fix == "write SECTION.KEY, memory.NAME.KEY, or configured = true"
    assert values('"array.rows"') == {"QUEUES": backend.configuration.array.rows}
    assert values('"memory.scratchpad.size"')["QUEUES"] > 0
    assert values("true") == {}


# --- the inventory --------------------------------------------------------------------------------

ROOMS = ("tools/doctor", "tools/calibration", "testing/check", "testing/registers",
         "testing/programs")  # fmt: skip
NAMES = {"mend", "fix", "hint", "more", "ALIKE", "MISTAKE", "STOPPED", "NOT_A_COST", "WRITE_IT"}
"""Variables, arguments and constants that hold advice."""

CALLS = {"refused": 2, "_failure": 2}
"""Functions, with the number of their argument that is advice."""


def texts_of(node: ast.expr) -> Iterator[str]:
    """Yield the texts that an expression may be, with {} in place of what they are filled with."""
    if isinstance(node, ast.IfExp):
        yield from (*texts_of(node.body), *texts_of(node.orelse))
    elif isinstance(node, ast.BoolOp):
        yield from (text for each in node.values for text in texts_of(each))
    elif isinstance(node, ast.BinOp):
        sides = [list(texts_of(each)) or ["{}"] for each in (node.left, node.right)]
        yield from (left + right for left in sides[0] for right in sides[1])
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.strip():
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        parts = (each.value if isinstance(each, ast.Constant) else "{}" for each in node.values)
        yield "".join(map(str, parts))


def advice_in(function: ast.AST, name: str) -> Iterator[str]:
    """Yield all advice in a function or module."""
    gives = re.search("mend|hint|fix|verdict|driver_note|_error_before", name) is not None
    for node in ast.walk(function):
        found: ast.expr | None = None
        if isinstance(node, ast.keyword) and node.arg in NAMES:
            found = node.value
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            words = [word for each in targets for word in ast.walk(each)]
            is_advice = any(isinstance(each, ast.Name) and each.id in NAMES for each in words)
            pair = isinstance(node.value, ast.Tuple) and is_advice
            found = node.value.elts[-1] if pair else node.value if is_advice else None  # type: ignore[union-attr]
        elif isinstance(node, ast.Return) and gives:
            found = node.value.elts[-1] if isinstance(node.value, ast.Tuple) else node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            number = CALLS.get(node.func.id, 9)
            found = node.args[number] if len(node.args) > number else None
        for text in texts_of(found) if found is not None else ():
            if re.search("[a-z]", text) and not text.startswith(" "):  # the rest goes on
                yield text


def inventory() -> dict[str, str]:
    """All advice by its text, with the file that gives it."""
    found: dict[str, str] = {}
    for room in ROOMS:
        for path in sorted((ROOT / "umakit" / room).glob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            functions = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)]
            outside = [each for each in tree.body if isinstance(each, ast.Assign)]
            for each in (*functions, *outside):
                for text in advice_in(each, getattr(each, "name", "")):
                    found.setdefault(text, f"{room}/{path.name}")
    return found


APPLIED: dict[str, tuple[str, ...]] = {
    "test_advice.py::test_what_is_to_be_done_mends_what_is_broken": (
        "correct the line that is named",
        "pip install {}, or what has that module",
        "define the name in the file that it is imported from, or cor",
        "the phases are {}",
        "correct this line, or the one above it",
        "write {}.py, which this line imports",
        "this line reads accel.toml, which {}: add a [[memory]], or c",
        "correct it; docs/backends-api.md lists the keys and their va",
        "write it: `uma new NAME` shows one with all it needs",
        "wrap the function: tir.prim_func_pass(NAME, function)",
        "register what tvm.transform.module_pass or a function of tvm",
        "declare it in {}: {} defines it",
        "declare it in {}, and define it in a source of the driver",
        "rename {} ({}) to {}, which {} defines",
        "write {} ({}), which no pattern calls",
        "make the call and the declaration agree, and the driver's so",
        "make it and the call in {} agree, and the driver's source",
        "correct the name if it is a function of the driver",
        "define it in a source of the driver, or name a library in so",
        "on the host only a simulator defines it: set simulator in [d",
        'it is defined for C++ only: declare it inside extern "C" { }',
        "rename {} ({}) if it is that, or define {}",
        "{} defines it: _register_driver(sources=[..., {}])",
        "rename one of them, or make one static",
        "write {} in _register_driver",
        "write it",
        "pip install {}",
        "register one: _register_pattern; docs/patterns.md lists fini",
        "name {} in {}",
        ', or write name = "{}" in place of {}',
        "make this call and the declaration in {} agree",
        "do what the line says, then remove it",
        "give {} the same type here and in {}",
        "rename {}: {} declares it, too",
        "let the header be read once: begin it with #pragma once",
        "rename {} in one of the two headers, or remove one declarati",
        "write it, and name it: _register_driver(headers=[..., {}])",
        "headers of umakit's devices come with a simulator: set simul",
        "include {}",
        "name it: _register_driver(headers=[..., {}])",
        "include the header that declares it, or define it above this",
        "declare it above this line: its declaration is in {}",
        "include the header that declares it ({})",
        "declare it above this line, or in a header: {} defines it",
        "write {}, or define {} above this line",
        '#include "{}", which declares it',
        "define it above this line, or include the header that define",
        "#include <{}>, which defines it",
        '#include "{}", which defines it',
        "it belongs to umakit's simulators: set simulator in [device]",
    ),
    "test_advice.py::test_a_simulator_that_is_mended_starts": (
        "let its functions return, wait too",
        "run it in a debugger",
        "let create return",
        "correct program in [simulator]",
        "correct the table of the simulator",
        "{} has no umakit: name a Python",
    ),
    "test_advice.py::test_packages_that_are_installed_as_told_are_enough": (
        "pip install '{}{}'",
        "pip install {}",
    ),
    "test_advice.py::test_python_and_umakit_that_are_installed_as_told_are_enough": (
        "make a virtual environment with",
        "install it: pip install umakit",
        "pip install --force-reinstall",
    ),
    "test_advice.py::test_compilers_that_are_set_as_told_compile": (
        "on Debian: apt-get install {}",
        "install its programs, or correct",
        "let {} be a compiler that works",
    ),
    "test_advice.py::test_folders_that_are_set_as_told_can_be_written": (
        "set XDG_CACHE_HOME to a folder",
        "set TMPDIR to a folder",
        "set XDG_CACHE_HOME",
    ),
    "test_advice.py::test_a_file_that_may_be_read_as_told_is_read": (
        "let it be read: chmod u+r {}",
    ),
    "test_advice.py::test_memories_that_are_described_as_told_are_right": (
        "write {}",
        "describe it: [[memory]]",
        "remove it, or allocate buffers",
    ),
    "test_advice.py::test_memories_of_a_machine_that_hold_what_is_told_are_right": (
        "set holds, a list of {}",
    ),
    "test_advice.py::test_registers_that_are_configured_as_told_are_read": (
        "write SECTION.KEY, memory",
    ),
    "test_doctor.py::test_faults_of_own_simulators_are_named": (
        "correct this line, or what [simulator]",
    ),
    "test_calibrated_machines.py::test_more_layers_mend_a_formula": (
        "{}; --tiles {} measures more",
    ),
    "test_calibrated_machines.py::test_a_description_mends_what_no_formula_says": (
        "{}; accel.toml can say what",
    ),
    "test_calibrated_machines.py::test_what_it_says_of_a_description_mends_it": (
        "by the driver's register accesses",
        "all commands are exact, but not",
        "give it one, see docs/your-simulator",
    ),
    "test_calibration.py::test_it_says_what_a_program_lacks": (
        "let its counters have the clock",
        "report what engines do",
        "let the simulator report an event",
    ),
    "test_check.py::test_a_wrong_case_is_refused_by_name": (
        "copy it from the report",
        "copy the case from the report",
        "say {} {}",
    ),
    "test_check_runs.py::test_a_driver_is_caught_that": (
        "map the bytes of the layer's tensors",
    ),
    "test_register_check.py::test_uma_check_names_faults_of_a_simulator": (
        "change the device, or {}",
    ),
    "test_register_check.py::test_a_backend_without_a_map_has_no_registers_to_compare": (
        "write registers.toml into this folder",
    ),
    "test_varied_programs.py::test_a_driver_that_breaks_its_map_is_named": (
        "correct the map, or the driver",
    ),
    "test_varied_programs.py::test_programs_keep_to_what_the_map_says_drivers_send": (
        "{}; if drivers never send this: {}",
        "no failure unless a driver sends",
        "; or, if drivers never send these",
    ),
    "test_varied_programs.py::test_a_pair_differs_where_it_is_wrong_and_nowhere_else": (
        "the model and the RTL have to answer",
    ),
}  # fmt: skip
"""How advice begins, by the test that applies it."""

TOLD = (
    "see what it takes of yours: uma partition",
    "see what the driver and its device do",
    "correct what it names",
    "compare layer by layer: uma diff",
    "{}; commands of equal sizes took",
    "a backend that registers a TilePlanner",
    "`uma doctor {}` says what it takes",
    "it reads memory that it has not written",
    "before this run 0x{} was written",
    "let the device write the result, and",
    "the time ended before this was as simple",
    "--jobs 1 shows what it prints",
    "the same --seed shows it again",
    "alone it is right: do both define or change the same?",
    "{} is right in what was compared",
    "{} computes",
    "incomplete: nothing is wrong in what ran",
    "look for what the driver or the device keeps",
    "name the file that defines it in files",
)
"""How texts begin that say what is known, or which command or page shows more."""


def test_all_advice_is_applied_by_a_test(record_property: Callable[[str, object], None]) -> None:
    begins = {text: place for place, texts in APPLIED.items() for text in texts}
    begins |= dict.fromkeys(TOLD, "")
    found, used = inventory(), set()
    applied = 0
    for text, file in found.items():
        known = [each for each in begins if text.startswith(each)]
        assert known, f"no test applies what {file} says: {text}"
        longest = max(known, key=len)
        used.add(longest)
        applied += bool(begins[longest])
    assert used == set(begins), f"nothing says {set(begins) - used}"
    for place in APPLIED:
        name, _, test = place.partition("::")
        assert f"def {test}(" in (ROOT / "tests" / name).read_text(encoding="utf-8"), place
    record_property(
        "covered",
        f"{len(found)} pieces of advice of doctor, check and calibrate: tests apply {applied}, "
        f"{len(found) - applied} say what is known or which command shows more",
    )


def test_pages_and_commands_that_advice_names_are_there() -> None:
    commands = {each.name or each.callback.__name__ for each in app.registered_commands
                if each.callback is not None}  # fmt: skip
    for text in inventory():
        for page in re.findall(r"docs/[\w-]+\.md", text):
            assert (ROOT / page).is_file(), text
        for name in re.findall(r"\buma ([a-z]+)", text):
            assert name in commands, text
