# SPDX-License-Identifier: Apache-2.0
"""The weight of the project: lines, modules, classes and long functions.

python bench/weight.py [--json]

Counted are files under version control. Code lines are lines without blank lines, comments and
docstrings. Templates, tests, C and documentation are counted too, so that nothing merely moves.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import statistics
import subprocess
import sys
import tokenize
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
KIT = ("umakit", "cli")
LONG = 60
"""Lines of a function that count as long."""

SMALL = 60
"""Lines of a module that count as small."""


def files(folders: Sequence[str], *suffixes: str) -> list[Path]:
    """Return the files of folders under version control whose names end with a suffix."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", *folders], cwd=ROOT, capture_output=True, text=True, check=True
    )
    names = [name for name in listed.stdout.split("\0") if name.endswith(suffixes)]
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def lines_of(paths: Sequence[Path]) -> int:
    """Return the number of lines of files."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def code_lines(text: str) -> int:
    """Return the number of lines of Python that hold code."""
    kinds = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in (*kinds, tokenize.ENDMARKER):
            found |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str):
            found -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(found)


def weight() -> dict[str, Any]:
    """Return the figures by name."""
    modules = files(KIT, ".py")
    texts = {path: path.read_text(encoding="utf-8") for path in modules}
    sizes = [len(text.splitlines()) for text in texts.values()]
    classes, long = 0, []
    for path, text in texts.items():
        for node in ast.walk(ast.parse(text)):
            classes += isinstance(node, ast.ClassDef)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > LONG:
                    long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name} {length}")
    docs = files(("docs", "README.md"), ".md")
    words = sum(len(re.findall(r"\S+", path.read_text(encoding="utf-8"))) for path in docs)
    return {
        "lines of umakit and cli": sum(sizes),
        "code lines of umakit and cli": sum(map(code_lines, texts.values())),
        "modules": len(sizes),
        "median lines of a module": int(statistics.median(sizes)),
        f"modules below {SMALL} lines": sum(size < SMALL for size in sizes),
        "classes": classes,
        f"functions above {LONG} lines": len(long),
        "lines of Python in tests": lines_of(files(("tests",), ".py")),
        "lines of templates": lines_of(files(("templates",), "")),
        "lines of backends, examples and bench": lines_of(
            files(("backends", "examples", "bench"), ".py", ".toml", ".c", ".h", ".cc")
        ),
        "lines of C in sim": lines_of(files(("sim",), ".c", ".h", ".cc")),
        "lines of TOML in umakit": lines_of(files(("umakit",), ".toml")),
        "words of README and docs": words,
        "long functions": sorted(long),
    }


def main(arguments: Sequence[str]) -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    found = weight()
    if given.json:
        print(json.dumps(found, indent=1))
        return 0
    long = found.pop("long functions")
    for name, value in found.items():
        print(f"{value:>9,}  {name}")
    print("\n".join(f"           {each}" for each in long))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
