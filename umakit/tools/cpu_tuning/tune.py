# SPDX-License-Identifier: Apache-2.0
"""Tuning of all kernels of a model for a CPU; results are recorded after each trial.

1. Trial 1 has the second choice of each kernel (the first is the rule's own), trial 2 the third
   choice and so on. Faster kernels are measured a second time. Kernels that are faster again take
   the choice, if it is the best so far.
2. All choices are measured together. Choices that are not faster there are dropped.

On a device, instructions are counted instead of times. They are the same in each run, so any
decrease counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from umakit.cpu.description import cpu_file, find_cpu
from umakit.cpu.kernel_choices import KernelKey
from umakit.errors import RecordsError
from umakit.files.staging import temporary_folder
from umakit.library.options import ExportOptions
from umakit.pipeline import Network
from umakit.records.choices import existing_kernels, keep_kernels
from umakit.records.kernels import KernelRecord, Origin
from umakit.records.owners import Owner
from umakit.records.tilings import check_records_file
from umakit.registration.sources.tree import input_files
from umakit.tools.cpu_tuning.search import Search, Total
from umakit.tools.cpu_tuning.trials import Meter, Trials
from umakit.tools.tuning.workers import ThisProcess


@dataclass(frozen=True)
class CpuEffort:
    """The extent of the search.

    Attributes:
        trials: maximum number of other choices of a kernel.
        seconds: no trial begins after this time.
    """

    trials: int = 12
    seconds: float = 900.0


@dataclass(frozen=True)
class CpuProgress:
    """Progress of the tuning of a model.

    Attributes:
        trial, trials: number of the trial, from 1, and number of all trials.
        kernels: number of kernels with another choice in the trial.
        faster: number of kernels so far that are faster than with the rule's own choice.
        differs: reason for taking no choice of the trial; empty if choices can be taken.
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
        candidates: number of possible choices.
    """

    record: KernelRecord
    candidates: int


@dataclass(frozen=True)
class TunedCpu:
    """The result of the tuning of a model.

    Attributes:
        kernels: all kernels with a choice, in the order of the network.
        is_complete: whether no trial was omitted for lack of time.
    """

    kernels: tuple[TunedKernel, ...]
    trials: int
    total: Total
    is_complete: bool


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

    Choices that a record marks as tried are skipped.

    Args:
        cpu: a name of `umakit.cpu.description`, or a TOML file.
        again: whether recorded choices are tried again.
        done: called with each trial, once its records are written.
        inputs: input files, which must not be overwritten.
        keep_layout: as in `ExportOptions`.
        clock: clock in seconds, for `CpuEffort.seconds`.
    """
    effort, machine, started = effort or CpuEffort(), find_cpu(cpu), clock()
    read = input_files(cpu_file(cpu), backends=[], model=inputs)
    check_records_file(path, read)
    file = _File(path, Owner.of_cpu(network.model, machine), meter.origin, read)
    existing = file.existing()
    options = ExportOptions(cpu=cpu, keep_layout=keep_layout)
    with temporary_folder("umakit-tune-") as folder:
        tell("compiling the network with the rules' own choices")
        trials = Trials(network, options, meter, folder)
        search = Search(trials, trials.build({}), meter.origin.figures == "instructions")
        search.begin({} if again else existing)
        _check_choices(search, network.model.name, machine.name)
        numbers, ran = search.trials_left(effort.trials), 0
        for number in numbers:
            if ran and clock() - started > effort.seconds:
                break
            done(_run_trial(search, number, numbers[-1], file, tell))
            ran += 1
        total = _compare_together(search, file, tell) if ran else Total()
    kernels = tuple(
        TunedKernel(record, len(search.own.made[key].candidates))
        for key, record in search.records.items()
    )
    return TunedCpu(kernels, ran, total, ran == len(numbers))


def _check_choices(search: Search, model: str, cpu: str) -> None:
    if not search.records:
        raise RecordsError(
            f"no kernel of {model} has a choice on {cpu}",
            fix="kernels in float32 have one on CPUs with vectors, those in int8 on CPUs with "
            "instructions for sums of products",
        )


@dataclass(frozen=True)
class _File:
    """A file of records.

    Attributes:
        inputs: input files, which must not be overwritten.
    """

    path: Path
    owner: Owner
    origin: Origin
    inputs: Sequence[Path]

    def existing(self) -> dict[KernelKey, KernelRecord]:
        records = existing_kernels(self.path, self.owner, self.origin)
        return {each.kernel: each for each in records.kernels}

    def keep(self, records: Sequence[KernelRecord]) -> None:
        keep_kernels(self.path, self.owner, self.origin, records, self.inputs)


def _run_trial(
    search: Search, number: int, last: int, file: _File, tell: Callable[[str], None]
) -> CpuProgress:
    tried = search.tried_in(number)
    tell(f"trial {number} of {last}: another choice for {len(tried)} kernels")
    # TVM converts Ctrl-C into its own exceptions, which must not be lost.
    (differs,) = ThisProcess().map(search.run, [(number, tried)])
    file.keep([search.records[key] for key in tried])
    return CpuProgress(number, last, len(tried), len(search.chosen), differs)


def _compare_together(search: Search, file: _File, tell: Callable[[str], None]) -> Total:
    tell("comparing all choices together with the rules' own")
    (total,) = ThisProcess().map(search.finish, [()])
    file.keep(list(search.records.values()))
    return total
