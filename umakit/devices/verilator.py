# SPDX-License-Identifier: Apache-2.0
"""Compiling a design with Verilator, once for each version of its files. Imports no TVM."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from umakit import sim
from umakit.errors import AcceleratorConfigError, BuildError, MissingProgramError
from umakit.files.compiled_files import HOST_CXX_COMPILERS, host_compiler
from umakit.library.layout import cache_folder
from umakit.machine.rtl_ports import Direction, Port
from umakit.text.spelling import closest

LEAST_VERSION = (5, 0)
"""The first version of Verilator with these options and this output."""

HARNESS = sim.source_directory() / "rtl" / "include"
"""Folder with the C++ headers of buses."""

MESSAGES = HARNESS / "umakit" / "rtl_messages.h"
"""Header compiled into Verilator's own files, which redirects messages and ends of a design."""

CXX_FLAGS = ("-O3", "-fno-strict-aliasing")
"""Flags of the C++ that Verilator writes; most of a run's time is spent there."""

FAULT = re.compile(r"^%Error(?:-[A-Z0-9]+)?: (?P<what>.*)", re.MULTILINE)
NO_TOP = re.compile(r"--top-module '(\w+)' was not found")
NO_PARAMETER = re.compile(r"Parameters from the command line were not found in the design: (\w+)")

KEPT_DESIGNS = 24
"""Number of compiled designs kept; older designs are deleted."""


@dataclass(frozen=True)
class DesignFiles:
    """The input of Verilator for a design.

    Attributes:
        top: the top module, which has the ports.
        included: files that sources may include.
        defines: macros of the preprocessor, as `NAME` or `NAME=value`.
    """

    top: str
    sources: tuple[Path, ...]
    folders: tuple[Path, ...] = ()
    included: tuple[Path, ...] = ()
    parameters: Mapping[str, int | str] | None = None
    defines: tuple[str, ...] = ()

    def arguments(self) -> list[str]:
        """Return the arguments of Verilator for the files."""
        parents = dict.fromkeys(path.parent for path in self.sources)
        return [
            "--top-module",
            self.top,
            *(f"-G{name}={value}" for name, value in sorted((self.parameters or {}).items())),
            *(f"-D{define}" for define in self.defines),
            *(f"-I{folder.absolute()}" for folder in (*parents, *self.folders)),
            *(str(path.absolute()) for path in self.sources),
        ]

    def digest(self) -> bytes:
        """Return a digest of the contents of all files and of the options."""
        given = [self.top, sorted((self.parameters or {}).items()), self.defines]
        digest = hashlib.sha256(repr(given).encode())
        for path in (*self.sources, *self.included):
            digest.update(path.name.encode() + b"\0")
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        return digest.digest()


@dataclass(frozen=True)
class Verilated:
    """A design that Verilator has compiled.

    Attributes:
        top: name of the module; the C++ class has the prefix V.
        folder: folder of the headers and of `libverilated_design.a`.
    """

    top: str
    folder: Path
    include: Path
    is_traced: bool

    @property
    def compiling(self) -> list[str]:
        """Compiler arguments for C++ code that uses the class."""
        folders = (self.folder.absolute(), self.include, self.include / "vltstd")
        return [word for folder in folders for word in ("-isystem", str(folder))]

    @property
    def linking(self) -> list[str]:
        archive = str((self.folder / ARCHIVE).absolute())
        return [archive, "-pthread", *(["-lz"] if self.is_traced else [])]


ARCHIVE = "libverilated_design.a"


@functools.cache
def verilator() -> tuple[str, Path]:
    """Return the version of Verilator and its folder of headers."""
    if shutil.which("verilator") is None:
        raise MissingProgramError(
            "Verilator is not installed, which compiles the design of [rtl]",
            fix="on Debian: apt-get install verilator g++ make zlib1g-dev, version 5.0 or later",
        )
    said = _output(["verilator", "--version"])
    found = re.search(r"Verilator (\d+)\.(\d+)", said)
    if found is None or (int(found[1]), int(found[2])) < LEAST_VERSION:
        raise BuildError(
            f"Verilator says {said.strip() or 'no version'!r}, and 5.0 or later is needed",
            fix="install a later version",
        )
    return said.strip(), Path(_output(["verilator", "--getenv", "VERILATOR_ROOT"]).strip())


def _output(command: Sequence[str]) -> str:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False
        ).stdout
    except OSError as error:
        raise BuildError(f"cannot run {command[0]}: {error.strerror}") from None


def ports_of(files: DesignFiles) -> list[Port]:
    """Return the ports of a design's top module in order."""
    verilator()
    with tempfile.TemporaryDirectory(prefix="umakit-rtl-") as temporary:
        _verilate(["--xml-only", "--Mdir", temporary], files)
        (path,) = Path(temporary).glob("*.xml")
        root = ElementTree.parse(path).getroot()
    widths = {each.get("id", ""): each for each in root.iter() if each.get("id")}
    module = next(each for each in root.iter("module") if each.get("topModule") == "1")
    ports = [each for each in module.iter("var") if each.get("pinIndex")]
    return [
        Port(
            port.get("origName", ""),
            cast(Direction, port.get("dir", "input")),
            _bits(widths, port.get("dtype_id", "")),
        )
        for port in sorted(ports, key=lambda port: int(port.get("pinIndex", "0")))
    ]


