# SPDX-License-Identifier: Apache-2.0
"""The C++ harness of Verilated designs: small designs of `tests/rtl` behind `umakit/device.h`.

What a design copied is compared with Python's bytes, the beats of bursts with the formulas of the
AXI specification (A3.4.1), and times with closed forms.
"""

from __future__ import annotations

import itertools
import random
import re
import shutil
import struct
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from rtl_builds import FOLDER, HEADERS, Builder, Design, Program, need_verilator, ports_of, run

FIRST, SECOND = 0x10000000, 0x20000000
"""Bus addresses of the first two buffers that are mapped."""

TO_DEVICE, FROM_DEVICE, BOTH = 1, 2, 3
BUS_ERROR_FAULT, LOST_INTERRUPT_FAULT = 1, 3
OK, TIMEOUT, DEVICE_ERROR, UNSUPPORTED = 0, 7, 11, 16
OKAY, SLVERR, DECERR = 0, 2, 3
NOTHING = 2**32 - 1
"""What a register reads as that does not answer well."""

PAUSES = "randomize 0 20240807"
"""Switches on pauses of the memory bus, from the next reset on."""


OPTIONAL = {"awsize", "awburst", "arsize", "arburst", "bresp", "rresp"}


def copier(
    bits: int,
    latency: int,
    *,
    is_traced: bool = False,
    bad_reset: int = 0,
    left_out: Collection[str] = (),
) -> Design:
    source = (FOLDER / "copier.sv").read_text(encoding="utf-8")
    ports = ports_of(source, "m_axi_")
    return Design(
        "copier",
        {
            "clock": "clk", "reset": "rst_n", "reset_level": 0, "reset_cycles": 3,
            "interrupt": "irq", "interrupt_level": 1,
            "widths": {"s_axil_awaddr": 8, "s_axil_araddr": 8},
            "ties": {ports[role]: 0 for role in ("bresp", "rresp") if role in left_out},
            "registers": {
                "bus": "axi4-lite", "ports": ports_of(source, "s_axil_"), "data_bits": 32,
            },
            "memory": {
                "bus": "axi4", "data_bits": bits, "latency": latency, "alignment": 1,
                "ports": {role: ports[role] for role in ports if role not in left_out},
            },
        },
        parameters={"DATA": bits, "BAD_RESET": bad_reset},
        is_traced=is_traced,
    )  # fmt: skip


def plain_memory(bits: int, latency: int, errors: bool) -> dict[str, object]:
    roles = "read_valid read_ready read_address read_data read_data_valid write_valid write_ready"
    roles += " write_address write_data write_strobe" + " read_error write_error" * errors
    return {
        "bus": "plain", "ports": {role: role for role in roles.split()}, "data_bits": bits,
        "latency": latency, "alignment": 4,
    }  # fmt: skip


COPIER = copier(64, 16)
WIDE = copier(128, 5, left_out=OPTIONAL)
NARROW = copier(32, 0)
APB = Design(
    "apb_copier",
    {
        "clock": "pclk", "reset": "preset", "reset_level": 1, "reset_cycles": 1,
        "interrupt": "irq_n", "interrupt_level": 0, "ties": {"delete": 1, "tie__low": 5},
        "widths": {"paddr": 7},
        "registers": {
            "bus": "apb", "data_bits": 32,
            "ports": {
                name: name
                for name in "paddr psel penable pwrite pwdata prdata pready pslverr".split()
            },
        },
        "memory": plain_memory(32, 7, errors=True),
    },
    sources=["byte_copier.sv"],
)  # fmt: skip
POLLED = Design(
    "polled_copier",
    {
        "clock": "clock", "reset": None, "reset_level": 0, "reset_cycles": 0, "interrupt": None,
        "interrupt_level": 1,
        "registers": {
            "bus": "plain", "data_bits": 32,
            "ports": {name: name for name in "valid ready write address wdata rdata".split()},
        },
        "memory": plain_memory(64, 3, errors=False),
    },
    sources=["byte_copier.sv"],
)  # fmt: skip
BURSTER = Design(
    "burster",
    {
        "clock": "aclk", "reset": "aresetn", "reset_level": 0, "reset_cycles": 2,
        "interrupt": None, "interrupt_level": 1,
        "registers": {
            "bus": "axi4-lite", "data_bits": 64,
            "ports": ports_of((FOLDER / "burster.sv").read_text(encoding="utf-8"), "s_"),
        },
        "memory": {
            "bus": "axi4", "data_bits": 64, "latency": 40, "alignment": 8,
            "ports": ports_of((FOLDER / "burster.sv").read_text(encoding="utf-8"), "m_"),
        },
    },
)  # fmt: skip
SLOW_BURSTER = Design("burster", BURSTER.context, parameters={"WAIT": 2})

DESIGNS = {
    "axi": COPIER, "axi 128 bits": WIDE, "axi 32 bits": NARROW, "apb": APB, "polled": POLLED,
}  # fmt: skip


