# SPDX-License-Identifier: Apache-2.0
"""Compiling and linking a driver's files one by one, and parsing the compiler's messages."""

from __future__ import annotations

import os
import posixpath
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from umakit.codegen.driver_names import library_headers
from umakit.devices import Device, build
from umakit.devices.build import file_argument
from umakit.devices.libraries import CallableLibrary
from umakit.errors import BuildError, short_path
from umakit.machine.simulator_config import CXX_SUFFIXES
from umakit.registration.backend import Backend


@dataclass
class StagedDriver:
    """A driver's files in the layout of a library.

    Attributes:
        backend: the backend of the driver.
        device: target device of the driver.
        folder: parent of `src`, and base of the paths in compiler messages.
        places: the user's files by path in `folder`.
        objects: objects of the sources that could be compiled, by path in `folder`.
        compiled: objects and libraries of the driver, in linking order.
        library: the library of C functions that the backend calls.
    """

    backend: Backend
    device: Device
    folder: Path
    places: dict[str, Path] = field(default_factory=dict)
    objects: dict[str, Path] = field(default_factory=dict)
    compiled: list[Path] = field(default_factory=list)
    library: CallableLibrary | None = None

    @property
    def words(self) -> list[str]:
        """Compiler flags for all C files that may include headers of the library."""
        return self.library.words if self.library is not None else []

    def where(self, file: str, line: int) -> str:
        """Return the user's file and line for a place in a compiler's message."""
        return f"{short_path(self.places[posixpath.normpath(file)])}:{line}"

    def texts(self) -> dict[Path, str]:
        return {
            path: path.read_text(encoding="utf-8", errors="replace")
            for path in self.places.values()
        }

    def line_of(self, name: str, paths: Sequence[Path] | None = None) -> str:
        """Return file and line of the first mention of a C function; empty if there is none."""
        for path, text in self.texts().items():
            if paths is not None and path not in paths:
                continue
            for number, line in enumerate(text.splitlines(), 1):
                if re.search(rf"\b{re.escape(name)}\s*\(", line):
                    return f"{short_path(path)}:{number}"
        return ""

    @property
    def headers(self) -> list[Path]:
        """The user's headers, and the library's headers that generated C includes."""
        found = [self.backend.folder / name for name in self.backend.driver.headers]
        names = {f"src/{path}" for path in library_headers(self.backend)}
        return [*found, *(path for place, path in self.places.items() if place in names)]

    @property
    def sources(self) -> list[Path]:
        return [self.backend.folder / name for name in self.backend.driver.sources]

    def definition_of(self, name: str) -> str:
        """Return file and line of the definition of a C function; empty without one."""
        for path, text in self.texts().items():
            found = re.search(rf"\b{re.escape(name)}\s*\([^;{{}}]*\)\s*\{{", text)
            if path not in self.headers and found:
                return f"{short_path(path)}:{text.count(chr(10), 0, found.start()) + 1}"
        return ""


ERROR_LINE = re.compile(r"^(.+?):(\d+)(?::\d+)?: (?:fatal )?error: (.*)$", re.MULTILINE)
"""Form of an error line of gcc and clang: file, line, message."""

UNDEFINED = re.compile(
    r"undefined reference to [`']([^'\n]+)'|undefined symbol: (.+)$|^\s*\"_(.+)\", referenced from",
    re.MULTILINE,
)
"""Forms of the linkers of GNU, LLVM and Apple for an undefined name."""

IMPLICIT = "-Werror=implicit-function-declaration"
"""C99 forbids calls of undeclared functions. Older compilers only warn, and assume an int result,
which truncates pointers."""

DEFINED_TWICE = re.compile(r"multiple definition of [`']([^'\n]+)'|duplicate symbol: (.+)$", re.M)


@dataclass(frozen=True)
class Diagnostic:
    """The first error of a compiler.

    Attributes:
        file: path in the compiler's message; empty if there is none.
        line: number of the line, 0 if there is none.
        message: text of the error.
    """

    file: str
    line: int
    message: str


