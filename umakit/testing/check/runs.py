# SPDX-License-Identifier: Apache-2.0
"""The plan of a run of a library, and the observations of the run and its layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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
        mapped: buffers that the driver gave to the device and that are not the layer's.
        counters: values before and after the layer by device and name; None if unknown.
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
        layers: layers that began, in order, without omitted layers.
        completed: number of layers that returned without a status, or were omitted.
        status: status of the run; None if the program ended in it.
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


BUS_ERROR, DMA_STOPS, LOST_INTERRUPT, STUCK_BUSY, SCRATCHPAD_BIT = range(1, 6)
"""Kinds of faults, as in `umakit/faults.h`."""

ENDINGS = ("and stays busy", "with an error", "and says that it is done")
ENGINES = ("array", "DMA engine")
EVERYWHERE = 0xFFFFFFFF

OTHER_DATA, SAME_DATA = 1, 2
"""Numbers of the fault-free rounds after the first one."""

FIRST_FAULT = 3
"""Number of the first round for a fault; each fault has three, see `planned_rounds`."""

MOST_FAULTS, MOST_MACS = 30, 300_000_000
"""Number of faults tried in a batch of many cases, and multiply-accumulates of their runs."""

ROUNDS_OF_FAULT = 3

FAULTS = (
    *(Fault(BUS_ERROR, skip, 1, 0, EVERYWHERE) for skip in (0, 1, 2, 5)),
    Fault(BUS_ERROR, 0, 0, 0, EVERYWHERE),
    *(
        Fault(DMA_STOPS, skip, 1, bytes=moved, ending=ending)
        for ending in range(len(ENDINGS))
        for skip, moved in ((0, 0), (1, 3), (2, 0))
    ),
    *(Fault(LOST_INTERRUPT, skip, count) for skip, count in ((0, 1), (1, 1), (0, 0))),
    *(Fault(STUCK_BUSY, skip, 0, engine=engine) for engine in range(2) for skip in (0, 1)),
    *(
        Fault(SCRATCHPAD_BIT, address=address, bit=bit)
        for address, bit in ((0, 0), (3, 7), (64, 5), (4096, 2))
    ),
)
"""Faults that are tried."""


def text_of(fault: Fault) -> str:
    number = f" number {fault.skip}" if fault.count == 1 else ""
    if fault.kind == BUS_ERROR:
        return f"a bus error at access{number or 'es'}"
    if fault.kind == DMA_STOPS:
        ending = ENDINGS[fault.ending]
        return f"a DMA engine that stops after {fault.bytes} bytes of transfer{number} {ending}"
    if fault.kind == LOST_INTERRUPT:
        return f"a lost interrupt{number}" if number else "no interrupts"
    if fault.kind == STUCK_BUSY:
        return f"the {ENGINES[fault.engine]} stuck after job number {fault.skip}"
    return f"bit {fault.bit} of scratchpad byte {fault.address} flipped"


def planned_rounds(
    layers: Sequence[Mapping[str, Any]], devices: Sequence[str], cases: int
) -> list[Round]:
    """Return the rounds for a library.

    The first round's results are compared with the reference. Then follow a round with other data,
    and a round with the same data after a wrong register access, which leaves an error in the
    device as earlier software could. Then follow three rounds for each fault: one with other data,
    so that an omitted copy does not find the right bytes, one with the fault, and one without.

    Args:
        cases: number of cases. With one case, all faults are tried in every layer; with several, as
            many as take little time.
    """
    rounds = [Round(1), Round(2, is_reversed=True), Round(3, follows_error=True)]
    places = [
        (number, layer["where"]) for number, layer in enumerate(layers) if layer["where"] in devices
    ]
    pairs = [(place, fault) for fault in FAULTS for place in places]
    if cases > 1:
        macs = sum(layer["macs"] for layer in layers)
        most = min(MOST_FAULTS, MOST_MACS // (ROUNDS_OF_FAULT * max(1, macs)))
        random = np.random.default_rng(len(layers))
        chosen: list[int] = list(random.permutation(len(FAULTS))[:most]) if places else []
        pairs = [(places[int(random.integers(len(places)))], FAULTS[n]) for n in chosen]
    for (number, device), fault in pairs:
        rounds += [
            Round(4, is_reversed=True, device=device, fault=fault),
            Round(5, device=device, fault=fault, layer=number),
            Round(6, device=device, fault=fault),
        ]
    return rounds
