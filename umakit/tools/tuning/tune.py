# SPDX-License-Identifier: Apache-2.0
"""Tuning a model: each layer in turn, each written down as soon as it is done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from umakit.backend.base import UMABackend
from umakit.errors import BackendError, RecordsError
from umakit.lower.tiling_records import (
    Effort,
    Owner,
    Record,
    add_record,
    check_records_file,
    existing_records,
)
from umakit.machine import Layer
from umakit.pipeline import Network
from umakit.registration.inputs import input_files
from umakit.tools.tuning.layers import tiled_layers
from umakit.tools.tuning.search import Problem, Progress, search
from umakit.tools.tuning.simulate import has_simulator
from umakit.tools.tuning.workers import ThisProcess, Workers


@dataclass(frozen=True)
class TunedLayer:
    """A layer whose search has ended.

    Attributes:
        record: what is written down.
        seen: tilings that were looked at or ruled out; 0 if the record was there before.
    """

    record: Record
    seen: int


@dataclass(frozen=True)
class LayerProgress:
    """How far a model is.

    Attributes:
        number, count: of the layer, from 1 on, and how many there are.
        layer: that is being looked at.
        operators: of the model that it computes.
        progress: of its search.
    """

    number: int
    count: int
    layer: Layer
    operators: tuple[str, ...]
    progress: Progress


def tune_model(
    network: Network,
    backend: UMABackend,
    path: Path,
    *,
    effort: Effort | None = None,
    again: bool = False,
    workers: Workers | None = None,
    tell: Callable[[LayerProgress], None] = lambda progress: None,
    done: Callable[[TunedLayer], None] = lambda tuned: None,
    inputs: Sequence[Path] = (),
) -> list[TunedLayer]:
    """Find a good tiling for each layer of a model, and write them down.

    A layer whose record was made with this effort, or more, is left as it is.

    Args:
        network: as `umakit.pipeline.import_network` reads it.
        backend: that cuts its layers into tiles.
        path: of the records; the file may hold some of this model.
        effort: how long to look at each layer. Without a simulator of umakit nothing is run: the
            cost model alone chooses, and `Record.simulated` is None.
        again: whether layers with a record are looked at again.
        workers: who does the work; default: this process.
        tell: told how far it is.
        done: told of each layer, when its record is written.
        inputs: files that were read and must stay, beside those of the backend.

    Raises:
        BackendError: the backend does not cut layers into tiles.
        RecordsError: the file is of something else, or cannot be written; or no layer of the model
            is cut into tiles.
        UmakitError: the network cannot be lowered, or the simulator cannot be run.
    """
    effort = effort or Effort()
    if not has_simulator(backend):
        effort = replace(effort, simulate=0)
    planner = backend.tiling
    if planner is None:
        raise BackendError(
            "does not cut layers into tiles", where=backend.target_name,
            fix="a backend that registers a TilePlanner can be tuned: "
            "see `uma new --tutorial chocolate`",
        )  # fmt: skip
    owner = Owner.of(network.model, backend.target_name, planner)
    read = input_files(backends=[backend], model=inputs)
    check_records_file(path, read)
    records = existing_records(path, owner)
    layers = tiled_layers(network, backend)
    if not layers:
        raise RecordsError(
            f"{backend.target_name} cuts no layer of {network.model.name} into tiles",
            fix="`uma partition` says why",
        )
    result = []
    for number, (layer, operators) in enumerate(layers.items(), 1):
        existing = records.of(layer)
        if existing is not None and existing.effort.covers(effort) and not again:
            tuned = TunedLayer(existing, 0)
        else:
            report = partial(LayerProgress, number, len(layers), layer, operators)
            problem = Problem(layer, planner.hardware, planner.driver)
            best = search(
                problem, effort, workers or ThisProcess(), str(backend.folder), _chain(report, tell)
            )
            record = Record(
                layer, operators, best.tiling, best.bound, best.default, best.predicted,
                best.simulated, effort,
            )  # fmt: skip
            records = add_record(path, owner, record, read, instead_of=existing)
            tuned = TunedLayer(records.of(layer) or record, best.seen)
        result.append(tuned)
        done(tuned)
    return result


def _chain(
    report: Callable[[Progress], LayerProgress], tell: Callable[[LayerProgress], None]
) -> Callable[[Progress], None]:
    return lambda progress: tell(report(progress))
