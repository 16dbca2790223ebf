# SPDX-License-Identifier: Apache-2.0
"""Measures a machine's commands, and fits formulas to their cycles."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from umakit.backend.base import UMABackend
from umakit.devices import HOST, find_device
from umakit.errors import BackendError, UmakitError
from umakit.machine import Cost, Dataflow, Kind, Layer, TileMachine, TilePlanner, TileSizes
from umakit.machine.calibration import (
    FILE_NAME,
    Calibration,
    CopyCosts,
    Evidence,
    Formula,
    JobCosts,
    MeasuredLayer,
    Term,
    copy_sizes,
    job_sizes,
)
from umakit.machine.planner import prediction_of
from umakit.tools.calibration.fit import COPY_SIZES, JOB_SIZES, fitted
from umakit.tools.calibration.measure import NOTHING_RECORDED, Measurement, Timed, measure
from umakit.tools.calibration.tiles import Tile, flows_of, tiles_of_kind
from umakit.tools.tuning.simulate import has_simulator
from umakit.version import __version__

TILES = 120
"""Default number of layers that are measured for each kind of layers and each dataflow."""

FIRST = 4
"""Number of layers of a kind that are tried first."""

HELD_OUT = 4
"""One of so many commands is held out."""

WHOLE = (
    (Kind.CONVOLUTION, (20, 20), (3, 3), 24, 48),
    (Kind.CONVOLUTION, (12, 12), (1, 1), 32, 64),
    (Kind.CONVOLUTION, (9, 14), (3, 3), 16, 32),
    (Kind.DEPTHWISE, (16, 16), (3, 3), 32, 32),
    (Kind.DEPTHWISE, (10, 7), (5, 5), 64, 64),
    (Kind.MAX_POOL, (16, 16), (2, 2), 32, 32),
    (Kind.AVERAGE_POOL, (7, 7), (3, 3), 64, 64),
)
"""Layers that are measured whole: kind, size of the result, kernel, channels of data and result."""

NOT_A_COST = (
    "all commands are exact, but not all whole layers: when commands start is described wrongly; "
    "look at the queues (entries, completion, in_order), the engines (depth, in_order), the "
    "memories (banks, exclusive) and the driver's accesses ([machine.driver]); a driver that waits "
    "for room in a queue before it writes the registers of a command takes longer than predicted "
    "(docs/your-cost-model.md)"
)
"""Where to look if the costs of commands are right, and the cycles of layers are not."""


@dataclass(frozen=True)
class Calibrating:
    """How far a measurement is.

    Attributes:
        what: what is measured now.
        done, count: layers that were measured, and all of them as far as is known.
    """

    what: str
    done: int
    count: int


@dataclass(frozen=True)
class Outcome:
    """A calibration, and what was left out.

    Attributes:
        calibration: the measured costs.
        layers: number of layers that were measured.
        notes: what was not measured and why, a sentence each.
    """

    calibration: Calibration
    layers: int
    notes: tuple[str, ...]

    @property
    def held_out(self) -> int:
        """The number of commands that were held out."""
        return sum(each.evidence.held_out for each in self.costs)

    @property
    def exact(self) -> int:
        """The number of these that are predicted to the cycle."""
        return sum(each.evidence.exact for each in self.costs)

    @property
    def worst_percent(self) -> float:
        """The largest deviation on these, in percent."""
        return max((each.evidence.worst_percent for each in self.costs), default=0.0)

    @property
    def hint(self) -> str:
        """Where to look if all commands are exact and whole layers are not; empty otherwise."""
        layers = self.calibration.layers
        is_off = any(each.predicted_cycles != each.clock_cycles for each in layers)
        return NOT_A_COST if is_off and self.exact == self.held_out > 0 else ""

    @property
    def costs(self) -> tuple[JobCosts | CopyCosts, ...]:
        """The costs of all commands."""
        return (*self.calibration.jobs, *self.calibration.copies)

    def as_json(self) -> dict[str, Any]:
        """Return all figures by name."""
        return {
            **self.calibration.as_json(),
            "measured_layers": self.layers,
            "held_out_commands": self.held_out,
            "exact_commands": self.exact,
            "worst_percent": self.worst_percent,
            "notes": [*self.notes, *([self.hint] if self.hint else [])],
        }


def destination_of(backend: UMABackend) -> Path:
    """Return the file beside `accel.toml` that predictions are made from."""
    return backend.folder / FILE_NAME


def calibrate(
    backend: UMABackend,
    *,
    device: str = HOST.name,
    tiles: int = TILES,
    tell: Callable[[Calibrating], None] = lambda at: None,
) -> Outcome:
    """Measure what the commands of a backend's machine cost, by its driver.

    Args:
        backend: backend that cuts layers into tiles.
        device: name of the device that runs the driver.
        tiles: number of layers for each kind of layers and each dataflow.
        tell: told how far it is.

    Raises:
        BackendError: the backend does not cut layers into tiles, nothing counts its cycles, or its
            commands cannot be told apart.
        UmakitError: no layer could be compiled or run.
    """
    planner = _planner_of(backend)
    found = find_device(device)
    if not has_simulator(backend):
        raise BackendError(
            f"{backend.target_name} has no simulator on the device {found.name}, so nothing counts "
            "its cycles",
            where=backend.target_name,
            fix="give it one, see docs/your-simulator.md",
        )
    with _described(planner):
        measurement = Measurement()
        asked = _measure_kinds(backend, planner, found.name, tiles, measurement, tell)
        if not any(layer.commands for layer in measurement.layers):
            raise _nothing(backend, found.name, measurement)
        tell(Calibrating("fitting", asked, asked))
        commands = [each for layer in measurement.layers for each in layer.commands]
        jobs, copies = costs_of(planner.machine, commands, _figures(backend))
        calibration = Calibration(
            backend.target_name,
            found.name,
            datetime.now(UTC).replace(microsecond=0),
            __version__,
            backend.figures(),
            jobs,
            copies,
        )
        whole = _whole_layers(backend, planner, calibration, found.name)
        notes = _notes(backend, planner, measurement, jobs)
    return Outcome(_with_layers(calibration, whole), len(measurement.layers), notes)


def _planner_of(backend: UMABackend) -> TilePlanner:
    if backend.tiling is None:
        raise BackendError(
            "does not cut layers into tiles, so there is nothing to calibrate",
            where=backend.target_name,
            fix="a backend that registers a TilePlanner can be calibrated: "
            "see `uma new --tutorial chocolate`",
        )
    return backend.tiling


@contextmanager
def _described(planner: TilePlanner) -> Iterator[None]:
    """Use the described costs in the block, not those of an earlier calibration."""
    machine = planner.machine
    planner.calibrate(None)
    try:
        yield
    finally:
        planner.machine = machine
        planner.calibrate(getattr(machine, "calibration", None))


def _measure_kinds(
    backend: UMABackend,
    planner: TilePlanner,
    device: str,
    count: int,
    found: Measurement,
    tell: Callable[[Calibrating], None],
) -> int:
    """Measure all kinds of layers that the backend takes; return the number of layers tried."""
    groups = [(kind, flow, False) for kind in Kind for flow in flows_of(planner.machine, kind)]
    # The other layout has other copies; its jobs are the same.
    groups.append((Kind.CONVOLUTION, planner.machine.dataflows[0], True))
    done = 0
    for kind, flow, channels_first in groups:
        tiles = tiles_of_kind(
            planner.machine, kind, flow, count // 3 if channels_first else count,
            channels_first=channels_first,
        )  # fmt: skip
        what = f"{kind.value.replace('_', ' ')}, {flow.value.replace('_', ' ')}"
        what += ", NCHW" if channels_first else ""
        first, rest = tiles[:FIRST], tiles[FIRST:]
        before, failed = len(found.layers), len(found.failures)
        tell(Calibrating(what, done, done + len(tiles)))
        measure(backend, first, device, found)
        done += len(first)
        if len(found.layers) == before:
            # The backend leaves such layers to the CPU, or none of them runs.
            _forget(found, failed)
            continue
        if not any(layer.commands for layer in found.layers):
            raise _nothing(backend, device, found)

        def report(ran: int, what: str = what, total: int = done + len(rest)) -> None:
            nonlocal done
            done += ran
            tell(Calibrating(what, done, total))

        measure(backend, rest, device, found, report)
    return done


def _forget(found: Measurement, failed: int) -> None:
    """Keep no more than one failure of a kind of layers that does not run at all."""
    del found.failures[failed + 1 :]


def _nothing(backend: UMABackend, device: str, found: Measurement) -> UmakitError:
    """Return the error for a measurement without a single command."""
    name = backend.target_name
    if not found.layers and found.failures:
        return found.failures[0]
    if not found.layers:
        return BackendError(
            "takes none of the layers that are measured: quantized convolutions, depthwise ones, "
            "and pools",
            where=name,
            fix=f"`uma doctor {name}` says what it takes",
        )
    reason = max(found.mismatches, key=lambda each: found.mismatches[each], default="")
    if reason == NOTHING_RECORDED or not reason:
        return BackendError(
            f"the simulator of {name} on the device {device} reports no timeline, so nothing says "
            "how long each command takes",
            where=name,
            fix="report what engines do with umakit_host_event, see docs/your-simulator.md",
        )
    return BackendError(
        f"commands cannot be told apart: {reason}",
        where=name,
        fix="let the simulator report an event for each command, under the name of its stream or "
        "engine in the description of the machine",
    )


def _figures(backend: UMABackend) -> list[int]:
    """Return the whole numbers of a backend's figures, of which some may be parts of sizes."""
    words = [word for text in backend.figures().values() for word in text.split(", ")]
    return sorted({int(word) for word in words if word.isdecimal() and 1 < int(word) <= 4096})


