# SPDX-License-Identifier: Apache-2.0
"""The simulator: `python3 model.py [FAULT [JOB]]` does something wrong in a job, the first is 0."""

import array
import os
import sys
import time

from simulator_program import Simulator, serve

FAULT = sys.argv[1] if len(sys.argv) > 1 else ""
JOB = int(sys.argv[2]) if len(sys.argv) > 2 else 0


class Relu(Simulator):
    """Registers: 0 status, 4 source, 8 target, 12 bytes, 16 start; four values in a cycle."""

    jobs = 0

    def reset(self):
        self.registers = {}
        self.clock = self.done_at = self.compute = self.moved = 0

    def read(self, offset):
        return self.registers.get(offset, 0)

    def write(self, offset, value):
        self.clock += 1
        self.registers[offset] = value
        if offset == 16:
            self.start(self.registers[12])

    def start(self, count):
        if self.jobs == JOB and FAULT:
            self.err()
        self.jobs += 1
        values = array.array("f", self.load(self.registers[4], count))
        self.store(self.registers[8], array.array("f", [max(v, 0.0) for v in values]).tobytes())
        cycles = -(-len(values) // 4)
        self.done_at = self.clock + cycles
        self.event("relu", "values", self.clock, self.done_at)
        self.compute += cycles
        self.moved += count

    def err(self):
        if FAULT == "exit":
            sys.exit("the weights are missing")
        if FAULT == "raise":
            raise ValueError("no such mode")
        if FAULT == "sleep":
            time.sleep(1000)
        if FAULT == "print":
            os.write(self.connection.sink.fileno(), b"a job begins\n")
        if FAULT == "fail":
            self.fail("the machine is on fire")
        if FAULT == "outside":
            self.load(self.registers[4], 2**20)

    def wait(self, cycles):
        if self.done_at > self.clock + cycles:
            self.clock += cycles
            return False
        self.clock = max(self.clock, self.done_at)
        self.registers[0] = 1
        return True

    def counters(self):
        return {"clock": self.clock, "compute_cycles": self.compute, "bytes_read": self.moved}


serve(Relu())
