# SPDX-License-Identifier: Apache-2.0
"""Records of layers and bounds, which runs, predictions, pages, traces and comparisons share.

A record is made once, from the metadata of a library, and gets the figures that a run or a cost
model knows. Every JSON object about a layer is a `view`: a list of the names of its figures.
Imports neither TVM nor the pipeline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from umakit.devices.totals import difference_percent, source_of
from umakit.text.identities import LayerIdentity, SourceOperator
from umakit.tools.columns import known_sum, view

if TYPE_CHECKING:
    from umakit.devices.inferences import Spread
    from umakit.devices.profiles import CommandTimes
    from umakit.machine.bounds.losses import Losses
    from umakit.machine.energy import EnergySection, EventCounts
    from umakit.machine.systolic import ArrayBound
else:  # pydantic reads records from saved reports, which have none of these figures
    ArrayBound = CommandTimes = EnergySection = EventCounts = Losses = Spread = Any

CPU = "cpu"

FORMAT, VERSION = "umakit report", 1
"""Identify saved reports. The version rises when a key that comparisons read changes its meaning or
goes."""

Count = Annotated[int, Field(ge=0)]
"""A number of cycles, bytes or other things."""

Time = Annotated[float, Field(ge=0, allow_inf_nan=False)]

Owner = Literal["layer", "cpu step", "between layers"]
"""Owners of cycles: a layer on an accelerator, a step on the CPU, or the run function, which calls
layers and steps in turn."""

Source = Literal["measured", "scaled", "counted", "predicted", "unknown"]
"""Sources of cycles: a simulator's clock; host time times `--cpu-clock`; instructions counted by an
emulator times the cycles of an instruction in the CPU's description; the costs in the description;
or none."""


@dataclass(frozen=True)
class Parts:
    """The cycles of an accelerator's clock in a record, by the state of its engines.

    Attributes:
        computing: a compute engine is at work.
        waits: no compute engine is at work, and others are, by their names: `load`, or `load +
            store` for both; `copies` if unknown.
        registers: no engine is at work, and the driver accesses registers. Only for umakit's
            simulators, on which an access takes a cycle.
        idle: no engine is at work, for an unknown reason.
        undivided: the states of the engines are unknown.
    """

    computing: Count = 0
    waits: Mapping[str, Count] = field(default_factory=dict)
    registers: Count = 0
    idle: Count = 0
    undivided: Count = 0

    @property
    def cycles(self) -> int:
        return sum(self.named().values())

    def named(self) -> dict[str, int]:
        """Return all parts by name, waits as `waits: load`."""
        waits = {f"waits: {name}": cycles for name, cycles in self.waits.items()}
        return {"computing": self.computing, **waits, **view(self, "registers idle undivided")}

    def as_json(self) -> dict[str, Any]:
        return view(self, "computing waits registers idle undivided")

    @classmethod
    def total(cls, parts: Iterable[Parts]) -> Parts:
        found, waits = list(parts), Counter[str]()
        for each in found:
            waits.update(each.waits)
        names = ("computing", "registers", "idle", "undivided")
        return cls(waits=dict(waits), **{n: sum(getattr(e, n) for e in found) for n in names})


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
        others = {"array": self.partial_array, **view(self, "drain loads stores driver")}
        return max(others, key=lambda name: others[name])


@dataclass(frozen=True)
class TiledLayer:
    """The plan of a layer that a planner cut into tiles, and its prediction.

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
        array: bound with folds, drain, first load and last store; None if unknown.
        losses: cycles above the bound, by cause; None if unknown.
        unknown: reasons for a missing `array` or `losses`, by attribute.
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
    array: ArrayBound | None = None
    losses: Losses | None = None
    unknown: Mapping[str, str] = field(default_factory=dict)

    @property
    def bound(self) -> int:
        """The lower bound of the cycles of all tilings."""
        return max(self.compute_bound, self.memory_bound)

    @property
    def bounds(self) -> dict[str, Any]:
        """The further bounds and losses, as JSON."""
        return view(self, "array losses unknown")


