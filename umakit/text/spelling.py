# SPDX-License-Identifier: Apache-2.0
"""Names that a misspelt one may stand for."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def closest(name: str, others: Iterable[str]) -> str:
    """Return the name that is closest to another one; empty if none is close."""
    found = difflib.get_close_matches(name, sorted(set(others) - {name}), n=1, cutoff=0.75)
    return found[0] if found else ""