def run_compiler(device: Device, arguments: Sequence[str], folder: Path) -> str:
    """Run a device's C compiler with the flags of all libraries.

    Args:
        arguments: sources, flags and `-o`.
        folder: working folder, the base of paths in messages.

    Returns:
        The compiler's output on failure; empty on success.

    Raises:
        BuildError: there is no compiler.
    """
    return _run([*device.compiler(), *build.FLAGS, *arguments], folder)


def run_linker(device: Device, arguments: Sequence[str], folder: Path, is_cxx: bool) -> str:
    """Link with the flags of `run_compiler`; use the C++ compiler if an object is C++."""
    if not is_cxx:
        return run_compiler(device, arguments, folder)
    return _run([*device.cxx_compiler("the driver"), *arguments], folder)


def _run(command: list[str], folder: Path) -> str:
    # Messages are parsed, so they must not be translated.
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False,
            env=environment, cwd=folder,
        )  # fmt: skip
    except OSError as error:
        raise BuildError(f"cannot run {command[0]}: {error.strerror}") from None
    return "" if result.returncode == 0 else result.stderr or "it printed no message"


def compiled(
    source: Path, device: Device, folder: Path, words: Sequence[str] = ()
) -> tuple[Path, str]:
    """Compile a source in a folder.

    Args:
        device: target device.
        words: flags in addition to the flags of all libraries.

    Returns:
        The object, and the compiler's output on failure.
    """
    path = source.relative_to(folder)
    output = folder / f"{'-'.join(path.parts)}.o"
    arguments = [*words, "-c", file_argument(path), "-o", str(output)]
    if source.suffix in CXX_SUFFIXES:
        flags = [flag for flag in build.FLAGS if not flag.startswith("-std=")]
        return output, _run([*device.cxx_compiler(source.name), *flags, *arguments], folder)
    return output, run_compiler(device, [IMPLICIT, *arguments], folder)


def first_error(messages: str) -> Diagnostic:
    """Return the first error in a compiler's output."""
    match = ERROR_LINE.search(messages)
    if match:
        return Diagnostic(match[1].removeprefix("./"), int(match[2]), match[3])
    lines = [line for line in messages.splitlines() if "error" in line] or messages.splitlines()
    return Diagnostic("", 0, lines[0].strip() if lines else "it printed no message")


def undefined_names(messages: str) -> list[str]:
    """Return the undefined names in a linker's output; C++ names without arguments."""
    return _names(UNDEFINED, messages)


def names_defined_twice(messages: str) -> list[str]:
    """Return the names with several definitions in a linker's output."""
    return _names(DEFINED_TWICE, messages)


def _names(form: re.Pattern[str], messages: str) -> list[str]:
    found = ("".join(match.groups("")) for match in form.finditer(messages))
    return list(dict.fromkeys(name.strip().partition("(")[0] for name in found))


@dataclass(frozen=True)
class Symbols:
    """Global symbols of an object."""

    defined: frozenset[str]
    undefined: frozenset[str]


def symbols_of(path: Path) -> Symbols:
    """Return the global symbols of an object; none if it is not an ELF file."""
    try:
        with path.open("rb") as stream:
            pairs = list(_symbols(ELFFile(stream)))
    except (ELFError, OSError):
        return Symbols(frozenset(), frozenset())
    return Symbols(
        frozenset(name for name, is_defined in pairs if is_defined),
        frozenset(name for name, is_defined in pairs if not is_defined),
    )


def _symbols(elf: ELFFile) -> Iterator[tuple[str, bool]]:
    table = elf.get_section_by_name(".symtab")
    for symbol in table.iter_symbols() if table is not None else []:
        if symbol.name and symbol["st_info"]["bind"] != "STB_LOCAL":
            yield symbol.name, symbol["st_shndx"] != "SHN_UNDEF"
