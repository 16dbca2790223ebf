# SPDX-License-Identifier: Apache-2.0
"""Cutting layers into tiles that fit an accelerator's scratchpad, and the cycles of the tiles.

Names are imported when they are first used: `umakit.machine.systolic` needs no TVM.

::

    description.py Machine      memories, engines, queues, and commands
    hardware.py   Hardware      the parameters of a systolic array, which is such a machine
    layer.py      Layer         the sizes of a layer
    tiles.py      Tiling, Tiles tile sizes, loop order, and all tiles of a layer
    requirements.py Transfer, Job transfers and array job of a tile
    schedules.py  tile_schedule tiles as TIR, for a backend's pass
    layer_pass.py tiled_layer_pass tiles as driver calls: the TIR pass of a backend
    commands.py   commands_of   the commands of a tiled layer for the device
    costs.py      Cost          cycles of a command, and the sizes behind the cycles
    tile_machine.py TileMachine base class of machines that compute layers tile by tile
    machine_config.py, configured.py ConfiguredMachine  the machine of [machine] in accel.toml
    formulas.py, cost_tables.py     formulas and tables of costs in accel.toml
    calibration.py Calibration  the file of measured costs
    calibrated.py  Calibrated   a machine with measured costs of commands
    dependencies.py dependencies_of  the older commands that each command waits for
    clock.py      run           exact cycles of a list of commands on a machine
    stalls.py     CycleBreakdown cycles of a run, by the cause of the array's stall
    bound.py      Bound         lower bounds of a layer's cycles
    bounds/                     other bounds, of the network and of the array, and losses
    space.py      misfit        the set of valid tilings
    estimate.py   Estimates     fast approximate cycles of a tiling
    selection.py  best_tilings  the best tilings by the estimate
    planner.py    TilePlanner   the interface for backends
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
