# SPDX-License-Identifier: Apache-2.0
"""Operators that umakit imports itself, because TVM's importer gets them wrong or not at all.

Each file of this package registers the operators of one family by `registry.converts`, or by
`rewriting.rewrites`; all files are loaded here, so that a new one needs no list.
"""

from __future__ import annotations

import importlib
import pkgutil

from umakit.frontend.onnx.registry import CONVERTER_DECISIONS, CONVERTERS

__all__ = ["CONVERTERS", "CONVERTER_DECISIONS"]

for _file in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(_file.name)
