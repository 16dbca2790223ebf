# SPDX-License-Identifier: Apache-2.0
"""Traces of an inference for Perfetto and chrome://tracing, of `uma run` and `uma report`.

::

    model.py      Trace         slices and counters by layer, in cycles
    simulated.py  trace_of_run  records of simulators or RTL designs in a run, and use of memory
    reported.py   trace_of_report  simulations and predictions, of `uma report`
    writing.py    write_trace   the file, in the trace-event format
"""

from __future__ import annotations

from umakit.tools.trace.model import Trace
from umakit.tools.trace.simulated import trace_of_run
from umakit.tools.trace.writing import TraceSummary, write_trace

__all__ = ["Trace", "TraceSummary", "trace_of_run", "write_trace"]
