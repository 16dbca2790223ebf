# SPDX-License-Identifier: Apache-2.0
"""The figures of a network on an accelerator, for the page and for `--json`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from umakit.devices.run import CommandTimes
from umakit.devices.totals import CycleTotals, LayerCycles, included
from umakit.partition.report import CPU, OffloadReport
from umakit.text.identities import LayerIdentity
from umakit.tools.accounting import Accounting
from umakit.tools.energy import NetworkEvents
from umakit.tools.inferences.figures import SeveralInferences
from umakit.tools.page.bounds import AcceleratorBounds, LayerBounds
from umakit.tools.page.engines import Engines
from umakit.tools.report_format import FORMAT, VERSION

NEAR_THE_BOUND = 1.15
"""Ratio of cycles to bound above which a layer's bottleneck is named."""

CONVOLUTIONS = ("convolution", "convolution with a sum", "depthwise convolution")
"""Kinds of layers that are included in the total over convolutions."""


@dataclass(frozen=True)
class Accelerator:
    """A backend that the network was offered to.

    Attributes:
        name: name of the target.
        description: description in `accel.toml`.
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


@dataclass(frozen=True)
class Spent:
    """The cycles of a layer by the state of the array; the fields add up to all cycles.

    Attributes:
        full_array: cycles of the multiply-accumulates with every cell in use.
        partial_array: additional cycles of the array because of unused cells, and cycles of the
            pooling stage.
        drain: cycles in which results leave the array and nothing enters.
        loads: cycles in which the array waits for loads into the scratchpad.
        stores: cycles in which the array waits for stores from the scratchpad.
        driver: cycles in which the array waits for the driver's register accesses.
    """

    full_array: int
    partial_array: int
    drain: int
    loads: int
    stores: int
    driver: int

    @property
    def cycles(self) -> int:
        return sum(asdict(self).values())

    @property
    def bottleneck(self) -> str:
        """The largest part of the cycles that a perfect array would save.

        One of `array`, `drain`, `loads`, `stores` and `driver`.
        """
        others = {
            "array": self.partial_array,
            "drain": self.drain,
            "loads": self.loads,
            "stores": self.stores,
            "driver": self.driver,
        }
        return max(others, key=lambda name: others[name])


@dataclass(frozen=True)
class TiledLayer:
    """Figures of a layer that a planner cut into tiles.

    Attributes:
        tiling: description of the tiling.
        dataflow: dataflow of the array; empty for pools.
        tiles: number of tiles of the result, over all images.
        double_buffered: whether the next tile is loaded while one is computed.
        predicted_cycles: cycles by the cost model.
        compute_bound: cycles if every cell of the array is used in every cycle.
        memory_bound: cycles to move inputs, weights and results once.
        spent: predicted cycles by the state of the array; None if the planner has its own
            prediction.
        waits: predicted cycles in which the computing engine waits, by stream; only for machines
            described by a backend.
        bounds: further bounds and losses; None if not requested.
    """

    tiling: str
    dataflow: str
    tiles: int
    double_buffered: bool
    predicted_cycles: int
    compute_bound: int
    memory_bound: int
    spent: Spent | None
    waits: Mapping[str, int] = field(default_factory=dict)
    bounds: LayerBounds | None = None

    @property
    def bound(self) -> int:
        """The lower bound of the cycles of all tilings."""
        return max(self.compute_bound, self.memory_bound)


@dataclass(frozen=True)
class LayerFigures:
    """A step of the program.

    Attributes:
        number: number of the step in execution order, from 1.
        name: name of the layer in the user's model.
        where: `cpu` or the name of a backend.
        operators: operators of the step.
        kind: kind such as `convolution`; empty without a pattern of `umakit.patterns`.
        macs: multiply-accumulates computed from the shapes.
        clock_cycles: cycles of the simulated device; 0 on the CPU, whose time is not simulated;
            None if no simulator counts them.
        moved_bytes: bytes that the device moved over the bus; None if not measured.
        commands: times of the device's commands; empty if not recorded.
        commands_left_out: number of commands that were not recorded.
        concurrent_steps: numbers of the CPU steps that run together with the accelerator; only if
            layers are not measured one by one, as they were for these figures.
        tiled: figures of the tiling; None for a layer that no planner cut into tiles.
        explanation: description of the bottleneck, for more than `NEAR_THE_BOUND` times the bound.
        identity: identity of the step in terms of the model.
    """

    number: int
    name: str
    where: str
    operators: tuple[str, ...]
    kind: str
    macs: int
    clock_cycles: int | None
    moved_bytes: int | None
    commands: tuple[CommandTimes, ...]
    commands_left_out: int
    concurrent_steps: tuple[int, ...]
    tiled: TiledLayer | None
    explanation: str = ""
    identity: LayerIdentity | None = None

    @property
    def bottleneck(self) -> str:
        """The name of the explained bottleneck; else empty."""
        return self.explanation.partition(": ")[0]

    @property
    def on_cpu(self) -> bool:
        return self.where == CPU

    @property
    def cycles(self) -> LayerCycles:
        """Its cycles, as measured and as predicted."""
        predicted = None if self.tiled is None else self.tiled.predicted_cycles
        return LayerCycles(self.on_cpu, self.clock_cycles, predicted)

    @property
    def difference(self) -> float | None:
        """Excess of predicted over simulated cycles, in percent."""
        return self.cycles.difference_percent

    @property
    def ratio(self) -> float | None:
        if self.tiled is None or self.clock_cycles is None:
            return None
        return self.clock_cycles / self.tiled.bound

    @property
    def macs_per_cycle(self) -> float | None:
        """The multiply-accumulates per simulated cycle; None without either."""
        return self.macs / self.clock_cycles if self.macs and self.clock_cycles else None

    def as_json(self) -> dict[str, Any]:
        """Return all figures by name.

        A command is [engine, start, end of busy, completion], followed by its label if the
        simulator provides one.
        """
        view: dict[str, Any] = {
            "number": self.number,
            "name": self.name,
            "identity": None if self.identity is None else self.identity.as_json(),
            "where": self.where,
            "operators": list(self.operators),
            "kind": self.kind,
            "macs": self.macs,
            "clock_cycles": self.clock_cycles,
            "predicted_cycles": self.cycles.predicted_cycles,
            "difference_percent": self.difference,
            "source": self.cycles.source,
            "moved_bytes": self.moved_bytes,
            "macs_per_cycle": self.macs_per_cycle,
            "commands": [_command_json(command) for command in self.commands],
            "commands_left_out": self.commands_left_out,
            "beside": list(self.concurrent_steps),
            "tiled": None,
        }
        if self.tiled is not None:
            bottleneck = self.tiled.spent.bottleneck if self.tiled.spent else None
            view["tiled"] = {
                **asdict(self.tiled),
                "bounds": None if self.tiled.bounds is None else self.tiled.bounds.as_json(),
                "bound": self.tiled.bound,
                "difference_percent": self.difference,
                "simulated_over_bound": self.ratio,
                "bottleneck": bottleneck,
                "held_by": bottleneck,  # its older name
                "explanation": self.explanation,
            }
        return view


def _command_json(command: CommandTimes) -> list[str | int]:
    times = (command.stream, command.start, command.busy_end, command.completion)
    return [*times, command.label] if command.label else [*times]


def _sum(figures: Iterable[int | None]) -> int | None:
    """Return the sum of figures; None without figures, or if one is unknown."""
    values = list(figures)
    return sum(value for value in values if value) if values and None not in values else None


def _all_spent(spent: Sequence[Spent]) -> Spent:
    parts = zip(*(asdict(each).values() for each in spent), strict=True)
    return Spent(*map(sum, parts)) if spent else Spent(0, 0, 0, 0, 0, 0)


@dataclass(frozen=True)
class Total:
    """Totals over several tiled layers.

    Attributes:
        name: description of the layers.
        layers: number of layers.
        macs: multiply-accumulates.
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
    def of(cls, name: str, layers: Sequence[LayerFigures]) -> Total:
        """Return the totals over the tiled layers among some layers."""
        tiled = [(layer, layer.tiled) for layer in layers if layer.tiled is not None]
        spent = [each.spent for _, each in tiled]
        return cls(
            name,
            len(tiled),
            macs=sum(layer.macs for layer, _ in tiled),
            predicted_cycles=sum(each.predicted_cycles for _, each in tiled),
            clock_cycles=_sum(layer.clock_cycles for layer, _ in tiled),
            bound=sum(each.bound for _, each in tiled),
            moved_bytes=_sum(layer.moved_bytes for layer, _ in tiled),
            spent=_all_spent([each for each in spent if each]) if None not in spent else None,
            cycles=CycleTotals.of(layer.cycles for layer, _ in tiled),
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
        model: file name of the network.
        name: name of the model in C.
        fingerprint: SHA-256 of the model.
        umakit_version: version of umakit that made the page.
        inputs: description of the inputs.
        tilings: origin of the tilings; empty if no backend cuts layers into tiles.
        notices: decisions made for the user, and operators in floating point.
        accelerators: accelerators that the network was partitioned for, in order of priority.
        offload: the offload report.
        layers: steps of the program, in execution order.
        accounting: the owners of all cycles of an inference.
        events: counts of events that take energy, predicted and measured.
        memory: the memory plan, as in `metadata.json` of a library.
        buffers: names of the buffers in scratchpads, such as `weights`, by their C names in
            `memory`.
        bounds: bounds of all layers of each accelerator together.
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
    layers: tuple[LayerFigures, ...]
    accounting: Accounting
    events: NetworkEvents
    memory: Mapping[str, Any]
    buffers: Mapping[str, str]
    bounds: tuple[AcceleratorBounds, ...] = ()
    inferences: SeveralInferences | None = None

    @property
    def offloaded(self) -> tuple[LayerFigures, ...]:
        return tuple(layer for layer in self.layers if not layer.on_cpu)

    @property
    def is_measured(self) -> bool:
        """Whether a simulator counted the cycles of any layer."""
        return any(layer.clock_cycles is not None for layer in self.layers)

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """The accelerators with unmeasured layers."""
        names = [layer.where for layer in self.offloaded if layer.clock_cycles is None]
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
        if not rest or any(layer.on_cpu for layer in self.layers):
            return text
        return f"{text}, {rest} need{'s' if rest == 1 else ''} no code"

    @property
    def clock_cycles(self) -> int | None:
        """The simulated cycles of an inference on all accelerators.

        None without layers on accelerators, or if one was not measured.
        """
        return _sum(layer.clock_cycles for layer in self.offloaded)

    @property
    def cycles(self) -> CycleTotals:
        """Sums of measured and of predicted cycles, with the numbers of included layers."""
        return CycleTotals.of(layer.cycles for layer in self.layers)

    @property
    def includes(self) -> str:
        """A clause about the layers in totals of measured cycles; empty without accelerators."""
        cycles = self.cycles
        return included(cycles.measured_layers, cycles.layers, cycles.cpu_layers)

    @property
    def moved_bytes(self) -> int | None:
        """The bytes that all accelerators move in an inference; None as for `clock_cycles`."""
        return _sum(layer.moved_bytes for layer in self.offloaded)

    @property
    def tiled(self) -> tuple[LayerFigures, ...]:
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
        """Return all figures by name; keys are stable."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "model": self.model,
            "name": self.name,
            "model_sha256": self.fingerprint,
            "umakit_version": self.umakit_version,
            "inputs": self.inputs,
            "tilings": self.tilings,
            "notices": list(self.notices),
            "unused_backends": [each.as_json() for each in self.offload.unused],
            "accelerators": [asdict(each) for each in self.accelerators],
            "offloaded_macs": self.offload.offloaded_macs,
            "total_macs": self.offload.total_macs,
            "clock_cycles": self.clock_cycles,
            "cycle_totals": self.cycles.as_json(),
            "moved_bytes": self.moved_bytes,
            "operators": [
                {**said, "macs": row.macs, "shape": list(row.shape), "dtype": row.dtype}
                for said, row in zip(
                    self.offload.with_decisions_as_json(), self.offload.placements, strict=True
                )
            ],
            **({"choice": self.offload.comparison.as_json()} if self.offload.comparison else {}),
            "layers": [layer.as_json() for layer in self.layers],
            "totals": [total.as_json() for total in self.totals],
            "bounds": [each.as_json() for each in self.bounds],
            "accounting": self.accounting.as_json(),
            "inferences": None if self.inferences is None else self.inferences.as_json(),
            "events": self.events.as_json(),
            "memory": dict(self.memory),
        }
