# SPDX-License-Identifier: Apache-2.0
"""Designs of `tests/rtl` behind the kit's C++ bus harness, as programs that a script drives."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from umakit import sim
from umakit.text.rendering import render

FOLDER = Path(__file__).with_name("rtl")
SIM = Path(sim.source_directory())
HEADERS = (SIM / "rtl" / "include", SIM / "include")
MESSAGES = SIM / "rtl" / "include" / "umakit" / "rtl_messages.h"
KIT = ("simulator", "host", "windows", "faults", "status")
C_WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
WARNINGS = (*C_WARNINGS, "-Wconversion", "-Wshadow", "-Wformat=2", "-Wundef", "-Wcast-qual")
IGNORED = ("WIDTH", "UNUSEDSIGNAL", "DECLFILENAME", "SYMRSVDWORD", "SYNCASYNCNET")
"""Warnings of Verilator about the designs of the tests, which are short rather than exemplary."""


def run(*command: str | Path, text: str = "", seconds: float = 300) -> str:
    """Run a command, which must succeed, and return what it printed."""
    words = [str(word) for word in command]
    result = subprocess.run(
        words, input=text, capture_output=True, text=True, timeout=seconds, check=False
    )
    assert result.returncode == 0, f"{shlex.join(words)}\n{result.stdout}{result.stderr}"
    return result.stdout


def need_verilator() -> None:
    """Skip the test where there is no Verilator; on CI that is a failure."""
    if shutil.which("verilator") is None:
        assert not os.environ.get("UMAKIT_CI"), "CI lacks verilator: see .ci/run"
        pytest.skip("verilator is not installed")


@cache
def verilator_headers() -> Path:
    """Return the folder of Verilator's own headers and sources."""
    found = re.search(r"^ *VERILATOR_ROOT *= (\S+)", run("verilator", "-V"), re.MULTILINE)
    assert found
    return Path(found[1]) / "include"


def ports_of(source: str, prefix: str) -> dict[str, str]:
    """Return the ports of a module with a prefix, by their names without it."""
    header = source[: source.index("\n);")]
    names = re.findall(r"^ *(?:input|output) +logic +(?:\[.*?\] +)?(\w+)", header, re.MULTILINE)
    return {name.removeprefix(prefix): name for name in names if name.startswith(prefix)}


@dataclass(frozen=True)
class Design:
    """A design of the tests and how the template is told about it.

    Attributes:
        top: its module, in the file of this name.
        context: what the template is rendered with besides `name` and `top`.
        sources: files of other modules.
        parameters: of the module.
        is_traced: waveforms are compiled in.
    """

    top: str
    context: Mapping[str, Any]
    sources: Sequence[str] = ()
    parameters: Mapping[str, int] = field(default_factory=dict)
    is_traced: bool = False

    @property
    def source(self) -> str:
        """The text of the module."""
        return (FOLDER / f"{self.top}.sv").read_text(encoding="utf-8")

    @property
    def latency(self) -> int:
        """Cycles of the memory."""
        return int(self.context["memory"]["latency"])

    @property
    def data_bytes(self) -> int:
        """Bytes of a beat of the memory's bus."""
        return int(self.context["memory"]["data_bits"]) // 8


def _defines(is_traced: bool) -> list[str]:
    value = int(is_traced)
    defines = [f"-DVM_TRACE={value}", f"-DVM_TRACE_FST={value}", "-DVM_TRACE_VCD=0"]
    return [*defines, "-DVERILATOR=1", "-DVM_COVERAGE=0", "-DVM_SC=0"]


def _compile(source: Path, output: Path, *flags: str | Path, compiler: str = "g++") -> Path:
    standard = ["-x", "c", "-std=c99"] if source.suffix == ".c" else ["-std=c++17"]
    run(compiler, *standard, *flags, "-c", source, "-o", output)
    return output


