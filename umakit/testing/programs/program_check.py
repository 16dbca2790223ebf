# SPDX-License-Identifier: Apache-2.0
"""Runs varied programs until a time limit, and reduces each kind of difference."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy.typing as npt

from umakit import tvm_api
from umakit.devices.waveforms import Wave, WaveFile, written_wave
from umakit.errors import BuildError, DeviceError, LibraryError
from umakit.registration.backend import Backend
from umakit.testing.programs.accesses import (
    Access,
    Change,
    Drop,
    Insert,
    Map,
    Read,
    Repeat,
    Rest,
    SetContent,
    SetValue,
    Swap,
    Unmap,
    Wait,
    Write,
)
from umakit.testing.programs.facts import Facts, buffer_with, contradiction, facts_of, pointers_to
from umakit.testing.programs.recording import Recording, build_programs
from umakit.testing.programs.replay import Answer, Replay
from umakit.testing.programs.report import (
    NO_LAYER,
    ONLY_RTL,
    SKIPPED,
    ProgramReport,
    ProgramsDifference,
)
from umakit.testing.programs.variation import Program, drawn_program

BATCH = 25
"""Programs that are sent at once."""

MOST_REDUCTIONS = 200
"""Number of programs run to reduce a differing one."""

REDUCTION_SECONDS = 8.0
"""Limit of processor time for the reduction of the first program of a kind."""

MOST_KINDS = 20
"""Number of kinds of differences after which no further program is run."""

Kind = tuple[str, str, str]
"""Kind, place, and refusing side."""


@dataclass(frozen=True)
class Wanted:
    """The selection of programs to run.

    Attributes:
        seconds: processor time of programs, after which no further program runs.
        only: number of the single program to run; None: from 0 on.
    """

    seed: int = 0
    seconds: float = math.inf
    most: int = 1_000_000
    only: int | None = None
    wave: WaveFile | None = None


def check_programs(
    backend: Backend,
    network: tvm_api.IRModule,
    inputs: Mapping[str, npt.NDArray[Any]],
    folder: Path,
    wanted: Wanted,
    tell: Callable[[str], None] = lambda sentence: None,
) -> ProgramReport:
    """Run varied programs, made of the accesses for a network of small layers."""
    started = time.monotonic()
    report = ProgramReport()
    if backend.configuration.is_only_rtl:
        report.not_run = ONLY_RTL
        return report
    tell("building varied programs")
    folder.mkdir(parents=True, exist_ok=True)
    is_traced = wanted.wave is not None
    try:
        program, recording = build_programs(backend, network, inputs, folder, is_traced=is_traced)
    except (BuildError, DeviceError, LibraryError) as error:
        report.not_run = error.what  # layers on the RTL do not need the model
        return report
    report.layers = len(recording.layers)
    report.jobs = recording.cycles
    if not recording.layers:
        report.not_run = NO_LAYER
        return report
    facts = facts_of(backend, recording)
    report.mistake = contradiction(recording, facts, MAP)
    if report.mistake:
        report.not_run = f"the driver breaks what {MAP} says"
        return report
    with Replay(program, facts, folder) as replay:
        search = _Search(replay, facts, recording, wanted, report)
        search.run(tell)
    if wanted.wave is not None and search.last is not None:
        tell("writing the waveform")
        _write_wave(wanted.wave, Wave(backend.target_name), program, facts, folder, search.last)
    report.seconds = time.monotonic() - started
    return report


def _write_wave(
    file: WaveFile, wave: Wave, program: Path, facts: Facts, folder: Path, last: Program
) -> None:
    """Run a varied program once more with a waveform, unless the program is not compared."""
    with written_wave(file, wave, folder) as environment:
        with Replay(program, facts, folder, environment) as replay:
            outcome = replay.run([last])[0].outcome
        if outcome in SKIPPED:
            file.why = f"the program is not compared, as it would {SKIPPED[outcome]}"
            Path(environment["UMAKIT_RTL_WAVE"]).unlink(missing_ok=True)


class _Search:
    """Runs programs, and collects kinds of differences."""

    def __init__(
        self,
        replay: Replay,
        facts: Facts,
        recording: Recording,
        wanted: Wanted,
        report: ProgramReport,
    ) -> None:
        self._replay, self._facts, self._recording = replay, facts, recording
        self._wanted, self._report = wanted, report
        self._kinds: Counter[Kind] = Counter()
        self.last: Program | None = None

    def run(self, tell: Callable[[str], None]) -> None:
        wanted, report = self._wanted, self._report
        number = first = wanted.only or 0
        end = first + 1 if wanted.only is not None else wanted.most
        report.wanted = end - first
        told = time.monotonic()
        while number < end and len(self._kinds) < MOST_KINDS:
            numbers = range(number, min(end, number + BATCH))
            batch = [self._drawn(each) for each in numbers]
            answers = self._replay.run(batch, wanted.seconds)
            if not answers:
                break  # the time is over
            for each, program, answer in zip(numbers, batch, answers, strict=False):
                report.outcomes[answer.outcome] += 1
                self.last = program
                report.cycles += answer.cycles
                if answer.outcome == "differs":
                    self._add(each, program, answer, tell)
            number += len(answers)
            if time.monotonic() - told > 2.0:
                told = time.monotonic()
                tell(f"{report.run:,} varied programs")
        report.differences = [
            replace(each, programs=count)
            for each, count in zip(report.differences, self._kinds.values(), strict=True)
        ]

    def _drawn(self, number: int) -> Program:
        return drawn_program(self._recording, self._facts, f"{self._wanted.seed}/{number}")

    def _kind(self, program: Program, answer: Answer) -> Kind:
        place = place_of(answer, program.accesses(), self._facts)
        return answer.kind, place, answer.refused

    def _add(
        self, number: int, program: Program, answer: Answer, tell: Callable[[str], None]
    ) -> None:
        kind = self._kind(program, answer)
        self._kinds[kind] += 1
        if self._kinds[kind] > 1:
            return
        tell("reducing a varied program that differs")
        program, answer = self.reduced(program, answer)
        self.last = program
        facts = self._facts
        what = difference_text(answer, program.accesses(), facts)
        changes = tuple(change_text(each, program.base, facts) for each in program.changes)
        is_failure, fix = verdict(answer, program, facts, self._recording)
        self._report.differences.append(
            ProgramsDifference(
                number, what, changes, *kind, is_failure, fix, seed=self._wanted.seed
            )
        )

    def reduced(self, program: Program, answer: Answer) -> tuple[Program, Answer]:
        kind = self._kind(program, answer)
        left, until = MOST_REDUCTIONS, self._replay.seconds + REDUCTION_SECONDS
        position = 0
        while position < len(program.changes) and left > 0:
            left -= 1
            fewer = program.changes[:position] + program.changes[position + 1 :]
            candidate = program.with_changes(fewer)
            answers = self._replay.run([candidate], until)
            if not answers:
                break
            if answers[0].outcome == "differs" and self._kind(candidate, answers[0]) == kind:
                program, answer = candidate, answers[0]
            else:
                position += 1
        return program, answer


MAP = "registers.toml"
ALIKE = "the model and the RTL have to answer this alike: change the one that is wrong"
MOST_NAMES = 3


def verdict(
    answer: Answer, program: Program, facts: Facts, recording: Recording
) -> tuple[bool, str]:
    """Return whether a difference is a failure, and advice.

    A refusal by only one side is no failure if a changed register has no documented range: layers
    show whether the driver's own values are refused.
    """
    unknown = [each for each in _touched(program, facts) if each not in facts.ranges.known]
    if facts.ranges.is_error:
        return True, ALIKE
    if not unknown:
        more = ""
        if answer.refused and facts.ranges.has_limits:
            more = f"; or, if drivers never send these together, say so in {MAP} with not_above " \
                   "or one_of"  # fmt: skip
        return True, ALIKE + more
    names = [
        facts.name(each) + _written(recording.values.get(each, ())) for each in unknown[:MOST_NAMES]
    ]
    more = f" and {len(unknown) - MOST_NAMES} more" if len(unknown) > MOST_NAMES else ""
    keys = "least and highest, or points_to of addresses,"
    if not facts.registers:
        keys = f"a register map, with {keys}"
    say = f"{keys} in {MAP} say what drivers send to {', '.join(names)}{more}"
    if answer.refused:
        return False, f"no failure unless a driver sends this: {say}"
    return True, f"{ALIKE}; if drivers never send this: {say}"


def _written(values: tuple[int, ...]) -> str:
    if not values:
        return ", which it does not write here"
    least, highest = min(values), max(values)
    return f", now 0x{least:x}" if least == highest else f", now 0x{least:x} to 0x{highest:x}"


def _touched(program: Program, facts: Facts) -> list[int]:
    found = dict.fromkeys(
        offset for change in program.changes for offset in _offsets(change, program.base, facts)
    )
    return [each for each in found if each not in facts.starts]


def _offsets(change: object, base: tuple[Access, ...], facts: Facts) -> Iterator[int]:
    positions: tuple[int, ...] = ()
    if isinstance(change, SetContent):
        yield from pointers_to(base, change.position, facts.starts)
    elif isinstance(change, Insert):
        yield from (each.offset for each in change.accesses if isinstance(each, Write))
    elif isinstance(change, SetValue):
        positions = (change.position,)
    elif isinstance(change, Drop):
        positions = change.positions
    elif isinstance(change, Swap):
        positions = (change.position, change.other)
    else:
        assert isinstance(change, Repeat)
    for position in positions:
        access = base[position]
        if isinstance(access, Write):
            yield access.offset


REFUSALS = {
    "model": "the C model refuses what the RTL accepts",
    "rtl": "the RTL refuses what the C model accepts",
    "both": "both refuse it, with different errors",
}
"""Differences that are there only because a side refuses a command."""


def change_text(change: Change, accesses: Sequence[Access], facts: Facts) -> str:
    """Return a change of some accesses in words."""
    if isinstance(change, SetValue):
        found = accesses[change.position]
        assert isinstance(found, Write)
        return f"{facts.name(found.offset)} is 0x{change.value:x} instead of 0x{found.value:x}"
    if isinstance(change, SetContent):
        return f"{buffer_text(accesses, change.position, facts)} has {change.name}"
    if isinstance(change, Insert):
        behind = access_text(accesses, change.position, facts)
        made = ", ".join(
            access_text(change.accesses, each, facts) for each in range(len(change.accesses))
        )
        return f"behind {behind}: {made}"
    if isinstance(change, Drop):
        left_out = dict.fromkeys(access_text(accesses, each, facts) for each in change.positions)
        return f"without {', '.join(left_out)}"
    if isinstance(change, Swap):
        one, other = (
            access_text(accesses, each, facts) for each in (change.position, change.other)
        )
        return f"{other} comes before {one}"
    return f"the command of {access_text(accesses, change.last, facts)} is given twice"


def buffer_text(accesses: Sequence[Access], position: int, facts: Facts) -> str:
    """Return a name for a buffer, from the registers that point to it."""
    buffer = accesses[position]
    assert isinstance(buffer, Map)
    names = [facts.name(each) for each in pointers_to(accesses, position, facts.starts)]
    if not names:
        return f"the buffer at 0x{buffer.address:08x}"
    if len(names) == 1:
        return f"the buffer that {names[0]} points to"
    return f"the buffer that {', '.join(names[:-1])} and {names[-1]} point to"


def access_text(accesses: Sequence[Access], position: int, facts: Facts) -> str:
    """Return a description of an access."""
    access = accesses[position]
    if isinstance(access, Write):
        return f"the write of 0x{access.value:x} to {facts.name(access.offset)}"
    if isinstance(access, Read):
        return f"the read of {facts.name(access.offset)}"
    if isinstance(access, Wait):
        return "the wait for the interrupt"
    if isinstance(access, Rest):
        return "the wait until no engine works"
    if isinstance(access, Map):
        return f"the map of {buffer_text(accesses, position, facts)}"
    assert isinstance(access, Unmap)
    mapped = buffer_with(accesses[:position], access.address)
    if mapped is None:
        return f"the unmap of 0x{access.address:08x}"
    return f"the unmap of {buffer_text(accesses, mapped, facts)}"


def place_of(answer: Answer, accesses: Sequence[Access], facts: Facts) -> str:
    """Return the place of a difference: a register, the pointers to a buffer, or nothing."""
    if answer.kind == "memory":
        mapped = buffer_with(accesses[: answer.access], answer.address)
        if mapped is None:
            return ""
        offsets = pointers_to(accesses, mapped, facts.starts)
        return ", ".join(facts.name(each) for each in offsets)
    if answer.kind in ("register", "error"):
        return facts.name(answer.address)
    return answer.sentence if answer.kind == "failure" else ""


def difference_text(answer: Answer, accesses: Sequence[Access], facts: Facts) -> str:
    at = f"after all {len(accesses):,} accesses"
    if answer.access < len(accesses):
        what = access_text(accesses, answer.access, facts)
        at = f"access {answer.access + 1:,} of {len(accesses):,}, {what}"
    refused = f" ({REFUSALS[answer.refused]})" if answer.refused in REFUSALS else ""
    if answer.kind == "failure":
        return f"{at}: {answer.sentence}{refused}"
    if answer.kind == "interrupt":
        return f"{at}: no interrupt of the RTL, the model raised one{refused}"
    if answer.kind == "memory":
        where = _byte_text(answer, accesses, facts)
        return (
            f"{at}: {where} is 0x{answer.found:02x} on the RTL instead of 0x{answer.expected:02x}"
        )
    found = f"is 0x{answer.found:08x} on the RTL instead of"
    if answer.sentence:
        found = f"cannot be read on the RTL (bus error {answer.sentence}) and is"
    return f"{at}: {facts.name(answer.address)} {found} 0x{answer.expected:08x}{refused}"


def _byte_text(answer: Answer, accesses: Sequence[Access], facts: Facts) -> str:
    mapped = buffer_with(accesses[: answer.access], answer.address)
    if mapped is None:
        return f"the byte at bus address 0x{answer.address:08x}"
    buffer = accesses[mapped]
    assert isinstance(buffer, Map)
    byte = f"byte {answer.address - buffer.address:,}"
    there = accesses[answer.access] if answer.access < len(accesses) else None
    if isinstance(there, Unmap) and there.address == buffer.address:
        return f"its {byte}"
    return f"{byte} of {buffer_text(accesses, mapped, facts)}"
