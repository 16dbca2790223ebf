# SPDX-License-Identifier: Apache-2.0
"""Writing a trace, event by event: a large one is never in memory as a whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from umakit.files.outputs import TRACE, check_file, check_parent
from umakit.files.staging import write_chunks
from umakit.tools.trace.events import TraceSummary, trace_events
from umakit.tools.trace.model import Trace
from umakit.version import __version__

__all__ = ["TraceSummary", "check_trace", "write_trace"]

TOLD_EVENTS = 50_000
"""Progress is told after so many events."""


def check_trace(destination: Path, inputs: Iterable[Path] = (), *, force: bool = False) -> None:
    """Refuse a file that could not be written, before anything is compiled or run.

    Args:
        destination, inputs, force: as in `write_trace`.

    Raises:
        OutputError: the folder does not exist, or the file is not ours to write.
    """
    check_parent(destination)
    check_file(destination, TRACE, inputs, force=force)


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
        destination: the file; a trace that umakit wrote earlier is replaced.
        trace: what it shows; its slices are used up.
        inputs: files that were read and must not be overwritten.
        force: whether a file that umakit did not write is replaced too.
        progress: callback with a description of each stage.

    Returns:
        What was written, and what was left out.

    Raises:
        OutputError: umakit must not replace the file, or it cannot be written.
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
