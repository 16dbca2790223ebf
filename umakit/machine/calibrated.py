# SPDX-License-Identifier: Apache-2.0
"""A machine with measured costs of commands."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from umakit.machine.calibration import Calibration, CopyCosts, JobCosts
from umakit.machine.costs import Copy, Cost, TileSizes
from umakit.machine.figures import Figure
from umakit.machine.layer import Kind
from umakit.machine.systolic import Dataflow
from umakit.machine.tile_machine import TileMachine, Wrapped


class Calibrated(Wrapped):
    """A machine with measured costs of commands.

    Commands that were not measured keep the costs of the described machine.

    Args:
        other: the described machine.
        calibration: measured costs.
    """

    def __init__(self, other: TileMachine, calibration: Calibration) -> None:
        super().__init__(other)
        self.calibration = calibration
        self.jobs_by_step = other.jobs_by_step or any(
            {"first", "last"} & each.sizes
            for costs in calibration.jobs
            for each in (costs.busy, costs.tail)
        )
        self._jobs = {
            (each.kind, each.dataflow, adds): each
            for each in calibration.jobs
            for adds in ((False, True) if each.adds is None else (each.adds,))
        }
        self._copies = {
            (each.stream, tensor): each for each in calibration.copies for tensor in each.tensors
        }
        self._by_stream = {each.stream: each for each in reversed(calibration.copies)}

    def job(self, sizes: TileSizes) -> Cost:
        """Return the measured cycles of a job."""
        costs = self.costs_of_jobs(sizes.layer.kind, sizes.dataflow, sizes.layer.adds)
        described = self.other.job(sizes)
        return described if costs is None else _cost(costs, job_sizes(sizes), described)

    def copy(self, copied: Copy) -> Cost:
        """Return the measured cycles of a copy. An unmeasured tensor has the costs of other tensors
        of
        the same stream."""
        costs = self.costs_of_copies(self.stream_of(copied.tensor), copied.tensor)
        described = self.other.copy(copied)
        return described if costs is None else _cost(costs, copy_sizes(copied), described)

    def costs_of_jobs(self, kind: Kind, dataflow: Dataflow, adds: bool) -> JobCosts | None:
        """Return the costs of jobs of a kind of layer; None if no such job was measured."""
        costs = self._jobs.get((kind, dataflow, adds)) or self._jobs.get((kind, dataflow, False))
        if costs is None and kind in (Kind.MAX_POOL, Kind.AVERAGE_POOL):
            costs = next((each for each in self._jobs.values() if each.kind is kind), None)
        return costs

    def costs_of_copies(self, stream: str, tensor: str) -> CopyCosts | None:
        """Return the costs of a tensor's copies; None if no copy of its stream was measured."""
        return self._copies.get((stream, tensor)) or self._by_stream.get(stream)

    @cached_property
    def digest(self) -> str:
        """Device and time of the measurement, which identify the costs."""
        return f"{self.calibration.device}, {self.calibration.measured.isoformat()}"

    def figures(self) -> dict[str, Figure]:
        """Return the machine's figures, with the measurement."""
        return {**self.other.figures(), "calibration": self.digest}


def job_sizes(sizes: TileSizes) -> dict[str, int]:
    """Return the sizes that the cycles of a job may depend on, by `JobVariable`."""
    layer, product = sizes.layer, sizes.product
    return {
        "m": product.m,
        "n": product.n,
        "k": product.k,
        "rows": sizes.rows,
        "columns": sizes.columns,
        "input_channels": 1 if layer.per_channel else sizes.input_channels,
        "window": layer.window,
        "macs": product.macs,
        "first": int(sizes.first),
        "last": int(sizes.last),
    }


def copy_sizes(copied: Copy) -> dict[str, int]:
    """Return the sizes that the cycles of a copy may depend on, by `CopyVariable`."""
    lines = copied.planes * copied.rows
    return {
        "planes": copied.planes,
        "rows": copied.rows,
        "lines": lines,
        "row_bytes": copied.row_bytes,
        "bytes": lines * copied.row_bytes,
    }


def _cost(costs: JobCosts | CopyCosts, sizes: dict[str, int], described: Cost) -> Cost:
    busy = costs.busy.of({**sizes, "described": described.busy})
    tail = costs.tail.of({**sizes, "described": described.tail})
    return replace(described, busy=max(1, busy), tail=max(0, tail))