@pytest.fixture(scope="session")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    need_verilator()
    return Builder(tmp_path_factory.mktemp("rtl"))


class Programs:
    """Programs of designs, built when they are first asked for."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._programs: dict[str, Program] = {}

    def __call__(self, design: Design) -> Program:
        key = repr(design)
        if key not in self._programs:
            self._programs[key] = self._builder.program(design)
        return self._programs[key]


@pytest.fixture(scope="session")
def programs(builder: Builder) -> Programs:
    return Programs(builder)


# ---- Copies ----


class Copy(NamedTuple):
    """Bytes from one offset of a buffer to one of another."""

    data: bytes
    source: int
    destination: int
    length: int
    room: int

    def script(self) -> list[str]:
        return [
            f"map {TO_DEVICE} {self.data.hex()}",
            f"map {FROM_DEVICE} {'ee' * self.room}",
            f"write 0 {FIRST + self.source}",
            f"write 4 {SECOND + self.destination}",
            f"write 8 {self.length}",
            "counters",
            "write 12 1",
            *["wait 100000"] * WAITS,
            "counters",
            "read 16",
            "write 16 0",
            f"unmap {FIRST}",
            f"unmap {SECOND}",
            "failure",
        ]

    @property
    def expected(self) -> bytes:
        copied = self.data[self.source : self.source + self.length]
        before = b"\xee" * self.room
        return before[: self.destination] + copied + before[self.destination + self.length :]


WAITS = 40
"""Without an interrupt a wait returns early; with one, the others take no time."""


def copies(seed: int, count: int) -> Iterator[Copy]:
    draw = random.Random(seed)
    for i in range(count):
        length = draw.choice([1, 2, 7, 8, 9, 63, 64, 65, draw.randrange(1, 700)])
        source, destination = draw.randrange(40), draw.randrange(40)
        if i % 4 == 3:  # across 4 KiB
            source += 4090 - draw.randrange(length)
        # In half of them the last beat sticks out of the buffer.
        more = draw.choice([0, 0, draw.randrange(30)])
        data = draw.randbytes(source + length + more)
        yield Copy(data, source, destination, length, destination + length + more)


@pytest.mark.parametrize("begin", ["", PAUSES, "randomize 77 78"])
@pytest.mark.parametrize("name", DESIGNS)
def test_copies_byte_for_byte(programs: Programs, name: str, begin: str) -> None:
    program = programs(DESIGNS[name])
    drawn = list(copies(len(name), 24))
    script = [begin, "reset"] if begin else []
    if name == "polled" and begin not in ("", PAUSES):
        pytest.skip("without a reset it needs the values that its registers begin with")
    start = len(script)
    for copy in drawn:
        script += copy.script()
    answers = program(*script)
    for copy, at in zip(drawn, itertools.count(start, len(drawn[0].script())), strict=False):
        its = answers[at : at + len(copy.script())]
        assert its[-1] == ""
        assert its[-2] == copy.expected.hex(), copy
        assert its[-3] == copy.data.hex()
        assert its[-5] == ("2" if name.startswith("axi") else "0")  # done, or not failed
        assert its[7] == str(OK)


def beats(size: int, address: int, length: int) -> int:
    """Return the beats of `size` bytes that bytes lie in."""
    return (address + length - 1) // size - address // size + 1


def chunks(copy: Copy) -> list[tuple[int, int, int]]:
    """Return addresses and bytes of the bursts of copier.sv."""
    source, destination, left, result = copy.source, copy.destination, copy.length, []
    while left:
        length = min(64, left, 4096 - source % 4096, 4096 - destination % 4096)
        result.append((source, destination, length))
        source, destination, left = source + length, destination + length, left - length
    return result


@pytest.mark.parametrize("name", ["axi", "axi 128 bits", "axi 32 bits"])
def test_latency_is_exact(programs: Programs, name: str) -> None:
    design = DESIGNS[name]

    def cycles(address: int, length: int, writes: bool) -> int:
        # The data of a write follow the request, and the response the data.
        latency = max(design.latency, 2 if writes else 1)
        return latency + beats(design.data_bytes, address, length)

    for copy in copies(7, 20):
        answers = programs(design)(*copy.script())
        before, after = (int(answers[i].split()[0]) for i in (5, 7 + WAITS))
        expected = sum(
            cycles(source, length, False) + cycles(destination, length, True)
            for source, destination, length in chunks(copy)
        )
        # From the cycle that takes START to the one after the last response.
        assert after - before == expected + 1, copy


def test_latency_of_plain_memory_is_exact(programs: Programs) -> None:
    for copy in copies(8, 20):
        answers = programs(APB)(*copy.script())
        before, after = (int(answers[i].split()[0]) for i in (5, 7 + WAITS))
        expected = 0
        for at in range(0, copy.length, 32):
            length = min(32, copy.length - at)
            expected += APB.latency + beats(4, copy.source + at, length)
            expected += beats(4, copy.destination + at, length)
        # Two cycles before START is taken, and from then one each for LAST, done and irq_n.
        assert after - before == 2 + expected + 3, copy


def test_counters_and_events(programs: Programs) -> None:
    copy = Copy(bytes(range(200)), 3, 5, 70, 90)
    script = copy.script()
    script.insert(6, "record")
    script.insert(-1, "events")
    answers = programs(COPIER)(*script)
    # Reads are whole beats, from the address on: 64 bytes at 3 mod 8, then 6 at the same.
    reads = (9 * 8 - 3) + (2 * 8 - 3)
    assert answers[8 + WAITS].split()[1:] == [str(reads), "70"]
    assert answers[-2] == (
        "memory read, 69 bytes, 1 to 26;memory write, 64 bytes, 26 to 51;"
        "memory read, 13 bytes, 51 to 69;memory write, 6 bytes, 69 to 87;"
    )


def test_waits_end_at_the_limit_and_go_on(programs: Programs) -> None:
    copy = Copy(bytes(200), 0, 0, 64, 64)
    script = [*copy.script()[:7], "wait 10", "counters", "wait 1000", "counters", "wait 0"]
    answers = programs(COPIER)(*script)
    before = int(answers[5].split()[0])
    assert answers[7] == str(TIMEOUT)
    assert int(answers[8].split()[0]) == before + 2 + 10  # the write took 2
    assert answers[9] == str(OK)
    assert int(answers[10].split()[0]) == before + 2 * (16 + 8) + 1
    assert answers[11] == str(OK)


# ---- Registers ----


def test_error_responses_of_registers(programs: Programs) -> None:
    answers = programs(COPIER)("read 20", "write 20 0", "read 20", "read 24", "read 0", "failure")
    assert answers == [str(0xC0B1E508), "-", str(0xC0B1E508), str(NOTHING), "0", ""]
    answers = programs(APB)("write 4 77", "read 20", "write 20 5", "read 4", "failure")
    assert answers == ["-", str(NOTHING), "-", "77", ""]


def test_an_address_that_the_bus_does_not_have_is_cut_off(programs: Programs) -> None:
    assert programs(COPIER)("write 0x104 5", "read 4")[1] == "5"
    assert programs(APB)("write 0x84 5", "read 4")[1] == "5"


def test_registers_in_both_halves_of_64_bits(programs: Programs) -> None:
    script = [f"write {0x400 + 4 * i} {1000 + i}" for i in range(8)]
    script += [f"read {0x400 + 4 * i}" for i in range(8)]
    assert programs(BURSTER)(*script)[8:] == [str(1000 + i) for i in range(8)]


# ---- Errors of the bus, and faults ----


def failing_copy(program: Program, *, source: int, bytes_: int, more: tuple[str, ...] = (),
                 directions: tuple[int, int] = (TO_DEVICE, FROM_DEVICE), room: int = 64,
                 destination: int = 0, size: int = 64) -> list[str]:  # fmt: skip
    return program(
        f"map {directions[0]} {'11' * size}", f"map {directions[1]} {'ee' * room}", *more,
        f"write 0 {FIRST + source}", f"write 4 {SECOND + destination}", f"write 8 {bytes_}",
        "write 12 1", *["wait 10000"] * 8, "read 16", "failure", f"unmap {SECOND}",
    )  # fmt: skip


def test_errors_of_the_axi_bus(programs: Programs) -> None:
    program = programs(COPIER)

    def responses(**case: object) -> tuple[int, int]:
        status, failure, _ = failing_copy(program, **case)[-3:]  # type: ignore[arg-type]
        assert failure == ""
        return int(status) >> 4 & 3, int(status) >> 6 & 3

    # A beat may stick out of a buffer; one that lies outside is nowhere.
    assert responses(source=0, bytes_=64) == (OKAY, OKAY)
    assert responses(source=56, bytes_=8) == (OKAY, OKAY)
    assert responses(source=56, bytes_=9)[0] == DECERR
    assert responses(source=64, bytes_=8)[0] == DECERR
    assert responses(source=0, bytes_=64, room=61) == (OKAY, DECERR)
    assert responses(source=0, bytes_=61, room=61) == (OKAY, OKAY)
    assert responses(source=0, bytes_=8, directions=(FROM_DEVICE, FROM_DEVICE))[0] == DECERR
    assert responses(source=0, bytes_=8, directions=(TO_DEVICE, TO_DEVICE)) == (OKAY, DECERR)
    assert responses(source=0, bytes_=8, directions=(BOTH, BOTH)) == (OKAY, OKAY)
    # Faults at a byte that is asked for, and at those around it.
    for address, read in [(20, SLVERR), (27, SLVERR), (19, OKAY), (32, OKAY)]:
        fault = f"fault {BUS_ERROR_FAULT} 0 0 {FIRST + address} 1"
        assert responses(source=20, bytes_=12, more=(fault,))[0] == read, address
    # A beat that sticks out of the buffer, with a fault in it.
    for address, read in [(60, SLVERR), (55, OKAY)]:
        fault = f"fault {BUS_ERROR_FAULT} 0 0 {FIRST + address} 1"
        assert responses(source=56, bytes_=5, size=61, more=(fault,))[0] == read, address
    for address, written in [(19, SLVERR), (8, SLVERR), (20, OKAY), (7, OKAY)]:
        fault = f"fault {BUS_ERROR_FAULT} 0 0 {SECOND + address} 1"
        case = responses(source=0, bytes_=12, destination=8, more=(fault,))
        assert case == (OKAY, written), address


def test_faults_pass_and_end(programs: Programs) -> None:
    fault = f"fault {BUS_ERROR_FAULT} 1 1 {FIRST + 9} 1"
    script = [f"map {BOTH} {'11' * 64}", fault]
    for _ in range(3):
        script += [f"write 0 {FIRST}", f"write 4 {FIRST + 32}", "write 8 16", "write 12 1"]
        script += ["wait 1000", "read 16", "write 16 0"]
    answers = programs(COPIER)(*script)
    assert [int(answers[i]) >> 4 & 3 for i in (7, 14, 21)] == [OKAY, SLVERR, OKAY]
    script[1] = f"fault {BUS_ERROR_FAULT} 0 0 {FIRST + 9} 1"
    script.insert(9, "faultless")
    answers = programs(COPIER)(*script)
    assert [int(answers[i]) >> 4 & 3 for i in (7, 15, 22)] == [SLVERR, OKAY, OKAY]


def test_errors_of_plain_memory(programs: Programs) -> None:
    def has_failed(program: Program, **case: object) -> bool:
        status, failure, _ = failing_copy(program, **case)[-3:]  # type: ignore[arg-type]
        assert failure == ""
        assert int(status) in (0, 2)
        return status == "2"

    program = programs(APB)
    assert not has_failed(program, source=0, bytes_=64)
    assert has_failed(program, source=0, bytes_=65)
    assert has_failed(program, source=61, bytes_=4)
    assert not has_failed(program, source=60, bytes_=4)
    assert has_failed(program, source=0, bytes_=20, room=19)
    assert not has_failed(program, source=0, bytes_=19, room=19)
    fault = f"fault {BUS_ERROR_FAULT} 0 0 {FIRST + 9} 1"
    assert has_failed(program, source=9, bytes_=1, more=(fault,))
    assert not has_failed(program, source=12, bytes_=4, more=(fault,))
    fault = f"fault {BUS_ERROR_FAULT} 0 0 {FIRST + 61} 1"
    assert has_failed(program, source=60, bytes_=1, size=62, more=(fault,))
    assert not has_failed(program, source=60, bytes_=1, size=62)
    # Without signals for errors, what cannot be read is 0.
    answers = failing_copy(programs(POLLED), source=60, bytes_=8)
    assert answers[-3:-1] == ["0", ""]
    assert answers[-1][:16] == "1111111100000000"


def test_lost_interrupts_and_faults_that_cannot_be(programs: Programs) -> None:
    answers = programs(COPIER)(
        f"fault {LOST_INTERRUPT_FAULT} 0 1 0 0", "write 12 1", "wait 1000", "wait 1000",
        "fault 2 0 0 0 4",
    )  # fmt: skip
    assert answers == [str(OK), "-", str(TIMEOUT), str(OK), str(UNSUPPORTED)]


# ---- Reset ----


@pytest.mark.parametrize("name", DESIGNS)
def test_reset_is_as_power_on(programs: Programs, name: str) -> None:
    copy = Copy(bytes(range(200)), 3, 5, 170, 180)
    registers = ["read 0", "read 4", "read 8", "read 16"]
    program = programs(DESIGNS[name])
    # In the middle of bursts, of which some have not been answered.
    script = [*registers, "counters", *copy.script()[:7], "wait 30", "reset", "counters"]
    answers = program(*script, *registers, "counters", *copy.script())
    assert answers[len(script) - 2 : len(script)] == [str(OK), "0 0 0"]
    assert answers[len(script) : len(script) + 5] == answers[:5]
    assert answers[-14 - WAITS :] == program(*registers, "counters", *copy.script())[-14 - WAITS :]
    assert answers[-2] == copy.expected.hex()


def test_power_on_may_be_random(programs: Programs) -> None:
    """A register without a reset: burster's data are, and begin with 0 otherwise."""
    reads = [f"read {0x400 + 4 * i}" for i in range(20)]
    program = programs(BURSTER)
    assert program(*reads) == ["0"] * 20
    first, again, second = (
        program(f"randomize {seed} 0", "reset", *reads)[2:] for seed in (1, 1, 2)
    )
    assert first == again
    assert len({*first}) > 15
    assert first != second


