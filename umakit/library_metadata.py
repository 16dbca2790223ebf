# SPDX-License-Identifier: Apache-2.0
"""Reading `metadata.json` of an exported library. Imports nothing of the pipeline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from umakit.errors import LibraryError

METADATA = "metadata.json"


def load_metadata(library: Path) -> dict[str, Any]:
    """`metadata.json` of an exported library.

    Raises:
        LibraryError: the folder or file is missing or damaged.
    """
    path = library / METADATA
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        data["umakit"]["layers"]
    except (FileNotFoundError, NotADirectoryError):
        raise LibraryError(
            f"is no umakit library: there is no {METADATA}",
            where=str(library),
            fix="export one with `uma compile`",
        ) from None
    except (json.JSONDecodeError, KeyError, TypeError, UnicodeDecodeError, OSError):
        raise LibraryError("is damaged", where=str(path), fix="export the library again") from None
    return data
