# SPDX-License-Identifier: Apache-2.0
"""Measurements of layers and whole inferences, from the output of a library's program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from umakit.devices.device import Device
from umakit.library.identities import identities_of
from umakit.machine.energy import MemoryCounts
from umakit.text.identities import LayerIdentity


@dataclass(frozen=True, slots=True)
class CommandTimes:
    """The times of a command of a simulated accelerator, in cycles since the layer's begin.

    Attributes:
        stream: name of the engine, for example `load`.
        start: first cycle.
        busy_end: the cycle after the last one in which the command occupied its engine.
        completion: the cycle from which the command's effect is visible.
        label: the engine's work in the words of the simulator; may be empty.
    """

    stream: str
    start: int
    busy_end: int
    completion: int
    label: str = ""


@dataclass(frozen=True)
class LayerProfile:
    """Measurements of one layer in one inference.

    Figures of accelerators are None if not measured: no simulator answers for the layer's
    accelerator or for any accelerator of the network, or the simulator does not count them. For
    layers on the CPU, these figures are counts of the simulated accelerators in the meantime,
    mostly 0.

    Attributes:
        name: name of the layer.
        where: `cpu` or the name of the backend.
        macs: multiply-accumulates computed from the shapes.
        device_macs: multiply-accumulates that the device counted.
        clock_cycles: cycles of the device's clock from the layer's begin to its end, including
            waits for the driver.
        cycles: cycles in which an engine of the device was busy.
        array_cycles: cycles in which the array was busy.
        dma_cycles: cycles in which a DMA engine was busy; 0 without a DMA engine.
        moved_bytes: bytes that the device moved over the bus.
        seconds: processor time, including the simulator's; None on devices without meaningful
            times.
        instructions: executed instructions, including the simulator's; None on devices that do not
            count them.
        device_seconds, device_instructions: share of calls of `umakit/device.h`, that is, of the
        simulator; None if not measured.
        commands: commands of the device in the first inference; empty unless recorded.
        commands_left_out: number of commands that were not recorded.
        predicted_cycles: prediction of the backend's cost model at compile time, in cycles of the
            device's clock; None without a prediction.
        register_reads, register_writes: accesses of the driver to registers of the device; None if
        not counted, as in libraries of older versions of umakit.
        identity: identity of the layer in terms of the model.
        written_bytes: share of `moved_bytes` that the device wrote.
        array_macs: capacity of the array in multiply-accumulates; only of umakit's simulators.
        memories: simulator's counts of accesses to the accelerator's memories, by name; empty
            without memories, None if unknown.
    """

    name: str
    where: str
    macs: int
    device_macs: int | None
    clock_cycles: int | None
    cycles: int | None
    array_cycles: int | None
    dma_cycles: int | None
    moved_bytes: int | None
    seconds: float | None
    instructions: int | None
    commands: tuple[CommandTimes, ...] = ()
    commands_left_out: int = 0
    predicted_cycles: int | None = None
    register_reads: int | None = None
    register_writes: int | None = None
    identity: LayerIdentity | None = None
    written_bytes: int | None = None
    array_macs: int | None = None
    memories: Mapping[str, MemoryCounts] | None = None
    device_seconds: float | None = None
    device_instructions: int | None = None

    @property
    def cpu_seconds(self) -> float | None:
        """Processor time outside of the device's calls: of a driver's own code, or of a step."""
        if self.seconds is None or self.device_seconds is None:
            return None
        return round(self.seconds - self.device_seconds, 12)

    @property
    def cpu_instructions(self) -> int | None:
        """Instructions outside of the device's calls: of a driver's own code, or of a step."""
        if self.instructions is None or self.device_instructions is None:
            return None
        return self.instructions - self.device_instructions

    @property
    def on_cpu(self) -> bool:
        return self.where == "cpu"


@dataclass(frozen=True)
class InferenceProfile:
    """Mean measurements of a whole inference; None if unknown.

    Attributes:
        clock_cycles: cycles of the clocks of all accelerators that count them, from begin to end of
            the inference. Libraries of older versions of umakit do not count them.
        between_cycles: share of `clock_cycles` outside all layers.
        runs: number of inferences.
    """

    clock_cycles: int | None
    between_cycles: int | None
    runs: int


CHAIN = ("array_cycles", "cycles", "clock_cycles")
"""Counters, each of which includes the cycles of the previous one."""


class _Mean:
    """Means of counts that add up to the mean of their sum: rounding errors carry over."""

    def __init__(self, runs: int) -> None:
        self._runs, self._sum, self._told = runs, 0, 0

    def next(self, count: int) -> int:
        """Return the mean of the next count, which is not negative."""
        self._sum += count
        mean = (2 * self._sum + self._runs) // (2 * self._runs) - self._told
        self._told += mean
        return mean


def profiles_of(
    device: Device,
    description: Mapping[str, Any],
    report: Mapping[str, Any],
    runs: int,
    lines: Sequence[str],
) -> tuple[tuple[LayerProfile, ...], InferenceProfile]:
    """Return the mean measurements of each layer and of the whole inference.

    The mean clock cycles of layers, and of the cycles between layers, add up to the mean of the
    inference, even if inferences take different times.

    Args:
        report: last line that the program printed.
    """
    layers, recorded = description["layers"], _recorded(lines)
    simulated = {backend["name"] for backend in description["backends"] if backend["simulated"]}
    uncounted, identities = report.get("unknown", {}), identities_of(description)
    mean, clock = _Mean(runs), 0
    profiles = []
    for number, (layer, figures) in enumerate(zip(layers, report["layers"], strict=True)):
        known = {
            name: value for name, value in figures.items()
            if isinstance(value, int)
            and _is_counted(layer["where"], name, simulated, uncounted)
        }  # fmt: skip
        clock += known.get("clock_cycles", 0)
        counted = _means(known, mean, runs)
        is_kits = layer["where"] in description["sources"]["simulated_as"]
        if layer["where"] not in simulated:  # the layer calls no device
            figures = {**figures, "device_nanoseconds": 0, "device_instructions": 0}
        profile = _profile(device, layer, figures, counted, runs, is_kits=is_kits)
        commands, left_out = recorded.get(number, ((), 0))
        profiles.append(
            replace(
                profile,
                commands=commands,
                commands_left_out=left_out,
                identity=identities[number],
                memories=_memories(figures, layer["where"], runs, is_kits=is_kits),
            )
        )
    whole = report.get("inference", {}).get("clock_cycles")
    is_known = any("clock_cycles" not in uncounted.get(name, ()) for name in simulated)
    if whole is None or not is_known or whole < clock:
        return tuple(profiles), InferenceProfile(None, None, runs)
    told = sum(each.clock_cycles or 0 for each in profiles)
    between = mean.next(whole - clock)
    return tuple(profiles), InferenceProfile(told + between, between, runs)


def _profile(
    device: Device,
    layer: Mapping[str, Any],
    figures: Mapping[str, Any],
    counted: Mapping[str, int],
    runs: int,
    *,
    is_kits: bool,
) -> LayerProfile:
    """Return the measurements of a layer without its commands.

    Args:
        figures: sums over all inferences.
        counted: means of the figures that a simulator counts.
        is_kits: whether the layer's accelerator has a simulator of umakit.
    """
    nanoseconds, instructions = (
        (figures[name], figures.get(f"device_{name}")) for name in ("nanoseconds", "instructions")
    )
    return LayerProfile(
        name=layer["name"],
        where=layer["where"],
        macs=int(layer["macs"]),
        device_macs=counted.get("macs"),
        clock_cycles=counted.get("clock_cycles"),
        cycles=counted.get("cycles"),
        array_cycles=counted.get("array_cycles"),
        dma_cycles=counted.get("dma_cycles"),
        moved_bytes=counted.get("moved_bytes"),
        seconds=_seconds(nanoseconds[0], runs) if device.has_time else None,
        device_seconds=_seconds(nanoseconds[1], runs) if device.has_time else None,
        instructions=_per_run(instructions[0], runs) if device.counts_instructions else None,
        device_instructions=_per_run(instructions[1], runs) if device.counts_instructions else None,
        predicted_cycles=layer.get("predicted_cycles"),
        register_reads=counted.get("register_reads"),
        register_writes=counted.get("register_writes"),
        written_bytes=counted.get("written_bytes"),
        array_macs=_array_macs(counted) if is_kits else None,
    )


def _seconds(nanoseconds: int | None, runs: int) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e9 / runs


def _per_run(total: int | None, runs: int) -> int | None:
    return None if total is None else round(total / runs)


def _array_macs(counted: Mapping[str, int]) -> int | None:
    """Return the array's capacity in multiply-accumulates; None for RTL."""
    room, macs = counted.get("array_macs"), counted.get("macs")
    return None if room is None or macs is None or room < macs else room


