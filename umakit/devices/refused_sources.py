# SPDX-License-Identifier: Apache-2.0
"""Compiler and linker errors in a team's C files: owner of the file, and advice.

A library holds copies of a backend's files with unchanged line numbers, so that a line of a copy is
a line of the team's file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from umakit import sim
from umakit.devices.device import Device
from umakit.errors import BuildError
from umakit.library.roles import SIMULATOR_FOLDER, SOURCE_FOLDER, device_source
from umakit.machine.simulator_config import HEADER_SUFFIXES
from umakit.text.spelling import closest

ERROR = re.compile(r"^([^\s:][^:\n]*):(\d+)(?::\d+)?: (?:fatal )?error: ([^\n]*)", re.MULTILINE)
FROM = re.compile(r"(?:In file included from|\s+from) ([^\s:][^:\n]*):(\d+)")
PLACE = re.compile(rf"(?:^|/)({SOURCE_FOLDER}|{SIMULATOR_FOLDER})/(\w+)/(.+)$")
BEFORE = re.compile(r"^([^\s:][^:\n]*):(\d+)(?::\d+)?: note: previous declaration", re.MULTILINE)
UNDEFINED = re.compile(r"undefined reference to [`'](\w+)'|undefined symbol: (\w+)")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
DEFINITION = re.compile(r"^[A-Za-z_][\w \t*]*?\b(\w+)\s*\([^;{}]*\)\s*\{", re.MULTILINE)


def refusal_of_team(compiler: str, messages: str, folder: Path) -> BuildError | None:
    """Return the error in a file of a team; None for an error in another file."""
    found = first_error(messages)
    if found:
        file, text = found
        mend = mend_of(file, text)
        what = f"{file.what} does not compile: {compiler} says: {text}"
        return BuildError(what, where=file.where, fix=mend) if mend else None
    above = (folder, *folder.parents)
    library = next((each for each in above if (each / SOURCE_FOLDER).is_dir()), folder)
    undefined = undefined_function(messages, library)
    if undefined is None:
        return None
    name, place = undefined.function, undefined.place
    calls = f", {undefined.calls} calls it" if undefined.calls else ""
    verb = "declares" if undefined.is_declared else "calls"
    calls = calls if undefined.is_declared else ""
    mend = f"define {name} in a C file that _register_driver or [sources] names"
    if undefined.near:
        mend = f"{undefined.near} may be meant: give both one name, or {mend}"
    return BuildError(
        f"{place.what} {verb} {name} and no file defines it{calls}",
        where=place.where,
        fix=mend,
    )


@dataclass(frozen=True)
class TeamFile:
    """A file of a backend, in the backend's folder or in the folder of its library.

    Attributes:
        path: path relative to that folder.
    """

    path: str
    line: int
    backend: str
    is_simulator: bool

    @property
    def where(self) -> str:
        return f"{self.path}:{self.line}"

    @property
    def what(self) -> str:
        """Noun for the file's role, for messages."""
        kind = "simulator" if self.is_simulator else "C"
        return f"the {kind} of the backend {self.backend}"


def first_error(messages: str) -> tuple[TeamFile, str] | None:
    """Return the first file of a team that a compiler refused, and the compiler's text; None for
    errors in other files that no team's file includes."""
    includers: list[TeamFile] = []
    lines = messages.splitlines()
    for number, line in enumerate(lines):
        includer, error = FROM.match(line), ERROR.match(line)
        if includer:
            found = _team_file(includer[1], int(includer[2]))
            includers += [found] if found else []
        elif error:
            found = _team_file(error[1], int(error[2])) or next(iter(includers), None)
            if found:
                return found, error[3] + _declared_before(error[3], lines[number + 1 :])
            includers = []
    return None


def _declared_before(text: str, following: list[str]) -> str:
    """Return a clause with the place of a conflicting declaration; empty if unknown."""
    if not text.startswith("conflicting types"):
        return ""
    note = next(filter(None, map(BEFORE.match, following)), None)
    file = _team_file(note[1], int(note[2])) if note else None
    return f", declared at {file.where}" if file else ""


def _team_file(path: str, line: int) -> TeamFile | None:
    """Return the team's original of a path in a library; None for umakit's own files."""
    found = PLACE.search(path)
    if not found or found[2] == OF_THE_KIT.rstrip("/"):
        return None
    folder, backend, name = found.groups()
    if name in (device_source(backend), f"{backend}_device.h"):
        return None
    return TeamFile(name, line, backend, folder == SIMULATOR_FOLDER)


def mend_of(file: TeamFile, text: str) -> str:
    """Return advice on an error in a team's file."""
    missing = NOT_FOUND.search(f"fatal error: {text}")
    header = missing[1] if missing else ""
    if not header or header in OF_C or header.startswith((*SYSTEM_FOLDERS, OF_THE_KIT)):
        return "" if header else "correct the line, then run uma compile again"
    if file.is_simulator:
        return (
            f"add the folder of {header} to the line include = [...] of [simulator] in accel.toml, "
            "then run uma compile again"
        )
    return (
        f'add "{header}" to headers=[...] of _register_driver if it lies in the backend\'s folder, '
        "or its folder to include = [...] of [sources] in accel.toml if it is a library's; then "
        "run uma compile again"
    )


