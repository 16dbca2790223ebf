# SPDX-License-Identifier: Apache-2.0
"""Registers are compared with their map: right devices pass, each planted fault is named."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest
from umakit.cli.main import run_command

from umakit import find_backend
from umakit.errors import InputError
from umakit.machine.registers.register_map import RegisterMap, read_register_map
from umakit.testing.check import check_only_registers
from umakit.testing.registers import Access, compare

MAP = """
name = "toy"

[access]
holes = "error"
wrong = "error"
reserved = "error"
error = "ERROR"
clear = "CONTROL.CLEAR"
size = 0x40

[[register]]
name = "ID"
offset = 0x00
access = "ro"
reset = 0x1234

[[register]]
name = "CONTROL"
offset = 0x04
access = "wo"

[[register.field]]
name = "START"
lowest_bit = 0
width = 1

[[register.field]]
name = "CLEAR"
lowest_bit = 1
width = 1

[[register]]
name = "ERROR"
offset = 0x08
access = "ro"

[[register]]
name = "DATA"
offset = 0x10
access = "rw"
reset = 7

[[register]]
name = "MODE"
offset = 0x14
access = "rw"

[[register.field]]
name = "KIND"
lowest_bit = 4
width = 3

[[register.field]]
name = "QUEUE"
lowest_bit = 8
width = 1
present = "QUEUES"

[[register]]
name = "PENDING"
offset = 0x18
access = "rw"
reset = 3
write = "one_to_clear"
writable = 0x3

[[register]]
name = "COUNT"
offset = 0x1C
access = "ro"
volatile = true

[[register]]
name = "QUEUES"
offset = 0x20
access = "ro"
configured = "device.command_queue"

