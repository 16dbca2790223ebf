# SPDX-License-Identifier: Apache-2.0
"""Where the importers refuse a network, and which tests do it.

    REFUSALS=FILE PYTHONPATH=tests pytest -p refusal_sites TESTS   what the tests produce, as JSON
    PYTHONPATH=tests python tests/refusal_sites.py FILE            adds that to refused_by.txt

`all_sites` finds all calls in the code that make a refusal. The plugin notes where each exception
is made, and writes one line of JSON for each place and test to the file that `REFUSALS` names.
"""

from __future__ import annotations

import ast
import functools
import importlib
import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from umakit.errors import ModelError
from umakit.frontend.model import section_of

ROOT = Path(__file__).parents[1]
ROOMS = ("umakit/frontend", "umakit/lower", "umakit/operators", "umakit/quantized")

MADE_BY = ("ModelError", "refuse", "_damaged", "error")
"""Functions that make a refusal. Calls inside of them are no refusals of their own."""


@dataclass(frozen=True)
class Site:
    """A call that makes a refusal.

    Attributes:
        file: below `umakit/`.
        function: name of the function, with that of its class.
        says: its message, with … in place of what is filled in.
        fix: its advice, likewise.
        first, last: lines.
        number: of several that say the same in a function.
    """

    file: str
    function: str
    says: str
    fix: str
    first: int
    last: int
    number: int = 1

    @property
    def key(self) -> str:
        """What tells it from others, without line numbers."""
        number = f" ({self.number})" if self.number > 1 else ""
        return f"{self.file} {self.function}: {self.says}{number}"

    @property
    def module(self) -> str:
        """The module's name."""
        return ".".join(("umakit", *Path(self.file).with_suffix("").parts)).removesuffix(
            ".__init__"
        )


RESOLVED = re.compile("what$|label$|subject$|[A-Z_]+$")
"""Names of variables that hold parts of messages, and of constants."""

Names = dict[str, ast.expr]
"""What variables of a function, and constants of its module, are bound to."""


def text_of(node: ast.expr | None, names: Names | None = None) -> str:
    """A text of an expression, with … for what is filled in."""
    if isinstance(node, ast.Name) and names and node.id in names and RESOLVED.match(node.id):
        known = names[node.id]
        return text_of(known) if isinstance(known, ast.JoinedStr | ast.Constant) else "…"
    if node is None:
        return ""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(each.value)
            if isinstance(each, ast.Constant)
            else (
                text_of(each.value, names) or "…" if isinstance(each, ast.FormattedValue) else "…"
            )
            for each in node.values
        )
    if isinstance(node, ast.BinOp):
        return text_of(node.left, names) + text_of(node.right, names)
    if isinstance(node, ast.IfExp):
        return " / ".join(filter(None, (text_of(each, names) for each in (node.body, node.orelse))))
    return "…" if isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript) else ""


def constants_of(path: Path) -> Names:
    """Texts that a module has or imports."""
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    module = vars(importlib.import_module(name))
    return {key: ast.Constant(value) for key, value in module.items() if isinstance(value, str)}


def sites_in(path: Path) -> Iterator[Site]:
    """The refusals of a file, in its order."""

    def visit(node: ast.AST, names: tuple[str, ...], bound: Names) -> Iterator[Site]:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names = (*names, node.name)
            assigned = [each for each in ast.walk(node) if isinstance(each, ast.Assign)]
            bound = bound | {
                target.id: each.value
                for each in assigned
                for target in each.targets
                if isinstance(target, ast.Name)
            }
        if isinstance(node, ast.Call) and not set(names) & set(MADE_BY):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func
            if (called if isinstance(called, str) else getattr(called, "id", "")) in MADE_BY:
                texts = [text for each in node.args if (text := text_of(each, bound)).strip("… ")]
                keywords = {each.arg: text_of(each.value, bound) for each in node.keywords}
                fix = keywords.get("fix", "") or (texts[1] if len(texts) > 1 else "")
                file = path.relative_to(ROOT / "umakit").as_posix()
                last = node.end_lineno or node.lineno
                says = texts[0] if texts else "…"
                yield Site(file, ".".join(names), says, fix, node.lineno, last)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, names, bound)

    yield from visit(ast.parse(path.read_text(encoding="utf-8")), (), constants_of(path))


@functools.cache
def all_sites() -> tuple[Site, ...]:
    """All refusals of the importers; what is said twice in a function has a number."""
    files = (path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py")))
    found: dict[str, Site] = {}
    for site in (site for path in files for site in sites_in(path)):
        number = 1
        while (site if number == 1 else replace(site, number=number)).key in found:
            number += 1
        site = replace(site, number=number)
        found[site.key] = site
    return tuple(found.values())


def site_of(file: str, line: int) -> Site | None:
    """The refusal at a line of a file, which is below `umakit/`."""
    return next((s for s in all_sites() if s.file == file and s.first <= line <= s.last), None)


INTERNAL = re.compile(
    r"\b(TIR|tirx?|relax|te|topi)\b\.?(?!\w)|BlockBuilder|ShapeExpr|PrimFunc|Traceback"
    r"|object has no attribute|Check failed|NoneType|\w+(Error|Exception)\b|0x[0-9a-f]{6}|<class"
    r"|\.(cc|h):\d+"
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
        "a section that lists it": any(
            section_of(site.module) == section and _says(site).search(error.what)
            for site in all_sites()
        ),
        "one line": "\n" not in text,
        "plain words": not INTERNAL.search(error.what),
    }
    return [what for what, given in found.items() if not given]


def _says(site: Site) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, re.split("…| / ", site.says))) + "$", re.DOTALL)


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
        found = dict(reversed(_seen))
        with Path(os.environ["REFUSALS"]).open("a", encoding="utf-8") as file:
            for key, error in found.items():
                row = {"site": key, "test": item.nodeid, "message": str(error), "fix": error.fix}
                file.write(json.dumps(row) + "\n")


# --- which test produces which --------------------------------------------------------------------

REFUSED_BY = Path(__file__).with_name("refused_by.txt")
"""Lines of a test and a refusal, with a tab between them."""


def refused_by() -> dict[str, str]:
    """Tests by the key of the refusal that they produce."""
    lines = REFUSED_BY.read_text(encoding="utf-8").splitlines()
    return {key: test for test, _, key in (line.partition("\t") for line in lines)}


def note(rows: list[dict[str, str]]) -> None:
    """Add what was recorded to `REFUSED_BY`, and drop refusals that are gone.

    Tests of one file each are preferred, whose names say that they refuse.
    """
    known = refused_by() if REFUSED_BY.exists() else {}
    keys = {site.key for site in all_sites()}
    for row in sorted(rows, key=lambda row: ("test_refused" not in row["test"], row["test"])):
        known.setdefault(row["site"], row["test"])
    lines = sorted(f"{test}\t{key}" for key, test in known.items() if key in keys)
    REFUSED_BY.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    note([json.loads(line) for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()])
