# SPDX-License-Identifier: Apache-2.0
"""A check of a backend: the layers of a plan, batch by batch, and their failures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from umakit.devices import HOST, Device, find_device
from umakit.devices.catalogue import RTL
from umakit.devices.designs import check_ports
from umakit.devices.waveforms import WaveFile
from umakit.errors import BuildError, InputError, LibraryError, short_path
from umakit.files.processes import processor_seconds
from umakit.files.staging import temporary_folder
from umakit.operators.drawing import NotDrawable
from umakit.registration.backend import Backend
from umakit.testing.check.batch import member_of, network_of, write_wave
from umakit.testing.check.cases import Case, read_case
from umakit.testing.check.checks import fails_beside_another
from umakit.testing.check.claims import Claim, refusal_of
from umakit.testing.check.isolation import (
    Tell,
    bond,
    fails_alone,
    is_same_cause,
    reduced,
    said_behind,
)
from umakit.testing.check.plan import DRAWS, Plan
from umakit.testing.check.report import CheckReport, Counts, Failure, Group, groups_of
from umakit.testing.check.session import Cases, Outcome, Session, Workers, outcome_of
from umakit.testing.programs import ProgramReport
from umakit.testing.programs.program_check import Wanted, check_programs
from umakit.testing.registers import RegisterReport, check_registers
from umakit.text.spelling import closest_or_all

SECONDS = 600.0
"""Limit of processor time of a check in seconds. A usual check takes a fraction of the limit, so
that slower machines run the same layers."""

PROGRAMS_SHARE = 0.25
"""Share of the time for varied programs."""

MOST_GROUPS = 3
"""Number of reduced groups of failures per pattern: further groups usually share a cause."""

ENOUGH = 1.5
"""Advised time of a check that was not finished, by the time that the finished layers foretell."""

LEAST_SECONDS = 20.0
"""Time for reducing failures that are found late."""


def check_backend(
    backend: Backend,
    *,
    seconds: float = SECONDS,
    seed: int = 0,
    operators: Sequence[str] = (),
    draws: int | None = None,
    least_draws: int | None = None,
    device: str = HOST.name,
    jobs: int = 1,
    tell: Tell = lambda sentence: None,
) -> CheckReport:
    """Check a backend: compare its device's registers with their map, and run drawn layers.

    The layers cover each value that the backend's patterns accept, and depend on the seed alone. If
    `operators` is empty, the registers of simulated devices with a map are compared. On RTL, varied
    programs then run on the C model and the RTL for a part of the time.

    Args:
        seconds: processor time after which no further batch begins. The report then lists the
            missing layers and marks the check as incomplete.
        seed: equal seeds draw equal layers.
        operators: names of the patterns to check; default: all.
        draws: total number of layers; too few leave the check incomplete. Default: `least_draws`,
            or more if needed for every value.
        least_draws: number of layers if `draws` is None. Default: `plan.DRAWS`; on RTL, boards and
            emulators, which are slow, the number needed for values and limits.
        device: name of the device for the libraries.
        jobs: number of processes that build and run layers. Above 1, processes load the backend
            from its folder, and a script has to call this function below `if __name__ ==
            "__main__"`.
        tell: called with each stage.

    Raises:
        InputError: the backend registers no such pattern.
        AcceleratorConfigError: `accel.toml` cannot be used.
        RegisterMapError: the register map is inconsistent.
        DeviceError: a process ended.
    """
    started = processor_seconds()
    report = CheckReport(backend.target_name, seed)
    machine = find_device(device)
    check_ports([backend], machine)
    registers = None if operators or not machine.is_host else _registers(backend, machine, tell)
    if least_draws is None:
        least_draws = DRAWS if machine.is_host and not machine.runs_rtl else 0
    with temporary_folder("umakit-check-") as folder:
        session = Session(backend, folder, device)
        chosen = _chosen(session.claims, operators)
        plan = Plan(session.claims, chosen, seed, draws, least_draws)
        run = _Run(report, plan, session, seconds, tell)
        with Workers(session, jobs, folder, device) as workers:
            run.all(workers, folder, has_programs=machine.runs_rtl and not operators)
        run.finish(folder / "beside", machine)
    if registers is not None:
        report.add_registers(registers)
    report.seconds = processor_seconds() - started
    report.unfinished = run.unfinished
    return report


class _Run:
    """The progress of a check through its plan; `seconds` are those of all finished batches."""

    def __init__(
        self, report: CheckReport, plan: Plan, session: Session, seconds: float, tell: Tell
    ) -> None:
        self._report, self._plan, self._session, self._tell = report, plan, session, tell
        self._most, self.seconds, self._done = seconds, 0.0, 0
        self.right: list[Case] = []
        self._is_over = False
        self._failed_in: dict[str, list[Case]] = {}
        report.operators = {name: Counts() for name in plan.names}
        report.covers = plan.covers

    def all(self, workers: Workers, folder: Path, *, has_programs: bool) -> None:
        """Run all batches, and varied programs after a first batch without failures."""
        report, plan = self._report, self._plan
        for cases, outcome in workers.outcomes(self._batches()):
            is_first = not self._done
            self._note(cases, outcome)
            if has_programs and is_first and not report.failures:
                wanted = Wanted(report.seed, self._seconds_of_programs, plan.programs)
                found = _programs(self._session, plan.names, folder, wanted, self._tell)
                report.add_programs(found)

    def _batches(self) -> Iterator[Cases]:
        self._tell("looking for layers with every value that the patterns accept")
        for cases in self._plan.batches():
            if self.seconds > self._most:
                self._is_over = True
                return
            yield cases

    @property
    def unfinished(self) -> str:
        """Two sentences about missing layers of the plan; empty if all have run."""
        draws = self._plan.draws
        if not self._is_over or not self._done:
            return ""
        enough = ENOUGH * self.seconds * draws / self._done
        return (
            f"{self._most:g} s of processor time were over after {self._done} of {draws} layers "
            f"({self._report.seconds:.0f} s with begun work). "
            f"--seconds {math.ceil(enough / 10) * 10} runs about all of them"
        )

    def _note(self, cases: Cases, outcome: Outcome) -> None:
        report, claims = self._report, self._session.claims
        self._done += len(cases)
        self.seconds += outcome.seconds
        wrong = {str(each.case) for each in outcome.failures}
        accepted = {str(case) for case, is_accepted in cases if is_accepted}
        _count(report, cases, outcome)
        ran = [case for case, on_accelerator in outcome.ran if on_accelerator]
        for case in ran:
            for layer in case.layers:
                self._plan.covers[layer.pattern].note(layer)
        report.orders.note(ran, claims)
        self.right += [each for each in ran if str(each) in accepted and str(each) not in wrong]
        own = [case for case, _ in cases]
        self._failed_in |= dict.fromkeys(wrong, own)
        of_all = f" of {self._plan.draws}" if self._plan.draws > self._done else ""
        self._tell(f"{self._done}{of_all} layers")

    @property
    def _seconds_of_programs(self) -> float:
        """Processor time for varied programs: a share of the whole, less if little time is left."""
        share = self._most * PROGRAMS_SHARE
        return max(share / 2, min(share, self._most - self.seconds))

    def finish(self, folder: Path, device: Device) -> None:
        """Reduce failures, run layers next to another accelerator, and note what did not run."""
        report, claims = self._report, self._session.claims
        report.needed = self._plan.needed or 0
        of_layers = [each for each in report.failures if each.case is not None]
        report.failures = [each for each in report.failures if each.case is None]
        groups = groups_of(of_layers, self.right, self._plan.covers)
        self._reduce(groups, max(LEAST_SECONDS, self._most - self.seconds))
        if self.right and not report.failures:
            self._tell("next to another accelerator")
            backend, right = self._session.backend, self.right[::-1]
            report.failures = fails_beside_another(backend, right, folder, device)
        drawn = (claims[name] for name in self._plan.names)
        report.failures += [
            Failure(claim.name, claim.undrawn, None, claim.how_to_draw)
            for claim in drawn
            if claim.drawing is None
        ]
        _add_what_never_ran(report)

    def _reduce(self, groups: Sequence[Group], seconds: float) -> None:
        report, claims = self._report, self._session.claims
        for counts in report.operators.values():
            counts.failed = 0
        printed: list[tuple[Failure, list[Group]]] = []
        of_pattern = Counter(group.failures[0].pattern for group in groups)
        total = sum(min(count, MOST_GROUPS) for count in of_pattern.values())
        done: Counter[str] = Counter()
        for group in groups:
            failure = group.failures[0]
            if done[failure.pattern] < MOST_GROUPS:
                done[failure.pattern] += 1
                start = f"reducing failure {sum(done.values())} of {total}: "
                self._tell(f"{start}{failure.pattern}")
                time = seconds / min(len(groups), MOST_GROUPS)

                def told(text: str, start: str = start) -> None:
                    self._tell(f"{start}{text}")

                found, own = reduced(group, self._behind, self._session, time, told), [group]
                same = next((each for each in printed if is_same_cause(each[0], found)), None)
                if same is not None:
                    printed.remove(same)
                    found = min(same[0], found, key=lambda each: len(str(each.case)))
                    own += same[1]
                printed.append((found, own))
        layers: Counter[int] = Counter()
        for failure, its in ((failure, group) for group in groups for failure in group.failures):
            drawing, counts = claims[failure.pattern].drawing, report.operators[failure.pattern]
            assert drawing is not None
            bonds = [
                bond(failure, found, its if its in own else None, drawing) for found, own in printed
            ]
            layers[bonds.index(max(bonds))] += max(bonds) > 0
            counts.failed += 1
            counts.not_examined += max(bonds) == 0
        report.failures += [
            replace(each, layers=layers[number]) for number, (each, _) in enumerate(printed)
        ]

    def _behind(self, case: Case) -> list[Case]:
        """Return the cases that ran before a failing case in its library."""
        texts = [str(each) for each in self._failed_in.get(str(case), [])]
        place = texts.index(str(case)) if str(case) in texts else 0
        return self._failed_in[str(case)][:place] if place else []


def check_only_registers(backend: Backend, *, device: str = HOST.name) -> CheckReport:
    """Compare the registers of a backend's simulated device with their map; run no layers."""
    started = processor_seconds()
    report = CheckReport(backend.target_name, 0)
    found = check_registers(backend, device=find_device(device))
    if found is None:
        raise InputError(
            f"{backend.target_name} has no register map or no simulated device",
            where=short_path(backend.folder),
            fix="write registers.toml into this folder, and set simulator in accel.toml",
        )
    report.add_registers(found)
    report.seconds = processor_seconds() - started
    return report


