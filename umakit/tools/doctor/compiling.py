# SPDX-License-Identifier: Apache-2.0
"""Compiling and linking a driver's files one by one, and advice for the compiler's messages."""

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

from umakit.codegen.driver_names import is_simulated, library_headers
from umakit.devices import Device, build
from umakit.devices.build import file_argument
from umakit.devices.libraries import CallableLibrary
from umakit.errors import BuildError, short_path
from umakit.machine.simulator_config import CXX_SUFFIXES
from umakit.registration.backend import Backend
from umakit.text.spelling import closest


@dataclass
class StagedDriver:
    """A driver's files in the layout of a library.

    Attributes:
        folder: parent of `src`, and base of the paths in compiler messages.
        places: the user's files by path in `folder`.
        objects: objects of the sources that could be compiled, by path in `folder`.
        compiled: objects and libraries of the driver, in linking order.
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
    """

    file: str
    line: int
    message: str


def run_compiler(device: Device, arguments: Sequence[str], folder: Path) -> str:
    """Run a device's C compiler in a folder; return the output on failure, else nothing."""
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
    """Compile a source in a folder; return the object, and the output on failure."""
    path = source.relative_to(folder)
    output = folder / f"{'-'.join(path.parts)}.o"
    arguments = [*words, "-c", file_argument(path), "-o", str(output)]
    if source.suffix in CXX_SUFFIXES:
        flags = [flag for flag in build.FLAGS if not flag.startswith("-std=")]
        return output, _run([*device.cxx_compiler(source.name), *flags, *arguments], folder)
    return output, run_compiler(device, [IMPLICIT, *arguments], folder)


def first_error(messages: str) -> Diagnostic:
    match = ERROR_LINE.search(messages)
    if match:
        return Diagnostic(match[1].removeprefix("./"), int(match[2]), match[3])
    lines = [line for line in messages.splitlines() if "error" in line] or messages.splitlines()
    return Diagnostic("", 0, lines[0].strip() if lines else "it printed no message")


def names_in(messages: str, form: re.Pattern[str]) -> list[str]:
    """Return the names of a form in a linker's output; C++ names without arguments."""
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


QUOTED = r"['`\u2018](?:struct |union |enum )?(\w+)['\u2019]"

MISSING_FILE = re.compile(r"^'?([^':]+)'?(?:: No such file| file not found)")
UNKNOWN_NAME = re.compile(r"(?:function|identifier)? ?['`\u2018](\w+)['\u2019] undeclared"
                          r"|(?:undeclared identifier|undeclared function|declaration of function)"
                          r" ['`\u2018](\w+)['\u2019]")  # fmt: skip
UNKNOWN_TYPE = re.compile(rf"unknown type name {QUOTED}")
DIFFERS = re.compile(rf"(?:conflicting types for|redefinition of|declaration of) {QUOTED}")
"""Messages about a name with two declarations that differ."""

OTHER_PLACE = re.compile(
    r"^(.+?):(\d+)(?::\d+)?: note: .*(?:previous|declared here|originally defined)", re.MULTILINE
)
"""Form of the line in which gcc and clang name the other declaration."""

COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)

C_HEADERS = {
    "stdint.h": re.compile(r"u?int(8|16|32|64|ptr)_t"),
    "stddef.h": re.compile(r"size_t|ptrdiff_t"),
    "stdbool.h": re.compile(r"bool"),
}
"""Headers of C by the types that they define."""


def mend_of(messages: str, staged: StagedDriver) -> str:
    error = first_error(messages)
    message, file = error.message, posixpath.normpath(error.file)
    missing = MISSING_FILE.search(message)
    if missing:
        return _mend_of_include(missing[1], staged)
    unknown = UNKNOWN_NAME.search(message)
    if unknown:
        return _mend_of_name(unknown[1] or unknown[2], staged, file)
    if kind := UNKNOWN_TYPE.search(message):
        return _mend_of_type(kind[1], staged)
    other = OTHER_PLACE.search(messages, max(0, messages.find(message)))
    differs = DIFFERS.search(message)
    if differs and other:
        return _mend_of_two(differs[1], file, posixpath.normpath(other[1]), int(other[2]), staged)
    if re.search("too (many|few) arguments", message) and other:
        place = _place(posixpath.normpath(other[1]), int(other[2]), staged)
        return f"make this call and the declaration in {place} agree"
    if message.startswith("#error") or re.match(r'"?.*decide ', message):
        return "do what the line says, then remove it"
    return "correct this line, or the one above it"


