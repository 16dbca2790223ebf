# SPDX-License-Identifier: Apache-2.0
"""Suggestions for misspelt names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


def closest(name: str, others: Iterable[str]) -> str:
    """Return the closest match of a name; empty if there is no close match."""
    found = difflib.get_close_matches(name, sorted(set(others) - {name}), n=1, cutoff=0.75)
    return found[0] if found else ""


def closest_or_all(name: str, others: Sequence[str], what: str) -> str:
    """Return a suggestion for a name: the closest match, or the list of all names."""
    close = closest(name, others)
    return f"write {close}" if close else f"{what} are {', '.join(others) or 'none'}"
