# SPDX-License-Identifier: Apache-2.0
"""`uma check`: checks that a backend computes every accepted layer correctly."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from umakit.cli.console import console, print_json, progress, say
from umakit.cli.options import (
    DeviceOption,
    ForceOption,
    JsonOption,
    RtlFlag,
    WaveOption,
    check_wave,
    device_of,
    device_with,
    find_backends,
)
from umakit.cli.tables import new_table

from umakit.devices import HOST, find_device
from umakit.errors import InputError
from umakit.files.outputs import JUNIT, check_distinct, check_file, check_parent
from umakit.text.escaping import shell_word

if TYPE_CHECKING:
    from umakit.devices.waveforms import WaveFile
    from umakit.testing.check import CheckReport
    from umakit.testing.check.aspects import Value
    from umakit.testing.check.cover import Cover, Covered


HELP = """Check that a backend computes right whatever it accepts.

First the registers of its simulated device are compared with their map: values after power-on, \
bits that a write changes, read-only registers, offsets without a register.

For every operator that the backend registers, layers with every value that its pattern accepts \
are drawn and run: kernels, strides, four sides of padding, channels of every residue of the \
array, scales, zero points, types. Then come the largest layers, pairs of values, random layers \
and chains of two. Many layers become one library, which runs in the simulator, and every result \
is compared with the reference's.

With --rtl, varied programs then run on the C model and on the RTL: the driver's register accesses \
for some of these layers, with values changed, and all that a driver sees is compared.

A failure names operator, shape and first wrong element, and a case that --case runs again.

Exit code: 0 if every value ran and all is right; 1 if something is wrong, or if a value that a \
constraint lists never ran; 3 if nothing is wrong and --seconds or --draws ended the check before \
every value ran; 2 for a mistake of the call, of accel.toml, or of a file that no library compiles \
with."""

NUMBERS = ("drawn", "ran", "refused", "failed")
SOMETIMES = ("not_examined", "not_run", "does_not_fit")
"""Columns of the table, and the columns that appear only with a number other than 0."""

INCOMPLETE = 3
"""Exit code of an incomplete check: nothing is wrong, and not all claimed values have run."""

ACCESSES = (
    "  predictions count a cycle for each register access, and the bus of the RTL may take more: "
    "many small tiles take longer than predicted; `uma cosim` compares the engines alone"
)
"""Printed when predicted cycles differ from the RTL's, which cannot be calibrated."""

EPILOG = "Example:  uma check vanilla_accelerator --draws 60"

BackendArgument = Annotated[
    str, typer.Argument(help="Name or folder of the accelerator.", show_default=False)
]
OperatorOption = Annotated[
    list[str] | None,
    typer.Option(
        "--operator",
        help="Name of a pattern that the backend registers; repeat it for several; default: all.",
        show_default=False,
    ),
]
SecondsOption = Annotated[
    float,
    typer.Option(
        min=0.1,
        help="Processor time after which no further layers begin, and the check is incomplete; "
        "begun work is finished.",
    ),
]
DrawsOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Layers to draw, of all operators; default: 1000, or more if values need them; with "
        "--rtl and --device as many as values need. With too few, the check is incomplete.",
        show_default=False,
    ),
]
ValuesOption = Annotated[
    bool, typer.Option("--values", help="Also print how many layers ran with each value.")
]
SeedOption = Annotated[int, typer.Option(min=0, help="Equal seeds draw equal layers.")]
CaseOption = Annotated[
    str | None,
    typer.Option("--case", help="Run only this case, as a report prints it.", show_default=False),
]
RegistersOption = Annotated[
    bool, typer.Option("--registers", help="Compare the registers with their map, and no layers.")
]
ProgramOption = Annotated[
    int | None,
    typer.Option(
        "--program",
        min=0,
        help="Run only the varied program of this number, which a failure with --rtl names.",
        show_default=False,
    ),
]
JobsOption = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        "-j",
        min=1,
        help="Processes that compile and run layers, which changes nothing that is drawn; default: "
        "one for each core.",
        show_default=False,
    ),
]
JunitOption = Annotated[
    Path | None,
    typer.Option("--junit", help="Also write a report in JUnit XML.", show_default=False),
]


