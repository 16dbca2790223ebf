# SPDX-License-Identifier: Apache-2.0
"""What a comparison needs of a report, as `uma report --json` prints it.

Keys that are not here are ignored, so that a report of a newer umakit can be read as long as its
version is the same. Imports neither TVM nor the pipeline.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field

from umakit.text.identities import LayerIdentity, SourceOperator
from umakit.tools.report_format import FORMAT, VERSION

CPU = "cpu"


Count = Annotated[int, Field(ge=0)]
"""A number of cycles, bytes or other things."""

Time = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class Parts:
    """Cycles by the state of the engines, as `umakit.tools.accounting.Parts`."""

    computing: Count
    waits: dict[str, Count]
    registers: Count
    idle: Count
    undivided: Count

    def wait(self, name: str) -> int:
        """Return the cycles of a wait, 0 for one that never was."""
        return self.waits.get(name, 0)


@dataclass(frozen=True)
class Operator:
    """The `name` and kind (`operator`) of an operator, where it runs, and why on the CPU."""

    operator: str
    name: str
    where: str
    reason: str


@dataclass(frozen=True)
class Row:
    """The figures of an owner of cycles, as `umakit.tools.accounting.Row`.

    Attributes:
        identity: None between layers, which is `owner` too.
        clock_cycles: measured cycles of the accelerators' clocks.
        moved_bytes: bytes on the bus.
        read_bytes, written_bytes: of a step on the CPU.
        seconds, instructions: time or instructions of the processor, including a simulator.
        device_seconds, device_instructions: the part of them in calls of the device.
    """

    owner: Literal["layer", "cpu step", "between layers"]
    name: str
    where: str
    identity: LayerIdentity | None
    kind: str
    macs: Count
    clock_cycles: Count | None
    parts: Parts | None
    register_reads: Count | None = None
    register_writes: Count | None = None
    moved_bytes: Count | None = None
    read_bytes: Count | None = None
    written_bytes: Count | None = None
    seconds: Time | None = None
    device_seconds: Time | None = None
    instructions: Count | None = None
    device_instructions: Count | None = None

    @property
    def on_cpu(self) -> bool:
        """Whether it is a step on the CPU."""
        return self.owner == "cpu step"


@dataclass(frozen=True)
class Tiled:
    """How a layer is cut, its predicted cycles, and the bound by its MACs and bytes in cycles."""

    tiling: str
    predicted_cycles: Count
    bound: Count


@dataclass(frozen=True)
class Layer:
    """What a report knows of a layer besides its row.

    Attributes:
        predicted_cycles: by a cost model; None without one.
        tiled: None for a layer that no planner cut, or if nothing says how.
        clock_cycles, identity, macs, moved_bytes: as in its row; None if only that has them.
    """

    predicted_cycles: Count | None = None
    tiled: Tiled | None = None
    clock_cycles: Count | None = None
    identity: LayerIdentity | None = None
    macs: Count | None = None
    moved_bytes: Count | None = None


@dataclass(frozen=True)
class Accounting:
    """The owners of all cycles, as `umakit.tools.accounting.Accounting`."""

    rows: tuple[Row, ...]
    clock_cycles: Count | None
    unknown_layers: Count
    cpu_clock_hz: float | None
    cycles: Count | None
    parts: Parts | None
    cpu_sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scratchpad:
    """A memory of an accelerator, and how many bytes of it are used."""

    name: str
    used_bytes: Count


@dataclass(frozen=True)
class Memory:
    """The memory plan in bytes."""

    arena_bytes: Count
    constants_bytes: Count
    scratchpads: tuple[Scratchpad, ...]


@dataclass(frozen=True)
class NamedBound:
    """A bound of all layers on an accelerator in cycles, as in `umakit.tools.page.bounds`.

    Attributes:
        name: which one.
        cycles: the bound.
        compute, memory: those of multiply-accumulates and of bytes, of which it is the larger one;
            None for a bound that is no such.
    """

    name: str
    cycles: Count | None
    compute: Count | None = None
    memory: Count | None = None


@dataclass(frozen=True)
class Bounds:
    """The bounds of an accelerator's layers, and their measured cycles."""

    accelerator: str
    clock_cycles: Count | None
    bounds: tuple[NamedBound, ...]

    def cycles(self, name: str) -> int | None:
        """Return a bound by its name; None if it is not known."""
        return next((each.cycles for each in self.bounds if each.name == name), None)


@dataclass(frozen=True)
class Size:
    """What `--size` measured, in bytes; `compiler` is the command line that it is for."""

    compiler: str
    text_bytes: Count
    static_bytes: Count
    stack_bytes: Count | None


@dataclass(frozen=True)
class Target:
    """An accelerator that the network was offered to."""

    name: str


@dataclass(frozen=True)
class Report:
    """The figures of a network on accelerators.

    Attributes:
        model: file name of the network, or the name of a library.
        model_sha256: its digest.
        umakit_version: version that wrote the report.
        inputs: description of the inputs that the cycles were measured with.
        accelerators: in order of priority.
        operators: all operators with the reasons why some are on the CPU.
        layers: a layer for each row, but for what lies between them.
        total_macs, offloaded_macs: multiply-accumulates, and those on accelerators.
        size: None if nothing was compiled to measure it.
        clock_cycles, moved_bytes: measured cycles of layers on accelerators, and bytes that these
            move; None if only their accounting has them.
        has_tilings: whether it says how layers are cut, which libraries do not.
    """

    model: str
    model_sha256: str
    umakit_version: str
    inputs: str
    accelerators: tuple[Target, ...]
    operators: tuple[Operator, ...]
    layers: tuple[Layer, ...]
    accounting: Accounting
    memory: Memory
    total_macs: Count
    offloaded_macs: Count
    bounds: tuple[Bounds, ...] = ()
    size: Size | None = None
    clock_cycles: Count | None = None
    moved_bytes: Count | None = None
    has_tilings: bool = True
    format: str = FORMAT
    version: int = VERSION

    @property
    def title(self) -> str:
        """The network and where it runs, for a reader."""
        names = " + ".join(each.name for each in self.accelerators) or "the CPU"
        return f"{self.model} on {names}"

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The layers and steps on the CPU in the order of execution."""
        rows = [row for row in self.accounting.rows if row.owner != "between layers"]
        return tuple(Step(row, layer) for row, layer in zip(rows, self.layers, strict=True))

    @property
    def between(self) -> Row | None:
        """What lies between the layers."""
        rows = self.accounting.rows
        return next((row for row in rows if row.owner == "between layers"), None)

    def as_text(self) -> str:
        """Return the report as the text of a file that `read_report` reads.

        Times are left out: they differ in each run, and no limit is on a time.
        """
        rows = tuple(replace(row, seconds=None, device_seconds=None)
                     for row in self.accounting.rows)  # fmt: skip
        kept = replace(self, accounting=replace(self.accounting, rows=rows))
        first = {"format": self.format, "version": self.version}
        return json.dumps(first | asdict(kept), indent=1) + "\n"


@dataclass(frozen=True)
class Step:
    """A layer or a step on the CPU, with all that is known of it."""

    row: Row
    layer: Layer
    identity: LayerIdentity = field(init=False)

    def __post_init__(self) -> None:
        identity = self.row.identity
        if identity is None:  # of a report that nothing but a hand wrote
            operators = (SourceOperator(self.row.name),)
            identity = LayerIdentity(self.row.name, "operators", operators, 0)
        object.__setattr__(self, "identity", identity)