def _place(file: str, line: int, staged: StagedDriver) -> str:
    """Return the user's name of a place, or the includer of a header outside the driver."""
    return staged.where(file, line) if file in staged.places else file.removeprefix("src/")


def _mend_of_two(name: str, file: str, other: str, line: int, staged: StagedDriver) -> str:
    place = _place(other, line, staged)
    if other not in staged.places:
        return f"rename {name}: {place} declares it, too"
    if other == file and file.endswith(".h"):
        return "let the header be read once: begin it with #pragma once"
    if other != file and other.endswith(".h") and file.endswith(".h"):
        return f"rename {name} in one of the two headers, or remove one declaration: {place}"
    return f"give {name} the same type here and in {place}"


def _mend_of_include(header: str, staged: StagedDriver) -> str:
    backend = staged.backend
    if header == f"{backend.target_name}_device.h":
        return (
            "it belongs to umakit's simulators: set simulator in [device] of accel.toml, or do "
            "not include it"
        )
    if header.startswith("umakit/") and not is_simulated(backend):
        return (
            "headers of umakit's devices come with a simulator: set simulator in [device] of "
            "accel.toml"
        )
    registered = [*backend.driver.headers]
    found = [path for path in sorted(backend.folder.rglob("*")) if path.name == Path(header).name]
    for path in found:
        name = path.relative_to(backend.folder).as_posix()
        if name not in registered:
            return f"name it: _register_driver(headers=[..., {name!r}])"
    close = closest(header, registered)
    if close:
        return f"include {close}"
    return f"write it, and name it: _register_driver(headers=[..., {header!r}])"


def _mend_of_name(name: str, staged: StagedDriver, file: str) -> str:
    declared = staged.line_of(name, staged.headers)
    here = staged.where(file, 0).rpartition(":")[0] if file in staged.places else ""
    if declared and declared.rpartition(":")[0] == here:
        return f"declare it above this line: its declaration is in {declared}"
    if declared:
        return f"include the header that declares it ({declared})"
    kits = _headers_of_umakit(staged)
    for header, text in kits.items():
        if re.search(rf"\b{name}\s*\(|#define\s+{name}\b", text):
            return f'#include "{header}", which declares it'
    if defined := staged.definition_of(name):
        return f"declare it above this line, or in a header: {defined} defines it"
    known = {
        match
        for text in (*staged.texts().values(), *kits.values())
        for match in re.findall(r"\b([A-Za-z_]\w*)\s*\(", text)
    }
    close = closest(name, known - {name})
    if close:
        return f"write {close}, or define {name} above this line"
    return "include the header that declares it, or define it above this line"


def _mend_of_type(name: str, staged: StagedDriver) -> str:
    for header, types in C_HEADERS.items():
        if types.fullmatch(name):
            return f"#include <{header}>, which defines it"
    texts = {path.name: text for path, text in staged.texts().items() if path in staged.headers}
    texts |= _headers_of_umakit(staged)
    for header, text in texts.items():
        if re.search(rf"typedef[^;]*\b{name}\s*;|\}}\s*{name}\s*;", text):
            return f'#include "{header}", which defines it'
    return "define it above this line, or include the header that defines it"


def _headers_of_umakit(staged: StagedDriver) -> dict[str, str]:
    source = staged.folder / "src"
    return {
        path.relative_to(source).as_posix(): COMMENT.sub(" ", path.read_text(encoding="utf-8"))
        for path in sorted(source.glob("umakit/*.h"))
    }
