# SPDX-License-Identifier: Apache-2.0
"""One machine of a sweep: the task of a worker, and its answer."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, with_config

from umakit.backend.base import UMABackend
from umakit.devices import HOST
from umakit.devices.catalogue import RTL
from umakit.devices.designs import design_from
from umakit.devices.run import run_library, select_inputs
from umakit.errors import (
    BackendError,
    InputError,
    LoweringError,
    MemoryPlanError,
    ModelError,
    RecordsError,
    StorageError,
    UmakitError,
    short_path,
)
from umakit.files.staging import temporary_folder
from umakit.frontend import model_files
from umakit.partition.report import CPU
from umakit.pipeline import (
    ExportOptions,
    Network,
    export_program,
    import_network,
    partition_network,
)
from umakit.tools.columns import known_sum, view
from umakit.tools.inputs import random_inference
from umakit.tools.sweeps.machines import backend_digest, machine_with, renamed
from umakit.tools.sweeps.predict import PredictedNetwork, predict_network
from umakit.tools.sweeps.settings import Settings, Value
from umakit.version import __version__

REFUSALS = (BackendError, LoweringError, MemoryPlanError, InputError)
"""Errors for settings that the backend cannot have, or a network that the machine cannot run."""


@dataclass(frozen=True)
class Source:
    """A network and a backend, in a form that other processes can load.

    Attributes:
        model: path of the network's file.
        folder: folder of the backend.
        shapes: shapes of inputs with symbolic dimensions, by name.
        rounding, keep_layout: as in `umakit.compile_model` and `umakit.ExportOptions`.
        model_files: all files of the network.
        others: files that do not belong to the backend, such as outputs of a command.
        model_digest, backend_digest: SHA-256 of the files of both.
    """

    model: str
    folder: str
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    rounding: str | None = None
    keep_layout: bool = False
    model_files: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    model_digest: str = ""
    backend_digest: str = ""

    @classmethod
    def of(
        cls,
        model: Path,
        folder: Path,
        *,
        shapes: Mapping[str, Sequence[int]] | None = None,
        rounding: str | None = None,
        keep_layout: bool = False,
        others: Sequence[Path] = (),
    ) -> Source:
        """Return a network and a backend with their present digests.

        Args:
            model: file of the network.
            folder: folder of the backend.
            shapes: shapes of inputs with symbolic dimensions, by name.
            rounding, keep_layout, others: as in the attributes.

        Raises:
            ModelError: the network's file cannot be read.
        """
        files = tuple(str(path.absolute()) for path in model_files(model))
        found = cls(
            str(model.absolute()),
            str(folder.absolute()),
            tuple((name, tuple(shape)) for name, shape in (shapes or {}).items()),
            rounding,
            keep_layout,
            files,
            tuple(str(path.absolute()) for path in others),
        )
        return replace(found, model_digest=found._model(), backend_digest=found._backend())

    def _model(self) -> str:
        digest = hashlib.sha256()
        for file in self.model_files:
            content = _read(Path(file))
            digest.update(f"{len(content)}\0".encode())
            digest.update(content)
        return digest.hexdigest()

    def _backend(self) -> str:
        return backend_digest(Path(self.folder), [Path(other) for other in self.others])

    def check(self) -> None:
        """Refuse a changed network or backend at the same path, also on another machine.

        Raises:
            RecordsError: a file has changed since the sweep began.
        """
        changed = {self.model: self._model() != self.model_digest,
                   self.folder: self._backend() != self.backend_digest}  # fmt: skip
        for path, is_changed in changed.items():
            if is_changed:
                raise RecordsError(
                    "is not what it was when the sweep began", where=short_path(path),
                    fix="let all workers see the same files, and sweep again",
                )  # fmt: skip

    def key(self, settings: Settings, kind: str) -> str:
        """Return the identifier of the answer to a question about a machine.

        Args:
            kind: the question, such as `predicted`.
        """
        asked = {
            "version": __version__,
            "model": self.model_digest,
            "backend": self.backend_digest,
            "shapes": sorted(self.shapes),
            "rounding": self.rounding,
            "keep_layout": self.keep_layout,
            "settings": dict(settings),
            "kind": kind,
        }
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()

    @property
    def options(self) -> ExportOptions:
        return ExportOptions(keep_layout=self.keep_layout)


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class PredictedMachine:
    """A machine of a sweep with its predictions; None if unknown.

    Attributes:
        settings: values by key of `accel.toml`.
        refused: reason why the backend cannot be this machine, or cannot run the network; else
            empty.
        cycles: cycles of all layers on the accelerator.
        moved_bytes: bytes of these layers over the bus.
        utilisation: their multiply-accumulates relative to the capacity of all cells, 0 to 1.
        offloaded_macs, total_macs: multiply-accumulates on the accelerator, and of the network.
        cells: capacity of the machine in multiply-accumulates per cycle.
        scratchpad_bytes: size of all memories that drivers address by offset.
        largest_scratchpad_bytes: largest use of these memories by a layer.
        layers, cpu_layers, predicted_layers: number of layers on the accelerator, on the CPU, and
            with predicted cycles on the accelerator.
        offloaded: numbers of the operators on the accelerator, in the order of the network.
        picojoules: energy of these layers, as far as counts and figures exist; None without
            `[energy]`.
        energy_is_whole: whether `picojoules` is complete; None without `[energy]`.
    """

    settings: dict[str, Value]
    refused: str = ""
    cycles: int | None = None
    moved_bytes: int | None = None
    utilisation: float | None = None
    offloaded_macs: int | None = None
    total_macs: int | None = None
    cells: int | None = None
    scratchpad_bytes: int | None = None
    largest_scratchpad_bytes: int | None = None
    layers: int | None = None
    cpu_layers: int | None = None
    predicted_layers: int | None = None
    offloaded: list[int] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    picojoules: float | None = None
    energy_is_whole: bool | None = None

    @classmethod
    def of(cls, settings: Settings, found: PredictedNetwork) -> PredictedMachine:
        placements, energy = found.report.placements, found.accelerator_energy
        own = "cycles moved_bytes utilisation cells scratchpad_bytes largest_scratchpad_bytes"
        return cls(
            dict(settings),
            **view(found, own),
            **view(found.report, "offloaded_macs total_macs"),
            **view(found.totals, "layers cpu_layers predicted_layers"),
            offloaded=[number for number, row in enumerate(placements) if row.where != CPU],
            notices=list(found.notices),
            picojoules=None if energy is None else energy.at_least,
            energy_is_whole=None if energy is None else energy.total is not None,
        )

    @property
    def offloaded_share(self) -> float | None:
        """The offloaded fraction of multiply-accumulates, 0 to 1; None if there are none."""
        if self.offloaded_macs is None or not self.total_macs:
            return None
        return self.offloaded_macs / self.total_macs

    def as_json(self) -> dict[str, Any]:
        view: dict[str, Any] = TypeAdapter(PredictedMachine).dump_python(self, mode="json")
        return {**view, "refused": self.refused or None, "offloaded_share": self.offloaded_share}


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class SimulatedMachine:
    """The simulator's counts for a machine of a sweep.

    Attributes:
        cycles: cycles of all layers on the accelerator; None if not counted.
        moved_bytes: bytes of these layers over the bus; None if not counted.
        failed: reason of a failed compilation or run, or of missing cycles; else empty.
        is_final: whether a repetition would give the same answer: False for a failed run.
    """

    cycles: int | None
    moved_bytes: int | None
    failed: str = ""
    is_final: bool = True


def predict_with(
    source: Source,
    network: Network,
    settings: Settings,
    tell: Callable[[str], None] = lambda stage: None,
    inferences: int | None = None,
) -> PredictedNetwork:
    """Predict a network on a copy of a backend with other settings.

    Notices name the files of the backend's own folder, since the copy is deleted.
    """
    folder = Path(source.folder)
    with machine_with(folder, settings) as backend:
        found = predict_network(network, backend, source.options, tell, inferences)
        place = f"{short_path(folder)}{os.sep}"
        notices = (renamed(text, backend.folder, folder, place) for text in found.notices)
        return replace(found, notices=tuple(notices))


def predict_machine(source: Source, settings: Settings) -> PredictedMachine:
    """Predict a network on a copy of a backend with other settings.

    Raises:
        ModelError: the network cannot be imported.
        RecordsError: network or backend have changed since the sweep began.
        BackendError: a Python module that the backend imports is missing.
        StorageError: there is no room for the copy.
    """
    source.check()
    network = network_of(source)
    try:
        return PredictedMachine.of(settings, predict_with(source, network, settings))
    except REFUSALS as error:
        _raise_what_workers_lack(error)
        return PredictedMachine(dict(settings), refused=_reason(error))


def simulate_machine(source: Source, settings: Settings) -> SimulatedMachine:
    """Compile and run a network on a copy of a backend with other settings, with random inputs.

    A failure of the compilation or of the run is part of the answer.

    Raises:
        ModelError, RecordsError, StorageError, BackendError: as in `predict_machine`.
    """
    source.check()
    network = network_of(source)
    try:
        with machine_with(Path(source.folder), settings) as backend:
            kind = backend.configuration.device.simulator
            if kind == "none" or backend.configuration.is_library:
                return SimulatedMachine(None, None, "nothing simulates the accelerator")
            with _library(network, backend, source.options) as library:
                return _run(library, network, backend)
    except StorageError:
        raise
    except UmakitError as error:
        _raise_what_workers_lack(error)
        return SimulatedMachine(None, None, _reason(error), is_final=False)


@contextmanager
def _library(network: Network, backend: UMABackend, options: ExportOptions) -> Iterator[Path]:
    with temporary_folder("umakit-sweep-") as temporary:
        partitioned = partition_network(network.model, [backend], options)
        folder = temporary / "library"
        yield export_program(network.model, partitioned, [backend], folder, options).path


def _run(library: Path, network: Network, backend: UMABackend) -> SimulatedMachine:
    is_rtl = backend.configuration.is_only_rtl
    inputs = select_inputs(library, random_inference(network.imported, 0))
    designs = [design_from(backend.configuration, backend.folder)] if is_rtl else []
    result = run_library(
        library, inputs, profile=True, device=RTL.name if is_rtl else HOST.name, rtl=designs
    )
    own = [each for each in result.layers if each.where == backend.target_name]
    cycles = [each.clock_cycles for each in own]
    moved = [each.moved_bytes for each in own]
    return SimulatedMachine(
        known_sum(cycles),
        known_sum(moved),
        "" if own and None not in cycles else "nothing counts cycles",
    )


def _raise_what_workers_lack(error: UmakitError) -> None:
    """Raise an error again if a Python module is missing where the worker runs."""
    if isinstance(error.__cause__, ImportError):
        raise error


def _reason(error: UmakitError) -> str:
    return f"{error.where}: {error.what}" if error.where else error.what


_networks: dict[Source, Network] = {}
_importing = threading.Lock()
"""Lock for importing: threads of a cluster worker share networks."""


def network_of(source: Source) -> Network:
    """Return the network of a source, imported once in a process."""
    with _importing:
        if source not in _networks:
            _networks.clear()
            _networks[source] = import_network(
                source.model,
                input_shapes={name: list(shape) for name, shape in source.shapes},
                rounding=source.rounding,
            )
        return _networks[source]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelError(f"cannot be read: {error.strerror}", where=short_path(path)) from None
