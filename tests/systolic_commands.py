# SPDX-License-Identifier: Apache-2.0
"""Programs of commands for the simulated systolic array: drawn, run, and timed by a slow model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from systolic_device import BOTH, VALUES, Array, Config, Device

Draw = Any

BANK_BYTES = 256
# Small enough for transfers to meet on the bus.
BUFFER_BYTES = 192
# The last bank holds the shifts of all jobs: other bytes would not be sound as shifts.
SHIFTS_AT_FROM_END = 64
CHANNELS = 3

EVENTS = ["DMA_DONE", "ARRAY_DONE", "ERROR", "QUEUE_DONE", "COMMAND_DONE"]


@dataclass(frozen=True)
class Command:
    """What registers say, and what the command uses.

    Attributes:
        stream: `load`, `array` or `store`.
        registers: values by name; `DMA_BUS_ADDRESS` is an offset in the buffer.
        reads, writes: scratchpad banks.
        bus: first byte in the buffer and the one behind the last; empty for jobs.
    """

    stream: str
    registers: dict[str, int]
    reads: frozenset[int]
    writes: frozenset[int]
    bus: tuple[int, int] = (0, 0)

    @property
    def is_array(self) -> bool:
        """Whether the array runs it."""
        return self.stream == "array"


def banks(start: int, size: int) -> frozenset[int]:
    """Banks of bytes that follow each other."""
    return frozenset(range(start // BANK_BYTES, (start + size - 1) // BANK_BYTES + 1))


@st.composite
def transfers(draw: Draw, bank_count: int) -> Command:
    """A 2-D transfer between the buffer and a bank other than the last."""
    row_bytes, rows = draw(st.integers(1, 40)), draw(st.integers(1, 4))
    stride = row_bytes + draw(st.integers(0, 8))
    size = (rows - 1) * stride + row_bytes
    start = draw(st.integers(0, (bank_count - 1) * BANK_BYTES - size))
    bus = draw(st.integers(0, BUFFER_BYTES - size))
    is_out = draw(st.booleans())
    registers = {
        "DMA_BUS_ADDRESS": bus, "DMA_SCRATCHPAD_START": start, "DMA_DIRECTION": int(is_out),
        "DMA_ROW_BYTES": row_bytes, "DMA_ROWS": rows, "DMA_PLANES": 1,
        "DMA_BUS_ROW_STRIDE": stride, "DMA_SCRATCHPAD_ROW_STRIDE": stride,
    }  # fmt: skip
    used = banks(start, size)
    none: frozenset[int] = frozenset()
    return Command(
        "store" if is_out else "load", registers,
        used if is_out else none, none if is_out else used, (bus, bus + size),
    )  # fmt: skip


@st.composite
def jobs(draw: Draw, config: Config) -> Command:
    """A small convolution or pool that reads anywhere and writes a bank that it does not read."""
    bank_count, columns = config.scratchpad_banks, config.array_columns
    height, width = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    is_pool = draw(st.integers(0, 3)) == 0
    kernel = draw(st.integers(1, 2))
    result = draw(st.integers(0, bank_count - 2))
    others = [bank for bank in range(bank_count - 1) if bank != result]

    def operand(size: int) -> int:
        offset = draw(st.integers(0, (BANK_BYTES - size) // 4)) * 4
        return int(draw(st.sampled_from(others))) * BANK_BYTES + offset

    image = height * width * CHANNELS
    sizes = {"IFMAP_START": image}
    accumulate = draw(st.integers(0, 3)) if config.accumulator_bytes and not is_pool else 0
    keeps = accumulate >= 2
    adds = not keeps and draw(st.booleans())
    if not is_pool:
        sizes["WEIGHTS_START"] = kernel * kernel * CHANNELS * columns * -(-CHANNELS // columns)
        sizes |= {} if accumulate % 2 else {"BIAS_START": 12}
        sizes |= {} if keeps else {"MULTIPLIERS_START": 4}
        sizes |= {"ADDEND_START": image} if adds else {}
    starts = {name: operand(size) for name, size in sizes.items()}
    out = result * BANK_BYTES + draw(st.integers(0, BANK_BYTES - image))
    registers = {
        "OPERATION": VALUES["OPERATION"]["MAX_POOL" if is_pool else "CONVOLUTION"],
        "DATAFLOW": draw(st.integers(0, 2)),
        "INPUT_HEIGHT": height, "INPUT_WIDTH": width, "INPUT_CHANNELS": CHANNELS,
        "OUTPUT_HEIGHT": height, "OUTPUT_WIDTH": width, "OUTPUT_CHANNELS": CHANNELS,
        "KERNEL_HEIGHT": kernel, "KERNEL_WIDTH": kernel,
        "IFMAP_ROW_STRIDE": width * CHANNELS, "IFMAP_COLUMN_STRIDE": CHANNELS,
        "IFMAP_CHANNEL_STRIDE": 1, "OFMAP_ROW_STRIDE": width * CHANNELS,
        "OFMAP_COLUMN_STRIDE": CHANNELS, "OFMAP_CHANNEL_STRIDE": 1,
        "CLIP_LOWEST": -128, "CLIP_HIGHEST": 127, "SCALE_COUNT": 1,
        "SHIFTS_START": bank_count * BANK_BYTES - SHIFTS_AT_FROM_END,
        "OFMAP_START": out, "ACCUMULATE": accumulate, "ADD": int(adds), "ADD_LEFT_SHIFT": 20,
        "ACCUMULATOR_START": 4 * draw(st.integers(0, 9)),
        "ADD_RESULT_MULTIPLIER": 2**30, "ADD_ADDEND_MULTIPLIER": 2**30 + 2**29,
        "ADD_MULTIPLIER": 2**30 + 2**28, "ADD_SHIFT": -18,
        "SUM_CLIP_LOWEST": -128, "SUM_CLIP_HIGHEST": 127, **starts,
    }  # fmt: skip
    reads = frozenset[int]().union(*(banks(starts[name], size) for name, size in sizes.items()))
    if not is_pool and not keeps:
        reads |= {bank_count - 1}
    return Command("array", registers, reads, frozenset() if keeps else banks(out, image))


@st.composite
def configurations(draw: Draw) -> Config:
    """Small arrays and scratchpads with a queue."""
    count = draw(st.integers(3, 6))
    return Config(
        array_rows=draw(st.sampled_from([1, 4, 8])), array_columns=draw(st.sampled_from([1, 4, 8])),
        drain_cycles_per_fold=draw(st.integers(0, 3) | st.just(100)), pooling_lanes=2,
        preload=draw(st.booleans()), preload_rows=draw(st.integers(0, 5)),
        pack_columns=draw(st.booleans()),
        array_setup_cycles=draw(st.integers(0, 30)), dma_setup_cycles=draw(st.integers(0, 5)),
        scratchpad_bytes=count * BANK_BYTES, scratchpad_banks=count,
        dma_bytes_per_cycle=draw(st.sampled_from([1, 4, 8])),
        dma_latency_cycles=draw(st.integers(0, 40)), dma_burst_bytes=draw(st.sampled_from([0, 8])),
        dma_outstanding=draw(st.booleans()), accumulator_bytes=draw(st.sampled_from([0, 512])),
        command_queue_depth=draw(st.integers(1, 8)),
    )  # fmt: skip


@st.composite
def programs(draw: Draw) -> tuple[Config, list[Command]]:
    """A device and up to 20 commands."""
    config = draw(configurations())
    one = transfers(config.scratchpad_banks) | jobs(config)
    return config, draw(st.lists(one, min_size=1, max_size=20))


class Machine:
    """A device with known bytes in its scratchpad and in a mapped buffer."""

    def __init__(self, config: Config, seed: int) -> None:
        self.device = Device(config)
        random = np.random.default_rng(seed)
        self.device.scratchpad[:] = random.integers(0, 256, config.scratchpad_bytes)
        shifts = config.scratchpad_bytes - SHIFTS_AT_FROM_END
        self.device.scratchpad[shifts] = 256 - 9
        self.buffer = random.integers(0, 256, BUFFER_BYTES).astype(np.uint8)
        self.address = self.device.map(self.buffer, BOTH)

    def program(self, command: Command) -> None:
        """Write the command's registers."""
        for name, value in command.registers.items():
            self.device.write(name, value + (self.address if name == "DMA_BUS_ADDRESS" else 0))

    def run_alone(self, commands: Sequence[Command]) -> None:
        """One after the other with START."""
        for command in commands:
            self.program(command)
            self.device.start("ARRAY_START" if command.is_array else "DMA_START")
            assert self.device.error() == "OK"

    def enable(self, *events: str) -> None:
        """Which interrupts are raised."""
        self.device.write("INTERRUPT_ENABLE", sum_of_bits(events))

    def enqueue(self, command: Command) -> None:
        """Append a command, as soon as there is room."""
        self.program(command)
        while self.device.read("QUEUE_FREE") == 0:
            self.device.write("INTERRUPT_PENDING", sum_of_bits(["COMMAND_DONE"]))
            if self.device.read("QUEUE_FREE") == 0:
                assert self.device.wait(10**6) == 0
        self.device.control("ENQUEUE_ARRAY" if command.is_array else "ENQUEUE_DMA")

    def run_queued(self, commands: Sequence[Command]) -> None:
        """All of them through the queue."""
        self.enable("ERROR", "COMMAND_DONE")
        for command in commands:
            self.enqueue(command)
        self.enable("ERROR", "QUEUE_DONE")
        assert self.device.wait(10**6) == 0
        assert self.device.error() == "OK" and self.device.read("COMMANDS_LEFT") == 0
        assert self.device.status() == {"IDLE"}

    def state(self) -> tuple[Array, Array, Array]:
        """Copies of scratchpad, accumulator and buffer."""
        memories = self.device.scratchpad, self.device.accumulator, self.buffer
        return tuple(memory.copy() for memory in memories)  # type: ignore[return-value]


