# SPDX-License-Identifier: Apache-2.0
"""The files of a simulator program, as far as its command names them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path


def program_files(program: Sequence[str], folder: Path) -> dict[str, Path]:
    """Return the files of a program by their path below the backend's folder.

    The files are the words of the command that name files of the folder, also behind `=`, the
    module behind `-m`, and the modules of the folder that Python files import, in functions too.
    Files that the program opens or starts in another way are not found.

    Args:
        program: the program and its arguments.
        folder: the backend's folder, the working directory of the program.
    """
    inside = folder.resolve()
    found: dict[str, Path] = {}
    todo = [path for word in program for path in _named(word, inside)]
    for before, word in pairwise(program):
        if before == "-m":
            todo += _modules(word, inside)
            todo += _modules(f"{word}.__main__", inside)
    roots = {inside, *(path.parent for path in todo)}
    while todo:
        path = todo.pop().resolve()
        if not path.is_relative_to(inside) or path.relative_to(inside).as_posix() in found:
            continue
        found[path.relative_to(inside).as_posix()] = path
        if path.suffix == ".py":
            todo += _imported(path, roots)
    return dict(sorted(found.items()))


def _named(word: str, folder: Path) -> Iterator[Path]:
    """Yield the files of a folder that a word of the command names, directly or behind `=`."""
    for name in {word, word.partition("=")[2]} - {""}:
        try:
            if (folder / name).is_file():
                yield folder / name
        except OSError:  # too long for a name, for example
            continue


def _modules(name: str, folder: Path) -> Iterator[Path]:
    """Yield the files of a folder that Python reads for a module: files of packages and the
    module's own."""
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        path = folder.joinpath(*parts[:count])
        for file in (path.with_name(f"{path.name}.py"), path / "__init__.py"):
            if file.is_file():
                yield file


def _imported(path: Path, roots: set[Path]) -> Iterator[Path]:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return  # the program says so itself
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                for root in roots:
                    yield from _modules(alias.name, root)
        elif isinstance(node, ast.ImportFrom):
            places = {path.parents[node.level - 1]} if node.level else roots
            for place in places:
                for alias in node.names:
                    yield from _modules(".".join(filter(None, (node.module, alias.name))), place)
