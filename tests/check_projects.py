# SPDX-License-Identifier: Apache-2.0
"""Projects of `uma new` with limits of many kinds, by data/check_projects.toml.

python tests/check_projects.py FOLDER [NAME]...    write them there
"""

from __future__ import annotations

import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from typer.testing import CliRunner
from umakit.cli.main import app

DATA = Path(__file__).with_name("data") / "check_projects.toml"


def project_names() -> list[str]:
    """Return the names of the projects."""
    return [each["name"] for each in _recipes()]


def written_project(name: str, folder: Path) -> Path:
    """Return the folder of a project, which is written.

    Args:
        name: one of `project_names()`.
        folder: where its folder is made.
    """
    recipe = next(each for each in _recipes() if each["name"] == name)
    with tempfile.TemporaryDirectory() as temporary:
        command = ["new", name, *recipe["flags"], "--directory", str(folder)]
        if "registers" in recipe:
            registers = Path(temporary) / "registers.toml"
            registers.write_text(recipe["registers"], encoding="utf-8")
            command += ["--registers", str(registers)]
        result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, f"{result.stdout}{result.stderr}{result.exception!r}"
    for edit in recipe.get("edits", []):
        path = folder / name / edit["file"]
        text = path.read_text(encoding="utf-8")
        assert text.count(edit["old"]) == 1, f"{name}: {edit['old']!r} in {edit['file']}"
        path.write_text(text.replace(edit["old"], edit["new"]), encoding="utf-8")
    return folder / name


def _recipes() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads(DATA.read_text(encoding="utf-8"))["project"]
    return found


def main(arguments: Sequence[str]) -> int:
    """Write projects into a folder; all if none is named."""
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    for name in arguments[1:] or project_names():
        print(written_project(name, folder))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
