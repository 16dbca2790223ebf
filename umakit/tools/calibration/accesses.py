# SPDX-License-Identifier: Apache-2.0
"""The driver's register accesses: the described ones are compared with those of measured layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from math import inf
from statistics import fmean

import numpy as np

from umakit.machine import DriverCosts, TileMachine, TilePlanner
from umakit.machine.commands import commands_of
from umakit.tools.calibration.choice import is_no_worse
from umakit.tools.calibration.measure import MeasuredTiles
from umakit.tools.calibration.whole import off_by, predicted_layers

NONE = DriverCosts(begin=0, configure=0, configure_add=0, transfer=0, job=0, check=0, finish=0)

LEAST = {"transfer": 1, "job": 1}
"""Smallest figures that `[machine.driver]` accepts, if not 0."""

MOST_LAYERS = 60
"""Maximum number of layers that are compared, those with the most commands."""

Figures = dict[str, tuple[int, DriverCosts]]
"""By name what is described, and accesses that are 1 for this figure alone."""


def driver_note(planner: TilePlanner, layers: Sequence[MeasuredTiles]) -> str:
    """Return a sentence with the figures of a driver that all measured layers contradict.

    Empty if no figures explain the accesses of all layers, as with a driver that polls, or if the
    described ones do, or if layers are too few or too similar to tell figures apart. Empty too if
    `[machine.driver]` does not take the figures, or if predictions from them are worse: the time
    of a command is then not that of its accesses to registers.

    Args:
        planner: predicts from the described accesses and from the costs that are used.
        layers: measured layers.
    """
    machine, driver = planner.machine, planner.driver
    counted = [each for each in layers if each.accesses is not None and each.clock_cycles]
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
    if rank < len(columns) or (matrix @ found != wanted).any():
        return ""
    more = {
        name: int(right) - described
        for (name, (described, _)), right in zip(figures.items(), found, strict=True)
    }
    if not any(more.values()):
        return ""
    right = _best(planner, _candidates(driver, more), counted)
    if right is None:
        return ""
    wrong = [
        f"{name} = {value} instead of {getattr(driver, name)}"
        for name, value in asdict(right).items()
        if value != getattr(driver, name)
    ]
    is_file = getattr(planner.described, "driver", None) == driver
    place = "[machine.driver] of accel.toml" if is_file else "the DriverCosts of the planner"
    return f"by the driver's register accesses in all layers, {place} should say {', '.join(wrong)}"


def _candidates(driver: DriverCosts, more: Mapping[str, int]) -> Iterator[DriverCosts]:
    """Yield drivers with some accesses more. Of a sum of figures, one figure changes."""
    once = next(each for name, each in more.items() if name.startswith("begin"))
    others = {name: each for name, each in more.items() if not name.startswith("begin")}
    changed = {name.partition(" ")[0]: each for name, each in others.items()}
    for name in ("begin", "configure", "finish"):
        given = {**changed, name: once}
        figures = {each: getattr(driver, each) + count for each, count in given.items()}
        if all(value >= LEAST.get(each, 0) for each, value in figures.items()):
            yield replace(driver, **figures)


def _best(
    planner: TilePlanner, candidates: Iterable[DriverCosts], layers: Sequence[MeasuredTiles]
) -> DriverCosts | None:
    """Return the driver from which layers are predicted best; None if all are worse than the
    described one."""
    described = planner.driver
    before = off_by(predicted_layers(planner, layers))
    best, least = None, inf
    try:
        for planner.driver in candidates:
            off = off_by(predicted_layers(planner, layers))
            if is_no_worse(off, before) and fmean(off) < least:
                best, least = planner.driver, fmean(off)
    finally:
        planner.driver = described
    return best


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
