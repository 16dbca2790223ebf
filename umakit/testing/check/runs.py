# SPDX-License-Identifier: Apache-2.0
"""The plan of a run of a library, and the observations of the run and its layers."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Fault:
    """A fault of a simulated device; the fields are those of `struct umakit_fault`."""

    kind: int
    skip: int = 0
    count: int = 1
    address: int = 0
    bytes: int = 0
    bit: int = 0
    engine: int = 0
    ending: int = 0


@dataclass(frozen=True)
class Round:
    """A planned run.

    Attributes:
        seed: seed of the arbitrary bytes.
        is_reversed: whether inputs are changed: elements in reverse order, and int8 inverted.
        device: name of the accelerator with the fault; empty for none. If the device lacks the
            fault, all rounds of the fault are omitted.
        layer: number of the layer before which the fault is injected; -1 for the rounds before and
            after the fault's.
        follows_error: whether devices have an error from a wrong register access when the round
            begins.
    """

    seed: int
    is_reversed: bool = False
    device: str = ""
    layer: int = -1
    fault: Fault = Fault(0)
    follows_error: bool = False


@dataclass(frozen=True)
class Event:
    """An action of a simulated device's engine, in cycles since the layer's begin."""

    device: str
    engine: str
    label: str
    begin: int
    end_of_busy: int
    end: int


@dataclass
class LayerRun:
    """The effects of one layer in one round.

    Attributes:
        outputs: raw bytes of the results by C name, in the first round.
        differs: C names of results that differ from the first round, with the first byte.
        damaged: descriptions of modified memory other than results and scratch.
        mapped: buffers that the driver gave to the device and that are not the layer's.
        counters: values before and after the layer by device and name; None if unknown.
        events: events of engines, in the first round.
        dropped: number of events that were not kept.
        injected: status of the device when the fault was injected; None if none was.
    """

    outputs: dict[str, npt.NDArray[np.uint8]] = field(default_factory=dict)
    differs: list[tuple[str, int]] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    mapped: list[str] = field(default_factory=list)
    counters: dict[str, dict[str, tuple[int | None, int | None]]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    dropped: int = 0
    injected: int | None = None


@dataclass
class RoundRun:
    """One run.

    Attributes:
        number: position of the run's round, see `planned_rounds`.
        round: data, faults and other settings of the run.
        layers: layers that began, in order, without omitted layers.
        completed: number of layers that returned without a status, or were omitted.
        status: status of the run; None if the program ended in it.
        meaning: the library's text of the status; empty for 0.
        failure: reason of the simulator's failure; empty without one.
        stopped: ending of the program in this run; empty if the program went on.
        is_late: whether the run exceeded a limit.
    """

    number: int
    round: Round
    layers: list[LayerRun] = field(default_factory=lambda: [LayerRun()])
    completed: int = 0
    status: int | None = None
    meaning: str = ""
    failure: str = ""
    stopped: str = ""
    is_late: bool = False

    @property
    def has_stopped(self) -> bool:
        """Whether the run ended before all of its layers did."""
        return self.status != 0 or bool(self.failure)