@dataclass(frozen=True)
class Undefined:
    """A function that a team's header declares, or a team's file calls, without a definition.

    Attributes:
        place: header and line of the declaration; without one, file and line of the call.
        calls: file and line of the first call; empty if none is found.
        near: a defined function with a similar name, with file and line.
    """

    function: str
    place: TeamFile
    is_declared: bool
    calls: str
    near: str


def undefined_function(messages: str, library: Path) -> Undefined | None:
    """Return the first function that a linker lacks and a team's file declares or calls."""
    for match in UNDEFINED.finditer(messages):
        name = match[1] or match[2]
        texts = dict(_texts(library))
        declared = _declaration(name, texts)
        call = _call(name, texts)
        place = declared or (_team_file(*call) if call else None)
        if place:
            calls = f"{Path(call[0]).name}:{call[1]}" if call else ""
            near = _near(name, texts, place.backend)
            return Undefined(name, place, declared is not None, calls, near)
    return None


def _texts(library: Path) -> Iterator[tuple[Path, str]]:
    """Yield the C files of a library, with comments replaced by line breaks."""
    for path in sorted((library / SOURCE_FOLDER).rglob("*.*")):
        if path.is_file() and path.suffix in (*HEADER_SUFFIXES, ".c", ".cc", ".cpp", ".cxx"):
            text = path.read_text(encoding="utf-8", errors="replace")
            yield path, COMMENT.sub(lambda found: " " + "\n" * found[0].count("\n"), text)


def _declaration(name: str, texts: dict[Path, str]) -> TeamFile | None:
    form = re.compile(rf"\b{re.escape(name)}\s*\([^;{{}}]*\)[^;{{}}()]*;")
    for path, text in texts.items():
        found = form.search(text) if path.suffix in HEADER_SUFFIXES else None
        file = _team_file(str(path), text.count("\n", 0, found.start()) + 1) if found else None
        if file:
            return file
    return None


def _call(name: str, texts: dict[Path, str]) -> tuple[str, int] | None:
    """Return path and line of the first call of a function; files of teams come last."""
    form = re.compile(rf"\b{re.escape(name)}\s*\(")
    sources = [path for path in texts if path.suffix not in HEADER_SUFFIXES]
    for path in sorted(sources, key=lambda path: _team_file(str(path), 1) is not None):
        found = form.search(texts[path])
        if found:
            return str(path), texts[path].count("\n", 0, found.start()) + 1
    return None


def _near(name: str, texts: dict[Path, str], backend: str) -> str:
    places: dict[str, str] = {}
    for path, text in texts.items():
        for found in DEFINITION.finditer(text):
            file = _team_file(str(path), text.count("\n", 0, found.start(1)) + 1)
            if file and file.backend == backend:
                places[found[1]] = file.where
    near = closest(name, places)
    return f"{near} ({places[near]})" if near else ""


NOT_FOUND = re.compile(
    r"fatal error: '?([^\s:']+\.(?:h|hpp|hh))'?(?:: No such file| file not found)"
)
"""Form of the message of gcc and clang."""

OF_C = frozenset(
    f"{name}.h"
    for name in (
        "assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal "
        "stdalign stdarg stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string tgmath "
        "threads time uchar wchar wctype "
        # POSIX
        "dirent dlfcn fcntl poll pthread sched semaphore strings termios ucontext unistd"
    ).split()
)
"""Headers of the C library."""

SYSTEM_FOLDERS = ("arpa/", "asm/", "bits/", "gnu/", "linux/", "net/", "netinet/", "sys/")
OF_THE_KIT = "umakit/"


def mend_of_missing_header(messages: str, device: Device) -> str:
    """Return advice on a header that a compiler did not find; empty if none is missing."""
    found = NOT_FOUND.search(messages)
    if not found:
        return ""
    header = found[1]
    if header in OF_C or header.startswith(SYSTEM_FOLDERS):
        packages = f"on Debian: apt-get install {' '.join(device.packages)}"
        return packages if device.packages else "install the C library of the compiler"
    if header.startswith(OF_THE_KIT):
        return _of_the_kit(header)
    return (
        f"if {header} is a driver's, name it in _register_driver of the backend; if it is a "
        "library's, name its folder in include of [sources] in accel.toml"
    )


def _of_the_kit(header: str) -> str:
    if not (sim.source_directory() / "include" / header).is_file():
        return f"umakit has no {header}: correct the include"
    if f"include/{header}" in sim.INLINE_HEADERS:
        return (
            f"copy {header} into the library: umakit exports it with drivers and simulators only, "
            "which _register_driver and [simulator] name"
        )
    return (
        f"{header} is exported together with a simulator: set simulator in [device] of accel.toml, "
        "or leave the include out"
    )
