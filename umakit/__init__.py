# SPDX-License-Identifier: Apache-2.0
"""umakit: from "we have an accelerator" to "this C library runs our networks on it".

Names are imported on first use, so that `import umakit` does not import TVM.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from umakit.imports import imported_on_use
from umakit.version import __version__

if TYPE_CHECKING:
    from umakit.backend.base import UMABackend
    from umakit.backend.registry import find_backend, list_backends
    from umakit.devices.run import run_library
    from umakit.errors import UmakitError
    from umakit.frontend import import_model
    from umakit.memory.pools import MemoryPool
    from umakit.pipeline import ExportOptions, compile_model
    from umakit.registration.registered import PassPhase
    from umakit.registration.target import OpStrategy, create_target, target_attributes
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

__getattr__ = imported_on_use(
    __name__,
    {
        "AOTModel": "umakit.testing.harness",
        "ExportOptions": "umakit.pipeline",
        "MemoryPool": "umakit.memory.pools",
        "OpStrategy": "umakit.registration.target",
        "PassPhase": "umakit.registration.registered",
        "UMABackend": "umakit.backend.base",
        "UmakitError": "umakit.errors",
        "compile_and_run": "umakit.testing.harness",
        "compile_model": "umakit.pipeline",
        "create_target": "umakit.registration.target",
        "find_backend": "umakit.backend.registry",
        "import_model": "umakit.frontend",
        "list_backends": "umakit.backend.registry",
        "run_library": "umakit.devices.run",
        "target_attributes": "umakit.registration.target",
    },
)

# In a checkout, four folders of the package lie beside this one. Python finds this one first where
# it looks into the working folder, whatever is installed.
if find_spec(f"{__name__}.sim") is None:
    raise ImportError(
        "this is the source folder of umakit, not the installed package: "
        "pip install --editable ., or work in another folder"
    )
