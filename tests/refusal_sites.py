# SPDX-License-Identifier: Apache-2.0
"""Where the importers refuse a network, and which tests do it.

    pytest -p refusal_sites TESTS      which refusals the tests produce, and with which messages

`all_sites` finds all calls in the code that make a refusal. The plugin notes where each exception is
made, and writes one line of JSON for each place and test to the file that `REFUSALS` names.
"""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from umakit.errors import ModelError

ROOT = Path(__file__).parents[1]
ROOMS = ("umakit/frontend", "umakit/operators", "umakit/quantized")

MADE_BY = ("ModelError", "refuse", "_damaged", "_refused", "error")
"""Functions that make a refusal; calls of them inside of each other are no refusals of their own."""


@dataclass(frozen=True)
class Site:
    """A call that makes a refusal.

    Attributes:
        file: below `umakit/`.
        function: name of the function, with that of its class.
        says: its message, with … in place of what is filled in.
        fix: its advice, likewise.
        first, last: lines.
    """

    file: str
    function: str
    says: str
    fix: str
    first: int
    last: int

    @property
    def key(self) -> str:
        """What tells it from others, without line numbers."""
        return f"{self.file} {self.function}: {self.says}"


def text_of(node: ast.expr | None) -> str:
    """A text of an expression, with … for what is filled in."""
    if node is None:
        return ""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        parts = (each.value if isinstance(each, ast.Constant) else "…" for each in node.values)
        return "".join(map(str, parts))
    if isinstance(node, ast.BinOp):
        return text_of(node.left) + text_of(node.right)
    if isinstance(node, ast.IfExp):
        return " / ".join(filter(None, map(text_of, (node.body, node.orelse))))
    return "…" if isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript) else ""


def sites_in(path: Path) -> Iterator[Site]:
    """The refusals of a file, in its order."""

    def visit(node: ast.AST, names: tuple[str, ...]) -> Iterator[Site]:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names = (*names, node.name)
        if isinstance(node, ast.Call) and not set(names) & set(MADE_BY):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func
            if (called if isinstance(called, str) else getattr(called, "id", "")) in MADE_BY:
                texts = [text for each in node.args if (text := text_of(each)).strip("… ")]
                keywords = {each.arg: text_of(each.value) for each in node.keywords}
                fix = keywords.get("fix", "") or (texts[1] if len(texts) > 1 else "")
                file = path.relative_to(ROOT / "umakit").as_posix()
                last = node.end_lineno or node.lineno
                says = texts[0] if texts else "…"
                yield Site(file, ".".join(names), says, fix, node.lineno, last)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, names)

    yield from visit(ast.parse(path.read_text(encoding="utf-8")), ())


@functools.cache
def all_sites() -> tuple[Site, ...]:
    """All refusals of the importers."""
    files = (path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py")))
    return tuple(site for path in files for site in sites_in(path))


def site_of(file: str, line: int) -> Site | None:
    """The refusal at a line of a file, which is below `umakit/`."""
    return next((s for s in all_sites() if s.file == file and s.first <= line <= s.last), None)


INTERNAL = re.compile(
    r"\b(TIR|tirx?|relax|te|topi)\b\.?(?!\w)|BlockBuilder|ShapeExpr|PrimFunc|object has no attribute"
    r"|Traceback|Check failed|NoneType|\w+(Error|Exception)\b|0x[0-9a-f]{6}|<class|\.(cc|h):\d+"
)
"""Words that only those know who have read TVM's or umakit's code."""


def faults_of(error: ModelError, file: Path) -> list[str]:
    """What a refusal lacks: the file, advice, its section of the page, plain words."""
    text = str(error)
    page, _, section = error.page.partition("#")
    sections = sections_of((ROOT / page).read_text(encoding="utf-8")) if page else set()
    found = {
        "the file": str(file) in text or file.name in text,
        "what to do": bool(error.fix),
        "a section of the page": section in sections,
        "one line": "\n" not in text,
        "plain words": not INTERNAL.search(error.what),
    }
    return [what for what, given in found.items() if not given]


def sections_of(page: str) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings}


# --- the plugin -----------------------------------------------------------------------------------

_seen: list[tuple[str, ModelError]] = []
_test = ""


def _noting(original: Any) -> Any:
    @functools.wraps(original)
    def initialize(self: ModelError, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        frame = sys._getframe(1)
        while frame is not None:
            file = frame.f_code.co_filename
            if "/umakit/" in file and Path(file).is_relative_to(ROOT / "umakit"):
                relative = Path(file).relative_to(ROOT / "umakit").as_posix()
                site = site_of(relative, frame.f_lineno)
                if site is not None:
                    _seen.append((site.key, self))
                    return
            frame = frame.f_back  # type: ignore[assignment]

    return initialize


def pytest_configure(config: pytest.Config) -> None:
    ModelError.__init__ = _noting(ModelError.__init__)  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Any:
    _seen.clear()
    try:
        return (yield)
    finally:
        found = {key: error for key, error in reversed(_seen)}
        with Path(os.environ["REFUSALS"]).open("a", encoding="utf-8") as file:
            for key, error in found.items():
                row = {"site": key, "test": item.nodeid, "message": str(error)}
                file.write(json.dumps(row) + "\n")
