# SPDX-License-Identifier: Apache-2.0
"""Tuning of a model layer by layer; each result is recorded as soon as it is available."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from umakit import patterns, tvm_api
from umakit.backend.base import UMABackend
from umakit.errors import BackendError, DeviceError, RecordsError
from umakit.lower import accelerator_kernels
from umakit.machine import Layer, TilePlanner
from umakit.partition.partitioner import partition
from umakit.patterns.driver import ARRAYS_ATTRIBUTE
from umakit.pipeline import Network
from umakit.records.owners import Owner
from umakit.records.tilings import (
    Effort,
    Record,
    add_record,
    check_records_file,
    existing_records,
)
from umakit.registration.sources.tree import input_files
from umakit.tools.tuning.search import Best, Problem, Progress, search
from umakit.tools.tuning.simulate import has_simulator
from umakit.tools.tuning.workers import ThisProcess, Workers


@dataclass(frozen=True)
class TunedLayer:
    """A layer whose search has ended.

    Attributes:
        seen: number of tilings that were estimated or ruled out; 0 if the record existed before.
    """

    record: Record
    seen: int


Tell = Callable[[int, int, tuple[str, ...], Progress], None]
"""Callback with the number of a layer, from 1, the number of layers, the layer's operators, and the
progress of its search."""


def tune_model(
    network: Network,
    backend: UMABackend,
    path: Path,
    *,
    effort: Effort | None = None,
    again: bool = False,
    workers: Workers | None = None,
    tell: Tell = lambda *progress: None,
    done: Callable[[TunedLayer], None] = lambda tuned: None,
    inputs: Sequence[Path] = (),
    keep_layout: bool = False,
) -> list[TunedLayer]:
    """Search a good tiling for each layer of a model, and record the results.

    Layers with a record of the same or a greater effort are skipped.

    Args:
        path: file of the records; it may contain records of this model.
        effort: extent of the search for each layer. Without a simulator, only the cost model is
            used, and `Record.simulated` is None.
        again: whether layers with a record are searched again.
        workers: default: this process.
        done: called with each layer, once its record is written.
        inputs: input files other than the backend's, which must not be overwritten.
        keep_layout: as in `ExportOptions`.
    """
    planner, effort = _planner_of(backend), effort or Effort()
    effort = effort if has_simulator(backend) else replace(effort, simulate=0)
    owner = Owner.of(network.model, backend.target_name, planner)
    read = input_files(backends=[backend], model=inputs)
    check_records_file(path, read)
    records = existing_records(path, owner, planner.machine)
    layers = _some_layers(network, backend, keep_layout=keep_layout)
    result = []
    for number, (layer, operators) in enumerate(layers.items(), 1):
        existing, seen = records.of(layer), 0
        if existing is None or again or not existing.covers(effort):
            report = partial(tell, number, len(layers), operators)
            problem = Problem(layer, planner, str(backend.folder))
            with _naming(f"layer {number} of {len(layers)}, {', '.join(operators)}"):
                best = search(problem, effort, workers or ThisProcess(), report)
            record, seen = _record(problem, operators, best, effort), best.seen
            records = add_record(
                path, owner, record, read, instead_of=existing, machine=planner.machine
            )
            existing = records.of(layer) or record
        result.append(TunedLayer(existing, seen))
        done(result[-1])
    return result


def _record(problem: Problem, operators: tuple[str, ...], best: Best, effort: Effort) -> Record:
    return Record(
        problem.layer, operators, best.tiling, best.bound, best.default, best.predicted,
        best.simulated, effort, best.default_simulated,
    )  # fmt: skip


def _planner_of(backend: UMABackend) -> TilePlanner:
    if backend.tiling is None:
        raise BackendError(
            "does not cut layers into tiles", where=backend.target_name,
            fix="a backend that registers a TilePlanner can be tuned: "
            "see `uma new --tutorial chocolate`",
        )  # fmt: skip
    return backend.tiling


def _some_layers(
    network: Network, backend: UMABackend, *, keep_layout: bool
) -> dict[Layer, tuple[str, ...]]:
    layers = tiled_layers(network, backend, keep_layout=keep_layout)
    if not layers:
        raise RecordsError(
            f"{backend.target_name} cuts no layer of {network.model.name} into tiles",
            fix="`uma partition` says why",
        )
    return layers


@contextmanager
def _naming(where: str) -> Iterator[None]:
    """Name the layer in an error of the device."""
    try:
        yield
    except DeviceError as error:
        raise DeviceError(error.what, where=where, fix=error.fix, status=error.status) from None


def tiled_layers(
    network: Network, backend: UMABackend, *, keep_layout: bool = False
) -> dict[Layer, tuple[str, ...]]:
    """Return the names of each layer's operators, in the order of the network.

    Layers of equal sizes are one entry with the operators of each occurrence.

    Args:
        keep_layout: as in `ExportOptions`.
    """
    partitioned = partition(network.model.module, [backend], keep_layout=keep_layout)
    module = accelerator_kernels(partitioned, [backend])
    found: dict[Layer, tuple[str, ...]] = {}
    for binding in tvm_api.bindings_of(module["main"]):
        call = binding.value
        if tvm_api.operator_name(call) != "call_tir":
            continue
        function = module[call.args[0]].without_attr(ARRAYS_ATTRIBUTE)
        composite = patterns.parameters_of(function)
        if composite is None:
            continue
        try:
            layer = Layer.of(composite)
        except TypeError:  # the backend computes the layer without tiles
            continue
        label = partitioned.report.label(tvm_api.rows_of(call))
        found[layer] = (*found.get(layer, ()), label)
    return found


MEASURED, PREDICTED = "measured", "predicted"


@dataclass(frozen=True)
class Total:
    """Total cycles of the layers of a network with cycles of one kind.

    Attributes:
        cycles_are: `measured` or `predicted`, for both the default and the best tilings.
        layers: number of layers; repeated layers count repeatedly.
        default, best: cycles with the default tilings and with the best ones.
        bound: lower bound of the cycles.
    """

    cycles_are: str
    layers: int
    default: int
    best: int
    bound: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def kind_of(record: Record) -> str:
    """Return the kind of a record's cycles: measured or predicted."""
    return MEASURED if record.is_measured else PREDICTED


def totals(records: Iterable[Record]) -> list[Total]:
    """Return the totals of all measured layers, and of all others.

    A kind without layers is omitted.
    """
    given = list(records)
    of_kinds = {kind: [each for each in given if kind_of(each) == kind]
                for kind in (MEASURED, PREDICTED)}  # fmt: skip
    return [
        Total(
            kind,
            sum(len(each.operators) for each in records_of_kind),
            sum(len(each.operators) * each.default_cycles for each in records_of_kind),
            sum(len(each.operators) * each.cycles for each in records_of_kind),
            sum(len(each.operators) * each.bound for each in records_of_kind),
        )
        for kind, records_of_kind in of_kinds.items()
        if records_of_kind
    ]
