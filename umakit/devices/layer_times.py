# SPDX-License-Identifier: Apache-2.0
"""Processor times of the layers of several libraries that take turns in this process."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit.devices.unpacked import load_unpacked
from umakit.library.metadata import load_metadata
from umakit.library.tar_files import library_folder
from umakit.text.rendering import render

PAGE = 4096
"""Bytes of a page of memory. Addresses this far apart map to the same sets of a first-level
cache."""

TURN_SECONDS = 0.02
"""Time of a turn, at least: a shorter inference is repeated."""


class TimedLibrary:
    """A library whose layers are timed in this process.

    Args:
        library: an exported library with all layers on the CPU.
        inputs: arrays by input name.
        folder: an empty folder, kept while the library is used.

    Attributes:
        outputs: arrays by output name of one inference.

    Raises:
        BuildError: the C compiler is missing or reported an error.
        DeviceError: an inference returned an error status.
    """

    def __init__(self, library: Path, inputs: Mapping[str, npt.NDArray[Any]], folder: Path) -> None:
        description = load_metadata(library)["umakit"]
        interface, self._layers = description["interface"], len(description["layers"])
        pools = len(description["memory"]["pools"]) + (description["weights"] == "blob")
        arguments = len(description["inputs"]) + len(description["outputs"]) + pools
        source = folder / "layer_times.c"
        values = {"interface": interface, "layers": self._layers, "arguments": arguments}
        source.write_text(render("tuning/layer_times.c.j2", **values), encoding="utf-8")
        headers = library_folder(library) / "codegen/host/include"
        flags = [f"-D{interface.upper()}_PROFILE", f"-I{headers.absolute()}"]
        self._library = load_unpacked(library, inputs, folder, [source], flags)
        self._function = self._library.binary.umakit_time_layers
        self._function.restype = ctypes.c_int32
        self._random = np.random.default_rng(0)
        self.move()
        self.times(1)
        self.outputs = {name: array.copy() for name, array in self._placed.outputs.items()}
        seconds = float(self.times(1).sum())
        self.repeats = math.ceil(TURN_SECONDS / max(seconds, 1e-7))

    def move(self) -> None:
        """Allocate other memory for all tensors, at random offsets from page boundaries.

        The speed of a kernel varies by up to a fifth with the cache sets shared by its tensors. At
        a fixed placement, a library could be faster by chance.
        """
        self._placed = self._library.place(lambda: 64 * int(self._random.integers(PAGE // 64)))
        pointers = self._placed.pointers
        self._arguments = (ctypes.c_void_p * len(pointers))(*pointers)

    def times(self, inferences: int) -> npt.NDArray[np.float64]:
        """Run some inferences and return the mean processor time of each layer in seconds.

        Raises:
            DeviceError: an inference returned an error status.
        """
        found = np.zeros(self._layers, np.uint64)
        pointer = ctypes.c_void_p(found.ctypes.data)
        self._library.check(self._function(self._arguments, ctypes.c_int64(inferences), pointer))
        return found.astype(np.float64) / inferences * 1e-9


def take_turns(libraries: Sequence[TimedLibrary], rounds: int) -> npt.NDArray[np.float64]:
    """Return seconds of each layer as [library, round, layer].

    Times are processor times of this thread, without other programs. In each round, every library
    has a turn, so disturbances affect all libraries alike. Before its turn, a library moves to
    other memory and runs one uncounted inference.

    Args:
        libraries: libraries of the same layers.
        rounds: number of rounds.
    """
    repeats = min(each.repeats for each in libraries)
    found: list[list[npt.NDArray[np.float64]]] = []
    for _ in range(rounds):
        turn = []
        for each in libraries:
            each.move()
            each.times(1)
            turn.append(each.times(repeats))
        found.append(turn)
    return np.array(found).transpose(1, 0, 2)
