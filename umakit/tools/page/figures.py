# SPDX-License-Identifier: Apache-2.0
"""The figures of a network on an accelerator: what the page shows and `--json` prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from umakit.devices.run import CommandTimes
from umakit.partition.report import CPU, OffloadReport

NEAR_THE_BOUND = 1.15
"""Above this many times its bound, a layer names its bottleneck."""

CONVOLUTIONS = ("convolution", "convolution with a sum", "depthwise convolution")
"""Kinds of layers that the total over convolutions counts."""


@dataclass(frozen=True)
class Accelerator:
    """A backend that the network was offered to.

    Attributes:
        name: of the target.
        description: one line of its `accel.toml`.
        rows, columns: of its array.
        bytes_per_cycle: of its DMA engine; None where it has none, or cuts no layers into tiles.
        tiles: whether its layers are cut into tiles by a planner that predicts their cycles.
    """

    name: str
    description: str
    rows: int
    columns: int
    bytes_per_cycle: int | None
    tiles: bool

    @property
    def cells(self) -> int:
        """Multiply-accumulates of a cycle."""
        return self.rows * self.columns


@dataclass(frozen=True)
class Spent:
    """What the array of an accelerator does in the cycles of a layer; together they are all.

    Attributes:
        full_array: the cycles that the multiply-accumulates need with every cell at work.
        partial_array: those that it works for longer, because cells have no work, or a pool
            goes through the pooling stage.
        drain: results leave the array and nothing enters.
        loads: it waits for data on their way into the scratchpad.
        stores: it waits for results on their way out of it.
        driver: it waits for the driver's register accesses.
    """

    full_array: int
    partial_array: int
    drain: int
    loads: int
    stores: int
    driver: int

    @property
    def cycles(self) -> int:
        """All cycles of the layer."""
        return sum(asdict(self).values())

    @property
    def bottleneck(self) -> str:
        """What takes most of the cycles that a perfect array would not need: `array`, `drain`,
        `loads`, `stores` or `driver`."""
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
        tiling: in words.
        dataflow: what stays in the array; empty for pools.
        tiles: of the result, of all images.
        double_buffered: whether the next tile is loaded while one is computed.
        predicted_cycles: by the cost model.
        compute_bound: cycles with every cell of the array at work.
        memory_bound: cycles to move inputs, weights and results once.
        spent: the predicted cycles, by what the array does.
    """

    tiling: str
    dataflow: str
    tiles: int
    double_buffered: bool
    predicted_cycles: int
    compute_bound: int
    memory_bound: int
    spent: Spent

    @property
    def bound(self) -> int:
        """Cycles that no tiling can beat."""
        return max(self.compute_bound, self.memory_bound)


