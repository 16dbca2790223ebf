# SPDX-License-Identifier: Apache-2.0
"""Accelerators that nothing measures: what is not known is null, never 0, in every command."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from integer_backend import DRIVERS, Npu, conv, integers, network, pool
from umakit.cli.main import run_command
from umakit.cli.report import layer_table
from umakit.cli.tables import profile_table

import umakit
from umakit import find_backend, patterns
from umakit.errors import RecordsError
from umakit.machine import TilePlanner
from umakit.pipeline import import_network
from umakit.tools.accounting import account
from umakit.tools.page import Page, html, make_page
from umakit.tools.tuning import Effort, read_records, tune_model

CHOCOLATE = "chocolate_accelerator"
STRAWBERRY = "strawberry_accelerator"
FIGURES = "device_macs clock_cycles cycles array_cycles dma_cycles moved_bytes".split()
FIGURES += ["register_reads", "register_writes"]


def own_npu(folder: Path, *registrations: Any, planner: bool = True) -> Npu:
    """A backend whose driver brings its own simulator, and costs of a machine like Chocolate."""
    drivers = {name: DRIVERS[name] for name in ("qconv2d", "qmax_pool2d")}
    npu = Npu(folder, registrations or [patterns.qconv2d()], drivers)
    tiling = find_backend(CHOCOLATE).tiling
    assert tiling is not None and npu.configuration.device.simulator == "none"
    if planner:
        npu._register_tiling(TilePlanner(tiling.hardware, tiling.driver))
    return npu


def module() -> Any:
    """A convolution, a pool, and another convolution."""

    def build(builder: Any, x: Any) -> Any:
        pooled = builder.emit(pool(builder.emit(conv(x, 8))))
        return conv(pooled, 8)

    return network(build, (1, 8, 8, 8))


DATA = {"x": integers(1, 8, 8, 8)}


def cells(table: Any, name: str) -> list[str]:
    """A column of a table."""
    (column,) = (each for each in table.columns if each.header == name)
    return list(column.cells)


def texts(page: Page) -> str:
    """The page, and the figures as JSON, which has no numbers that are none."""
    json.loads(json.dumps(page.as_json(), allow_nan=False))
    return html(page)


def test_reports_tell_predictions_from_measurements(tmp_path: Path) -> None:
    npu = own_npu(tmp_path)
    page = make_page(module(), [npu])
    tiled = [layer for layer in page.layers if layer.where == npu.target_name]
    assert len(tiled) == 2 and all(layer.tiled is not None for layer in tiled)
    for layer in page.layers:
        assert layer.clock_cycles is None and layer.moved_bytes is None
        assert layer.ratio is None and layer.difference is None
    assert (page.clock_cycles, page.moved_bytes) == (None, None)
    for total in page.totals:
        assert (total.clock_cycles, total.difference, total.ratio) == (None, None, None)
        assert total.predicted_cycles > total.bound > 0
    assert "0 of 2 layers on accelerators measured, 1 layer on the CPU not included" in texts(page)
    table = layer_table(page)
    assert cells(table, "simulated") == ["-", "", "-"] + ["-" for _ in page.totals]
    assert all(cells(table, "predicted")[number] not in ("", "-") for number in (0, 2))
    assert cells(table, "layer")[-1] == "all tiled layers (0 of 2 measured)"
    view = page.as_json()
    assert [layer["source"] for layer in view["layers"]] == ["predicted", "cpu", "predicted"]
    totals = view["cycle_totals"]
    assert (totals["measured_layers"], totals["clock_cycles"], totals["layers"]) == (0, None, 2)
    own = [layer["predicted_cycles"] for layer in view["layers"]]
    assert own[1] is None and totals["predicted_cycles"] == own[0] + own[2]
    assert totals["predicted_layers"] == 2 and totals["difference_percent"] is None


def test_networks_on_measured_and_other_accelerators_have_no_total(tmp_path: Path) -> None:
    npu = own_npu(tmp_path, patterns.qmax_pool2d(), planner=False)
    backends = [npu, find_backend(STRAWBERRY)]
    page = make_page(module(), backends)
    assert [layer.where for layer in page.layers] == [STRAWBERRY, npu.target_name, STRAWBERRY]
    first, between, last = (layer.clock_cycles for layer in page.layers)
    assert first and last and between is None
    assert page.clock_cycles is None and page.unmeasured == (npu.target_name,)
    assert f"Not measured: {npu.target_name}" in texts(page)
    assert cells(layer_table(page), "simulated") == [f"{first:,}", "-", f"{last:,}"]
    view = page.as_json()
    assert [each["source"] for each in view["layers"]] == ["measured", "unknown", "measured"]
    assert view["cycle_totals"]["clock_cycles"] == first + last
    assert (view["cycle_totals"]["measured_layers"], view["cycle_totals"]["layers"]) == (2, 3)
    library = umakit.compile_model(module(), backends, tmp_path / "library")
    result = umakit.run_library(library.path, DATA, profile=True)
    layers, accounting = result.layers, account(library.metadata["umakit"], result)
    for layer in layers:
        known = [getattr(layer, name) is not None for name in FIGURES]
        assert known == [layer.where == STRAWBERRY] * len(FIGURES)
    column = cells(profile_table(accounting), "cycles")
    assert column[1] == "-"
    total = sum(layer.clock_cycles or 0 for layer in layers if layer.where == STRAWBERRY)
    assert column[-1] == f"{total:,}"
    assert cells(profile_table(accounting), "layer")[-1] == "total of 2 of 3 layers"
    said = f"total: {total:,} cycles (2 of 3 layers on accelerators measured)"
    assert accounting.total_text == said
    assert accounting.clock_cycles == total and accounting.cycles is None
    assert accounting.by_accelerator == {STRAWBERRY: total, npu.target_name: None}


def test_networks_for_the_cpu_have_no_cycles(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert make_page(module(), []).clock_cycles is None
    umakit.compile_model(module(), [], tmp_path / "library")
    np.savez(tmp_path / "in.npz", **DATA)
    command = ["run", str(tmp_path / "library"), "-i", str(tmp_path / "in.npz")]
    assert run_command([*command, "--profile", "--json"]) == 0
    layers = json.loads(capsys.readouterr().out)["layers"]
    assert layers and all(layer[name] is None for layer in layers for name in FIGURES)


def test_tuning_without_a_simulator_goes_by_the_cost_model(tmp_path: Path) -> None:
    npu, path = own_npu(tmp_path), tmp_path / "records.json"
    network = import_network(module())
    seen = tune_model(network, npu, path, effort=Effort(clock=4, simulate=2))
    for record in read_records(path).layers:
        assert record.simulated is None and record.effort == Effort(clock=4, simulate=0)
        assert 0 < record.bound <= record.cycles == record.predicted <= record.default
    # The same call has nothing left to do.
    assert all(each.seen for each in seen)
    again = tune_model(network, npu, path, effort=Effort(clock=4, simulate=2))
    assert not any(each.seen for each in again)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Tuning records as JSON."""
    folder = tmp_path_factory.mktemp("records")
    path = folder / "records.json"
    tune_model(import_network(module()), own_npu(folder), path, effort=Effort(1, 0))
    return json.loads(path.read_text())


@pytest.mark.parametrize("key", ["bound", "default", "predicted", "simulated"])
@pytest.mark.parametrize("value", [0, -3, float("nan"), 1.5, "null"])
def test_records_of_impossible_cycles_are_refused(
    key: str, value: Any, records: Any, tmp_path: Path
) -> None:
    path = tmp_path / "records.json"
    changed = copy.deepcopy(records)
    changed["layers"][0][key] = value
    path.write_text(json.dumps(changed))
    with pytest.raises(RecordsError, match=rf"layers\.0\.{key}.*tune again"):
        read_records(path)
