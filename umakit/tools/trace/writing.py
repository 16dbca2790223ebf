# SPDX-License-Identifier: Apache-2.0
"""Writing a trace, event by event: a large trace is never in memory as a whole."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from umakit.files.outputs import TRACE
from umakit.files.staging import write_chunks
from umakit.tools.columns import view
from umakit.tools.record import LayerRecord
from umakit.tools.trace.model import CPU_TRACK, LAYER_TRACK, Process, Slice, Step, Trace
from umakit.version import __version__

__all__ = ["TraceSummary", "write_trace"]

TOLD_EVENTS = 50_000
"""Progress is told after so many events."""


def write_trace(
    destination: Path,
    trace: Trace,
    inputs: Iterable[Path] = (),
    *,
    force: bool = False,
    progress: Callable[[str], None] = lambda stage: None,
) -> TraceSummary:
    """Write a trace in the trace-event format (JSON), atomically.

    Args:
        trace: the trace; its slices are consumed.
        inputs: input files, which must not be overwritten.
        force: whether a file that umakit did not write is replaced too.
    """
    summary = TraceSummary()
    write_chunks(destination, _chunks(trace, summary, progress), TRACE, inputs, force=force)
    return summary


def _chunks(
    trace: Trace, summary: TraceSummary, progress: Callable[[str], None]
) -> Iterator[bytes]:
    progress("writing the trace")
    start = '{"traceEvents": [\n'
    for event in trace_events(trace, summary):
        yield (start + json.dumps(event)).encode("utf-8")
        start = ",\n"
        if summary.events % TOLD_EVENTS == 0:
            progress(f"writing the trace: {summary.events:,} events")
    about = {
        "time_unit": "a microsecond of the trace is a cycle",
        "model": trace.model,
        "model_sha256": trace.fingerprint,
        "cycles": {process.name: process.cycles for process in trace.processes},
        **summary.as_json(),
        "umakit_version": __version__,
        "written_by": "umakit trace",
    }
    end = {"displayTimeUnit": "ns", "otherData": about}
    yield f"\n],\n{json.dumps(end)[1:]}\n".encode()


# The events of the trace-event format, as dictionaries.
#
# Source: "Trace Event Format" by Google, the format of chrome://tracing and Perfetto.

Event = dict[str, Any]

RANKS, TRACKS = 100, 1_000_000
"""Most ranks of tracks, and most tracks of a process: numbers of tracks are made of these."""


@dataclass
class TraceSummary:
    """The written and omitted events of a trace.

    Attributes:
        left_out: number of commands that were not recorded, by process and layer.
        outside: number of commands that begin after the end of their layer, which are not shown.
        cut: number of commands that end after the end of their layer, where they are cut.
        without_cycles: layers on accelerators with unknown cycles, which are not shown, by process.
    """

    events: int = 0
    left_out: dict[str, dict[str, int]] = field(default_factory=dict)
    outside: int = 0
    cut: int = 0
    without_cycles: dict[str, list[str]] = field(default_factory=dict)

    @property
    def dropped(self) -> int:
        """The number of commands that the trace does not show."""
        counts = (count for layers in self.left_out.values() for count in layers.values())
        return sum(counts) + self.outside

    def as_json(self) -> dict[str, Any]:
        return view(
            self,
            "events dropped_commands:dropped commands_not_recorded:left_out "
            "commands_after_their_layer:outside commands_cut_at_the_end_of_their_layer:cut "
            "layers_without_cycles:without_cycles",
        )


def trace_events(trace: Trace, summary: TraceSummary) -> Iterator[Event]:
    """Yield all events of a trace, and count them."""
    for number, process in enumerate(trace.processes, start=1):
        for event in _Writer(number, process, trace.memory, summary).events():
            summary.events += 1
            yield event


class _Writer:
    """Makes the events of a process.

    Each track name has as many tracks as the maximum number of overlapping slices. The first track
    has the plain name; further tracks have a number appended.
    """

    def __init__(
        self,
        number: int,
        process: Process,
        memory: Mapping[str, tuple[int, ...]],
        summary: TraceSummary,
    ) -> None:
        self._process, self._memory, self._summary = process, memory, summary
        self._number = number
        self._threads: dict[tuple[str, int], int] = {}  # by track and lane
        self._lanes: dict[str, list[int]] = {}  # by track, the end of the last slice of each lane

    def events(self) -> Iterator[Event]:
        process = self._process
        yield self._metadata("process_name", 0, {"name": process.name})
        yield self._metadata("process_sort_index", 0, {"sort_index": self._number})
        yield from self._named(LAYER_TRACK, 0, 0)
        yield from self._named(CPU_TRACK, 0, 1)
        begin = Slice(LAYER_TRACK, "inference", 0, process.cycles, {"cycles": process.cycles})
        yield self._complete(begin, 0)
        now = 0
        for index, step in enumerate(process.steps):
            yield from self._step(index, step, now)
            now += step[0].cycles or 0

    def _step(self, index: int, step: Step, now: int) -> Iterator[Event]:
        layer, args, slices = step
        for name, used in self._memory.items():
            yield {
                "ph": "C", "name": f"{name} in use", "pid": self._number, "ts": now,
                "args": {"bytes": used[index]},
            }  # fmt: skip
        if layer.on_cpu and layer.cycles is not None:
            yield self._complete(Slice(CPU_TRACK, layer.name, 0, layer.cycles, args), now)
        elif layer.on_cpu:
            in_use = {f"{name}_bytes": each[index] for name, each in self._memory.items()}
            yield {
                "ph": "i", "s": "t", "name": layer.name, "cat": CPU_TRACK, "pid": self._number,
                "tid": self._threads[CPU_TRACK, 0], "ts": now, "args": {**args, **in_use},
            }  # fmt: skip
        elif layer.cycles is None:
            self._summary.without_cycles.setdefault(self._process.name, []).append(layer.name)
        else:
            yield self._complete(Slice(LAYER_TRACK, layer.name, 0, layer.cycles, args), now)
            yield from self._slices(layer, layer.cycles, slices, now)

    def _slices(
        self, layer: LayerRecord, cycles: int, slices: Iterator[Slice], now: int
    ) -> Iterator[Event]:
        summary = self._summary
        if layer.commands_left_out:
            dropped = summary.left_out.setdefault(self._process.name, {})
            dropped[f"{layer.number} {layer.name}"] = layer.commands_left_out
        # Assign lanes by begin: a shared engine runs commands in another order.
        for each in sorted(slices, key=lambda shown: (shown.begin, shown.end)):
            if each.begin > cycles or each.begin == cycles < each.end:
                summary.outside += 1
                continue
            shown = each
            if each.end > cycles:
                summary.cut += 1
                args = {**each.args, "cut_at_the_end_of_the_layer": True}
                shown = Slice(each.track, each.name, each.begin, cycles, args, each.rank)
            lane = self._lane(shown, now)
            yield from self._named(each.track, lane, each.rank)
            yield self._complete(shown, now, lane)

    def _lane(self, shown: Slice, now: int) -> int:
        """Return the first free lane of a track, and occupy it."""
        lanes = self._lanes.setdefault(shown.track, [])
        for number in itertools.count():
            if number == len(lanes):
                lanes.append(0)
            if lanes[number] <= now + shown.begin:
                lanes[number] = now + shown.end
                return number
        raise AssertionError

    def _named(self, track: str, lane: int, rank: int) -> Iterator[Event]:
        """Yield the events that name a lane on its first use."""
        if (track, lane) in self._threads:
            return
        # Perfetto orders tracks by these numbers, and treats a track with the process's number as
        # its main thread.
        place = RANKS * self._number + rank
        thread = self._threads[track, lane] = TRACKS * place + len(self._threads)
        name = track if lane == 0 else f"{track} ({lane + 1})"
        yield self._metadata("thread_name", thread, {"name": name})
        yield self._metadata("thread_sort_index", thread, {"sort_index": thread})

    def _metadata(self, name: str, thread: int, args: Event) -> Event:
        return {"ph": "M", "name": name, "pid": self._number, "tid": thread, "ts": 0, "args": args}

    def _complete(self, shown: Slice, now: int, lane: int = 0) -> Event:
        thread, length = self._threads[shown.track, lane], shown.end - shown.begin
        return {
            "ph": "X", "name": shown.name, "cat": shown.track, "pid": self._number, "tid": thread,
            "ts": now + shown.begin, "dur": length, "args": dict(shown.args),
        }  # fmt: skip
