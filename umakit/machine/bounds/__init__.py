# SPDX-License-Identifier: Apache-2.0
"""Lower bounds of cycles from sizes of layers and from the description of a machine.

The roofline model (S. Williams et al., CACM 52(4), 2009) of a layer is here; `network.py` bounds
all offloaded layers together, `inferences.py` several inferences, `TileMachine.array_bound` a layer
on a systolic array. None of them asks the planner, the estimate or the clock; `losses.py` reads
times of commands, to attribute the cycles above a bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from umakit import sim
from umakit.machine.accelerator_config import AcceleratorConfig
from umakit.machine.costs import TENSORS
from umakit.machine.layer import Layer
from umakit.machine.tile_machine import TileMachine


@dataclass(frozen=True, slots=True)
class Bound:
    """Lower bounds of a layer's cycles.

    Attributes:
        compute: cycles at the largest number of multiply-accumulates in a cycle.
        memory: cycles to move the compulsory bytes, without any latency.
    """

    compute: int
    memory: int

    @property
    def cycles(self) -> int:
        """The larger bound, since compute and transfers may overlap entirely."""
        return max(self.compute, self.memory)


ACTIVATIONS = ("data", "addend", "result")
"""Tensors that one layer can leave in the accelerator's memory for another layer."""


@dataclass(frozen=True)
class EngineLimit:
    """An engine that copies with its own number of bytes per cycle.

    Attributes:
        bytes_per_cycle: largest number of bytes that the engine copies in a cycle, at least 1.
        copies: the tensors of `TENSORS` that only this engine copies.
    """

    name: str
    bytes_per_cycle: int
    copies: frozenset[str]


@dataclass(frozen=True)
class Limits:
    """The figures of a machine that bounds are computed from.

    Attributes:
        macs_per_cycle: largest number of multiply-accumulates in a cycle; None if unknown.
        bytes_per_cycle: largest number of bytes that all engines together copy in a cycle; None if
            unknown.
        scratchpad_bytes: bytes of all memories that hold activations; None if unknown.
        engines: engines with a width of their own.
        unknown: by name of an attribute that is None, the reason.
    """

    macs_per_cycle: int | None
    bytes_per_cycle: int | None
    scratchpad_bytes: int | None
    engines: tuple[EngineLimit, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)


def limits_of(configuration: AcceleratorConfig, machine: TileMachine | None) -> Limits:
    """Return the limits of a planner's machine, or without one of the sections of its file."""
    return _limits_of_sections(configuration) if machine is None else limits_of_machine(machine)


def limits_of_machine(machine: TileMachine) -> Limits:
    """Return the limits of a machine that cuts layers into tiles."""
    held = {machine.memory_of(tensor) for tensor in ACTIVATIONS}
    engines = []
    for name, width in machine.engine_bytes_per_cycle.items():
        copied = frozenset(each for each in TENSORS if machine.engine_of(each).name == name)
        engines.append(EngineLimit(name, width, copied))
    return Limits(
        machine.macs_per_cycle,
        machine.bytes_per_cycle,
        sum(each.size for each in machine.machine.memories if each.name in held),
        tuple(engines),
    )


def _limits_of_sections(configuration: AcceleratorConfig) -> Limits:
    machine, unknown, peak = configuration.machine, {}, configuration.cells
    kind = sim.KINDS.get(configuration.device.simulator)
    has_dma = configuration.has_dma if kind is None else kind.has_dma
    width = configuration.dma.bytes_per_cycle if has_dma else None
    if machine is not None:
        peak, width = machine.numbers["macs_per_cycle"], machine.numbers["bytes_per_cycle"]
    sizes = [memory.size for memory in configuration.scratchpads]
    known = [size for size in sizes if size is not None]
    room = sum(known) if known and len(known) == len(sizes) else None
    if peak is None:
        unknown["macs_per_cycle"] = "accel.toml has neither [array] nor [machine]"
    if width is None:
        unknown["bytes_per_cycle"] = "accel.toml has neither [dma] nor [machine]"
    if room is None:
        unknown["scratchpad_bytes"] = 'accel.toml has no [[memory]] with address = "offset"'
    return Limits(peak, width, room, unknown=unknown)


@dataclass(frozen=True)
class CycleBound:
    """A lower bound of cycles.

    Attributes:
        compute: cycles of the multiply-accumulates; None if the multiply-accumulates per cycle are
            unknown.
        memory: cycles of the bytes; None if the bytes, or the bytes per cycle, are unknown.
        bytes: bytes that cross the bus at least; None if unknown.
        unknown: a clause for each part that is None, with the reason.
    """

    compute: int | None
    memory: int | None
    bytes: int | None
    unknown: tuple[str, ...] = ()

    @property
    def cycles(self) -> int | None:
        """The larger known part; None if both are unknown."""
        known = [part for part in (self.compute, self.memory) if part is not None]
        return max(known, default=None)


def bound_of(macs: int, moved: Mapping[str, int], limits: Limits, others: int = 0) -> CycleBound:
    """Return the bound of multiply-accumulates and of bytes that have to cross the bus.

    Args:
        moved: bytes by role, from `compulsory_bytes`.
        others: further bytes, copied by an unknown engine.
    """
    total = sum(moved.values()) + others
    peak, width = limits.macs_per_cycle, limits.bytes_per_cycle
    unknown = tuple(
        f"{name}: {limits.unknown.get(name, 'not described')}"
        for name in ("macs_per_cycle", "bytes_per_cycle")
        if getattr(limits, name) is None
    )
    memory = None
    if width is not None:
        memory = -(-total // width)
        for engine in limits.engines:
            alone = sum(count for role, count in moved.items() if role in engine.copies)
            memory = max(memory, -(-alone // engine.bytes_per_cycle))
    return CycleBound(None if peak is None else -(-macs // peak), memory, total, unknown)


def lower_bound(machine: TileMachine, macs: int, moved: Mapping[str, int]) -> Bound:
    """Return the bounds of work on a machine that cuts layers into tiles.

    Args:
        moved: bytes that have to cross the bus, by tensor. An engine with a width of its own is
            busy for at least ceil(bytes of the engine's tensors / bytes per cycle of the engine).
    """
    found = bound_of(macs, moved, limits_of_machine(machine))
    assert found.compute is not None and found.memory is not None  # machines have both figures
    return Bound(found.compute, found.memory)


def layer_bound(machine: TileMachine, layer: Layer) -> Bound:
    """Return the bounds of a layer: inputs, weights and results cross the bus once."""
    return lower_bound(machine, layer.macs, layer.compulsory)


def fill_cycles(machine: TileMachine, layer: Layer) -> int:
    """Return the bus cycles of the padding of blocks of weights, above the memory bound."""
    return lower_bound(machine, 0, layer.stored).memory - layer_bound(machine, layer).memory
