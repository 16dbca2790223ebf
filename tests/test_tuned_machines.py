# SPDX-License-Identifier: Apache-2.0
"""`uma tune` and records for a machine that `accel.toml` describes, with a simulator of its own."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from umakit.cli.main import run_command
from umakit.cli.tune_backend import _view, origin

from umakit.backend import UMABackend, load_backend_folder
from umakit.devices.run import run_library
from umakit.errors import RecordsError
from umakit.pipeline import ExportOptions, compile_model, import_network
from umakit.records.tilings import read_records
from umakit.testing.example_networks import QuantizedNetwork
from umakit.tools.page import html, make_page
from umakit.tools.page.roofline import roofline_of
from umakit.tools.tuning import Effort, TunedLayer, tune_model

LANE_NPU = Path(__file__).parents[1] / "examples" / "lane_npu"


def described(folder: Path, *changes: tuple[str, str]) -> UMABackend:
    """A copy of the example, whose machine `accel.toml` describes, with another text of that."""
    copy = folder / "lane_npu"
    shutil.copytree(LANE_NPU, copy, ignore=shutil.ignore_patterns("__pycache__"))
    path = copy / "accel.toml"
    text = path.read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")
    return load_backend_folder(copy)


@pytest.fixture(scope="module")
def model() -> Any:
    network = QuantizedNetwork(11, 9, 3).conv2d(40, 3, 2).conv2d(40, 3, depthwise=True)
    return network.model("described")


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> UMABackend:
    return described(tmp_path_factory.mktemp("described"))


@pytest.fixture(scope="module")
def tuned(backend: UMABackend, model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tuned") / "records.json"
    layers = tune_model(import_network(model.module), backend, path, effort=Effort(8, 1))
    assert len(layers) == 2
    return path


def test_tuning_measures_on_the_own_simulator_what_it_predicted(
    backend: UMABackend, model: Any, tuned: Path, tmp_path: Path
) -> None:
    records = read_records(tuned)
    for record in records.layers:
        assert record.simulated == record.predicted <= record.default == record.default_simulated
        assert record.bound <= record.predicted
    assert records.owner.backend.hardware is None
    figures = records.owner.backend.machine
    assert figures is not None and figures["figures.lanes"] == 32
    library = compile_model(
        model.module, [backend], tmp_path / "library", options=ExportOptions(records=tuned)
    )
    assert library.metadata["umakit"]["tilings"] == {"layers": 2, "tuned": 2}
    result = run_library(library.path, model.inputs, profile=True)
    for name, values in model.outputs.items():
        np.testing.assert_array_equal(result.outputs[name], values)
    cycles = sum(record.cycles for record in records.layers)
    assert sum(layer.clock_cycles or 0 for layer in result.layers) == cycles


CHANGES = {
    "pipeline = 8 ": ("pipeline = 9 ", "machine with figures.pipeline 8, lane_npu has 9"),
    'banks = 16\nalignment = 4096\nrow_bytes = 32\nholds = ["data"': (
        'banks = 8\nalignment = 4096\nrow_bytes = 32\nholds = ["data"',
        "machine with machine.memories.data.banks 16, lane_npu has 8",
    ),
    "ceil_div(row_bytes, width1)": ("(row_bytes // width1 + 1)", "machine with costs.weights.busy"),
    "job = 13": ("job = 14", "driver with job 13, lane_npu has 14"),
}


@pytest.mark.parametrize("old", CHANGES)
def test_records_of_another_machine_are_refused(
    old: str, model: Any, tuned: Path, tmp_path: Path
) -> None:
    new, message = CHANGES[old]
    other = described(tmp_path, (old, new))
    for attempt in (
        lambda: tune_model(import_network(model.module), other, tuned, effort=Effort(8, 0)),
        lambda: compile_model(
            model.module, [other], tmp_path / "l", options=ExportOptions(records=tuned)
        ),
    ):
        with pytest.raises(
            RecordsError, match=f"records are for {re.escape(message)}.*tune again, into"
        ):
            attempt()


def test_records_without_a_machine_or_with_other_tilings_are_refused(
    model: Any, tuned: Path, tmp_path: Path
) -> None:
    view = json.loads(tuned.read_text(encoding="utf-8"))
    for change, message in {
        "neither": "needs either hardware or machine",
        "tiling": "the tiling of layer 0 .* does not fit",
    }.items():
        edited = json.loads(json.dumps(view))
        if change == "neither":
            del edited["owner"]["backend"]["machine"]
        else:
            edited["layers"][0]["tiling"]["rows"] = 1000
        path = tmp_path / f"{change}.json"
        path.write_text(json.dumps(edited), encoding="utf-8")
        with pytest.raises(RecordsError, match=message):
            compile_model(
                model.module, [described(tmp_path / change)], tmp_path / "l",
                options=ExportOptions(records=path),
            )  # fmt: skip


def test_the_command_says_what_was_measured(
    backend: UMABackend, tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Path(__file__).parents[1] / "examples" / "digits" / "digits_int8.onnx"
    call = ["tune", str(model), "-b", str(backend.folder), "--clock", "2", "--simulate", "0",
            "--records", str(tmp_path / "r.json")]  # fmt: skip
    assert run_command(call) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "All cycles are predicted by the cost model; nothing was measured" in text
    assert run_command([*call, "--json"]) == 0
    layers = json.loads(capsys.readouterr().out)["layers"]
    assert {layer["cycles_are"] for layer in layers} == {"predicted"}
    measured = [TunedLayer(record, 1) for record in read_records(tuned).layers]
    assert {layer["cycles_are"] for layer in _view(tuned, measured)["layers"]} == {"measured"}
    assert origin(measured, "npu") == "All cycles are measured in the simulator of npu"
    some = [TunedLayer(replace(measured[0].record, simulated=None), 1), *measured[1:]]
    assert origin(some, "npu") == (
        "The cycles of 1 of 2 layers are measured in the simulator of npu; those of all others are "
        "predicted by the cost model"
    )


def test_the_roof_of_the_page_is_that_of_the_machine(backend: UMABackend, model: Any) -> None:
    page = make_page(model.module, [backend], inputs=model.inputs)
    (accelerator,) = page.as_json()["accelerators"]
    assert (accelerator["macs_per_cycle"], accelerator["bytes_per_cycle"]) == (32 * 16, 16 + 8)
    drawing = roofline_of(page.accelerators[0], page.layers)
    assert drawing is not None
    text = html(page)
    assert "it does at most 512 multiply-accumulates a cycle" in " ".join(text.split())
    assert "array: 512 MACs/cycle" in text and "copies: 24 bytes/cycle" in text
    for layer in page.layers:
        assert layer.tiled is not None and layer.tiled.predicted_cycles == layer.clock_cycles
        assert layer.tiled.compute_bound == -(-layer.macs // 512)