class Builder:
    """Builds designs in a folder, and what they share once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._shared: dict[bool, list[Path]] = {}
        self._objects: dict[str, list[Path]] = {}

    def rendered(self, design: Design, folder: Path) -> Path:
        """Return the file that the template makes."""
        path = folder / f"{design.top}_simulator.cc"
        context = {"name": design.top, "top": design.top, "ties": {}, **design.context}
        path.write_text(render("rtl/simulator.cc.j2", **context), encoding="utf-8")
        return path

    def flags(self, folder: Path) -> list[str | Path]:
        """Return the flags with which what the template makes is compiled."""
        root = verilator_headers()
        own = [word for path in HEADERS for word in ("-I", path)]
        theirs = [word for path in (root, root / "vltstd", folder) for word in ("-isystem", path)]
        return ["-O0", *WARNINGS, *own, *theirs]

    def objects(self, design: Design) -> list[Path]:
        """Return objects of a design and its simulator, which are built once."""
        if repr(design) not in self._objects:
            folder = self._folder / f"{design.top}{len(self._objects)}"
            folder.mkdir()
            self._objects[repr(design)] = self._build(design, folder)
        return self._objects[repr(design)]

    def _build(self, design: Design, folder: Path) -> list[Path]:
        options = [f"-G{key}={value}" for key, value in design.parameters.items()]
        options += [f"-Wno-{warning}" for warning in IGNORED]
        options += ["--trace-fst"] if design.is_traced else []
        files = [FOLDER / file for file in (f"{design.top}.sv", *design.sources)]
        run("verilator", "--cc", "--assert", "-Wall", "--top-module", design.top, "--prefix",
            f"V{design.top}", "-Mdir", folder, *options, *files)  # fmt: skip
        whole = folder / "whole.cpp"
        parts = sorted(path.name for path in folder.glob("V*.cpp"))
        whole.write_text("".join(f'#include "{part}"\n' for part in parts), encoding="utf-8")
        paths = (verilator_headers(), verilator_headers() / "vltstd", folder)
        root: list[str | Path] = [word for path in paths for word in ("-I", path)]
        defines = _defines(design.is_traced)
        model = _compile(whole, folder / "model.o", "-O0", "-include", MESSAGES, *defines, *root)
        traced = ["-DUMAKIT_RTL_TRACE"] if design.is_traced else []
        simulator = _compile(self.rendered(design, folder), folder / "simulator.o",
                             *self.flags(folder), *defines, *traced)  # fmt: skip
        return [model, simulator]

    def shared(self, is_traced: bool) -> list[Path]:
        """Return objects of Verilator and of the kit."""
        if is_traced not in self._shared:
            folder = self._folder / f"shared{int(is_traced)}"
            folder.mkdir()
            root = verilator_headers()
            names = ["verilated", "verilated_threads"] + ["verilated_fst_c"] * is_traced
            include: list[str | Path] = ["-include", MESSAGES, "-I", root, "-I", root / "vltstd"]
            theirs = [
                _compile(root / f"{name}.cpp", folder / f"{name}.o", "-O0", *include,
                         *_defines(is_traced))
                for name in names
            ]  # fmt: skip
            ours = [
                _compile(SIM / "src" / f"umakit_{name}.c", folder / f"{name}.o",
                         "-I", SIM / "include", compiler="gcc")
                for name in KIT
            ]  # fmt: skip
            self._shared[is_traced] = [*theirs, *ours]
        return self._shared[is_traced]

    def link(self, objects: Iterable[Path], output: Path, is_traced: bool = False) -> Path:
        """Link a program."""
        libraries = ["-pthread"] + ["-lz"] * is_traced
        run("g++", *objects, *self.shared(is_traced), "-o", output, *libraries)
        return output

    def program(self, design: Design) -> Program:
        """Return the program that drives a design."""
        objects = self.objects(design)
        functions = ["simulator", "randomize", "trace_window"]
        names = [f"-DNAME_{name}={design.top}_{name}" for name in functions]
        names += ["-DUMAKIT_RTL_TRACE"] * design.is_traced
        driver = _compile(FOLDER / "driver.c", objects[0].with_name("driver.o"), *C_WARNINGS,
                          *names, "-I", SIM / "include", compiler="gcc")  # fmt: skip
        path = self.link([driver, *objects], driver.with_name("driver"), design.is_traced)
        return Program(path, design)


@dataclass(frozen=True)
class Program:
    """`tests/rtl/driver.c` with a design."""

    path: Path
    design: Design

    def __call__(self, *script: str) -> list[str]:
        """Return the answers to the commands of a script; see `tests/rtl/driver.c`."""
        answers = run(self.path, text="\n".join(script) + "\n").split("\n")[:-1]
        assert len(answers) == len(script)
        return answers
