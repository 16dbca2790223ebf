# SPDX-License-Identifier: Apache-2.0
"""Measures a machine's commands, and fits formulas to their cycles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from math import inf
from pathlib import Path
from statistics import fmean

import numpy as np

from umakit.backend.base import UMABackend
from umakit.devices import HOST, find_device
from umakit.errors import BackendError, UmakitError
from umakit.machine import DriverCosts, Kind, TileMachine, TilePlanner
from umakit.machine.calibration import FILE_NAME, Calibrated, Calibration
from umakit.machine.commands import commands_of
from umakit.patterns import ROUNDINGS
from umakit.tools.calibration import choice
from umakit.tools.calibration.costs import costs_of
from umakit.tools.calibration.measure import NOTHING_RECORDED, MeasuredTiles, Measurement, measure
from umakit.tools.calibration.outcome import TILES, Outcome
from umakit.tools.calibration.tiles import Group, dense_groups, groups_of, tiles_of_group
from umakit.tools.calibration.whole import measured_layers, off_by, predicted_layers, predictions
from umakit.tools.tuning.simulate import has_simulator
from umakit.version import __version__

FIRST = 4
"""Number of layers of a kind to try first; one if all earlier layers failed."""


@dataclass(frozen=True)
class Calibrating:
    """The progress of a measurement.

    Attributes:
        done, count: number of measured layers, and of all layers, of this kind.
    """

    what: str
    done: int
    count: int


def destination_of(backend: UMABackend) -> Path:
    return backend.folder / FILE_NAME


def calibrate(
    backend: UMABackend,
    *,
    device: str = HOST.name,
    tiles: int = TILES,
    use_inexact: bool = False,
    tell: Callable[[Calibrating], None] = lambda at: None,
) -> Outcome:
    """Measure the costs of the commands of a backend's machine, by its driver.

    Each formula is compared with the present costs, on held-out commands and on whole layers. If
    the formula is worse, or does not hold, the present costs stay.

    Args:
        tiles: number of layers for each kind of layers and each dataflow.
        use_inexact: whether to use formulas that are off by more than `MOST_PERCENT` on held-out
            commands, unless the present costs are better.
    """
    planner, found = _planner_of(backend), find_device(device)
    _check_simulator(backend, found.name)
    before, earlier = planner.machine, planner.calibration
    with _described(planner):
        described = planner.machine
        measuring = _Measuring(backend, planner, found.name, tiles, tell)
        measuring.run()
        measurement, takes = measuring.found, measuring.takes
        commands = [each for layer in measurement.layers for each in layer.commands]
        fits = costs_of(described, commands, _figures(backend))
        of = partial(
            Calibration, backend.target_name, found.name,
            datetime.now(UTC).replace(microsecond=0), __version__, backend.figures(),
        )  # fmt: skip

        def using(choices: Sequence[choice.Choice]) -> Calibration:
            return of(*choice.costs_in_use(choices, earlier))

        measured = Calibrated(described, of(*choice.split(each.costs for each in fits)))
        choices = choice.choices_of(fits, measured, before, use_inexact=use_inexact)
        whole = measured_layers(backend, planner, [using(choices), earlier], found.name, takes)
        layers_before = predictions(planner, earlier, whole)
        choices = choice.without_worse(
            choices, lambda tried: off_by(predictions(planner, using(tried), whole)),
            off_by(layers_before),
        )  # fmt: skip
        calibration = using(choices)
        layers = predictions(planner, calibration, whole)
        note = driver_note(planner, [*measurement.layers, *whole])
        notes = (*measuring.notes(), *([note] if note else []))
    return Outcome(
        replace(calibration, layers=layers), len(measurement.layers), notes, tuple(choices),
        layers_before, tiles,
    )  # fmt: skip


def _planner_of(backend: UMABackend) -> TilePlanner:
    if backend.tiling is None:
        raise BackendError(
            "does not cut layers into tiles, so there is nothing to calibrate",
            where=backend.target_name,
            fix="a backend that registers a TilePlanner can be calibrated: "
            "see `uma new --tutorial chocolate`",
        )
    return backend.tiling


def _check_simulator(backend: UMABackend, device: str) -> None:
    if not has_simulator(backend):
        raise BackendError(
            f"{backend.target_name} has no simulator on the device {device}, so nothing counts "
            "its cycles",
            where=backend.target_name,
            fix="give it one, see docs/your-simulator.md",
        )


@contextmanager
def _described(planner: TilePlanner) -> Iterator[None]:
    """Use the described costs in the block, not the costs of an earlier calibration."""
    before = planner.calibration
    planner.calibrate(None)
    try:
        yield
    finally:
        planner.calibrate(before)


@dataclass
class _Measuring:
    """The measurement of all groups of layers of a backend.

    Attributes:
        count: number of layers of a group.
        takes: groups of which some layers ran.
    """

    backend: UMABackend
    planner: TilePlanner
    device: str
    count: int
    tell: Callable[[Calibrating], None]
    found: Measurement = field(default_factory=Measurement)
    takes: list[Group] = field(default_factory=list)

    def run(self) -> None:
        """Measure all groups in the first rounding that the backend takes."""
        for rounding in ROUNDINGS:
            for group in groups_of(self.planner.machine, rounding):
                self._one_layout(group)
            if not any(group.kind is Kind.CONVOLUTION for group in self.takes):
                for group in dense_groups(self.planner.machine, rounding):
                    self._group(group, self.count)
            if self.takes or self.found.failures:
                break  # cycles do not depend on the rounding
        if not any(layer.commands for layer in self.found.layers):
            raise _nothing(self.backend, self.device, self.found)
        count = len(self.found.layers)
        self.tell(Calibrating("fitting", count, count))

    def _one_layout(self, group: Group) -> None:
        """Measure a group; with images in NCHW if the backend supports none in NHWC."""
        if group in self.takes:
            return
        count = self.count // 3 if group.is_variant else self.count
        before = len(self.takes), len(self.found.failures)
        self._group(group, count)
        after = len(self.takes), len(self.found.failures)
        if before == after and not group.channels_first:
            self._group(replace(group, channels_first=True), count)

    def _group(self, group: Group, count: int) -> None:
        found = self.found
        tiles = tiles_of_group(self.planner.machine, group, count)
        count_first = 1 if found.failures and not found.layers else FIRST
        before, failed = len(found.layers), len(found.failures)
        done = 0

        def report(ran: int) -> None:
            nonlocal done
            done += ran
            self.tell(Calibrating(str(group), done, len(tiles)))

        if tiles:
            report(0)
        measure(self.backend, tiles[:count_first], self.device, found, report)
        if group.adds and not all(each.tiles.layer.adds for each in found.layers[before:]):
            del found.layers[before:]  # the backend takes convolutions, and the CPU the sum
        if len(found.layers) == before:
            # The backend leaves such layers to the CPU, or none runs: one failure is the reason.
            del found.failures[failed + 1 :]
            return
        self.takes.append(group)
        if not any(layer.commands for layer in found.layers):
            raise _nothing(self.backend, self.device, found)
        measure(self.backend, tiles[count_first:], self.device, found, report)

    def notes(self) -> tuple[str, ...]:
        found, name, notes = self.found, self.backend.target_name, []
        taken = {each.kind for each in self.takes}
        missing = [kind.value.replace("_", " ") for kind in Kind if kind not in taken]
        if missing:
            notes.append(
                f"{name} took no {', no '.join(missing)}: these cost what the machine describes"
            )
        if any(group.dense for group in self.takes):
            notes.append(
                f"{name} took fully connected layers, and no convolution: what "
                "convolutions cost was measured on those"
            )
        if found.failures:
            notes.append(
                f"{len(found.failures)} layers did not run and are left out; the first: "
                f"{found.failures[0]}"
            )
        notes += [f"{n} layers are left out: {why}" for why, n in found.mismatches.items()]
        if self.planner.has_own_predictions:
            notes.append(
                f"{type(self.planner).__name__} predicts in a way of its own, which may not use "
                "these costs"
            )
        return tuple(notes)


def _nothing(backend: UMABackend, device: str, found: Measurement) -> UmakitError:
    name = backend.target_name
    if not found.layers and found.failures:
        return found.failures[0]
    if not found.layers:
        return BackendError(
            "takes none of the layers that are measured: convolutions, depthwise ones, fully "
            "connected layers and pools, in int8",
            where=name,
            fix=f"`uma doctor {name}` says what it takes",
        )
    section = backend.configuration.simulator
    program = section is not None and section.program
    if all(each.clock_cycles is None for each in found.layers):
        return BackendError(
            f"the simulator of {name} on the device {device} counts no cycles of a clock, so "
            "nothing says how long each command takes",
            where=name,
            fix="let its counters have the clock, see docs/"
            + ("simulator-protocol.md" if program else "your-simulator.md"),
        )
    reason = max(found.mismatches, key=lambda each: found.mismatches[each], default="")
    if reason == NOTHING_RECORDED or not reason:
        return BackendError(
            f"the simulator of {name} on the device {device} reports no timeline, so nothing says "
            "how long each command takes",
            where=name,
            fix="report what engines do "
            + (
                "as NOTE, see docs/simulator-protocol.md"
                if program
                else "with umakit_host_event, see docs/your-simulator.md"
            ),
        )
    return BackendError(
        f"commands cannot be told apart: {reason}",
        where=name,
        fix="let the simulator report an event for each command, under the name of its stream or "
        "engine in the description of the machine",
    )


def _figures(backend: UMABackend) -> list[int]:
    """Return the whole numbers in a backend's figures, which may be divisors of sizes."""
    words = [word for text in backend.figures().values() for word in text.split(", ")]
    return sorted({int(word) for word in words if word.isdecimal() and 1 < int(word) <= 4096})


