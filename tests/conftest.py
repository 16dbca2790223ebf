# SPDX-License-Identifier: Apache-2.0
"""Options that all tests share."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write what is printed now into the files that show it (README.md)",
    )
