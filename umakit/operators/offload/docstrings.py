# SPDX-License-Identifier: Apache-2.0
"""Docstrings of patterns describe inherited arguments too: `help` shows one class only."""

from __future__ import annotations

import inspect
import re

SECTION = re.compile(r"^(Attributes|Raises):\n((?:(?: +.*)?\n?)*)", re.MULTILINE)
ENTRY = re.compile(r"^    (\w+): .*(?:\n     .*)*", re.MULTILINE)


def inherited_docstring(cls: type) -> str | None:
    """Return a class's docstring with the attributes and errors that its bases describe.

    Args:
        cls: a class; docstrings of its bases are complete already.

    Returns:
        The docstring in Google's style, inherited ones first; None if it has none.
    """
    own = vars(cls).get("__doc__")
    if own is None:
        return None
    sections: dict[str, dict[str, str]] = {"Attributes": {}, "Raises": {}}
    for text in (*(base.__doc__ or "" for base in reversed(cls.__bases__)), own):
        for title, body in SECTION.findall(f"{inspect.cleandoc(text)}\n"):
            for entry in ENTRY.finditer(body):
                sections[title][entry[1]] = entry[0]
    parts = [SECTION.sub("", f"{inspect.cleandoc(own)}\n").strip()]
    parts += [
        "\n".join([f"{title}:", *found.values()]) for title, found in sections.items() if found
    ]
    return "\n\n".join(parts)