# ---- What AXI forbids, and designs that end or do not answer ----

MISTAKES = {
    1: r"m_axi_wlast is 1 in beat 7 of a burst of 8 beats at 0x20000000",
    2: r"m_axi_wlast is 0 in beat 8 of a burst of 8 beats at 0x20000000",
    3: r"a burst of 8 beats of 8 bytes at 0x10000fe0 crosses an address that is a multiple of "
       r"4096 \(m_axi_arvalid\)",
    4: r"m_axi_arvalid fell before m_axi_arready was 1",
    5: r"m_axi_araddr changed while m_axi_arvalid waited for m_axi_arready",
    6: r"m_axi_wstrb has a strobe for byte 0 of the bus, which is not among the 3 bytes of the "
       r"beat at 0x20000005",
    7: r"m_axi_wdata, its strobes or m_axi_wlast changed while m_axi_wvalid waited for "
       r"m_axi_wready",
    8: r"m_axi_arsize asks for beats of 128 bytes on a bus of 8 bytes \(m_axi_arvalid\)",
    9: r"m_axi_arburst is 3, which is reserved \(m_axi_arvalid\)",
    13: r"m_axi_arlen asks for a WRAP burst of 9 beats, not of 2, 4, 8 or 16 \(m_axi_arvalid\)",
    16: r"m_axi_awvalid fell before m_axi_awready was 1",
    17: r"m_axi_wvalid fell before m_axi_wready was 1",
    11: r"the design ended its simulation by \$stop, \$fatal, \$error or an assertion: "
        r"copier\.sv:\d+: (Verilog \$stop|.*a planted end)",
    12: r"the design ended its simulation by \$finish in .*copier\.sv:\d+",
    20: r"the design ended its simulation by \$stop, \$fatal, \$error or an assertion: "
        r"copier\.sv:\d+: Assertion failed in .*: a planted assertion",
}  # fmt: skip


