# SPDX-License-Identifier: Apache-2.0
"""The compared figures of two reports. A new figure is a line of `FIGURES`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from umakit.tools.comparison.saved import Report, Size
from umakit.tools.record import AcceleratorBounds, LayerRecord, Parts

Count = int | None
"""A figure; None if unknown."""

OfReport = Callable[[Report], Count]
OfStep = Callable[[LayerRecord], Count]
Unit = Literal["cycles", "B", "MACs", "accesses", "steps", "instructions", "ns"]


@dataclass(frozen=True)
class Figure:
    """A figure of a network.

    Attributes:
        name: name in limits, tables and JSON.
        unknown: reason why the figure may be unknown, as a clause, and advice.
        of_step: value for a layer or step; None if it has none. The values of all steps and of
            `between` add up to the network's.
        between: value for the row between layers.
        only_accelerators: whether the figure ignores the CPU, so that it falls when a layer moves
            there.
        same: property that has to be equal in two compared reports: the compiler.
    """

    name: str
    unit: Unit
    of: OfReport
    unknown: tuple[str, str] = ("the report does not have it", "write the report again")
    of_step: OfStep | None = None
    between: OfStep = lambda row: 0
    only_accelerators: bool = False
    same: Callable[[Report], object] = lambda report: None


def total(values: Iterable[Count]) -> Count:
    """Return the sum of values; None if one is unknown."""
    found = list(values)
    return None if None in found else sum(value or 0 for value in found)


# --- of rows --------------------------------------------------------------------------------------


def _on_accelerators(of: OfStep) -> OfStep:
    """Return the value of a row, 0 for a CPU step."""
    return lambda step: 0 if step.on_cpu else of(step)


def _on_cpu(of: OfStep) -> OfStep:
    """Return the value of a row, 0 for a layer on an accelerator."""
    return lambda step: of(step) if step.on_cpu else 0


def _summed(of: OfStep) -> OfReport:
    return lambda report: total(of(step) for step in report.steps)


def _predicted(step: LayerRecord) -> Count:
    return 0 if step.on_cpu else step.predicted_cycles


def _registers(row: LayerRecord) -> Count:
    return total((row.register_reads, row.register_writes))


def _nanoseconds(seconds: float | None) -> Count:
    return None if seconds is None else round(seconds * 1e9)


def _less(whole: Count, part: Count) -> Count:
    return None if whole is None or part is None else whole - part


def _driver_time(row: LayerRecord) -> Count:
    return _less(_nanoseconds(row.seconds), _nanoseconds(row.device_seconds))


def _driver_instructions(row: LayerRecord) -> Count:
    return _less(row.instructions, row.device_instructions)


# --- of reports -----------------------------------------------------------------------------------


def _cycles(report: Report) -> Count:
    found = report.accounting
    return None if found.unknown_layers else found.clock_cycles


def _bound(name: str) -> OfReport:
    def of(report: Report) -> Count:
        return total(each.cycles(name) for each in report.bounds) if report.bounds else None

    return of


def _over(name: str) -> OfReport:
    def above(bounds: AcceleratorBounds) -> Count:
        bound, cycles = bounds.cycles(name), bounds.clock_cycles
        return None if bound is None or cycles is None else cycles - bound

    return lambda report: total(map(above, report.bounds)) if report.bounds else None


def _size(of: Callable[[Size], Count]) -> OfReport:
    return lambda report: None if report.size is None else of(report.size)


def _compiler(report: Report) -> str | None:
    return None if report.size is None else report.size.compiler


UNMEASURED = "not every layer on an accelerator was measured", "limit `predicted cycles` instead"
UNPREDICTED = "no cost model predicts every layer", "limit `cycles` instead"
UNSCALED = "steps on the CPU have no known cycles", "give --cpu-clock"
UNBOUNDED = "no bounds, which models on described machines have", "limit a model's report"
UNSIZED = "the code was not measured", "give --size, also for reports that are saved"
UNCOUNTED = "no simulator counts it", "limit what is known"
UNTIMED = "drivers were not timed", "write the report again"
NOT_EMULATED = "no emulator counted instructions", "run both on one: --device qemu-cortex-m4"


def _part(name: str, of: Callable[[Parts], int]) -> Figure:
    def of_record(record: LayerRecord) -> Count:
        return None if record.parts is None else of(record.parts)

    def of_report(report: Report) -> Count:
        parts = report.accounting.parts
        return None if parts is None or report.accounting.unknown_layers else of(parts)

    return Figure(
        name, "cycles", of_report, UNMEASURED, of_record, of_record, only_accelerators=True
    )


def wait_figure(engine: str) -> Figure:
    """Return the figure of the cycles in which only an engine works, and others wait."""
    return _part(f"wait {engine}", lambda parts: parts.waits.get(engine, 0))


MEASURED = Figure(
    "cycles", "cycles", _cycles, UNMEASURED, lambda step: step.clock_cycles,
    lambda row: row.clock_cycles, only_accelerators=True,
)  # fmt: skip
PREDICTED = Figure(
    "predicted cycles", "cycles", _summed(_predicted), UNPREDICTED, _predicted,
    only_accelerators=True,
)  # fmt: skip
CPU_STEPS = Figure(
    "cpu steps", "steps", _summed(lambda step: int(step.on_cpu)),
    of_step=lambda step: int(step.on_cpu),
)  # fmt: skip
OFFLOADED = Figure(
    "offloaded macs", "MACs", lambda report: report.offloaded_macs,
    of_step=_on_accelerators(lambda row: row.macs),
)  # fmt: skip

FIGURES: tuple[Figure, ...] = (
    MEASURED,
    PREDICTED,
    Figure("all cycles", "cycles", lambda report: report.accounting.cycles, UNSCALED,
           same=lambda report: (report.accounting.cpu_clock_hz, report.accounting.cpu_sources)),
    _part("computing", lambda parts: parts.computing),
    _part("waits", lambda parts: sum(parts.waits.values())),
    _part("registers", lambda parts: parts.registers),
    _part("idle", lambda parts: parts.idle),
    _part("undivided", lambda parts: parts.undivided),
    Figure("bound", "cycles", _bound("network"), UNBOUNDED),
    Figure("over bound", "cycles", _over("network"), UNBOUNDED, only_accelerators=True),
    Figure("bound of layers", "cycles", _bound("layers"), UNBOUNDED),
    Figure("bytes", "B", _summed(_on_accelerators(lambda row: row.moved_bytes)), UNCOUNTED,
           _on_accelerators(lambda row: row.moved_bytes), only_accelerators=True),
    Figure("register accesses", "accesses", _summed(_on_accelerators(_registers)), UNCOUNTED,
           _on_accelerators(_registers), only_accelerators=True),
    CPU_STEPS,
    Figure("cpu bytes", "B", _summed(_on_cpu(lambda row: row.tensor_bytes)), UNCOUNTED,
           _on_cpu(lambda row: row.tensor_bytes)),
    Figure("macs", "MACs", lambda report: report.total_macs, of_step=lambda step: step.macs),
    OFFLOADED,
    Figure("driver instructions", "instructions",
           _summed(_on_accelerators(_driver_instructions)), NOT_EMULATED),
    Figure("cpu instructions", "instructions", _summed(_on_cpu(lambda row: row.instructions)),
           NOT_EMULATED),
    Figure("arena", "B", lambda report: report.memory.arena_bytes),
    Figure("constants", "B", lambda report: report.memory.constants_bytes),
    Figure("scratchpad", "B",
           lambda report: sum(each.used_bytes for each in report.memory.scratchpads)),
    Figure("code", "B", _size(lambda size: size.text_bytes), UNSIZED, same=_compiler),
    Figure("static", "B", _size(lambda size: size.static_bytes), UNSIZED, same=_compiler),
    Figure("stack", "B", _size(lambda size: size.stack_bytes), UNSIZED, same=_compiler),
)  # fmt: skip
"""All figures except times, in the order of tables."""

TIMES: tuple[Figure, ...] = (
    Figure("driver time", "ns", _summed(_on_accelerators(_driver_time)), UNTIMED),
    Figure(
        "simulator time",
        "ns",
        _summed(_on_accelerators(lambda row: _nanoseconds(row.device_seconds))),
        UNTIMED,
    ),
    Figure("cpu time", "ns", _summed(_on_cpu(lambda row: _nanoseconds(row.seconds))), UNTIMED),
)  # fmt: skip
"""Times of the processor that ran the networks. Times depend on the machine and its load. They are
shown, but affect no limit and no difference."""

WAIT = "wait "
"""Prefix of the name of a wait for an engine, as in `wait load`."""


def waits_of(*reports: Report) -> list[Figure]:
    """Return the figures of the waits in any report, by the engine at work."""
    parts = [report.accounting.parts for report in reports]
    names = sorted({name for each in parts if each is not None for name in each.waits})
    return [wait_figure(name) for name in names]
