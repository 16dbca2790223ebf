# SPDX-License-Identifier: Apache-2.0
"""Varied programs until one differs or the time is over, and the difference with few changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy.typing as npt

from umakit import tvm_api
from umakit.errors import BuildError, DeviceError, LibraryError
from umakit.registration.backend import Backend
from umakit.testing.programs.accesses import Read, Write
from umakit.testing.programs.building import build_programs
from umakit.testing.programs.changes import text_of
from umakit.testing.programs.facts import Facts, facts_of
from umakit.testing.programs.replay import Answer, Replay
from umakit.testing.programs.report import NO_LAYER, ONLY_RTL, ProgramReport, ProgramsDifference
from umakit.testing.programs.variation import Program, drawn_program

BATCH = 25
"""Programs that are sent at once."""

MOST_REDUCTIONS = 200
"""Programs that are run to reduce one that differs."""


def check_programs(
    backend: Backend,
    network: tvm_api.IRModule,
    inputs: Mapping[str, npt.NDArray[Any]],
    folder: Path,
    *,
    seed: int = 0,
    seconds: float = 30.0,
    most: int = 1_000_000,
    only: int | None = None,
    tell: Callable[[str], None] = lambda sentence: None,
) -> ProgramReport:
    """Run varied programs on the C model and the RTL of a backend.

    Args:
        backend: the backend, with a section `[rtl]`.
        network: whose layers' accesses are recorded: small ones that the backend takes.
        inputs: arrays by name.
        folder: an empty one, for files.
        seed: equal seeds draw equal programs of equal networks.
        seconds: after the building, after which no further program is run.
        most: maximum number of programs.
        only: number of the one program to run; default: from 0 on.
        tell: called with each stage.

    Raises:
        UmakitError: the layers cannot be compiled, or the design does not fit its description.
    """
    started = time.monotonic()
    report = ProgramReport()
    if backend.configuration.is_only_rtl:
        report.not_run = ONLY_RTL
        return report
    tell("building varied programs")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        program, recording = build_programs(backend, network, inputs, folder)
    except (BuildError, DeviceError, LibraryError) as error:
        report.not_run = error.what  # layers on the RTL do not need the model
        return report
    report.layers = len(recording.layers)
    if not recording.layers:
        report.not_run = NO_LAYER
        return report
    facts = facts_of(backend, recording)

    def drawn(number: int) -> Program:
        return drawn_program(recording, facts, f"{seed}/{number}")

    begun = time.monotonic()
    with Replay(program, facts, folder) as replay:
        number = 0 if only is None else only
        end = number + (most if only is None else 1)
        told = begun
        while number < end and report.difference is None:
            batch = [drawn(each) for each in range(number, min(end, number + BATCH))]
            for program_, answer in zip(batch, replay.run(batch), strict=True):
                report.outcomes[answer.outcome] += 1
                report.cycles += answer.cycles
                if answer.outcome == "differs":
                    tell("reducing a varied program that differs")
                    found = _reduced(replay, facts, program_, answer, number)
                    report.difference = replace(found, seed=seed)
                    break
                number += 1
            if time.monotonic() - begun > seconds:
                break
            if time.monotonic() - told > 2.0:
                told = time.monotonic()
                tell(f"{report.outcomes.total():,} varied programs")
    report.seconds = time.monotonic() - started
    return report


def _reduced(
    replay: Replay, facts: Facts, program: Program, answer: Answer, number: int
) -> ProgramsDifference:
    """Return a difference of a program with as few changes as are needed for one."""
    left = MOST_REDUCTIONS

    def still(candidate: Program) -> bool:
        nonlocal program, answer, left
        left -= 1
        (found,) = replay.run([candidate])
        if found.outcome == "differs":
            program, answer = candidate, found
        return found.outcome == "differs"

    position = 0
    while position < len(program.changes) and left > 0:
        fewer = program.changes[:position] + program.changes[position + 1 :]
        if not still(program.with_changes(fewer)):
            position += 1
    changes = tuple(text_of(each, program.base, facts.name) for each in program.changes)
    return ProgramsDifference(number, sentence_of(answer, program, facts), changes)


def sentence_of(answer: Answer, program: Program, facts: Facts) -> str:
    """Return a difference in words."""
    accesses = program.accesses()
    at = f"access {answer.access:,} of {len(accesses):,}"
    if answer.access < len(accesses):
        access = accesses[answer.access]
        if isinstance(access, Write):
            at += f", a write of 0x{access.value:x} to {facts.name(access.offset)}"
        elif isinstance(access, Read):
            at += f", a read of {facts.name(access.offset)}"
    else:
        at = f"after all {len(accesses):,} accesses"
    if answer.kind == "failure":
        return f"{at}: {answer.sentence}"
    if answer.kind == "interrupt":
        return f"{at}: no interrupt of the RTL, the model raised one"
    if answer.kind == "memory":
        return (
            f"{at}: the byte at bus address 0x{answer.address:08x} is 0x{answer.found:02x} "
            f"instead of 0x{answer.expected:02x}"
        )
    return (
        f"{at}: {facts.name(answer.address)} is 0x{answer.found:08x} on the RTL instead of "
        f"0x{answer.expected:08x}"
    )
