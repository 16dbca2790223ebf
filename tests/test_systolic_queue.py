# SPDX-License-Identifier: Apache-2.0
"""The command queue of the simulated systolic array: order, overlap and time of drawn programs."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from systolic_commands import (
    Command,
    Machine,
    Timed,
    cycles,
    programs,
    step_by_step,
)
from systolic_device import VALUES, Config, Device
from systolic_layers import Job, Layer, closed_form, draw_weights, expected

DATAFLOWS = VALUES["DATAFLOW"]


@settings(max_examples=200, deadline=None)
@given(programs(), st.integers(0, 2**32 - 1))
def test_commands_leave_what_they_leave_one_after_the_other(
    program: tuple[Config, list[Command]], seed: int
) -> None:
    config, commands = program
    queued = Machine(config, seed)
    queued.run_queued(commands)
    alone = Machine(dataclasses.replace(config, command_queue_depth=0), seed)
    alone.run_alone(commands)
    for found, wanted in zip(queued.state(), alone.state(), strict=True):
        np.testing.assert_array_equal(found, wanted)


@settings(max_examples=200, deadline=None)
@given(programs(), st.integers(0, 2**32 - 1))
def test_cycles_are_those_of_a_model_that_steps(
    program: tuple[Config, list[Command]], seed: int
) -> None:
    config, commands = program
    config = dataclasses.replace(config, command_queue_depth=32)
    machine = Machine(config, seed)
    device = machine.device
    machine.enable("ERROR", "QUEUE_DONE")
    device.control("RESET_COUNTERS")
    queue, now = [], 0
    for command in commands:
        now += len(command.registers) + 1
        queue.append(Timed(command, now, *cycles(config, command)))
    counted = step_by_step(queue)
    entries = device.record_timeline(len(commands))
    for command in commands:
        machine.program(command)
        device.control("ENQUEUE_ARRAY" if command.is_array else "ENQUEUE_DMA")
    last = max(q.completion or 0 for q in queue)
    if last > now:
        assert device.wait() == 0
        assert device.counter("CLOCK") == last + 1, "a read is a cycle"
    assert device.error() == "OK" and device.read("COMMANDS_LEFT") == 0
    assert device.timeline() == len(commands)
    entries.sort(order="command")
    begin = entries["issued"][0] - queue[0].issued
    for number, (entry, q) in enumerate(zip(entries, queue, strict=True)):
        assert entry["command"] == number
        assert ("load", "array", "store")[entry["stream"]] == q.command.stream
        times = [int(entry[name] - begin) for name in entry.dtype.names[2:]]
        assert times == [q.issued, q.start, q.end_of_busy, q.completion]
    found = device.counters()
    works = counted["compute"] + counted["drain"]
    assert found["COMPUTE_CYCLES"] + found["DRAIN_CYCLES"] == works
    if config.preload:
        assert found["COMPUTE_CYCLES"] == counted["compute"]
    assert found["STALL_CYCLES"] == counted["stall"]
    assert found["DMA_CYCLES"] == counted["dma"]


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(sorted(DATAFLOWS)),
    st.tuples(st.integers(1, 9), st.integers(1, 40), st.integers(1, 20)),
    st.tuples(st.integers(1, 16), st.integers(1, 16), st.integers(0, 5)),
    st.booleans(),
)
def test_cycles_of_one_job(
    dataflow: str, sizes: tuple[int, int, int], array: tuple[int, int, int], preload: bool
) -> None:
    """Without `preload` SCALE-Sim's, with it filled and drained once."""
    (side, n, k), (rows, columns, drain) = sizes, array
    device = Device(Config(array_rows=rows, array_columns=columns, preload=preload,
                           drain_cycles_per_fold=drain))  # fmt: skip
    layer = Layer(
        (side, side), (k, n), (1, 1), (1, 1), (1, 1), (0, 0), (side, side), (False, False), 0,
        (1, 2), (-128, 127), True, 0, 7,
    )  # fmt: skip
    random = np.random.default_rng(1)
    data = random.integers(-128, 128, (side, side, k)).astype(np.int8)
    parameters = draw_weights(layer, False, random)
    job = Job(device, layer, "CONVOLUTION")
    device.write("DATAFLOW", DATAFLOWS[dataflow])
    job.put("IFMAP_START", data)
    job.put_weights(parameters, False)
    result, found = job.run()
    np.testing.assert_array_equal(result, expected(layer, data, parameters, False))
    m = side * side
    if not preload:
        assert found == closed_form(dataflow, m, n, k, rows, columns, drain)
        return
    through = {"OUTPUT_STATIONARY": k, "WEIGHT_STATIONARY": m, "INPUT_STATIONARY": n}[dataflow]
    one = closed_form(dataflow, m, n, k, rows, columns, 0)
    fill = rows + columns - 2 + (0 if dataflow == "OUTPUT_STATIONARY" else rows)
    count = one // (fill + through)
    busy = count * (through if dataflow == "OUTPUT_STATIONARY" else max(through, rows))
    assert found == busy + fill + drain
    assert device.counter("DRAIN_CYCLES") == fill + drain


