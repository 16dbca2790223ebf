# SPDX-License-Identifier: Apache-2.0
"""What can go wrong with Strawberry, one thing at a time, on its RTL and on the C model.

    python tests/rtl/compare_faults.py

Each register of a valid job and of a valid transfer is set to values at and around its limits;
registers are accessed that are not there, read only, or locked; jobs are stopped; the bus fails.
"""

from __future__ import annotations

import ctypes
import random
import sys
from collections.abc import Callable, Iterator

import numpy as np
from compare import KEPT, Pair, Report
from strawberry_commands import BUFFER, SIZE, Registers, draw_job, extent, operand_bytes
from systolic_device import OFFSETS, Device
from verilated_strawberry import RtlDevice

LIMITS = [
    0, 1, 2, 3, 126, 127, 128, 255, 0xFFFE, 0xFFFF, 0x10000, 0x10001, 0x1FFFF, 0x20000, 0x20001,
    0xFFFFFF, 0x1000000, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFF7F, 0xFFFFFF80, 0xFFFFFFFF,
]  # fmt: skip
DMA_REGISTERS = [name for name in KEPT if name.startswith("DMA_")]
JOB_REGISTERS = [
    name for name in KEPT
    if name not in DMA_REGISTERS and not name.startswith(("ADD", "SUM_"))
]  # fmt: skip
LONGEST = 60_000
"""Cycles of a job that runs to its end; others are stopped."""
SLACK = 24
"""Cycles or bytes by which the beginning of work may be apart: of checks, and of the bus."""
SLICE = 500
"""Cycles that are waited for at a time."""

BASE: Registers = {
    "OPERATION": 0, "DATAFLOW": 0, "INPUT_HEIGHT": 5, "INPUT_WIDTH": 6, "INPUT_CHANNELS": 3,
    "OUTPUT_HEIGHT": 3, "OUTPUT_WIDTH": 4, "OUTPUT_CHANNELS": 10, "KERNEL_HEIGHT": 3,
    "KERNEL_WIDTH": 2, "STRIDE_HEIGHT": 2, "STRIDE_WIDTH": 1, "DILATION_HEIGHT": 1,
    "DILATION_WIDTH": 2, "PAD_TOP": 1, "PAD_LEFT": 1, "IFMAP_ROW_STRIDE": 18,
    "IFMAP_COLUMN_STRIDE": 3, "IFMAP_CHANNEL_STRIDE": 1, "OFMAP_ROW_STRIDE": 40,
    "OFMAP_COLUMN_STRIDE": 10, "OFMAP_CHANNEL_STRIDE": 1, "INPUT_ZERO_POINT": -3,
    "OUTPUT_ZERO_POINT": 5, "CLIP_LOWEST": -100, "CLIP_HIGHEST": 100, "ROUNDING": 0,
    "SCALE_COUNT": 10, "IFMAP_START": 1001, "WEIGHTS_START": 2003, "BIAS_START": 4004,
    "MULTIPLIERS_START": 5008, "SHIFTS_START": 6001, "OFMAP_START": 7007, "ADD": 0,
    "ACCUMULATE": 0, "ACCUMULATOR_START": 0,
}  # fmt: skip
DEPTHWISE: Registers = BASE | {
    "OPERATION": 1, "INPUT_CHANNELS": 5, "IFMAP_COLUMN_STRIDE": 5, "IFMAP_ROW_STRIDE": 30,
}  # fmt: skip


