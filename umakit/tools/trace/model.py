# SPDX-License-Identifier: Apache-2.0
"""The content of a trace as plain data: processes of layers, whose slices are in cycles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

CPU_TRACK = "CPU"
LAYER_TRACK = "layers"

Arguments = Mapping[str, Any]
"""Figures shown for a selected slice; values are as in JSON."""


@dataclass(frozen=True, slots=True)
class Slice:
    """An interval, in cycles since the begin of its layer.

    Attributes:
        track: name of the track; overlapping slices get separate tracks.
        name: name of the slice.
        begin, end: first cycle, and the cycle after the last one.
        args: figures of the slice.
        rank: sort key of the track within its process.
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
        name: name of the step.
        where: `cpu` or the name of a backend.
        cycles: duration; None if unknown, and for CPU steps of a simulation.
        args: figures of the step.
        slices: slices of engines, queues and the driver, in any order; can be used once.
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
        return self.where == "cpu"


@dataclass(frozen=True)
class Process:
    """A separate clock with tracks: a simulation, or a prediction.

    Attributes:
        name: name of the process.
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
        """The total of the known cycles of layers."""
        return sum(layer.cycles or 0 for layer in self.layers)


@dataclass(frozen=True)
class Trace:
    """A trace of one inference.

    Attributes:
        model: name of the network in C.
        fingerprint: SHA-256 of the model.
        memory: bytes in use in each step of the program, by memory.
    """

    model: str
    fingerprint: str
    processes: tuple[Process, ...]
    memory: Mapping[str, tuple[int, ...]]
