# SPDX-License-Identifier: Apache-2.0
"""Values of the templates of the kind `tiles`."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from umakit.tools.scaffold.answers import Answers

MOST_BANKS = 16
LEAST_BANKS = 6
"""With fewer banks not all tensors of a layer have one; 1 is a scratchpad without banks."""

ALIGNMENT = 16
"""Tiles begin at multiples of so many bytes, unless accel.toml says otherwise: banks do, too."""

LEAST_SUMS = 4096


def tiles_values(answers: Answers, name: str) -> Mapping[str, object]:
    """Return the further values of a backend of the kind `tiles`.

    `banks` of the scratchpad; `sum_bytes` of the array; `identity`, hexadecimal digits of its ID
    register; `has_images`, whether an operator has a layout.
    """
    banks = [
        count
        for count in range(LEAST_BANKS, MOST_BANKS + 1)
        if answers.scratchpad % (count * ALIGNMENT) == 0
    ]
    return {
        "banks": max(banks, default=1),
        "sum_bytes": max(LEAST_SUMS, answers.scratchpad // 16 * 4),
        "identity": f"{zlib.crc32(name.encode()):08X}",
        "has_images": answers.operators != ("dense",),
    }
