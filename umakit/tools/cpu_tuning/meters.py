# SPDX-License-Identifier: Apache-2.0
"""Meters for the processor time or the instructions of each layer of a library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from umakit.devices import DEVICES, HOST, Device
from umakit.devices.cpus import what_lacks
from umakit.devices.machine_names import processor_name, version_line
from umakit.devices.run import run_library
from umakit.devices.unpacked import TimedLibrary, take_turns
from umakit.errors import InputError
from umakit.machine.cpu import Cpu
from umakit.records.kernels import Origin

Arrays = Mapping[str, npt.NDArray[Any]]


class Meter(Protocol):
    """A source of figures of layers.

    Attributes:
        origin: origin of the figures.
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
    """Return the meter for a device.

    Args:
        cpu: target CPU of the libraries.

    Raises:
        InputError: the device does not run code for the CPU, or neither measures times nor counts
            instructions.
        BuildError: there is no compiler for the device.
    """
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
