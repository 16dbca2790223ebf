# SPDX-License-Identifier: Apache-2.0
"""Format and version of the figures that `uma report --json` prints, by which files are known."""

from __future__ import annotations

FORMAT = "umakit report"
VERSION = 1
"""Rises when a key that `umakit.tools.comparison` reads changes its meaning or goes."""
