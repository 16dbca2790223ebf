# SPDX-License-Identifier: Apache-2.0
"""Rules of umakit's own for what operators become on the CPU."""

from __future__ import annotations

from umakit.floats import float_rules
from umakit.lower import positions
from umakit.lower.integer import Rule, legalizations


def all_legalizations() -> dict[str, Rule]:
    """Rules for `LegalizeOps`, by operator: floats, the integer operators, gather and scatter."""
    return {**float_rules(), **legalizations(), **positions.rules()}
