# SPDX-License-Identifier: Apache-2.0
"""The figures of a network on an accelerator, for the page and for `--json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from umakit.devices.run import CommandTimes
from umakit.devices.totals import CycleTotals, included
from umakit.partition.report import OffloadReport
from umakit.tools.accounting import RunReport
from umakit.tools.columns import known_sum, view
from umakit.tools.inferences.figures import SeveralInferences
from umakit.tools.page.engines import Engines
from umakit.tools.record import FORMAT, VERSION, AcceleratorBounds, LayerRecord, Spent

NEAR_THE_BOUND = 1.15
"""Ratio of cycles to bound above which a layer's bottleneck is named."""

CONVOLUTIONS = ("convolution", "convolution with a sum", "depthwise convolution")
"""Kinds of layers that are included in the total over convolutions."""


@dataclass(frozen=True)
class Accelerator:
    """A backend that the network was offered to.

    Attributes:
        rows, columns: dimensions of the array; None without an array in `accel.toml`.
        bytes_per_cycle: total bandwidth of the DMA engines; None without DMA engines or without
            tiled layers.
        tiles: whether a planner cuts layers into tiles and predicts their cycles.
        calibrated: date of the measurement of the costs behind predictions; empty for described
            costs.
        macs_per_cycle: peak multiply-accumulates per cycle; None if unknown.
        engines: engines of a machine described by the backend; None for umakit's systolic array and
            without a planner.
    """

    name: str
    description: str
    rows: int | None
    columns: int | None
    bytes_per_cycle: int | None
    tiles: bool
    macs_per_cycle: int | None = None
    calibrated: str = ""
    engines: Engines | None = None

    @property
    def cells(self) -> int | None:
        if self.rows is None or self.columns is None:
            return None
        return self.rows * self.columns


LAYER = (
    "number name identity where operators kind:pattern macs clock_cycles predicted_cycles "
    "difference_percent:difference source:clock_source moved_bytes macs_per_cycle"
)
TILED = (
    "tiling dataflow tiles double_buffered predicted_cycles compute_bound memory_bound spent waits "
    "bounds bound"
)


def layer_json(layer: LayerRecord) -> dict[str, Any]:
    """Return the figures of a layer on the page; keys are stable.

    A command is [engine, start, end of busy, completion], followed by its label if the simulator
    provides one.
    """
    found = {
        **view(layer, LAYER),
        "commands": [_command_json(command) for command in layer.commands],
        **view(layer, "commands_left_out beside:concurrent_steps"),
        "tiled": None,
    }
    tiled = layer.tiled
    if tiled is not None:
        bottleneck = tiled.spent.bottleneck if tiled.spent else None
        found["tiled"] = {
            **view(tiled, TILED),
            **view(layer, "difference_percent:difference simulated_over_bound:ratio"),
            "bottleneck": bottleneck,
            "held_by": bottleneck,  # its older name
            "explanation": layer.explanation,
        }
    return found


def _command_json(command: CommandTimes) -> list[str | int]:
    times = (command.stream, command.start, command.busy_end, command.completion)
    return [*times, command.label] if command.label else [*times]


def _all_spent(spent: Sequence[Spent]) -> Spent:
    parts = zip(*(asdict(each).values() for each in spent), strict=True)
    return Spent(*map(sum, parts)) if spent else Spent(0, 0, 0, 0, 0, 0)


@dataclass(frozen=True)
class Total:
    """Totals over several tiled layers.

    Attributes:
        predicted_cycles, clock_cycles, bound, moved_bytes: sums of the layers' figures; None if a
            layer was not measured.
        spent: predicted cycles by the state of the array; None if unknown for a layer.
        cycles: sums over the measured layers, with their number.
    """

    name: str
    layers: int
    macs: int
    predicted_cycles: int
    clock_cycles: int | None
    bound: int
    moved_bytes: int | None
    spent: Spent | None
    cycles: CycleTotals

    @classmethod
    def of(cls, name: str, layers: Sequence[LayerRecord]) -> Total:
        """Return the totals over the tiled layers among some layers."""
        tiled = [(layer, layer.tiled) for layer in layers if layer.tiled is not None]
        spent = [each.spent for _, each in tiled]
        return cls(
            name,
            len(tiled),
            macs=sum(layer.macs for layer, _ in tiled),
            predicted_cycles=sum(each.predicted_cycles for _, each in tiled),
            clock_cycles=known_sum(layer.clock_cycles for layer, _ in tiled),
            bound=sum(each.bound for _, each in tiled),
            moved_bytes=known_sum(layer.moved_bytes for layer, _ in tiled),
            spent=_all_spent([each for each in spent if each]) if None not in spent else None,
            cycles=CycleTotals.of(layer for layer, _ in tiled),
        )

    @property
    def label(self) -> str:
        """The name, with the number of measured layers if not all were measured."""
        measured = self.cycles.measured_layers
        if measured == self.layers:
            return self.name
        return f"{self.name} ({measured} of {self.layers} measured)"

    @property
    def difference(self) -> float | None:
        """Excess of predicted over simulated cycles of measured layers, in percent."""
        return self.cycles.difference_percent

    @property
    def ratio(self) -> float | None:
        return None if self.clock_cycles is None else self.clock_cycles / self.bound

    def as_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "difference_percent": self.difference,
            "simulated_over_bound": self.ratio,
        }


