# SPDX-License-Identifier: Apache-2.0
"""umakit: from "we have an accelerator" to "this C library runs our networks on it".

Names are imported when they are first used, so that `import umakit` does not import TVM.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from umakit.version import __version__

if TYPE_CHECKING:
    from umakit.backend import PassPhase, UMABackend
    from umakit.compile import ExportOptions, compile_model
    from umakit.errors import UmakitError
    from umakit.frontend import import_model
    from umakit.harness import AOTModel, compile_and_run
    from umakit.memory import MemoryPool
    from umakit.registry import find_backend, list_backends
    from umakit.run import run_library
    from umakit.strategy import OpStrategy
    from umakit.target import create_target, target_attributes

__all__ = [
    "AOTModel",
    "ExportOptions",
    "MemoryPool",
    "OpStrategy",
    "PassPhase",
    "UMABackend",
    "UmakitError",
    "__version__",
    "compile_and_run",
    "compile_model",
    "create_target",
    "find_backend",
    "import_model",
    "list_backends",
    "run_library",
    "target_attributes",
]

_HOMES = {
    "AOTModel": "harness",
    "ExportOptions": "compile",
    "MemoryPool": "memory",
    "OpStrategy": "strategy",
    "PassPhase": "backend",
    "UMABackend": "backend",
    "UmakitError": "errors",
    "compile_and_run": "harness",
    "compile_model": "compile",
    "create_target": "target",
    "find_backend": "registry",
    "import_model": "frontend",
    "list_backends": "registry",
    "run_library": "run",
    "target_attributes": "target",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'umakit' has no attribute {name!r}")
    return getattr(importlib.import_module(f"umakit.{_HOMES[name]}"), name)
