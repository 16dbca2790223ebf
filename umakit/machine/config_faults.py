# SPDX-License-Identifier: Apache-2.0
"""Faults of `accel.toml` or of the file of a CPU, with line numbers and corrected spellings."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from umakit.errors import AcceleratorConfigError, InputError
from umakit.text.spelling import closest


class Section(BaseModel):
    """A part of a described file: it has no unknown keys, and values of the exact types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


QUOTED = re.compile(r"""["']([^"']*)["']""")
ANY_SECTION = re.compile(r"\s*\[+\s*[\w.-]+\s*\]+\s*(#.*)?$")


def fault_in_file(path: Path, what: str, model: type[BaseModel]) -> AcceleratorConfigError:
    """Return a fault as an error with file, line and fix, see `described_fault`."""
    what, where, fix = described_fault(path, what, model)
    return AcceleratorConfigError(what, where=where, fix=fix)


def described_fault(path: Path, what: str, model: type[BaseModel]) -> tuple[str, str, str]:
    """Return the problem of a TOML file, its place (file and line), and the fix.

    Args:
        what: message of the check: a dotted key, a colon and the problem, or a message of the TOML
            reader.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return what, str(path), ""
    parts, fix = what.partition(":")[0].split("."), ""
    number = _line_of_key(lines, parts)
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
    elif "Input should be '" in what:
        number, fix = _wrong_value(lines, parts, re.findall(r"'(\w*)'", what))
    return what, f"{path}:{number}" if number else str(path), fix


def line_of_value(path: Path, section: str, key: str, value: str = "", number: int = 0) -> str:
    """Return the place where an `accel.toml` sets a key: `file:line`, or the file if no line does.

    Args:
        value: quoted text in the line, for a list that may be several lines long.
        number: number of the section among the sections of its name, from 0.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return str(path)
    first, last = _section(lines, section, number)
    number = first + _line_of(lines[first:last], key)
    if value:
        quoted = re.compile(rf"""["']{re.escape(value)}["']""")
        behind = range(max(number, 1), len(lines) + 1)
        number = next((line for line in behind if quoted.search(lines[line - 1])), number)
    return f"{path}:{number}" if number else str(path)


def _section(lines: Sequence[str], name: str, place: int = 0, called: str = "") -> tuple[int, int]:
    """Return the line numbers of a section's name and of its end; the file's if it is missing.

    Of several sections of one name, such as `[[memory]]`, the section called `called` is taken,
    else the section at `place`, from 0.
    """
    begin = re.compile(rf"\s*\[+\s*{re.escape(name)}\s*\]")
    found = [number for number, line in enumerate(lines, 1) if begin.match(line)]
    own = re.compile(rf"""\s*name\s*=\s*["']{re.escape(called)}["']""")
    ends = [*found[1:], len(lines)]
    named = [a for a, b in zip(found, ends, strict=False) if any(map(own.match, lines[a:b]))]
    first = (named or found[place : place + 1] or found or [0])[0]
    others = (number for number in range(first, len(lines)) if ANY_SECTION.match(lines[number]))
    return first, next(others, len(lines)) if first else len(lines)


def _line_of_key(lines: Sequence[str], parts: Sequence[str]) -> int:
    """Return the number of the line that sets a key, given by names and positions; 0 if none
    does."""
    names = [part for part in parts if not part.isdigit()]
    place = next((int(part) for part in parts if part.isdigit()), 0)
    for count in range(len(names) - 1, 0, -1):
        first, last = _section(lines, ".".join(names[:count]), place, names[count])
        for name in reversed(names[count:]):
            number = _line_of(lines[first:last], name) if first else 0
            if number:
                return first + number
    return _line_of(lines, parts[-1]) or (_line_of(lines, names[-1]) if names else 0)


def _line_of(lines: Sequence[str], key: str) -> int:
    form = re.compile(rf"\s*(\[+\s*)?([\w.]+\.)?{re.escape(key)}\s*(=|\])")
    return next((number for number, line in enumerate(lines, 1) if form.match(line)), 0)


def _wrong_value(
    lines: Sequence[str], parts: Sequence[str], possible: Sequence[str]
) -> tuple[int, str]:
    """Return the line that sets a key to an impossible value, and the fix with a close value.

    Args:
        possible: possible values of the key; another line may set one of them.
    """
    key = next(part for part in reversed(parts) if not part.isdigit())
    first, last = _section(lines, ".".join(parts[:-1]))
    for number, line in enumerate(lines, 1):
        if not first < number <= last or not _line_of([line], key):
            continue
        wrong = [each for each in QUOTED.findall(line) if each not in possible]
        if wrong:
            close = closest(wrong[0], possible)
            return number, f'write "{close}" instead of "{wrong[0]}"' if close else ""
    return _line_of(lines, key), ""


def spelling_of_key(parts: Sequence[str], section: type[BaseModel]) -> str:
    """Return the fix for an unknown key: a close key, or all keys of the section."""
    for part in parts[:-1]:
        fields = section.model_fields.items()
        field = next((field for name, field in fields if part in (name, field.alias)), None)
        if field is None:
            continue
        annotation = field.annotation
        inner = getattr(annotation, "__args__", (annotation,))[0]
        section = inner if isinstance(inner, type) and issubclass(inner, BaseModel) else section
    keys = [field.alias or name for name, field in section.model_fields.items()]
    close = closest(parts[-1], keys)
    if close:
        return f"remove it, or write {close}"
    return f"remove it; the keys here are {', '.join(keys)}"


Model = TypeVar("Model", bound=BaseModel)


def read_described(
    path: Path,
    model: type[Model],
    bases: Mapping[str, Path],
    what: str,
    *,
    shown: str = "",
    defaults: Mapping[str, Any] | None = None,
) -> Model:
    """Return the description in a TOML file, with missing keys taken from the base of the file.

    Args:
        what: `CPU` or `board`, for messages.
        shown: the path for messages without a line; default: `path`.
        defaults: values of keys that neither the file nor its base has.
    """
    text = shown or str(path)
    try:
        described = {**(defaults or {}), **_described(path, bases)}
        # As JSON, because strict validation refuses the lists of TOML for tuples.
        return model.model_validate_json(json.dumps(described, default=str), strict=True)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=text) from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _error(path, f"is no TOML: {error}", model) from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        said = str(first["msg"]).removeprefix("Value error, ")
        if first["type"].endswith("_type"):
            said += f", not {first['input']!r}"
        raise _error(path, f"{place}: {said}" if place else said, model) from None
    except _NoBase as error:
        fix = f"choose {', '.join(bases)}"
        raise InputError(
            f"base: there is no {what} {error.args[0]!r}", where=text, fix=fix
        ) from None


class _NoBase(Exception):
    """A description has an unknown base."""


def _error(path: Path, what: str, model: type[BaseModel]) -> InputError:
    what, where, fix = described_fault(path, what, model)
    return InputError(what, where=where, fix=fix)


def _described(path: Path, bases: Mapping[str, Path]) -> dict[str, Any]:
    own = tomllib.loads(path.read_text(encoding="utf-8"))
    base = own.pop("base", None)
    if base is None:
        return own
    if not isinstance(base, str) or base not in bases:
        raise _NoBase(base)
    return _merged(tomllib.loads(bases[base].read_text(encoding="utf-8")), own)


def _merged(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two tables; values of the second table win."""
    found = {**base, **own}
    for name, value in own.items():
        before = base.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            found[name] = _merged(before, value)
    return found
