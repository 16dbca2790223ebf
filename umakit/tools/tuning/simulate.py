# SPDX-License-Identifier: Apache-2.0
"""Cycles of a layer in the simulator, from a library with only this layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from umakit.backend.base import UMABackend
from umakit.devices.run import run_library
from umakit.files.staging import temporary_folder
from umakit.machine import Layer, Tiling
from umakit.pipeline import ExportOptions, compile_model
from umakit.tools.tuning.networks import network_of


def simulated_cycles(backend: UMABackend, layer: Layer, tiling: Tiling) -> int | None:
    """Return the device cycles of a layer, from its first register access to its last.

    Args:
        backend: backend that cuts layers into tiles.
        layer: sizes of the layer.
        tiling: tiling of the layer.

    Returns:
        The cycles; None if the backend takes the layer in another way, has no simulator, or one
        without a clock.

    Raises:
        BuildError: there is no C compiler.
        DeviceError: the run failed.
    """
    if backend.tiling is None or not has_simulator(backend):
        return None
    target = backend.target_name
    options = ExportOptions(tilings={target: {layer: tiling}})
    with temporary_folder("umakit-tune-") as temporary:
        library = compile_model(network_of(layer), [backend], temporary / "layer", options=options)
        if library.program is None or library.program.planned[target].layers != [layer]:
            return None
        views = library.metadata["umakit"]["inputs"]
        inputs = drawn_inputs(views)
        profile = run_library(library.path, inputs, profile=True).layers
        own = [each.clock_cycles for each in profile if each.where == target]
        return None if None in own else sum(cycles or 0 for cycles in own) or None


def drawn_inputs(views: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return random int8 values for the inputs of a network, the same values every time.

    The cycles of some accelerators depend on values, for example if the accelerator skips zeros.

    Args:
        views: `inputs` of the library's metadata.
    """
    random = np.random.default_rng(0)
    return {
        view["name"]: random.integers(-128, 128, view["shape"]).astype(view["dtype"])
        for view in views
    }


def has_simulator(backend: UMABackend) -> bool:
    """Whether a simulator implements a backend's device; a backend's own may have no clock."""
    return backend.configuration.device.simulator != "none"
