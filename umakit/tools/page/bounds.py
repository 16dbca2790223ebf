# SPDX-License-Identifier: Apache-2.0
"""The bounds of a network and of its layers, from a compiled program and its backends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from umakit.backend.base import UMABackend
from umakit.machine import Hardware, Prediction, TilePlanner, Tiles
from umakit.machine.bound import fill_cycles
from umakit.machine.bounds.array import ArrayBound, array_bound, works_of
from umakit.machine.bounds.limits import Limits, limits_of
from umakit.machine.bounds.losses import Losses, losses_of
from umakit.machine.bounds.network import CycleBound, Step, network_bound
from umakit.machine.bounds.scratchpad import spilled_bytes
from umakit.machine.calibrated import Calibrated
from umakit.machine.commands import moved_bytes
from umakit.program.program import Program
from umakit.tools.program_steps import is_unknown, known_bytes, steps_of


@dataclass(frozen=True)
class LayerBounds:
    """Bounds of a layer beyond that by its multiply-accumulates and bytes, and what it loses.

    Attributes:
        array: its bound with folds, drain, first load and last store; None if unknown.
        losses: its cycles above its bound, by cause; None if unknown.
        unknown: for `array` and `losses`, why one is None.
    """

    array: ArrayBound | None
    losses: Losses | None
    unknown: Mapping[str, str]

    def as_json(self) -> dict[str, Any]:
        """Return all figures by name; keys are stable."""
        losses = None if self.losses is None else self.losses.as_json()
        return {**asdict(self), "losses": losses}


@dataclass(frozen=True)
class NamedBound:
    """A bound of all layers on an accelerator.

    Attributes:
        name: `network`, `scratchpad`, `layers` or `arrays`.
        title: what it is, for a table.
        cycles: the bound; None if unknown.
        compute, memory, bytes: its parts, as of `CycleBound`; None for sums over layers.
        ratio: simulated cycles divided by the bound; None without one of them.
        unknown: why parts are None, a clause each.
    """

    name: str
    title: str
    cycles: int | None
    compute: int | None
    memory: int | None
    bytes: int | None
    ratio: float | None
    unknown: tuple[str, ...]


@dataclass(frozen=True)
class AcceleratorBounds:
    """The bounds of the layers that an accelerator runs.

    Attributes:
        accelerator: its name.
        layers: number of these layers.
        macs, total_macs: their multiply-accumulates, and those of the whole network.
        clock_cycles: their simulated cycles together; None if one was not measured.
        bounds: from the network's to that which knows most of the machine.
        not_counted: names of layers of which nothing says what they need of their operands, which
            therefore count no bytes of them.
    """

    accelerator: str
    layers: int
    macs: int
    total_macs: int
    clock_cycles: int | None
    bounds: tuple[NamedBound, ...]
    not_counted: tuple[str, ...]

    @property
    def share(self) -> float | None:
        """The fraction of the network's multiply-accumulates that they do, 0 to 1."""
        return self.macs / self.total_macs if self.total_macs else None

    def as_json(self) -> dict[str, Any]:
        """Return all figures by name; keys are stable."""
        return {**asdict(self), "share": self.share}


@dataclass(frozen=True)
class MeasuredLayer:
    """What is known of a layer on an accelerator.

    Attributes:
        where: the accelerator.
        clock_cycles: simulated cycles; None if not measured.
        bound: its bound by multiply-accumulates and bytes; None if no planner cuts it.
        array: its bound with folds; None if unknown.
    """

    where: str
    clock_cycles: int | None
    bound: int | None
    array: int | None


