# SPDX-License-Identifier: Apache-2.0
"""Cutting layers into tiles that fit an accelerator's scratchpad, and the cycles of the tiles.

Names are imported when they are first used: `umakit.machine.systolic` needs no TVM.

There is one model of a machine, `TileMachine`: memories, engines and queues (`description.py`), the
limits of tiles, and functions of cycles and bytes. `Hardware` is the systolic array of `[array]`
and `[dma]`, whose cycles are Python functions; `ConfiguredMachine` is the machine of `[machine]`,
whose cycles are formulas; `Calibrated` wraps either with measured costs. Everything else asks the
model only:

::

    tiles.py, space.py, layer_pass.py      a layer in tiles, the valid tilings, the driver calls
    commands.py, clock.py, stalls.py       the commands of a layer, their exact cycles, the stalls
    estimate.py, selection.py, planner.py  fast estimates, the best tilings, the interface
    bounds/, counts.py                     lower bounds of cycles, counts of events
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from umakit.imports import imported_on_use

if TYPE_CHECKING:
    from umakit.machine.commands import DriverCosts
    from umakit.machine.configured import ConfiguredMachine
    from umakit.machine.costs import Copy, Cost, TileSizes
    from umakit.machine.description import Command, Engine, Machine, Memory, Queue, Stream
    from umakit.machine.hardware import Hardware
    from umakit.machine.layer import Kind, Layer
    from umakit.machine.layer_pass import (
        CONFIGURE_ARGUMENTS,
        COPY_ARGUMENTS,
        loops_of,
        placed_schedule,
        tile_schedule,
        tiled_layer_pass,
        with_calls,
    )
    from umakit.machine.planner import COST_MODEL, Prediction, TilePlanner
    from umakit.machine.space import misfit, tiles_on
    from umakit.machine.systolic import Dataflow
    from umakit.machine.tile_machine import TileMachine
    from umakit.machine.tiles import Tiles, Tiling

__all__ = [
    "CONFIGURE_ARGUMENTS",
    "COPY_ARGUMENTS",
    "COST_MODEL",
    "Command",
    "ConfiguredMachine",
    "Copy",
    "Cost",
    "Dataflow",
    "DriverCosts",
    "Engine",
    "Hardware",
    "Kind",
    "Layer",
    "Machine",
    "Memory",
    "Prediction",
    "Queue",
    "Stream",
    "TileMachine",
    "TilePlanner",
    "TileSizes",
    "Tiles",
    "Tiling",
    "loops_of",
    "misfit",
    "placed_schedule",
    "tile_schedule",
    "tiled_layer_pass",
    "tiles_on",
    "with_calls",
]

__getattr__ = imported_on_use(
    __name__,
    {
        "CONFIGURE_ARGUMENTS": "umakit.machine.layer_pass",
        "COPY_ARGUMENTS": "umakit.machine.layer_pass",
        "COST_MODEL": "umakit.machine.planner",
        "Command": "umakit.machine.description",
        "ConfiguredMachine": "umakit.machine.configured",
        "Copy": "umakit.machine.costs",
        "Cost": "umakit.machine.costs",
        "Dataflow": "umakit.machine.systolic",
        "DriverCosts": "umakit.machine.commands",
        "Engine": "umakit.machine.description",
        "Hardware": "umakit.machine.hardware",
        "Kind": "umakit.machine.layer",
        "Layer": "umakit.machine.layer",
        "Machine": "umakit.machine.description",
        "Memory": "umakit.machine.description",
        "Prediction": "umakit.machine.planner",
        "Queue": "umakit.machine.description",
        "Stream": "umakit.machine.description",
        "TileMachine": "umakit.machine.tile_machine",
        "TilePlanner": "umakit.machine.planner",
        "TileSizes": "umakit.machine.costs",
        "Tiles": "umakit.machine.tiles",
        "Tiling": "umakit.machine.tiles",
        "loops_of": "umakit.machine.layer_pass",
        "misfit": "umakit.machine.space",
        "placed_schedule": "umakit.machine.layer_pass",
        "tile_schedule": "umakit.machine.layer_pass",
        "tiled_layer_pass": "umakit.machine.layer_pass",
        "tiles_on": "umakit.machine.space",
        "with_calls": "umakit.machine.layer_pass",
    },
)
