# SPDX-License-Identifier: Apache-2.0
"""Names that a misspelt one may stand for."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


def closest(name: str, others: Iterable[str]) -> str:
    """Return the name that is closest to another one; empty if none is close."""
    found = difflib.get_close_matches(name, sorted(set(others) - {name}), n=1, cutoff=0.75)
    return found[0] if found else ""


def closest_or_all(name: str, others: Sequence[str], what: str) -> str:
    """Return what to write instead of a name: the closest one, or one of all.

    Args:
        name: a name that does not exist.
        others: names that do.
        what: what they are, in the plural.
    """
    close = closest(name, others)
    return f"write {close}" if close else f"{what} are {', '.join(others) or 'none'}"
