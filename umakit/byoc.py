# SPDX-License-Identifier: Apache-2.0
"""Bring Your Own Codegen: a backend's composite functions inside a TVM process."""
from __future__ import annotations
from typing import Any
def register_backend(backend: Any) -> None:
    pass