@pytest.mark.parametrize("mistake", [0, *MISTAKES])
def test_mistakes_end_the_run_with_a_sentence(programs: Programs, mistake: int) -> None:
    needs_pauses = mistake in (4, 5, 7, 16, 17)
    source = 0xFE0 if mistake == 3 else 1 if mistake == 13 else 0
    destination = 5 if mistake == 6 else 0
    answers = programs(COPIER)(
        *([PAUSES, "reset"] if needs_pauses else []),
        f"map {BOTH} {'11' * 5000}",
        f"map {BOTH} {'22' * 2000}",
        f"write 28 {mistake}",
        f"write 0 {FIRST + source}",
        f"write 4 {SECOND + destination}",
        # Where a mistake needs a pause, many bursts meet one.
        f"write 8 {1600 if needs_pauses else 64}",
        "write 12 1",
        "wait 100000",
        "read 20",
        "wait 10",
        "failure",
        "reset",
    )
    if mistake == 0:
        assert answers[-5:] == [str(OK), str(0xC0B1E508), str(OK), "", str(OK)]
        return
    sentence, cycle = answers[-2].rsplit(", in cycle ", 1)
    pattern = MISTAKES[mistake]
    assert re.fullmatch(pattern, sentence), sentence
    assert int(cycle) > 0
    # Registers are gone from then on, and a reset does not bring them back.
    assert answers[-5:-2] == [str(DEVICE_ERROR), str(NOTHING), str(DEVICE_ERROR)]
    assert answers[-1] == str(DEVICE_ERROR)


