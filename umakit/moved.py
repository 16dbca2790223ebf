# SPDX-License-Identifier: Apache-2.0
"""Import of modules by their names in umakit 0.1.0, which generated backends use.

The old names still work in this version. They raise a DeprecationWarning that names the
replacement.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "accelerator_config": ("umakit.machine.accelerator_config", "umakit.backend"),
    "byoc": ("umakit.backend.byoc", "UMABackend.register"),
    "compile": ("umakit.pipeline", "umakit"),
    "diff": ("umakit.tools.diff", ""),
    "example_networks": ("umakit.testing.example_networks", "umakit.testing"),
    "harness": ("umakit.testing.harness", "umakit.testing"),
    "page": ("umakit.tools.page", ""),
    "partitioner": ("umakit.partition.partitioner", "UMABackend.partition"),
    "registry": ("umakit.backend.registry", "umakit.backend"),
    "report": ("umakit.partition.report", ""),
    "run": ("umakit.devices.run", "umakit"),
    "scaffold": ("umakit.tools.scaffold", "`uma new`"),
    "size": ("umakit.tools.size", "`uma size`"),
    "strategy": ("umakit.registration.strategy", "umakit.backend"),
    "systolic": ("umakit.machine.systolic", "umakit.machine"),
    "target": ("umakit.registration.target", "umakit.backend"),
    "tiling": ("umakit.machine", "umakit.machine"),
    "tuning": ("umakit.tools.tuning", "`uma tune`"),
    "undecided": ("umakit.backend.undecided", "umakit.backend"),
}
"""New module by old name, and the public replacement; empty if there is none."""


class _Alias(Loader):
    """A loader that returns a module under another name."""

    def __init__(self, place: str) -> None:
        self._place = place

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module(self._place)


class _Moved(MetaPathFinder):
    """Finder of modules by their names in 0.1.0."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module with a name of 0.1.0; None for other names."""
        top, _, name = fullname.partition(".")
        first, _, rest = name.partition(".")
        if top != "umakit" or first not in MOVED:
            return None
        place, public = MOVED[first]
        place = f"{place}.{rest}" if rest else place
        warnings.warn(
            f"{fullname} goes away in the next version of umakit: use {public or place}",
            DeprecationWarning,
            stacklevel=2,
        )
        return ModuleSpec(fullname, _Alias(place))


def find_moved_modules() -> None:
    """Enable imports by the names of 0.1.0."""
    # Before the file finder, which would load the modules of a folder a second time.
    if not any(isinstance(finder, _Moved) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Moved())