def _memories(
    figures: Mapping[str, Any], where: str, runs: int, *, is_kits: bool
) -> dict[str, MemoryCounts] | None:
    """Return the mean accesses to the memories of a layer's accelerator, by name.

    umakit's simulators count all memories. Other simulators may leave memories uncounted.
    """
    counted: Mapping[str, Sequence[int | None]] | None = figures.get("memories", {}).get(where)
    if counted is None or (not counted and not is_kits):
        return None
    return {
        name: MemoryCounts(*(None if each is None else round(each / runs) for each in sums))
        for name, sums in counted.items()
    }


def _is_counted(
    where: str, figure: str, simulated: set[str], uncounted: Mapping[str, Sequence[str]]
) -> bool:
    """Whether a simulator counts a figure of a layer; on the CPU, whether any does."""
    counting = {target for target in simulated if figure not in uncounted.get(target, ())}
    return where in counting or (where == "cpu" and bool(counting))


def _means(sums: Mapping[str, int], mean: _Mean, runs: int) -> dict[str, int]:
    """Return the mean of each figure of a layer; `mean` is the running mean of all clock cycles."""
    found = {name: round(value / runs) for name, value in sums.items()}
    chain = [name for name in CHAIN if name in sums]
    values = [sums[name] for name in chain]
    if values != sorted(values):
        chain = ["clock_cycles"] if "clock_cycles" in sums else []
    if "clock_cycles" not in chain:
        return found
    before = told = 0
    for name in chain:
        told += mean.next(sums[name] - before)
        before, found[name] = sums[name], told
    return found


def _recorded(lines: Sequence[str]) -> dict[int, tuple[tuple[CommandTimes, ...], int]]:
    """Return recorded commands by layer, in order of their starts, and the number omitted."""
    counts: dict[int, int] = {}
    kept: dict[int, list[CommandTimes]] = {}
    layer = 0
    for line in lines:
        word, _, rest = line.partition(" ")
        if word == "events":
            layer, count = map(int, rest.split())
            counts[layer] = counts.get(layer, 0) + count
        elif word == "event":
            first, busy_end, last, texts = rest.split(" ", 3)
            engine, _, label = texts.partition("\t")
            times = CommandTimes(engine, int(first), int(busy_end), int(last), label)
            kept.setdefault(layer, []).append(times)
    return {
        layer: (tuple(sorted(commands, key=lambda each: each.start)), counts[layer] - len(commands))
        for layer, commands in kept.items()
    }
