# SPDX-License-Identifier: Apache-2.0
"""The picture of a memory plan, and the options of `uma compile` about memory."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from umakit.cli.main import run_command

import umakit
from umakit.errors import LibraryError
from umakit.tools.memory_map import draw_memory_map

DIGITS = Path(__file__).parent.parent / "examples" / "digits" / "digits.onnx"
SVG = "{http://www.w3.org/2000/svg}"


def compile_digits(output: Path, *options: str) -> int:
    arguments = ["compile", str(DIGITS), "--backend", "vanilla_accelerator"]
    return run_command([*arguments, "--output", str(output), *options])


@pytest.fixture(scope="module")
def description(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    options = umakit.ExportOptions(
        pools=(umakit.MemoryPool("fast", 5120), umakit.MemoryPool("sram"))
    )
    folder = tmp_path_factory.mktemp("map") / "library"
    backend = umakit.find_backend("vanilla_accelerator")
    library = umakit.compile_model(DIGITS, [backend], folder, options=options)
    return dict(library.metadata["umakit"])


def boxes(svg: Path) -> list[tuple[float, float, float, float]]:
    """Left, right, top and bottom of every filled patch with an outline that is a rectangle."""
    found = []
    for path in ElementTree.parse(svg).iter(f"{SVG}path"):
        corners = [
            tuple(map(float, pair)) for pair in re.findall(r"[ML] (\S+) (\S+)", path.get("d", ""))
        ]
        style = path.get("style", "")
        if len(corners) == 4 and "#404040" in style:
            xs, ys = zip(*corners, strict=True)
            found.append((min(xs), max(xs), min(ys), max(ys)))
    return found


def test_every_tensor_is_a_box_of_its_size(description: dict[str, object], tmp_path: Path) -> None:
    draw_memory_map(description, tmp_path / "map.svg")
    memory = description["memory"]
    assert isinstance(memory, dict)
    tensors = [tensor for pool in memory["pools"] for tensor in pool["tensors"]]
    drawn = boxes(tmp_path / "map.svg")
    assert len(drawn) == len(tensors)
    # Both panels have one scale each; within the first, heights are as the bytes.
    first = memory["pools"][0]["tensors"]
    heights = [bottom - top for _, _, top, bottom in drawn[: len(first)]]
    sizes = [tensor["size_bytes"] for tensor in first]
    np.testing.assert_allclose(
        np.array(heights) / heights[0], np.array(sizes) / sizes[0], rtol=1e-2
    )


def test_no_two_boxes_overlap(description: dict[str, object], tmp_path: Path) -> None:
    draw_memory_map(description, tmp_path / "map.svg")
    drawn = boxes(tmp_path / "map.svg")
    slack = 0.01
    for number, one in enumerate(drawn):
        for other in drawn[:number]:
            apart_in_time = one[1] <= other[0] + slack or other[1] <= one[0] + slack
            apart_in_space = one[3] <= other[2] + slack or other[3] <= one[2] + slack
            assert apart_in_time or apart_in_space, (one, other)


def test_the_picture_names_pools_and_layers(description: dict[str, object], tmp_path: Path) -> None:
    draw_memory_map(description, tmp_path / "map.svg")
    texts = [item.text for item in ElementTree.parse(tmp_path / "map.svg").iter(f"{SVG}text")]
    assert "fast: 4,096 of 5,120 B" in texts
    assert "sram: 4,096 B" in texts
    assert "digits: 8,192 B of working memory, live-set bound 8,192 B" in texts
    assert {"conv1", "conv2 + relu2", "pool1", "dense"} <= set(texts)


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_equal_plans_give_equal_pictures(
    suffix: str, description: dict[str, object], tmp_path: Path
) -> None:
    for name in ("one", "other"):
        draw_memory_map(description, tmp_path / f"{name}.{suffix}")
    one, other = ((tmp_path / f"{name}.{suffix}").read_bytes() for name in ("one", "other"))
    assert one == other
    assert suffix == "svg" or one.startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["map.gif", "map", "missing/map.svg"])
def test_a_picture_that_cannot_be_written_is_refused(
    name: str, description: dict[str, object], tmp_path: Path
) -> None:
    with pytest.raises(LibraryError):
        draw_memory_map(description, tmp_path / name)
    assert not list(tmp_path.iterdir())


# --- the command line ---------------------------------------------------------------------------


def test_uma_compile_takes_pools_a_planner_and_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "map.svg"
    options = ["--pool", "fast=5K", "--pool", "sram,align=64", "--planner", "greedy_by_size"]
    assert compile_digits(tmp_path / "out", *options, "--memory-map", str(picture)) == 0
    printed = capsys.readouterr().out
    assert "  fast: 4,096 of 5,120 B (80.0 %), 8 tensors\n  sram: 4,096 B, 2 tensors\n" in printed
    assert f"Wrote {picture}" in printed
    assert picture.is_file()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--pool", "sram=4K"], "error: memory pool sram: has 4,096 B, the network needs"),
        (["--pool", "sram=8K,align=20"], "error: memory pool sram: alignment 20 is not a power of"),
        (["--pool", "sram=lots"], "error: memory pool 'sram=lots' cannot be read"),
        (["--planner", "magic"], "error: there is no memory planner 'magic'; choose from optimal"),
        (["--weights", "floppy"], "error: weights cannot be written as 'floppy'"),
        (["--memory-map", "map.gif"], "error: map.gif: a memory map is drawn as SVG or PNG"),
        (["--memory-map", "no/such/map.svg"], "error: no/such: no such folder"),
    ],
)
def test_a_mistake_about_memory_is_one_sentence(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compile_digits(tmp_path / "out", *options) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_json_has_the_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compile_digits(tmp_path / "out", "--json") == 0
    memory = json.loads(capsys.readouterr().out)["memory"]
    assert (memory["arena_bytes"], memory["live_set_bound_bytes"]) == (8192, 8192)
    (pool,) = memory["pools"]
    assert (pool["name"], pool["used_bytes"], pool["alignment_bytes"]) == ("workspace", 8192, 16)