def check_only_program(
    backend: Backend, program: int, *, seed: int = 0, wave: WaveFile | None = None
) -> CheckReport:
    """Run one varied program of a check with this seed on C model and RTL; check no layers."""
    started = processor_seconds()
    report = CheckReport(backend.target_name, seed)
    wanted = Wanted(seed, only=program, wave=wave)
    report.add_programs(check_only_programs(backend, wanted))
    assert report.programs is not None
    if report.programs.not_run and not report.programs.mistake:
        raise InputError(
            f"there are no varied programs: {report.programs.not_run}",
            where=short_path(backend.folder),
        )
    report.seconds = processor_seconds() - started
    return report


def check_only_programs(backend: Backend, wanted: Wanted) -> ProgramReport:
    """Run varied programs on the C model and the RTL of a backend; check no layers."""
    check_ports([backend], RTL)
    with temporary_folder("umakit-check-") as folder:
        session = Session(backend, folder, RTL.name)
        return _programs(session, list(session.claims), folder, wanted)


def _programs(
    session: Session,
    names: Sequence[str],
    folder: Path,
    wanted: Wanted,
    tell: Tell = lambda sentence: None,
) -> ProgramReport:
    first = next(Plan(session.claims, names, wanted.seed).batches())
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
        return None  # layers need these files too, and report the error


