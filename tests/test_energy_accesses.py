# SPDX-License-Identifier: Apache-2.0
"""Accesses of the simulated systolic array to its memories are those of a loop over all folds.

The oracle enumerates positions, blocks of channels and folds, and shares no code with the simulator
or with the prediction, which `test_chocolate_tiles` compares with the simulator.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from systolic_device import VALUES, Array, Config, Device
from systolic_layers import Job, Layer, draw_weights, place, windows
from test_systolic_array import layers

DATAFLOWS = VALUES["DATAFLOW"]
MEMORY = np.dtype(
    [("name", "S24"), *((name, "<u8") for name in ("reads", "read", "writes", "wrote"))]
)
"""`struct umakit_memory_counters`."""


def memories(device: Device) -> dict[str, Array]:
    """Reads, bytes read, writes and bytes written of each memory, by name."""
    found = np.zeros(8, MEMORY)
    library: Any = device._library
    library.umakit_simulator_memories(device.handle, ctypes.c_void_p(found.ctypes.data))
    return {
        each["name"].decode(): np.array([int(each[name]) for name in MEMORY.names[1:]])
        for each in found
        if each["name"]
    }


class Counted:
    """Accesses in words of some width."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.figures = np.zeros(4, np.int64)

    def read(self, size: int, *, apart: bool = False) -> None:
        self.figures[:2] += self._of(size, apart)

    def write(self, size: int, *, apart: bool = False) -> None:
        self.figures[2:] += self._of(size, apart)

    def _of(self, size: int, apart: bool) -> Array:
        return np.array([size if apart else len(range(0, size, self.width)), size])


def parts(count: int, most: int) -> list[range]:
    return [range(first, min(first + most, count)) for first in range(0, count, most)]


