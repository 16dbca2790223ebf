# SPDX-License-Identifier: Apache-2.0
"""Options that all tests share."""

from __future__ import annotations

import importlib.util
import os
import shutil

import pytest
from hypothesis.internal.conjecture import providers

from umakit.devices import DEVICES

if "UMAKIT_EXAMPLES" not in os.environ:
    # Hypothesis also draws the constants that it finds in modules of the project, in those that
    # this worker has imported so far: what is drawn would depend on which tests ran before.
    providers._get_local_constants = lambda: providers._local_constants


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write what is printed now into the files that show it (README.md)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """On CI a missing program or package is a failure: tests would be skipped unseen."""
    if os.environ.get("UMAKIT_CI"):
        programs = ["gcc", "clang", "chromium"]
        for device in DEVICES:
            programs += [device.command, device.size, *device.emulator[:1]]
        missing = [name for name in programs if name and shutil.which(name) is None]
        packages = ["torch", "torchao"]
        missing += [name for name in packages if importlib.util.find_spec(name) is None]
        if missing:
            raise pytest.UsageError(f"CI lacks {', '.join(missing)}: see .ci/run")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tutorials take minutes: started last, one would run alone when all others are done."""
    items.sort(key=lambda item: item.path.name != "test_tutorials.py")
