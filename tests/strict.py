# SPDX-License-Identifier: Apache-2.0
"""Warnings without which all C has to compile: `warnings.txt`, which CMake reads too."""

from __future__ import annotations

from pathlib import Path

WARNINGS = (Path(__file__).parent / "warnings.txt").read_text(encoding="utf-8").split()
"""Flags of gcc and clang for C; each warning is an error."""

CPP_WARNINGS = [flag for flag in WARNINGS if not flag.endswith("-prototypes")]
"""Those that C++ has too."""