@pytest.mark.parametrize(
    ("mistake", "access", "sentence"),
    [
        (10, "read 4", "did not answer a read at offset 0x4 within 100000 cycles: "
                       "s_axil_arready stayed 0"),
        (19, "read 8", "did not answer a read at offset 0x8 within 100000 cycles: "
                       "s_axil_rvalid stayed 0"),
        (18, "write 32 1", "did not answer a write at offset 0x20 within 100000 cycles: "
                           "s_axil_awready stayed 0"),
    ],
)  # fmt: skip
def test_a_register_bus_that_does_not_answer(
    programs: Programs, mistake: int, access: str, sentence: str
) -> None:
    answers = programs(COPIER)(f"write 28 {mistake}", access, "failure")
    assert answers[2].startswith(f"the register bus {sentence}, in cycle 1000")


@pytest.mark.parametrize(
    ("mistake", "access", "sentence"),
    [
        (21, "write 0 5", "s_axil_bvalid went back to 0 before s_axil_bready was 1, in cycle "),
        (22, "read 0", "s_axil_rvalid went back to 0 before s_axil_rready was 1, in cycle "),
        (23, "write 0 5", "s_axil_bvalid is 1 before s_axil_wready took the access to a register"),
    ],
)
def test_pauses_of_the_register_bus_find_slaves_that_do_not_wait(
    programs: Programs, mistake: int, access: str, sentence: str
) -> None:
    """They work as long as the master gives address and data at once and takes each answer."""
    script = [f"write 28 {mistake}", *[access] * 60, "failure"]
    assert programs(COPIER)(*script)[-1] == ""
    assert programs(COPIER)(PAUSES, "reset", *script)[-1].startswith(sentence)


