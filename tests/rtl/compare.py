# SPDX-License-Identifier: Apache-2.0
"""Random programs of register accesses on Strawberry's RTL and on the C model: what differs.

    python tests/rtl/compare.py [programs] [seed]

Each program copies data into the scratchpad, runs jobs and transfers, valid ones and wrong ones,
and compares registers, memory and cycles after each. Ends with status 1 if anything differs that
README.md of the RTL does not name.
"""

from __future__ import annotations

import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from verilated_strawberry import CONFIG, RtlDevice, clock_of

from systolic_device import BITS, OFFSETS, REGISTERS, STATUS, Device

SIZE = CONFIG.scratchpad_bytes
BUFFER = 1 << 16
KEPT = [
    name for name, item in REGISTERS.items()
    if item["access"] == "rw" and not name.startswith("INTERRUPT")
]  # fmt: skip
STATE = [
    "STATUS", "ERROR", "ERROR_ADDRESS", "INTERRUPT_PENDING", "DMA_BYTES_LEFT", "ARRAY_CYCLES_LEFT",
    "INTERRUPT_ENABLE",
]  # fmt: skip
COUNTERS = ["COMPUTE_CYCLES", "MACS", "USEFUL_MACS", "BYTES_IN", "BYTES_OUT"]
ERRORS = {number: name for name, number in STATUS.items()}
FLUSH = 6
"""Drain cycles of a job beyond the model's: the results of its last rows are on their way."""

Registers = dict[str, int]


@dataclass
class Report:
    """What was compared, and what was different."""

    differences: list[str] = field(default_factory=list)
    compared: int = 0
    outcomes: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    cycles: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))

    def expect(self, what: str, expected: object, found: object) -> None:
        """Compare what the model says with what the RTL says."""
        self.compared += 1
        if expected != found:
            self.differences.append(f"{what}: model {expected}, RTL {found}")


class Pair:
    """Both devices, which are given the same accesses."""

    def __init__(self, rtl: RtlDevice, report: Report) -> None:
        self.report = report
        self.rtl = rtl
        self.model = Device(CONFIG)
        self.devices: tuple[Device, Device] = (self.model, rtl)
        rtl.reset()
        self.buffers = [np.zeros(BUFFER, np.uint8) for _ in self.devices]
        self.bus = 0
        for device, buffer in zip(self.devices, self.buffers, strict=True):
            self.bus = device.map(buffer, 3)

    def program(self, registers: Registers) -> None:
        """Write registers."""
        for device in self.devices:
            device.program(**registers)

    def control(self, *commands: str) -> None:
        """Write CONTROL."""
        for device in self.devices:
            device.control(*commands)

    def fill(self, data: np.ndarray) -> None:
        """Put data at the beginning of the buffers."""
        for buffer in self.buffers:
            buffer[: data.nbytes] = data.view(np.uint8)

    def load(self, data: np.ndarray, offset: int) -> None:
        """Copy data into both scratchpads."""
        self.fill(data)
        self.program(dict(
            DMA_BUS_ADDRESS=self.bus, DMA_SCRATCHPAD_START=offset, DMA_DIRECTION=0,
            DMA_ROW_BYTES=data.nbytes, DMA_ROWS=1, DMA_PLANES=1,
        ))  # fmt: skip
        self.run("DMA_START", "a load")

    def run(self, command: str, what: str, size: str = "") -> None:
        """START, wait, and compare everything."""
        took = []
        self.control("CLEAR", "RESET_COUNTERS")
        for device in self.devices:
            before = self.registers(device) if not took else None
            device.control(command)
            begin = clock_of(device)
            status = device.wait(3_000_000)
            took.append((clock_of(device) - begin, status))
            del before
        self.report.expect(f"{what}: wait", took[0][1], took[1][1])
        self.report.expect(f"{what}: failure of the RTL", "", self.rtl.failure())
        outcome = self.compare_state(what)
        self.compare_counters(what, jobs=int(outcome == "OK" and command == "ARRAY_START"))
        if size and outcome == "OK":
            self.report.cycles[size].append((took[0][0], took[1][0]))

    def registers(self, device: Device) -> Registers:
        """Read the registers that keep what is written."""
        return {name: device.read(name) for name in KEPT}

    def compare_state(self, what: str, leave_out: Iterable[str] = ()) -> str:
        """Compare registers that show a state; what ERROR of the model says."""
        values = [{name: device.read(name) for name in STATE} for device in self.devices]
        for name in STATE:
            if name not in leave_out:
                self.report.expect(f"{what}: {name}", values[0][name], values[1][name])
        outcome = ERRORS[values[0]["ERROR"]]
        self.report.outcomes[outcome] += 1
        return outcome

    def compare_counters(self, what: str, jobs: int) -> None:
        """Compare counters, with what jobs are known to take more."""
        model, rtl = ({name: device.counter(name) for name in [*COUNTERS, "DRAIN_CYCLES"]}
                      for device in self.devices)  # fmt: skip
        model["DRAIN_CYCLES"] += FLUSH * jobs
        self.report.expect(f"{what}: counters", model, rtl)

    def compare_scratchpads(self, what: str) -> None:
        """Read the RTL's scratchpad and compare all of it."""
        for buffer in self.buffers:
            buffer[:] = 0
        self.program(dict(
            DMA_BUS_ADDRESS=self.bus, DMA_SCRATCHPAD_START=0, DMA_DIRECTION=1,
            DMA_ROW_BYTES=SIZE, DMA_ROWS=1, DMA_PLANES=1,
        ))  # fmt: skip
        self.run("DMA_START", f"{what}: reading the scratchpad")
        different = np.flatnonzero(self.buffers[0] != self.buffers[1])
        self.report.expect(f"{what}: scratchpad from {different[:4]}", 0, different.size)

    def compare_registers(self, what: str) -> None:
        """Compare the registers that keep what is written."""
        model, rtl = (self.registers(device) for device in self.devices)
        self.report.expect(f"{what}: registers", model, rtl)


