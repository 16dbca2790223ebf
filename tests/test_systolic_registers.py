# SPDX-License-Identifier: Apache-2.0
"""The simulated systolic array's registers against their map, and its transfers against NumPy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from systolic_device import FROM_DEVICE, REGISTERS, TO_DEVICE, Array, Config, Device

Draw = Any

CONFIGURED = {
    "ARRAY_ROWS": 3, "ARRAY_COLUMNS": 5, "SCRATCHPAD_BYTES": 1 << 10, "SCRATCHPAD_BANKS": 2,
    "DMA_BYTES_PER_CYCLE": 16, "DMA_ALIGNMENT": 8, "POOLING_LANES": 7, "FEATURES": 0b11101,
}  # fmt: skip
COUNTERS = {name for name in REGISTERS if name.endswith(("_LOW", "_HIGH"))}
INTERRUPTS = {"INTERRUPT_ENABLE", "INTERRUPT_PENDING"}


def configured() -> Device:
    return Device(
        Config(
            array_rows=3, array_columns=5, scratchpad_bytes=1 << 10, scratchpad_banks=2,
            dma_bytes_per_cycle=16, dma_alignment=8, pooling_lanes=7, weight_stationary=False,
        )
    )  # fmt: skip


def test_registers_have_their_reset_values() -> None:
    device = configured()
    device.write("INTERRUPT_ENABLE", 0)
    for name, register in REGISTERS.items():
        if register["access"] != "wo" and name not in COUNTERS:
            assert device.read(name) == CONFIGURED.get(name, register.get("reset", 0)), name
    assert device.error() == "OK"


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_registers_keep_what_is_written(value: int) -> None:
    device = configured()
    kept = [n for n, r in REGISTERS.items() if r["access"] == "rw" and n not in INTERRUPTS]
    for index, name in enumerate(kept):
        device.write(name, value ^ index)
    for index, name in enumerate(kept):
        assert device.read(name) == value ^ index, name
    assert device.error() == "OK"


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 0x1A4) | st.integers(0, 2**32 - 1), st.booleans())
def test_access_is_that_of_the_map(offset: int, writes: bool) -> None:
    device = configured()
    name = next((n for n, r in REGISTERS.items() if r["offset"] == offset), None)
    access = REGISTERS[name]["access"] if name else ""
    if writes:
        device.write_at(offset, 0)
        allowed = "w" in access
    else:
        value = device.read_at(offset)
        allowed = access in ("ro", "rw")
        assert allowed or value == 0
    assert device.error() == ("OK" if allowed else "INVALID_REGISTER")
    assert device.read("ERROR_ADDRESS") == (0 if allowed else offset)


def test_unknown_bits_are_refused() -> None:
    for name in ("CONTROL", "INTERRUPT_ENABLE", "INTERRUPT_PENDING"):
        device = configured()
        device.write(name, 1 << 9)
        assert device.error() == "INVALID_ARGUMENT"
        assert device.read("ERROR_ADDRESS") == REGISTERS[name]["offset"]


def test_a_high_half_belongs_to_its_low_half() -> None:
    device = configured()
    device.wait()  # 2**32 - 1 idle cycles
    low, high = device.read("CLOCK_LOW"), device.read("CLOCK_HIGH")
    assert low < 100 and high == 1
    device.control("RESET_COUNTERS")
    assert device.read("CLOCK_HIGH") == 0 and device.read("CLOCK_LOW") == 2


# --- transfers ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Transfer:
    """Planes of rows of bytes on both sides."""

    shape: tuple[int, int, int]
    bus: tuple[int, int, int]
    pad: tuple[int, int, int]
    is_out: bool
    width: int
    latency: int
    burst: int


@st.composite
def transfers(draw: Draw) -> Transfer:
    def side(shape: tuple[int, int, int]) -> tuple[int, int, int]:
        """Start, plane stride and row stride; rows may be interleaved with planes."""
        planes, rows, size = shape
        first = draw(st.integers(0, 20))
        row = size + draw(st.integers(0, 9))
        plane = rows * row + draw(st.integers(0, 9))
        if draw(st.booleans()):
            plane, row = row, planes * row + draw(st.integers(0, 9))
        return first, plane, row

    shape = tuple(draw(st.integers(1, most)) for most in (4, 6, 40))
    return Transfer(
        shape, side(shape), side(shape), draw(st.booleans()),  # type: ignore[arg-type]
        draw(st.sampled_from([1, 4, 8, 16])), draw(st.integers(0, 30)),
        draw(st.sampled_from([0, 8, 16, 64])),
    )  # fmt: skip


def view(memory: Array, shape: tuple[int, int, int], side: tuple[int, int, int]) -> Array:
    return np.lib.stride_tricks.as_strided(memory[side[0] :], shape, (side[1], side[2], 1))


@settings(max_examples=200, deadline=None)
@given(transfers())
def test_transfers_are_slices(transfer: Transfer) -> None:
    device = Device(Config(dma_bytes_per_cycle=transfer.width, dma_latency_cycles=transfer.latency,
                           dma_burst_bytes=transfer.burst))  # fmt: skip
    random = np.random.default_rng(0)
    memory = random.integers(0, 256, 1 << 14).astype(np.uint8)
    device.scratchpad[:] = random.integers(0, 256, device.scratchpad.size)
    wanted = [memory.copy(), device.scratchpad.copy()]
    sides = [view(wanted[0], transfer.shape, transfer.bus),
             view(wanted[1], transfer.shape, transfer.pad)]  # fmt: skip
    if transfer.is_out:
        sides.reverse()
    sides[1][...] = sides[0]
    address = device.map(memory, FROM_DEVICE if transfer.is_out else TO_DEVICE)
    planes, rows, size = transfer.shape
    device.program(
        DMA_BUS_ADDRESS=address + transfer.bus[0], DMA_SCRATCHPAD_START=transfer.pad[0],
        DMA_DIRECTION=int(transfer.is_out), DMA_ROW_BYTES=size, DMA_ROWS=rows, DMA_PLANES=planes,
        DMA_BUS_PLANE_STRIDE=transfer.bus[1], DMA_BUS_ROW_STRIDE=transfer.bus[2],
        DMA_SCRATCHPAD_PLANE_STRIDE=transfer.pad[1], DMA_SCRATCHPAD_ROW_STRIDE=transfer.pad[2],
    )  # fmt: skip
    device.control("RESET_COUNTERS", "DMA_START")
    assert device.wait() == 0 and device.error() == "OK"
    assert device.status() == {"IDLE", "DMA_DONE"}
    np.testing.assert_array_equal(memory, wanted[0])
    np.testing.assert_array_equal(device.scratchpad, wanted[1])
    bursts = math.ceil(size / transfer.burst) if transfer.burst else 1
    cycles = planes * rows * (bursts * transfer.latency + math.ceil(size / transfer.width))
    counters = device.counters()
    assert counters["DMA_CYCLES"] == counters["STALL_CYCLES"] == cycles
    moved = planes * rows * size
    assert counters["BYTES_IN"] == (0 if transfer.is_out else moved)
    assert counters["BYTES_OUT"] == (moved if transfer.is_out else 0)
