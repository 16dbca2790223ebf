# SPDX-License-Identifier: Apache-2.0
"""Exported libraries as operators and modules of PyTorch.

This package imports torch; `import umakit` never does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from umakit.errors import MissingProgramError

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise MissingProgramError(
        "umakit.torch needs PyTorch, which is not installed", fix="pip install umakit[torch]"
    ) from None

from umakit.imports import imported_on_use
from umakit.torch.module import LibraryModule, load

if TYPE_CHECKING:
    from umakit.torch.offloaded import OffloadedModule
    from umakit.torch.offloading import offload

__all__ = ["LibraryModule", "OffloadedModule", "load", "offload"]

# A library runs without TVM.
__getattr__ = imported_on_use(
    __name__, {"OffloadedModule": "umakit.torch.offloaded", "offload": "umakit.torch.offloading"}
)
