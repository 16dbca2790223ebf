# SPDX-License-Identifier: Apache-2.0
"""Operators: one file for each, or for a few that are nearly the same.

A file registers all that is to be known of its operator; other stages ask the registries.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache


@cache
def load() -> None:
    """Import every file of this folder, so that all operators are registered."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
