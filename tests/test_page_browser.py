# SPDX-License-Identifier: Apache-2.0
"""The page of `uma report` in Chromium: no error, drawings have a size, zoom works, no overlaps."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from tflite_networks import trained_model

import umakit
from umakit.tools.page import html, make_page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
DIGITS = Path(__file__).parents[1] / "examples" / "digits" / "digits_int8.onnx"
PROBE = Path(__file__).with_name("page_probe.js")
FLAGS = """
    --headless --no-sandbox --disable-gpu --disable-background-networking --disable-sync
    --disable-extensions --disable-component-update --disable-default-apps --no-first-run
    --no-default-browser-check --hide-scrollbars --enable-logging=stderr --v=0
""".split()

pytestmark = pytest.mark.skipif(
    CHROMIUM is None and not os.environ.get("UMAKIT_CI"), reason="there is no chromium"
)


def dom(page: Path, *flags: str) -> str:
    """The document after its scripts have run; nothing may be written to the console."""
    assert CHROMIUM is not None, "CI lacks chromium: see .ci/run"
    result = subprocess.run(
        [CHROMIUM, *FLAGS, f"--user-data-dir={page.parent / 'profile'}", *flags, "--dump-dom",
         page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )  # fmt: skip
    assert [line for line in result.stderr.splitlines() if ":CONSOLE" in line] == []
    return result.stdout


@pytest.fixture(scope="module", params=["digits", "resnet8"])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a network with steps on the accelerator and on the CPU."""
    is_small = request.param == "digits"
    model = DIGITS if is_small else trained_model("pretrainedResnet_quant.tflite")
    figures = make_page(model, [umakit.find_backend("chocolate_accelerator")])
    assert {layer.on_cpu for layer in figures.layers} == {False, True}
    path = tmp_path_factory.mktemp("page") / "page.html"
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
    assert len(probed["drawings"]) == 4  # timeline, roofline, arena and scratchpad
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
