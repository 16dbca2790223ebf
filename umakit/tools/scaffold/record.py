# SPDX-License-Identifier: Apache-2.0
"""The record of a project in its folder `.umakit`: the flags, and the files as written."""

from __future__ import annotations

import json
import keyword
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import inflection
from packaging.version import InvalidVersion, Version

from umakit.errors import ScaffoldError
from umakit.text.names import is_reserved
from umakit.tools.scaffold.answers import Answers
from umakit.version import __version__

FOLDER = ".umakit"
FLAGS = f"{FOLDER}/new.toml"
BASE = f"{FOLDER}/base/"


@dataclass(frozen=True)
class Record:
    """The settings and files that a project was written with.

    Attributes:
        base: bytes of its files as they were written, by path.
    """

    name: str
    kind: str
    flags: Mapping[str, str]
    base: Mapping[str, bytes]


def record_text(name: str, answers: Answers) -> str:
    lines = [
        "# How `uma new` wrote this folder, for `uma new --update`; base/ has its files then.",
        f"umakit = {json.dumps(__version__)}",
        f"name = {json.dumps(name)}",
        f"kind = {json.dumps(answers.kind)}",
        "",
        "[flags]",
        *(f"{flag} = {json.dumps(text)}" for flag, text in answers.flags.items()),
    ]
    return "\n".join(lines) + "\n"


def recorded(name: str, answers: Answers, files: Mapping[str, str]) -> dict[str, str]:
    """Return the files of a project together with those of `.umakit`, by path."""
    base = {f"{BASE}{path}": text for path, text in files.items()}
    return {**files, FLAGS: record_text(name, answers), **base}


def read_record(folder: Path) -> Record:
    path = folder / FLAGS
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ScaffoldError(
            "there is no such file: `uma new --kind` did not write this folder",
            where=str(path),
            fix="give the folder of a backend that it wrote",
        ) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _damaged(path, str(error)) from None
    texts = [values.get(key) for key in ("umakit", "name", "kind")]
    flags = values.get("flags", {})
    if not all(isinstance(text, str) for text in texts) or not _are_texts(flags):
        raise _damaged(path, "umakit, name, kind and the table flags are texts")
    written_by, name, kind = map(str, texts)
    _check_version(written_by, path)
    check_name(name)
    base = folder / BASE
    found = {
        file.relative_to(base).as_posix(): file.read_bytes()
        for file in sorted(base.rglob("*"))
        if file.is_file()
    }
    return Record(name, kind, dict(flags), found)


def _are_texts(flags: Any) -> bool:
    return isinstance(flags, dict) and all(isinstance(text, str) for text in flags.values())


def _damaged(path: Path, reason: str) -> ScaffoldError:
    return ScaffoldError(
        f"cannot be read: {reason}", where=str(path), fix="restore it, for example with git"
    )


def _check_version(text: str, path: Path) -> None:
    try:
        is_newer = Version(text) > Version(__version__)
    except InvalidVersion:
        raise _damaged(path, f"{text!r} is no version") from None
    if is_newer:
        raise ScaffoldError(
            f"umakit {text} wrote this folder, this is {__version__}",
            where=str(path),
            fix="install that version or a newer one",
        )


LONGEST_NAME = 64


def check_name(name: str) -> None:
    """Refuse a name that cannot be a target, a Python package and a C prefix at once."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ScaffoldError(
            f"{name!r} is not a name for a backend",
            fix="use lower-case letters, digits and underscores, starting with a letter",
        )
    if len(name) > LONGEST_NAME:
        raise ScaffoldError(f"a name of {len(name)} letters is too long", fix="use at most 64")
    if keyword.iskeyword(name) or keyword.issoftkeyword(name) or is_reserved(name):
        raise ScaffoldError(
            f"{name!r} is a reserved word of Python, C or C++", fix="choose another name"
        )


def names_of(name: str) -> dict[str, str]:
    """Return the forms of a backend's name: `name`, `upper`, `class_prefix`, `class_name`."""
    prefix = inflection.camelize(name)
    return {
        "name": name,
        "upper": name.upper(),
        "class_prefix": prefix,
        "class_name": f"{prefix}Backend",
    }