def sum_of_bits(events: Sequence[str]) -> int:
    """A value for INTERRUPT_ENABLE and INTERRUPT_PENDING."""
    return sum(1 << EVENTS.index(event) for event in events)


# --- time ---------------------------------------------------------------------------------------


def folds(config: Config, dataflow: int, m: int, n: int, k: int) -> int:
    """How often the array is filled."""
    rows, columns = config.array_rows, config.array_columns
    if dataflow == 2:
        return math.ceil(k / rows) * math.ceil(m / columns)
    if dataflow == 1:
        return math.ceil(k / rows) * math.ceil(n / columns)
    if not config.pack_columns:
        return math.ceil(m / rows) * math.ceil(n / columns)
    full, rest = divmod(n, columns)
    last = math.ceil(m / (rows * (columns // rest))) if rest else 0
    return full * math.ceil(m / rows) + last


def job_cycles(config: Config, dataflow: int, m: int, n: int, k: int) -> tuple[int, int]:
    """Busy and tail of a convolution as a matrix product."""
    rows, columns, drain = config.array_rows, config.array_columns, config.drain_cycles_per_fold
    count = folds(config, dataflow, m, n, k)
    through = (k, m, n)[dataflow]
    stays = rows if dataflow else 0
    if config.preload:
        stays = math.ceil(stays / max(config.preload_rows, 1))
        return count * max(through, stays), rows + columns - 2 + drain + stays
    return count * (through + rows + columns - 2 + stays + drain), 0


def cycles(config: Config, command: Command) -> tuple[int, int]:
    """Busy and tail of a command, with what its engine takes to begin."""
    busy, tail = cycles_of_work(config, command)
    setup = config.array_setup_cycles if command.is_array else config.dma_setup_cycles
    return setup + busy, tail


def cycles_of_work(config: Config, command: Command) -> tuple[int, int]:
    """Busy and tail of a command from its first fold or burst on."""
    value = command.registers
    if not command.is_array:
        rows, size = value["DMA_ROWS"], value["DMA_ROW_BYTES"]
        moved = rows * math.ceil(size / config.dma_bytes_per_cycle)
        if config.dma_outstanding:
            return moved, config.dma_latency_cycles
        bursts = math.ceil(size / (config.dma_burst_bytes or size))
        return moved + rows * bursts * config.dma_latency_cycles, 0
    m = value["OUTPUT_HEIGHT"] * value["OUTPUT_WIDTH"]
    taps = value["KERNEL_HEIGHT"] * value["KERNEL_WIDTH"]
    if value["OPERATION"] == VALUES["OPERATION"]["MAX_POOL"]:
        return m * taps * math.ceil(CHANNELS / config.pooling_lanes), 0
    return job_cycles(config, value["DATAFLOW"], m, CHANNELS, taps * CHANNELS)


def conflict(one: Command, other: Command) -> bool:
    """Whether the younger of two waits for the end of the older."""
    if one.is_array != other.is_array:
        return bool((one.reads | one.writes) & (other.reads | other.writes))
    overlap = one.bus[0] < other.bus[1] and other.bus[0] < one.bus[1]
    if {one.stream, other.stream} == {"load", "store"} and overlap:
        return True
    return bool(one.writes & other.reads or one.reads & other.writes)


@dataclass
class Timed:
    """A command with its times; None: not yet."""

    command: Command
    issued: int
    busy: int
    tail: int
    start: int | None = None
    end_of_busy: int | None = None
    completion: int | None = None


def _may_start(queue: Sequence[Timed], index: int, now: int) -> bool:
    one = queue[index]
    if one.start is not None or one.issued > now:
        return False
    for other in queue[:index]:
        if other.command.stream == one.command.stream and other.start is None:
            return False
        if other.completion is None and conflict(one.command, other.command):
            return False
    mine = [q for q in queue if q.command.is_array == one.command.is_array]
    running = [q for q in mine if q.start is not None and q.completion is None]
    return len(running) < 2 and all(q.end_of_busy is not None for q in running)


def step_by_step(queue: Sequence[Timed]) -> dict[str, int]:
    """Fill in the times, a cycle at a time; the cycles of each kind."""
    counted = dict.fromkeys(("compute", "drain", "stall", "idle", "dma"), 0)
    now = 0
    while True:
        for is_array in (False, True):
            mine = [q for q in queue if q.command.is_array == is_array and q.start is not None]
            mine.sort(key=lambda q: q.start or 0)
            for q in mine:
                if q.end_of_busy is None and q.start is not None and now - q.start == q.busy:
                    q.end_of_busy = now
            for q in (q for q in mine if q.completion is None):
                if q.end_of_busy is None or now - q.end_of_busy < q.tail:
                    break
                q.completion = now
        if all(q.completion is not None for q in queue):
            return counted
        for index, q in enumerate(queue):
            if _may_start(queue, index, now):
                q.start = now
        alive = [q for q in queue if q.start is not None and q.completion is None]
        computes = any(q.command.is_array and q.end_of_busy is None for q in alive)
        drains = any(q.command.is_array for q in alive)
        moves = any(not q.command.is_array for q in alive)
        kinds = (("compute", computes), ("drain", drains), ("stall", moves), ("idle", True))
        counted[next(name for name, is_so in kinds if is_so)] += 1
        counted["dma"] += moves
        now += 1