[[register]]
name = "LAST"
offset = 0x30
access = "rw"
writable = 0xFFFF
"""

ID, CONTROL, ERROR, DATA, MODE, PENDING, COUNT, QUEUES, LAST = (
    0x00, 0x04, 0x08, 0x10, 0x14, 0x18, 0x1C, 0x20, 0x30,
)  # fmt: skip
HOLE = 0x24


class Toy:
    """A device as the map says, whose faults are switched on by name."""

    def __init__(self, fault: str = "", queues: int = 0, answer: str = "error") -> None:
        self.fault, self.queues, self.answer = fault, queues, answer
        self.count = self.starts = 0
        self.hidden = 0
        self.reset()

    def reset(self) -> bool:
        old = getattr(self, "values", {})
        self.values = {DATA: 7, MODE: 0, PENDING: 3, LAST: 0}
        if self.fault == "reset of DATA":
            self.values[DATA] = 5
        if self.fault == "LAST is not reset":
            self.values[LAST] = old.get(LAST, 0)
        self.error = 0
        self.id = 0x1234
        return self.fault != "no reset"

    def run(self, accesses: Sequence[Access]) -> list[int]:
        read = []
        for offset, value in accesses:
            self.count += 3
            if value is None:
                read.append(self.read(offset))
            else:
                self.write(offset, value)
        return read

    def wrong(self) -> int:
        if self.answer == "error":
            self.error = self.error or 2
        return 0xDEAD if self.answer == "ignored" else 0

    def read(self, offset: int) -> int:
        fault = self.fault
        if fault == "DATA and LAST are one" and offset == LAST:
            return self.values[DATA] & 0xFFFF
        if fault == "reading changes ID" and offset == ID:
            self.id += 1
        if fault == "a hole answers" and offset == HOLE:
            return 0xAB
        if fault == "a hole keeps" and offset == HOLE:
            self.wrong()
            return self.hidden
        if fault == "the last hole is DATA" and offset == 0x3C:
            return self.values[DATA]
        if fault == "a hole is no error" and offset == HOLE:
            return 0
        if fault == "CONTROL can be read" and offset == CONTROL:
            return 1
        known = {**self.values, ID: self.id, ERROR: self.error, COUNT: self.count,
                 QUEUES: self.queues}  # fmt: skip
        return known[offset] if offset in known else self.wrong()

    def write(self, offset: int, value: int) -> None:
        fault = self.fault
        if fault == "ID can be written" and offset == ID:
            self.id = value
        if fault == "bit 3 of ID can be set" and offset == ID:
            self.id |= value & 8
        if fault == "a hole keeps" and offset == HOLE:
            self.hidden = value
        if fault == "the last hole is DATA" and offset == 0x3C:
            self.values[DATA] = value
        if fault == "COUNT takes writes" and offset == COUNT:
            return
        mask = {DATA: 0xFFFFFFFF, MODE: 0x170 if self.queues else 0x70, PENDING: 3,
                LAST: 0xFFFF}  # fmt: skip
        if offset == CONTROL:
            self.starts += value & 1
            if value & ~3:
                if fault != "CONTROL takes all bits":
                    self.wrong()
            elif value & 2 and fault != "errors stay":
                self.error = 0
            return
        if offset not in mask:
            self.wrong()
            return
        kept = mask[offset]
        if fault == "bit 9 of LAST is narrow" and offset == LAST:
            value &= ~(1 << 9)
        if fault == "bit 30 of DATA is one" and offset == DATA:
            value |= 1 << 30
        if fault == "MODE keeps all bits" and offset == MODE:
            self.values[MODE] = value
            return
        if value & ~kept and self.answer == "error":
            self.wrong()
            if fault == "an error writes MODE" and offset == MODE:
                self.values[MODE] = value & kept
            return
        if offset == PENDING:
            self.values[PENDING] &= ~(value & kept)
            if fault == "PENDING stores":
                self.values[PENDING] = value & kept
            return
        self.values[offset] = value & kept
        if fault == "LAST clears MODE" and offset == LAST:
            self.values[MODE] = 0
        if fault == "DATA clears MODE" and offset == DATA:
            self.values[MODE] = 0
        if fault == "MODE sets LAST" and offset == MODE:
            self.values[LAST] = 1
        if fault == "DATA and LAST are one" and offset == LAST:
            self.values[DATA] = value


def toy_map(answer: str = "error", text: str = MAP) -> RegisterMap:
    reserved = answer.replace("zero", "ignored")
    text = text.replace('reserved = "error"', f'reserved = "{reserved}"')
    return read_register_map(text.replace(' = "error"', f' = "{answer}"'), "toy.toml")


@pytest.mark.parametrize("answer", ["error", "zero", "ignored"])
@pytest.mark.parametrize("queues", [0, 4])
def test_a_device_that_is_as_its_map_says_passes(answer: str, queues: int) -> None:
    toy = Toy(queues=queues, answer=answer)
    found = compare(toy, toy_map(answer))
    assert found.differences == []
    assert (found.registers, found.left_out, found.unknown) == (9, ["COUNT"], [])
    assert toy.starts == 0, "no command starts work"


def test_what_the_map_does_not_say_is_not_tried() -> None:
    text = MAP.replace('holes = "error"\nwrong = "error"\nreserved = "error"\n', "")
    asked: list[Access] = []

    class Recording(Toy):
        def run(self, accesses: Sequence[Access]) -> list[int]:
            asked.extend(accesses)
            return super().run(accesses)

    found = compare(Recording(), read_register_map(text, "toy.toml"))
    assert found.differences == [] and found.unknown == ["holes", "wrong", "reserved"]
    written = {each.offset for each in asked if each.value is not None}
    assert written == {DATA, MODE, PENDING, LAST}
    assert {each.value & ~0x70 for each in asked if each.offset == MODE and each.value} == {0}


def test_sizes_of_the_device_are_those_of_its_configuration() -> None:
    assert compare(Toy(queues=4), toy_map(), {"QUEUES": 4}).differences == []
    (said,) = compare(Toy(queues=4), toy_map(), {"QUEUES": 6}).differences
    assert said == (
        "QUEUES (0x020), bit 1: after power-on, as device.command_queue of accel.toml says,"
        " 0x00000004 instead of 0x00000006"
    )


FAULTS = {
    "reset of DATA": "DATA (0x010), bit 1: after power-on 0x00000005 instead of 0x00000007",
    "bit 9 of LAST is narrow": "LAST (0x030), bit 9: 0x0000FDFF instead of 0x0000FFFF after a write"
    " of 0x0000FFFF",
    "bit 30 of DATA is one": "DATA (0x010), bit 30: 0x40000000 instead of 0x00000000 after a write"
    " of 0x00000000",
    "ID can be written": "a write of 0xFFFFFFFF to ID (0x000) changes ID (0x000), bits 31:13, 11:10"
    ", 8:6, 3, 1:0: 0xFFFFFFFF instead of 0x00001234",
    "DATA and LAST are one": "a write of 0xA5A5A5A5 to DATA (0x010) changes LAST (0x030), bits",
    "MODE sets LAST": "a write of 0x00000020 to MODE (0x014) changes LAST (0x030), bit 0:"
    " 0x00000001 instead of 0x00000000",
    "LAST clears MODE": "MODE (0x014), bits 6:4 (KIND): does not keep its value while other"
    " registers are written: 0x00000000 instead of",
    "DATA clears MODE": "MODE (0x014), bits 6:4 (KIND): does not keep its value while other"
    " registers are written: 0x00000000 instead of",
    "a hole answers": "a read of 0x024, where there is no register, gives 0x000000AB instead of 0",
    "a hole keeps": "after a write of 0xA5A5A5A5 to 0x024, where there is no register, a read gives"
    " 0xA5A5A5A5 instead of 0",
    "the last hole is DATA": "a read of 0x03C, where there is no register, gives 0x00000007 instead"
    " of 0",
    "a hole is no error": "a read of 0x024, where there is no register, is no error: ERROR is 0",
    "CONTROL can be read": "a read of CONTROL (0x004) gives 0x00000001 instead of 0",
    "CONTROL takes all bits": "a write of 0x00000004 to CONTROL (0x004) is no error: ERROR is 0",
    "MODE keeps all bits": "a write of 0x00000001 to MODE (0x014) is no error: ERROR is 0",
    "an error writes MODE": "a write of 0xFFFFFFFF to MODE (0x014) changes MODE (0x014), bits 6:4"
    " (KIND): 0x00000070 instead of 0x00000000",
    "COUNT takes writes": "a write of 0xFFFFFFFF to COUNT (0x01C) is no error: ERROR is 0",
    "PENDING stores": "PENDING (0x018), bits 1:0: 0x00000000 instead of 0x00000003 after a write of"
    " 0x00000000",
    "errors stay": "ERROR is not 0 after a write to CONTROL.CLEAR, which follows a write of"
    " 0x00000004 to CONTROL (0x004); the rest was not compared",
    "LAST is not reset": "LAST (0x030), bits 15:0: after a reset 0x0000FFFF instead of 0x00000000",
    "reading changes ID": "ID (0x000), bits 1:0: changes though nothing is written: 0x00001236"
    " instead of 0x00001235; if it runs, the map needs volatile = true",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named(fault: str) -> None:
    found = compare(Toy(fault), toy_map())
    assert any(FAULTS[fault] in each for each in found.differences), found.differences
    assert len(found.differences) <= 20


def test_what_one_write_changes_is_not_said_of_the_next_ones() -> None:
    differences = compare(Toy("ID can be written"), toy_map()).differences
    assert {each.split(" changes ")[0].split(" to ")[1] for each in differences} == {"ID (0x000)"}


@pytest.mark.parametrize("answer", ["zero", "ignored"])
@pytest.mark.parametrize(
    "fault", ["ID can be written", "bit 3 of ID can be set", "MODE keeps all bits",
              "the last hole is DATA", "DATA and LAST are one"],
)  # fmt: skip
def test_faults_are_found_in_devices_without_errors(fault: str, answer: str) -> None:
    assert compare(Toy(fault, answer=answer), toy_map(answer)).differences


def test_a_device_without_a_reset_is_compared_once() -> None:
    assert compare(Toy("no reset"), toy_map()).differences == []


def test_what_some_resets_leave_is_found() -> None:
    class Forgetful(Toy):
        resets = 0

        def reset(self) -> bool:
            done = super().reset()
            self.resets += 1
            self.values[LAST] = 5 if self.resets == 6 else 0
            return done

    assert compare(Forgetful(), toy_map()).differences == [
        "LAST (0x030), bits 2, 0: after a reset 0x00000005 instead of 0x00000000"
    ]


JOB = """
[job]
start = "CONTROL.START"
busy = "STATE.BUSY"
error = "ERROR"