# --- fitting --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sample:
    """A measured command: its sizes, with the described cycles, and the measured ones."""

    sizes: Mapping[str, int]
    described: Cost
    busy: int
    tail: int | None

    def of_busy(self) -> tuple[dict[str, int], int]:
        return {**self.sizes, "described": self.described.busy}, self.busy

    def of_tail(self) -> tuple[dict[str, int], int]:
        assert self.tail is not None
        return {**self.sizes, "described": self.described.tail}, self.tail


def costs_of(
    machine: TileMachine, commands: Sequence[Timed], figures: Sequence[int]
) -> tuple[tuple[JobCosts, ...], tuple[CopyCosts, ...]]:
    """Return formulas of the cycles of measured commands.

    Args:
        machine: the machine with the described costs.
        commands: measured commands.
        figures: figures of the machine, of which some may be parts of sizes.
    """
    jobs: dict[tuple[Kind, Dataflow], list[_Sample]] = {}
    copies: dict[str, dict[str, list[_Sample]]] = {}
    for each in commands:
        sizes = each.sizes
        if isinstance(sizes, TileSizes):
            sample = _Sample(job_sizes(sizes), machine.job(sizes), each.busy, each.tail)
            jobs.setdefault((sizes.layer.kind, sizes.dataflow), []).append(sample)
        else:
            sample = _Sample(copy_sizes(sizes), machine.copy(sizes), each.busy, each.tail)
            copies.setdefault(each.stream, {}).setdefault(sizes.tensor, []).append(sample)
    return (
        tuple(
            JobCosts(kind, flow, *_fit(samples, JOB_SIZES, figures))
            for (kind, flow), samples in jobs.items()
        ),
        tuple(
            costs
            for stream, by_tensor in copies.items()
            for costs in _copies(stream, by_tensor, figures)
        ),
    )


