# SPDX-License-Identifier: Apache-2.0
"""A check of a backend: batches of cases until enough are drawn or the time is over."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from umakit.devices import HOST, Device, find_device
from umakit.devices.catalogue import RTL
from umakit.devices.designs import check_ports
from umakit.devices.waveforms import WaveFile
from umakit.errors import BuildError, InputError, LibraryError, short_path
from umakit.files.staging import temporary_folder
from umakit.operators.drawing import NotDrawable
from umakit.registration.backend import Backend
from umakit.testing.check.batch import member_of, network_of
from umakit.testing.check.beside import fails_beside_another
from umakit.testing.check.cases import Case, read_case
from umakit.testing.check.claims import Claim, accepts, refusal_of
from umakit.testing.check.drawing import Walk
from umakit.testing.check.report import CheckReport, Counts, Failure
from umakit.testing.check.session import Session
from umakit.testing.check.shrink import shrunk
from umakit.testing.check.waves import write_wave
from umakit.testing.check.workers import Cases, Outcome, Workers, outcome_of
from umakit.testing.programs import ProgramReport
from umakit.testing.programs.program_check import Wanted, check_programs
from umakit.testing.registers import RegisterReport, check_registers
from umakit.text.spelling import closest_or_all

SECONDS, DRAWS = 120.0, 1000
BATCH, FIRST_BATCH, LEAST_BATCH = 100, 20, 10
"""Most cases in one library; those of the first one, which soon says what is wrong everywhere; and
the fewest that are worth one before the time ends."""

CHAINED = 0.15
"""Share of cases that are chains of two layers."""

PROGRAMS_SHARE, PROGRAMS_PER_DRAW = 0.25, 5
"""Share of the time for varied programs, and most of them for each layer that may be drawn."""

Tell = Callable[[str], None]

LEAST_SECONDS = 20.0
"""Time for reducing failures that are found late."""


def check_backend(
    backend: Backend,
    *,
    seconds: float = SECONDS,
    seed: int = 0,
    operators: Sequence[str] = (),
    draws: int = DRAWS,
    device: str = HOST.name,
    jobs: int = 1,
    tell: Tell = lambda sentence: None,
) -> CheckReport:
    """Compare the registers of a backend's device with their map, draw layers, and check these.

    Layers are drawn at and around what the backend accepts. Registers are those of simulated
    devices with a map, if `operators` is empty. On RTL, varied programs then run
    beside the C model for a part of the time.

    Args:
        backend: the backend.
        seconds: in which batches are drawn, built and run, as long as they take what the last one
            took per layer; what is left of them, and some seconds at least, is for reducing
            failures.
        seed: equal seeds draw equal cases.
        operators: names of the patterns to check; default: all.
        draws: number of cases of all patterns together.
        device: name of the device that libraries run on.
        jobs: number of processes that build and run layers. Above 1, they load the backend from
            its folder, and a script has to call this below `if __name__ == "__main__"`.
        tell: called with each stage.

    Raises:
        InputError: the backend registers no such pattern.
        AcceleratorConfigError: its `accel.toml` cannot be used.
        RegisterMapError: its register map is not sound.
        DeviceError: a process ended.
    """
    started = time.monotonic()
    report = CheckReport(backend.target_name, seed)
    machine = find_device(device)
    check_ports([backend], machine)
    registers = None if operators or not machine.is_host else _registers(backend, machine, tell)
    with temporary_folder("umakit-check-") as folder:
        session = Session(backend, folder, device, started + seconds)
        chosen = _chosen(session.claims, operators)
        report.operators = {name: Counts() for name in chosen}
        drawing = _draws(session, chosen, np.random.default_rng(seed))
        claims = session.claims
        undrawn = [_undrawn(claims[name]) for name in chosen if claims[name].drawing is None]
        batches = _Batches(drawing, draws, session.end, tell)
        accepted: list[Case] = []
        is_varied = False
        with Workers(session, min(jobs, -(-draws // BATCH)), folder, device) as workers:
            for cases, outcome in workers.outcomes(batches):
                _count(report, cases, outcome)
                batches.note(len(cases), outcome.seconds)
                accepted += [case for case, is_accepted in cases if is_accepted]
                if machine.runs_rtl and not operators and not report.failures and not is_varied:
                    is_varied = True
                    share = seconds * PROGRAMS_SHARE
                    left = min(share, session.end - time.monotonic())
                    wanted = Wanted(seed, max(share / 2, left), draws * PROGRAMS_PER_DRAW)
                    report.add_programs(_programs(session, folder, wanted, tell))
                if report.failures:
                    break
        left_seconds = max(LEAST_SECONDS, seconds - (time.monotonic() - started))
        report.failures = _reduced(report, session, left_seconds, tell)
        if accepted and not report.failures:
            tell("next to another accelerator")
            beside = folder / "beside"
            report.failures = fails_beside_another(backend, accepted[::-1], beside, machine)
    report.failures += undrawn
    _without_runs(report)
    if registers is not None:
        report.add_registers(registers)
    report.seconds = time.monotonic() - started
    return report


def check_only_registers(backend: Backend, *, device: str = HOST.name) -> CheckReport:
    """Compare the registers of a backend's simulated device with their map, and check no layer.

    Args:
        backend: the backend.
        device: `host` or `rtl`: what answers.

    Raises:
        InputError: the backend has no simulated device, or no register map.
        RegisterMapError: the map is not sound.
        BuildError: a file of the simulator does not compile.
        LibraryError: a file is missing, or cannot be read.
        AcceleratorConfigError: `accel.toml` cannot be used.
    """
    started = time.monotonic()
    report = CheckReport(backend.target_name, 0)
    found = check_registers(backend, device=find_device(device))
    if found is None:
        raise InputError(
            f"{backend.target_name} has no register map or no simulated device",
            where=short_path(backend.folder),
            fix="write registers.toml into this folder, and set simulator in accel.toml",
        )
    report.add_registers(found)
    report.seconds = time.monotonic() - started
    return report


def check_only_program(
    backend: Backend, program: int, *, seed: int = 0, wave: WaveFile | None = None
) -> CheckReport:
    """Run one varied program on the C model and the RTL of a backend, and check no layer.

    Args:
        backend: the backend.
        program: its number, as a report has it.
        seed: of the check that drew it.
        wave: where the waveform of the design is written; None for none.

    Raises:
        InputError: the backend has no section `[rtl]`, or no program can be made.
        UmakitError: the drawn layers cannot be compiled.
        OutputError: the waveform cannot be written.
    """
    started = time.monotonic()
    report = CheckReport(backend.target_name, seed)
    check_ports([backend], RTL)
    with temporary_folder("umakit-check-") as folder:
        session = Session(backend, folder, RTL.name)
        wanted = Wanted(seed, math.inf, only=program, wave=wave)
        report.add_programs(_programs(session, folder, wanted))
    assert report.programs is not None
    if report.programs.not_run and not report.programs.mistake:
        raise InputError(
            f"there are no varied programs: {report.programs.not_run}",
            where=short_path(backend.folder),
            fix="leave --program out",
        )
    report.seconds = time.monotonic() - started
    return report


def check_only_programs(backend: Backend, most: int, *, seed: int = 0) -> ProgramReport:
    """Run varied programs on the C model and the RTL of a backend, and check no layer.

    Args:
        backend: the backend.
        most: how many.
        seed: equal seeds draw equal programs.

    Raises:
        UmakitError: the drawn layers cannot be compiled, or the design does not fit.
    """
    check_ports([backend], RTL)
    with temporary_folder("umakit-check-") as folder:
        session = Session(backend, folder, RTL.name)
        return _programs(session, folder, Wanted(seed, math.inf, most))


def _programs(
    session: Session, folder: Path, wanted: Wanted, tell: Tell = lambda sentence: None
) -> ProgramReport:
    """Run varied programs of the first drawn layers."""
    drawing = _draws(session, list(session.claims), np.random.default_rng(wanted.seed))
    first = itertools.islice(drawing, FIRST_BATCH)
    cases = [case for case, is_accepted in first if is_accepted]
    members = [member_of(case, n, session.claims, True) for n, case in enumerate(cases)]
    inputs = {name: array for each in members for name, array in each.inputs.items()}
    network = network_of(members)
    return check_programs(session.backend, network, inputs, folder / "programs", wanted, tell)


def _registers(backend: Backend, device: Device, tell: Tell) -> RegisterReport | None:
    tell("comparing registers with their map")
    try:
        return check_registers(backend, device=device)
    except (BuildError, LibraryError):
        return None  # layers need these files too, and say what is wrong with them


def check_layer(
    backend: Backend, case: str, *, device: str = HOST.name, wave: WaveFile | None = None
) -> CheckReport:
    """Check one case, as a report prints it.

    Args:
        backend: the backend.
        case: text of the case.
        device: name of the device that it runs on.
        wave: where the waveform of the design is written; None for none.

    Raises:
        InputError: the text is no case of this backend.
    """
    started = time.monotonic()
    report = CheckReport(backend.target_name, 0)
    with temporary_folder("umakit-check-") as folder:
        session = Session(backend, folder, device)
        found = read_case(case)
        _chosen(session.claims, [layer.pattern for layer in found.layers])
        report.operators = {layer.pattern: Counts() for layer in found.layers}
        try:
            refusal = refusal_of(found, session.claims)
        except NotDrawable as reason:
            raise InputError(f"there is no such layer: {reason}", where=str(found)) from None
        cases = [(found, not refusal)]
        _count(report, cases, outcome_of(session, cases))
        if refusal and report.passed:
            what = f"the layer does not run on the accelerator: {refusal}"
            report.failures.append(Failure(found.pattern, what, None, "look at its settings"))
        if wave is not None:
            write_wave(backend, found, session.claims, find_device(device), wave)
    report.seconds = time.monotonic() - started
    return report


def _chosen(claims: dict[str, Claim], wanted: Sequence[str]) -> list[str]:
    for name in wanted:
        if name not in claims:
            raise InputError(
                f"the backend registers no pattern {name!r}",
                fix=closest_or_all(name, list(claims), "patterns"),
            )
    return [name for name in claims if not wanted or name in wanted]


def _draws(
    session: Session, names: Sequence[str], random: np.random.Generator
) -> Iterator[tuple[Case, bool]]:
    """Yield cases of all claims in turn, with what their patterns say."""
    walks = {}
    for name in names:
        claim = session.claims[name]
        if claim.drawing is None:
            continue
        walk = Walk(claim, random)
        if walk.has_any:
            walks[name] = walk
    for _, walk in zip(range(FIRST_BATCH), itertools.cycle(walks.values())):
        layer, accepted = walk.draw()  # small ones first: what is wrong everywhere is soon found
        yield Case((layer,)), accepted
    for walk in walks.values():
        for layer, accepted in walk.edges():
            if accepted:
                yield Case((layer,)), True
    while walks:
        for walk in walks.values():
            layer, accepted = walk.draw()
            case = Case((layer,))
            if accepted and random.random() < CHAINED:
                other = walks[str(random.choice(list(walks)))]
                chain = Case((layer, other.draw()[0]))
                if _is_chain(session, chain):
                    case = chain
            yield case, accepted


class _Batches:
    """Batches until enough are drawn or the time is over.

    Args:
        drawing: cases with what their patterns say.
        draws: number of cases of all batches together.
        end: value of `time.monotonic` until which batches shall be done.
        tell: called before each batch and after it.
    """

    def __init__(
        self, drawing: Iterator[tuple[Case, bool]], draws: int, end: float, tell: Tell
    ) -> None:
        self._drawing, self._draws, self._end, self._tell = drawing, draws, end, tell
        self._done = 0
        self._seconds_per_case: float | None = None

    def note(self, count: int, seconds: float) -> None:
        """Count a batch that is done, for the size of the next ones."""
        self._done += count
        self._seconds_per_case = seconds / count
        self._tell(f"{self._done} of {self._draws} layers")

    def __iter__(self) -> Iterator[Cases]:
        left = self._draws
        while left > 0:
            cases = list(itertools.islice(self._drawing, min(left, self._size())))
            if not cases:
                return
            if left == self._draws:
                self._tell(f"building the first {len(cases)} of {self._draws} layers")
            left -= len(cases)
            yield cases

    def _size(self) -> int:
        """Return how many cases are built and run in the time that is left."""
        if self._seconds_per_case is None:
            return FIRST_BATCH
        size = int((self._end - time.monotonic()) / self._seconds_per_case)
        return min(size, BATCH) if size >= LEAST_BATCH else 0


def _is_chain(session: Session, case: Case) -> bool:
    try:
        return accepts(case, session.claims)
    except NotDrawable:
        return False


def _undrawn(claim: Claim) -> Failure:
    return Failure(claim.name, claim.undrawn, None, claim.how_to_draw)


def first_failures(report: CheckReport) -> list[Failure]:
    """Return the first failure of each pattern, those of single layers before those of chains.

    A chain with a layer of a pattern that fails alone is left out, and not counted: its other
    layer reads what is wrong.
    """
    alone = {each.pattern for each in report.failures if not _is_chain_failure(each)}
    first: dict[str, Failure] = {}
    for failure in sorted(report.failures, key=_is_chain_failure):
        layers = failure.case.layers if failure.case is not None else ()
        if _is_chain_failure(failure) and alone & {layer.pattern for layer in layers}:
            report.operators[failure.pattern].failed -= 1
        else:
            first.setdefault(failure.pattern, failure)
    return list(first.values())


def _reduced(report: CheckReport, session: Session, seconds: float, tell: Tell) -> list[Failure]:
    """Return the first failure of each pattern, with a case that is as simple as possible.

    A chain of which a single layer fails, too, is a failure of that layer's pattern.
    """
    first = first_failures(report)
    found: dict[str, Failure] = {}
    for failure in first:
        reduced = failure
        if failure.case is not None:
            tell(f"reducing a failure of {failure.pattern}")
            reduced = shrunk(failure, session.claims, session.failing, seconds / len(first))
        if reduced.pattern != failure.pattern:
            report.operators[failure.pattern].failed -= 1
            report.operators.setdefault(reduced.pattern, Counts()).failed += 1
        found.setdefault(reduced.pattern, reduced)
    return list(found.values())


def _is_chain_failure(failure: Failure) -> bool:
    return failure.case is not None and len(failure.case.layers) > 1


def _count(report: CheckReport, cases: Cases, outcome: Outcome) -> None:
    for case, _ in cases:
        report.operators[case.pattern].drawn += 1
    for pattern, ran in outcome.ran:
        report.operators[pattern].ran += ran
        report.operators[pattern].refused += not ran
    for pattern in outcome.not_run:
        report.operators[pattern].not_run += 1
    for failure in outcome.failures:
        report.operators[failure.pattern].failed += 1
    report.failures += outcome.failures
    for case, predicted, simulated in outcome.cycles:
        report.cycles.add(case, predicted, simulated)


def _without_runs(report: CheckReport) -> None:
    """Add a failure for each claimed operator of which no layer ran."""
    failed = {failure.pattern for failure in report.failures}
    for name, counts in report.operators.items():
        if not counts.ran and name not in failed and not report.failures:
            report.failures.append(
                Failure(
                    name, f"none of {counts.drawn} drawn layers ran on the accelerator", None,
                    "look at the constraints of the pattern: they may refuse every layer",
                )
            )  # fmt: skip
