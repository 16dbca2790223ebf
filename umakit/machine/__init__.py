# SPDX-License-Identifier: Apache-2.0
"""Cutting layers into tiles that fit an accelerator's scratchpad, and what that costs in cycles.

Names are imported when they are first used: `umakit.machine.systolic` needs no TVM.

::

    hardware.py   Hardware      the parameters of an accelerator
    layer.py      Layer         the sizes of a layer
    tiles.py      Tiling, Tiles how a layer is cut
    requirements.py Transfer, Job what a tile requires: transfers and a job of the array
    tilings.py    PlannedLayers tilings that are given to a compilation, and the layers it cut
    schedules.py  tile_schedule tiles as TIR, for a backend's pass
    commands.py   commands_of   the commands of a tiled layer for the device
    costs.py      Cost          cycles of an array job, a pool and a transfer
    clock.py      run           exact cycles of a list of commands on the device
    stalls.py     CycleBreakdown cycles of a run, by what the array was stalled by
    bound.py      Bound         lower bounds of a layer's cycles
    space.py      misfit        the set of valid tilings
    estimate.py   Estimates     fast approximate cycles of a tiling
    selection.py  best_tilings  the best tilings by the estimate
    planner.py    TilePlanner   the interface for backends
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from umakit.machine.commands import DriverCosts
    from umakit.machine.hardware import Hardware
    from umakit.machine.layer import Kind, Layer
    from umakit.machine.planner import COST_MODEL, Prediction, TilePlanner
    from umakit.machine.schedules import loops_of, tile_schedule, with_calls
    from umakit.machine.space import misfit, tiles_on
    from umakit.machine.systolic import Dataflow
    from umakit.machine.tiles import Tiles, Tiling

__all__ = [
    "COST_MODEL",
    "Dataflow",
    "DriverCosts",
    "Hardware",
    "Kind",
    "Layer",
    "Prediction",
    "TilePlanner",
    "Tiles",
    "Tiling",
    "loops_of",
    "misfit",
    "tile_schedule",
    "tiles_on",
    "with_calls",
]

_HOMES = {
    "COST_MODEL": "planner",
    "Dataflow": "systolic",
    "DriverCosts": "commands",
    "Hardware": "hardware",
    "Kind": "layer",
    "Layer": "layer",
    "Prediction": "planner",
    "TilePlanner": "planner",
    "Tiles": "tiles",
    "Tiling": "tiles",
    "loops_of": "schedules",
    "misfit": "space",
    "tile_schedule": "schedules",
    "tiles_on": "space",
    "with_calls": "schedules",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'umakit.machine' has no attribute {name!r}")
    return getattr(importlib.import_module(f"umakit.machine.{_HOMES[name]}"), name)