def check(
    backend: BackendArgument,
    device: DeviceOption = HOST.name,
    seconds: SecondsOption = 600.0,
    seed: SeedOption = 0,
    operator: OperatorOption = None,
    draws: DrawsOption = None,
    jobs: JobsOption = None,
    case: CaseOption = None,
    registers: RegistersOption = False,
    program: ProgramOption = None,
    junit: JunitOption = None,
    force: ForceOption = False,
    rtl: RtlFlag = False,
    wave: WaveOption = None,
    values: ValuesOption = False,
    as_json: JsonOption = False,
) -> int:
    device = device_with(rtl, device_of(device, [backend]))
    _check_options(device, rtl, wave, case, operator, registers, program)
    if junit is not None:
        check_parent(junit)
    check_distinct(junit, wave)
    with progress() as tell:
        tell("loading TVM")
        from umakit.devices.catalogue import device_file
        from umakit.devices.waveforms import WaveFile
        from umakit.files.staging import write_file
        from umakit.registration.sources.tree import input_files
        from umakit.testing import check as testing

        (found,) = find_backends([backend])
        read = input_files(device_file(device), backends=[found])
        if junit is not None:
            check_file(junit, JUNIT, read, force=force)
        file = None if wave is None else WaveFile(wave, force=force, inputs=read)
        if file is not None:
            file.check()
        if registers:
            tell("comparing registers with their map")
            report = testing.check_only_registers(found, device=device)
        elif program is not None:
            tell(f"running varied program {program}")
            report = testing.check_only_program(found, program, seed=seed, wave=file)
        elif case is not None:
            report = testing.check_layer(found, case, device=device, wave=file)
        else:
            report = testing.check_backend(
                found, seconds=seconds, seed=seed, operators=operator or (), draws=draws,
                device=device, jobs=jobs or usable_cores(), tell=tell,
            )  # fmt: skip
    if junit is not None:
        write_file(junit, report.as_junit().encode(), JUNIT, read, force=force)
    if as_json:
        written = None if file is None or file.written is None else file.written.as_json()
        print_json({**report.as_json(), "wave": written})
    else:
        _print(report, f"{shell_word(backend)}{' --rtl' if rtl else ''}", file, values)
    return {True: 0, False: 1, None: INCOMPLETE}[report.passed]


def _check_options(
    device: str,
    rtl: bool,
    wave: Path | None,
    case: str | None,
    operator: list[str] | None,
    registers: bool,
    program: int | None,
) -> None:
    """Refuse options that contradict each other."""
    layers: dict[str, object] = {"--case": case, "--operator": operator}
    if registers:
        _check_alone("--registers", {**layers, "--device": not find_device(device).is_host})
    check_wave(wave, rtl)
    if wave is not None and case is None and program is None:
        fix = "add --case or --program, as a report prints it"
        raise InputError("--wave is of one case or one varied program", fix=fix)
    if program is not None:
        _check_alone("--program", {**layers, "--registers": registers})
        if not find_device(device).runs_rtl:
            what = "--program needs --rtl: it compares a C model with RTL"
            raise InputError(what, fix="add --rtl")


def _check_alone(option: str, others: Mapping[str, object]) -> None:
    other = next((name for name, given in others.items() if given), None)
    if other is not None:
        raise InputError(f"{option} and {other} do not go together", fix="leave out one of them")


