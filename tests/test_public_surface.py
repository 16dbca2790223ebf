# SPDX-License-Identifier: Apache-2.0
"""What a backend may import: seven modules, their names, and their page."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from umakit.tools.scaffold import TUTORIALS, backend_files

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "backends-api.md"
PUBLIC = tuple(
    f"umakit{name}"
    for name in ("", ".backend", ".errors", ".machine", ".patterns", ".testing", ".tir")
)


def generated() -> Iterator[tuple[str, str]]:
    """Python files of all backends that `uma new` writes, and of those in this repository."""
    for kind in (None, *TUTORIALS):
        for name, text in backend_files("my_npu", kind).items():
            if name.endswith(".py"):
                yield f"uma new --tutorial {kind}: {name}", text
    for folder in ("backends", "examples"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


SOURCES = dict(generated())


def private_names(text: str) -> set[str]:
    """What a source uses of umakit that is not public, as `module.name`."""
    tree = ast.parse(text)
    used: set[tuple[str, str]] = set()
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                used.add((alias.name, ""))
                if alias.name in PUBLIC:
                    bound = alias.asname or alias.name.partition(".")[0]
                    modules[bound] = alias.name if alias.asname else bound
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                used.add((whole, "") if whole in PUBLIC else (str(node.module), alias.name))
                if whole in PUBLIC:
                    modules[alias.asname or alias.name] = whole
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id)
            if module and f"{module}.{node.attr}" not in PUBLIC:
                used.add((module, node.attr))
    return {
        f"{module}.{name}".rstrip(".")
        for module, name in used
        if module.partition(".")[0] == "umakit" and not is_public(module, name)
    }


def is_public(module: str, name: str) -> bool:
    """Whether a name of a module is public; the module itself for an empty one."""
    if module not in PUBLIC:
        return False
    return not name or name in importlib.import_module(module).__all__


@pytest.mark.parametrize("source", SOURCES)
def test_backends_and_examples_use_public_names_only(source: str) -> None:
    assert private_names(SOURCES[source]) == set()


def test_all_kinds_of_sources_are_looked_at() -> None:
    kinds = {re.split(r"[/:]", source)[0] for source in SOURCES}
    assert kinds == {"backends", "examples"} | {
        f"uma new --tutorial {kind}" for kind in (None, *TUTORIALS)
    }
    assert len(SOURCES) > 40


@pytest.mark.parametrize(
    "text",
    [
        "from umakit.tvm_api import topi",
        "from umakit import tvm_api",
        "import umakit.pipeline",
        "def f():\n    from umakit.tir import tirx",
        "from umakit import tir\ntir.tirx.Var",
        "import umakit\numakit.pipeline",
        "import umakit.tir as t\nt.tirx",
    ],
)
def test_private_names_are_found(text: str) -> None:
    assert len(private_names(text)) > 0


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_module_says_what_it_has(name: str) -> None:
    module = importlib.import_module(name)
    assert len((module.__doc__ or "").split()) > 8
    assert len(set(module.__all__)) == len(module.__all__)
    for each in module.__all__:
        assert hasattr(module, each), each


@pytest.mark.parametrize("name", PUBLIC)
def test_the_page_lists_every_public_name(name: str) -> None:
    sections = re.split(r"^## `([\w.]+)`\n", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert tuple(sorted(sections[1::2])) == PUBLIC
    text = dict(zip(sections[1::2], sections[2::2], strict=True))[name]
    listed = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert sorted(listed) == sorted(importlib.import_module(name).__all__)
