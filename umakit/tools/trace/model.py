# SPDX-License-Identifier: Apache-2.0
"""What a trace shows, as plain data: processes of layers, whose slices are in cycles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

CPU_TRACK = "CPU"
LAYER_TRACK = "layers"

Arguments = Mapping[str, Any]
"""What a slice says about itself when it is selected; values are as in JSON."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Something that lasts, in cycles since the begin of its layer.

    Attributes:
        track: name of its track; slices that overlap there get tracks of their own.
        name: what it is.
        begin, end: its first cycle, and the cycle after its last one.
        args: figures of it.
        rank: tracks of a process are shown in the order of these numbers.
    """

    track: str
    name: str
    begin: int
    end: int
    args: Arguments = field(default_factory=dict)
    rank: int = 0


@dataclass(frozen=True)
class TracedLayer:
    """A step of the program.

    Attributes:
        number: number of the step in execution order, from 1.
        name: its name, see `layer_name`.
        where: `cpu` or the name of a backend.
        cycles: how long it takes; None if that is not known, and for steps on the CPU in what was
            simulated.
        args: figures of it.
        slices: what engines, queues and the driver do in it, in any order; can be used once.
        left_out: number of commands that were not recorded.
    """

    number: int
    name: str
    where: str
    cycles: int | None
    args: Arguments
    slices: Iterator[Slice]
    left_out: int = 0

    @property
    def on_cpu(self) -> bool:
        """Whether no accelerator runs it."""
        return self.where == "cpu"


@dataclass(frozen=True)
class Process:
    """A clock of its own, with tracks: a simulation, or a prediction.

    Attributes:
        name: what it is.
        layers: the steps in execution order.
    """

    name: str
    layers: tuple[TracedLayer, ...]

    @property
    def has_clock(self) -> bool:
        """Whether the cycles of any layer are known."""
        return any(layer.cycles is not None for layer in self.layers)

    @property
    def cycles(self) -> int:
        """The cycles of all layers whose cycles are known."""
        return sum(layer.cycles or 0 for layer in self.layers)


@dataclass(frozen=True)
class Trace:
    """A trace of one inference.

    Attributes:
        model: name of the network in C.
        fingerprint: SHA-256 of the model.
        processes: those with a clock.
        memory: by memory, its bytes in use in each step of the program.
    """

    model: str
    fingerprint: str
    processes: tuple[Process, ...]
    memory: Mapping[str, tuple[int, ...]]


def layer_name(name: str) -> str:
    """Return the name by which a trace calls a layer, of the name in `metadata.json`."""
    return name
