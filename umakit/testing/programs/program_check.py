# SPDX-License-Identifier: Apache-2.0
"""Varied programs until the time is over, and each kind of difference with few changes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy.typing as npt

from umakit import tvm_api
from umakit.devices.waveforms import Wave, WaveFile, written_wave
from umakit.errors import BuildError, DeviceError, LibraryError
from umakit.registration.backend import Backend
from umakit.testing.programs.building import build_programs
from umakit.testing.programs.facts import Facts, contradiction, facts_of
from umakit.testing.programs.recording import Recording
from umakit.testing.programs.replay import Answer, Replay
from umakit.testing.programs.report import (
    NO_LAYER,
    ONLY_RTL,
    SKIPPED,
    ProgramReport,
    ProgramsDifference,
)
from umakit.testing.programs.sentences import change_text, difference_text, place_of
from umakit.testing.programs.variation import Program, drawn_program
from umakit.testing.programs.verdicts import MAP, verdict

BATCH = 25
"""Programs that are sent at once."""

MOST_REDUCTIONS = 200
"""Programs that are run to reduce one that differs."""

REDUCTION_SECONDS = 8.0
"""Limit of processor time for the reduction of the first program of a kind."""

MOST_KINDS = 20
"""Kinds of differences, after which no further program is run."""

Kind = tuple[str, str, str]
"""Kind, place and who refuses it."""


@dataclass(frozen=True)
class Wanted:
    """Which programs to run.

    Attributes:
        seed: equal seeds draw equal programs of equal networks.
        seconds: of processor time of programs, after which no further one is run.
        most: maximum number of programs.
        only: number of the one program to run; None: from 0 on.
        wave: where the waveform of the one program is written; None for none.
    """

    seed: int = 0
    seconds: float = 30.0
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
    """Run varied programs on the C model and the RTL of a backend.

    Args:
        backend: the backend, with a section `[rtl]`.
        network: whose layers' accesses are recorded: small ones that the backend takes.
        inputs: arrays by name.
        folder: an empty one, for files.
        wanted: which programs to run.
        tell: called with each stage.

    Raises:
        UmakitError: the layers cannot be compiled, or the design does not fit its description.
        OutputError: the waveform cannot be written.
    """
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
    """Run a varied program once more with a waveform, unless it is one that is not compared."""
    with written_wave(file, wave, folder) as environment:
        with Replay(program, facts, folder, environment) as replay:
            outcome = replay.run([last])[0].outcome
        if outcome in SKIPPED:
            file.why = f"the program is not compared, as it would {SKIPPED[outcome]}"
            Path(environment["UMAKIT_RTL_WAVE"]).unlink(missing_ok=True)


class _Search:
    """Runs programs, and collects kinds of differences.

    Args:
        replay: runs them.
        facts: what is known of registers.
        recording: what they are made of.
        wanted: which ones.
        report: what is found is added to.

    Attributes:
        last: the last program, as it was reduced; None if none was run.
    """

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
        """Run programs until the time is over, or enough are run."""
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
        is_failure, fix = verdict(answer, program, facts, self._recording)
        found = ProgramsDifference(
            program=number,
            what=difference_text(answer, program.accesses(), facts),
            changes=tuple(change_text(each, program.base, facts) for each in program.changes),
            kind=kind[0],
            place=kind[1],
            refused=kind[2],
            is_failure=is_failure,
            fix=fix,
            seed=self._wanted.seed,
        )
        self._report.differences.append(found)

    def reduced(self, program: Program, answer: Answer) -> tuple[Program, Answer]:
        """Return a program that differs in the same way, with as few changes as are needed."""
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