[[register]]
name = "STATE"
offset = 0x28
access = "ro"
volatile = true
field = [{ name = "BUSY", lowest_bit = 2, width = 1 }]
"""


def test_a_device_without_a_job_is_idle() -> None:
    class Busy(Toy):
        state = 3

        def read(self, offset: int) -> int:
            return self.state if offset == 0x28 else super().read(offset)

    device, registers = Busy(), toy_map(text=MAP + JOB)
    assert compare(device, registers).differences == []
    device.state = 4
    assert compare(device, registers).differences == [
        "STATE.BUSY of STATE (0x028) is 0x00000004 after power-on, though no job was started"
    ]


def test_a_number_that_runs_has_to_be_volatile() -> None:
    (said, *_) = compare(Toy(), toy_map(text=MAP.replace("volatile = true", ""))).differences
    assert said.startswith("COUNT (0x01C)")


BACKENDS = ("vanilla_accelerator", "strawberry_accelerator", "chocolate_accelerator")


@pytest.mark.parametrize("name", BACKENDS)
def test_the_simulators_of_the_kit_answer_as_their_maps_say(name: str) -> None:
    report = check_only_registers(find_backend(name))
    assert report.passed, report.failures
    assert report.registers is not None and report.registers.unknown == []
    assert report.registers.registers - len(report.registers.left_out) >= 22


# ---- Simulators in C++, by the command ----

MACHINE = """
#include "umakit/own_simulator.h"

