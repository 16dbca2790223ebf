# SPDX-License-Identifier: Apache-2.0
"""Compiled templates are kept next to Python's modules, and never used for another template."""

from __future__ import annotations

import sys
from pathlib import Path

import jinja2
import pytest

from umakit.text.rendering import TemplateCache


@pytest.fixture(autouse=True)
def writing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)


def rendered(folder: Path, *, sources: tuple[str, ...] = ()) -> tuple[str, bool]:
    """The text of the template `x/a.j2` in a new environment, and whether it was compiled."""
    compiled = []

    class Environment(jinja2.Environment):
        def _generate(self, *args: object, **kwargs: object) -> str:
            compiled.append(args)
            return str(super()._generate(*args, **kwargs))  # type: ignore[arg-type]

    cache = TemplateCache(folder, "text", sources)
    environment = Environment(loader=jinja2.FileSystemLoader(folder), bytecode_cache=cache)
    return environment.get_template("x/a.j2").render(name="world"), bool(compiled)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "x").mkdir()
    (tmp_path / "x/a.j2").write_text("hello {{ name }}")
    return tmp_path


def test_a_template_is_compiled_once(folder: Path) -> None:
    assert [rendered(folder) for _ in range(2)] == [("hello world", True), ("hello world", False)]
    assert [path.parent.name for path in folder.rglob("*.pyc")] == ["__pycache__"]


def test_a_changed_template_or_filter_is_compiled_again(folder: Path) -> None:
    source = folder / "filters.py"
    source.write_text("first")
    rendered(folder, sources=(str(source),))
    (folder / "x/a.j2").write_text("bye {{ name }}")
    assert rendered(folder, sources=(str(source),)) == ("bye world", True)
    source.write_text("second")
    assert rendered(folder, sources=(str(source),)) == ("bye world", True)


@pytest.mark.parametrize("damage", [b"", b"j2 and nothing else", None])
def test_a_damaged_file_is_compiled_again(folder: Path, damage: bytes | None) -> None:
    rendered(folder)
    (file,) = folder.rglob("*.pyc")
    file.write_bytes(file.read_bytes()[:-9] if damage is None else damage)
    assert rendered(folder) == ("hello world", True)
    assert rendered(folder) == ("hello world", False)


def test_nothing_is_written_where_python_writes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    rendered(folder)
    assert list(folder.rglob("*.pyc")) == []


def test_a_folder_that_cannot_be_written_is_no_error(folder: Path) -> None:
    (folder / "__pycache__").write_text("a file in its place")
    assert rendered(folder) == ("hello world", True)
