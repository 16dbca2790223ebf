# SPDX-License-Identifier: Apache-2.0
"""The timeline of an accelerator's engines and the CPU, with all layers on a common clock.

Steps on the CPU have no simulated time, so they are marks between the layers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from umakit.devices.run import CommandTimes
from umakit.tools.record import LayerRecord

WIDTH = 1080.0
"""Width of the timeline in pixels before zooming."""

LETTER = 6.8
"""Approximate width of a character of a label in pixels."""

GAP = 3.0
"""Minimum distance of labels in pixels."""

LEAST_NAME = 5
"""Minimum number of characters of a shortened name."""

MOST_BARS = 12_000
"""Maximum number of bars; more commands are merged, because browsers become slow."""

FAINTEST = 0.25
"""Minimum opacity of a bar of merged commands."""

KNOWN_LANES = {"load": "loads", "array": "array", "store": "stores"}
"""Labels of the lanes of umakit's simulator by stream, from the top; the CPU's lane is below."""

STYLES = 6
"""Number of colours of other engines, whose lanes are in the order of first work."""


@dataclass(frozen=True)
class Bar:
    """A command, or several merged commands, in cycles of the common clock.

    Attributes:
        style: name of its colour in the style sheet.
        opacity: 1 for one command; less if merged commands have gaps.
    """

    stream: str
    style: str
    lane: int
    start: int
    busy_end: int
    completion: int
    opacity: float
    title: str


@dataclass(frozen=True)
class Band:
    """A layer, in cycles of the common clock."""

    number: int
    name: str
    start: int
    end: int
    label: str
    title: str

    @property
    def cycles(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class Mark:
    """Steps on the CPU, between two layers."""

    at: int
    label: str
    title: str


@dataclass(frozen=True)
class Timeline:
    """A drawing.

    Attributes:
        cycles: length of the common clock.
        lanes: labels of the engines, from the top; the CPU's is below.
        resolution: commands that start within an interval of this many cycles are merged; 1 if none
            are merged.
        left_out: number of commands that were not recorded, at the ends of very long layers.
    """

    cycles: int
    lanes: tuple[str, ...]
    bands: tuple[Band, ...]
    bars: tuple[Bar, ...]
    marks: tuple[Mark, ...]
    ticks: tuple[int, ...]
    resolution: int
    left_out: int

    def x(self, cycle: float) -> float:
        """Return the horizontal position of a cycle in pixels."""
        return cycle * WIDTH / self.cycles


def timeline_of(layers: Sequence[LayerRecord]) -> Timeline | None:
    """Return the timeline of a program; None without recorded commands to show."""
    commands = {layer.number: _shown(layer) for layer in layers}
    if not any(commands.values()):
        return None
    bands: list[Band] = []
    bars: list[Bar] = []
    cpu = []
    total = sum(layer.clock_cycles or 0 for layer in layers)
    resolution = _resolution(list(commands.values()))
    engines = _engines(list(commands.values()))
    now = 0
    for layer in layers:
        if layer.on_cpu:
            cpu.append((now, layer))
            continue
        if layer.clock_cycles is None:
            continue
        end = now + layer.clock_cycles
        bands.append(
            Band(
                layer.number,
                layer.name,
                now,
                end,
                "",
                f"{layer.number} {layer.name}: {end - now:,} cycles",
            )
        )
        bars += _bars(layer.number, merged(commands[layer.number], resolution), now, engines)
        now = end
    left_out = sum(layer.commands_left_out for layer in layers)
    return Timeline(
        cycles=total,
        lanes=tuple(KNOWN_LANES.get(engine, engine) for engine in engines),
        bands=_labelled(bands, total),
        bars=tuple(bars),
        marks=_marks(cpu, total),
        ticks=ticks(total),
        resolution=resolution,
        left_out=left_out,
    )


def _shown(layer: LayerRecord) -> list[CommandTimes]:
    """Return the commands that begin within a layer with known cycles, cut at its end."""
    end = layer.clock_cycles or 0
    return [
        each
        if each.completion <= end
        else replace(each, busy_end=min(each.busy_end, end), completion=end)
        for each in layer.commands
        if each.start < end
    ]


def _engines(layers: Sequence[Sequence[CommandTimes]]) -> tuple[str, ...]:
    seen = dict.fromkeys(each.stream for commands in layers for each in commands)
    return tuple(KNOWN_LANES if seen.keys() <= KNOWN_LANES.keys() else seen)


def _labelled(bands: Sequence[Band], total: int) -> tuple[Band, ...]:
    """Return bands with labels that do not overlap, as in the script of the page.

    A name has to fit into its band; a number may be wider than the band.
    """
    labelled, free_from = [], -math.inf
    for band in bands:
        number = str(band.number)
        room = int(band.cycles * WIDTH / total / LETTER)
        centre = (band.start + band.end) / 2 * WIDTH / total
        label = number
        if room > len(number) + LEAST_NAME:
            label = f"{number} {shortened(band.name, room - len(number) - 1)}"
        half = len(label) * LETTER / 2
        if centre - half < free_from:
            label, half = number, len(number) * LETTER / 2
        shown = centre - half >= free_from
        free_from = centre + half + GAP if shown else free_from
        labelled.append(replace(band, label=label if shown else ""))
    return tuple(labelled)


def shortened(name: str, most: int) -> str:
    """Shorten a name to its last characters, because names of layers have common prefixes."""
    return name if len(name) <= most else f"\u2026{name[len(name) - most + 1 :]}"


def _resolution(layers: Sequence[Sequence[CommandTimes]]) -> int:
    """Return the smallest power of two that gives at most `MOST_BARS` bars."""
    resolution = 1
    while True:
        bars = sum(
            len({(each.stream, each.start // resolution) for each in commands})
            for commands in layers
        )
        if bars <= MOST_BARS:
            return resolution
        resolution *= 2


@dataclass(frozen=True)
class Merged:
    """`count` commands drawn as one bar, with `busy` busy cycles."""

    stream: str
    start: int
    busy_end: int
    completion: int
    busy: int
    count: int
    label: str = ""


def merged(commands: Sequence[CommandTimes], resolution: int) -> list[Merged]:
    """Merge commands of a stream that start in the same interval of `resolution` cycles."""
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
            group[0].label,
        )
        for (stream, _), group in groups.items()
    ]


def _bars(
    number: int, groups: Sequence[Merged], begin: int, engines: Sequence[str]
) -> Iterator[Bar]:
    for group in groups:
        share = group.busy / max(group.busy_end - group.start, 1)
        lane = engines.index(group.stream)
        what = f"{group.stream}: {group.label}" if group.label else group.stream
        what = what if group.count == 1 else f"{group.count} times {group.stream}"
        yield Bar(
            group.stream,
            group.stream if group.stream in KNOWN_LANES else f"engine{lane % STYLES}",
            lane,
            begin + group.start,
            begin + group.busy_end,
            begin + group.completion,
            round(FAINTEST + (1 - FAINTEST) * share, 2),
            f"layer {number}, {what}: cycles {group.start:,} to {group.busy_end:,} "
            f"of the layer, complete at {group.completion:,}",
        )


def _marks(steps: Sequence[tuple[int, LayerRecord]], total: int) -> tuple[Mark, ...]:
    """Return one mark for all steps at a cycle, without overlapping labels."""
    places: dict[int, list[LayerRecord]] = {}
    for at, layer in steps:
        places.setdefault(at, []).append(layer)
    marks, free_from = [], -math.inf
    for at, layers in places.items():
        label = ", ".join(str(layer.number) for layer in layers)
        half, x = len(label) * LETTER / 2, at * WIDTH / total
        shown = x - half > free_from
        free_from = x + half + GAP if shown else free_from
        title = "\n".join(f"{each.number} {each.name} on the CPU" for each in layers)
        marks.append(Mark(at, label if shown else "", title))
    return tuple(marks)


def ticks(total: int, about: int = 8) -> tuple[int, ...]:
    """Return multiples of a round number from 0 to `total`, at most `about` of them."""
    steps = (factor * 10**exponent for exponent in itertools.count() for factor in (1, 2, 5))
    step = next(step for step in steps if total <= step * about)
    return tuple(range(0, total + 1, step))
