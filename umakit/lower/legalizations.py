# SPDX-License-Identifier: Apache-2.0
"""Rules of umakit's own for what operators become on the CPU."""

from __future__ import annotations

from umakit.floats import float_rules
from umakit.lower import ordering, positions, recurrent, sampling, scans
from umakit.operators.registry import Rule, legalizations


def all_legalizations() -> dict[str, Rule]:
    """Rules for `LegalizeOps`, by operator: floats, integers, positions, coordinates, order."""
    return {
        **float_rules(),
        **legalizations(),
        **positions.rules(),
        **sampling.rules(),
        **ordering.rules(),
        **scans.rules(),
        **recurrent.rules(),
    }
