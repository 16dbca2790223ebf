# SPDX-License-Identifier: Apache-2.0
"""Values of the templates of the kind `tiles`."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from umakit.tools.scaffold.answers import Answers

MOST_BANKS = 16
LEAST_SUMS = 4096


def tiles_values(answers: Answers, name: str) -> Mapping[str, object]:
    """Return the further values of a backend of the kind `tiles`.

    `banks` of the scratchpad, a power of two that divides its bytes, and its words of 4 bytes if
    the driver reads them itself, but at least 1; `sum_bytes` of the array;
    `identity`, hexadecimal digits of its ID register; `has_images`, whether an operator has a
    layout.
    """
    banks, unit = MOST_BANKS, 4 if answers.simulator == "none" else 1
    while banks > 1 and answers.scratchpad % (banks * unit):
        banks //= 2
    return {
        "banks": banks,
        "sum_bytes": max(LEAST_SUMS, answers.scratchpad // 16 * 4),
        "identity": f"{zlib.crc32(name.encode()):08X}",
        "has_images": answers.operators != ("dense",),
    }