/* FAULT 1: another value after reset, 2: a bit of DATA that stays 0, 3: ID can be written,
 * 4: DATA and LAST are one, 5: a hole that answers, 6: it gives up at the first hole. */
namespace {
struct Machine { umakit_host *host; std::uint32_t id, error, data, last; };

void reset(void *simulator)
{
    Machine &machine = *static_cast<Machine *>(simulator);
    machine = Machine{machine.host, 0x1234, 0, FAULT == 1 ? 6u : 7u, 0};
}

void *create(umakit_host *host)
{
    static Machine machine;
    machine.host = host;
    std::printf("a line of the simulator\\n");
    return &machine;
}

std::uint32_t read32(void *simulator, std::uint32_t offset)
{
    Machine &machine = *static_cast<Machine *>(simulator);
    switch (offset) {
    case 0x00: return machine.id;
    case 0x08: return machine.error;
    case 0x10: return machine.data;
    case 0x14: return FAULT == 4 ? machine.data & 0xFFFFu : machine.last;
    default: break;
    }
    if (FAULT == 5 && offset == 0x0C) { return 1; }
    if (FAULT == 6) { umakit_host_fail(machine.host, "nobody reads there"); }
    machine.error = 2;
    return 0;
}

void write32(void *simulator, std::uint32_t offset, std::uint32_t value)
{
    Machine &machine = *static_cast<Machine *>(simulator);
    if (offset == 0x04 && value == 2) { machine.error = 0; }
    else if (offset == 0x10) { machine.data = FAULT == 2 ? value & ~8u : value; }
    else if (offset == 0x14 && value <= 0xFFFFu) { machine.last = value;
        if (FAULT == 4) { machine.data = value; } }
    else { machine.error = 2; if (FAULT == 3 && offset == 0) { machine.id = value; } }
}

bool wait(void *, std::uint64_t) { return false; }
}

extern "C" const umakit_own_simulator *toy_simulator(void)
{
    static umakit_own_simulator table = umakit_own_simulator();
    table.version = UMAKIT_OWN_SIMULATOR_VERSION;
    table.create = create; table.reset = reset; table.read32 = read32; table.write32 = write32;
    table.wait = wait;
    return &table;
}
"""

BACKEND = """
from umakit import UMABackend, patterns

