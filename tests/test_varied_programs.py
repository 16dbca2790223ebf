# SPDX-License-Identifier: Apache-2.0
"""Programs that are made of a driver's register accesses, and their runs on two devices."""

from __future__ import annotations

import itertools
import random
import re
import struct
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from umakit.cli.main import run_command

from umakit import sim
from umakit.errors import RegisterMapError
from umakit.machine.registers.register_map import read_register_map
from umakit.testing.programs.accesses import (
    ALL_BITS,
    Access,
    Change,
    Drop,
    Insert,
    Map,
    Read,
    Repeat,
    Rest,
    SetValue,
    Swap,
    Unmap,
    Wait,
    Write,
    changed,
)
from umakit.testing.programs.facts import Facts, contradiction, layer_facts
from umakit.testing.programs.program_check import (
    Wanted,
    _Search,
    change_text,
    difference_text,
    verdict,
)
from umakit.testing.programs.ranges import ranges_of
from umakit.testing.programs.recording import Recording, read_recording
from umakit.testing.programs.replay import Replay
from umakit.testing.programs.report import ProgramReport
from umakit.testing.programs.value_changes import FILLS, drawn_value
from umakit.testing.programs.variation import Program, drawn_program

ROOT = Path(__file__).parents[1]
BASE = (Write(8, 5), Write(4, 1), Wait(1000), Read(16, 0), Read(12, 6))
KNOWN = Facts(
    {}, frozenset({4}), 0, (16, ALL_BITS), {8: ALL_BITS}, {12: ALL_BITS}, frozenset(), True
)


