# SPDX-License-Identifier: Apache-2.0
"""Whole layers of several tiles, compared with predictions from measured costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from umakit.backend.base import UMABackend
from umakit.machine import Kind, Layer, TilePlanner
from umakit.machine.calibration import Calibration, MeasuredLayer
from umakit.machine.planner import prediction_of
from umakit.tools.calibration.measure import MeasuredTiles, Measurement, measure, words_of
from umakit.tools.calibration.tiles import Group, Tile

WHOLE: tuple[Any, ...] = (
    (Kind.CONVOLUTION, (20, 20), (3, 3), 24, 48),
    (Kind.CONVOLUTION, (12, 12), (1, 1), 32, 64),
    (Kind.CONVOLUTION, (9, 14), (3, 3), 16, 32),
    (Kind.DEPTHWISE, (16, 16), (3, 3), 32, 32),
    (Kind.DEPTHWISE, (10, 7), (5, 5), 64, 64),
    (Kind.MAX_POOL, (16, 16), (2, 2), 32, 32),
    (Kind.AVERAGE_POOL, (7, 7), (3, 3), 64, 64),
    (Kind.CONVOLUTION, (16, 16), (3, 3), 24, 32, "sum"),
    (Kind.CONVOLUTION, (1, 1), (1, 1), 256, 96, "dense"),
)
"""Layers measured whole: kind, size of the result, kernel, channels of data and result; and whether
a sum follows, or the layer is fully connected."""


def measured_layers(
    backend: UMABackend,
    planner: TilePlanner,
    calibrations: Sequence[Calibration | None],
    device: str,
    takes: Sequence[Group],
) -> list[MeasuredTiles]:
    """Measure layers of several tiles with the default tilings of several calibrations."""
    tiles: dict[Tile, None] = {}
    forms = {(each.kind, each.adds, each.dense): each for each in reversed(takes)}
    for calibration in calibrations:
        planner.calibrate(calibration)
        for kind, size, kernel, inputs, outputs, *form in WHOLE:
            adds, dense = "sum" in form, "dense" in form
            group = forms.get((kind, adds, dense))
            if group is None:
                continue
            layer = Layer(
                kind, 1, (size[0] + kernel[0] - 1, size[1] + kernel[1] - 1), size, inputs, outputs,
                kernel, scales=outputs, stored_channels=outputs, adds=adds,
                channels_first=group.channels_first,
            )  # fmt: skip
            tiling = planner.default(layer)
            if tiling is not None:
                tiles[Tile(layer, tiling, dense, takes[0].rounding)] = None
    found = Measurement()
    measure(backend, list(tiles), device, found)
    return [each for each in found.layers if each.clock_cycles]


def predictions(
    planner: TilePlanner, calibration: Calibration | None, layers: Sequence[MeasuredTiles]
) -> tuple[MeasuredLayer, ...]:
    """Return measured layers with their predictions from some costs; None: the described costs."""
    planner.calibrate(calibration)
    return predicted_layers(planner, layers)


def predicted_layers(
    planner: TilePlanner, layers: Sequence[MeasuredTiles]
) -> tuple[MeasuredLayer, ...]:
    return tuple(
        MeasuredLayer(
            words_of(each.tiles.layer), each.clock_cycles, prediction_of(planner, each.tiles).cycles
        )
        for each in layers
        if each.clock_cycles
    )


def off_by(layers: Sequence[MeasuredLayer]) -> list[float]:
    """Return the deviations of the predictions of layers, relative to measured cycles."""
    return [abs(each.difference_percent) / 100 for each in layers]
