# SPDX-License-Identifier: Apache-2.0
"""The page of `uma report` in Chromium: on a screen, on a phone, on paper, and without a script.

The networks have few layers, and about 150.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from html import escape, unescape
from pathlib import Path
from typing import Any

import onnx
import pytest
from qdq import Qdq

import umakit
from umakit.tools.page import html, make_page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
DIGITS = Path(__file__).parents[1] / "examples" / "digits" / "digits_int8.onnx"
PROBE = Path(__file__).with_name("page_probe.js")
WIDTHS = Path(__file__).with_name("page_widths.js")
PAPER = 711
"""Width of a page of A4 between its margins in pixels."""

SECTIONS = [
    "summary", "layers", "bounds", "owners", "events", "timeline", "roofline", "memory", "offload",
    "names",
]  # fmt: skip
FLAGS = """
    --headless --no-sandbox --disable-gpu --disable-background-networking --disable-sync
    --disable-extensions --disable-component-update --disable-default-apps --no-first-run
    --no-default-browser-check --hide-scrollbars --enable-logging=stderr --v=0
""".split()

pytestmark = pytest.mark.skipif(
    CHROMIUM is None and not os.environ.get("UMAKIT_CI"), reason="there is no chromium"
)


def chromium(page: Path, *flags: str) -> str:
    """What Chromium prints of a page; nothing may be written to the console."""
    assert CHROMIUM is not None, "CI lacks chromium: see .ci/run"
    result = subprocess.run(
        [CHROMIUM, *FLAGS, f"--user-data-dir={page.parent / 'profile'}", *flags,
         page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )  # fmt: skip
    assert [line for line in result.stderr.splitlines() if ":CONSOLE" in line] == []
    return result.stdout


def dom(page: Path, *flags: str) -> str:
    """The document after its scripts have run."""
    return chromium(page, *flags, "--dump-dom")


def long_network(folder: Path) -> Path:
    """A quantized network of 150 layers whose names are long, every fourth on the CPU."""
    graph = Qdq("int8", 1)
    x = graph.input((1, 8, 8, 8), 0.05, 0)

    def quantized(result: str, name: str) -> tuple[str, str]:
        graph.nodes[-1].name = name
        result = graph.quantize(result, 0.05, 0)
        return result, graph.dequantize(result, 0.05, 0, "int8")

    def conv(x: str, name: str, channels: int, *shape: int, group: int = 1) -> str:
        weights, scale = graph.weights((channels, *shape), "int8", per_channel=True)
        bias = graph.bias(channels, 0.05 * scale)
        pads = [shape[-1] // 2] * 4
        return quantized(graph.node("Conv", x, weights, bias, pads=pads, group=group), name)[1]

    result = ""
    for block in range(37):
        module, skip = f"/model/backbone/features/features.{block}", x
        wide = 24 if block % 2 else 16
        x = conv(x, f"{module}/conv/conv.0/conv.0.0/Conv", wide, 8, 1, 1)
        x = conv(x, f"{module}/conv/conv.1/depthwise_convolution/Conv", wide, 1, 3, 3, group=wide)
        x = conv(x, f"{module}/conv/conv.2/{'pointwise_' * 5}Conv", 8, wide, 1, 1)
        result, x = quantized(graph.node("Add", skip, x), f"{module}/residual/Add")
    onnx.save(graph.model(result), folder / "long.onnx")
    return folder / "long.onnx"


@pytest.fixture(scope="module", params=["digits", "long"])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a network with steps on the accelerator and on the CPU."""
    folder = tmp_path_factory.mktemp(request.param)
    model = DIGITS if request.param == "digits" else long_network(folder)
    figures = make_page(model, [umakit.find_backend("chocolate_accelerator")])
    assert {layer.on_cpu for layer in figures.layers} == {False, True}
    assert len(figures.layers) == (8 if request.param == "digits" else 150)
    path = folder / f"{request.param}.html"
    path.write_text(html(figures), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def probed(page: Path) -> dict[str, Any]:
    """What the probe found."""
    script = f"<script>{PROBE.read_text(encoding='utf-8')}</script></body>"
    path = page.with_name("probed.html")
    path.write_text(page.read_text(encoding="utf-8").replace("</body>", script), encoding="utf-8")
    match = re.search(r'<pre id="probe">(.*?)</pre>', dom(path, "--window-size=1280,4000"), re.S)
    assert match is not None
    found: dict[str, Any] = json.loads(unescape(match[1]))
    return found


def test_the_script_runs_to_its_end(page: Path) -> None:
    assert re.search(r'<html[^>]* data-script="ready"', dom(page))


def test_drawings_have_a_size_and_nothing_hangs_over_the_page(probed: dict[str, Any]) -> None:
    strips = len(probed["drawings"]) - 2  # of the arena and the scratchpad
    assert strips in (2, 8)
    for drawing in probed["drawings"]:
        assert drawing["width"] > 500 and drawing["height"] > 100
    assert probed["pageWidth"] <= 1280


def test_labels_do_not_cover_each_other(probed: dict[str, Any]) -> None:
    assert probed["labels"] > 20
    assert probed["overlaps"] == []


def test_the_timeline_zooms_and_moves(probed: dict[str, Any]) -> None:
    zoom = probed["zoom"]
    cycles = zoom["all"][1]
    assert zoom["all"] == [0, cycles]
    assert zoom["in"] == [cycles / 4, cycles / 2]
    start, end = zoom["second"]
    assert zoom["layer"] == [start, end - start]
    moved, width = zoom["dragged"]
    assert width == end - start and start < moved < end
    wheel_start, wheel_width = zoom["wheel"]
    assert wheel_width == pytest.approx(0.8 * width)
    assert moved <= wheel_start <= moved + width
    assert zoom["out"] == [0, cycles]
    assert zoom["overlaps"] == []
    assert zoom["ticks"][0] >= start and zoom["ticks"][-1] <= end


def test_it_reads_without_a_script(page: Path) -> None:
    path = page.with_name("plain.html")
    text = re.sub(r"<script>.*?</script>", "", page.read_text(encoding="utf-8"), flags=re.S)
    path.write_text(text, encoding="utf-8")
    document = dom(path)
    assert "data-script" not in document
    assert re.search(r'<div class="controls" hidden', document)
    assert 'class="band' in document and 'class="tick"' in document


@pytest.fixture(scope="module")
def seen(page: Path) -> dict[str, Any]:
    """What each of several widths shows: a phone, a screen, and the style of paper."""
    text = page.read_text(encoding="utf-8")
    assert text.count("@media print") == text.count("@media screen and (max-width: 720px)") == 1
    paper = text.replace("@media print", "@media all").replace("@media screen", "@media not all")
    frames = [("phone", 390, text), ("screen", 1280, text), ("paper", PAPER, paper)]
    views = "".join(
        f'<iframe id="{name}" width="{width}" height="800" style="border: 0" '
        f'srcdoc="{escape(each)}"></iframe>'
        for name, width, each in frames
    )
    script = WIDTHS.read_text(encoding="utf-8")
    path = page.with_name("widths.html")
    path.write_text(f"<!DOCTYPE html><meta charset='utf-8'>{views}<script>{script}</script>",
                    encoding="utf-8")  # fmt: skip
    match = re.search(r'<pre id="probe">(.*?)</pre>', dom(path, "--window-size=1600,900"), re.S)
    assert match is not None
    found: dict[str, Any] = json.loads(unescape(match[1]))
    return found


@pytest.mark.parametrize(("view", "width"), [("phone", 390), ("screen", 1280), ("paper", PAPER)])
def test_each_width_shows_all_sections_and_nothing_hangs_over(
    seen: dict[str, Any], view: str, width: int
) -> None:
    found = seen[view]
    assert found["pageWidth"] <= width and found["outside"] == []
    assert [name for name, _, _ in found["sections"]] == found["links"] == SECTIONS
    assert all(height > heading + 20 for _, height, heading in found["sections"])
    assert found["loaded"] == []
    if view == "paper":
        assert found["wider"] == 0, "columns are cut off"
        assert found["letters"] >= 6
    else:
        assert found["letters"] >= 8


def test_headers_totals_and_names_stay_where_tables_scroll(
    seen: dict[str, Any], page: Path
) -> None:
    assert seen["paper"]["stays"] is None  # on paper nothing scrolls
    for view in ("phone", "screen"):
        assert seen[view]["tallest"] <= 700  # of 800
        if page.stem == "long":
            stays = seen[view]["stays"]
            assert abs(stays["head"]) < 1 and abs(stays["foot"]) <= 15  # above a scroll bar
    if page.stem == "long":
        assert seen["phone"]["stays"]["moved"] == 90
        assert abs(seen["phone"]["stays"]["name"]) < 1


def test_it_prints_on_few_pages(page: Path) -> None:
    printed = page.with_suffix(".pdf")
    chromium(page, "--no-pdf-header-footer", f"--print-to-pdf={printed}")
    pages = len(re.findall(rb"/Type /Page\b(?!s)", printed.read_bytes()))
    assert 3 <= pages <= (6 if page.stem == "digits" else 45)
