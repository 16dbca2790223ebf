# SPDX-License-Identifier: Apache-2.0
"""The roofline of an accelerator with its layers as points.

After S. Williams et al., CACM 52(4), 2009: multiply-accumulates per cycle against
multiply-accumulates per byte moved, on logarithmic axes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from umakit.tools.page.figures import Accelerator
from umakit.tools.record import LayerRecord

WIDTH, HEIGHT = 1040.0, 450.0
LEFT, RIGHT, TOP, BOTTOM = 64.0, 16.0, 26.0, 52.0
"""Margins of the axes in pixels."""

LETTER = 6.4
LINE = 13.0
RADIUS = 5.0
"""Pixels of a letter, of a line of text, and of a point."""

SHAPES = {
    "depthwise convolution": "square",
    "fully connected": "triangle",
}
"""Shapes of points by kind of the layer; other kinds are circles."""


@dataclass(frozen=True)
class Label:
    """A text and its bounding box, in pixels.

    Attributes:
        x: position of the `start`, `middle` or `end` of the text, according to `anchor`.
        width: approximate width.
    """

    text: str
    x: float
    middle: float
    width: float
    anchor: str = "middle"

    @property
    def left(self) -> float:
        return self.x - self.width * {"start": 0.0, "middle": 0.5, "end": 1.0}[self.anchor]

    def overlaps(self, other: Label) -> bool:
        apart = self.left + self.width <= other.left or other.left + other.width <= self.left
        return not (apart or abs(self.middle - other.middle) >= LINE)


@dataclass(frozen=True)
class Point:
    """Layers at the same position."""

    x: float
    y: float
    shape: str
    label: Label
    title: str

    @property
    def leads(self) -> bool:
        """Whether the label is so far away that it needs a leader line."""
        return bool(self.label.text) and abs(self.label.middle - self.y) > RADIUS + LINE


@dataclass(frozen=True)
class Tick:
    """A grid line and its label."""

    at: float
    text: str


@dataclass(frozen=True)
class Roofline:
    """A drawing, in pixels.

    Attributes:
        roof: corners of the roof, from the left.
        without: names of layers without multiply-accumulates or moved bytes, which are not drawn.
    """

    accelerator: Accelerator
    roof: tuple[tuple[float, float], ...]
    points: tuple[Point, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    without: tuple[str, ...]

    @property
    def angle(self) -> float:
        """The angle of the sloped part of the roof in degrees, for rotating text in SVG."""
        (x0, y0), (x1, y1) = self.roof[:2]
        return math.degrees(math.atan2(y1 - y0, x1 - x0))


def roofline_of(accelerator: Accelerator, layers: Sequence[LayerRecord]) -> Roofline | None:
    """Return the roofline of an accelerator; None without a DMA engine or layers to draw."""
    own = [layer for layer in layers if layer.where == accelerator.name]
    placed = [layer for layer in own if layer.macs_per_cycle and layer.moved_bytes]
    peak, width = accelerator.macs_per_cycle, accelerator.bytes_per_cycle
    if peak is None or width is None or not placed:
        return None
    intensities = [layer.macs / (layer.moved_bytes or 1) for layer in placed]
    rates = [layer.macs_per_cycle or 0.0 for layer in placed]
    ridge = peak / width
    x_range = _range(min(*intensities, ridge), max(*intensities, ridge))
    y_range = _range(min(rates), peak)
    x = _axis(x_range, LEFT, WIDTH - RIGHT)
    y = _axis(y_range, HEIGHT - BOTTOM, TOP)
    left = x_range[0]
    corners = [(left, left * width), (ridge, peak), (x_range[1], peak)]
    if corners[0][1] < y_range[0]:
        corners[0] = (y_range[0] / width, y_range[0])
    roof = tuple((x(a), y(b)) for a, b in corners)
    return Roofline(
        accelerator,
        roof=roof,
        points=_points(placed, x, y, roof),
        x_ticks=tuple(Tick(x(value), _number(value)) for value in _grid(x_range)),
        y_ticks=tuple(Tick(y(value), _number(value)) for value in _grid(y_range)),
        without=tuple(layer.name for layer in own if layer not in placed),
    )


def _range(low: float, high: float) -> tuple[float, float]:
    """Return round numbers around a range, with room for points at its ends."""
    low, high = low * 0.8, high * 1.6
    return (
        max(number for number in _round_numbers(low) if number <= low),
        min(number for number in _round_numbers(high) if number >= high),
    )


def _round_numbers(value: float) -> list[float]:
    """Return the numbers of the series 1, 2, 5, 10, ... around a value."""
    exponent = math.floor(math.log10(value))
    return [factor * 10.0**power for power in (exponent, exponent + 1) for factor in (1, 2, 5)]


def _axis(values: tuple[float, float], start: float, end: float) -> Callable[[float], float]:
    low, high = (math.log10(value) for value in values)
    return lambda value: start + (end - start) * (math.log10(value) - low) / (high - low)


def _grid(values: tuple[float, float]) -> list[float]:
    low, high = values
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    numbers = (factor * 10.0**exponent for exponent in exponents for factor in (1, 2, 5))
    return [number for number in numbers if low * 0.999 <= number <= high * 1.001]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _points(
    layers: Sequence[LayerRecord],
    x: Callable[[float], float],
    y: Callable[[float], float],
    roof: Sequence[tuple[float, float]],
) -> tuple[Point, ...]:
    """Return the points; layers less than a radius apart share one point."""
    groups: list[tuple[float, float, str, list[LayerRecord]]] = []
    for layer in layers:
        at = x(layer.macs / (layer.moved_bytes or 1)), y(layer.macs_per_cycle or 1.0)
        shape = SHAPES.get(layer.kind, "circle")
        near = (g for g in groups if g[2] == shape and math.dist(g[:2], at) < RADIUS)
        group = next(near, None)
        if group is None:
            groups.append((*at, shape, [layer]))
        else:
            group[3].append(layer)
    taken = [Label("", px, py, 2 * RADIUS) for px, py, *_ in groups]
    taken += [*_along(roof), *_along([(x, y - LINE) for x, y in roof])]  # the roof and its names
    points = []
    for px, py, shape, members in groups:
        label = _placed(_numbers([layer.number for layer in members]), px, py, taken)
        taken.append(label)
        title = "\n".join(
            f"{each.number} {each.name}: {each.macs / (each.moved_bytes or 1):,.1f} MACs/byte, "
            f"{each.macs_per_cycle or 0:,.1f} MACs/cycle"
            for each in members
        )
        points.append(Point(px, py, shape, label, title))
    return tuple(points)


def _numbers(numbers: Sequence[int]) -> str:
    """Return numbers as short text: `2, 3, 6`, or the first two and the number of others."""
    if len(numbers) <= 5:
        return ", ".join(map(str, numbers))
    return f"{numbers[0]}, {numbers[1]} + {len(numbers) - 2} more"


def _along(roof: Sequence[tuple[float, float]]) -> list[Label]:
    """Return short pieces of the roof, which labels must not cover."""
    pieces = []
    for (x0, y0), (x1, y1) in pairwise(roof):
        count = max(1, round((x1 - x0) / 4))
        for number in range(count + 1):
            share = number / count
            pieces.append(Label("", x0 + share * (x1 - x0), y0 + share * (y1 - y0), 4.0))
    return pieces


def _placed(text: str, x: float, y: float, taken: Sequence[Label]) -> Label:
    """Place a label next to its point, inside the axes and without overlaps."""
    width = LETTER * len(text)
    side, away = RADIUS + 4, RADIUS + LINE / 2 + 2
    places = [(x + side, y, "start"), (x - side, y, "end")]
    for distance in (away, away + LINE / 2, away + LINE, away + 2 * LINE, away + 3 * LINE):
        for dy in (distance, -distance):
            places += [(x, y + dy, "middle"), (x + side, y + dy, "start")]
            places += [(x - side, y + dy, "end")]
    labels = [Label(text, left, middle, width, anchor) for left, middle, anchor in places]
    inside = [
        label
        for label in labels
        if label.left > LEFT
        and label.left + width < WIDTH - RIGHT
        and TOP + LINE < label.middle < HEIGHT - BOTTOM - LINE / 2
    ]
    free = (each for each in inside if not any(each.overlaps(other) for other in taken))
    return next(free, Label("", x, y, 0.0))