def _copies(
    stream: str, by_tensor: Mapping[str, list[_Sample]], figures: Sequence[int]
) -> list[CopyCosts]:
    """Return one formula for all tensors of a stream, or one for each where that is better."""
    samples = [each for group in by_tensor.values() for each in group]
    together = CopyCosts(stream, tuple(by_tensor), *_fit(samples, COPY_SIZES, figures))
    if together.evidence.worst_percent == 0 or len(by_tensor) == 1:
        return [together]
    alone = [
        CopyCosts(stream, (tensor,), *_fit(group, COPY_SIZES, figures))
        for tensor, group in by_tensor.items()
    ]
    worst = max(each.evidence.worst_percent for each in alone)
    return alone if worst < together.evidence.worst_percent else [together]


def _divided(samples: Sequence[_Sample]) -> tuple[list[_Sample], list[_Sample]]:
    """Return the samples that are fitted, and those that are held out.

    Equal ones count once. The largest of each size are fitted, so that each size varies there.
    """
    different = {repr(each): each for each in samples}
    ordered = [different[key] for key in sorted(different)]
    random.Random(0).shuffle(ordered)
    largest = {name: max(each.sizes[name] for each in ordered) for name in ordered[0].sizes}
    given: list[_Sample] = []
    held_out: list[_Sample] = []
    for number, each in enumerate(ordered):
        is_largest = any(each.sizes[name] == largest[name] > 1 for name in largest)
        is_given = is_largest or number % HELD_OUT != HELD_OUT - 1
        (given if is_given else held_out).append(each)
    return given, held_out


