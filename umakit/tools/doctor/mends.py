# SPDX-License-Identifier: Apache-2.0
"""Advice for an error of a C compiler."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from umakit.codegen.driver_names import is_simulated
from umakit.text.spelling import closest
from umakit.tools.doctor.compiling import StagedDriver, first_error

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
    """Return advice for the first error in a compiler's output."""
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
