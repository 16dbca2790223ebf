# SPDX-License-Identifier: Apache-2.0
"""Cycles of the layers of a network on its accelerators, from one run of its library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import numpy as np

from umakit.devices.run import LayerProfile, run_library
from umakit.errors import BuildError, DeviceError
from umakit.files.staging import temporary_folder
from umakit.library.export import Library
from umakit.partition.choice import Key, Source, TakenLayer
from umakit.partition.partitioner import Partitioned
from umakit.partition.report import CPU

Export = Callable[[Partitioned, Path], Library]
"""Compiles a partitioned network to a library in a folder."""


@dataclass(frozen=True)
class Layers:
    """The layers of a network on accelerators.

    Attributes:
        taken: the layers with their cycles.
        on_cpu: the steps on the CPU with their predicted cycles; empty if its description has no
            costs.
        not_run: why the library could not be run; empty if it was.
    """

    taken: tuple[TakenLayer, ...]
    on_cpu: tuple[TakenLayer, ...] = ()
    not_run: str = ""


def cycles_of_layers(partitioned: Partitioned, export: Export) -> Layers:
    """Compile a network and run it once on this machine, with inputs of zeros.

    Cycles are those that simulators count, else those that cost models predict; those of the CPU
    are predicted.

    Args:
        partitioned: the partitioned network.
        export: compiles it.

    Raises:
        UmakitError: it cannot be compiled.
    """
    with temporary_folder("umakit-choose-") as folder:
        library = export(partitioned, folder / "library")
        program, description = library.program, library.metadata["umakit"]
        if program is None:
            raise ValueError("the library was read, not compiled")
        views = description["inputs"]
        inputs = {view["name"]: np.zeros(view["shape"], view["dtype"]) for view in views}
        profiles: tuple[LayerProfile | None, ...] = ()
        not_run = ""
        if any(call.target != CPU for call in program.calls):
            try:
                profiles = run_library(library.path, inputs, profile=True).layers
            except (BuildError, DeviceError) as error:
                not_run = error.what
    taken, on_cpu = [], []
    described = description["layers"]
    for call, profile, layer in zip(
        program.calls, profiles or repeat(None), described, strict=False
    ):
        if call.target != CPU:
            counted = None if profile is None else profile.clock_cycles
            found = _known(counted, layer.get("predicted_cycles"))
            taken.append(TakenLayer(call.target, _keys(partitioned, call.rows), *found))
        elif "cpu_cycles" in layer:
            found = _known(None, layer["cpu_cycles"])
            on_cpu.append(TakenLayer(CPU, _keys(partitioned, call.rows), *found))
    return Layers(tuple(taken), tuple(on_cpu), not_run)


def _known(counted: int | None, predicted: int | None) -> tuple[int | None, Source]:
    """Return cycles of a layer and where they come from."""
    if counted is not None:
        return counted, "measured"
    return predicted, "unknown" if predicted is None else "predicted"


def _keys(partitioned: Partitioned, rows: tuple[int, ...]) -> tuple[Key, ...]:
    """Return the operators in rows of the offload report, without those that were added."""
    found = (partitioned.keys[row] for row in rows)
    return tuple(key for key in found if key is not None)