def _fit(
    samples: Sequence[_Sample], choices: Sequence[tuple[str, ...]], figures: Sequence[int]
) -> tuple[Formula, Formula, Evidence]:
    given, held_out = _divided(samples)
    busy = fitted([each.of_busy() for each in given], choices, figures)
    tails = [each.of_tail() for each in given if each.tail is not None]
    tail = fitted(tails, choices, figures) if tails else Formula((Term(0),))
    exact, worst = 0, 0.0
    for each in held_out:
        cycles = max(1, busy.of(each.of_busy()[0]))
        measured = each.busy
        if each.tail is not None:
            cycles += max(0, tail.of(each.of_tail()[0]))
            measured += each.tail
        exact += cycles == measured
        worst = max(worst, 100 * abs(cycles / measured - 1))
    return busy, tail, Evidence(len(given), len(held_out), exact, round(worst, 3))


# --- whole layers ---------------------------------------------------------------------------------


def _whole_layers(
    backend: UMABackend, planner: TilePlanner, calibration: Calibration, device: str
) -> tuple[MeasuredLayer, ...]:
    """Measure layers of several tiles with the tilings that they get by default."""
    planner.calibrate(calibration)
    tiles = []
    kinds = {each.kind for each in calibration.jobs}
    for kind, size, kernel, inputs, outputs in WHOLE:
        layer = Layer(
            kind, 1, (size[0] + kernel[0] - 1, size[1] + kernel[1] - 1), size, inputs, outputs,
            kernel, scales=outputs, stored_channels=outputs,
        )  # fmt: skip
        tiling = planner.default(layer) if kind in kinds else None
        if tiling is not None:
            tiles.append(Tile(layer, tiling))
    found = Measurement()
    measure(backend, tiles, device, found)
    return tuple(
        MeasuredLayer(
            _words(each.tiles.layer), each.clock_cycles, prediction_of(planner, each.tiles).cycles
        )
        for each in found.layers
        if each.clock_cycles
    )


def _words(layer: Layer) -> str:
    """Return a layer in words, such as `convolution 3x3, 22x22x24 to 20x20x48`."""
    kernel, data, result = (
        "x".join(map(str, sizes))
        for sizes in (
            layer.kernel,
            (*layer.input_size, layer.input_channels),
            (*layer.output_size, layer.output_channels),
        )
    )
    return f"{layer.kind.value.replace('_', ' ')} {kernel}, {data} to {result}"


def _with_layers(calibration: Calibration, layers: tuple[MeasuredLayer, ...]) -> Calibration:
    return replace(calibration, layers=layers)


def _notes(
    backend: UMABackend,
    planner: TilePlanner,
    found: Measurement,
    jobs: Sequence[JobCosts],
) -> tuple[str, ...]:
    notes = []
    missing = [
        kind.value.replace("_", " ") for kind in Kind if kind not in {each.kind for each in jobs}
    ]
    if missing:
        notes.append(
            f"{backend.target_name} took no {', no '.join(missing)}: these cost what the machine "
            "describes"
        )
    if found.failures:
        notes.append(
            f"{len(found.failures)} layers did not run and are left out; the first: "
            f"{found.failures[0]}"
        )
    for reason, count in found.mismatches.items():
        notes.append(f"{count} layers are left out: {reason}")
    if planner.has_own_predictions:
        notes.append(
            f"{type(planner).__name__} predicts in a way of its own, which may not use these costs"
        )
    return tuple(notes)
