# SPDX-License-Identifier: Apache-2.0
"""Names of backends: which there may be, and their forms in Python and C."""

from __future__ import annotations

import keyword
import re

import inflection

from umakit.errors import ScaffoldError
from umakit.text.names import is_reserved

LONGEST_NAME = 64


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


def names_of(name: str) -> dict[str, str]:
    """Return the forms of a backend's name: `name`, `upper`, `class_prefix`, `class_name`."""
    prefix = inflection.camelize(name)
    return {
        "name": name,
        "upper": name.upper(),
        "class_prefix": prefix,
        "class_name": f"{prefix}Backend",
    }
