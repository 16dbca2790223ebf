# SPDX-License-Identifier: Apache-2.0
"""Faults of an `accel.toml` with their lines, and the keys that misspelt ones may stand for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel

from umakit.errors import AcceleratorConfigError
from umakit.text.spelling import closest


def fault_in_file(path: Path, what: str, model: type[BaseModel]) -> AcceleratorConfigError:
    """Return the error of an `accel.toml` with file, line and what to do.

    Args:
        path: the file.
        what: what the check of the file says: a dotted key, a colon and the problem, or a text of
            the reader of TOML.
        model: what a file consists of.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return AcceleratorConfigError(what, where=str(path))
    parts, fix = what.partition(":")[0].split("."), ""
    number = _line_of(lines, parts[-1])
    in_toml = re.search(r"at line (\d+)", what)
    if in_toml:
        number, fix = int(in_toml[1]), "correct it"
    if "Extra inputs" in what:
        what, fix = f"{'.'.join(parts)}: there is no such key", spelling_of_key(parts, model)
    elif "Field required" in what:
        what = f"{'.'.join(parts)}: is missing"
        keys = [match[1] for line in lines if (match := re.match(r"\s*(\w+)\s*=", line))]
        close = closest(parts[-1], keys)
        section = parts[-2] if len(parts) > 1 else ""
        number = _line_of(lines, close) if close else _line_of(lines, section)
        fix = f"write {parts[-1]} instead of {close}" if close else f"set {parts[-1]}"
    elif "Input should be '" in what and number:
        fix = _spelling_of_value(lines[number - 1], re.findall(r"'(\w+)'", what))
    where = f"{path}:{number}" if number else str(path)
    return AcceleratorConfigError(what, where=where, fix=fix)


def line_of_value(path: Path, section: str, key: str, value: str = "") -> str:
    """Return where an `accel.toml` sets a key: `file:line`, or the file if no line does.

    Args:
        path: the file.
        section: name of the section.
        key: in the section.
        value: text in quotes that the line holds, of a list that may be several lines long.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return str(path)
    begin = re.compile(rf"\s*\[\s*{re.escape(section)}\s*\]")
    first = next((number for number, line in enumerate(lines, 1) if begin.match(line)), 0)
    number = first + _line_of(lines[first:], key)
    if value:
        quoted = re.compile(rf"""["']{re.escape(value)}["']""")
        behind = range(max(number, 1), len(lines) + 1)
        number = next((line for line in behind if quoted.search(lines[line - 1])), number)
    return f"{path}:{number}" if number else str(path)


def _line_of(lines: Sequence[str], key: str) -> int:
    """Return the number of the line that sets a key or begins a section, 0 if none does."""
    form = re.compile(rf"\s*(\[+\s*)?([\w.]+\.)?{re.escape(key)}\s*(=|\])")
    return next((number for number, line in enumerate(lines, 1) if form.match(line)), 0)


def _spelling_of_value(line: str, possible: Sequence[str]) -> str:
    """Return which of the possible values a line's own is close to; empty if there is none."""
    for value in re.findall(r"""["']([^"']*)["']""", line):
        close = "" if value in possible else closest(value, possible)
        if close:
            return f'write "{close}" instead of "{value}"'
    return ""


def spelling_of_key(parts: Sequence[str], section: type[BaseModel]) -> str:
    """Return what to do about an unknown key: a close one, or all keys of its section.

    Args:
        parts: names and positions on the way to the key.
        section: what the whole file consists of.
    """
    for part in parts[:-1]:
        if str(part).isdigit() or part not in section.model_fields:
            continue
        annotation = section.model_fields[part].annotation
        inner = getattr(annotation, "__args__", (annotation,))[0]
        section = inner if isinstance(inner, type) and issubclass(inner, BaseModel) else section
    keys = list(section.model_fields)
    close = closest(parts[-1], keys)
    if close:
        return f"remove it, or write {close}"
    return f"remove it; the keys here are {', '.join(keys)}"