@dataclass(frozen=True)
class LayerRecord:
    """A layer on an accelerator, a step on the CPU, or the time between them, in one inference.

    Figures are None if they are unknown, and for records of other owners.

    Attributes:
        owner: kind of the owner.
        where: `cpu` or the backend.
        identity: operators of the model in the layer; None between layers.
        kind: work of a CPU step: its operators such as `quantize`, or `copy` or `layout change`; of
            a layer, its pattern such as `convolution`, if known.
        macs: multiply-accumulates computed from the shapes.
        clock_cycles: cycles of the accelerators' clocks, the sum of `parts`; for a CPU step the
            cycles that passed meanwhile, mostly 0.
        parts: `clock_cycles` by the state of the engines.
        cpu_cycles: cycles of a CPU step, without `clock_cycles`: host time times `--cpu-clock`,
            else counted instructions times the cycles of an instruction, else the prediction from
            the CPU's description; None without any of them.
        cpu_source: source of `cpu_cycles`.
        register_reads, register_writes: accesses of the driver to registers, also while engines are
            at work.
        moved_bytes: bytes that accelerators moved over the bus.
        read_bytes, written_bytes: sizes of the tensors that a CPU step reads, including constants,
            and writes.
        seconds: processor time of the machine that ran the layer, including a simulator.
        instructions: instructions of an emulated CPU, including a simulator.
        device_seconds, device_instructions: share of calls of `umakit/device.h`, that is, of the
            simulator; None if not measured.
        predicted_instructions: instructions of a CPU step, by the costs of the CPU's description.
        predicted_cycles, predicted_bytes: cycles and bytes over the bus by the accelerator's cost
            model; None without one, and on the CPU.
        number: number of the step in execution order, from 1.
        commands: times of the device's commands; empty if not recorded.
        commands_left_out: number of commands that were not recorded.
        concurrent_steps: numbers of the CPU steps that run together with the accelerator; only if
            layers are not measured one by one, as they were for these figures.
        tiling: description of the tiling; empty for an uncut layer, or if unknown.
        explanation: description of the bottleneck of a layer far above its bound; else empty.
        predicted, measured: events that take energy, by the cost model and by the simulator.
        energy_section: picojoules of events on the accelerator.
        bound, scratchpad_bytes, utilisation: lower bound of the cycles of all tilings, use of the
            accelerator's memories by the tiles, and multiply-accumulates relative to the capacity
            of all cells in the predicted cycles, 0 to 1.
        cycle_spread, byte_spread: range of measured cycles and bytes over several inferences; None
            if the record is of their mean.
    """

    owner: Owner
    name: str
    where: str
    identity: LayerIdentity | None
    kind: str
    macs: Count
    clock_cycles: Count | None
    parts: Parts | None
    cpu_cycles: Count | None = None
    cpu_source: Source | None = None
    register_reads: Count | None = None
    register_writes: Count | None = None
    moved_bytes: Count | None = None
    read_bytes: Count | None = None
    written_bytes: Count | None = None
    seconds: Time | None = None
    instructions: Count | None = None
    device_seconds: Time | None = None
    device_instructions: Count | None = None
    predicted_instructions: Count | None = None
    predicted_cycles: Count | None = None
    predicted_bytes: Count | None = None
    number: int = 0
    operators: tuple[str, ...] = ()
    commands: tuple[CommandTimes, ...] = ()
    commands_left_out: int = 0
    concurrent_steps: tuple[int, ...] = ()
    tiling: str = ""
    tiled: TiledLayer | None = None
    explanation: str = ""
    predicted: EventCounts | None = None
    measured: EventCounts | None = None
    energy_section: EnergySection | None = None
    bound: Count | None = None
    scratchpad_bytes: Count | None = None
    utilisation: float | None = None
    cycle_spread: Spread | None = None
    byte_spread: Spread | None = None

    @property
    def on_cpu(self) -> bool:
        return self.owner == "cpu step"

    @property
    def known_identity(self) -> LayerIdentity:
        """The identity; that of an operator of the record's name in a report written by hand."""
        operators = (SourceOperator(self.name),)
        return self.identity or LayerIdentity(self.name, "operators", operators, 0)

    # --- cycles -----------------------------------------------------------------------------------

    @property
    def cycles(self) -> int | None:
        """All measured cycles; None for a CPU step with unknown cycles."""
        if self.on_cpu:
            return None if self.cpu_cycles is None else self.cpu_cycles + (self.clock_cycles or 0)
        return self.clock_cycles

    @property
    def source(self) -> Source:
        if self.cycles is None:
            return "unknown"
        return self.cpu_source or "unknown" if self.on_cpu else "measured"

    @property
    def difference(self) -> float | None:
        """Excess of predicted over simulated cycles, in percent."""
        return difference_percent(self)

    @property
    def clock_source(self) -> str:
        """The source of the cycles of the accelerator's clock; `cpu` for a CPU step."""
        return source_of(self)

    @property
    def ratio(self) -> float | None:
        """Simulated cycles divided by the bound of a tiled layer."""
        if self.tiled is None or self.clock_cycles is None:
            return None
        return self.clock_cycles / self.tiled.bound

    @property
    def macs_per_cycle(self) -> float | None:
        """The multiply-accumulates per simulated cycle; None without either."""
        return self.macs / self.clock_cycles if self.macs and self.clock_cycles else None

    @property
    def bottleneck(self) -> str:
        """The name of the explained bottleneck; else empty."""
        return self.explanation.partition(": ")[0]

    # --- bytes and energy -------------------------------------------------------------------------

    @property
    def bus_bytes(self) -> int | None:
        """The bytes that the layer's accelerator moved; None on the CPU."""
        return None if self.on_cpu else self.moved_bytes

    @property
    def tensor_bytes(self) -> int | None:
        """The bytes that a CPU step reads and writes."""
        return known_sum((self.read_bytes, self.written_bytes))

    @property
    def counts(self) -> EventCounts:
        """The measured events, else the predicted ones."""
        from umakit.machine.energy import EventCounts

        return self.measured or self.predicted or EventCounts()

    # --- JSON -------------------------------------------------------------------------------------

    @property
    def work(self) -> str:
        """The kind of a CPU step; empty for a layer."""
        return self.kind if self.on_cpu else ""

    @property
    def pattern(self) -> str:
        """The kind of a layer on an accelerator; empty for a CPU step."""
        return "" if self.on_cpu else self.kind

    def as_json(self) -> dict[str, Any]:
        """Return the record as an owner of cycles; keys are stable."""
        return view(self, OWNED)