def check_layer(
    backend: Backend, case: str, *, device: str = HOST.name, wave: WaveFile | None = None
) -> CheckReport:
    """Check one case, given as text of a report.

    Args:
        case: text of the case.
        device: name of the device.
        wave: file for the waveform of the design; None for none.

    Raises:
        InputError: the text is no case of this backend.
    """
    started = processor_seconds()
    report = CheckReport(backend.target_name, 0)
    with temporary_folder("umakit-check-") as folder:
        session = Session(backend, folder, device)
        found = read_case(case)
        parts = (*found.before, found)
        names = [layer.pattern for part in parts for layer in part.layers]
        _chosen(session.claims, names)
        report.operators = {name: Counts() for name in names}
        try:
            refusal = refusal_of(found, session.claims)
        except NotDrawable as reason:
            raise InputError(f"there is no such layer: {reason}", where=str(found)) from None
        cases = [*((each, True) for each in found.before), (replace(found, before=()), not refusal)]
        _count(report, cases, outcome_of(session, cases))
        for number, each in enumerate(report.failures):
            if each.case is cases[-1][0]:
                is_right = found.before and fails_alone(session, each.case) is None
                whole = replace(each, case=found)
                report.failures[number] = said_behind(whole) if is_right else whole
        if refusal:
            _note_refusal(report, found.pattern, refusal)
        if wave is not None:
            write_wave(backend, found, session.claims, find_device(device), wave)
    report.seconds = processor_seconds() - started
    return report


