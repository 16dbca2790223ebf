# SPDX-License-Identifier: Apache-2.0
"""Programs that are made of a driver's register accesses, and their runs on two devices."""

from __future__ import annotations

import itertools
import random
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from umakit.cli.main import run_command

from umakit import sim
from umakit.machine.registers.register_map import read_register_map
from umakit.testing.programs.accesses import ALL_BITS, Map, Read, Rest, Unmap, Wait, Write
from umakit.testing.programs.changes import Change, Drop, Insert, Repeat, SetValue, Swap, changed
from umakit.testing.programs.facts import Facts
from umakit.testing.programs.program_check import _reduced
from umakit.testing.programs.recording import Recording, read_recording
from umakit.testing.programs.replay import Replay
from umakit.testing.programs.values import FILLS, drawn_value
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
    text = "r 0 1234\nw 10 1\nm 10000000 2 1 0aff\nw 8 5\nr c 1\nr c 1\nr c 2\nu 10000000\nl\n"
    found = read_recording(text + "w 8 6\ni ff 1\nl\nw 8 7\n")
    first = (Read(0, 0x1234), Write(0x10, 1))
    assert found.layers == (
        (*first, Map(0x10000000, 1, b"\n\xff"), Write(8, 5), Rest(), Read(12, 2), Unmap(1 << 28)),
        (*first, Write(8, 6), Wait(255)),
    )
    assert found.values == {0x10: (1,), 8: (5, 6)}


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


def test_a_difference_is_reduced_to_the_changes_that_it_needs(pair: Path) -> None:
    needed = SetValue(0, 7)
    others: list[Change] = [Insert(3, (Read(8, 0),)), Repeat(0, 2), Insert(4, (Write(8, 3),))]
    for changes in itertools.permutations([needed, *others]):
        with Replay(pair, KNOWN, pair.parent) as replay:
            (answer,) = replay.run([program(*changes)])
            found = _reduced(replay, KNOWN, program(*changes), answer, 4)
        assert found.changes == ("register 0x008 is 0x7 instead of 0x5",)
        assert found.options == "--program 4"


def test_options_that_do_not_go_together(capsys: pytest.CaptureFixture[str]) -> None:
    backend = "strawberry_accelerator"
    for other in (["--registers"], ["--operator", "qdense"], ["--case", "qdense"]):
        assert run_command(["check", backend, "--rtl", "--program", "1", *other]) == 2
        assert "--program and" in capsys.readouterr().err
    assert run_command(["check", backend, "--program", "1"]) == 2
    assert "--program needs --rtl" in capsys.readouterr().err