# ---- Jobs and transfers ----


def draw_sizes(random: random.Random, is_depthwise: bool) -> Registers:
    """Sizes of a window and of what it slides over."""
    kernel = [random.choice([1, 1, 2, 3, 3, 4]) for _ in "yx"]
    height, width = random.randint(1, 9), random.randint(1, 9)
    inputs = random.choice([1, 2, 3, 4, 7, 8, 9, 16, 24])
    outputs = inputs * random.choice([1, 1, 1, 2, 3]) if is_depthwise else random.randint(1, 20)
    sizes = dict(
        INPUT_HEIGHT=height, INPUT_WIDTH=width, INPUT_CHANNELS=inputs,
        OUTPUT_HEIGHT=random.randint(1, 7), OUTPUT_WIDTH=random.randint(1, 7),
        OUTPUT_CHANNELS=outputs, KERNEL_HEIGHT=kernel[0], KERNEL_WIDTH=kernel[1],
        STRIDE_HEIGHT=random.choice([1, 1, 2, 3]), STRIDE_WIDTH=random.choice([1, 1, 2, 3]),
        DILATION_HEIGHT=random.choice([1, 1, 2]), DILATION_WIDTH=random.choice([1, 1, 3]),
        PAD_TOP=random.choice([0, 0, 1, 2]), PAD_LEFT=random.choice([0, 0, 1, 3]),
    )  # fmt: skip
    if random.random() < 0.15:
        sizes.update(OUTPUT_HEIGHT=1, OUTPUT_WIDTH=1, KERNEL_HEIGHT=1, KERNEL_WIDTH=1)
    return sizes


def draw_strides(random: random.Random, sizes: Registers, name: str, size: str) -> Registers:
    """Strides of NHWC or NCHW, now and then with gaps."""
    height, width, channels = (sizes[f"{size}_{axis}"] for axis in ("HEIGHT", "WIDTH", "CHANNELS"))
    order = random.choice(["yxc", "yxc", "cyx", "xcy"])
    counts = dict(zip("yxc", (height, width, channels), strict=True))
    strides, stride = {}, 1
    for axis in reversed(order):
        strides[axis] = stride
        stride *= counts[axis]
        stride += random.choice([0, 0, 0, 1, 5])
    return {f"{name}_ROW_STRIDE": strides["y"], f"{name}_COLUMN_STRIDE": strides["x"],
            f"{name}_CHANNEL_STRIDE": strides["c"]}  # fmt: skip


def extent(registers: Registers, name: str, size: str) -> int:
    """Bytes from the first to the last one of a tensor."""
    return 1 + sum(
        (registers[f"{size}_{axis}"] - 1) * registers[f"{name}_{stride}_STRIDE"]
        for axis, stride in (("HEIGHT", "ROW"), ("WIDTH", "COLUMN"), ("CHANNELS", "CHANNEL"))
    )


