# SPDX-License-Identifier: Apache-2.0
"""Conversions of ATen operators, one file for each operator or family.

A file registers what it converts, see `umakit.frontend.torch.registry`; no list names the files.
"""

from __future__ import annotations

import importlib
import pkgutil


def register_all() -> None:
    """Import all files of this folder, which registers their conversions."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
