# SPDX-License-Identifier: Apache-2.0
"""Names of a public module that are imported when they are first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def imported_on_use(module: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module whose names are defined in other modules.

    Args:
        module: full name of the module.
        homes: full name of the module that defines it, by name.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return getattr(importlib.import_module(homes[name]), name)

    return get
