# SPDX-License-Identifier: Apache-2.0
"""Commands of the README and of docs/ print what the pages show; --update-golden rewrites them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from commands import COMMANDS
from console import CONSOLE, check_commands, run

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
DOCS = ROOT / "docs"
NAMES = "shipping analysis traces simulator commands architecture generated-c cpus"
PAGES = [README, *(DOCS / f"{name}.md" for name in NAMES.split())]
"""In the order in which their commands run, in one folder. Tutorials have tests of their own."""


FROM_CLONE = ("examples", "docs")
"""What the commands read of a clone. What they write into it Git ignores."""


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("readme")
    shutil.copytree(ROOT / "examples", folder / "examples")
    (folder / "docs").mkdir()
    shutil.copy(DOCS / "stages.py", folder / "docs")
    return folder


@pytest.mark.optimized
@pytest.mark.page
def test_commands_print_what_the_pages_show(
    workplace: Path, request: pytest.FixtureRequest
) -> None:
    update = bool(request.config.getoption("--update-golden"))
    for page in PAGES:
        count = check_commands(page, lambda command: run(command, workplace), update=update)
        assert count >= 1, page
    if update:
        return
    assert_ignored_by_git(workplace)

    snippet = re.search(r"```c\n(.*?)```", (DOCS / "shipping.md").read_text("utf-8"), re.DOTALL)
    assert snippet is not None
    (workplace / "snippet.c").write_text(snippet[1], encoding="utf-8")
    include = "digits_library/codegen/host/include"
    assert run(f"cc -std=c99 -Wall -Werror -I{include} -c snippet.c -o snippet.o", workplace) == ""

    python = re.search(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert python is not None
    (workplace / "snippet.py").write_text(python[1], encoding="utf-8")
    assert run("python snippet.py", workplace) == "5 operators offloaded\n"

    command = re.search(r"`(python -m pytest [^`]*)`", README.read_text(encoding="utf-8"))
    assert command is not None
    # tests/test_scaffold.py runs them.
    assert re.search(r"\d+ tests collected", run(f"{command[1]} --collect-only", workplace))


def assert_ignored_by_git(workplace: Path) -> None:
    """What commands wrote, if they had run in the clone."""
    paths = [path for path in sorted(workplace.iterdir()) if path.name not in FROM_CLONE]
    written = [f"{path.name}/" if path.is_dir() else path.name for path in paths]
    command = ["git", "-C", str(ROOT), "check-ignore", "--no-index", *written]
    ignored = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    assert len(written) > 3 and ignored.splitlines() == written


def test_every_page_with_commands_is_run() -> None:
    others = {
        "vanilla.md",
        "strawberry.md",
        "chocolate.md",
        "arithmetic.md",
        "boards.md",
        "check.md",
        "compare.md",
        "kernel-library.md",
        "layouts.md",
        "new-layer.md",
        "new-tiles.md",
        "remote.md",
        "several-accelerators.md",
        "start.md",
        "sweeps.md",
        "your-cost-model.md",
        "your-rtl.md",
        "your-simulator.md",
    }
    pages = [page for page in DOCS.glob("*.md") if "```console" in page.read_text("utf-8")]
    assert {page.name for page in pages} - others <= {page.name for page in PAGES}


def test_generated_c_explains_names_that_its_excerpts_show() -> None:
    text = (DOCS / "generated-c.md").read_text(encoding="utf-8")
    blocks = "".join(match["output"] for match in CONSOLE.finditer(text))
    names = set(re.findall(r"`([A-Za-z_]\w*_\w*|status|sum|windows)`", CONSOLE.sub("", text)))
    assert len(names) > 20
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", blocks)] == []


def test_links_between_pages_lead_somewhere() -> None:
    for page in [README, CONTRIBUTING, *DOCS.glob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_contributors_are_sent_to_files_that_exist() -> None:
    paths = re.findall(r"`([\w.]+/[\w./-]+)`", CONTRIBUTING.read_text(encoding="utf-8"))
    named = [path for path in paths if "NAME" not in path]
    assert len(named) > 20 and [path for path in named if not (ROOT / path).exists()] == []


def test_the_page_lists_every_command_that_prints_json() -> None:
    text = (DOCS / "commands.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `uma (\w+)", text, re.MULTILINE))
    printing = {
        name
        for name, command in COMMANDS.items()
        if any("--json" in option.opts for option in command.params)
    }
    assert listed == printing