def program(*changes: Change) -> Program:
    """Return a program of `BASE`."""
    return Program("0/0", 0, BASE, changes, rests=True, pauses=0)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the program with two adders, of which the second is wrong for 7."""
    folder = tmp_path_factory.mktemp("pair")
    source = sim.source_directory()
    files = [source / each for each in sim.SIMULATOR_SOURCES if "systolic" not in each]
    files += [*sorted((source / "programs").glob("*.c")), ROOT / "tests/programs_pair.c"]
    flags = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    folders = [f"-I{source / 'include'}", f"-I{source / 'include/umakit'}"]
    command = ["cc", *flags, *folders, f"-I{source / 'programs'}", *map(str, files)]
    subprocess.run([*command, "-o", str(folder / "pair")], check=True)
    return folder / "pair"


def test_a_recording_is_read_by_layers_and_polls_become_a_rest() -> None:
    text = "r 0 1234\nw 10 1\nm 10000000 2 1 0aff\nw 8 5\nr c 1\nr c 1\nr c 2\nu 10000000\nl 40 1\n"
    found = read_recording(text + "w 8 6\ni ff 1\nl 2a -\nw 8 7\n")
    first = (Read(0, 0x1234), Write(0x10, 1))
    assert found.layers == (
        (
            *first,
            Map(0x10000000, 1, b"\n\xff"),
            Write(8, 5),
            Rest(12, 3, 2),
            Read(12, 2),
            Unmap(1 << 28),
        ),
        (*first, Write(8, 6), Wait(255)),
    )
    assert found.values == {0x10: (1,), 8: (5, 6)}
    assert found.cycles == (64, 42)
    assert found.counts_work
    assert not read_recording(text + "w 8 6\ni ff 1\nl 2a 0\n").counts_work


def test_changes_are_made_where_they_are() -> None:
    new = Write(8, 9)
    assert changed(BASE, [SetValue(0, 9)]) == [new, *BASE[1:]]
    assert changed(BASE, [Insert(1, (new,)), Drop((2,))]) == [*BASE[:2], new, *BASE[3:]]
    assert changed(BASE, [Swap(0, 1)]) == [BASE[1], BASE[0], *BASE[2:]]
    assert changed(BASE, [Repeat(0, 2)]) == [*BASE[:3], *BASE[:3], *BASE[3:]]
    assert changed(BASE, []) == list(BASE)


def test_values_are_words_and_reach_the_limits_of_a_field() -> None:
    text = '[[register]]\nname = "A"\noffset = 0\naccess = "rw"\ndescription = "A."\n'
    text += '[[register.field]]\nname = "F"\nlowest_bit = 4\nwidth = 3\ndescription = "F."\n'
    (register,) = read_register_map(text, "map").registers
    draw = random.Random(1)
    values = Counter(drawn_value(draw, register, 0x25, [3]) for _ in range(2000))
    assert all(0 <= each <= ALL_BITS for each in values)
    assert {(field << 4) | 5 for field in range(8)} <= set(values)
    plain = {drawn_value(draw, None, 40, [77]) for _ in range(2000)}
    assert {39, 41, 77, 0, ALL_BITS, 1 << 31, 1 << 7} <= plain


@pytest.mark.parametrize("name", FILLS)
def test_contents_keep_the_size_of_a_buffer(name: str) -> None:
    for size in (1, 3, 8, 130):
        assert len(FILLS[name](random.Random(size), bytes(size))) == size


def test_equal_seeds_give_equal_programs() -> None:
    recording = Recording((BASE, BASE[::-1]), {8: (5,)}, frozenset({12, 16}))
    drawn = [drawn_program(recording, KNOWN, f"3/{each}") for each in range(50)]
    assert drawn == [drawn_program(recording, KNOWN, f"3/{each}") for each in range(50)]
    assert len({str(each.accesses()) for each in drawn}) > 30


def test_nothing_is_done_while_an_engine_works_unless_the_map_says_what_that_does() -> None:
    recording = Recording((BASE, BASE), {8: (5,)}, frozenset({12, 16}))
    facts = replace(KNOWN, may_be_busy=False)
    for number in range(200):
        accesses = drawn_program(recording, facts, f"4/{number}").accesses()
        for place, access in enumerate(accesses[:-1]):
            if isinstance(access, Wait):
                assert isinstance(accesses[place + 1], Rest)
            if access == Write(4, 1):
                assert not isinstance(accesses[place + 1], Write)
        assert accesses.count(Write(4, 1)) <= 1


def test_a_pair_differs_where_it_is_wrong_and_nowhere_else(pair: Path) -> None:
    operands = [*range(12), 999, 1000, 1001, ALL_BITS]
    with Replay(pair, KNOWN, pair.parent) as replay:
        answers = replay.run([program(SetValue(0, each)) for each in operands])
    for operand, answer in zip(operands, answers, strict=True):
        expected = "differs" if operand == 7 else "error" if operand > 1000 else "ok"
        assert answer.outcome == expected, operand
    wrong = answers[7]
    assert (wrong.kind, wrong.address, wrong.expected, wrong.found) == ("register", 12, 8, 7)


def test_what_depends_on_time_is_left_out(pair: Path) -> None:
    # Operands are written while there is work: what the result is depends on when that is.
    late = program(Insert(1, tuple(Write(8, each) for each in range(20, 26))))
    read = program(Insert(1, (Read(12, 0),)))
    with Replay(pair, KNOWN, pair.parent) as replay:
        assert [each.outcome for each in replay.run([late, read])] == ["ok", "ok"]


COUNTS = ("live", "start", "end", "bursts", "not")
"""How a model counts the cycles in which it works; see `programs_pair.c`."""

LONGEST = 4_000_000_000
"""Cycles that a driver waits for an interrupt."""


def waiting(how: str, length: int, counts: str) -> tuple[Recording, Facts]:
    """Return a layer whose job takes some cycles, after which the driver looks at the result.

    Args:
        how: the driver learns of the end of a job by an `interrupt`, by one that is `masked` but
            for a register of the map, or as it `polls` a register.
        length: cycles of the job.
        counts: how the model counts.
    """
    end: tuple[Access, ...] = (Wait(LONGEST),) if how != "polls" else (Rest(28, 1, 0), Read(28, 0))
    begin = (Read(0, 0x1234), Write(20, length), Write(24, int(how == "masked")))
    layer = (*begin, Write(8, 5), Write(4, 1), *end, Read(16, 0), Read(12, 6))
    values = {8: (5, 6, 8, 9), 20: (length,), 24: (0, 1)}
    facts = replace(KNOWN, may_be_busy=False, busy=(28, 1) if how == "masked" else None,
                    kept={8: ALL_BITS, 20: ALL_BITS, 24: ALL_BITS},
                    counts_work=counts == "live")  # fmt: skip
    return Recording((layer,), values, frozenset({12, 16}), (length + 20,), False), facts


@pytest.mark.parametrize("how", ["interrupt", "masked", "polls"])
@pytest.mark.parametrize("counts", COUNTS)
def test_devices_that_are_alike_never_differ_however_long_their_jobs_take(
    pair: Path, how: str, counts: str
) -> None:
    outcomes: Counter[str] = Counter()
    for length in (100, 3_000, 26_912, 100_000):
        recording, facts = waiting(how, length, counts)
        environment = {"PAIR_COUNTS": counts, "PAIR_ALIKE": "1"}
        with Replay(pair, facts, pair.parent, environment) as replay:
            report = search(replay, facts, recording, most=12, seconds=600)
        assert not report.differences, report.differences[0].sentence
        outcomes += report.outcomes
        with Replay(pair, facts, pair.parent, {"PAIR_COUNTS": counts}) as replay:
            wrong = replace(program(SetValue(3, 7)), base=recording.layers[0],
                            cycles=recording.cycles[0])  # fmt: skip
            (answer,) = replay.run([wrong])
            assert (answer.kind, answer.address, answer.found) == ("register", 12, 7)
    assert outcomes["ok"] + outcomes["error"] >= 0.7 * outcomes.total(), outcomes


def search(replay: Replay, facts: Facts, recording: Recording, **wanted: float) -> ProgramReport:
    """Return what programs of a recording find."""
    report = ProgramReport()
    _Search(replay, facts, recording, Wanted(**wanted), report).run(lambda sentence: None)
    return report


def test_a_difference_is_reduced_to_the_changes_that_it_needs(pair: Path) -> None:
    needed = SetValue(0, 7)
    others: list[Change] = [Insert(3, (Read(8, 0),)), Repeat(0, 2), Insert(4, (Write(8, 3),))]
    recording = Recording((BASE,), {8: (5,)}, frozenset())
    for changes in itertools.permutations([needed, *others]):
        with Replay(pair, KNOWN, pair.parent) as replay:
            (answer,) = replay.run([program(*changes)])
            searching = _Search(replay, KNOWN, recording, Wanted(), ProgramReport())
            found, again = searching.reduced(program(*changes), answer)
        assert found.changes == (needed,)
        text = difference_text(again, found.accesses(), KNOWN)
        assert text.startswith("access 4 of 6, the wait until no engine works: register 0x00C is ")
        assert change_text(needed, BASE, KNOWN) == "register 0x008 is 0x7 instead of 0x5"


def test_each_kind_is_listed_once_and_programs_go_on_to_the_end(pair: Path) -> None:
    base = (Read(0, 0x1234), *BASE)
    recording = Recording((base,), {8: (5, 6, 7, 1001, 1200, 2000)}, frozenset({12, 16}))
    with Replay(pair, KNOWN, pair.parent) as replay:
        report = search(replay, KNOWN, recording, most=120, seconds=60)
    assert report.run == report.wanted == 120
    kinds = [(each.kind, each.place, each.refused) for each in report.differences]
    assert kinds == list(dict.fromkeys(kinds))
    assert ("register", "register 0x00C", "") in kinds
    assert sum(each.programs for each in report.differences) == report.outcomes["differs"] > 1
    with Replay(pair, KNOWN, pair.parent) as replay:
        first = report.differences[0]
        again = search(replay, KNOWN, recording, only=first.program)
    assert again.differences == [replace(first, programs=1)]


def test_programs_end_with_their_time(pair: Path) -> None:
    recording = Recording((BASE,), {8: (5,)}, frozenset({12, 16}))
    with Replay(pair, KNOWN, pair.parent) as replay:
        report = search(replay, replace(KNOWN, starts=frozenset({4})), recording, seconds=0.3)
        assert 0.3 <= replay.seconds < 5  # of the processor
    assert report.wanted is not None
    assert 0 < report.run < report.wanted
    assert f"the time was over after {report.run:,} of 1,000,000" in report.summary


def test_a_refusal_of_one_side_is_told_apart_from_a_wrong_result(pair: Path) -> None:
    # The second adder also takes 1200, which the first one refuses, and refuses 900 alone.
    recording = Recording((BASE,), {8: (5,)}, frozenset())
    known = replace(KNOWN, ranges=replace(KNOWN.ranges, known=frozenset({8})))
    with Replay(pair, KNOWN, pair.parent) as replay:
        answers = replay.run([program(SetValue(0, each)) for each in (1200, 900, 2000, 7)])
    assert [each.refused for each in answers] == ["model", "rtl", "both", ""]
    for answer, value in zip(answers, (1200, 900, 2000, 7), strict=True):
        changed = program(SetValue(0, value))
        is_failure, fix = verdict(answer, changed, KNOWN, recording)
        assert is_failure == (value == 7)
        assert "register 0x008, now 0x5" in fix
        assert verdict(answer, changed, known, recording)[0]
        error = replace(KNOWN, ranges=replace(KNOWN.ranges, is_error=True))
        assert verdict(answer, changed, error, recording)[0]
        assert verdict(answer, program(), KNOWN, recording)[0]  # the driver's own accesses


LIMITED = """
[[register]]
name = "GO"
offset = 4
access = "wo"
[[register]]
name = "LENGTH"
offset = 8
access = "rw"
least = 2
highest = 40
multiple_of = 2
[[register]]
name = "CLIP"
offset = 12
access = "rw"
[[register.field]]
name = "LOWEST"
lowest_bit = 0
width = 8
least = -128
not_above = "CLIP.HIGHEST"
[[register.field]]
name = "HIGHEST"
lowest_bit = 8
width = 8
least = -128
highest = 100
[[register]]
name = "SCALES"
offset = 16
access = "rw"
one_of = ["1", "LENGTH"]
[[register]]
name = "SHIFTS"
offset = 20
access = "rw"
points_to = "int8"
least = -31
highest = 30
[[register]]
name = "MODE"
offset = 24
access = "rw"
[[register.value]]
name = "ADD"
value = 3
[[register.value]]
name = "SUBTRACT"
value = 5
"""


def limited(text: str = LIMITED) -> tuple[Recording, Facts]:
    """Return a layer of a device with limits, and what is known of it."""
    at = 0x20000000
    layer = (
        Map(at, 1, bytes(24)), Write(8, 8), Write(12, 0x40F0), Write(16, 8),
        Write(20, at + 3), Write(24, 3), Write(4, 1), Wait(1000), Rest(), Write(8, 6),
        Write(16, 1), Write(4, 1), Wait(1000), Unmap(at),
    )  # fmt: skip
    recording = Recording((layer,), {24: (3,)}, frozenset())
    registers = read_register_map(text, "map")
    ranges = ranges_of(registers, {}, recording.values)
    by_offset = {each.offset: each for each in registers.registers}
    kept = dict.fromkeys((8, 12, 16, 20, 24), ALL_BITS)
    facts = Facts(by_offset, frozenset({4}), None, None, kept, {}, frozenset(), True, ranges)
    return recording, replace(facts, layers=(layer_facts(layer, facts),))


def sent(accesses: Sequence[Access]) -> Iterator[tuple[dict[int, int], bytes]]:
    """Yield what registers hold at each start, and the buffer."""
    state, data = dict.fromkeys((8, 12, 16, 20, 24), 0), b""
    for access in accesses:
        if isinstance(access, Map):
            data = access.data
        elif isinstance(access, Write):
            state[access.offset] = access.value
            if access.offset == 4:
                yield dict(state), data


def signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def test_programs_keep_to_what_the_map_says_drivers_send() -> None:
    recording, facts = limited()
    seen: dict[str, set[int]] = defaultdict(set)
    for number in range(400):
        for state, data in sent(drawn_program(recording, facts, f"5/{number}").accesses()):
            seen["length"].add(state[8])
            low, high = signed(state[12] & 255), signed(state[12] >> 8 & 255)
            assert low <= high <= 100
            assert state[16] in (1, state[8])
            assert 0x20000000 <= state[20] < 0x20000000 + len(data)
            assert state[24] in (3, 5)
            assert all(-31 <= signed(each) <= 30 for each in data)
            seen["high"].add(high)
            seen["mode"].add(state[24])
    assert seen["length"] <= set(range(2, 41, 2))
    assert {2, 40, 8, 10} <= seen["length"]
    assert {100, -128} & seen["high"]
    assert seen["mode"] == {3, 5}


def test_where_the_map_calls_them_errors_all_numbers_are_sent() -> None:
    access = '[access]\noutside = "error"\nerror = "MODE"\nclear = "GO"\n'
    recording, facts = limited(access + LIMITED)
    programs = [drawn_program(recording, facts, f"5/{number}") for number in range(200)]
    states = [state for each in programs for state, _ in sent(each.accesses())]
    assert {state[8] for state in states} - set(range(2, 41, 2))
    assert {state[24] for state in states} - {3, 5}


def test_a_driver_that_breaks_its_map_is_named() -> None:
    recording, facts = limited()
    assert not contradiction(recording, facts, "map")
    recording, facts = limited(LIMITED.replace("highest = 40", "highest = 6"))
    sentence = "LENGTH is 8 when the driver starts work, and map says highest = 6"
    assert contradiction(recording, facts, "map") == sentence
    recording, facts = limited(LIMITED.replace('"LENGTH"]', '"LENGTH - 1"]'))
    sentence = 'SCALES is 8 when the driver starts work, and map says one_of = ["1", "LENGTH - 1"]'
    assert contradiction(recording, facts, "map") == sentence


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("highest = 40", "highest = 1", "least is 2, and highest is 1"),
        ("highest = 100", "highest = 128", "field HIGHEST holds -128 to 127, and no 128"),
        ('"CLIP.HIGHEST"', '"CLIP.UPPER"', "CLIP.LOWEST: there is no CLIP.UPPER in the map"),
        ('"LENGTH"]', '"LENGTH ** 2"]', "'LENGTH ** 2' is more than numbers, REGISTER"),
        ('"LENGTH"]', '"exit()"]', "'exit()' is more than numbers, REGISTER"),
        ('points_to = "int8"', 'points_to = "int9"', "points_to"),
        ("multiple_of = 2", "multiple_of = 0", "multiple_of"),
        ("multiple_of = 2", "multiples_of = 2", "there is no such key"),
        ('access = "rw"\nleast = 2', 'access = "ro"\nleast = 2', "LENGTH is read only"),
    ],
)
def test_limits_that_make_no_sense_are_refused(old: str, new: str, sentence: str) -> None:
    assert old in LIMITED
    with pytest.raises(RegisterMapError, match=re.escape(sentence)):
        read_register_map(LIMITED.replace(old, new), "map")


def test_words_of_a_job_in_memory_keep_to_their_limits() -> None:
    text = """
