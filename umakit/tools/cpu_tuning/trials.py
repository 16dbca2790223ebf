# SPDX-License-Identifier: Apache-2.0
"""Libraries of one network with other kernel choices, and their figures by kernel.

A trial is a library in which many kernels have another choice at once. The time of each layer shows
the gain of its kernel, so the number of libraries is the number of choices of one kernel. A meter
counts processor time on this machine, or instructions on a device.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from umakit.cpu.description import Cpu
from umakit.cpu.kernel_choices import Choice, Chosen, KernelKey
from umakit.devices import DEVICES, HOST, Device
from umakit.devices.cpus import what_lacks
from umakit.devices.machine_names import processor_name, version_line
from umakit.devices.run import run_library
from umakit.devices.unpacked import TimedLibrary, take_turns
from umakit.errors import InputError
from umakit.library.options import ExportOptions
from umakit.pipeline import Network, export_program, partition_network
from umakit.records.kernels import Origin
from umakit.tools.inputs import random_inference

Arrays = Mapping[str, npt.NDArray[Any]]


class Meter(Protocol):
    """A source of figures of layers.

    Attributes:
        weights: form of the weights of libraries, as in `ExportOptions`.
    """

    origin: Origin
    weights: Literal["c", "blob"]

    def open(self, library: Path, inputs: Arrays, folder: Path) -> Any:
        """Prepare a library; the result has the outputs of one inference as `outputs`.

        Args:
            library: the library, with all layers on the CPU.
            inputs: arrays by input name, of one inference.
            folder: an empty folder, kept while the library is used.
        """
        ...

    def figures(self, subjects: Sequence[Any], rounds: int) -> npt.NDArray[np.float64]:
        """Return figures of an inference as [library, round, layer]."""
        ...


class HostMeter:
    """Processor times on this machine: libraries take turns in this process."""

    weights: Literal["c", "blob"] = "blob"  # a blob needs no compiler

    def __init__(self) -> None:
        compiler = version_line(HOST.compiler()[0])
        self.origin = Origin("times", HOST.name, processor_name(), compiler)

    def open(self, library: Path, inputs: Arrays, folder: Path) -> TimedLibrary:
        return TimedLibrary(library, inputs, folder)

    def figures(self, subjects: Sequence[TimedLibrary], rounds: int) -> npt.NDArray[np.float64]:
        return take_turns(subjects, rounds)


@dataclass(frozen=True)
class _Counted:
    """A library that has run on a device."""

    outputs: dict[str, npt.NDArray[Any]]
    instructions: tuple[int, ...]


class DeviceMeter:
    """Instructions that a device counts, which are the same in each run."""

    weights: Literal["c", "blob"] = "c"

    def __init__(self, device: Device) -> None:
        self._device = device
        compiler = version_line(device.compiler()[0])
        is_known = bool(device.run) and device.own_file is None  # a user's takes any arguments
        emulator = version_line(device.run[0]) if is_known else ""
        self.origin = Origin("instructions", device.name, emulator, compiler)

    def open(self, library: Path, inputs: Arrays, folder: Path) -> _Counted:
        result = run_library(library, inputs, profile=True, device=self._device)
        return _Counted(result.outputs, tuple(each.instructions or 0 for each in result.layers))

    def figures(self, subjects: Sequence[_Counted], rounds: int) -> npt.NDArray[np.float64]:
        """Return instructions, of one round."""
        return np.array([[each.instructions] for each in subjects], np.float64)


def meter_for(cpu: Cpu, device: Device) -> Meter:
    lacks = what_lacks(cpu, device)
    fitting = [each.name for each in DEVICES if _tells(each) and not what_lacks(cpu, each)]
    fix = f"choose --device {' or '.join(fitting)}" if fitting else "tune where this CPU is"
    if lacks:
        raise InputError(f"kernels for {cpu.name} cannot be tuned here: {lacks}", fix=fix)
    if not _tells(device):
        lacks = "has no times, and does not count instructions"
        if device.has_time:
            lacks = "does not count instructions, and times are compared in one process here only"
        raise InputError(
            f"{device.name} {lacks}",
            where="--device",
            fix=fix,
        )
    return HostMeter() if device.is_host else DeviceMeter(device)


def _tells(device: Device) -> bool:
    return device.is_host or device.counts_instructions


@dataclass(frozen=True)
class Built:
    """A library that is ready to run.

    Attributes:
        subject: the meter's object, with the outputs of one inference as `outputs`.
        made: choice for each kernel.
        layers: the kernel of each layer; None for a layer without a choice.
        operators: names of the model's operators by kernel, for each occurrence.
    """

    subject: Any
    made: Mapping[KernelKey, Chosen]
    layers: tuple[KernelKey | None, ...]
    operators: Mapping[KernelKey, tuple[str, ...]]


class Trials:
    """Builds libraries and compares them.

    Args:
        options: options of the compilation, with the CPU.
        folder: an empty folder, kept by the caller.
    """

    def __init__(
        self, network: Network, options: ExportOptions, meter: Meter, folder: Path
    ) -> None:
        self._network, self._meter, self._folder = network, meter, folder
        self._options = replace(options, weights=meter.weights)
        self._partitioned = partition_network(network.model, [], options)
        self._inputs = random_inference(network.imported, 0)
        self._count = 0

    def build(self, choices: Mapping[KernelKey, Choice]) -> Built:
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir()
        options = replace(self._options, choices=choices)
        library = export_program(
            self._network.model, self._partitioned, [], folder / "library", options
        )
        assert library.program is not None  # the library was not read from files
        found, layers = library.program.choices, library.metadata["umakit"]["layers"]
        of_layers = tuple(found.kernels.get(layer["kernel"]) for layer in layers)
        operators: dict[KernelKey, tuple[str, ...]] = {}
        for key, layer in zip(of_layers, layers, strict=True):
            if key is not None:
                operators[key] = (*operators.get(key, ()), layer["name"])
        (folder / "program").mkdir()
        subject = self._meter.open(library.path, self._inputs, folder / "program")
        shutil.rmtree(library.path)  # weights of many trials may be gigabytes
        return Built(subject, found.made, of_layers, operators)

    def figures(self, own: Built, other: Built, rounds: int) -> Figures:
        return Figures(self._meter.figures([own.subject, other.subject], rounds), own.layers)


@dataclass(frozen=True)
class Figures:
    """Figures of the library with the rules' own choices and of another library.

    Attributes:
        all: seconds or instructions as [library, round, layer].
        layers: the kernel of each layer.
    """

    all: npt.NDArray[np.float64]
    layers: tuple[KernelKey | None, ...]

    def of(self, key: KernelKey) -> npt.NDArray[np.float64]:
        """Return figures of all layers of a kernel as [library, round]."""
        here = [number for number, each in enumerate(self.layers) if each == key]
        total: npt.NDArray[np.float64] = self.all[:, :, here].sum(axis=2)
        return total

    @property
    def whole(self) -> npt.NDArray[np.float64]:
        """Figures of all layers as [library, round]."""
        total: npt.NDArray[np.float64] = self.all.sum(axis=2)
        return total