@pytest.mark.parametrize("design", DESIGNS.values(), ids=[*DESIGNS])
def test_pauses_make_accesses_late_and_nothing_else(programs: Programs, design: Design) -> None:
    values = random.Random(7).sample(range(2**31), 40)
    script = [word for value in values for word in (f"write 0 {value}", "read 0", "counters")]
    clocks = []
    for begin in ([], [PAUSES, "reset"]):
        answers = programs(design)(*begin, *script)[len(begin) :]
        assert answers[1::3] == [str(value) for value in values]
        at = [int(words.split()[0]) for words in answers[2::3]]
        clocks.append([later - before for before, later in itertools.pairwise(at)])
    quick, late = clocks
    assert len({*quick}) == 1 < len({*late}) and min(late) >= quick[0]
    # At most three cycles each before an access, an address and data, and rarely more for answers.
    assert quick[0] * 39 < sum(late) < (quick[0] + 20) * 39


def test_an_answer_to_nothing(programs: Programs) -> None:
    script = [f"map {BOTH} {'11' * 64}", "write 28 15", f"write 0 {FIRST}", f"write 4 {FIRST}"]
    script += ["write 8 8", "write 12 1", "wait 1000", "read 0", "failure"]
    answers = programs(COPIER)(*script)
    assert answers[-1].startswith("s_axil_bvalid is 1, but no access to a register waits for it")


def test_a_request_during_the_reset(programs: Programs) -> None:
    answers = programs(copier(64, 16, bad_reset=1))("read 20", "failure")
    words = "by reset and reset_level of [rtl] in accel.toml, in cycle 0"
    assert answers == [str(NOTHING), f"m_axi_arvalid is 1 during the reset, {words}"]


def test_a_design_that_stays_in_reset(programs: Programs) -> None:
    """The sentence is about the reset until an access to a register was answered."""
    begin = "the design does not leave its reset, by reset and reset_level of [rtl] in accel.toml"
    design = replace(COPIER, context={**COPIER.context, "reset_level": 1})
    answers = programs(design)("read 20", "failure")
    assert answers[1].startswith(f"{begin}: the register bus did not answer a read at offset 0x14")


# ---- Bursts of every kind ----

FIXED, INCR, WRAP = 0, 1, 2


class Burst(NamedTuple):
    """A burst of burster.sv."""

    address: int
    beats: int
    size: int
    kind: int
    id: int

    @property
    def shape(self) -> int:
        size = self.size.bit_length() - 1
        return self.beats - 1 | size << 8 | self.kind << 12 | self.id << 16

    def addresses(self) -> list[range]:
        """Return the bytes of each beat: address N and byte lanes of A3.4.1."""
        aligned = self.address // self.size * self.size
        result = [range(self.address, aligned + self.size)]
        wrap = self.size * self.beats
        boundary = self.address // wrap * wrap
        for n in range(1, self.beats):
            at = aligned + n * self.size
            if self.kind == FIXED:
                result.append(result[0])
                continue
            if self.kind == WRAP and at >= boundary + wrap:
                at -= wrap
            result.append(range(at, at + self.size))
        return result

    def script(self) -> list[str]:
        return [f"write 0 {self.address}", f"write 4 {self.shape}"]


def bursts(seed: int, count: int, low: int, high: int) -> Iterator[Burst]:
    draw = random.Random(seed)
    for number in range(count):
        kind = draw.choice([FIXED, INCR, INCR, WRAP])
        size = draw.choice([1, 2, 4, 8, 8])
        beats = draw.choice([2, 4, 8, 16] if kind == WRAP else [1, 2, 3, draw.randrange(1, 17)])
        address = draw.randrange(low, high)
        if kind == WRAP:
            address = address // size * size
        if kind == INCR and address % 4096 + beats * size > 4096:
            address -= address % 4096 - 2000
        yield Burst(address, beats, size, kind, number % 16)


def lanes(data: int, beat: range) -> list[int]:
    return [data >> 8 * (address % 8) & 0xFF for address in beat]


def read_beats(count: int) -> list[str]:
    return [f"read {0x400 + 4 * i}" for i in range(2 * count)] + [
        f"read {0x800 + 4 * i}" for i in range(count)
    ]


