# SPDX-License-Identifier: Apache-2.0
"""Range of the scratch limit. Imports nothing of TVM."""

from __future__ import annotations

from umakit.errors import MemoryPlanError

DEFAULT_SCRATCH_LIMIT = 25
"""Percent above the live-set bound."""

LARGEST_SCRATCH_LIMIT = 1000

SMALL_SCRATCH = 2048
"""Bytes above the bound that any limit but 0 allows: without them, networks whose tensors are of a
few hundred bytes could not have one row of sums."""


def check_scratch_limit(percent: int) -> None:
    """Refuse a scratch limit out of range.

    Raises:
        MemoryPlanError: the limit is not from 0 to `LARGEST_SCRATCH_LIMIT`.
    """
    if not 0 <= percent <= LARGEST_SCRATCH_LIMIT:
        raise MemoryPlanError(
            f"a scratch limit of {percent} % is out of range",
            fix=f"choose 0 to {LARGEST_SCRATCH_LIMIT}",
        )
