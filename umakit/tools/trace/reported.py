# SPDX-License-Identifier: Apache-2.0
"""The trace of `uma report`: the simulation, and beside it the prediction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy.typing as npt

from umakit.backend.base import UMABackend
from umakit.devices.run import CommandTimes, RunResult
from umakit.library.export import Library
from umakit.machine import Prediction, TilePlanner
from umakit.machine.clock import Run
from umakit.machine.commands import CommandDetails, command_details
from umakit.machine.planner import prediction_of
from umakit.machine.stalls import NEVER, Schedule, awaited_commands
from umakit.machine.tiles import Tiles
from umakit.program.program import KernelCall, Program
from umakit.tools.accounting.account import CpuCycles
from umakit.tools.record import LayerRecord
from umakit.tools.trace.model import Arguments, Process, Slice, Step, Trace
from umakit.tools.trace.simulated import command_slices, first_inference, trace_of_run


def trace_of_report(
    backends: Sequence[UMABackend],
    folder: Path,
    library: Library,
    arrays: Mapping[str, npt.NDArray[Any]],
    result: RunResult,
) -> Trace:
    """Return the trace of the first inference of a library that was compiled and run.

    Args:
        library: the library, with its program.
        result: the run, with a profile and recorded commands.
    """
    first = first_inference(folder, arrays, result)
    plans = Plans(library, {backend.target_name: backend.tiling for backend in backends})
    return trace_of_run(
        library.metadata["umakit"], first, predicted=plans.process(), details=plans.details
    )


DRIVER_RANK, QUEUE_RANK = 10, 20
"""Ranks of the tracks of drivers and queues."""

NAMES = {"load": "load {}", "store": "store {}", "compute": "job"}
"""Names of commands, by action."""

Described = Sequence[tuple[str, Arguments]]


class Plans:
    """The predictions of all layers that planners cut into tiles.

    Args:
        library: a library that was compiled, with its program.
        planners: planner of each backend by name; None if it has none.
    """

    def __init__(self, library: Library, planners: Mapping[str, TilePlanner | None]) -> None:
        if library.program is None:
            raise ValueError("the library was read, not compiled")
        description = library.metadata["umakit"]
        self._layers: Sequence[Mapping[str, Any]] = description["layers"]
        self._cpu = CpuCycles.of(description)
        places = _places(description["memory"])
        self._plans = [
            _plan(call, library.program, planners, places) for call in library.program.calls
        ]

    def process(self) -> Process:
        return Process(
            "Predicted",
            tuple(
                _predicted(index, said, plan, self._cpu)
                for index, (said, plan) in enumerate(zip(self._layers, self._plans, strict=True))
            ),
        )

    def details(self, index: int, commands: Sequence[CommandTimes]) -> Described | None:
        """Return the name and the figures of each of a layer's recorded commands.

        Commands of a stream start in order, so the first recorded command of a stream is the first
        of the plan. Waits are derived from the recorded times.

        Returns:
            None if the commands differ from the plan in kind or number.
        """
        plan = self._plans[index]
        found = None if plan is None else _matched(plan, commands)
        if plan is None or found is None:
            return None
        waited = _waits_of_recorded(plan, commands, found)
        return [
            (plan.names[planned], {**plan.figures[planned], **waits})
            for planned, waits in zip(found, waited, strict=True)
        ]


@dataclass(frozen=True)
class _Plan:
    """A tiled layer, with the places of its buffers by name."""

    target: str
    planner: TilePlanner
    tiles: Tiles
    prediction: Prediction
    places: Mapping[str, tuple[str, int]]

    @cached_property
    def run(self) -> Run | None:
        """The predicted run, if the predicted cycles are derived from it."""
        run = self.prediction.run
        finish = self.planner.driver.finish
        return run if run is not None and self.prediction.cycles == run.cycles + finish else None

    @cached_property
    def details(self) -> list[CommandDetails]:
        """The action of each command; empty if the predicted commands are not the kit's."""
        run = self.prediction.run
        found = command_details(self.tiles, self.planner.machine, self.planner.driver)
        return found if run is not None and len(found) == len(run.commands) else []

    @cached_property
    def names(self) -> list[str]:
        assert self.prediction.run is not None
        if not self.details:
            return [command.stream for command in self.prediction.run.commands]
        return [NAMES[each.does].format(each.tensor) for each in self.details]

    @cached_property
    def figures(self) -> list[dict[str, Any]]:
        """The figures of each command that do not depend on its times."""
        assert self.prediction.run is not None
        if not self.details:
            return [{"command": number} for number, _ in enumerate(self.prediction.run.commands)]
        return [{"command": n, **self._figures(each)} for n, each in enumerate(self.details)]

    def _figures(self, details: CommandDetails) -> dict[str, Any]:
        figures: dict[str, Any] = {"tile": details.tile}
        buffer = details.tensor or "result"
        if details.tensor:
            figures |= {"bytes": details.moved_bytes, "tensor_offset": details.tensor_offset}
        if buffer in self.places:
            memory, offset = self.places[buffer]
            figures |= {"memory": memory, f"{buffer}_address": offset + details.place}
        return figures


def _places(memory: Mapping[str, Any]) -> dict[str, tuple[str, int]]:
    """Return the scratchpad and the offset of each buffer, by C name."""
    return {
        tensor["c_name"]: (pool["name"], int(tensor["offset_bytes"]))
        for pool in memory["scratchpads"]
        for tensor in pool["tensors"]
    }


