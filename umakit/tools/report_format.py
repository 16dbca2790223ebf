# SPDX-License-Identifier: Apache-2.0
"""Format and version of `uma report --json`, which identify saved reports."""

from __future__ import annotations

FORMAT = "umakit report"
VERSION = 1
"""Rises when a key that `umakit.tools.comparison` reads changes its meaning or goes."""
