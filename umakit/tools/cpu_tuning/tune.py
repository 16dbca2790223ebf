# SPDX-License-Identifier: Apache-2.0
"""Tuning of all kernels of a model for a CPU; results are recorded after each trial.

1. Trial 1 has the second choice of each kernel (the first is the rule's own), trial 2 the third one
   and so on. Kernels that are faster are measured a second time; those that are faster again take
   the choice, if it is the best one so far.
2. All choices are measured together. What is not faster there is given up.

Instructions are counted instead of times on a device; they are the same in each run, so that fewer
of them is all that is asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from umakit.errors import RecordsError
from umakit.files.staging import temporary_folder
from umakit.library.options import ExportOptions
from umakit.lower.choice_records import existing_kernels, keep_kernels
from umakit.lower.kernel_records import KernelRecord, Times
from umakit.lower.record_owners import Owner
from umakit.lower.tiling_records import check_records_file
from umakit.machine.cpu import cpu_file, find_cpu
from umakit.machine.kernel_choices import Choice, KernelKey
from umakit.pipeline import Network
from umakit.registration.inputs import input_files
from umakit.tools.cpu_tuning.compare import difference, is_faster, times_of
from umakit.tools.cpu_tuning.meters import Meter
from umakit.tools.cpu_tuning.trials import Built, Figures, Trials
from umakit.tools.tuning.workers import ThisProcess

ROUNDS = 15
"""Rounds in which a trial and the rules' own choices take turns."""


@dataclass(frozen=True)
class CpuEffort:
    """The extent of the search.

    Attributes:
        trials: most other choices of a kernel that are tried.
        seconds: no trial begins after this time.
    """

    trials: int = 12
    seconds: float = 900.0


@dataclass(frozen=True)
class CpuProgress:
    """Progress of the tuning of a model.

    Attributes:
        trial, trials: number of the trial, from 1, and of all.
        kernels: number of kernels of which it tries another choice.
        faster: number of kernels so far that are faster than with the rule's own choice.
        differs: why none of the choices of the trial is taken; empty if they can be.
    """

    trial: int
    trials: int
    kernels: int
    faster: int
    differs: str = ""


@dataclass(frozen=True)
class TunedKernel:
    """A kernel whose search has ended.

    Attributes:
        record: its record.
        candidates: number of choices that it can have.
    """

    record: KernelRecord
    candidates: int


@dataclass(frozen=True)
class TunedCpu:
    """The result of the tuning of a model.

    Attributes:
        kernels: all kernels that have a choice, in the order of the network.
        trials: number of trials that ran.
        times: processor times of the whole network with all choices over those with the rules' own
            ones; None if there are none of others, or if instructions are counted.
        instructions: instructions of the network with all choices; None if times are measured.
        own_instructions: the same with the rules' own choices.
        is_complete: whether no trial was left out for want of time.
    """

    kernels: tuple[TunedKernel, ...]
    trials: int
    times: Times | None
    instructions: int | None
    own_instructions: int | None
    is_complete: bool


@dataclass
class _Search:
    """The state of a search.

    Attributes:
        trials: builds and compares libraries.
        own: the library with the rules' own choices.
        counts: whether instructions are counted.
        records: by kernel.
    """

    trials: Trials
    own: Built
    counts: bool
    records: dict[KernelKey, KernelRecord] = field(default_factory=dict)

    def begin(self, existing: Mapping[KernelKey, KernelRecord]) -> None:
        """Take existing records that are of the rule's choices today, and begin the others."""
        for key, chosen in self.own.made.items():
            if key not in self.own.operators:
                continue
            old, own = existing.get(key), chosen.candidates[0]
            fits = old is not None and old.own == own and old.choice in chosen.candidates
            operators = self.own.operators[key]
            self.records[key] = (
                replace(old, operators=operators)
                if old is not None and fits
                else KernelRecord(key, operators, own, own, 0)
            )

    def tried_in(self, trial: int) -> dict[KernelKey, Choice]:
        """Return the choices of a trial, of the kernels that have not had it yet."""
        return {
            key: self.own.made[key].candidates[trial]
            for key, record in self.records.items()
            if record.trials < trial < len(self.own.made[key].candidates)
        }

    @property
    def chosen(self) -> dict[KernelKey, Choice]:
        """The choices that are not the rules' own."""
        return {
            key: record.choice
            for key, record in self.records.items()
            if record.choice != record.own
        }

    def run(self, trial: int, tried: Mapping[KernelKey, Choice]) -> str:
        """Run a trial.

        Returns:
            How its outputs differ; empty if they do not.
        """
        built = self.trials.build(tried)
        differs = self._difference(built)
        faster: set[KernelKey] = set()
        if not differs:
            figures = self._figures(built)
            faster = self._faster(figures, tried)
        if faster and not self.counts:
            figures = self._figures(built)  # chance alone makes none of them faster twice
            faster = self._faster(figures, faster)
        for key, choice in tried.items():
            record = replace(self.records[key], trials=trial)
            if key in faster:
                new = self._with_figures(replace(record, choice=choice), figures)
                record = new if _is_better(new, record) else record
            self.records[key] = record
        return differs

    def finish(self) -> tuple[Times | None, int | None, int | None]:
        """Measure all choices together and give up those that are not faster.

        Returns:
            Times of the whole network, or its instructions and those with the rules' own choices.
        """
        figures = self._finished()
        if figures is None:
            return None, None, None
        other, own = figures.whole[1], figures.whole[0]
        if self.counts:
            return None, round(float(other[0])), round(float(own[0]))
        return times_of(other, own), None, None

    def _finished(self) -> Figures | None:
        while self.chosen:
            built = self.trials.build(self.chosen)
            if self._difference(built):
                self.records = {key: _without_figures(r) for key, r in self.records.items()}
                return None
            figures = self._figures(built)
            faster = self._faster(figures, self.chosen)
            slower = set(self.chosen) - faster
            for key in faster:
                self.records[key] = self._with_figures(self.records[key], figures)
            for key in slower:
                self.records[key] = _without_figures(self.records[key])
            if not slower:
                return figures
        return None

    def _difference(self, built: Built) -> str:
        """Return what another library differs by, for people; empty if it can be compared."""
        if built.layers != self.own.layers:
            return "with its choices the arena is above the limit, so that it has other layers"
        return difference(built.subject.outputs, self.own.subject.outputs)

    def _figures(self, built: Built) -> Figures:
        return self.trials.figures(self.own, built, 1 if self.counts else ROUNDS)

    def _faster(
        self, figures: Figures, keys: Mapping[KernelKey, Choice] | set[KernelKey]
    ) -> set[KernelKey]:
        """Return the kernels that are faster than with the rule's own choice."""
        found = set()
        for key in keys:
            own, other = figures.of(key)
            is_less = bool(other[0] < own[0]) if self.counts else is_faster(times_of(other, own))
            found |= {key} if is_less else set()
        return found

    def _with_figures(self, record: KernelRecord, figures: Figures) -> KernelRecord:
        own, other = figures.of(record.kernel)
        if self.counts:
            counts = round(float(other[0])), round(float(own[0]))
            return replace(record, instructions=counts[0], own_instructions=counts[1])
        return replace(record, times=times_of(other, own))


