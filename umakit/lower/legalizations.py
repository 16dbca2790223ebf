# SPDX-License-Identifier: Apache-2.0
"""umakit's own legalization rules for operators on the CPU."""

from __future__ import annotations

from umakit.floats import float_rules
from umakit.lower import ordering, positions, recurrent, sampling, scans
from umakit.operators.registry import Rule, legalizations


def all_legalizations() -> dict[str, Rule]:
    """Return all rules for `LegalizeOps` by operator name."""
    return {
        **float_rules(),
        **legalizations(),
        **positions.rules(),
        **sampling.rules(),
        **ordering.rules(),
        **scans.rules(),
        **recurrent.rules(),
    }