def _bits(types: Mapping[str, ElementTree.Element], name: str) -> int:
    kind = types[name]
    ends = [int(kind.get(end, "0")) for end in ("left", "right")]
    if kind.tag == "basicdtype":
        return abs(ends[0] - ends[1]) + 1
    if kind.tag == "packarraydtype":
        sides = [_number(each.get("name", "0")) for each in kind.iter("const")]
        return (abs(sides[0] - sides[1]) + 1) * _bits(types, kind.get("sub_dtype_id", ""))
    if kind.tag == "structdtype":
        members = kind.iter("memberdtype")
        return sum(_bits(types, member.get("sub_dtype_id", "")) for member in members)
    return _bits(types, kind.get("sub_dtype_id", ""))  # a typedef, an enumeration


def _number(text: str) -> int:
    """Return the value of a constant such as `32'sh7`."""
    width, _, digits = text.partition("'")
    return int(digits.lstrip("s")[1:], 16) if digits else int(width)


def verilated(files: DesignFiles, *, is_traced: bool = False) -> Verilated:
    """Return a design compiled to C++ and objects, from the user's cache if present."""
    found = _cached(files, is_traced)
    if (found.folder / ARCHIVE).exists():
        os.utime(found.folder)
        return found
    compiler = host_compiler("CXX", HOST_CXX_COMPILERS, "C++")
    folder, name = found.folder.parent, found.folder.name
    _delete_old(folder)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        built = Path(temporary) / name
        trace = ["--trace-fst", "--trace-structs"] if is_traced else []
        _verilate([*SPEED, *trace, "--cc", "--Mdir", str(built)], files)
        _make(built, files.top, compiler)
        if not found.folder.exists():  # another process may have been faster
            built.replace(found.folder)
    return found


def is_verilated(files: DesignFiles, *, is_traced: bool = False) -> bool:
    """Return whether the user's cache has a design compiled."""
    return (_cached(files, is_traced).folder / ARCHIVE).exists()


def _cached(files: DesignFiles, is_traced: bool) -> Verilated:
    """Return a design with its folder in the user's cache, compiled or not."""
    version, root = verilator()
    compiler = host_compiler("CXX", HOST_CXX_COMPILERS, "C++")
    key = repr([version, compiler, CXX_FLAGS, SPEED, is_traced]).encode() + files.digest()
    key += MESSAGES.read_bytes()
    name = f"{files.top}-{hashlib.sha256(key).hexdigest()[:24]}"
    return Verilated(files.top, cache_folder("rtl") / name, root / "include", is_traced)


SPEED = ("-O3", "--x-assign", "unique", "--x-initial", "unique", "--output-split", "20000")
"""Options for speed, with files that compile in parallel. Unknown values can be random, to expose
designs that depend on them."""


def _verilate(arguments: Sequence[str], files: DesignFiles) -> None:
    command = ["verilator", "--no-timing", "-Wno-fatal", "-Wno-lint", "-Wno-style", *arguments]
    command += ["--prefix", f"V{files.top}", *files.arguments()]
    result = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if result.returncode == 0:
        return
    said = result.stderr
    if NO_TOP.search(said):
        modules = re.findall(
            r"^\s*module\s+(\w+)",
            "\n".join(path.read_text(errors="replace") for path in files.sources),
            re.MULTILINE,
        )
        near = closest(files.top, modules)
        raise AcceleratorConfigError(
            f"rtl.top: no source of [rtl] has a module {files.top}",
            fix=f"write {near}" if near else f"the modules are {', '.join(modules) or 'none'}",
        )
    unknown = NO_PARAMETER.search(said)
    if unknown:
        raise AcceleratorConfigError(
            f"rtl.parameters: {files.top} has no parameter {unknown[1]}",
            fix="correct its name, or leave it out",
        )
    first = FAULT.search(said)
    what = first["what"] if first else (said.strip() or "no message").splitlines()[-1]
    raise BuildError(f"Verilator refused the design: {what.strip()}", fix="correct that line")


def _make(folder: Path, top: str, compiler: Sequence[str]) -> None:
    """Compile Verilator's output, and archive it together with Verilator's own objects."""
    messages = f"-include {MESSAGES.absolute()}"
    flags = " ".join([*CXX_FLAGS, messages])
    command = ["make", "-s", "-C", str(folder), "-f", f"V{top}.mk", f"-j{os.cpu_count() or 1}"]
    command += [f"OPT_FAST={flags}", f"OPT_SLOW=-O1 {messages}", f"OPT_GLOBAL={flags}"]
    command += [f"CXX={' '.join(compiler)}", f"V{top}__ALL.a", *_runtime_objects(folder, top)]
    result = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if result.returncode != 0:
        lines = [line for line in result.stderr.splitlines() if "error" in line.lower()]
        raise BuildError(
            f"{compiler[0]} refused what Verilator wrote: {(lines or ['no message'])[0].strip()}",
            fix="check that a C++ compiler, make and the headers of zlib are installed",
        )
    objects = sorted(path.name for path in folder.glob("*.o"))
    subprocess.run(["ar", "rcs", ARCHIVE, *objects], cwd=folder, check=True)


def _runtime_objects(folder: Path, top: str) -> list[str]:
    text = (folder / f"V{top}_classes.mk").read_text()
    found = re.search(r"^VM_GLOBAL_FAST \+= \\\n((?:.*\\\n)*)", text, re.MULTILINE)
    names = re.findall(r"(\w+)", found[1]) if found else []
    return [f"{name}.o" for name in names]


def _delete_old(folder: Path) -> None:
    designs = sorted(
        (path for path in folder.iterdir() if (path / ARCHIVE).exists()),
        key=lambda path: path.stat().st_mtime,
    )
    for stale in designs[:-KEPT_DESIGNS]:
        shutil.rmtree(stale, ignore_errors=True)
