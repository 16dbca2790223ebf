# SPDX-License-Identifier: Apache-2.0
"""Sums of figures of which one may be unknown."""

from __future__ import annotations

from collections.abc import Iterable


def total(values: Iterable[int | None]) -> int | None:
    """Return the sum of figures; None if there are none, or one is unknown."""
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if found and len(known) == len(found) else None