@pytest.mark.parametrize("design", [BURSTER, SLOW_BURSTER], ids=["quick", "slow"])
def test_reads_of_every_kind(programs: Programs, design: Design) -> None:
    memory = random.Random(1).randbytes(4700)  # ends in the middle of a beat
    for pauses in (False, True):
        drawn = list(bursts(3, 40, FIRST, FIRST + 4790))
        script = [PAUSES, "reset"] if pauses else []
        script += [f"map {TO_DEVICE} {memory.hex()}"]
        begins = []
        for burst in drawn:
            script += [*burst.script(), "write 20 0", "write 8 0", *["wait 1000"] * 12]
            begins.append(len(script))
            script += ["read 16", *read_beats(burst.beats)]
        answers = [int(word) if word.isdigit() else 0 for word in programs(design)(*script)]
        for burst, begin in zip(drawn, begins, strict=True):
            assert answers[begin] & 0xFFFF == burst.beats
            halves = answers[begin + 1 :]
            infos = halves[2 * burst.beats :]
            for i, beat in enumerate(burst.addresses()):
                data = halves[2 * i] | halves[2 * i + 1] << 32
                wanted = [memory[a] if (a := x - FIRST) < len(memory) else 0 for x in beat]
                mapped = any(address - FIRST < len(memory) for address in beat)
                response = infos[i] >> 8
                assert response & 3 == (OKAY if mapped else DECERR), (burst, i)
                assert response >> 2 & 1 == (i == burst.beats - 1)
                assert response >> 4 & 15 == burst.id
                if mapped:
                    assert lanes(data, beat) == wanted, (burst, i)


@pytest.mark.parametrize("design", [BURSTER, SLOW_BURSTER], ids=["quick", "slow"])
def test_writes_of_every_kind(programs: Programs, design: Design) -> None:
    draw = random.Random(5)
    for pauses in (False, True):
        drawn = list(bursts(4, 40, FIRST + 8, FIRST + 4300))
        expected = bytearray(b"\xee" * 4500)
        script = [PAUSES, "reset"] if pauses else []
        script += [f"map {FROM_DEVICE} {expected.hex()}"]
        for burst in drawn:
            script += [*burst.script(), "write 20 0"]
            for i, beat in enumerate(burst.addresses()):
                data, strobes = draw.getrandbits(64), 0
                for address in beat:
                    if draw.random() < 0.8:
                        strobes |= 1 << address % 8
                        expected[address - FIRST] = data >> 8 * (address % 8) & 0xFF
                script += [f"write {0x400 + 8 * i} {data & NOTHING}"]
                script += [
                    f"write {0x404 + 8 * i} {data >> 32}",
                    f"write {0x800 + 4 * i} {strobes}",
                ]
            script += ["write 12 0", *["wait 1000"] * 12, "read 16", "read 0x800"]
        answers = programs(design)(*script, f"unmap {FIRST}")
        assert answers[-1] == expected.hex()
        at = 1 + 2 * pauses
        for burst in drawn:
            at += 3 + 3 * burst.beats + 1 + 12
            assert int(answers[at]) >> 16 == 1, "the responses"
            assert int(answers[at + 1]) >> 16 & 0xFF == burst.id << 4 | OKAY
            at += 2


@pytest.mark.parametrize("register", [8, 12])
def test_outstanding_bursts_share_their_latency(programs: Programs, register: int) -> None:
    """Two of 16 beats, the second requested while the first one waits, and one of 5 alone."""
    script = [
        "record",
        f"map {BOTH} {'00' * 4000}",
        f"write 0 {FIRST}",
        f"write 4 {15 | 3 << 8 | 1 << 12}",
    ]
    script += [f"write {register} 0", f"write {register} 0", *["wait 1000"] * 12, "read 24"]
    script += [f"write 4 {4 | 3 << 8 | 1 << 12}", f"write {register} 0", *["wait 1000"] * 12]
    answers = programs(BURSTER)(*script, "read 24", "events", "failure")
    two, one = int(answers[18]), int(answers[-3])
    # An access to a register takes 2 cycles, so the second request comes 2 after the first.
    assert (two >> 16) - (two & 0xFFFF) == 40 + 2 * 16 - 1 - 2
    assert (one >> 16) - (one & 0xFFFF) == 40 + 5 - 1
    assert answers[-1] == ""
    # On the timeline the two are one.
    engine = "memory read" if register == 8 else "memory write"
    events = re.findall(r"([\w ]+), (\d+) bytes, (\d+) to (\d+);", answers[-2])
    sizes = ["256", "40"] if register == 8 else ["0", "0"]  # no strobe is set
    assert [event[:2] for event in events] == [(engine, size) for size in sizes]
    assert [int(end) - int(begin) for _, _, begin, end in events] == [40 + 32, 40 + 5]


