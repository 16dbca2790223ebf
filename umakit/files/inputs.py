# SPDX-License-Identifier: Apache-2.0
"""Checks of input files before they are read."""

from __future__ import annotations

import stat
from pathlib import Path


def is_special(path: Path) -> bool:
    """Whether a path is a pipe, a socket or a device, so that reading it might never end."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)
