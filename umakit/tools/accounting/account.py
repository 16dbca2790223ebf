# SPDX-License-Identifier: Apache-2.0
"""The accounting of a run with a profile. Imports neither TVM nor the pipeline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from umakit.devices.run import CommandTimes, LayerProfile, RunResult
from umakit.errors import InputError
from umakit.library.identities import cpu_step_kind, identities_of
from umakit.tools.accounting.host import Answering
from umakit.tools.accounting.report import RunReport
from umakit.tools.energy.events import counts_of, energy_sections
from umakit.tools.record import LayerRecord, Parts, Source


def account(
    description: Mapping[str, Any],
    result: RunResult,
    cpu_clock: float | None = None,
    designs: Collection[str] = (),
) -> RunReport:
    """Return the owners of all cycles of an inference.

    Args:
        description: section `umakit` of the library's `metadata.json`.
        result: a run of the library with a profile; with commands, waits are split by engine.
        cpu_clock: cycles a second of a CPU as fast as the host, on the accelerators' clock; CPU
            steps then take their host time times this clock. None: CPU steps take the cycles from
            the costs of the library's CPU, unknown without costs.
        designs: names of the backends whose RTL replaced their simulators.

    Raises:
        InputError: `cpu_clock` is given, and the run has no host time.
    """
    if result.whole is None:
        raise ValueError("the run has no profile")
    if cpu_clock is not None and any(each.seconds is None for each in result.layers):
        raise InputError("a device without a time of its own cannot be scaled to a clock",
                         fix="leave the clock of the CPU out, or run on host")  # fmt: skip
    machines, sizes = _machines(description, designs), _tensor_sizes(description)
    sections = energy_sections(description)
    layers = zip(description["layers"], result.layers, identities_of(description), strict=True)
    rows, costs = [], CpuCycles.of(description)
    for number, (layer, profile, identity) in enumerate(layers, start=1):
        names = (description["operators"][each]["operator"] for each in layer["operators"])
        row = LayerRecord(
            "cpu step" if profile.on_cpu else "layer", layer["name"], profile.where, identity, "",
            parts=_parts(profile, machines), number=number, operators=tuple(names),
            predicted_cycles=None if profile.on_cpu else profile.predicted_cycles,
            **{name: getattr(profile, name) for name in COPIED},
        )  # fmt: skip
        if row.on_cpu:
            read, written = _step_bytes(layer, sizes)
            cycles, source = costs.cycles(layer, profile)
            if cpu_clock is not None:
                cycles, source = _scaled(profile, cpu_clock), "scaled"
            row = replace(
                row,
                kind=cpu_step_kind(layer, description["operators"]),
                cpu_cycles=cycles,
                cpu_source="unknown" if cycles is None else source,
                predicted_instructions=layer.get("cpu_instructions"),
                read_bytes=read,
                written_bytes=written,
            )
        else:
            row = replace(row, measured=counts_of(profile), energy_section=sections[row.where])
        rows.append(row)
    answering, programs = _answering(description, rows)
    found = _with_total(rows, result, cpu_clock)
    found = replace(found, answering=answering, programs=programs)
    predicted = {"counted", "predicted"} & {*found.cpu_sources}
    return replace(found, clocks=costs.clocks) if predicted and found.offloaded else found


COPIED = (
    "macs clock_cycles register_reads register_writes moved_bytes seconds instructions "
    "device_seconds device_instructions commands commands_left_out"
).split()
"""Figures of a profile that a record has as well."""


def _answering(
    description: Mapping[str, Any], rows: Sequence[LayerRecord]
) -> tuple[Answering, tuple[str, ...]]:
    """Return the way accelerators answer, and the accelerators simulated by programs."""
    used = dict.fromkeys(row.where for row in rows if row.owner == "layer")
    sources = description["sources"]
    own: Mapping[str, Mapping[str, Any]] = sources.get("own", {})
    programs = tuple(name for name in used if own.get(name, {}).get("program"))
    if any(each["simulated"] for each in description["backends"] if each["name"] in used):
        return "simulator", programs
    return ("library" if used and used.keys() <= {*sources.get("libraries", {})} else "driver"), ()


def _with_total(rows: list[LayerRecord], result: RunResult, cpu_clock: float | None) -> RunReport:
    whole = result.whole
    assert whole is not None
    measured = [row.clock_cycles for row in rows if row.owner == "layer"]
    known = any(cycles is not None for cycles in measured)
    total: int | None = sum(row.clock_cycles or 0 for row in rows) if known else None
    between = whole.between_cycles if known else None
    if total is not None and between is not None:
        total += between
    if measured:
        parts = None if between is None else Parts(idle=between)
        rows.append(
            LayerRecord("between layers", "between layers", "", None, "", 0, between, parts),
        )
    return RunReport(tuple(rows), whole.runs, total, between is not None, cpu_clock)


def _machines(
    description: Mapping[str, Any], designs: Collection[str]
) -> dict[str, tuple[tuple[str, ...], bool]]:
    """Return each backend's compute engines, and whether a register access takes a cycle."""
    simulated_as = description["sources"]["simulated_as"]
    return {
        each["name"]: (
            tuple(each.get("computing", KIT_COMPUTING)),
            each["name"] in simulated_as and each["name"] not in designs,
        )
        for each in description["backends"]
    }


