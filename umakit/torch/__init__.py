# SPDX-License-Identifier: Apache-2.0
"""Exported libraries as operators and modules of PyTorch.

Importing this package imports torch, which `import umakit` never does.
"""

from __future__ import annotations

from umakit.errors import MissingProgramError

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise MissingProgramError(
        "umakit.torch needs PyTorch, which is not installed", fix="pip install umakit[torch]"
    ) from None

from umakit.torch.module import LibraryModule, load
from umakit.torch.offload import offload
from umakit.torch.offloaded import OffloadedModule

__all__ = ["LibraryModule", "OffloadedModule", "load", "offload"]