def usable_cores() -> int:
    """Return the number of cores available to this process."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _print(report: CheckReport, words: str, file: WaveFile | None, values: bool) -> None:
    """Print a report, with the verdict last.

    Args:
        words: backend and device options, as on the command line.
        file: the waveform that was asked for.
    """
    from umakit.testing.check.cases import MEANINGS

    if report.registers:
        say(report.registers.summary)
    if report.programs:
        say(report.programs.summary)
    if report.operators or (report.registers is None and report.programs is None):
        console().print(_table(report))
    for failure in report.failures:
        say(f"{failure.pattern}: {failure.what}")
        if failure.case is not None:
            text = str(failure.case)
            say(f"  uma check {words} --case {shell_word(text)}")
            for each in dict.fromkeys(text.split()):
                if each in MEANINGS:
                    say(f"  {each}: {MEANINGS[each]}")
            if failure.layers > 1:
                say(f"  {failure.layers:,} failing layers belong to this case")
        if failure.options:
            say(f"  uma check {words} {failure.options}")
        if failure.fix:
            say(f"  {failure.fix}")
    _print_remarks(report, words)
    is_repeated = any(each.case is not None or each.options for each in report.failures)
    if words.endswith(" --rtl") and is_repeated and file is None:
        say("with --wave FILE.fst each of these also writes the waveform of the design")
    if report.left_out:
        say(report.left_out)
    print_coverage(report, values)
    _print_cycles(report, words)
    if file is not None:
        say(file.sentence)
    say(report.verdict)


def _print_remarks(report: CheckReport, words: str) -> None:
    for each in report.programs.remarks if report.programs else ():
        say(f"varied programs, no failure: {each.sentence}")
        say(f"  uma check {words} {each.options}")
        say(f"  {each.fix}")


def _print_cycles(report: CheckReport, words: str) -> None:
    """Print the deviation of predicted from measured cycles; `words` as in `_print`."""
    found, is_rtl = report.cycles, words.endswith(" --rtl")
    device = "RTL" if is_rtl else "simulator"
    if found.layers and found.worst is None:
        say(f"predicted cycles are those of the {device} for all {found.layers} layers")
    if found.worst is None:
        return
    case, predicted, simulated = found.worst
    percent = 100 * (predicted - simulated) / max(simulated, 1)
    say(
        f"predicted cycles are those of the {device} for {found.exact} of {found.layers} layers; "
        f"the worst has {simulated:,}, predicted {predicted:,} ({percent:+.2f} %): {case}"
    )
    if is_rtl:
        say(ACCESSES)
    else:
        say(f"  uma calibrate {words} measures what commands cost")


def _table(report: CheckReport) -> Any:
    more = tuple(
        name for name in SOMETIMES if any(getattr(each, name) for each in report.operators.values())
    )
    columns = (*NUMBERS, *more)
    titles = tuple(name.replace("_", " ") for name in columns)
    table = new_table("operator", *titles, right=titles)
    for name, counts in report.operators.items():
        table.add_row(name, *(str(getattr(counts, each)) for each in columns))
    return table


def print_coverage(report: CheckReport, values: bool) -> None:
    """Print the coverage of each pattern, and the values that its predicate refuses.

    Args:
        values: whether to print the number of layers run with each value.
    """
    for name, cover in report.covers.items():
        if not cover.has_any:
            continue
        say(f"{name}: {_summary(cover)}")
        for covered in cover.aspects:
            if values:
                say(f"  {covered.aspect.name}: {_counts(covered)}")
            if covered.by_predicate:
                say(f"  {_refused(covered)}")
    if report.covers and report.orders.possible:
        done, possible = len(report.orders.done), report.orders.possible
        pairs = f"{done} of {possible} pairs of kinds of layers"
        say(f"orders: {pairs} ran one directly behind the other")


def _summary(cover: Cover) -> str:
    known = sum(len(covered.accepted) for covered in cover.aspects)
    missing = sum(len(covered.missing) for covered in cover.aspects)
    of = f"{known - missing} of {known}" if missing else f"all {known}"
    found, rows = cover.pairs, cover.pairs.rows
    pairs = f"{len(found.ran):,} pairs of kinds of values ran"
    array = "" if rows is None else f", of which {rows} layers are a covering array"
    has_all = cover.singles is not None and not missing
    every = f" in its first {cover.singles} layers" if has_all else ""
    return f"{of} values of {len(cover.aspects)} aspects ran{every}; {pairs}{array}"


def _counts(covered: Covered) -> str:
    return ", ".join(
        f"{covered.aspect.text(value)} {covered.ran[value]}"
        for value in sorted(covered.ran, key=_in_order)
    )


def _in_order(value: Value) -> tuple[tuple[bool, Any], ...]:
    """Return a sort key: words by letters, then numbers by size."""
    return tuple((isinstance(each, int), each) for each in value)


def _refused(covered: Covered) -> str:
    """Return an aspect's values refused by the predicate, with the reason of the first."""
    texts = "; ".join(covered.aspect.text(value) for value in covered.by_predicate)
    reason = next(iter(covered.by_predicate.values()))
    return f"refused by the predicate: {covered.aspect.name} {texts} ({reason})"
