# SPDX-License-Identifier: Apache-2.0
"""What `uma doctor`, `uma check` and `uma calibrate` say is to be done mends the case, and nothing
new comes; the inventory at the end has all that they can say, and where that is applied."""

from __future__ import annotations

import functools
import importlib
import platform
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
from doctor_faults import BACKENDS, MENDS, MUTATIONS, Mutation, copied, named_lines
from packaging.requirements import Requirement

from umakit.backend import load_backend_folder
from umakit.devices import HOST
from umakit.errors import BuildError, RegisterMapError
from umakit.machine.registers.register_map import read_register_map
from umakit.testing import simulator_program
from umakit.testing.registers.register_check import configured_values
from umakit.tools.doctor import Check, Diagnosis, Status, environment, examination, examine_backend
from umakit.tools.doctor.driver import file_checks, stage
from umakit.tools.doctor.memories import memory_checks
from umakit.tools.doctor.probes import Probes
from umakit.tools.doctor.simulator import start_checks

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
        monkeypatch.setattr(examination, name, check)
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
                each.marker and each.marker.evaluate({"extra": extra}) and each.name == name
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
    holds = 'holds = ["weights", "parameters"]\n'
    assert healthy.count(holds) == 1 and memories(folder, probes) == []
    broken = healthy.replace(holds, "")
    path.write_text(broken, encoding="utf-8")
    (fault,) = memories(folder, probes)
    assert re.fullmatch("set holds, a list of .*weights.*, or remove the memory", fault.mend)
    path.write_text(broken[: broken.rindex("[[memory]]")], encoding="utf-8")
    assert memories(folder, probes) == []


def test_registers_that_are_configured_as_told_are_read(tmp_path: Path) -> None:
    backend = load_backend_folder(copied("strawberry_accelerator", tmp_path))
    form = '[[register]]\nname = "QUEUES"\noffset = 0\naccess = "ro"\nconfigured = {}\n'

    def values(configured: str) -> dict[str, int]:
        found = read_register_map(form.format(configured), "registers.toml")
        return configured_values(found, backend.configuration, "registers.toml")

    with pytest.raises(RegisterMapError) as caught:
        values('"array"')
    assert caught.value.fix == "write SECTION.KEY, memory.NAME.KEY, or configured = true"
    assert values('"array.rows"') == {"QUEUES": backend.configuration.array.rows}
    assert values('"memory.scratchpad.size"')["QUEUES"] > 0
    assert values("true") == {}
