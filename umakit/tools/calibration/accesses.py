# SPDX-License-Identifier: Apache-2.0
"""The driver's register accesses: the described ones are compared with those of measured layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from umakit.machine import DriverCosts, TileMachine
from umakit.machine.commands import commands_of
from umakit.tools.calibration.measure import MeasuredTiles

NONE = DriverCosts(begin=0, configure=0, configure_add=0, transfer=0, job=0, check=0, finish=0)

MOST_LAYERS = 60
"""Maximum number of layers that are compared, those with the most commands."""

Figures = dict[str, tuple[int, DriverCosts]]
"""By name what is described, and accesses that are 1 for this figure alone."""


def driver_note(machine: TileMachine, driver: DriverCosts, layers: Sequence[MeasuredTiles]) -> str:
    """Return a sentence with the figures of a driver that all measured layers contradict.

    Empty if no figures explain the accesses of all layers, as with a driver that polls, or if the
    described ones do, or if layers are too few or too similar to tell figures apart.

    Args:
        machine: the machine as it is described.
        driver: the described accesses.
        layers: measured layers.
    """
    counted = [each for each in layers if each.accesses is not None]
    counted = sorted(counted, key=lambda each: each.accesses or 0)[-MOST_LAYERS:]
    figures = _figures(machine, driver, counted)
    # Commands may have accesses of their own, by their `Cost`.
    own = np.array([_total(machine, NONE, each) for each in counted])
    columns = [
        [_total(machine, unit, each) for each in counted] - own for _, unit in figures.values()
    ]
    if len(counted) <= len(columns):
        return ""
    matrix = np.array(columns).T
    wanted = np.array([each.accesses for each in counted]) - own
    solution, _, rank, _ = np.linalg.lstsq(matrix, wanted, rcond=None)
    found = np.rint(solution).astype(int)
    if rank < len(columns) or (found < 0).any() or (matrix @ found != wanted).any():
        return ""
    wrong = [
        f"{name} = {right} instead of {described}"
        for (name, (described, _)), right in zip(figures.items(), found, strict=True)
        if right != described
    ]
    if not wrong:
        return ""
    is_file = getattr(machine, "driver", None) == driver
    place = "[machine.driver] of accel.toml" if is_file else "the DriverCosts of the planner"
    return f"by the driver's register accesses in all layers, {place} should say {', '.join(wrong)}"


def _figures(machine: TileMachine, driver: DriverCosts, layers: Sequence[MeasuredTiles]) -> Figures:
    """Return the figures that measured layers tell apart, and sums of those that they do not."""
    if machine.machine.has_queues:
        names = {"transfer": driver.transfer, "job": driver.job}
        once = "begin + configure + finish"
        of_layer = driver.begin + driver.configure + driver.finish
    else:  # all commands but the first wait for the one before
        names = {"transfer + check": driver.transfer + driver.check}
        names["job + check"] = driver.job + driver.check
        once = "begin + configure + finish - check"
        of_layer = driver.begin + driver.configure + driver.finish - driver.check
    figures = {
        name: (described, replace(NONE, **{name.partition(" ")[0]: 1}))
        for name, described in names.items()
    }
    figures[once] = of_layer, replace(NONE, begin=1)
    if any(each.tiles.layer.adds for each in layers):
        figures["configure_add"] = driver.configure_add, replace(NONE, configure_add=1)
    return figures


def _total(machine: TileMachine, driver: DriverCosts, layer: MeasuredTiles) -> int:
    """Return the described accesses of a layer."""
    commands = commands_of(layer.tiles, machine, driver)
    return sum(command.issue for command in commands) + driver.finish
