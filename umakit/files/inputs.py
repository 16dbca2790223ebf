# SPDX-License-Identifier: Apache-2.0
"""Files that are given: what can be read at all."""

from __future__ import annotations

import stat
from pathlib import Path


def is_special(path: Path) -> bool:
    """Whether a path leads to a pipe, a socket or a device: reading it may never end."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)
