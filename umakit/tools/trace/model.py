# SPDX-License-Identifier: Apache-2.0
"""The content of a trace as plain data: processes of layers, whose slices are in cycles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from umakit.tools.record import LayerRecord

CPU_TRACK = "CPU"
LAYER_TRACK = "layers"

Arguments = Mapping[str, Any]
"""Figures shown for a selected slice; values are as in JSON."""


@dataclass(frozen=True, slots=True)
class Slice:
    """An interval, in cycles since the begin of its layer.

    Attributes:
        track: name of the track; overlapping slices get separate tracks.
        begin, end: first cycle, and the cycle after the last one.
        rank: sort key of the track within its process.
    """

    track: str
    name: str
    begin: int
    end: int
    args: Arguments = field(default_factory=dict)
    rank: int = 0


Step = tuple[LayerRecord, Arguments, Iterator[Slice]]
"""A step on the clock of a process, its figures, and its slices in any order, which can be used
once."""


@dataclass(frozen=True)
class Process:
    """A separate clock with tracks, a simulation or a prediction, and its steps in order."""

    name: str
    steps: tuple[Step, ...]

    @property
    def has_clock(self) -> bool:
        """Whether the cycles of any step are known."""
        return any(layer.cycles is not None for layer, *_ in self.steps)

    @property
    def cycles(self) -> int:
        """The total of the known cycles of steps."""
        return sum(layer.cycles or 0 for layer, *_ in self.steps)


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
