# SPDX-License-Identifier: Apache-2.0
"""`uma tune --cpu`: searches good choices for the kernels of a network on a CPU."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from umakit.cli.console import print_json, print_whole, progress, say
from umakit.cli.tables import new_table

from umakit.text.escaping import shell_word

if TYPE_CHECKING:
    from umakit.lower.kernel_records import KernelRecord, Origin, Times
    from umakit.tools.cpu_tuning import CpuProgress, TunedCpu


@dataclass(frozen=True)
class CpuCall:
    """What `uma tune --cpu` was asked for.

    Attributes:
        model: file of the network.
        cpu: text of `--cpu`.
        records: file of the records.
        device: name of the device.
        trials, seconds: extent of the search.
        again: whether choices are tried again.
        shapes: shapes by input name.
        rounding: of a quantized network.
        keep_layout: whether the layout of the model is kept.
        as_json: whether JSON is printed.
    """

    model: Path
    cpu: str
    records: Path
    device: str
    trials: int
    seconds: float
    again: bool
    shapes: dict[str, list[int]]
    rounding: str | None
    keep_layout: bool
    as_json: bool


def tune_for_cpu(call: CpuCall) -> int:
    """Tune a network for a CPU, print the result and return the exit code.

    Raises:
        UmakitError: the CPU, the device, the network or the file of records cannot be used.
    """
    faster = 0
    is_terminal = sys.stderr.isatty()

    def done(at: CpuProgress) -> None:
        nonlocal faster
        faster = at.faster
        if at.differs:
            say(f"note: trial {at.trial} is not used: {at.differs}", error=True)
        if not is_terminal:
            say(f"trial {at.trial} of {at.trials}: {_faster(at.faster)} so far", error=True)

    try:
        with progress() as tell:
            tell("loading TVM")
            from umakit.devices import find_device
            from umakit.frontend import model_files
            from umakit.lower.tiling_records import check_records_file
            from umakit.machine.cpu import cpu_file, find_cpu
            from umakit.pipeline import import_network
            from umakit.registration.inputs import input_files
            from umakit.tools.cpu_tuning import CpuEffort, meter_for, tune_cpu

            meter = meter_for(find_cpu(call.cpu), find_device(call.device))
            files = model_files(call.model)
            check_records_file(call.records, input_files(cpu_file(call.cpu), model=files))
            tell("importing the network")
            network = import_network(call.model, input_shapes=call.shapes, rounding=call.rounding)
            for notice in network.imported.notices:
                say(f"note: {notice}", error=True)
            tuned = tune_cpu(
                network, call.cpu, call.records, meter,
                effort=CpuEffort(call.trials, call.seconds), again=call.again,
                tell=tell if is_terminal else lambda stage: None, done=done, inputs=files,
                keep_layout=call.keep_layout,
            )  # fmt: skip
    except KeyboardInterrupt:
        say(
            f"interrupted; {_faster(faster)}, trials that ended are in {call.records}, the same "
            "command goes on",
            error=True,
        )
        return 130
    if call.as_json:
        print_json(_view(call, meter.origin, tuned))
        return 0
    print_whole(_table(tuned))
    say(_result(tuned, meter.origin))
    if not tuned.is_complete:
        say(f"--seconds {call.seconds:g} ended the search: the same command goes on")
    say(f"Wrote {call.records}" if tuned.trials else f"All is in {call.records}")
    options = f"--cpu {shell_word(call.cpu)} --records {shell_word(str(call.records))}"
    options += " --keep-layout" if call.keep_layout else ""
    say(f"Next: uma compile {shell_word(str(call.model))} {options} -o LIBRARY")
    return 0


def _faster(count: int) -> str:
    return f"{count} kernel{'' if count == 1 else 's'} faster than by the rules"


def _table(tuned: TunedCpu) -> Any:
    """Return a table of all kernels."""
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
    """Return what the choices gain, as a sentence."""
    changed = sum(each.record.choice != each.record.own for each in tuned.kernels)
    if not changed:
        return "No kernel is faster with another choice than with its rule's"
    many = f"{changed} of {len(tuned.kernels)} kernels have another choice than their rule's"
    if tuned.times is not None:
        return (
            f"{many}; the network takes {_spread(tuned.times)} of the processor time that it took "
            "without, measured on this machine"
        )
    if tuned.instructions is not None and tuned.own_instructions is not None:
        return (
            f"{many}; the network takes {tuned.instructions:,} instructions and took "
            f"{tuned.own_instructions:,} without, counted on {origin.device}"
        )
    return many


def _spread(times: Times) -> str:
    return f"{times.median:.3f} ({times.low:.3f} to {times.high:.3f})"


def _view(call: CpuCall, origin: Origin, tuned: TunedCpu) -> dict[str, Any]:
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
        "times": None if tuned.times is None else asdict(tuned.times),
        "instructions": tuned.instructions,
        "own_instructions": tuned.own_instructions,
    }