@dataclass(frozen=True)
class LayerFigures:
    """A step of the program.

    Attributes:
        number: from 1, in execution order.
        name: of the layer, as the user's model calls it.
        where: `cpu` or a backend.
        operators: that it computes.
        kind: such as `convolution`; empty where it came from no pattern of `umakit.patterns`.
        macs: multiply-accumulates by the shapes.
        clock_cycles: of the simulated device; 0 on the CPU, whose time is not simulated; None where
            no simulator of umakit answers.
        moved_bytes: over the bus, by the device; None where that is not measured.
        commands: what the device did when; empty where that is not recorded.
        commands_left_out: how many more there were.
        concurrent_steps: numbers of the steps on the CPU that run while the accelerator does; only
            when layers are not measured one by one, as they were for these figures.
        tiled: None for a layer that no planner cut into tiles.
        explanation: its bottleneck, if it takes more than `NEAR_THE_BOUND` times its bound.
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

    @property
    def on_cpu(self) -> bool:
        """Whether no accelerator runs it."""
        return self.where == CPU

    @property
    def difference(self) -> float | None:
        """Predicted cycles above the simulated ones, in percent."""
        if self.tiled is None or not self.clock_cycles:
            return None
        return 100 * (self.tiled.predicted_cycles / self.clock_cycles - 1)

    @property
    def ratio(self) -> float | None:
        """Simulated cycles divided by the lower bound."""
        if self.tiled is None or self.clock_cycles is None:
            return None
        return self.clock_cycles / self.tiled.bound

    @property
    def macs_per_cycle(self) -> float | None:
        """Of the simulated cycles; None without multiply-accumulates or cycles."""
        return self.macs / self.clock_cycles if self.macs and self.clock_cycles else None

    def as_json(self) -> dict[str, Any]:
        """All figures by name; a command is a list of stream, start, end of busy, completion."""
        view: dict[str, Any] = {
            "number": self.number,
            "name": self.name,
            "where": self.where,
            "operators": list(self.operators),
            "kind": self.kind,
            "macs": self.macs,
            "clock_cycles": self.clock_cycles,
            "moved_bytes": self.moved_bytes,
            "macs_per_cycle": self.macs_per_cycle,
            "commands": [list(asdict(command).values()) for command in self.commands],
            "commands_left_out": self.commands_left_out,
            "beside": list(self.concurrent_steps),
            "tiled": None,
        }
        if self.tiled is not None:
            view["tiled"] = {
                **asdict(self.tiled),
                "bound": self.tiled.bound,
                "difference_percent": self.difference,
                "simulated_over_bound": self.ratio,
                "held_by": self.tiled.spent.bottleneck,
                "explanation": self.explanation,
            }
        return view


def _sum(figures: Iterable[int | None]) -> int | None:
    """The sum of figures; None if there are none, or one is unknown."""
    values = list(figures)
    return sum(value for value in values if value) if values and None not in values else None


@dataclass(frozen=True)
class Total:
    """Sums over several tiled layers.

    Attributes:
        name: what they are.
        layers: how many.
        macs: multiply-accumulates.
        predicted_cycles, clock_cycles, bound, moved_bytes: as of a layer; None if one of the
            layers was not measured.
        spent: the predicted cycles.
    """

    name: str
    layers: int
    macs: int
    predicted_cycles: int
    clock_cycles: int | None
    bound: int
    moved_bytes: int | None
    spent: Spent

    @classmethod
    def of(cls, name: str, layers: Sequence[LayerFigures]) -> Total:
        """The sums over those of the layers that are tiled."""
        tiled = [(layer, layer.tiled) for layer in layers if layer.tiled is not None]
        spent = [asdict(each.spent).values() for _, each in tiled]
        return cls(
            name,
            len(tiled),
            macs=sum(layer.macs for layer, _ in tiled),
            predicted_cycles=sum(each.predicted_cycles for _, each in tiled),
            clock_cycles=_sum(layer.clock_cycles for layer, _ in tiled),
            bound=sum(each.bound for _, each in tiled),
            moved_bytes=_sum(layer.moved_bytes for layer, _ in tiled),
            spent=Spent(*map(sum, zip(*spent, strict=True))) if spent else Spent(0, 0, 0, 0, 0, 0),
        )

    @property
    def difference(self) -> float | None:
        """Predicted cycles above the simulated ones, in percent."""
        return 100 * (self.predicted_cycles / self.clock_cycles - 1) if self.clock_cycles else None

    @property
    def ratio(self) -> float | None:
        """Simulated cycles divided by the lower bound."""
        return None if self.clock_cycles is None else self.clock_cycles / self.bound

    def as_json(self) -> dict[str, Any]:
        """All figures by name."""
        return {
            **asdict(self),
            "difference_percent": self.difference,
            "simulated_over_bound": self.ratio,
        }


@dataclass(frozen=True)
class Page:
    """Everything that `uma report` says about a network.

    Attributes:
        model: file of the network.
        name: of the model in C.
        fingerprint: SHA-256 of the model.
        umakit_version: that made it.
        inputs: what the network was run with, in words.
        tilings: where they are from, in words; empty where no backend cuts layers into tiles.
        notices: what was decided on the user's behalf, and what computes in floating point.
        accelerators: that the network was offered to, in order of priority.
        offload: where each operator went.
        layers: of the program, in execution order.
        memory: the memory plan, as in `metadata.json` of a library.
        buffers: names of the buffers in scratchpads, such as `weights`, by the C names that
            `memory` has.
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
    memory: Mapping[str, Any]
    buffers: Mapping[str, str]

    @property
    def offloaded(self) -> tuple[LayerFigures, ...]:
        """The layers on accelerators."""
        return tuple(layer for layer in self.layers if not layer.on_cpu)

    @property
    def is_measured(self) -> bool:
        """Whether a simulator counted the cycles of any layer."""
        return any(layer.clock_cycles is not None for layer in self.layers)

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """The accelerators that have layers whose cycles nothing counted."""
        names = [layer.where for layer in self.offloaded if layer.clock_cycles is None]
        return tuple(dict.fromkeys(names))

    @property
    def moves(self) -> bool:
        """Whether a simulator counted bytes on the bus."""
        return any(layer.moved_bytes for layer in self.layers)

    @property
    def clock_cycles(self) -> int | None:
        """Simulated cycles of an inference, of all accelerators; None if the network uses none, or
        one that was not measured."""
        return _sum(layer.clock_cycles for layer in self.offloaded)

    @property
    def moved_bytes(self) -> int | None:
        """Over the bus in an inference, by all accelerators; None as for `clock_cycles`."""
        return _sum(layer.moved_bytes for layer in self.offloaded)

    @property
    def tiled(self) -> tuple[LayerFigures, ...]:
        """The layers that a planner cut into tiles."""
        return tuple(layer for layer in self.layers if layer.tiled is not None)

    @property
    def totals(self) -> tuple[Total, ...]:
        """Over convolutions and over all tiled layers, where there are any."""
        convolutions = [layer for layer in self.tiled if layer.kind in CONVOLUTIONS]
        groups = {"convolutions": convolutions, "all tiled layers": self.tiled}
        return tuple(Total.of(name, layers) for name, layers in groups.items() if layers)

    @property
    def offloaded_share(self) -> float | None:
        """Of the multiply-accumulates, 0 to 1; None if there are none."""
        total = self.offload.total_macs
        return self.offload.offloaded_macs / total if total else None

    def as_json(self) -> dict[str, Any]:
        """All figures by name; keys are stable."""
        return {
            "model": self.model,
            "name": self.name,
            "model_sha256": self.fingerprint,
            "umakit_version": self.umakit_version,
            "inputs": self.inputs,
            "tilings": self.tilings,
            "notices": list(self.notices),
            "accelerators": [asdict(each) for each in self.accelerators],
            "offloaded_macs": self.offload.offloaded_macs,
            "total_macs": self.offload.total_macs,
            "clock_cycles": self.clock_cycles,
            "moved_bytes": self.moved_bytes,
            "operators": [
                {**row.as_json(), "macs": row.macs, "shape": list(row.shape), "dtype": row.dtype}
                for row in self.offload.placements
            ],
            "layers": [layer.as_json() for layer in self.layers],
            "totals": [total.as_json() for total in self.totals],
            "memory": dict(self.memory),
        }
