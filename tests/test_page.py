# SPDX-License-Identifier: Apache-2.0
"""`uma report`: its figures against a run of the library, sums by hand, and the page's HTML."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from html import unescape
from html.parser import HTMLParser
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import Graph, save
from strict import WARNINGS
from test_tile_machines import TwoChannels
from tflite_exactness import random_integers
from tflite_networks import trained_model
from umakit.cli.main import run_command

import umakit
from umakit.devices.run import CommandTimes, run_library
from umakit.library.export import Library
from umakit.partition.report import OffloadReport
from umakit.pipeline import import_network
from umakit.records.owners import Owner
from umakit.records.tilings import Effort, Record, Records
from umakit.testing.example_networks import QuantizedNetwork
from umakit.tools.page import Page, html, make_page
from umakit.tools.page.collect import describe_bottleneck, page_of
from umakit.tools.page.engines import Engines
from umakit.tools.page.roofline import roofline_of
from umakit.tools.page.timeline import Merged, Timeline, merged, ticks, timeline_of
from umakit.tools.page.writing import panels_of
from umakit.tools.record import LayerRecord, Spent, TiledLayer

CHOCOLATE = "chocolate_accelerator"
DIGITS = Path(__file__).parents[1] / "examples" / "digits" / "digits_int8.onnx"
TRAINED = ("pretrainedResnet_quant.tflite", "kws_ref_model.tflite", "ad01_int8.tflite")
VOID = ("meta", "link", "br", "wbr")
SLIPS = ("<b>", "&", '"', "'", "</script><script>alert(1)</script>", "{{ 7 * 7 }}")


@dataclass(frozen=True)
class Reported:
    """A page, and the library that it is about."""

    page: Page
    library: Library
    backend: umakit.UMABackend


@pytest.fixture(scope="module", params=TRAINED)
def reported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Reported:
    model, backend = trained_model(request.param), umakit.find_backend(CHOCOLATE)
    folder = tmp_path_factory.mktemp("page") / "library"
    library = umakit.compile_model(model, [backend], folder)
    (item,) = library.metadata["umakit"]["inputs"]
    inputs = {item["name"]: random_integers(item["shape"], seed=0)}
    result = run_library(folder, inputs, profile=True, record_commands=True)
    return Reported(page_of(model.name, library, [backend], result, "drawn"), library, backend)


@pytest.fixture(scope="module")
def trained(reported: Reported) -> Page:
    return reported.page


@pytest.fixture(scope="module")
def page() -> Page:
    network = QuantizedNetwork(16, 12, 3).conv2d(16).conv2d(16, stride=2, depthwise=True)
    model = network.conv2d(24, kernel=1).dense(10).model()
    return make_page(model.module, [umakit.find_backend(CHOCOLATE)])


# --- figures ------------------------------------------------------------------------------------


def test_predicted_cycles_are_the_simulated_ones(trained: Page) -> None:
    differences = {layer.name: layer.difference for layer in trained.tiled}
    assert len(differences) == sum(not layer.on_cpu for layer in trained.layers)
    assert all(difference is not None for difference in differences.values())
    assert max(abs(difference or 0.0) for difference in differences.values()) <= 2


def test_the_cycles_are_those_of_a_run(page: Page, tmp_path: Path) -> None:
    network = QuantizedNetwork(16, 12, 3).conv2d(16).conv2d(16, stride=2, depthwise=True)
    model = network.conv2d(24, kernel=1).dense(10).model()
    umakit.compile_model(model.module, [umakit.find_backend(CHOCOLATE)], tmp_path / "library")
    run = umakit.run_library(tmp_path / "library", model.inputs, profile=True)
    assert [layer.clock_cycles for layer in page.layers] == [
        layer.clock_cycles for layer in run.layers
    ]
    assert all(
        layer.clock_cycles >= layer.cycles > 0
        for layer in run.layers
        if layer.where == CHOCOLATE
    )  # fmt: skip
    assert [layer.commands for layer in run.layers] == [()] * len(run.layers)
    assert page.clock_cycles == sum(layer.clock_cycles for layer in run.layers)
    assert page.moved_bytes == sum(layer.moved_bytes for layer in run.layers)


def test_bounds_are_those_of_a_calculation_by_hand(page: Page) -> None:
    weights = [16 * 27, 16 * 9, 24 * 16, 10 * 6 * 8 * 24]  # of the network, not whole blocks
    channels = [16, 16, 24, 10]
    sizes = [(16 * 12 * 3, 16 * 12 * 16), (16 * 12 * 16, 8 * 6 * 16), (8 * 6 * 16, 8 * 6 * 24)]
    sizes.append((8 * 6 * 24, 10))
    macs = [16 * 12 * 16 * 27, 8 * 6 * 16 * 9, 8 * 6 * 24 * 16, 8 * 6 * 24 * 10]
    assert [layer.macs for layer in page.tiled] == macs
    assert [layer.tiled.compute_bound for layer in page.tiled if layer.tiled] == [
        math.ceil(count / 256) for count in macs
    ]
    for layer, stored, count, ends in zip(page.tiled, weights, channels, sizes, strict=True):
        assert layer.tiled is not None
        # Bias, multiplier and shift: the drawn networks have one scale for all channels.
        least = stored + 4 * count + sum(ends)
        assert least / 32 <= layer.tiled.memory_bound <= (least + 5 * count) / 32 + 1


def test_operators_without_a_step_need_no_code(page: Page) -> None:
    """The dense layer reads the image as a row: a reshape, which no step computes."""
    assert not any(layer.on_cpu for layer in page.layers)
    assert page.offloaded_text == "4 of 5 operators offloaded, 1 needs no code"
    assert page.offloaded_text in check_html(html(page))


def test_what_the_array_does_adds_up_and_names_what_holds_a_layer(trained: Page) -> None:
    for layer in trained.tiled:
        assert layer.tiled is not None and layer.ratio is not None
        spent = layer.tiled.spent
        parts = (
            spent.full_array, spent.partial_array, spent.drain, spent.loads, spent.stores,
            spent.driver,
        )  # fmt: skip
        assert sum(parts) == layer.tiled.predicted_cycles
        assert min(parts) >= 0
        assert layer.ratio >= 1
        assert bool(layer.explanation) == (layer.clock_cycles > 1.15 * layer.tiled.bound)
        worst = dict(zip(("array", "drain", "loads", "stores", "driver"), parts[1:], strict=True))
        assert worst[spent.bottleneck] == max(parts[1:])
        if layer.explanation:
            assert layer.explanation.startswith(f"{spent.bottleneck}: ")


# Simulated cycles over the bound of the network, as they were computed by hand.
RATIOS = {"pretrainedResnet_quant": 1.06, "kws_ref_model": 1.34, "ad01_int8": 1.37}


def test_simulated_cycles_are_above_every_bound(trained: Page) -> None:
    (bounds,) = trained.bounds
    assert [each.name for each in bounds.bounds] == ["network", "scratchpad", "layers", "arrays"]
    known = [each.cycles for each in bounds.bounds]
    assert known == sorted(known) and bounds.clock_cycles == trained.clock_cycles
    for each in bounds.bounds:
        assert each.ratio == trained.clock_cycles / each.cycles and each.ratio >= 1
    assert round(bounds.bounds[0].ratio, 2) == RATIOS[trained.model.partition(".")[0]]
    assert known[2] == trained.totals[-1].bound
    text = html(trained)
    assert f"cycles / bound of the network</dt><dd>{bounds.bounds[0].ratio:.3f}<" in text
    assert f"cycles / sum of layers&rsquo; bounds</dt><dd>{bounds.bounds[2].ratio:.3f}<" in text


def test_what_a_layer_loses_adds_up_to_its_cycles_above_its_bound(trained: Page) -> None:
    text = check_html(html(trained))
    figures = [layer for layer in trained.as_json()["layers"] if layer["tiled"]]
    for layer in figures:
        bounds = layer["tiled"]["bounds"]
        parts = bounds["losses"]["parts"]
        assert layer["tiled"]["bound"] <= bounds["array"]["cycles"] <= layer["clock_cycles"]
        lost = layer["clock_cycles"] - layer["tiled"]["bound"]
        assert sum(part["cycles"] for part in parts) == lost
        assert all(part["cycles"] > 0 for part in parts) and bounds["unknown"] == {}
        by_array = layer["tiled"]["compute_bound"] >= layer["tiled"]["memory_bound"]
        assert bounds["losses"]["bound_by"] == ("array" if by_array else "bus")
        parts_of = dict(layer["tiled"]["spent"])
        parts_of["array"] = parts_of.pop("partial_array")
        del parts_of["full_array"]
        assert parts_of[layer["tiled"]["bottleneck"]] == max(parts_of.values())
        causes = (f"{p['cause'].replace('_', ' ')}\xa0{p['cycles']:,}" for p in parts)
        shown = f"{lost:,} {bounds['losses']['bound_by']}: {', '.join(causes)}"
        assert " ".join(shown.split()) in text


@pytest.mark.parametrize(
    ("spent", "text"),
    [
        (Spent(9, 1, 0, 80, 7, 3), "loader: array waits 70 cycles for weights and parameters, "
         "of 80 for all loads"),
        (Spent(9, 1, 0, 6, 80, 4), "dma: array waits 80 cycles for the result"),
        (Spent(9, 80, 0, 6, 4, 1), "array: 10 % of its peak in 89 cycles of work"),
        (Spent(9, 1, 80, 6, 3, 1), "drain: for 80 cycles results leave array and nothing enters"),
        (Spent(9, 1, 0, 6, 3, 81), "driver: array waits 81 cycles for register accesses"),
    ],
)  # fmt: skip
def test_engines_of_described_machines_have_their_names(spent: Spent, text: str) -> None:
    machine = TwoChannels()
    engines = Engines.of(machine)
    assert engines is not None
    waits = {machine.stream_of("data"): 10, machine.stream_of("weights"): 70}
    waits[machine.stream_of("result")] = spent.stores
    tiled = TiledLayer("", "output_stationary", 1, True, 100, 9, 4, spent, waits)
    layer = LayerRecord("layer", "conv", "two", None, "convolution", 576, 100, None, tiled=tiled)
    layer = replace(layer, explanation=describe_bottleneck(layer, 64, engines))
    assert layer.explanation == text
    assert layer.bottleneck == text.split(":")[0]


def test_totals_are_sums_over_convolutions_and_over_all(trained: Page) -> None:
    convolutions = [layer for layer in trained.tiled if "convolution" in layer.kind]
    groups = [convolutions, list(trained.tiled)] if convolutions else [list(trained.tiled)]
    assert len(trained.totals) == len(groups)
    for total, layers in zip(trained.totals, groups, strict=True):
        assert total.layers == len(layers)
        assert total.clock_cycles == sum(layer.clock_cycles for layer in layers)
        assert total.macs == sum(layer.macs for layer in layers)
        bound = sum(layer.tiled.bound for layer in layers if layer.tiled)
        assert total.ratio == pytest.approx(total.clock_cycles / bound)
        assert total.spent.cycles == total.predicted_cycles


def test_networks_without_macs_or_backends_have_a_page_too(tmp_path: Path) -> None:
    graph = Graph()
    graph.output(graph.node("Relu", graph.input("x", 1, 4)))
    page = make_page(save(graph.model(), tmp_path), [])
    assert page.offloaded_share is None
    assert page.clock_cycles is None and page.moved_bytes is None and page.totals == ()
    text = html(page)
    assert "No layer runs on a simulated accelerator" in text
    assert check_html(text)


def test_tilings_of_records_are_those_of_the_page(tmp_path: Path) -> None:
    backend = umakit.find_backend(CHOCOLATE)
    assert backend.tiling is not None
    default = make_page(DIGITS, [backend])
    program = umakit.compile_model(DIGITS, [backend], tmp_path / "library").program
    assert program is not None
    layers = program.planned[CHOCOLATE].layers
    model = import_network(DIGITS).model
    records = Records(Owner.of(model, CHOCOLATE, backend.tiling))
    for layer in layers:
        chosen = backend.tiling.default(layer)
        assert chosen is not None
        single = replace(chosen, buffers=1)
        records = records.with_record(Record(layer, (), single, 1, 1, 1, None, Effort()))
    records.write(tmp_path / "records.json")
    options = umakit.ExportOptions(records=tmp_path / "records.json")
    tuned = make_page(DIGITS, [backend], options=options)
    assert default.tilings != tuned.tilings == f"tuned for {len(layers)} of {len(layers)} layers"
    for before, after in zip(default.tiled, tuned.tiled, strict=True):
        assert before.tiled is not None and after.tiled is not None
        assert after.difference == pytest.approx(0, abs=2)
        assert not after.tiled.double_buffered
        assert after.clock_cycles >= before.clock_cycles
    assert tuned.clock_cycles > default.clock_cycles


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_the_program_that_records_is_clean_c(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    library = tmp_path / "library"
    umakit.compile_model(DIGITS, [umakit.find_backend(CHOCOLATE)], library)
    flags = ["-std=c99", "-O1", *WARNINGS]
    prefix = "TVMGEN_DIGITS_INT8"
    macros = [f"-D{prefix}_PROFILE", f"-D{prefix}_TIMELINE=2u"]
    for added in ([], macros[:1], macros):
        result = subprocess.run(
            [compiler, *flags, *added, "-c", library / "runtime" / "main.c", "-o", "main.o"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stderr


def test_commands_that_are_not_kept_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = umakit.compile_model(DIGITS, [umakit.find_backend(CHOCOLATE)], tmp_path / "library")
    inputs = {"image": np.zeros((1, 1, 8, 8), np.float32)}
    whole = run_library(library.path, inputs, profile=True, record_commands=True)
    monkeypatch.setattr("umakit.devices.run.MOST_COMMANDS", 5)
    cut = run_library(library.path, inputs, profile=True, record_commands=True)
    for all_, few in zip(whole.layers, cut.layers, strict=True):
        assert all_.commands_left_out == 0
        assert len(few.commands) == min(5, len(all_.commands))
        assert few.commands_left_out == len(all_.commands) - len(few.commands)
        assert set(few.commands) <= set(all_.commands)


# --- drawings -----------------------------------------------------------------------------------


def recorded(page: Page) -> Timeline:
    timeline = timeline_of(page.layers)
    assert timeline is not None
    return timeline


def test_the_simulator_does_what_the_clock_predicts_command_by_command(reported: Reported) -> None:
    planner, program = reported.backend.tiling, reported.library.program
    assert planner is not None and program is not None
    for call, layer in zip(program.calls, reported.page.layers, strict=True):
        known = program.kernels[call.kernel].composite
        assert (known is None) == layer.on_cpu
        if known is None:
            assert layer.commands == ()
            continue
        run = planner.predict(planner.tiles_of(known)).run
        predicted = [
            (span.start, command.stream, span.busy_end, span.completion)
            for command, span in zip(run.commands, run.timeline, strict=True)
        ]
        assert sorted(predicted) == sorted(
            (each.start, each.stream, each.busy_end, each.completion) for each in layer.commands
        )


def test_layers_follow_each_other_on_one_clock(trained: Page) -> None:
    timeline = recorded(trained)
    assert timeline.cycles == trained.clock_cycles
    assert [band.start for band in timeline.bands] == [
        0, *(band.end for band in timeline.bands[:-1])
    ]  # fmt: skip
    assert timeline.bands[-1].end == timeline.cycles
    assert len(timeline.bars) == sum(len(layer.commands) for layer in trained.layers)
    dma = sorted((bar.start, bar.busy_end) for bar in timeline.bars if bar.stream != "array")
    assert all(first[1] <= second[0] for first, second in pairwise(dma))
    on_cpu = {str(layer.number) for layer in trained.layers if layer.on_cpu}
    named = {number for mark in timeline.marks for number in re.findall(r"^\d+", mark.title, re.M)}
    assert named == on_cpu


def test_very_many_commands_are_drawn_as_fewer(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = [CommandTimes("load", 10 * n, 10 * n + 4, 10 * n + 6) for n in range(6)]
    commands.append(CommandTimes("array", 12, 90, 99))
    assert [(each.start, each.count) for each in merged(commands, 1)] == [
        (command.start, 1) for command in commands
    ]
    assert merged(commands, 32) == [
        Merged("load", 0, 34, 36, 16, 4),
        Merged("load", 40, 54, 56, 8, 2),
        Merged("array", 12, 90, 99, 78, 1),
    ]
    whole = recorded(page)
    assert whole.resolution == 1 and {bar.opacity for bar in whole.bars} == {1}
    monkeypatch.setattr("umakit.tools.page.timeline.MOST_BARS", 20)
    fewer = recorded(page)
    assert fewer.resolution > 1 and len(fewer.bars) <= 20
    assert min(bar.start for bar in fewer.bars) == min(bar.start for bar in whole.bars)
    assert max(bar.completion for bar in fewer.bars) == max(bar.completion for bar in whole.bars)
    assert all(0.25 <= bar.opacity <= 1 for bar in fewer.bars)
    text = check_html(html(page))
    assert f"start in the same {fewer.resolution:,} cycles are drawn as one" in text


@pytest.mark.parametrize("total", [1, 3, 9, 10, 100, 999, 52_636, 10**9])
def test_ticks_are_round_and_few(total: int) -> None:
    found = ticks(total)
    step = (*found, 1)[1] or 1
    assert len(found) <= 9 and found[0] == 0 and found[-1] <= total < found[-1] + max(step, 1)
    assert all(b - a == found[1] for a, b in pairwise(found))
    assert str(found[-1] // max(len(found) - 1, 1)).strip("0") in ("1", "2", "5", "")


def test_points_lie_under_the_roof(trained: Page) -> None:
    (accelerator,) = trained.accelerators
    drawing = roofline_of(accelerator, trained.layers)
    assert drawing is not None
    (left, low), (_, top), (right, flat) = drawing.roof
    assert top == flat
    for point in drawing.points:
        slope = low + (point.x - left) * (top - low) / (drawing.roof[1][0] - left)
        assert point.y >= max(slope, top) - 0.01  # pixels count from the top
        assert left <= point.x <= right
    numbers = {int(n) for p in drawing.points for n in re.findall(r"^\d+", p.title, re.M)}
    assert numbers == {layer.number for layer in trained.layers if layer.macs and not layer.on_cpu}
    labels = [point.label for point in drawing.points if point.label.text]
    assert not any(first.overlaps(second) for first, second in combinations(labels, 2))


def test_the_memory_map_shows_every_tensor_where_it_lies(trained: Page) -> None:
    panels = panels_of(trained.memory, trained.buffers, len(trained.layers))
    pools = [*trained.memory["pools"], *trained.memory["scratchpads"]]
    for panel, pool in zip(panels, pools, strict=True):
        assert len(panel.boxes) == len(pool["tensors"])
        for box, tensor in zip(panel.boxes, pool["tensors"], strict=True):
            share = tensor["size_bytes"] / pool["used_bytes"]
            assert box.height == pytest.approx(share * 250)
            assert box.y + box.height == pytest.approx(
                250 - tensor["offset_bytes"] / pool["used_bytes"] * 250
            )
        for first, second in combinations(panel.boxes, 2):
            across = min(first.x + first.width, second.x + second.width) - max(first.x, second.x)
            down = min(first.y + first.height, second.y + second.height) - max(first.y, second.y)
            assert min(across, down) < 1e-6
    kinds = {box.kind for box in panels[-1].boxes}
    assert {"data", "weights", "parameters", "result"} <= kinds


# --- the page -----------------------------------------------------------------------------------


class Checker(HTMLParser):
    """Follows elements to their ends, and notes what a browser would load."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        assert len(values) == len(attrs), f"<{tag}> has an attribute twice"
        for name in ("src", "href", "srcset", "data", "action", "poster", "xlink:href"):
            value = values.get(name) or ""
            if value.startswith("#"):
                self.targets.append(value[1:])
            elif value and not value.startswith("data:,"):
                self.loads.append(value)
        if values.get("id"):
            self.ids.append(str(values["id"]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def check_html(text: str) -> str:
    """The text of a page that is well-formed and loads nothing."""
    checker = Checker()
    checker.feed(text)
    checker.close()
    assert text.startswith("<!DOCTYPE html>")
    assert checker.open == []
    assert checker.loads == []
    assert len(checker.ids) == len(set(checker.ids))
    assert set(checker.targets) <= set(checker.ids)
    assert not re.search(r"https?:|url\(|@import|<iframe|<object|<embed|fetch\(|XMLHttp", text)
    return " ".join("".join(checker.text).split())


def test_the_page_is_whole_and_loads_nothing(trained: Page) -> None:
    text = check_html(html(trained))
    for layer in trained.layers:
        assert f"{layer.name}" in text
        assert layer.explanation in text
        if layer.tiled:
            assert f"{layer.clock_cycles:,} {layer.tiled.predicted_cycles:,}" in text
            assert layer.tiled.tiling in text
    for row in trained.offload.placements:
        assert row.name in text and row.reason in text
    assert trained.fingerprint in text
    assert f"{trained.clock_cycles:,}" in text and f"{trained.moved_bytes:,}" in text


def named(page: Page, name: str) -> Page:
    """The same page of a model whose layers have another name."""
    rows = tuple(
        replace(row, name=f"{name} {row.name}", reason=f"no {name}")
        for row in page.offload.placements
    )
    layers = tuple(
        replace(layer, name=f"{name} {layer.name}", operators=(name,)) for layer in page.layers
    )
    memory = json.loads(json.dumps(page.memory))
    for pool in [*memory["pools"], *memory["scratchpads"]]:
        for tensor in pool["tensors"]:
            tensor["name"] = f"{name} {tensor['name']}"
    between = page.accounting.rows[len(layers) :]
    return replace(
        page, offload=OffloadReport(rows), memory=memory, model=f"{name}.onnx",
        accounting=replace(page.accounting, rows=(*layers, *between)),
        notices=(name,), inputs=name,
    )  # fmt: skip


@pytest.mark.parametrize("name", SLIPS)
def test_special_characters_stay_what_they_are(page: Page, name: str) -> None:
    plain, changed = html(named(page, "plain")), html(named(page, name))
    text = check_html(changed)
    assert " ".join(f"{name} {page.layers[0].name}".split()) in text
    assert f"no {name}" in text
    tags = re.compile(r"<(?!wbr)(/?[a-z]+)")
    assert tags.findall(changed) == tags.findall(plain)
    attribute = re.search(r'data-name="([^"]*)"', changed)
    assert attribute is not None and unescape(attribute[1]).startswith(name)


def test_what_a_backend_does_not_tell_is_left_out_by_a_sentence(tmp_path: Path) -> None:
    graph = Graph()
    x = graph.conv(graph.input("image", 1, 2, 6, 6), 4, name="a<b>&'c'")
    graph.output(graph.node("Softmax", graph.node("Flatten", x), name="d"))
    page = make_page(save(graph.model(), tmp_path), [umakit.find_backend("vanilla_accelerator")])
    assert page.clock_cycles > 0 and page.totals == () and page.tiled == ()
    text = check_html(html(page))
    assert "cuts no layers into tiles" in text
    assert "does not record when its commands run" in text
    assert "has no DMA engine" in text
    (bounds,) = page.bounds
    network, *others = bounds.as_json()["bounds"]
    assert network["cycles"] == network["compute"] == -(-4 * 6 * 6 * 2 * 9 // 64)
    assert network["memory"] is None and "[dma]" in network["unknown"][0]
    assert network["bytes"] is None and "bytes: nothing says what 1 of" in network["unknown"][1]
    assert "needs no code" not in page.offloaded_text  # the reshape is in a step on the CPU
    assert network["ratio"] == page.clock_cycles / network["cycles"] >= 1
    for each in others:
        assert each["cycles"] is None and each["ratio"] is None and each["unknown"]
        assert each["unknown"][0] in text
    assert bounds.share == 1 and bounds.not_counted == ("a<b>&'c'",)
    assert "a<b>&'c'" in text
    for row in page.offload.placements:
        assert row.reason in text


# --- the command --------------------------------------------------------------------------------


def test_the_command_prints_and_writes_the_same_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    output = tmp_path / "digits.html"
    arguments = ["report", str(DIGITS), "--backend", CHOCOLATE]
    assert run_command([*arguments, "-o", str(output)]) == 0
    printed = capsys.readouterr().out
    assert run_command([*arguments, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert [path.name for path in tmp_path.iterdir()] == ["digits.html"]
    text = check_html(output.read_text(encoding="utf-8"))
    for layer in figures["layers"]:
        assert layer["name"] in printed and layer["name"] in text
        if layer["tiled"]:
            row = next(line for line in printed.splitlines() if line.startswith(layer["name"]))
            simulated, predicted = layer["clock_cycles"], layer["tiled"]["predicted_cycles"]
            assert f"{simulated:,}" in row and f"{predicted:,}" in row
            assert {command[0] for command in layer["commands"]} == {"load", "array", "store"}
    assert figures["clock_cycles"] == sum(layer["clock_cycles"] for layer in figures["layers"])
    assert figures["model_sha256"] in text


def test_given_inputs_are_averaged_and_named(tmp_path: Path, capsys: Any) -> None:
    inputs = tmp_path / "three.npz"
    np.savez(inputs, image=np.zeros((3, 1, 1, 8, 8), np.float32), labels=np.zeros(3))
    arguments = ["report", str(DIGITS), "--backend", CHOCOLATE, "--inputs", str(inputs), "--json"]
    assert run_command(arguments) == 0
    given = json.loads(capsys.readouterr().out)
    assert given["inputs"] == "three.npz"
    assert given["clock_cycles"] == make_page(DIGITS, [umakit.find_backend(CHOCOLATE)]).clock_cycles


def wrong_arguments(folder: Path) -> Iterator[tuple[list[str], str]]:
    yield ["-o", str(folder / "missing" / "page.html")], "no such folder"
    yield ["-o", str(folder)], "is a folder"
    yield ["--inputs", str(folder / "missing.npz")], "no such file"
    yield ["--backend", "nothing"], "nothing"
    wrong = folder / "wrong.npz"
    np.savez(wrong, image=np.zeros((1, 1, 7, 8), np.float32))
    yield ["--inputs", str(wrong), "-o", str(folder / "page.html")], "has shape"


def test_mistakes_are_one_sentence_and_write_nothing(tmp_path: Path, capsys: Any) -> None:
    for arguments, words in wrong_arguments(tmp_path):
        assert run_command(["report", str(DIGITS), *arguments]) == 2
        error = capsys.readouterr().err
        assert words in error and "Traceback" not in error
    assert [path.name for path in tmp_path.iterdir()] == ["wrong.npz"]


def test_figures_of_layers_without_cycles_are_missing() -> None:
    layer = LayerRecord("cpu step", "x", "cpu", None, "", 0, 0, None)
    assert layer.ratio is None and layer.difference is None and layer.macs_per_cycle is None
