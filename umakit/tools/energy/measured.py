# SPDX-License-Identifier: Apache-2.0
"""Counts of events that a simulator measured. Imports neither TVM nor the pipeline."""

from __future__ import annotations

from umakit.devices.run import LayerProfile
from umakit.machine.counts.events import EventCounts


def counts_of(layer: LayerProfile) -> EventCounts:
    """Return the counts of a layer on an accelerator in an inference, as they were measured.

    Args:
        layer: its profile. What its simulator does not count is not known.
    """
    accesses = (layer.register_reads, layer.register_writes)
    return EventCounts(
        macs=layer.macs if layer.device_macs is None else layer.device_macs,
        wasted_macs=_difference(layer.array_macs, layer.device_macs),
        bus_read_bytes=_difference(layer.moved_bytes, layer.written_bytes),
        bus_written_bytes=layer.written_bytes,
        register_accesses=sum(each or 0 for each in accesses) if None not in accesses else None,
        cycles=layer.clock_cycles,
        idle_cycles=_difference(layer.clock_cycles, layer.cycles),
        memories=layer.memories,
    )


def _difference(whole: int | None, part: int | None) -> int | None:
    return None if whole is None or part is None or part > whole else whole - part
