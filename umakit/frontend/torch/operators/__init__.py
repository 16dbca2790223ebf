# SPDX-License-Identifier: Apache-2.0
"""Conversions of ATen operators, one file for each operator or family.

Each file registers its conversions, see `umakit.frontend.torch.registry`; all files are loaded
here, so that a new one needs no list.
"""

from __future__ import annotations

import importlib
import pkgutil

from umakit.frontend.torch.registry import CONVERTERS

__all__ = ["CONVERTERS"]

for _file in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(_file.name)