[descriptor]
register = "JOB"
[[descriptor.word]]
name = "LENGTH"
least = 1
highest = 9
[[descriptor.word]]
name = "SCALES"
one_of = ["1", "LENGTH"]
[[register]]
name = "GO"
offset = 4
access = "wo"
[[register]]
name = "JOB"
offset = 8
access = "rw"
"""
    at = 0x20000000
    job = Map(at, 1, struct.pack("<8xII8x", 4, 4))
    layer = (job, Write(8, at + 8), Write(4, 1), Wait(1000), Unmap(at))
    recording = Recording((layer,), {}, frozenset())
    registers = read_register_map(text, "map")
    ranges = ranges_of(registers, {}, {})
    facts = Facts({}, frozenset({4}), None, None, {}, {}, frozenset(), False, ranges)
    facts = replace(facts, layers=(layer_facts(layer, facts),))
    lengths, scales = set(), set()
    for number in range(300):
        accesses = drawn_program(recording, facts, f"6/{number}").accesses()
        (found,) = (each for each in accesses if isinstance(each, Map))
        if Write(4, 1) not in accesses:
            continue  # nothing reads it
        length, scale = struct.unpack_from("<II", found.data, 8)
        assert 1 <= length <= 9
        assert scale in (1, length)
        lengths.add(length)
        scales.add(scale)
    assert {4, 1, 9} & lengths
    assert 4 in scales


def test_options_that_do_not_go_together(capsys: pytest.CaptureFixture[str]) -> None:
    backend = "strawberry_accelerator"
    for other in (["--registers"], ["--operator", "qdense"], ["--case", "qdense"]):
        assert run_command(["check", backend, "--rtl", "--program", "1", *other]) == 2
        assert "--program and" in capsys.readouterr().err
    assert run_command(["check", backend, "--program", "1"]) == 2
    assert "--program needs --rtl" in capsys.readouterr().err