def enumerated(
    layer: Layer, kind: str, dataflow: str, config: Config, apart: tuple[bool, bool]
) -> tuple[Array, Array]:
    """What a job reads and writes in the scratchpad and in the accumulator memory.

    Args:
        layer, kind, dataflow, config: the job and the machine.
        apart: whether channels of the data, and of the result, do not lie side by side.
    """
    (inputs, outputs), is_conv = layer.channels, kind == "CONVOLUTION"
    seen = Counted(config.dma_bytes_per_cycle)
    sums = Counted(4 * config.array_columns)
    _, valid = windows(layer, np.zeros((*layer.size, inputs)), 0)
    positions = [(y, x) for y in range(layer.output[0]) for x in range(layer.output[1])]
    is_pool = kind.endswith("POOL")
    lanes = config.pooling_lanes if is_pool else config.array_columns
    products = layer.kernel[0] * layer.kernel[1] * (inputs if is_conv else 1)
    for number, block in enumerate(parts(outputs, lanes)):
        used = inputs if is_conv else len({each * inputs // outputs for each in block})
        stays = is_conv and dataflow == "INPUT_STATIONARY" and number > 0
        for y, x in positions:
            for _ in range(0 if stays else int(valid[y, x].sum())):
                seen.read(used, apart=apart[0])
            seen.write(len(block), apart=apart[1])
        if is_pool:
            continue
        groups = config.array_columns // len(block) if config.pack_columns else 1
        along = {
            "OUTPUT_STATIONARY": parts(len(positions), config.array_rows * groups),
            "WEIGHT_STATIONARY": [range(1)],
            "INPUT_STATIONARY": parts(len(positions), config.array_columns),
        }[dataflow]
        for _ in along:
            for _ in range(products):
                seen.read(len(block))
        deep = 1 if dataflow == "OUTPUT_STATIONARY" else len(parts(products, config.array_rows))
        for fold in range(deep):
            for _ in positions:
                if fold > 0:
                    sums.read(4 * len(block))
                if fold < deep - 1:
                    sums.write(4 * len(block))
    if not is_pool:
        scales = outputs if layer.per_channel else 1
        for size in (4 * outputs, 4 * scales, scales):
            seen.read(size)
    return seen.figures, sums.figures


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_jobs_access_memories_as_often_as_their_folds_need(data: Any) -> None:
    kind = data.draw(st.sampled_from(["CONVOLUTION", "CONVOLUTION", "DEPTHWISE", "MAX_POOL"]))
    layer = data.draw(layers(kind == "DEPTHWISE", kind == "MAX_POOL"))
    flows = sorted(DATAFLOWS)[1 if kind == "DEPTHWISE" else 0 :]  # not input stationary
    dataflow = data.draw(st.sampled_from(flows))
    config = Config(
        array_rows=data.draw(st.sampled_from([1, 3, 8])),
        array_columns=data.draw(st.sampled_from([4, 5, 8])),
        dma_bytes_per_cycle=data.draw(st.sampled_from([1, 4, 32])),
        pack_columns=data.draw(st.booleans()),
        pooling_lanes=data.draw(st.integers(1, 9)),
        scratchpad_bytes=1 << 17,
        accumulator_bytes=1 << 17,
    )
    device, random = Device(config), np.random.default_rng(layer.seed)
    image = random.integers(-128, 128, (*layer.size, layer.channels[0])).astype(np.int8)
    if kind == "MAX_POOL" and not windows(layer, image, 0)[1].any(axis=(2, 3)).all():
        return
    job = Job(device, layer, kind)
    device.write("DATAFLOW", DATAFLOWS[dataflow])
    job.put("IFMAP_START", place(layer, image))
    if kind != "MAX_POOL":
        job.put_weights(draw_weights(layer, kind == "DEPTHWISE", random), kind == "DEPTHWISE")
    before = memories(device)
    job.run()
    after = memories(device)
    apart = tuple(
        first and (size[0] * (size[1] + layer.gap) != 1)
        for first, size in zip(layer.channels_first, (layer.size, layer.output), strict=True)
    )
    scratchpad, sums = enumerated(layer, kind, dataflow, config, (apart[0], apart[1]))
    np.testing.assert_array_equal(after["scratchpad"] - before["scratchpad"], scratchpad)
    np.testing.assert_array_equal(after["accumulator"] - before["accumulator"], sums)


def test_a_dense_layer_by_hand() -> None:
    """20 inputs and 10 outputs on 8 columns: 2 blocks, of 8 and of 2 channels; words of 8 bytes."""
    layer = Layer(
        (1, 1), (20, 10), (1, 1), (1, 1), (1, 1), (0, 0), (1, 1), (False, False), 0,
        (0, 0), (-128, 127), True, 0, 3,
    )  # fmt: skip
    device, random = Device(), np.random.default_rng(1)
    job = Job(device, layer, "CONVOLUTION")
    job.put("IFMAP_START", random.integers(-128, 128, (1, 1, 20)).astype(np.int8))
    job.put_weights(draw_weights(layer, False, random), False)
    loads = memories(device)
    assert [*loads] == ["scratchpad"]  # there is no accumulator memory
    # 20 of data, 2 x 20 x 8 of weights, 40 of bias, 40 of multipliers, 10 of shifts.
    assert loads["scratchpad"].tolist() == [0, 0, 3 + 40 + 5 + 5 + 2, 20 + 320 + 40 + 40 + 10]
    job.run()
    reads = 2 * 3 + 20 * 2 + 5 + 5 + 2
    read = 2 * 20 + 200 + 40 + 40 + 10
    assert (memories(device)["scratchpad"] - loads["scratchpad"]).tolist() == [reads, read, 2, 10]


def test_transfers_count_rows_in_words() -> None:
    device = Device()
    source = np.zeros(64, np.uint8)
    device.program(
        DMA_BUS_ADDRESS=device.map(source, 1), DMA_SCRATCHPAD_START=0, DMA_DIRECTION=0,
        DMA_ROW_BYTES=9, DMA_ROWS=3, DMA_PLANES=2, DMA_BUS_ROW_STRIDE=9, DMA_BUS_PLANE_STRIDE=30,
        DMA_SCRATCHPAD_ROW_STRIDE=16, DMA_SCRATCHPAD_PLANE_STRIDE=64,
    )  # fmt: skip
    device.start("DMA_START")
    assert device.error() == "OK"
    assert memories(device)["scratchpad"].tolist() == [0, 0, 12, 54]
