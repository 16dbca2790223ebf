# SPDX-License-Identifier: Apache-2.0
"""Statuses of runs in words. Functions of kernel libraries return numbers of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FARTHEST = 2**15 - 1
"""Maximum distance of a library's status from the base of its backend."""


def stopped(description: Mapping[str, Any], status: int, text: str) -> tuple[str, int]:
    """Return a sentence on a run that was stopped, and the status that the function returned.

    Args:
        description: the entry `umakit` of a library's metadata.
        status: what the run returned.
        text: the library's text of it.
    """
    for backend in description["backends"]:
        base = int(backend.get("status_base", 0))
        if base == status != 0:
            return f"the run stopped with a status of {backend['name']} that is out of range", 0
        if base and abs(status - base) <= FARTHEST:
            own = status - base
            return f"the run stopped with status {own} of {backend['name']}: {text}", own
    return f"the run stopped with status {status}: {text}", status
