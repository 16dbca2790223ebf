# SPDX-License-Identifier: Apache-2.0
"""Commands of the README and of docs/ print what the pages show; --update-golden rewrites them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from console import check_commands, run

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
NAMES = "shipping analysis simulator commands architecture"
PAGES = [README, *(DOCS / f"{name}.md" for name in NAMES.split())]
"""In the order in which their commands run, in one folder. Tutorials have tests of their own."""


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("readme")
    shutil.copytree(ROOT / "examples", folder / "examples")
    (folder / "docs").mkdir()
    shutil.copy(DOCS / "stages.py", folder / "docs")
    return folder


@pytest.mark.slow
def test_commands_print_what_the_pages_show(
    workplace: Path, request: pytest.FixtureRequest
) -> None:
    update = bool(request.config.getoption("--update-golden"))
    for page in PAGES:
        count = check_commands(page, lambda command: run(command, workplace), update=update)
        assert count >= 1, page
    if update:
        return

    snippet = re.search(r"```c\n(.*?)```", (DOCS / "shipping.md").read_text("utf-8"), re.DOTALL)
    assert snippet is not None
    (workplace / "snippet.c").write_text(snippet[1], encoding="utf-8")
    include = "digits_library/codegen/host/include"
    assert run(f"cc -std=c99 -Wall -Werror -I{include} -c snippet.c -o snippet.o", workplace) == ""

    python = re.search(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert python is not None
    (workplace / "snippet.py").write_text(python[1], encoding="utf-8")
    assert run("python snippet.py", workplace) == "3 operators offloaded\n"


def test_every_page_with_commands_is_run() -> None:
    tutorials = {"vanilla.md", "strawberry.md", "chocolate.md"}
    pages = [page for page in DOCS.glob("*.md") if "```console" in page.read_text("utf-8")]
    assert {page.name for page in pages} - tutorials <= {page.name for page in PAGES}


def test_links_between_pages_lead_somewhere() -> None:
    for page in [README, *DOCS.glob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_help_names_every_command_of_the_page() -> None:
    text = (DOCS / "commands.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `uma (\w+)", text, re.MULTILINE))
    assert listed == set("partition compile run size package diff report tune sim backends".split())
