# SPDX-License-Identifier: Apache-2.0
"""Texts in a backend's Python files, such as names of C functions and memories."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from umakit.errors import short_path


def texts_in(folder: Path) -> Mapping[str, str]:
    """Return the places of texts in the Python files of a folder.

    Returns:
        File and line, `passes.py:12`, of the first string constant, by its text.
    """
    found: dict[str, str] = {}
    for path in sorted(folder.glob("*.py")):
        nodes = list(_nodes(path))
        parts = {part for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in nodes:
            if node in parts:  # of a text with variables
                continue
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.setdefault(node.value, f"{short_path(path)}:{node.lineno}")
    return found


def place_of(text: str, folder: Path) -> str:
    """Return file and line of a text in the Python files of a folder; empty if there is none."""
    return texts_in(folder).get(text, "")


def _nodes(path: Path) -> Iterator[ast.AST]:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError, RecursionError):
        return
    yield from ast.walk(tree)
