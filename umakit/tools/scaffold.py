# SPDX-License-Identifier: Apache-2.0
"""`uma new`: the files of a new backend, generated from templates."""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass
from pathlib import Path

import inflection

from umakit.errors import OutputError, ScaffoldError
from umakit.files.outputs import status_of
from umakit.files.staging import write_new_folder
from umakit.text.names import is_reserved
from umakit.text.rendering import render, template_folder

TUTORIALS = ("vanilla", "strawberry", "chocolate")
COMMON = "backend"
LONGEST_NAME = 64


@dataclass(frozen=True)
class NewBackend:
    """A new backend that was written."""

    name: str
    folder: Path
    files: tuple[str, ...]


def check_name(name: str) -> None:
    """Refuse a name that cannot be a target, a Python package and a C prefix at once.

    Raises:
        ScaffoldError: the name is invalid; states the rules.
    """
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


def backend_files(name: str, tutorial: str | None) -> dict[str, str]:
    """Return the text of every file of a new backend, by file name.

    Args:
        name: name of the target.
        tutorial: one of `TUTORIALS`, or None for a skeleton.
    """
    prefix = inflection.camelize(name)
    values = {
        "name": name,
        "class_prefix": prefix.removesuffix("Accelerator") if tutorial else prefix,
        "class_name": f"{prefix}Backend",
    }
    files = {}
    for kind in (COMMON, tutorial or "skeleton"):
        for template in sorted((template_folder() / kind).glob("*.j2")):
            target = template.name.removesuffix(".j2").replace("driver.", f"{name}.")
            files[target] = render(f"{kind}/{template.name}", **values)
    return files


def new_backend(name: str, folder: Path, tutorial: str | None = None) -> NewBackend:
    """Write a new backend into `folder/name`.

    Raises:
        ScaffoldError: the name or tutorial is invalid, or the folder exists or cannot be written.
    """
    check_name(name)
    if tutorial is not None and tutorial not in TUTORIALS:
        raise ScaffoldError(
            f"there is no tutorial {tutorial!r}", fix=f"choose from {', '.join(TUTORIALS)}"
        )
    target = folder / name
    if status_of(target, follow=False) is not None:
        raise ScaffoldError(
            "exists already and is yours to edit",
            where=str(target),
            fix="choose another name, or move it away to start again",
        )
    files = backend_files(name, tutorial)
    try:
        write_new_folder(target, files)
    except OutputError as error:
        raise ScaffoldError(error.what, where=error.where, fix=error.fix) from None
    return NewBackend(name, target, tuple(sorted(files)))