@dataclass(frozen=True)
class Page:
    """All facts about a network in `uma report`.

    Attributes:
        name: name of the model in C.
        tilings: origin of the tilings; empty if no backend cuts layers into tiles.
        notices: decisions made for the user, and operators in floating point.
        accelerators: accelerators that the network was partitioned for, in order of priority.
        accounting: layers, totals and settings of the measured inference.
        memory: the memory plan, as in `metadata.json` of a library.
        buffers: names of the buffers in scratchpads, such as `weights`, by their C names in
            `memory`.
        inferences: figures of the first and of later inferences; None if not requested.
    """

    model: str
    name: str
    fingerprint: str
    umakit_version: str
    inputs: str
    tilings: str
    notices: tuple[str, ...]
    accelerators: tuple[Accelerator, ...]
    offload: OffloadReport
    accounting: RunReport
    memory: Mapping[str, Any]
    buffers: Mapping[str, str]
    bounds: tuple[AcceleratorBounds, ...] = ()
    inferences: SeveralInferences | None = None

    @property
    def layers(self) -> tuple[LayerRecord, ...]:
        """The steps of the program in execution order."""
        return self.accounting.layers

    @property
    def is_measured(self) -> bool:
        """Whether a simulator counted the cycles of any layer."""
        return any(layer.clock_cycles is not None for layer in self.layers)

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """The accelerators with unmeasured layers."""
        own = self.accounting.offloaded
        names = [layer.where for layer in own if layer.clock_cycles is None]
        return tuple(dict.fromkeys(names))

    @property
    def moves(self) -> bool:
        """Whether a simulator counted bytes on the bus."""
        return any(layer.moved_bytes for layer in self.layers)

    @property
    def offloaded_text(self) -> str:
        """The number of offloaded operators, and of those without code if the CPU has no step."""
        rest = len(self.offload.placements) - len(self.offload.offloaded)
        text = (
            f"{len(self.offload.offloaded)} of {len(self.offload.placements)} operators offloaded"
        )
        if not rest or self.accounting.cpu_steps:
            return text
        return f"{text}, {rest} need{'s' if rest == 1 else ''} no code"

    @property
    def clock_cycles(self) -> int | None:
        """The simulated cycles of an inference on all accelerators.

        None without layers on accelerators, or if one was not measured.
        """
        return known_sum(layer.clock_cycles for layer in self.accounting.offloaded)

    @property
    def cycles(self) -> CycleTotals:
        """Sums of measured and of predicted cycles, with the numbers of included layers."""
        return self.accounting.cycle_totals

    @property
    def includes(self) -> str:
        """A clause about the layers in totals of measured cycles; empty without accelerators."""
        cycles = self.cycles
        return included(cycles.measured_layers, cycles.layers, cycles.cpu_layers)

    @property
    def moved_bytes(self) -> int | None:
        """The bytes that all accelerators move in an inference; None as for `clock_cycles`."""
        return self.accounting.moved_bytes

    @property
    def tiled(self) -> tuple[LayerRecord, ...]:
        return tuple(layer for layer in self.layers if layer.tiled is not None)

    @property
    def totals(self) -> tuple[Total, ...]:
        """The totals over convolutions and over all tiled layers, if there are any."""
        convolutions = [layer for layer in self.tiled if layer.kind in CONVOLUTIONS]
        groups = {"convolutions": convolutions, "all tiled layers": self.tiled}
        return tuple(Total.of(name, layers) for name, layers in groups.items() if layers)

    @property
    def offloaded_share(self) -> float | None:
        """The offloaded fraction of multiply-accumulates, 0 to 1; None if there are none."""
        total = self.offload.total_macs
        return self.offload.offloaded_macs / total if total else None

    def as_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            **view(
                self, "model name model_sha256:fingerprint umakit_version inputs tilings notices"
            ),
            **view(self.offload, "unused_backends:unused"),
            **view(self, "accelerators"),
            **view(self.offload, "offloaded_macs total_macs"),
            **view(self, "clock_cycles cycle_totals:cycles moved_bytes"),
            "operators": [
                {**said, "macs": row.macs, "shape": list(row.shape), "dtype": row.dtype}
                for said, row in zip(
                    self.offload.with_decisions_as_json(), self.offload.placements, strict=True
                )
            ],
            **({"choice": self.offload.comparison.as_json()} if self.offload.comparison else {}),
            "layers": [layer_json(layer) for layer in self.layers],
            **view(self, "totals bounds accounting inferences"),
            "events": self.accounting.events,
            **view(self, "memory"),
        }
