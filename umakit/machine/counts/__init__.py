# SPDX-License-Identifier: Apache-2.0
"""Counts of events of a layer that cost energy: accesses, bytes, multiply-accumulates, cycles.

::

    events.py    EventCounts, MemoryCounts  the counts, as `--json` prints them
    accesses.py  job_counts                 what a job of a systolic array reads and writes
    tiled.py     tiled_counts               predicted counts of a layer that is cut into tiles
"""

from umakit.machine.counts.events import EventCounts, MemoryCounts

__all__ = ["EventCounts", "MemoryCounts"]
