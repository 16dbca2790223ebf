# SPDX-License-Identifier: Apache-2.0
"""umakit: from "we have an accelerator" to "this C library runs our networks on it".

Names are imported when they are first used, so that `import umakit` does not import TVM.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from umakit.moved import find_moved_modules
from umakit.version import __version__

if TYPE_CHECKING:
    from umakit.backend.base import UMABackend
    from umakit.backend.registry import find_backend, list_backends
    from umakit.devices.run import run_library
    from umakit.errors import UmakitError
    from umakit.frontend import import_model
    from umakit.memory import MemoryPool
    from umakit.pipeline import ExportOptions, compile_model
    from umakit.registration.backend import PassPhase
    from umakit.registration.strategy import OpStrategy
    from umakit.registration.target import create_target, target_attributes
    from umakit.testing.harness import AOTModel, compile_and_run

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
    "AOTModel": "testing.harness",
    "ExportOptions": "pipeline",
    "MemoryPool": "memory",
    "OpStrategy": "registration.strategy",
    "PassPhase": "registration.backend",
    "UMABackend": "backend.base",
    "UmakitError": "errors",
    "compile_and_run": "testing.harness",
    "compile_model": "pipeline",
    "create_target": "registration.target",
    "find_backend": "backend.registry",
    "import_model": "frontend",
    "list_backends": "backend.registry",
    "run_library": "devices.run",
    "target_attributes": "registration.target",
}

find_moved_modules()


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'umakit' has no attribute {name!r}")
    return getattr(importlib.import_module(f"umakit.{_HOMES[name]}"), name)
