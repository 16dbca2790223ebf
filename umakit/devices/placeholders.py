# SPDX-License-Identifier: Apache-2.0
"""Placeholders in the words of commands, such as `{program}`. No shell takes part."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

PLACEHOLDER = re.compile(r"\{(\w+)\}")

ARGUMENTS = "{arguments}"


def placeholders_in(words: Iterable[str]) -> list[str]:
    """Return the names of the placeholders in words, in order."""
    return [name for word in words for name in PLACEHOLDER.findall(word)]


def filled(
    words: Iterable[str], values: Mapping[str, str], arguments: Sequence[str] | None = None
) -> list[str]:
    """Return words with values in the place of placeholders.

    A value is never split into words, and placeholders in it are not replaced.

    Args:
        words: words of a command; placeholders without a value stay.
        values: texts by the name of the placeholder.
        arguments: values of `{arguments}`: a word that consists of it becomes as many words, within
            a word they have blanks between them; None to let it stay.
    """
    known = dict(values)
    if arguments is not None:
        known["arguments"] = " ".join(arguments)
    found: list[str] = []
    for word in words:
        if word == ARGUMENTS and arguments is not None:
            found += arguments
        else:
            found.append(PLACEHOLDER.sub(lambda match: known.get(match[1], match[0]), word))
    return found