def operand_bytes(registers: Registers) -> dict[str, int]:
    """Bytes of each operand and of the result."""
    outputs, window = registers["OUTPUT_CHANNELS"], registers["KERNEL_HEIGHT"]
    window *= registers["KERNEL_WIDTH"]
    weights = window * outputs
    if registers["OPERATION"] == 0:
        weights = -(-outputs // 8) * 8 * window * registers["INPUT_CHANNELS"]
    return {
        "IFMAP": extent(registers, "IFMAP", "INPUT"), "WEIGHTS": weights, "BIAS": 4 * outputs,
        "MULTIPLIERS": 4 * registers["SCALE_COUNT"], "SHIFTS": registers["SCALE_COUNT"],
        "OFMAP": extent(registers, "OFMAP", "OUTPUT"),
    }  # fmt: skip


def draw_job(random: random.Random) -> Registers:
    """A valid job, its operands one after the other anywhere in the scratchpad."""
    operation = random.choice([0, 0, 1])
    registers = dict(OPERATION=operation, DATAFLOW=0, ADD=0, ACCUMULATE=0)
    registers |= draw_sizes(random, operation == 1)
    registers |= draw_strides(random, registers, "IFMAP", "INPUT")
    registers |= draw_strides(random, registers, "OFMAP", "OUTPUT")
    clips = sorted(random.choice([-128, 127, random.randint(-128, 127)]) for _ in "ab")
    registers |= dict(
        INPUT_ZERO_POINT=random.randint(-128, 127), OUTPUT_ZERO_POINT=random.randint(-128, 127),
        CLIP_LOWEST=clips[0], CLIP_HIGHEST=clips[1], ROUNDING=random.randint(0, 1),
        SCALE_COUNT=random.choice([1, registers["OUTPUT_CHANNELS"]]),
    )  # fmt: skip
    if random.random() < 0.5:
        registers |= dict(CLIP_LOWEST=-128, CLIP_HIGHEST=127)
    sizes = operand_bytes(registers)
    names = list(sizes)
    random.shuffle(names)
    used = sum(sizes.values()) + 4 * len(sizes)
    gap = (SIZE - used) // len(sizes)
    place = 0
    for name in names:
        place += random.choice([0, 1, random.randint(0, gap)])
        if name in ("BIAS", "MULTIPLIERS"):
            place = -(-place // 4) * 4
        registers[f"{name}_START"] = place
        place += sizes[name]
    if random.random() < 0.1:
        registers[f"{names[-1]}_START"] = SIZE - -(-sizes[names[-1]] // 4) * 4
    return registers


def draw_parameters(random: random.Random, registers: Registers, pair: Pair) -> None:
    """Load bias, multipliers and shifts that make most results differ."""
    seed = np.random.default_rng(random.getrandbits(32))
    count, outputs = registers["SCALE_COUNT"], registers["OUTPUT_CHANNELS"]
    taps = operand_bytes(registers)["WEIGHTS"] // outputs
    bias = seed.integers(-20000, 20000, outputs, dtype=np.int32)
    low, high = -10 - taps.bit_length() // 2, -6
    if random.random() < 0.1:
        bias = seed.integers(-(2**31), 2**31, outputs, dtype=np.int32)
        low, high = -31, 31
    multipliers = seed.integers(1 << 30, 1 << 31, count).astype(np.int32)
    multipliers[seed.random(count) < 0.05] = 0
    shifts = seed.integers(low, high, count, dtype=np.int8)
    pair.load(bias, registers["BIAS_START"])
    pair.load(multipliers, registers["MULTIPLIERS_START"])
    pair.load(shifts, registers["SHIFTS_START"])


def model_cycles(registers: Registers) -> int:
    """Cycles of a job."""
    channels = 1 if registers["OPERATION"] else registers["INPUT_CHANNELS"]
    taps = registers["KERNEL_HEIGHT"] * registers["KERNEL_WIDTH"] * channels
    positions = registers["OUTPUT_HEIGHT"] * registers["OUTPUT_WIDTH"]
    return -(-positions // 8) * -(-registers["OUTPUT_CHANNELS"] // 8) * (taps + 22)


def size_class(kind: str, cycles: int) -> str:
    """A name for what takes about as long."""
    for most in (100, 300, 1000, 3000, 10000):
        if cycles < most:
            return f"{kind} below {most:5}"
    return f"{kind} of    {10000:5} or more"


def draw_transfer(random: random.Random, bus: int) -> Registers:
    """A valid transfer; rows of a plane do not overlap where it matters."""
    direction = random.randint(0, 1)
    row = random.choice([random.randint(1, 20), random.randint(1, 600), 32, 256])
    rows, planes = random.choice([1, 1, 2, 5]), random.choice([1, 1, 2, 3])
    strides = {}
    for side in ("BUS", "SCRATCHPAD"):
        row_stride = row + random.choice([0, 0, 1, 3, 8])
        plane_stride = row_stride * rows + random.choice([0, 0, 2, 16])
        if random.random() < 0.1:
            row_stride, plane_stride = plane_stride, row_stride + plane_stride * rows
        strides |= {f"DMA_{side}_ROW_STRIDE": row_stride, f"DMA_{side}_PLANE_STRIDE": plane_stride}

    def reach(side: str) -> int:
        return ((rows - 1) * strides[f"DMA_{side}_ROW_STRIDE"]
                + (planes - 1) * strides[f"DMA_{side}_PLANE_STRIDE"] + row)  # fmt: skip

    start = random.randint(0, SIZE - reach("SCRATCHPAD"))
    at = random.choice([0, 8, random.randint(0, BUFFER - reach("BUS"))])
    if random.random() < 0.2:
        start, at = SIZE - reach("SCRATCHPAD"), BUFFER - reach("BUS")
    return dict(
        DMA_BUS_ADDRESS=bus + at, DMA_SCRATCHPAD_START=start, DMA_DIRECTION=direction,
        DMA_ROW_BYTES=row, DMA_ROWS=rows, DMA_PLANES=planes, **strides,
    )  # fmt: skip


def run_program(pair: Pair, seed: int) -> None:
    """A program: random bytes, then jobs and transfers."""
    source = random.Random(seed)
    pair.load(np.random.default_rng(seed).integers(0, 256, SIZE, dtype=np.uint8), 0)
    for number in range(source.randint(1, 4)):
        what = f"program {seed} step {number}"
        if source.random() < 0.6:
            job = draw_job(source)
            draw_parameters(source, job, pair)
            pair.program(job)
            pair.run("ARRAY_START", f"{what}: {job}", size_class("job", model_cycles(job)))
        else:
            transfer = draw_transfer(source, pair.bus)
            pair.fill(np.random.default_rng(seed).integers(0, 256, BUFFER, dtype=np.uint8))
            pair.program(transfer)
            row = transfer["DMA_ROW_BYTES"]
            kind = "store" if transfer["DMA_DIRECTION"] else "load"
            pair.run("DMA_START", f"{what}: {transfer}",
                     f"{kind} of rows of {'8 to 63' if 8 <= row < 64 else '1 to 7' if row < 8 else '64 or more'} bytes")  # fmt: skip
            different = np.flatnonzero(pair.buffers[0] != pair.buffers[1])
            pair.report.expect(f"{what}: {transfer}: buffer", 0, different.size)
    pair.compare_scratchpads(f"program {seed}")
    pair.compare_registers(f"program {seed}")


def main(programs: int = 200, seed: int = 1) -> int:
    """Run programs; the status of the command."""
    report = Report()
    rtl = RtlDevice()
    begin = time.monotonic()
    cycles = 0
    for number in range(seed, seed + programs):
        run_program(Pair(rtl, report), number)
        cycles += rtl.clock()
        if len(report.differences) > 20:
            break
    seconds = time.monotonic() - begin
    print(f"{programs} programs, {report.compared} comparisons, {cycles} cycles of the RTL in "
          f"{seconds:.1f} s; outcomes {dict(report.outcomes)}")  # fmt: skip
    for name, pairs in sorted(report.cycles.items()):
        more = [rtl_took - model for model, rtl_took in pairs]
        share = sum(more) / sum(model for model, _ in pairs)
        print(f"  {name:32} {len(pairs):5} times, {min(more):3} to {max(more):3} cycles more, "
              f"{share:.2%} of all")  # fmt: skip
    for text in report.differences[:20]:
        print(text)
    return 1 if report.differences else 0


if __name__ == "__main__":
    sys.exit(main(*(int(word) for word in sys.argv[1:3])))
