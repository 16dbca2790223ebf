# SPDX-License-Identifier: Apache-2.0
"""The timeline of DMA, array and CPU: layers one after the other on a common clock.

Steps on the CPU have no simulated time, so they are marks between the layers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from umakit.devices.run import CommandTimes
from umakit.tools.page.figures import LayerFigures

WIDTH = 1080.0
"""Pixels of the common clock before zooming."""

LETTER = 6.8
"""Pixels of a letter of a label, about."""

LEAST_NAME = 5
"""Letters of a name that are worth being written."""

MOST_BARS = 12_000
"""With more commands, those close together are drawn as one: browsers become slow."""

FAINTEST = 0.25
"""Opacity of a bar for commands that fill next to nothing of it."""

LANES = {"load": 0, "array": 1, "store": 2}
"""Lanes by the stream of a command, from the top; the CPU's is below."""


@dataclass(frozen=True)
class Bar:
    """A command, or several drawn as one; in cycles of the common clock.

    Attributes:
        opacity: 1 for one command; less where several leave gaps.
    """

    stream: str
    lane: int
    start: int
    busy_end: int
    completion: int
    opacity: float
    title: str


@dataclass(frozen=True)
class Band:
    """A layer; in cycles of the common clock."""

    number: int
    name: str
    start: int
    end: int
    label: str
    title: str

    @property
    def cycles(self) -> int:
        """How long it is."""
        return self.end - self.start


@dataclass(frozen=True)
class Mark:
    """Steps on the CPU, between two layers."""

    at: int
    label: str
    title: str


@dataclass(frozen=True)
class Timeline:
    """What is drawn.

    Attributes:
        cycles: of the common clock.
        bands: the layers on accelerators.
        bars: their commands.
        marks: steps on the CPU.
        ticks: cycles that the axis names.
        resolution: commands that start in the same so many cycles are drawn as one; 1 if each has
            a bar of its own.
        left_out: commands that were not recorded, at the ends of layers with very many.
    """

    cycles: int
    bands: tuple[Band, ...]
    bars: tuple[Bar, ...]
    marks: tuple[Mark, ...]
    ticks: tuple[int, ...]
    resolution: int
    left_out: int

    def x(self, cycle: float) -> float:
        """Pixels from the left."""
        return cycle * WIDTH / self.cycles


def timeline_of(layers: Sequence[LayerFigures]) -> Timeline | None:
    """The timeline of a program; None if the times of no layer's commands are known."""
    count = sum(len(layer.commands) for layer in layers)
    if not count:
        return None
    bands: list[Band] = []
    bars: list[Bar] = []
    cpu = []
    total = sum(layer.clock_cycles or 0 for layer in layers)
    resolution = _resolution(layers)
    now = 0
    for layer in layers:
        if layer.on_cpu:
            cpu.append((now, layer))
            continue
        if layer.clock_cycles is None:
            continue
        end = now + layer.clock_cycles
        bands.append(_band(layer, now, end, total))
        bars += _bars(layer.number, merged(layer.commands, resolution), now)
        now = end
    left_out = sum(layer.commands_left_out for layer in layers)
    return Timeline(
        total, tuple(bands), tuple(bars), _marks(cpu, total), ticks(total), resolution, left_out
    )


def _band(layer: LayerFigures, start: int, end: int, total: int) -> Band:
    number, name = str(layer.number), layer.name
    room = int((end - start) * WIDTH / total / LETTER)
    label = number if room >= len(number) else ""
    if room > len(number) + LEAST_NAME:
        label = f"{number} {shortened(name, room - len(number) - 1)}"
    return Band(layer.number, name, start, end, label, f"{number} {name}: {end - start:,} cycles")


def shortened(name: str, most: int) -> str:
    """At most so many letters of a name, the last ones: names of layers begin alike."""
    return name if len(name) <= most else f"\u2026{name[len(name) - most + 1 :]}"


def _resolution(layers: Sequence[LayerFigures]) -> int:
    """The least power of two that leaves no more than `MOST_BARS` bars."""
    resolution = 1
    while True:
        bars = sum(
            len({(each.stream, each.start // resolution) for each in layer.commands})
            for layer in layers
        )
        if bars <= MOST_BARS:
            return resolution
        resolution *= 2


@dataclass(frozen=True)
class Merged:
    """Commands that are drawn as one; `count` of them, busy for `busy` cycles."""

    stream: str
    start: int
    busy_end: int
    completion: int
    busy: int
    count: int


def merged(commands: Sequence[CommandTimes], resolution: int) -> list[Merged]:
    """Commands of a stream that start in the same `resolution` cycles as one."""
    groups: dict[tuple[str, int], list[CommandTimes]] = {}
    for command in commands:
        key = command.stream, command.start // resolution
        groups.setdefault(key, []).append(command)
    return [
        Merged(
            stream,
            min(each.start for each in group),
            max(each.busy_end for each in group),
            max(each.completion for each in group),
            sum(each.busy_end - each.start for each in group),
            len(group),
        )
        for (stream, _), group in groups.items()
    ]


def _bars(number: int, groups: Sequence[Merged], begin: int) -> Iterator[Bar]:
    for group in groups:
        share = group.busy / (group.busy_end - group.start)
        what = group.stream if group.count == 1 else f"{group.count} times {group.stream}"
        yield Bar(
            group.stream,
            LANES[group.stream],
            begin + group.start,
            begin + group.busy_end,
            begin + group.completion,
            round(FAINTEST + (1 - FAINTEST) * share, 2),
            f"layer {number}, {what}: cycles {group.start:,} to {group.busy_end:,} "
            f"of the layer, complete at {group.completion:,}",
        )


def _marks(steps: Sequence[tuple[int, LayerFigures]], total: int) -> tuple[Mark, ...]:
    """One mark for all steps at a cycle, and no label on another."""
    places: dict[int, list[LayerFigures]] = {}
    for at, layer in steps:
        places.setdefault(at, []).append(layer)
    marks, free_from = [], -math.inf
    for at, layers in places.items():
        label = ", ".join(str(layer.number) for layer in layers)
        half, x = len(label) * LETTER / 2, at * WIDTH / total
        shown = x - half > free_from
        free_from = x + half + 3 if shown else free_from
        title = "\n".join(f"{each.number} {each.name} on the CPU" for each in layers)
        marks.append(Mark(at, label if shown else "", title))
    return tuple(marks)


def ticks(total: int, about: int = 8) -> tuple[int, ...]:
    """Round numbers from 0 on, at most `about` of them in `total`."""
    steps = (factor * 10**exponent for exponent in itertools.count() for factor in (1, 2, 5))
    step = next(step for step in steps if total <= step * about)
    return tuple(range(0, total + 1, step))