def _note_refusal(report: CheckReport, pattern: str, refusal: str) -> None:
    counts = report.operators[pattern]
    what = f"the layer does not run on the accelerator: {refusal}"
    if counts.ran:
        counts.ran, counts.refused = counts.ran - 1, counts.refused + 1
        what = f"the pattern refuses the layer, and another one computes it: {refusal}"
    if not report.failures:
        report.failures.append(Failure(pattern, what, None, "look at its settings"))


def _chosen(claims: dict[str, Claim], wanted: Sequence[str]) -> list[str]:
    for name in wanted:
        if name not in claims:
            raise InputError(
                f"the backend registers no pattern {name!r}",
                fix=closest_or_all(name, list(claims), "patterns"),
            )
    return [name for name in claims if not wanted or name in wanted]


def _count(report: CheckReport, cases: Cases, outcome: Outcome) -> None:
    for case, _ in cases:
        report.operators[case.pattern].drawn += 1
    for case, ran in outcome.ran:
        report.operators[case.pattern].ran += ran
        report.operators[case.pattern].refused += not ran
    for case in outcome.not_run:
        report.operators[case.pattern].not_run += 1
    for case in outcome.does_not_fit:
        report.operators[case.pattern].does_not_fit += 1
    for failure in outcome.failures:
        report.operators[failure.pattern].failed += 1
    report.failures += outcome.failures
    for case, predicted, simulated in outcome.cycles:
        report.cycles.add(case, predicted, simulated)


def _add_what_never_ran(report: CheckReport) -> None:
    """Add a failure for each pattern, and for each listed value, that no layer can have."""
    for name, cover in report.covers.items():
        if not cover.has_any:
            report.failures.append(
                Failure(
                    name, "the pattern accepts no layer: none was found that it does not refuse",
                    None, "look at its constraints: they may contradict each other",
                )
            )  # fmt: skip
            continue
        for covered in cover.aspects:
            for value in covered.impossible:
                what = f"{covered.aspect.name} {covered.aspect.text(value)} of {name} never ran"
                reason = covered.refused[value].reason or "there is no such layer"
                report.failures.append(
                    Failure(
                        name, f"{what}: a constraint lists it, and each layer is refused: {reason}",
                        None, "take it out of the constraint, or change what refuses it",
                    )
                )  # fmt: skip
