# SPDX-License-Identifier: Apache-2.0
"""Records of accelerators' simulators, or of designs in RTL, during a run of a library."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from umakit.devices.designs import Design
from umakit.devices.inputs import check_inputs
from umakit.devices.run import Arrays, CommandTimes, LayerProfile, RunResult, run_library
from umakit.errors import InputError
from umakit.library.metadata import load_metadata
from umakit.tools.accounting.account import CpuCycles
from umakit.tools.record import LayerRecord
from umakit.tools.trace.model import Arguments, Process, Slice, Trace

ENGINE_RANK = 40
"""Rank of the tracks of engines."""

Details = Callable[[int, Sequence[CommandTimes]], Sequence[tuple[str, Arguments]] | None]
"""Returns name and figures of each command, for the index of a layer and its commands; None if
unknown."""

COUNTERS = (
    "macs",
    "device_macs",
    "clock_cycles",
    "predicted_cycles",
    "cycles",
    "array_cycles",
    "dma_cycles",
    "moved_bytes",
    "register_reads",
    "register_writes",
)
"""Figures of a layer's profile that its slice has."""


def trace_of_run(
    description: Mapping[str, Any],
    result: RunResult,
    designs: Collection[str] = (),
    predicted: Process | None = None,
    details: Details = lambda layer, commands: None,
) -> Trace:
    """Return the trace of a run of one inference with a profile and recorded commands.

    Args:
        description: section `umakit` of the library's `metadata.json`.
        designs: names of the backends whose RTL designs ran.
    """
    name = "Simulated"
    if designs:
        name += f", RTL of {' and '.join(sorted(designs))}"
    processes = [_process(name, description, result.layers, details)]
    if predicted is not None:
        processes.append(predicted)
    shown = tuple(process for process in processes if process.has_clock)
    if not shown:
        raise InputError(
            "there is nothing to trace: no accelerator with a clock ran a layer",
            where=description["name"],
            fix="leave --trace out, or name a backend whose simulator counts cycles",
        )
    return Trace(
        description["name"],
        description["model_sha256"],
        shown,
        memory_use(description["memory"], len(description["layers"])),
    )


def _process(
    name: str, description: Mapping[str, Any], profiles: Sequence[LayerProfile], details: Details
) -> Process:
    steps, cpu = [], CpuCycles.of(description)
    for index, (said, profile) in enumerate(zip(description["layers"], profiles, strict=True)):
        figures: dict[str, Any] = {"layer": index + 1, "where": profile.where}
        if said.get("identity"):
            figures["identity"] = said["identity"]
        if profile.on_cpu:
            figures["host_seconds"] = profile.seconds
            if said.get("cpu_cycles") is not None:
                figures["predicted_cycles"] = cpu.predicted(said)
        else:
            figures |= {each: getattr(profile, each) for each in COUNTERS}
            figures["host_seconds"] = profile.seconds
            figures["driver_seconds"] = profile.cpu_seconds
            figures["device_seconds"] = profile.device_seconds
        layer = LayerRecord(
            "cpu step" if profile.on_cpu else "layer", said["name"], profile.where, None, "",
            profile.macs, profile.clock_cycles, None, number=index + 1,
            commands_left_out=profile.commands_left_out,
        )  # fmt: skip
        steps.append((layer, figures, _slices(index, profile, details)))
    return Process(name, tuple(steps))


def _slices(index: int, profile: LayerProfile, details: Details) -> Iterator[Slice]:
    commands = profile.commands
    known = details(index, commands) if commands else None
    for number, each in enumerate(commands):
        name, figures = known[number] if known is not None else ("", {})
        yield from command_slices(
            f"{profile.where}: {each.stream}",
            each.label or name or each.stream or "command",
            each,
            {"layer": index + 1, "layer_name": profile.name, **figures},
        )


def command_slices(track: str, name: str, times: CommandTimes, args: Arguments) -> Iterator[Slice]:
    """Yield the slice in which a command occupies its engine, and its tail's slice, if any.

    Args:
        track: name of the engine's track; the tails' track is named after it.
        times: times of the command, in cycles since the begin of its layer.
    """
    tail = times.completion - times.busy_end
    figures = {"busy_cycles": times.busy_end - times.start, "tail_cycles": tail, **args}
    yield Slice(track, name, times.start, times.busy_end, figures, ENGINE_RANK)
    if tail:
        tails = f"{track}, tail"
        yield Slice(tails, name, times.busy_end, times.completion, figures, ENGINE_RANK)


def memory_use(memory: Mapping[str, Any], steps: int) -> dict[str, tuple[int, ...]]:
    """Return the bytes in use in each step, by the name of the memory.

    Tensors that take over the memory of others count once.

    Args:
        memory: the memory plan, as in `metadata.json`.
    """
    pools = [*memory["pools"], *memory["scratchpads"]]
    return {pool["name"]: _used(pool["tensors"], steps) for pool in pools if pool["tensors"]}


def _used(tensors: Iterable[Mapping[str, Any]], steps: int) -> tuple[int, ...]:
    live: list[list[tuple[int, int]]] = [[] for _ in range(steps)]
    for tensor in tensors:
        first = int(tensor["offset_bytes"])
        place = (first, first + int(tensor["size_bytes"]))
        for step in range(max(tensor["first_layer"], 0), min(tensor["last_layer"] + 1, steps)):
            live[step].append(place)
    return tuple(_covered(places) for places in live)


def _covered(places: list[tuple[int, int]]) -> int:
    """Return the number of bytes in the union of places."""
    total, end = 0, 0
    for first, last in sorted(places):
        total += max(0, last - max(first, end))
        end = max(end, last)
    return total


def first_inference(
    library: Path,
    arrays: Arrays,
    result: RunResult,
    timeout: float | None = None,
    rtl: Sequence[Design] = (),
    cpu: str = "",
) -> RunResult:
    """Return the run of the first inference alone, on the host, with recorded commands.

    Profiles of several inferences are means, which do not match the times of one inference.

    Args:
        arrays: inputs by name, of one inference or several.
        result: the run of all of them, with a profile and recorded commands.
        timeout, rtl, cpu: as in `umakit.run_library`.
    """
    if result.runs == 1:
        return result
    expected = load_metadata(library)["umakit"]["inputs"]
    count, _, checked = check_inputs(expected, arrays)
    if count == 0:
        raise InputError("the inputs hold no inference to trace")
    first = {item["name"]: array[:1] for item, array in zip(expected, checked, strict=True)}
    return run_library(
        library, first, profile=True, record_commands=True, timeout=timeout, rtl=rtl, cpu=cpu
    )
