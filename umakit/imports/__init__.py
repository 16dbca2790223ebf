# SPDX-License-Identifier: Apache-2.0
"""Imports on first use, and imports of TVM without torch."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any


def imported_on_use(module: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a module `__getattr__` that imports names from other modules on first use.

    Args:
        module: full name of the module.
        homes: full name of the defining module, by name.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return getattr(importlib.import_module(homes[name]), name)

    return get


class WithoutTorch:
    """A context that hides an unimported torch from the current thread, for the import of TVM.

    tvm_ffi imports torch if it is installed, which takes longer than the rest of a short command.
    umakit gives TVM no tensor of torch, and the PyTorch frontend imports torch itself.

    Other threads import torch as usual. An entry in `sys.modules` would hide torch from them too.
    """

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def __enter__(self) -> None:
        if "torch" not in sys.modules:
            sys.meta_path.insert(0, self)

    def __exit__(self, *_: object) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, *_: object) -> None:
        """Report torch as not installed; leave every other module to other finders.

        Raises:
            ModuleNotFoundError: the import is of torch.
        """
        if name == "torch" and threading.get_ident() == self._thread:
            raise ModuleNotFoundError("torch is imported where it is used", name=name)
