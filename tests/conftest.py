# SPDX-License-Identifier: Apache-2.0
"""Options that all tests share."""

from __future__ import annotations

import os
import shutil

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write what is printed now into the files that show it (README.md)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """On CI a missing compiler is a failure: the tests that need it would be skipped unseen."""
    if os.environ.get("UMAKIT_CI"):
        missing = [name for name in ("gcc", "clang") if shutil.which(name) is None]
        if missing:
            raise pytest.UsageError(f"CI lacks {', '.join(missing)}: see .ci/run")