def test_a_timeline_begins_with_the_next_command_and_keeps_what_there_is_room_for() -> None:
    device = Device(Config())
    device.map(np.zeros(64, np.uint8), 3)
    device.program(DMA_BUS_ADDRESS=1 << 28, DMA_ROW_BYTES=8)
    device.control("DMA_START")
    entries = device.record_timeline(2)
    assert device.wait() == 0 and device.timeline() == 0
    for bytes_ in (16, 24, 32):
        device.write("DMA_ROW_BYTES", bytes_)
        device.start("DMA_START")
    assert device.timeline() == 3
    assert list(entries["command"]) == [0, 1]
    assert list(entries["completion"] - entries["start"]) == [12, 13]
    device.record_timeline(0)
    device.start("DMA_START")
    assert device.timeline() == 0


@pytest.mark.parametrize("outstanding", [False, True])
def test_latency_is_paid_once_with_outstanding_requests(outstanding: bool) -> None:
    device = Device(Config(dma_latency_cycles=50, dma_burst_bytes=16, dma_bytes_per_cycle=8,
                           dma_outstanding=outstanding))  # fmt: skip
    source = np.arange(256, dtype=np.uint8)
    address = device.map(source, 1)
    device.program(DMA_BUS_ADDRESS=address, DMA_ROW_BYTES=60, DMA_ROWS=4, DMA_BUS_ROW_STRIDE=64,
                   DMA_SCRATCHPAD_ROW_STRIDE=60)  # fmt: skip
    device.control("RESET_COUNTERS", "DMA_START")
    assert device.wait() == 0
    wanted = 4 * 8 + 50 if outstanding else 4 * (8 + 4 * 50)
    assert device.counter("DMA_CYCLES") == device.counter("STALL_CYCLES") == wanted
    assert (device.scratchpad[:240] == source.reshape(4, 64)[:, :60].ravel()).all()


@pytest.mark.parametrize(
    ("channels", "folds"),
    [(1, 1), (3, 1), (4, 1), (5, 2), (8, 2), (9, 4), (16, 4), (17, 5), (20, 5), (25, 8)],
)
def test_few_channels_are_packed(channels: int, folds: int) -> None:
    """64 positions on 16 rows and 16 columns: 4 folds for a block that is not packed."""
    device = Device(Config(array_rows=16, array_columns=16, pack_columns=True))
    layer = Layer(
        (8, 8), (5, channels), (1, 1), (1, 1), (1, 1), (0, 0), (8, 8), (False, False), 0,
        (0, 0), (-128, 127), False, 0, 7,
    )  # fmt: skip
    random = np.random.default_rng(1)
    data = random.integers(-128, 128, (8, 8, 5)).astype(np.int8)
    parameters = draw_weights(layer, False, random)
    job = Job(device, layer, "CONVOLUTION")
    job.put("IFMAP_START", data)
    job.put_weights(parameters, False)
    result, found = job.run()
    np.testing.assert_array_equal(result, expected(layer, data, parameters, False))
    assert found == folds * (16 + 16 + 5 - 2)
    assert device.counter("MACS") == folds * 256 * 5 >= device.counter("USEFUL_MACS")
    assert math.ceil(channels * 64 / 256) <= folds
