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
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from strawberry_commands import (
    BUFFER,
    SIZE,
    Registers,
    draw_job,
    draw_transfer,
    is_aligned,
    model_cycles,
    operand_bytes,
    size_class,
    transfer_cycles,
)
from systolic_device import REGISTERS, STATUS, Device
from verilated_strawberry import CONFIG, RtlDevice, clock_of

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
        self.measures = True
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
        self.program({
            "DMA_BUS_ADDRESS": self.bus, "DMA_SCRATCHPAD_START": offset, "DMA_DIRECTION": 0,
            "DMA_ROW_BYTES": data.nbytes, "DMA_ROWS": 1, "DMA_PLANES": 1,
        })  # fmt: skip
        self.run("DMA_START", "a load")

    def run(self, command: str, what: str, size: str = "") -> None:
        """START, wait, and compare everything."""
        took = []
        self.control("CLEAR", "RESET_COUNTERS")
        for device in self.devices:
            device.control(command)
            begin = clock_of(device)
            status = device.wait(3_000_000)
            took.append((clock_of(device) - begin, status))
        self.report.expect(f"{what}: wait", took[0][1], took[1][1])
        self.report.expect(f"{what}: failure of the RTL", "", self.rtl.failure())
        outcome = self.compare_state(what)
        self.compare_counters(what, jobs=int(outcome == "OK" and command == "ARRAY_START"))
        if size and outcome == "OK" and self.measures:
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
        model["COMPUTE_CYCLES"] -= CONFIG.array_setup_cycles * jobs  # idle ones on the RTL
        self.report.expect(f"{what}: counters", model, rtl)

    def compare_scratchpads(self, what: str) -> None:
        """Read the RTL's scratchpad and compare all of it."""
        for buffer in self.buffers:
            buffer[:] = 0
        self.program({
            "DMA_BUS_ADDRESS": self.bus, "DMA_SCRATCHPAD_START": 0, "DMA_DIRECTION": 1,
            "DMA_ROW_BYTES": SIZE, "DMA_ROWS": 1, "DMA_PLANES": 1,
        })  # fmt: skip
        self.run("DMA_START", f"{what}: reading the scratchpad")
        different = np.flatnonzero(self.buffers[0] != self.buffers[1])
        self.report.expect(f"{what}: scratchpad from {different[:4]}", 0, different.size)

    def compare_registers(self, what: str) -> None:
        """Compare the registers that keep what is written."""
        model, rtl = (self.registers(device) for device in self.devices)
        self.report.expect(f"{what}: registers", model, rtl)


# ---- Programs ----


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
    if random.random() < 0.3:  # many products are half way between two integers
        multipliers = seed.choice([4, 5, 6, 7], count).astype(np.int32) << 28
        low, high = -8, -1
        if random.random() < 0.5:  # and results are not at their limits
            bias = seed.integers(-100, 100, outputs, dtype=np.int32)
            low, high = -6, 0
            weights = operand_bytes(registers)["WEIGHTS"]
            few = (seed.random(weights) < 2 * outputs / weights).astype(np.int8)
            pair.load(few, registers["WEIGHTS_START"])
    multipliers[seed.random(count) < 0.05] = 0
    shifts = seed.integers(low, high, count, dtype=np.int8)
    pair.load(bias, registers["BIAS_START"])
    pair.load(multipliers, registers["MULTIPLIERS_START"])
    pair.load(shifts, registers["SHIFTS_START"])


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
            kind = "store" if transfer["DMA_DIRECTION"] else "load"
            kind += " of whole words" if is_aligned(transfer) else " at any address"
            pair.run(
                "DMA_START", f"{what}: {transfer}", size_class(kind, transfer_cycles(transfer))
            )
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
        # Now and then the memory bus pauses; then cycles are those of chance.
        pauses = number % 4 == 0
        rtl.randomize(number, number if pauses else 0)
        pair = Pair(rtl, report)
        pair.measures = not pauses
        run_program(pair, number)
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
