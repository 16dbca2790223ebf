# SPDX-License-Identifier: Apache-2.0
"""The speed of an accelerator by its description, for the bounds of a network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from umakit import sim
from umakit.machine.accelerator_config import AcceleratorConfig
from umakit.machine.costs import TENSORS
from umakit.machine.tile_machine import TileMachine

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
    """Return the limits of an accelerator.

    Args:
        configuration: the accelerator's `accel.toml`.
        machine: the planner's machine; None without a planner: the limits then come from the
            sections of the file.
    """
    if machine is None:
        return _limits_of_sections(configuration)
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
    array, machine, unknown = configuration.array, configuration.machine, {}
    peak = array.rows * array.columns if configuration.has_array else None
    kind = sim.KINDS.get(configuration.device.simulator)
    has_dma = configuration.has_dma if kind is None else kind.has_dma
    width = configuration.dma.bytes_per_cycle if has_dma else None
    if machine is not None:
        peak = machine.amount("macs_per_cycle", machine.macs_per_cycle)
        width = machine.amount("bytes_per_cycle", machine.bytes_per_cycle)
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