NONE = DriverCosts(begin=0, configure=0, configure_add=0, transfer=0, job=0, check=0, finish=0)

LEAST = {"transfer": 1, "job": 1}
"""Smallest figures that `[machine.driver]` accepts, if not 0."""

MOST_LAYERS = 60
"""Maximum number of compared layers, those with the most commands."""

Figures = dict[str, tuple[int, DriverCosts]]
"""The described figure by name, and a driver in which this figure alone is 1."""


def driver_note(planner: TilePlanner, layers: Sequence[MeasuredTiles]) -> str:
    """Return a sentence about figures of a driver that all measured layers contradict.

    The sentence is empty in these cases: no figures explain the accesses of all layers, as for a
    polling driver; the described figures do; layers are too few or too similar to separate figures;
    `[machine.driver]` does not take the figures; predictions from them are worse, because the time
    of a command is not the time of its register accesses.
    """
    machine, driver = planner.machine, planner.driver
    counted = [each for each in layers if each.accesses is not None and each.clock_cycles]
    counted = sorted(counted, key=lambda each: each.accesses or 0)[-MOST_LAYERS:]
    figures = _driver_figures(machine, driver, counted)
    # Commands may have accesses in their own `Cost`.
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
    """Return the driver with the best predictions of layers; None if the described one is best."""
    described = planner.driver
    before = off_by(predicted_layers(planner, layers))
    best, least = None, inf
    try:
        for planner.driver in candidates:
            off = off_by(predicted_layers(planner, layers))
            if choice.is_no_worse(off, before) and fmean(off) < least:
                best, least = planner.driver, fmean(off)
    finally:
        planner.driver = described
    return best


def _driver_figures(
    machine: TileMachine, driver: DriverCosts, layers: Sequence[MeasuredTiles]
) -> Figures:
    """Return the figures that measured layers separate, and sums of inseparable figures."""
    if machine.machine.has_queues:
        names = {"transfer": driver.transfer, "job": driver.job}
        once = "begin + configure + finish"
        of_layer = driver.begin + driver.configure + driver.finish
    else:  # all commands but the first wait for the previous command
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
    commands = commands_of(layer.tiles, machine, driver)
    return sum(command.issue for command in commands) + driver.finish