def _without_figures(record: KernelRecord) -> KernelRecord:
    """Return the record of a kernel that keeps the rule's own choice."""
    return replace(record, choice=record.own, times=None, instructions=None, own_instructions=None)


def _is_better(new: KernelRecord, old: KernelRecord) -> bool:
    return old.ratio is None or (new.ratio is not None and new.ratio < old.ratio)


def tune_cpu(
    network: Network,
    cpu: str,
    path: Path,
    meter: Meter,
    *,
    effort: CpuEffort | None = None,
    again: bool = False,
    tell: Callable[[str], None] = lambda stage: None,
    done: Callable[[CpuProgress], None] = lambda progress: None,
    inputs: Sequence[Path] = (),
    keep_layout: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> TunedCpu:
    """Search good choices for all kernels of a model, and record the results.

    Choices that a record says were tried are skipped.

    Args:
        network: a network of `umakit.pipeline.import_network`.
        cpu: a name of `umakit.machine.cpu`, or a TOML file.
        path: file of the records; it may contain records of this model and CPU.
        meter: what measures or counts.
        effort: extent of the search.
        again: whether choices are tried again that were tried.
        tell: told of each stage.
        done: told of each trial, when its records are written.
        inputs: input files, which must not be overwritten.
        keep_layout: as in `ExportOptions`.
        clock: seconds since any time, for `CpuEffort.seconds`.

    Raises:
        RecordsError: the file is for another model or CPU, or cannot be written; or no kernel of
            the model has a choice.
        UmakitError: the network cannot be compiled, or a run failed.
    """
    effort, machine = effort or CpuEffort(), find_cpu(cpu)
    owner = Owner.of_cpu(network.model, machine)
    read = input_files(cpu_file(cpu), backends=[], model=inputs)
    check_records_file(path, read)
    existing = {each.kernel: each for each in existing_kernels(path, owner, meter.origin).kernels}
    options, started = ExportOptions(cpu=cpu, keep_layout=keep_layout), clock()
    with temporary_folder("umakit-tune-") as folder:
        tell("compiling the network with the rules' own choices")
        trials = Trials(network, options, meter, folder)
        search = _Search(trials, trials.build({}), meter.origin.figures == "instructions")
        search.begin({} if again else existing)
        if not search.records:
            raise RecordsError(
                f"no kernel of {network.model.name} has a choice on {machine.name}",
                fix="kernels in float32 have one on CPUs with vectors, those in int8 on CPUs with "
                "instructions for sums of products",
            )
        most = max(len(search.own.made[key].candidates) for key in search.records) - 1
        numbers = [n for n in range(1, min(most, effort.trials) + 1) if search.tried_in(n)]
        ran = 0
        for number in numbers:
            if ran and clock() - started > effort.seconds:
                break
            tried = search.tried_in(number)
            tell(f"trial {number} of {numbers[-1]}: another choice for {len(tried)} kernels")
            # Not interrupted silently: TVM makes exceptions of its own of Ctrl-C.
            (differs,) = ThisProcess().map(search.run, [(number, tried)])
            ran += 1
            _keep(path, owner, meter, search, tried, read)
            done(CpuProgress(number, numbers[-1], len(tried), len(search.chosen), differs))
        times, instructions, own = None, None, None
        if ran:
            tell("comparing all choices together with the rules' own")
            ((times, instructions, own),) = ThisProcess().map(search.finish, [()])
            _keep(path, owner, meter, search, search.records, read)
    kernels = tuple(
        TunedKernel(record, len(search.own.made[key].candidates))
        for key, record in search.records.items()
    )
    return TunedCpu(kernels, ran, times, instructions, own, ran == len(numbers))


def _keep(
    path: Path,
    owner: Owner,
    meter: Meter,
    search: _Search,
    keys: Mapping[KernelKey, object],
    inputs: Sequence[Path],
) -> None:
    records = [search.records[key] for key in keys]
    keep_kernels(path, owner, meter.origin, records, inputs)
