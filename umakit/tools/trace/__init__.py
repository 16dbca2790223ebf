# SPDX-License-Identifier: Apache-2.0
"""Traces of an inference for Perfetto and chrome://tracing, of `uma run` and `uma report`.

::

    model.py      Trace         slices and counters by layer, in cycles
    simulated.py  simulated     records of simulators, or of designs in RTL, in a run
    predicted.py  predicted     predictions of the cost models
    reported.py   trace_of_report  both, of `uma report`
    first.py      first_inference  the run of the first inference alone
    memory.py     memory_use    bytes in use of each memory in each step
    events.py     trace_events  the events of the trace-event format
    writing.py    write_trace   the file
"""

from __future__ import annotations

from umakit.tools.trace.model import Trace
from umakit.tools.trace.simulated import trace_of_run
from umakit.tools.trace.writing import TraceSummary, write_trace

__all__ = ["Trace", "TraceSummary", "trace_of_run", "write_trace"]
