# SPDX-License-Identifier: Apache-2.0
"""A backend whose planner predicts in its own way: tuning, records and reports use that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from comparisons import some

from umakit.backend import UMABackend
from umakit.backend.registry import load_backend_folder
from umakit.errors import BackendError
from umakit.machine import Tiling
from umakit.machine.selection import search_space
from umakit.pipeline import import_network
from umakit.records.tilings import read_records
from umakit.testing.example_networks import QuantizedNetwork
from umakit.tools.page import make_page
from umakit.tools.scaffold import new_backend
from umakit.tools.tuning import Effort, local_workers, tune_model

PLANNER = '''
from umakit.machine import Prediction


class Planner(TilePlanner):
    """For a machine that likes tiles of three rows and few columns."""

    def predict(self, tiles):
        bound = super().predict(tiles).bound
        cut = tiles.tiling
        return {returned}


class ChocolateAcceleratorBackend'''
CYCLES = "10_000 + 100 * abs(cut.rows - 3) + 10 * cut.columns + cut.output_channels + cut.buffers"


def backend_of(folder: Path, returned: str) -> UMABackend:
    """Chocolate with a planner of its own."""
    written = new_backend("edited", folder, "chocolate").folder
    path = written / "backend.py"
    text = path.read_text(encoding="utf-8")
    head, tail = text.split("\nclass EditedBackend")
    planner = PLANNER.replace("class ChocolateAcceleratorBackend", "class EditedBackend")
    text = head + planner.format(returned=returned) + tail
    assert text.count("planner = TilePlanner(") == 1
    path.write_text(text.replace("planner = TilePlanner(", "planner = Planner("), encoding="utf-8")
    return load_backend_folder(written)


def own_cycles(cut: Tiling) -> int:
    """The formula above."""
    distance = abs(cut.rows - 3)
    return 10_000 + 100 * distance + 10 * cut.columns + cut.output_channels + cut.buffers


@pytest.fixture(scope="module")
def model() -> Any:
    return QuantizedNetwork(8, 8, 3).conv2d(40, 3).model("own")


@pytest.mark.soak
@pytest.mark.parametrize("processes", some([2, 1], 2))
def test_tuning_goes_by_the_predictions_of_the_planner(
    model: Any, processes: int, tmp_path: Path
) -> None:
    backend = backend_of(tmp_path, f"Prediction({CYCLES}, None, bound)")
    with local_workers(processes) as workers:
        (tuned,) = tune_model(
            import_network(model.module), backend, tmp_path / "records.json",
            effort=Effort(simulate=0), workers=workers,
        )  # fmt: skip
    record = tuned.record
    assert backend.tiling is not None
    default = backend.tiling.default(record.layer)
    assert default is not None and record.default == own_cycles(default)
    assert record.predicted == own_cycles(record.tiling) <= record.default
    # Near the best that there is: one column, the smallest part of channels, one buffer. The
    # kit's estimate, which proposes the tilings, knows nothing of it.
    best = Tiling(record.tiling.dataflow, 3, 1, 16, record.tiling.input_channels, buffers=1)
    assert own_cycles(best) <= record.predicted <= own_cycles(best) + 20
    assert read_records(tmp_path / "records.json").of(record.layer) == record


def test_reports_have_the_predictions_of_the_planner(model: Any, tmp_path: Path) -> None:
    backend = backend_of(tmp_path, f"Prediction({CYCLES}, None, bound)")
    page = make_page(model.module, [backend], inputs=model.inputs)
    (layer,) = page.layers
    assert backend.tiling is not None and layer.tiled is not None
    assert layer.tiled.predicted_cycles >= 10_000 > (layer.clock_cycles or 0) > 0
    assert layer.tiled.spent is None and layer.explanation == ""
    view = json.loads(json.dumps(page.as_json()))
    assert view["layers"][0]["tiled"]["bottleneck"] is None
    assert [total["spent"] for total in view["totals"]] == [None, None]


def test_what_is_no_prediction_is_refused(model: Any, tmp_path: Path) -> None:
    for returned, message in {
        "4": "predict of Planner returned int; let it return an umakit.machine.Prediction",
        "Prediction(1.5, None, bound)": "a planner predicted 1.5 cycles; let its predict return",
    }.items():
        backend = backend_of(tmp_path / str(len(message)), returned)
        with pytest.raises(BackendError, match=message):
            tune_model(import_network(model.module), backend, tmp_path / "records.json")


ESTIMATE = """

    def estimate(self, tiles):
        cut = tiles.tiling
        return {}"""


@pytest.mark.parametrize("own", [True, False])
def test_the_estimate_of_the_planner_proposes_what_is_predicted(
    own: bool, model: Any, tmp_path: Path
) -> None:
    returned = f"Prediction({CYCLES}, None, bound)" + (ESTIMATE.format(CYCLES) if own else "")
    backend = backend_of(tmp_path, returned)
    assert backend.tiling is not None
    (tuned,) = tune_model(
        import_network(model.module), backend, tmp_path / "records.json",
        effort=Effort(clock=2, simulate=0),
    )  # fmt: skip
    record = tuned.record
    parts = search_space(record.layer, backend.tiling.machine, 2)
    best = min(own_cycles(cut) for cut in parts.cuts())
    default = backend.tiling.default(record.layer)
    assert default is not None and own_cycles(default) == record.default
    # Default tilings leave columns whole; tuning does not.
    whole = [cut for cut in parts.cuts() if cut.columns == record.layer.output_size[1]]
    assert (record.default <= min(map(own_cycles, whole)) + 4) == own
    assert (record.predicted <= best) == own


def test_what_is_no_estimate_is_refused(model: Any, tmp_path: Path) -> None:
    returned = "Prediction(10, None, bound)" + ESTIMATE.format("1.5")
    backend = backend_of(tmp_path, returned)
    with pytest.raises(BackendError, match=r"estimate of Planner returned 1\.5; let it return"):
        tune_model(import_network(model.module), backend, tmp_path / "records.json")