def _parts(
    profile: LayerProfile, machines: Mapping[str, tuple[tuple[str, ...], bool]]
) -> Parts | None:
    clock, busy, computing = profile.clock_cycles, profile.cycles, profile.array_cycles
    if clock is None:
        return None
    if profile.on_cpu:
        return Parts(idle=clock)
    if busy is None or computing is None or not 0 <= computing <= busy <= clock:
        return Parts(undivided=clock)
    engines, counts_accesses = machines[profile.where]
    waits = waits_of(profile, engines)
    if waits is None:
        waits = {"copies": busy - computing} if busy > computing else {}
    accesses = (profile.register_reads or 0) + (profile.register_writes or 0)
    registers = min(clock - busy, accesses) if counts_accesses else 0
    return Parts(computing, waits, registers, clock - busy - registers)


def _scaled(profile: LayerProfile, cpu_clock: float | None) -> int | None:
    """Return the host time of a step in cycles, less the device's cycles in the meantime."""
    if cpu_clock is None or profile.seconds is None:
        return None
    return max(round(profile.seconds * cpu_clock) - (profile.clock_cycles or 0), 0)


def _tensor_sizes(description: Mapping[str, Any]) -> dict[str, int]:
    memory = description["memory"]
    pools: Sequence[Mapping[str, Any]] = [*memory["pools"], *memory["scratchpads"]]
    planned = [tensor for pool in pools for tensor in pool["tensors"]]
    tensors = [*planned, *description["inputs"], *description["outputs"]]
    return {tensor["c_name"]: int(tensor["size_bytes"]) for tensor in tensors}


def _step_bytes(
    layer: Mapping[str, Any], sizes: Mapping[str, int]
) -> tuple[int | None, int | None]:
    """Return the bytes that a step reads, including constants, and the bytes that it writes."""
    read, written = (
        sum(sizes[name] for name in layer[key]) if all(n in sizes for n in layer[key]) else None
        for key in ("inputs", "outputs")
    )
    return (None if read is None else read + int(layer["constants_bytes"])), written


KIT_COMPUTING = ("array",)
"""Compute engines of umakit's simulators, by their reported names."""


def waits_of(profile: LayerProfile, computing: Collection[str]) -> dict[str, int] | None:
    """Return the cycles of a layer in which engines work, but no compute engine.

    A command is at work from its start to its completion. The commands are those of the first
    inference. They count only if none is missing and their sums equal the layer's own counters, so
    that each cycle is counted once and belongs to the inference.

    Returns:
        Cycles by the names of the engines at work, such as `load` or `load + store`; None if the
        commands are inconclusive.
    """
    if profile.commands_left_out:
        return None
    states = Counter[tuple[str, ...]]()
    for engines, cycles in _states(profile.commands):
        states[engines] += cycles
    busy = sum(cycles for engines, cycles in states.items() if engines)
    own = set(computing)
    working = sum(cycles for engines, cycles in states.items() if own & set(engines))
    if (busy, working) != (profile.cycles, profile.array_cycles):
        return None
    return {
        " + ".join(engines): cycles
        for engines, cycles in sorted(states.items())
        if engines and not own & set(engines)
    }


def _states(commands: Sequence[CommandTimes]) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the sorted names of the engines at work, with the number of cycles."""
    changes: dict[int, Counter[str]] = {}
    for command in commands:
        if command.completion > command.start:
            changes.setdefault(command.start, Counter())[command.stream] += 1
            changes.setdefault(command.completion, Counter())[command.stream] -= 1
    active, before = Counter[str](), 0
    for now in sorted(changes):
        yield tuple(sorted(name for name, count in active.items() if count)), now - before
        for name, change in changes[now].items():
            active[name] += change
        before = now


@dataclass(frozen=True)
class CpuCycles:
    """The conversion of the CPU's figures to cycles of the accelerators' clock.

    Attributes:
        per_instruction: cycles of the CPU for an instruction; None if unknown.
        factor: cycles of the accelerators for a cycle of the CPU.
        clocks: source of the factor, as a clause.
    """

    per_instruction: float | None
    factor: float
    clocks: str

    @classmethod
    def of(cls, description: Mapping[str, Any]) -> CpuCycles:
        """Return the conversion of a library; unknown or several clocks count as equal.

        Args:
            description: section `umakit` of the library's `metadata.json`.
        """
        costs = (description.get("cpu") or {}).get("costs") or {}
        own: float | None = costs.get("clock_mhz")
        per_instruction: float | None = costs.get("cycles_per_instruction")
        others = {backend.get("clock_mhz") for backend in description.get("backends", ())}
        clock: float | None = others.pop() if len(others) == 1 else None
        if own is None or clock is None:
            return cls(per_instruction, 1.0, "clocks taken as equal")
        return cls(per_instruction, clock / own, f"clocks of {own:g} and {clock:g} MHz")

    def cycles(self, layer: Mapping[str, Any], profile: LayerProfile) -> tuple[int | None, Source]:
        """Return the cycles of a step that ran, and their source."""
        if profile.instructions is not None and self.per_instruction is not None:
            return round(profile.instructions * self.per_instruction * self.factor), "counted"
        predicted = self.predicted(layer)
        return predicted, "unknown" if predicted is None else "predicted"

    def predicted(self, layer: Mapping[str, Any]) -> int | None:
        """Return the predicted cycles of a step of the library's metadata; None if unknown."""
        cycles: int | None = layer.get("cpu_cycles")
        return None if cycles is None else round(cycles * self.factor)