OWNED = (
    "owner name where identity kind:work macs cycles source clock_cycles parts cpu_cycles "
    "cpu_source register_reads register_writes moved_bytes:bus_bytes read_bytes written_bytes "
    "seconds device_seconds instructions device_instructions predicted_instructions"
)
"""Figures of an owner of cycles in JSON."""


@dataclass(frozen=True)
class NamedBound:
    """A bound of all layers on an accelerator.

    Attributes:
        name: `network`, `scratchpad`, `layers` or `arrays`.
        cycles: the bound; None if unknown.
        compute, memory, bytes: parts of the bound, as of `CycleBound`; None for sums over layers.
        ratio: simulated cycles divided by the bound; None without one of them.
        unknown: reasons for missing parts, a clause each.
    """

    name: str
    title: str = ""
    cycles: Count | None = None
    compute: Count | None = None
    memory: Count | None = None
    bytes: Count | None = None
    ratio: float | None = None
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True)
class AcceleratorBounds:
    """The bounds of the layers that an accelerator runs.

    Attributes:
        macs, total_macs: multiply-accumulates of these layers, and of the whole network.
        clock_cycles: simulated cycles of these layers; None if one was not measured.
        bounds: the bounds, from the network's to the one with most facts about the machine.
        not_counted: names of layers with unknown needs of their operands, whose bytes are not
            counted.
    """

    accelerator: str
    layers: Count = 0
    macs: Count = 0
    total_macs: Count = 0
    clock_cycles: Count | None = None
    bounds: tuple[NamedBound, ...] = ()
    not_counted: tuple[str, ...] = ()

    def cycles(self, name: str) -> int | None:
        """Return a bound by its name; None if unknown."""
        return next((each.cycles for each in self.bounds if each.name == name), None)

    @property
    def share(self) -> float | None:
        """The accelerator's fraction of the network's multiply-accumulates, 0 to 1."""
        return self.macs / self.total_macs if self.total_macs else None

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "share": self.share}