def _plan(
    call: KernelCall,
    program: Program,
    planners: Mapping[str, TilePlanner | None],
    places: Mapping[str, tuple[str, int]],
) -> _Plan | None:
    kernel = program.kernels[call.kernel] if call.kernel else None
    planner = planners.get(call.target)
    if kernel is None or kernel.composite is None or planner is None:
        return None
    tiles = planner.tiles_of(kernel.composite, program.planned[call.target].tilings)
    named = {
        str(parameter.variable.name): places[name]
        for name, parameter in zip(call.scratch, kernel.scratch, strict=True)
        if name in places
    }
    return _Plan(call.target, planner, tiles, prediction_of(planner, tiles), named)


def _predicted(index: int, said: Mapping[str, Any], plan: _Plan | None, cpu: CpuCycles) -> Step:
    args: dict[str, Any] = {"layer": index + 1, "where": said["where"], "macs": said["macs"]}
    if said.get("identity"):
        args["identity"] = said["identity"]
    layer = LayerRecord(
        "cpu step" if said["where"] == "cpu" else "layer", said["name"], said["where"], None, "",
        said["macs"], None, None, number=index + 1,
    )  # fmt: skip
    if layer.on_cpu:
        cycles = args["predicted_cycles"] = cpu.predicted(said)
        if cycles is not None:
            args |= {"predicted_instructions": said.get("cpu_instructions"), "clocks": cpu.clocks}
        return replace(layer, cpu_cycles=cycles), args, iter(())
    if plan is None:
        cycles = args["predicted_cycles"] = said.get("predicted_cycles")
        return replace(layer, clock_cycles=cycles), args, iter(())
    cycles = plan.prediction.cycles
    args |= {"predicted_cycles": cycles, "bound_cycles": plan.prediction.bound.cycles}
    slices = iter(()) if plan.run is None else _slices(plan, plan.run, index + 1, layer.name)
    return replace(layer, clock_cycles=cycles), args, slices


def _slices(plan: _Plan, run: Run, number: int, name: str) -> Iterator[Slice]:
    where: dict[str, Any] = {"layer": number, "layer_name": name}
    waited = awaited_commands(
        [each.stream for each in run.commands], [each.busy for each in run.commands],
        run.schedule, run.machine,
    )  # fmt: skip
    before = 0
    for index, (command, times) in enumerate(zip(run.commands, run.timeline, strict=True)):
        engine = run.machine.engine_of(command.stream)
        args = {**where, **plan.figures[index], "stream": command.stream}
        entry = _named(plan, run.schedule.stalled_by[index])
        accesses = {"register_accesses": command.issue, "waited_for_entry_of": entry}
        begin = before if run.machine.has_queues else times.enqueued - command.issue
        driver = f"{plan.target}: driver"
        what = f"enqueue {plan.names[index]}"
        yield Slice(driver, what, begin, times.enqueued, {**args, **accesses}, DRIVER_RANK)
        before = times.enqueued
        waits: dict[str, Any] = {
            "waited_for": _named(plan, waited[index]),
            "waited_cycles": times.start - times.enqueued,
        }
        if times.start == times.enqueued:
            waits["waited_for"] = "driver"
        if times.start > times.enqueued:
            queue = f"{plan.target}: queue {engine.queue}"
            waiting = {**args, **waits}
            yield Slice(queue, plan.names[index], times.enqueued, times.start, waiting, QUEUE_RANK)
        ran = CommandTimes(engine.name, times.start, times.busy_end, times.completion)
        track = f"{plan.target}: {engine.name}"
        yield from command_slices(track, plan.names[index], ran, {**args, **waits})
    end = plan.prediction.cycles
    if end > run.cycles:
        accesses = {**where, "register_accesses": end - run.cycles}
        yield Slice(f"{plan.target}: driver", "finish", run.cycles, end, accesses, DRIVER_RANK)


def _named(plan: _Plan, index: int) -> str | None:
    return None if index < 0 else f"command {index}: {plan.names[index]}"


def _matched(plan: _Plan, commands: Sequence[CommandTimes]) -> list[int] | None:
    """Return the planned command of each recorded one; None if they differ from the plan."""
    run = plan.prediction.run
    if run is None:
        return None
    planned: dict[str, list[int]] = {}
    for index, command in enumerate(run.commands):
        planned.setdefault(command.stream, []).append(index)
    counts = {name: len(indices) for name, indices in planned.items()}
    seen: dict[str, int] = {}
    for each in commands:
        seen[each.stream] = seen.get(each.stream, 0) + 1
    if seen != counts:
        planned = {name: indices for name, indices in run.schedule.orders.items() if indices}
        if seen != {name: len(indices) for name, indices in planned.items()}:
            return None
    following = {name: iter(indices) for name, indices in planned.items()}
    found = [next(following[each.stream]) for each in commands]
    if seen == counts:
        return found
    # Streams of an engine may start in another order than predicted.
    is_same = all(
        run.commands[index].busy == each.busy_end - each.start
        for index, each in zip(found, commands, strict=True)
    )
    return found if is_same else None


def _waits_of_recorded(
    plan: _Plan, commands: Sequence[CommandTimes], found: Sequence[int]
) -> list[Arguments]:
    run = plan.prediction.run
    assert run is not None
    count = len(commands)
    schedule = Schedule.empty(run.schedule.dependencies[:count], run.machine)
    busy = [1] * count
    for index, each in zip(found, commands, strict=True):
        schedule.starts[index], schedule.completions[index] = each.start, each.completion
        busy[index] = each.busy_end - each.start
    schedule = replace(
        schedule,
        orders={
            engine: sorted(indices, key=lambda index: schedule.starts[index])
            for engine, indices in run.schedule.orders.items()
        },
    )
    streams = [command.stream for command in run.commands]
    waited = awaited_commands(streams, busy, schedule, run.machine)
    assert NEVER not in schedule.starts[:count]
    return [{"waited_for": _named(plan, waited[index])} for index in found]
