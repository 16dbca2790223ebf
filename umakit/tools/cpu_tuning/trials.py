# SPDX-License-Identifier: Apache-2.0
"""Libraries of one network with other kernel choices, and their figures by kernel.

A trial is a library in which many kernels have another choice at once. The time of each layer shows
the gain of its kernel, so the number of libraries is the number of choices of one kernel.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit.library.options import ExportOptions
from umakit.machine.kernel_choices import Choice, Chosen, KernelKey
from umakit.pipeline import Network, export_program, partition_network
from umakit.tools.cpu_tuning.meters import Meter
from umakit.tools.inputs import random_inference


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
        network: a network of `umakit.pipeline.import_network`.
        options: options of the compilation, with the CPU.
        meter: source of the figures.
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
        """Build a library with some choices.

        Raises:
            UmakitError: the library cannot be compiled, or a run failed.
        """
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
