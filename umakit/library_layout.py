# SPDX-License-Identifier: Apache-2.0
"""How an exported library is told from other folders, and where umakit keeps what it builds."""

from __future__ import annotations

import json
import os
from pathlib import Path

METADATA = "metadata.json"


def describes_library(text: str | bytes) -> bool:
    """Whether a `metadata.json` is umakit's, damaged or not."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(data, dict) and "umakit" in data


def user_cache() -> Path:
    """umakit's folder in the user's cache."""
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(chosen) if Path(chosen).is_absolute() else Path.home() / ".cache") / "umakit"
