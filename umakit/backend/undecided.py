# SPDX-License-Identifier: Apache-2.0
"""The error for unfinished parts of a generated backend."""

from __future__ import annotations

import sys
from typing import NoReturn

from umakit.errors import BackendError, short_path


def undecided(decision: str) -> NoReturn:
    """Raise an error for a decision that the backend's author has not made yet.

    Args:
        decision: missing decision, the end of the sentence "decide ...".

    Raises:
        BackendError: always; names the file and line of the caller.
    """
    frame = sys._getframe(1)
    raise BackendError(
        "this skeleton is not filled in",
        where=f"{short_path(frame.f_code.co_filename)}:{frame.f_lineno}",
        fix=f"decide {decision}",
    )