class Toy(UMABackend):
    def __init__(self):
        super().__init__()
        self._register_pattern(*patterns.qdense())

    @property
    def target_name(self):
        return "toy"
"""

SMALL_MAP = """
[access]
holes = "error"
wrong = "error"
reserved = "error"
error = "ERROR"
clear = "CONTROL.CLEAR"
""" + "".join(
    f'[[register]]\nname = "{name}"\noffset = {offset}\naccess = "{access}"\n{more}\n'
    for name, offset, access, more in (
        ("ID", 0, "ro", "reset = 0x1234"),
        ("CONTROL", 4, "wo", 'field = [{name = "CLEAR", lowest_bit = 1, width = 1}]'),
        ("ERROR", 8, "ro", ""),
        ("DATA", 16, "rw", "reset = 7"),
        ("LAST", 20, "rw", "writable = 0xFFFF"),
    )
)


def toy_folder(folder: Path, fault: int) -> Path:
    place = folder / "toy"
    place.mkdir()
    (place / "machine.cc").write_text("#include <cstdint>\n#include <cstdio>\n" + MACHINE)
    (place / "backend.py").write_text(BACKEND)
    (place / "registers.toml").write_text(SMALL_MAP)
    (place / "accel.toml").write_text(
        '[accelerator]\nname = "toy"\n[device]\nsimulator = "own"\n'
        f'[simulator]\nsources = ["machine.cc"]\ndefines = ["FAULT={fault}"]\n'
    )
    return place


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (0, ""),
        (1, "DATA (0x010), bit 0: after power-on 0x00000006 instead of 0x00000007"),
        (2, "DATA (0x010), bit 3: 0xFFFFFFF7 instead of 0xFFFFFFFF after a write of 0xFFFFFFFF"),
        (3, "a write of 0xFFFFFFFF to ID (0x000) changes ID (0x000)"),
        (4, "a write of 0xA5A5A5A5 to DATA (0x010) changes LAST (0x014)"),
        (5, "a read of 0x00C, where there is no register, gives 0x00000001 instead of 0"),
        (6, "the simulator of toy failed: nobody reads there"),
    ],
)
def test_uma_check_names_faults_of_a_simulator(
    fault: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = toy_folder(tmp_path, fault)
    code = run_command(["check", str(place), "--registers"])
    printed = " ".join(capsys.readouterr().out.split())
    assert code == (1 if said else 0), printed
    assert said in printed
    assert "registers: 5 of 5 compared with " in printed
    if not said:
        return
    assert re.search(r"change the device, or \S*toy/registers\.toml", printed)
    mends = [("accel.toml", f"FAULT={fault}", "FAULT=0")]
    mends += [("registers.toml", *MAPS[fault])] if fault in MAPS else []
    for name, old, new in mends:
        text = (place / name).read_text(encoding="utf-8")
        assert text.count(old) == 1
        (place / name).write_text(text.replace(old, new), encoding="utf-8")
        assert run_command(["check", str(place), "--registers"]) == 0
        (place / name).write_text(text, encoding="utf-8")


MAPS = {1: ("reset = 7", "reset = 6")}
"""By fault of the device, what its map says instead where that is no fault."""


def test_a_backend_without_a_map_has_no_registers_to_compare(tmp_path: Path) -> None:
    place = toy_folder(tmp_path, 0)
    (place / "registers.toml").unlink()
    with pytest.raises(InputError, match="toy has no register map or no simulated device"):
        check_only_registers(find_backend(str(place)))
    (place / "registers.toml").write_text(SMALL_MAP)
    assert check_only_registers(find_backend(str(place))).passed


def test_a_map_says_what_its_errors_need() -> None:
    text = textwrap.dedent(MAP).replace('clear = "CONTROL.CLEAR"\n', "")
    with pytest.raises(Exception, match='"error" needs error and clear'):
        read_register_map(text, "toy.toml")
