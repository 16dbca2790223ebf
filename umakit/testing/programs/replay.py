# SPDX-License-Identifier: Apache-2.0
"""The program that runs varied programs on a model and on its RTL, and its answers."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from umakit.files.processes import Limits, started, usage_of
from umakit.testing.programs.accesses import ALL_BITS, Access, Map, Read, Rest, Unmap, Wait, Write
from umakit.testing.programs.facts import Facts
from umakit.testing.programs.variation import Program

LOOK_SECONDS = 0.2
"""Seconds between two readings of the processor time of running programs."""


@dataclass(frozen=True)
class Answer:
    """The result of a program.

    Attributes:
        outcome: `ok`; `error`, reported by both sides; `time`, `long`, `beyond` and `model` for
            programs that are not compared; `differs`.
        access: number of the access that showed a difference.
        refused: `model`, `rtl` or `both` if the difference is a refusal, else empty.
        address: offset of a register, or bus address.
        sentence: sentence of a simulator that failed; for a register, the bus error of the RTL's
            read, if any.
    """

    outcome: str
    cycles: int = 0
    access: int = 0
    kind: str = ""
    address: int = 0
    expected: int = 0
    found: int = 0
    sentence: str = ""
    refused: str = ""


def text_of_setting(facts: Facts) -> str:
    """Return the lines with settings common to all programs."""
    lines = [f"d {offset:x}" for offset in sorted(facts.starts)]
    if facts.busy is not None:
        lines.append(f"y {facts.busy[0]:x} {facts.busy[1]:x}")
    if facts.counts_work:
        lines.append("v 1")
    if facts.idle is not None:
        lines.append(f"n {facts.idle:x}")
    if facts.error is not None:
        lines.append(f"x {facts.error[0]:x} {facts.error[1]:x}")
    if not facts.ranges.is_error:
        lines.append("o 1")
    lines += [f"q {offset:x} {mask:x}" for offset, mask in facts.shown.items()]
    lines += [f"c {offset:x} {mask:x}" for offset, mask in facts.kept.items()]
    return "\n".join([*lines, ""])


def text_of_program(program: Program, number: int, facts: Facts) -> str:
    lines = [f"p {number} {program.pauses:x} {program.cycles:x}"]
    lines += [_line(each, facts) for each in program.accesses()]
    return "\n".join([*lines, "e", ""])


def _line(access: Access, facts: Facts) -> str:
    if isinstance(access, Write):
        return f"w {access.offset:x} {access.value:x}"
    if isinstance(access, Read):
        mask = 0 if access.offset in facts.uncompared else ALL_BITS
        expected = "" if facts.error is not None else f" {access.value:x}"
        return f"r {access.offset:x} {mask:x} {facts.kept.get(access.offset, 0):x}{expected}"
    if isinstance(access, Wait):
        return f"i {access.cycles:x}"
    if isinstance(access, Map):
        size, data = len(access.data), access.data.hex()
        return f"m {access.address:x} {size:x} {access.direction:x} {data}"
    if isinstance(access, Unmap):
        return f"u {access.address:x}"
    assert isinstance(access, Rest)
    return "s" if access.offset is None else f"s {access.offset:x} {access.mask:x} {access.value:x}"


class Replay:
    """Runs programs; a context manager."""

    def __init__(
        self,
        program: Path,
        facts: Facts,
        folder: Path,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._program, self._facts, self._folder = program, facts, folder
        self._environment = environment
        self._process: subprocess.Popen[str] | None = None
        self._stack = contextlib.ExitStack()
        self._ended = 0.0  # processor time of ended processes

    def __enter__(self) -> Replay:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    @property
    def seconds(self) -> float:
        """Processor time of all programs so far."""
        process = self._process
        return self._ended + (usage_of(process.pid).seconds if process is not None else 0.0)

    def run(self, programs: Sequence[Program], seconds: float = math.inf) -> list[Answer]:
        """Run programs; return the result of each.

        A program that exceeds its processor time, see `sim/programs/umakit_programs_replay.c`, or
        waits for ever is not compared.

        Args:
            seconds: value of `self.seconds` at which the run stops waiting.
        """
        answers: list[Answer] = []
        while len(answers) < len(programs) and self.seconds < seconds:
            begun = len(answers)
            answers += self._some(programs[begun:], seconds)
        return answers

    def _some(self, programs: Sequence[Program], end: float) -> list[Answer]:
        """Run programs until one ends the process, or until the time limit.

        Return no answers if an earlier program had ended the process.
        """
        before = self._process
        process = self._started()
        assert process.stdout is not None
        text = [text_of_program(each, n, self._facts) for n, each in enumerate(programs)]
        # Programs are longer than the buffer of a pipe, and answers are not.
        writing = threading.Thread(target=_send, args=(process, text), daemon=True)
        writing.start()
        answers: list[Answer] = []
        looked, is_over = time.monotonic(), False
        while len(answers) < len(programs) and not is_over:
            line = process.stdout.readline()
            if not line:
                break
            answers.append(read_answer(line))
            if time.monotonic() - looked > LOOK_SECONDS:
                looked, is_over = time.monotonic(), self.seconds >= end
        if len(answers) == len(programs):
            writing.join()
            return answers
        code = 0 if is_over else process.wait()
        self._end()
        writing.join()
        if is_over or (code == 0 and not answers and process is before):
            return answers  # the process was alive a moment ago
        if code in (-signal.SIGKILL, -signal.SIGVTALRM):
            answers.append(Answer("long"))
        elif code < 0 or not answers:
            how = f"signal {-code}" if code < 0 else f"status {code}"
            sentence = f"the simulation ended with {how}"
            answers.append(Answer("differs", kind="failure", sentence=sentence))
        return answers

    def _started(self) -> subprocess.Popen[str]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._end()
        said = self._stack.enter_context((self._folder / "said").open("w"))
        self._process, _ = self._stack.enter_context(
            started(
                [self._program, "replay"], self._folder, {**os.environ, **self._environment},
                Limits(None), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True,
            )
        )  # fmt: skip
        assert self._process.stdin is not None
        self._process.stdin.write(text_of_setting(self._facts))
        return self._process

    def _end(self) -> None:
        self._ended, self._process = self.seconds, None
        with contextlib.suppress(BrokenPipeError):
            self._stack.close()


def _send(process: subprocess.Popen[str], text: Sequence[str]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError, ValueError):
        process.stdin.write("".join(text))
        process.stdin.flush()


def read_answer(line: str) -> Answer:
    """Return the answer of a line, see `sim/programs/umakit_programs.h`."""
    _, outcome, *words = line.split()
    if outcome in ("ok", "error"):
        return Answer(outcome, cycles=int(words[0]))
    if outcome != "differs":
        return Answer(outcome, sentence=" ".join(words))
    address, expected, found = (int(word, 16) for word in words[3:6])
    refused = "" if words[2] == "none" else words[2]
    return Answer(
        outcome, 0, int(words[0]), words[1], address, expected, found, " ".join(words[6:]), refused
    )
