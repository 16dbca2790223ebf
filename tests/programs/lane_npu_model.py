# SPDX-License-Identifier: Apache-2.0
"""A simulator of `examples/lane_npu` as a program that only keeps time, one command at a time.

Results stay what they are in memory: cycles depend on sizes only.
"""

from simulator_program import Simulator, serve

WORDS = {1: 9, 2: 9, 3: 8, 4: 12, 5: 13}
"""Words of an instruction, by its opcode in `isa/lane_npu_isa.h`."""


def parts(size, part):
    return -(-size // part)


class LaneNpu(Simulator):
    def reset(self):
        self.clock = self.done_at = 0
        self.words = []

    def read(self, offset):
        self.clock += 1
        return {0: 0x4C4E5055, 4: 32 | 16 << 16}.get(offset, 0)

    def write(self, offset, value):
        self.clock += 1
        if offset != 16:
            return
        self.words.append(value)
        opcode = self.words[0] & 15
        if len(self.words) == WORDS[opcode]:
            if opcode in (1, 2):
                self.copy(*self.words[3:6], channel=self.words[0] >> 8)
            elif opcode == 5:
                self.job(self.words[9], self.words[10], self.words[11])
            self.words = []

    def copy(self, planes, rows, row_bytes, channel):
        self.run(f"dma{channel}", planes * rows * parts(row_bytes, 8), 21)

    def job(self, inputs, positions, outputs):
        m = (positions & 0xFFFF) * (positions >> 16)
        self.run("array", 9 + m * parts(outputs, 32) * parts(inputs, 16), 5)

    def run(self, engine, busy, tail):
        begin = max(self.clock, self.done_at)
        self.done_at = begin + busy + tail
        self.event(engine, "command", begin, self.done_at, begin + busy)

    def wait(self, cycles):
        self.clock = max(self.clock, self.done_at)
        return True

    def counters(self):
        return {"clock": self.clock}


serve(LaneNpu())
