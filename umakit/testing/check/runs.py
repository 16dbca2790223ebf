# SPDX-License-Identifier: Apache-2.0
"""What a run of a library is asked to do, and what was observed of it and of its layers."""

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
    """A run.

    Attributes:
        seed: of the arbitrary bytes.
        is_reversed: whether inputs are others: their elements in reverse order, and int8 inverted.
        device: name of the accelerator whose fault it is about; empty for none. A device that does
            not have that fault is left out, with all rounds that are about it.
        layer: number of the layer before which the fault is injected; -1 for a round before or
            after that.
        fault: the fault.
        follows_error: whether devices have an error when it begins, of a wrong register access.
    """

    seed: int
    is_reversed: bool = False
    device: str = ""
    layer: int = -1
    fault: Fault = Fault(0)
    follows_error: bool = False


@dataclass(frozen=True)
class Event:
    """Something that an engine of a simulated device did, in cycles since the layer's begin."""

    device: str
    engine: str
    label: str
    begin: int
    end_of_busy: int
    end: int


@dataclass
class LayerRun:
    """What one layer did in one round.

    Attributes:
        outputs: raw bytes of its results by C name, in the first round.
        differs: C names of results that are not those of the first round, with the first byte.
        damaged: what it modified that is neither its result nor its scratch.
        mapped: buffers that its driver gave to the device and that are not the layer's.
        counters: values before and after it by device and name; None if unknown.
        events: what engines did, in the first round.
        dropped: events that were not kept.
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
        layers: layers that began, in order, without those that were left out.
        completed: number of layers that returned without a status, or were left out.
        status: what the run returned; None if the program ended in it.
        meaning: the library's text of the status; empty if that is 0.
        failure: why the simulator cannot go on; empty if it can.
        stopped: how the program ended in it; empty if it did not.
        is_late: whether the run was ended because it exceeded a limit.
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
