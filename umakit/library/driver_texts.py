# SPDX-License-Identifier: Apache-2.0
"""Causes in a driver's files that stop every compiler: `#error`, and missing headers of umakit."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from umakit import sim
from umakit.codegen.driver_names import exported_path, is_simulated
from umakit.errors import LibraryError, short_path
from umakit.registration.backend import Backend
from umakit.text.spelling import closest

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)
DIRECTIVE = re.compile(r"[ \t]*#[ \t]*(\w+)[ \t]*([^\n]*)")
INCLUDED = re.compile(r'"([^"]+)"|<([^>]+)>')


def check_driver_texts(backends: Mapping[str, Backend], exported: Collection[str]) -> None:
    """Refuse drivers with an `#error`, or an include of umakit's, that no condition excludes.

    Args:
        backends: backends by target name.
        exported: paths of the C files of the export, below `codegen/host`.

    Raises:
        LibraryError: there is such a line; names file, line and fix.
    """
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
