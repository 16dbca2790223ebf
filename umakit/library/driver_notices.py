# SPDX-License-Identifier: Apache-2.0
"""Notices on drivers: missing headers and functions, and own roundings.

Nothing is refused: users may link a driver of their own with the library.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator, Mapping

from umakit import sim
from umakit.codegen.driver_names import exported_path, is_simulated
from umakit.codegen.template_values import interface_prefix
from umakit.errors import LibraryError, short_path
from umakit.operators.numeric import requantize
from umakit.operators.offload.rounding import function_of
from umakit.partition.report import OffloadReport
from umakit.program.program import Program
from umakit.registration.backend import Backend
from umakit.text.names import header_of
from umakit.text.spelling import closest

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)

CONDITION = re.compile(r"^[ \t]*#[ \t]*if(?!ndef[ \t]+\w+\s*#[ \t]*define)", re.MULTILINE)
"""Start of a condition that is not an include guard."""


def driver_notices(
    program: Program,
    backends: Mapping[str, Backend],
    sources: Mapping[str, str],
    libraries: Collection[str] = (),
    suffixes: Collection[str] = (),
) -> list[str]:
    """Return a sentence for each header and driver that users have to add to a library.

    `sources` are C files by path below `codegen/host`, `libraries` paths of files of libraries.
    """
    of_libraries = set(libraries)
    prefix = interface_prefix(program.name)
    networks = [f"src/{prefix}_{each}.c" for each in suffixes] or [f"src/{prefix}.c"]
    drivers = [path for path in sources if path.startswith(tuple(f"src/{n}/" for n in backends))]
    missing = [
        _missing_header(path, header, sources[path], backends)
        for path in (*networks, *drivers)
        for header in _missing_headers(path, sources, of_libraries)
    ]
    undeclared = [
        f"the generated C calls {functions[0]} of {name} and includes no header of this backend: "
        "name it in _register_codegen(includes=...)"
        for name, backend in sorted(backends.items())
        if (functions := _undeclared(program, backend))
    ]
    return (
        missing
        + undeclared
        + [
            f"the backend {name} calls {functions[0]} and has no driver source: name it in "
            "_register_driver, or link your own"
            for name, backend in sorted(backends.items())
            if (functions := list(_undefined(program, backend, sources)))
        ]
    )


def rounding_notices(report: OffloadReport) -> list[str]:
    """Return one sentence for each own rounding of an accelerator, which changes results."""
    roundings: dict[str, list[int]] = {}
    for row, placement in enumerate(report.placements):
        if placement.rounding:
            roundings.setdefault(placement.rounding, []).append(row)
    return [
        f"{len(rows)} operators are rounded by {function_of(rounding) or rounding} instead of as "
        "the model's format defines: uma diff --integer-tolerance 1 says what that changes"
        for rounding, rows in roundings.items()
    ]


def _missing_headers(
    path: str, sources: Mapping[str, str], others: Collection[str]
) -> Iterator[str]:
    """Yield the headers in quotes that a C file includes and the library lacks.

    Text after the first condition is ignored, because conditions may be for other machines.
    """
    for header in dict.fromkeys(INCLUDE.findall(CONDITION.split(sources[path])[0])):
        place = posixpath.normpath(posixpath.join(posixpath.dirname(path), header))
        is_found = place in sources or place in others or f"src/{header}" in others
        if not is_found and not header.startswith("umakit/"):
            yield header


def _missing_header(path: str, header: str, text: str, backends: Mapping[str, Backend]) -> str:
    """Return a sentence on a header that a C file includes and the library lacks.

    The sentence names the team's file, if there is one: lines in the library are the same.
    """
    fix = "name it in _register_driver"
    for backend in backends.values():
        for name in (*backend.driver.sources, *backend.driver.headers):
            if f"src/{exported_path(backend, name)}" == path:
                line = next(
                    text.count("\n", 0, found.start(1)) + 1
                    for found in INCLUDE.finditer(text)
                    if found[1] == header
                )
                path = f"{short_path(backend.folder / name)}:{line}"
                beside = posixpath.normpath(posixpath.join(posixpath.dirname(name), header))
                names = [each for each in (beside, header) if (backend.folder / each).is_file()]
                if names:
                    headers = [*backend.driver.headers, names[0]]
                    fix = f"write headers={headers!r} in _register_driver"
    return (
        f"{path} includes {header}, which is not a file of a driver: {fix}, or give its folder to "
        "the C compiler"
    )


def _undeclared(program: Program, backend: Backend) -> list[str]:
    """Return the C functions that a backend calls without an `#include` of its own."""
    section = backend.configuration.sources
    if backend.codegen.includes is not None or (section is not None and section.headers):
        return []
    return _called(program, backend)


def _undefined(program: Program, backend: Backend, sources: Mapping[str, str]) -> Iterator[str]:
    """Yield the C functions that a backend without driver sources calls and no C file defines."""
    driver = backend.driver
    if driver.sources or driver.compiled or backend.configuration.sources is not None:
        return
    text = "\n".join(sources.values())
    for function in _called(program, backend):
        name = re.escape(function)
        definition = rf"\b{name}\s*\([^;{{}}()]*\)\s*\{{|#\s*define\s+{name}\b"
        if not re.search(definition, text):
            yield function


def _called(program: Program, backend: Backend) -> list[str]:
    """Return the driver functions that kernels call, sorted; empty if a backend replaces the
    text."""
    if backend.codegen.replace_call_extern is not None:
        return []
    called = {
        function
        for kernel in program.kernels.values()
        for function in kernel.called_functions()
        if kernel.target == backend.target_name
    }
    return sorted(filter(is_of_driver, called))


def is_of_driver(function: str) -> bool:
    """Whether a C function in a kernel is a driver's, and not the kit's or of C's library."""
    return function not in requantize.RESULTS and header_of(function) is None


COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)
DIRECTIVE = re.compile(r"[ \t]*#[ \t]*(\w+)[ \t]*([^\n]*)")
INCLUDED = re.compile(r'"([^"]+)"|<([^>]+)>')


def check_driver_texts(backends: Mapping[str, Backend], exported: Collection[str]) -> None:
    """Refuse drivers with an `#error`, or an include of umakit's, that no condition excludes."""
    for backend in backends.values():
        for name in (*backend.driver.headers, *backend.driver.sources):
            path = backend.folder / name
            text = path.read_text(encoding="utf-8", errors="replace")
            for number, directive, rest in unconditional(text):
                where = f"{short_path(path)}:{number}"
                if directive == "error":
                    raise LibraryError(
                        f"the driver still holds #error {rest}".rstrip(),
                        where=where,
                        fix="do what the line says, then remove it",
                    )
                found = INCLUDED.match(rest) if directive == "include" else None
                if found:
                    _check_include(found[1] or found[2], where, backend, name, exported)


def _check_include(
    header: str, where: str, backend: Backend, includer: str, exported: Collection[str]
) -> None:
    """Refuse a header of umakit that an export lacks."""
    is_device = header == f"{backend.target_name}_device.h"
    if not (header.startswith("umakit/") or is_device):
        return
    own = {exported_path(backend, name) for name in backend.driver.headers}
    beside = exported_path(backend, includer).rpartition("/")[0]
    names = (f"src/{header}", f"src/{beside}/{header}", f"src/{backend.target_name}/{header}")
    if any(name in exported for name in names) or any(each.endswith(header) for each in own):
        return
    there = sorted(path.name for path in (sim.source_directory() / "include/umakit").glob("*.h"))
    if not is_device and header.removeprefix("umakit/") not in there:
        close = closest(header.removeprefix("umakit/"), there)
        raise LibraryError(
            f"includes {header}, which umakit has not",
            where=where,
            fix=f"write umakit/{close}" if close else "remove the include",
        )
    lacking = "is of another simulator" if is_simulated(backend) else "needs a simulator"
    raise LibraryError(
        f"includes {header}, which {lacking}; [device] in accel.toml has simulator = "
        f'"{backend.configuration.device.simulator}"',
        where=where,
        fix="choose a simulator there, or remove the include and write to your own registers",
    )


def unconditional(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, name and rest of the directives of C text outside of conditions.

    The condition of an include guard does not count.
    """
    plain = COMMENT.sub(_blank, text)
    lines, depth = plain.split("\n"), 0
    guard, is_first = False, True
    for number, line in enumerate(lines, start=1):
        found = DIRECTIVE.match(line)
        if not found:
            continue
        name = found[1]
        if name in ("if", "ifdef", "ifndef"):
            guard |= is_first and name == "ifndef"
            depth += 1
        elif name == "endif":
            depth -= 1
        elif depth == (1 if guard else 0):
            yield number, name, found[2].strip()
        is_first = False


def _blank(found: re.Match[str]) -> str:
    """Return a string unchanged, and a comment as its line breaks."""
    return found[0] if found[0].startswith('"') else " " + "\n" * found[0].count("\n")