class FaultPair(Pair):
    """Both devices, and what a wrong START leaves behind."""

    def prepare(self) -> None:
        """Fill the scratchpads with bytes that may be shifts, too."""
        self.load(np.random.default_rng(5).integers(-31, 31, SIZE, dtype=np.int8), 0)

    def attempt(self, command: str, what: str, leave_out: tuple[str, ...] = ()) -> None:
        """CLEAR, START, and wait or stop; then compare states, with waits of any length."""
        self.control("CLEAR", command)
        self.settle(what, leave_out)

    def compare_result(self, what: str) -> None:
        """Copy where results of `BASE` lie out of both scratchpads and compare that."""
        for buffer in self.buffers:
            buffer[:200] = 0
        self.program({"DMA_BUS_ADDRESS": self.bus, "DMA_SCRATCHPAD_START": BASE["OFMAP_START"],
                      "DMA_DIRECTION": 1, "DMA_ROW_BYTES": 200, "DMA_ROWS": 1,
                      "DMA_PLANES": 1})  # fmt: skip
        self.run("DMA_START", f"{what}: its result")
        different = np.flatnonzero(self.buffers[0][:200] != self.buffers[1][:200])
        self.report.expect(f"{what}: bytes from {different[:4]}", 0, different.size)

    def settle(self, what: str, leave_out: tuple[str, ...] = ()) -> None:
        """Wait until both are idle, or stop them, and compare."""
        left = [self.model.read(name) for name in ("ARRAY_CYCLES_LEFT", "DMA_BYTES_LEFT")]
        if left[0] > LONGEST or left[1] > 8 * LONGEST:
            busy = [device.status() & {"ARRAY_BUSY", "DMA_BUSY"} for device in self.devices]
            self.report.expect(f"{what}: busy", *busy)
            self.control("CLEAR")
        for device in self.devices:
            device.write("INTERRUPT_ENABLE", 0)  # an error does not end a wait
            for _ in range(2 * LONGEST // SLICE):
                if "IDLE" in device.status():
                    break
                device.wait(SLICE)
            device.write("INTERRUPT_ENABLE", 7)
        self.compare_state(what, leave_out)
        self.report.expect(f"{what}: failure of the RTL", "", self.rtl.failure())


def around(*values: int) -> Iterator[int]:
    """Values, and those next to them."""
    for value in values:
        yield from (value - 1, value, value + 1)


def wrong_values(base: Registers, name: str) -> list[int]:
    """Values for a register of a job: right ones at their limits, and wrong ones."""
    values = {value & 0xFFFFFFFF for value in [*LIMITS, *around(base[name])]}
    sizes = operand_bytes(base)
    operand = name.removesuffix("_START")
    if operand in sizes:
        step = 4 if operand in ("BIAS", "MULTIPLIERS") else 1
        end = SIZE - sizes[operand]
        values |= {end + offset for offset in (-step, 0, 1, 2, 3, step)}
        others = [operand] if operand == "OFMAP" else ["OFMAP"]
        for other in [item for item in sizes if item != operand] if operand == "OFMAP" else others:
            start = base[f"{other}_START"]
            values |= set(around(start - sizes[operand], start + sizes[other]))
    for tensor, size in (("IFMAP", "INPUT"), ("OFMAP", "OUTPUT")):
        for stride, axis in (("ROW", "HEIGHT"), ("COLUMN", "WIDTH"), ("CHANNEL", "CHANNELS")):
            count = base[f"{size}_{axis}"] - 1
            if name == f"{tensor}_{stride}_STRIDE" and count:
                rest = SIZE - base[f"{tensor}_START"] - extent(base | {name: 0}, tensor, size)
                values |= set(around(rest // count))
            if name == f"{size}_{axis}":
                stride_bytes = base[f"{tensor}_{stride}_STRIDE"]
                rest = SIZE - base[f"{tensor}_START"] - extent(base | {name: 1}, tensor, size)
                values |= set(around(rest // stride_bytes + 1))
    return sorted(values)


def wrong_jobs(pair: FaultPair) -> None:
    """Each register of a job at its limits."""
    for base in (BASE, DEPTHWISE):
        for name in JOB_REGISTERS:
            for value in wrong_values(base, name):
                pair.program(base | {name: value})
                pair.attempt("ARRAY_START", f"job with {name} {value:#x}")
    # Endless jobs of strides that are 0.
    names = ("IFMAP_ROW", "IFMAP_COLUMN", "IFMAP_CHANNEL", "OFMAP_ROW", "OFMAP_COLUMN")
    still = {f"{name}_STRIDE": 0 for name in names}
    for size in ("INPUT", "OUTPUT"):
        for height, width in ((256, 256), (256, 257), (65535, 1), (65535, 65535), (21845, 3)):
            sizes = {f"{size}_HEIGHT": height, f"{size}_WIDTH": width, f"{size}_CHANNELS": 1,
                     "SCALE_COUNT": 1}  # fmt: skip
            pair.program(BASE | still | sizes)
            pair.attempt("ARRAY_START", f"job with {size} {height} x {width} without strides")
    for rounding in (0, 1):
        for shift in (-128, -32, -31, 30, 31, 127):
            for place in (0, 7, 8, 9, 10):
                pair.load(np.zeros(11, np.int8), BASE["SHIFTS_START"])
                pair.load(np.full(1, shift, np.int8), BASE["SHIFTS_START"] + place)
                pair.program(BASE | {"ROUNDING": rounding})
                pair.attempt("ARRAY_START", f"shift {shift} of channel {place}")
    pair.prepare()


def wrong_transfers(pair: FaultPair) -> None:
    """Each register of a transfer at its limits."""
    base = {
        "DMA_BUS_ADDRESS": pair.bus, "DMA_SCRATCHPAD_START": 100, "DMA_DIRECTION": 0,
        "DMA_ROW_BYTES": 20, "DMA_ROWS": 3, "DMA_PLANES": 2, "DMA_BUS_ROW_STRIDE": 24,
        "DMA_BUS_PLANE_STRIDE": 80, "DMA_SCRATCHPAD_ROW_STRIDE": 30,
        "DMA_SCRATCHPAD_PLANE_STRIDE": 120,
    }  # fmt: skip
    reach = 2 * 30 + 120 + 20
    bus_reach = 2 * 24 + 80 + 20
    extra = {
        "DMA_SCRATCHPAD_START": around(SIZE - reach),
        "DMA_SCRATCHPAD_ROW_STRIDE": around((SIZE - 100 - 140) // 2),
        "DMA_SCRATCHPAD_PLANE_STRIDE": around(SIZE - 100 - 80),
        "DMA_BUS_ADDRESS": [pair.bus + BUFFER - bus_reach + step for step in (0, 8, 100, BUFFER)],
        "DMA_BUS_PLANE_STRIDE": [BUFFER - 68 + step for step in (0, 8)],
        "DMA_ROWS": around(0x10000 // 30, 2**32 // 40),
        "DMA_PLANES": around(2**32 // 60),
    }
    for direction in (0, 1):
        for name in DMA_REGISTERS:
            for value in [*LIMITS, *around(base[name]), *extra.get(name, [])]:
                value &= 0xFFFFFFFF
                registers = base | {"DMA_DIRECTION": direction, name: value}
                pair.program(registers)
                # What the bus refuses, the model refuses before anything has moved.
                on_the_bus = name.startswith("DMA_BUS")
                pair.attempt("DMA_START", f"transfer {direction} with {name} {value:#x}",
                             ("DMA_BYTES_LEFT",) if on_the_bus else ())  # fmt: skip
        # Rows that are all in one place are as many as one likes.
        still = {name: 0 for name in base if name.endswith("STRIDE")}
        for rows, planes, row in ((65536, 65535, 1), (65536, 65536, 1), (1 << 31, 1, 2),
                                  ((1 << 31) - 1, 1, 2), (0xFFFFFFFF, 0xFFFFFFFF, 1)):  # fmt: skip
            pair.program(base | still | {"DMA_DIRECTION": direction, "DMA_ROWS": rows,
                                         "DMA_PLANES": planes, "DMA_ROW_BYTES": row})  # fmt: skip
            pair.attempt("DMA_START", f"transfer {direction} of {planes} x {rows} x {row} bytes")
    for device in pair.devices:  # a buffer that may not be written
        device.unmap(pair.bus)
    for device, buffer in zip(pair.devices, pair.buffers, strict=True):
        pair.bus = device.map(buffer, 1)
    pair.program(base | {"DMA_DIRECTION": 1, "DMA_BUS_ADDRESS": pair.bus})
    pair.control("CLEAR", "DMA_START")
    for device in pair.devices:
        device.wait(1000)
    found = [(device.error(), device.read("ERROR_ADDRESS")) for device in pair.devices]
    pair.report.expect("wrong direction: the model", ("WRONG_DIRECTION", pair.bus), found[0])
    pair.report.expect("wrong direction", ("OUT_OF_RANGE", pair.bus), found[1])
    for device in pair.devices:
        device.unmap(pair.bus)
    for device, buffer in zip(pair.devices, pair.buffers, strict=True):
        pair.bus = device.map(buffer, 3)


def accesses(pair: FaultPair) -> None:
    """Every offset read and written, idle and busy."""
    control = OFFSETS["CONTROL"]
    writable = {
        OFFSETS[name] for name in (*KEPT, "CONTROL", "INTERRUPT_PENDING", "INTERRUPT_ENABLE")
    }
    ends = [*range(0, 0x220, 4), 0x3FC, 0x7F8, 0xFFC]
    for offset in [*ends, 1, 2, 3, 0x61, 0xA2, 0x143]:
        pair.control("CLEAR")
        values = [device.read_at(offset) for device in pair.devices]
        if not 0x140 <= offset <= 0x18C:  # counters count accesses
            pair.report.expect(f"read of {offset:#x}", values[0], values[1])
        pair.compare_state(f"read of {offset:#x}")
        pair.control("CLEAR")
        for value in (0xFFFFFFFF, 0, 0x12345678, 8, 7, 3) if offset not in (control,) else (
            8, 16, 32, 64, 0x80000000, 0xFFFFFFF8,
        ):  # fmt: skip
            for device in pair.devices:
                device.write_at(offset, value)
            pair.compare_state(f"write of {value:#x} to {offset:#x}")
            if offset not in writable:
                pair.control("CLEAR")
        for device in pair.devices:
            device.write("INTERRUPT_ENABLE", 7)
    pair.control("CLEAR")
    pair.compare_registers("after accesses")
    long_job = BASE | {
        "KERNEL_HEIGHT": 9, "OUTPUT_HEIGHT": 99, "OFMAP_ROW_STRIDE": 0,
        "INPUT_CHANNELS": 30, "IFMAP_START": 10000, "WEIGHTS_START": 20000,
    }  # fmt: skip
    for name in [*KEPT, "CONTROL", "STATUS", "INTERRUPT_ENABLE", "INTERRUPT_PENDING", "ID"]:
        for value in (2, 0xFFFFFFFF):
            pair.control("CLEAR")
            pair.program(long_job)
            pair.control("ARRAY_START")
            for device in pair.devices:
                device.write(name, value)
            pair.compare_state(f"{name} {value:#x} while the array is busy", ("ARRAY_CYCLES_LEFT",))
            pair.control("CLEAR")
            for device in pair.devices:
                device.write("INTERRUPT_ENABLE", 7)
            pair.compare_state(f"after {name} {value:#x} while the array is busy")
    pair.compare_registers("after accesses while busy")
    pair.program(long_job)
    pair.control("ARRAY_START")
    pair.control("ARRAY_START")  # an error, and the job runs on
    pair.settle("a job that is started twice")


def together(pair: FaultPair) -> None:
    """Both engines at once: the older one runs first, whatever the other one waits for."""
    transfer = {"DMA_BUS_ADDRESS": pair.bus, "DMA_SCRATCHPAD_START": 1001, "DMA_DIRECTION": 0,
                "DMA_ROW_BYTES": 90, "DMA_ROWS": 1, "DMA_PLANES": 1}  # fmt: skip
    wrong_transfer, wrong_job = transfer | {"DMA_ROWS": 0}, BASE | {"CLIP_HIGHEST": 300}
    orders = [("DMA_START",), ("ARRAY_START",)], [("ARRAY_START",), ("DMA_START",)]
    for bytes_of in (transfer, wrong_transfer):
        for job in (BASE, wrong_job):
            for order in ([("DMA_START", "ARRAY_START")], *orders):
                for clear in (False, True):
                    pair.fill(np.random.default_rng(9).integers(-31, 31, BUFFER, dtype=np.int8))
                    pair.control("CLEAR")
                    pair.program(bytes_of | job)
                    for number, commands in enumerate(order):
                        pair.control(*commands, *(["CLEAR"] if clear and number == 0 else []))
                    pair.settle(f"{order} of {bytes_of['DMA_ROWS']} rows, {job['CLIP_HIGHEST']}")
    out = transfer | {"DMA_DIRECTION": 1, "DMA_SCRATCHPAD_START": BASE["OFMAP_START"]}
    pair.program(out | BASE)
    pair.control("ARRAY_START")
    pair.control("DMA_START")  # the result, when it is there
    pair.settle("a result that is read when it is there")
    pair.report.expect("its bytes", bytes(pair.buffers[0][:90]), bytes(pair.buffers[1][:90]))
    pair.control("CLEAR")
    pair.compare_scratchpads("after both engines")


def stops(pair: FaultPair, count: int = 60) -> None:
    """CLEAR in the middle; what comes after it is right."""
    source = random.Random(11)
    for number in range(count):
        job = draw_job(source) if number % 2 else BASE
        transfer = {"DMA_BUS_ADDRESS": pair.bus + number % 9, "DMA_SCRATCHPAD_START": number,
                    "DMA_DIRECTION": number // 2 % 2, "DMA_ROW_BYTES": 700, "DMA_ROWS": 2,
                    "DMA_PLANES": 1, "DMA_BUS_ROW_STRIDE": 800,
                    "DMA_SCRATCHPAD_ROW_STRIDE": 700}  # fmt: skip
        command = "ARRAY_START" if source.random() < 0.5 else "DMA_START"
        pair.control("CLEAR")
        pair.program(transfer | job)
        pair.control(command)
        for device in pair.devices:
            device.write("INTERRUPT_ENABLE", 0)
            device.wait(source.randint(0, 150))
            device.write("INTERRUPT_ENABLE", 7)
        again = number % 3 == 0 and command == "DMA_START"
        pair.control("CLEAR", *([command] if again else []))
        pair.settle(f"stop {number} of {command}")
        pair.prepare()
        pair.program(transfer | BASE)
        pair.attempt("ARRAY_START", f"job after stop {number}")
        pair.compare_scratchpads(f"after stop {number}")


def inject(device: Device, address: int, size: int) -> None:
    """Let the bus refuse bytes."""
    fault = (ctypes.c_uint32 * 8)(1, 0, 0, address, size, 0, 0, 0)
    assert device._library.umakit_simulator_inject(device.handle, fault) == 0


def bus_faults(pair: FaultPair) -> None:
    """The bus refuses bytes: whole beats, parts of beats, the first and the last ones."""
    for direction in (0, 1):
        for at in (0, 7, 8, 100, 255, 256, 500, 799, 1000, 1055):
            for first in (0, 5):
                transfer = {
                    "DMA_BUS_ADDRESS": pair.bus + first, "DMA_SCRATCHPAD_START": 100,
                    "DMA_DIRECTION": direction, "DMA_ROW_BYTES": 700, "DMA_ROWS": 2,
                    "DMA_PLANES": 1, "DMA_BUS_ROW_STRIDE": 800, "DMA_SCRATCHPAD_ROW_STRIDE": 700,
                }  # fmt: skip
                pair.program(transfer)
                for device in pair.devices:
                    inject(device, pair.bus + at, 1)
                what = f"a fault of the byte {at} of a transfer {direction} from {first}"
                pair.control("CLEAR", "DMA_START")
                for device in pair.devices:
                    device.wait(10000)
                if direction == 0 and at < first:  # the bus reads whole beats
                    pair.report.expect(f"{what}: model", "OK", pair.model.error())
                    pair.report.expect(what, "BUS_ERROR", pair.rtl.error())
                else:
                    pair.compare_state(what, ("ERROR_ADDRESS", "DMA_BYTES_LEFT"))
                if pair.model.error() == "BUS_ERROR":
                    expected = at // 8 * 8 if direction == 0 else row_start(at, first)
                    expected = max(expected, first if at < 800 else first + 800)
                    found = pair.rtl.read("ERROR_ADDRESS") - pair.bus
                    pair.report.expect(f"{what}: address", expected, found)
                    left = pair.rtl.read("DMA_BYTES_LEFT")
                    before = expected - first - (100 if at >= 800 else 0)
                    pair.report.expect(f"{what}: bytes left", 1400 - before, left)
                for device in pair.devices:
                    device._library.umakit_simulator_remove_faults(device.handle)


def progress(pair: FaultPair) -> None:
    """What registers say about work that has just begun, and about counters that were reset."""
    high = [OFFSETS[name] for name in OFFSETS if name.endswith("_HIGH")]
    found = [[device.read_at(offset) for offset in high] for device in pair.devices]
    pair.report.expect("high halves of counters after power-on", *found)
    source = random.Random(17)
    for number in range(12):
        job = draw_job(source)
        pair.control("CLEAR")
        pair.program(job)
        pair.control("ARRAY_START")
        left = [device.read("ARRAY_CYCLES_LEFT") for device in pair.devices]
        what = f"cycles left of {left} of job {number} at its start"
        pair.report.expect(what, True, abs(left[0] - left[1]) <= SLACK)
        pair.settle(what)
        rows = 1 + number % 3
        pair.control("CLEAR")
        pair.program({"DMA_BUS_ADDRESS": pair.bus, "DMA_SCRATCHPAD_START": 0,
                      "DMA_DIRECTION": number % 2, "DMA_ROW_BYTES": 999, "DMA_ROWS": rows,
                      "DMA_PLANES": 2})  # fmt: skip
        pair.control("DMA_START")
        left = [device.read("DMA_BYTES_LEFT") for device in pair.devices]
        what = f"bytes left of {left} of {rows} rows at their start"
        pair.report.expect(what, True, abs(left[0] - left[1]) <= SLACK)
        pair.settle(what)


def rescaling(pair: FaultPair) -> None:
    """Sums at powers of two with shifts of all sizes: products at the limits of 32 bits."""
    seed = np.random.default_rng(23)
    outputs = BASE["OUTPUT_CHANNELS"]
    for number in range(80):
        powers = seed.integers(0, 31, outputs)
        sums = seed.choice([-1, 1], outputs) * (1 << powers)
        sums += seed.choice([-1, 0, 0, 0, 1], outputs)
        # Half of the results are about 2^31.
        shifts = np.where(seed.random(outputs) < 0.5, 32 - powers + seed.integers(-1, 2, outputs),
                          seed.integers(-31, 31, outputs)).clip(-31, 30)  # fmt: skip
        multipliers = seed.choice([1 << 30, 1 << 30, (1 << 30) + 1, 2**31 - 1], outputs)
        clips = {"CLIP_LOWEST": -128, "CLIP_HIGHEST": 127, "OUTPUT_ZERO_POINT": number % 3 - 1}
        pair.load(np.zeros(operand_bytes(BASE)["WEIGHTS"], np.int8), BASE["WEIGHTS_START"])
        pair.load(sums.astype(np.int32), BASE["BIAS_START"])
        pair.load(multipliers.astype(np.int32), BASE["MULTIPLIERS_START"])
        pair.load(shifts.astype(np.int8), BASE["SHIFTS_START"])
        pair.program(BASE | clips | {"ROUNDING": number % 2})
        pair.attempt("ARRAY_START", f"sums at powers of two, number {number}")
        pair.compare_result(f"sums at powers of two, number {number}")


def row_start(at: int, first: int) -> int:
    """The first byte of the burst that a byte is in."""
    row = first + (800 if at >= 800 else 0)
    return row + max(at - row, 0) // 256 * 256


PHASES = (accesses, wrong_transfers, wrong_jobs, together, stops, bus_faults, progress, rescaling)


def run_phase(phase: Callable[[FaultPair], None], rtl: RtlDevice, report: Report) -> None:
    """Compare one of them, on devices as they are after power-on."""
    pair = FaultPair(rtl, report)
    pair.prepare()
    phase(pair)


def main() -> int:
    """Compare all of it; the status of the command."""
    report = Report()
    rtl = RtlDevice()
    for phase in PHASES:
        before = report.compared
        run_phase(phase, rtl, report)
        print(f"{phase.__name__}: {report.compared - before} comparisons, {rtl.clock()} cycles")
    print(f"outcomes {dict(report.outcomes)}")
    for text in report.differences[:30]:
        print(text)
    print(f"{len(report.differences)} differences")
    return 1 if report.differences else 0


if __name__ == "__main__":
    sys.exit(main())
