# SPDX-License-Identifier: Apache-2.0
"""Waveforms of the layers that a comparison names."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from umakit.devices import HOST
from umakit.devices.designs import Design
from umakit.devices.probe import Probe
from umakit.devices.waveforms import Wave, WaveFile, written_wave
from umakit.errors import DeviceError
from umakit.files.staging import temporary_folder

Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class LayerWaves:
    """Runs of a library for the waveform of a layer.

    Attributes:
        description: section `umakit` of the library's metadata.
        library: folder or tar file of the library.
        program: path of the program that compares layers; that with waveforms lies beside it.
        designs: designs that answer in place of the simulators of their backends.
    """

    description: Mapping[str, Any]
    library: Path
    program: Path
    designs: Sequence[Design]

    def write(
        self, number: int, file: WaveFile, inputs: Arrays, forced: Arrays, timeout: float | None
    ) -> None:
        """Run an inference up to a layer, and write the waveform of this layer.

        Args:
            number: number of the layer.
            file: where; nothing is written if the layer does not run on a design.
            inputs: arrays by name, of the network's shapes and dtypes.
            forced: values by C name that replace a layer's outputs after it has run.
            timeout: time limit in seconds; default: as of `run_library`.

        Raises:
            BuildError: Verilator or a compiler refused the design with waveforms.
            OutputError: the file cannot be written.
        """
        layer = self.description["layers"][number]
        if layer["where"] not in {design.backend for design in self.designs}:
            return
        wave = Wave(layer["where"], number, layer["name"], is_alone=True)
        # Beside the first program: a folder of its own for what is generated.
        folder = self.program.with_name(f"{self.program.name}_traced")
        folder.mkdir(exist_ok=True)
        probe = Probe(
            self.description, self.library, folder / "probe", HOST,
            designs=self.designs, is_traced=True,
        )  # fmt: skip
        with (
            temporary_folder("umakit-wave-") as temporary,
            written_wave(file, wave, temporary) as environment,
            contextlib.suppress(DeviceError),  # the run may end with the waveform
        ):
            probe.run(inputs, forced, timeout, environment)
