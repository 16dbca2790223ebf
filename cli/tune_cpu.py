# SPDX-License-Identifier: Apache-2.0
"""`uma tune --cpu`: searches good choices for the kernels of a network on a CPU."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from umakit.cli.console import print_json, print_whole, progress, say, say_notices
from umakit.cli.tables import new_table
from umakit.cli.tune_call import TuneCall

if TYPE_CHECKING:
    from umakit.records.kernels import KernelRecord, Origin
    from umakit.tools.cpu_tuning import CpuProgress, TunedCpu


@dataclass(frozen=True)
class CpuSearch:
    """The options of `uma tune --cpu`."""

    cpu: str
    device: str
    trials: int
    seconds: float


def tune_for_cpu(call: TuneCall, search: CpuSearch) -> int:
    ended: list[CpuProgress] = []
    try:
        with progress() as tell:
            tuned, origin = _tune(call, search, tell, ended.append)
    except KeyboardInterrupt:
        say(_interrupted(call, ended), error=True)
        return 130
    if call.as_json:
        print_json(_view(call, origin, tuned))
        return 0
    print_whole(_table(tuned))
    say(_result(tuned, origin))
    if not tuned.is_complete:
        say(f"--seconds {search.seconds:g} ended the search: the same command goes on")
    say(f"Wrote {call.records}" if tuned.trials else f"All is in {call.records}")
    say(call.next_command("--cpu", search.cpu))
    return 0


def _tune(
    call: TuneCall,
    search: CpuSearch,
    tell: Callable[[str], None],
    ended: Callable[[CpuProgress], None],
) -> tuple[TunedCpu, Origin]:
    """Tune all kernels; report each trial once its records are written."""
    tell("loading TVM")
    from umakit.cpu.description import cpu_file, find_cpu
    from umakit.devices import find_device
    from umakit.devices.catalogue import device_file
    from umakit.frontend import model_files
    from umakit.pipeline import import_network
    from umakit.records.tilings import check_records_file
    from umakit.registration.sources.tree import input_files
    from umakit.tools.cpu_tuning import CpuEffort, meter_for, tune_cpu

    def done(at: CpuProgress) -> None:
        ended(at)
        if at.differs:
            say(f"note: trial {at.trial} is not used: {at.differs}", error=True)
        if not sys.stderr.isatty():
            say(f"trial {at.trial} of {at.trials}: {_faster(at.faster)} so far", error=True)

    meter = meter_for(find_cpu(search.cpu), find_device(search.device))
    files = input_files(device_file(search.device), model=model_files(call.model))
    check_records_file(call.records, input_files(cpu_file(search.cpu), model=files))
    tell("importing the network")
    network = import_network(call.model, input_shapes=call.shapes, rounding=call.rounding)
    say_notices(network.imported.notices)
    tuned = tune_cpu(
        network, search.cpu, call.records, meter,
        effort=CpuEffort(search.trials, search.seconds), again=call.again,
        tell=tell, done=done, inputs=files, keep_layout=call.keep_layout,
    )  # fmt: skip
    return tuned, meter.origin


def _interrupted(call: TuneCall, ended: list[CpuProgress]) -> str:
    if not ended:
        return "interrupted before a trial ended"
    return (
        f"interrupted; {_faster(ended[-1].faster)}, trials that ended are in {call.records}, the "
        "same command goes on"
    )


def _faster(count: int) -> str:
    return f"{count} kernel{'' if count == 1 else 's'} faster than by the rules"


def _table(tuned: TunedCpu) -> Any:
    numbers = ["layers", "tried", "/ rule"]
    table = new_table("kernel", *numbers, "choice", right=numbers)
    for each in tuned.kernels:
        record = each.record
        ratio = "" if record.ratio is None else f"{record.ratio:.3f}"
        table.add_row(
            record.kernel.text, str(len(record.operators)),
            f"{record.trials} of {each.candidates - 1}", ratio, _choice(record),
        )  # fmt: skip
    return table


def _choice(record: KernelRecord) -> str:
    own = record.choice == record.own
    return f"{record.choice.text} (the rule's)" if own else record.choice.text


def _result(tuned: TunedCpu, origin: Origin) -> str:
    changed = sum(each.record.choice != each.record.own for each in tuned.kernels)
    if not changed:
        return "No kernel is faster with another choice than with its rule's"
    many = f"{changed} of {len(tuned.kernels)} kernels have another choice than their rule's"
    total = tuned.total
    if (times := total.times) is not None:
        return (
            f"{many}; the network takes {times.median:.3f} ({times.low:.3f} to {times.high:.3f}) "
            "of the processor time that it took without, measured on this machine"
        )
    if total.instructions is not None and total.own_instructions is not None:
        return (
            f"{many}; the network takes {total.instructions:,} instructions and took "
            f"{total.own_instructions:,} without, counted on {origin.device}"
        )
    return many


def _view(call: TuneCall, origin: Origin, tuned: TunedCpu) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "records": str(call.records),
        "origin": asdict(origin),
        "trials": tuned.trials,
        "is_complete": tuned.is_complete,
        "kernels": [
            {**asdict(each.record), "ratio": each.record.ratio, "candidates": each.candidates}
            for each in tuned.kernels
        ],
        **asdict(tuned.total),
    }
