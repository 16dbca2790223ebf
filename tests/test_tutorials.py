# SPDX-License-Identifier: Apache-2.0
"""The tutorials can be typed along: files, commands and what they print, in the page's order.

`--update-golden` writes down again what commands print. What stands in a code block without the
"save as" in front of it is quoted from a file that `uma new` writes.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from console import check_commands, run
from integer_backend import compiled, integers, network, pool

from umakit import run_library
from umakit.backend.registry import load_backend_folder
from umakit.operators.avg_pool2d import AveragePool2d
from umakit.operators.max_pool2d import MaxPool2d
from umakit.tools.scaffold import TUTORIALS, new_backend, tutorial_files

Array = npt.NDArray[Any]

ROOT = Path(__file__).parents[1]
PAGES = [name for name in TUTORIALS if (ROOT / "docs" / f"{name}.md").is_file()]
COLUMNS = 120
BLOCK = re.compile(
    r"```console\n\$ (?P<command>[^\n]+)\n(?P<output>.*?)```"
    r"|[Ss]ave as\s`(?P<file>[\w.]+)`:\n\n```\w+\n(?P<text>.*?)```"
    r"|```(?P<language>\w+)\n(?P<excerpt>.*?)```",
    re.DOTALL,
)


class Reader:
    """Who types a page along.

    Args:
        folder: to work in.
        tutorial: of the page, which is the name of its backend too.
    """

    def __init__(self, folder: Path, tutorial: str) -> None:
        self._folder = folder
        self._generated = tutorial_files(tutorial, tutorial)
        self._notes: set[str] = set()
        self.excerpts = 0
        shutil.copytree(ROOT / "examples", folder / "examples")

    def execute(self, command: str) -> str:
        """What a command prints; a note only the first time."""
        text = run(command, self._folder, COLUMNS).replace(str(self._folder), "...")
        lines = text.splitlines(keepends=True)
        new = [line for line in lines if line not in self._notes]
        self._notes.update(line for line in new if line.startswith("note: "))
        return "".join(new)

    def read(self, match: re.Match[str]) -> None:
        """A file to write, or an excerpt to find."""
        if match["file"] is not None:
            (self._folder / match["file"]).write_text(match["text"], encoding="utf-8")
            return
        assert match["language"] in ("toml", "python", "c"), match[0]
        found = [name for name, text in self._generated.items() if match["excerpt"] in text]
        assert found, f"no generated file has\n{match['excerpt']}"
        self.excerpts += 1


@pytest.mark.parametrize("tutorial", PAGES)
@pytest.mark.page
def test_a_reader_who_types_along_sees_what_the_page_shows(
    tutorial: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    page = ROOT / "docs" / f"{tutorial}.md"
    reader = Reader(tmp_path, tutorial)
    update = bool(request.config.getoption("--update-golden"))
    count = check_commands(page, reader.execute, update=update, block=BLOCK, on_other=reader.read)
    assert count >= 15
    assert reader.excerpts >= 4
    text = page.read_text(encoding="utf-8")
    assert "## Now yours" in text
    assert "Traceback" not in text


def pooled(x: Array, kind: Any, window: int, stride: int) -> Array:
    """Windows of images in NHWC, without padding; ties of means go away from zero."""
    rows = (x.shape[1] - window) // stride + 1
    columns = (x.shape[2] - window) // stride + 1
    result = np.empty((len(x), rows, columns, x.shape[3]), np.int64)
    for y, column in np.ndindex(rows, columns):
        top, left = y * stride, column * stride
        cut = x[:, top : top + window, left : left + window].astype(np.int64)
        if kind is MaxPool2d:
            result[:, y, column] = cut.max((1, 2))
        else:
            total = cut.sum((1, 2))
            magnitude = (2 * abs(total) + window**2) // (2 * window**2)
            result[:, y, column] = np.sign(total) * magnitude
    return result


@pytest.mark.parametrize("kind", [AveragePool2d, MaxPool2d])
def test_pools_that_the_strawberry_page_adds_are_those_of_numpy(kind: Any, tmp_path: Path) -> None:
    folder = new_backend("strawberry", tmp_path, "strawberry").folder
    page = (ROOT / "docs" / "strawberry.md").read_text(encoding="utf-8")
    (patch,) = [match for match in BLOCK.finditer(page) if match["file"] == "pooling.patch"]
    (tmp_path / "pooling.patch").write_text(patch["text"], encoding="utf-8")
    run(f"patch -d {folder} -p1 < pooling.patch", tmp_path)
    facts = folder / "accel.toml"
    text = facts.read_text(encoding="utf-8")
    facts.write_text(text.replace("[array]", "[array]\npooling_lanes = 4"), encoding="utf-8")

    shape = (7, 8, 11)
    module = network(lambda b, x: pool(x, kind, 3, 2, clip=(-100, 90)), (1, *shape))
    library = compiled(module, [load_backend_folder(folder)], tmp_path)
    assert [row.where for row in library.report.placements] == ["strawberry"]
    x = integers(3, 1, *shape)
    (got,) = run_library(library.path, {"x": x}).outputs.values()
    np.testing.assert_array_equal(got[:, 0], pooled(x[:, 0], kind, 3, 2).clip(-100, 90))