def layer_bounds(
    planner: TilePlanner, tiles: Tiles, prediction: Prediction, simulated: int | None
) -> LayerBounds:
    """Return the bounds of a tiled layer beyond that of its prediction, and what it loses.

    Args:
        planner: the planner that cut it.
        tiles: its tiles.
        prediction: what the planner predicts for them.
        simulated: its simulated cycles; None if they were not measured.
    """
    machine, layer, unknown = planner.machine, tiles.layer, {}
    array = least = None
    if isinstance(machine, Calibrated):
        unknown["array"] = "costs are measured, not those of folds"
    elif not isinstance(machine, Hardware):
        unknown["array"] = "costs are formulas, not those of folds of an [array]"
    elif type(machine).job is not Hardware.job or type(machine).copy is not Hardware.copy:
        unknown["array"] = "the backend has costs of its own"
    else:
        array = array_bound(machine, layer)
        least = min(work.busy for work in works_of(machine, layer))
    run, finish = prediction.run, planner.driver.finish
    if run is None or prediction.cycles != run.cycles + finish:
        unknown["losses"] = "the planner predicts cycles in a way of its own"
        return LayerBounds(array, None, unknown)
    again = moved_bytes(tiles) - layer.stored_bytes
    losses = losses_of(
        run, prediction.bound, finish, least_array=least, fill=fill_cycles(machine, layer),
        bytes_again=again, width=machine.bytes_per_cycle, simulated=simulated,
    )  # fmt: skip
    if losses is None:
        unknown["losses"] = "commands take fewer cycles than its peak and widths allow"
    return LayerBounds(array, losses, unknown)


def accelerator_bounds(
    program: Program,
    total_macs: int,
    backends: Sequence[UMABackend],
    layers: Sequence[MeasuredLayer],
) -> tuple[AcceleratorBounds, ...]:
    """Return the bounds of each accelerator that runs layers of a program.

    Args:
        program: the program.
        total_macs: multiply-accumulates of the whole network.
        backends: its backends.
        layers: its layers on accelerators.
    """
    steps = steps_of(program)
    outputs = frozenset(program.outputs)
    found = []
    for backend in backends:
        name, planner = backend.target_name, backend.tiling
        own = [layer for layer in layers if layer.where == name]
        if not own or backend.configuration.is_library:
            continue
        described = None if planner is None else planner.described
        limits = limits_of(backend.configuration, described)
        cycles = _sum([layer.clock_cycles for layer in own])
        found.append(
            AcceleratorBounds(
                name,
                len(own),
                sum(step.macs for step in steps if step.where == name),
                total_macs,
                cycles,
                tuple(_bounds(steps, outputs, name, limits, own, cycles)),
                tuple(s.name for s in steps if s.where == name and is_unknown(s)),
            )
        )
    return tuple(found)


def _bounds(
    steps: Sequence[Step],
    outputs: frozenset[str],
    where: str,
    limits: Limits,
    layers: Sequence[MeasuredLayer],
    cycles: int | None,
) -> list[NamedBound]:
    whole = known_bytes(network_bound(steps, outputs, where, limits), steps, where)
    room = limits.scratchpad_bytes
    if room is None:
        why = limits.unknown.get("scratchpad_bytes", "not described")
        kept = CycleBound(None, None, None, (f"scratchpad_bytes: {why}",))
    else:
        spilled = spilled_bytes(steps, outputs, where, room)
        kept = known_bytes(network_bound(steps, outputs, where, limits, spilled), steps, where)
    return [
        _named("network", "network", whole, cycles),
        _named("scratchpad", "network, layer after layer", kept, cycles),
        _summed("layers", "sum of layers", [layer.bound for layer in layers], cycles),
        _summed("arrays", "sum of layers on the array", [layer.array for layer in layers], cycles),
    ]


def _named(name: str, title: str, bound: CycleBound, cycles: int | None) -> NamedBound:
    return NamedBound(
        name, title, bound.cycles, bound.compute, bound.memory, bound.bytes,
        _ratio(cycles, bound.cycles), bound.unknown,
    )  # fmt: skip


def _summed(name: str, title: str, bounds: Sequence[int | None], cycles: int | None) -> NamedBound:
    total, missing = _sum(bounds), bounds.count(None)
    unknown = (f"{title}: {missing} of {len(bounds)} layers have none",) if missing else ()
    return NamedBound(name, title, total, None, None, None, _ratio(cycles, total), unknown)


def _ratio(cycles: int | None, bound: int | None) -> float | None:
    return cycles / bound if cycles is not None and bound else None


def _sum(values: Sequence[int | None]) -> int | None:
    return None if None in values else sum(value for value in values if value)
