# SPDX-License-Identifier: Apache-2.0
"""Drawn layers, cut in drawn ways for drawn small hardware: exact, and as many cycles as predicted.

The oracle for results is the CPU's kernels, that for cycles the simulated device.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from accelerators import accelerator_with, check_predictions, same_as_the_cpu
from comparisons import examples
from hypothesis import Phase, event, given
from hypothesis import strategies as st

from umakit.backend import UMABackend
from umakit.errors import InputError
from umakit.machine import Layer, Tiles, Tiling
from umakit.machine.space import misfit, tiles_on
from umakit.machine.systolic import Dataflow
from umakit.machine.tiles import AXES
from umakit.partition.partitioner import partition
from umakit.testing.example_networks import QuantizedNetwork

MOST_JOBS = 300
"""Maximum number of jobs of a drawn layer, which keeps the tests fast."""


class Draw:
    """What Hypothesis draws, with short names."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def size(self, least: int, largest: int) -> int:
        return int(self._data.draw(st.integers(least, largest)))

    def pair(self, largest: int) -> tuple[int, int]:
        return self.size(1, largest), self.size(1, largest)

    def flag(self) -> bool:
        return bool(self._data.draw(st.booleans()))

    def one_of(self, *values: Any) -> Any:
        return self._data.draw(st.sampled_from(values))

    def order(self) -> tuple[str, ...]:
        return tuple(self._data.draw(st.permutations(AXES)))


def draw_hardware(draw: Draw, folder: Path) -> UMABackend:
    """An array of few cells with small memories; every feature may be switched off."""
    bank, banks = draw.one_of(64, 128, 256), draw.one_of(16, 32)
    first, *others = draw.one_of(*DATAFLOWS)
    values = {
        "array.rows": draw.one_of(4, 3, 8),
        "array.columns": draw.one_of(8, 4, 5),
        "array.dataflow": first,
        "array.dataflows": [first, *others],
        "array.drain_cycles": draw.one_of(0, 4),
        "array.preload": draw.flag(),
        "array.pack_columns": "output_stationary" in (first, *others) and draw.flag(),
        "array.pooling_lanes": draw.one_of(1, 4),
        "array.accumulator_bytes": draw.one_of(512, 2048),
        "device.command_queue": draw.one_of(16, 0, 1, 2, 5),
        "device.completion": draw.one_of("interrupt", "polling"),
        "dma.bytes_per_cycle": draw.one_of(4, 1, 32),
        "dma.latency_cycles": draw.one_of(3, 0, 20),
        "dma.outstanding": draw.flag(),
        "memory.size": bank * banks,
        "memory.banks": banks,
        "memory.alignment": bank,
    }
    return accelerator_with(folder, "chocolate", values)


DATAFLOWS = (
    ("output_stationary", "weight_stationary", "input_stationary"),
    ("weight_stationary", "output_stationary"),
    ("output_stationary",),
)


def draw_tiling(draw: Draw, layer: Layer, backend: UMABackend) -> Tiling | None:
    """Any that fits: one that does not is made smaller along an axis that is drawn too."""
    assert backend.tiling is not None
    hardware = backend.tiling.hardware
    unit = layer.multiplier if layer.per_channel else hardware.columns
    flows = [
        flow
        for flow in hardware.dataflows
        if not (layer.kind.value == "depthwise" and flow is Dataflow.INPUT_STATIONARY)
    ]
    tiling = Tiling(
        draw.one_of(*flows),
        draw.size(1, layer.output_size[0]),
        draw.size(1, layer.output_size[1]),
        unit * draw.size(1, -(-layer.output_channels // unit)),
        layer.input_channels if layer.per_channel else draw.size(1, layer.input_channels),
        draw.order(),
        draw.size(1, 3),
    )
    while misfit(tiles_on(layer, tiling, hardware), hardware):
        choices = {
            "rows": -(-tiling.rows // 2),
            "columns": -(-tiling.columns // 2),
            "output_channels": unit * -(-tiling.output_channels // (2 * unit)),
            "input_channels": tiling.input_channels
            if layer.per_channel
            else -(-tiling.input_channels // 2),
            "buffers": max(tiling.buffers - 1, 1),
        }
        smaller = {name: n for name, n in choices.items() if n < getattr(tiling, name)}
        if not smaller:
            return None
        name = draw.one_of(*sorted(smaller))
        tiling = dataclasses.replace(tiling, **{name: smaller[name]})
    return tiling if jobs_of(tiles_on(layer, tiling, hardware)) <= MOST_JOBS else None


def jobs_of(tiles: Tiles) -> int:
    count = 1
    for extent in tiles.extents.values():
        count *= extent
    return count


def add_layer(draw: Draw, network: QuantizedNetwork) -> None:
    kind = draw.one_of("conv", "conv_add", "depthwise", "max", "average")
    padding = draw.one_of("same", "valid")
    scales = {"per_channel": draw.flag()}
    window, strides = draw.pair(3), draw.pair(2)
    if kind == "conv":
        network.conv2d(
            draw.size(1, 20), window, strides, padding=padding, dilation=draw.pair(2), **scales
        )
    elif kind == "conv_add":
        network.conv2d(network.channels, window, dilation=draw.pair(2), **scales)
        network.residual(swapped=draw.flag())
    elif kind == "depthwise":
        filters = network.channels * draw.size(1, 2)
        network.conv2d(
            filters, window, strides, padding=padding, dilation=draw.pair(2), depthwise=True,
            **scales,
        )  # fmt: skip
    else:
        network.pool2d(kind, window, strides, padding=padding)


def draw_network(draw: Draw) -> QuantizedNetwork:
    network = QuantizedNetwork(
        draw.size(3, 11), draw.size(3, 11), draw.size(1, 12),
        layout=draw.one_of("NHWC", "NCHW"),
        rounding=draw.one_of("tflm", "ort"),
        batch=draw.one_of(1, 1, 3),
        seed=draw.size(0, 1000),
    )  # fmt: skip
    for _ in range(draw.size(2, 4)):
        try:
            add_layer(draw, network)
        except InputError:  # the window is larger than what is left of the image
            network.conv2d(draw.size(1, 20), 1)
    if draw.flag():
        network.dense(draw.size(1, 20), per_channel=draw.flag())
    return network


def force(draw: Draw, backend: UMABackend, network: QuantizedNetwork) -> list[Tiles]:
    """Make a backend cut each layer as it is drawn; those that fit."""
    planner: Any = backend.tiling
    layers: dict[Layer, Tiling] = {}

    def ask(layer: Layer) -> Tiling:
        return layers.setdefault(layer, Tiling(Dataflow.OUTPUT_STATIONARY, 1, 1, 1, 1))

    planner.default = ask
    partition(network.model().module, [backend])  # draws may not be made in TVM's callbacks
    drawn = {layer: draw_tiling(draw, layer, backend) for layer in layers}
    planner.default = drawn.get
    return [tiles_on(layer, tiling, planner.hardware) for layer, tiling in drawn.items() if tiling]


@examples(8, phases=[Phase.explicit, Phase.generate])
@given(data=st.data())
def test_any_tiling_is_exact_and_takes_the_predicted_cycles(
    data: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    draw, folder = Draw(data), tmp_path_factory.mktemp("tiles")
    backend, network = draw_hardware(draw, folder), draw_network(draw)
    cut = force(draw, backend, network)
    library, ran = same_as_the_cpu(network, backend, folder)
    event(f"{check_predictions(library, ran, backend)} layers offloaded")
    for tiles in cut:
        event(f"loops over {' and '.join(tiles.loops)}")
