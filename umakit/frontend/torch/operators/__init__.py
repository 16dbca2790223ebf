# SPDX-License-Identifier: Apache-2.0
"""Conversions of ATen operators, one file for each operator or family.

Each file registers its conversions, see `umakit.frontend.torch.registry`.
"""

from __future__ import annotations

import importlib
import pkgutil


def register_all() -> None:
    """Import all files of this folder, which register their conversions."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
