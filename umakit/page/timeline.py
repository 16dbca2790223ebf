# SPDX-License-Identifier: Apache-2.0
"""The timeline of DMA, array and CPU: layers one after the other on a common clock.

Steps on the CPU have no simulated time, so they are marks between the layers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from umakit.page.figures import LayerFigures
from umakit.run import CommandTimes

WIDTH = 1080.0
"""Pixels of the common clock before zooming."""

LETTER = 6.8
"""Pixels of a letter of a label, about."""

LEAST_NAME = 5
"""Letters of a name that are worth being written."""

MOST_BARS = 12_000
"""With more commands, those close together are drawn as one: browsers become slow."""

LANES = {"load": 0, "array": 1, "store": 2}
"""Lanes by the stream of a command, from the top; the CPU's is below."""


@dataclass(frozen=True)
class Bar:
    """A command, or several drawn as one; in cycles of the common clock."""

    stream: str
    lane: int
    start: int
    busy_end: int
    completion: int
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
        merged_below: commands closer than so many cycles are drawn as one; 0 if none are.
        left_out: commands that were not recorded, at the ends of layers with very many.
    """

    cycles: int
    bands: tuple[Band, ...]
    bars: tuple[Bar, ...]
    marks: tuple[Mark, ...]
    ticks: tuple[int, ...]
    merged_below: int
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
    total = sum(layer.clock_cycles for layer in layers)
    gap = math.ceil(total / MOST_BARS) if count > MOST_BARS else 0
    now = 0
    for layer in layers:
        if layer.on_cpu:
            cpu.append((now, layer))
            continue
        end = now + layer.clock_cycles
        bands.append(_band(layer, now, end, total))
        bars += _bars(layer.number, merged(layer.commands, gap), now)
        now = end
    left_out = sum(layer.commands_left_out for layer in layers)
    return Timeline(
        total, tuple(bands), tuple(bars), _marks(cpu, total), ticks(total), gap, left_out
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


def _bars(number: int, spans: Sequence[CommandTimes], begin: int) -> Iterator[Bar]:
    for span in spans:
        yield Bar(
            span.stream,
            LANES[span.stream],
            begin + span.start,
            begin + span.busy_end,
            begin + span.completion,
            f"layer {number}, {span.stream}: cycles {span.start:,} to {span.busy_end:,} "
            f"of the layer, complete at {span.completion:,}",
        )


def merged(spans: Sequence[CommandTimes], gap: int) -> list[CommandTimes]:
    """Spans of a stream that are less than `gap` cycles apart, as one."""
    if not gap:
        return list(spans)
    found: list[CommandTimes] = []
    open_spans: dict[str, CommandTimes] = {}
    for span in sorted(spans, key=lambda each: each.start):
        last = open_spans.get(span.stream)
        if last is not None and span.start - last.busy_end < gap:
            open_spans[span.stream] = CommandTimes(
                span.stream, last.start, max(last.busy_end, span.busy_end), span.completion
            )
        else:
            found += [last] if last is not None else []
            open_spans[span.stream] = span
    return [*found, *open_spans.values()]


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