@pytest.mark.parametrize("begin", ["randomize 0 0", PAUSES])
def test_data_wait_for_their_request(programs: Programs, begin: str) -> None:
    """The data of a burst come with its request, while one before waits for its response."""
    script = [begin, "reset", f"map {FROM_DEVICE} {'ee' * 200}", f"write 4 {7 | 3 << 8 | 1 << 12}"]
    for i in range(16):
        script += [f"write {0x400 + 8 * i} {i}", f"write {0x404 + 8 * i} 0"]
        script += [f"write {0x800 + 4 * i} 255"]
    script += [f"write 0 {FIRST + 128}", "write 12 0", *["read 0"] * 12]
    script += [f"write 0 {FIRST}", "write 12 0", *["wait 1000"] * 12]
    answers = programs(BURSTER)(*script, "read 16", "failure", f"unmap {FIRST}")
    assert answers[-3:-1] == [str(2 << 16), ""]
    first, second = (b"".join(i.to_bytes(8, "little") for i in range(b, b + 8)) for b in (0, 8))
    assert answers[-1] == (second + b"\xee" * 64 + first + b"\xee" * 8).hex()


# ---- Waveforms, several designs, compilers ----


def test_waveform_of_a_window(builder: Builder, programs: Programs, tmp_path: Path) -> None:
    program = programs(copier(64, 16, is_traced=True))
    copy = Copy(bytes(range(200)), 0, 0, 150, 150)
    window, late = tmp_path / "window.fst", tmp_path / "late.fst"
    traced = program(f"window {window} 40 59", *copy.script())
    assert traced[1:] == programs(COPIER)(*copy.script())
    # Header block of FST: type, length, first and last time; the clock has two a cycle.
    kind, _, first, last = struct.unpack(">BQQQ", window.read_bytes()[:25])
    assert (kind, first, last) == (0, 2 * 40, 2 * 59 + 1)
    # The program ends in the middle of the window.
    program(f"window {late} 20 100000", *copy.script())
    kind, _, first, last = struct.unpack(">BQQQ", late.read_bytes()[:25])
    assert (kind, first) == (0, 40)
    assert last > 100
    program(f"window {tmp_path / 'never.fst'} 100000 100001", *copy.script())
    assert not (tmp_path / "never.fst").exists()


TWO = """
#include <stdio.h>
#include <string.h>
#include "umakit/simulator.h"
const struct umakit_own_simulator *copier_simulator(void);
const struct umakit_own_simulator *polled_copier_simulator(void);
static struct umakit_device devices[2];
int main(void)
{
    static const char data[] = "twelve bytes";
    char results[2][12] = {{0}};
    int i, n;
    umakit_simulator_open(&devices[0], copier_simulator());
    umakit_simulator_open(&devices[1], polled_copier_simulator());
    for (i = 0; i < 2; ++i) {
        uint32_t from, to;
        if (umakit_device_map(&devices[i], data, 12, UMAKIT_TO_DEVICE, &from) != UMAKIT_OK ||
            umakit_device_map(&devices[i], results[i], 12, UMAKIT_FROM_DEVICE, &to) != UMAKIT_OK) {
            return 1;
        }
        umakit_device_write32(&devices[i], 0, from);
        umakit_device_write32(&devices[i], 4, to);
        umakit_device_write32(&devices[i], 8, 12);
        umakit_device_write32(&devices[i], 12, 1);
    }
    for (n = 0; n < 20; ++n) {
        for (i = 0; i < 2; ++i) {
            if (umakit_device_wait(&devices[i], 10) == UMAKIT_NO_DEVICE) {
                return 1;
            }
        }
    }
    umakit_device_write32(&devices[0], 16, 0);
    umakit_device_write32(&devices[0], 28, 12); /* the first one ends by $finish */
    umakit_device_write32(&devices[0], 8, 12);
    umakit_device_write32(&devices[0], 12, 1);
    if (umakit_device_wait(&devices[0], 1000) != UMAKIT_DEVICE_ERROR ||
        umakit_device_wait(&devices[1], 1000) != UMAKIT_OK) {
        return 1;
    }
    printf("%.12s|%.12s|%s\\n", results[0], results[1], umakit_simulator_failure(&devices[1]));
    return 0;
}
"""


def test_two_designs_in_a_program(builder: Builder, tmp_path: Path) -> None:
    source = tmp_path / "two.c"
    source.write_text(TWO, encoding="utf-8")
    run("gcc", "-Wall", "-Wextra", "-Werror", "-I", HEADERS[1], "-c", source, "-o",
        tmp_path / "two.o")  # fmt: skip
    objects = [tmp_path / "two.o", *builder.objects(COPIER), *builder.objects(POLLED)]
    program = builder.link(objects, tmp_path / "two")
    assert run(program) == "twelve bytes|twelve bytes|\n"


def test_clang_takes_it_without_warnings(builder: Builder, tmp_path: Path) -> None:
    if shutil.which("clang++") is None:
        pytest.skip("clang++ is not installed")
    for design in (COPIER, APB, POLLED):
        folder = builder.objects(design)[0].parent
        source = builder.rendered(design, tmp_path)
        run("clang++", "-std=c++17", *builder.flags(folder), "-c", source, "-o", tmp_path / "c.o")
