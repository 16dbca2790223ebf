# SPDX-License-Identifier: Apache-2.0
"""The parts of a report that a comparison needs, in the JSON form of `uma report --json`.

Unknown keys are ignored, so that a report of a newer umakit can be read if its version is the same.
Imports neither TVM nor the pipeline.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from functools import cached_property

from umakit.text.identities import LayerIdentity
from umakit.tools.columns import view
from umakit.tools.record import FORMAT, VERSION, AcceleratorBounds, Count, LayerRecord, Parts


@dataclass(frozen=True)
class Operator:
    """An operator: kind (`operator`), name, target, and the reason for the CPU."""

    operator: str
    name: str
    where: str
    reason: str


@dataclass(frozen=True)
class Tiled:
    """The tiling of a layer, its predicted cycles, and its bound by MACs and bytes in cycles."""

    tiling: str
    predicted_cycles: Count
    bound: Count


@dataclass(frozen=True)
class Layer:
    """The facts about a layer outside its record among the owners of cycles.

    Attributes:
        predicted_cycles: cycles by a cost model; None without one.
        tiled: tiling; None for an uncut layer, or if unknown.
        clock_cycles, identity, macs, moved_bytes: as in its record; None if only
            the record has them.
    """

    predicted_cycles: Count | None = None
    tiled: Tiled | None = None
    clock_cycles: Count | None = None
    identity: LayerIdentity | None = None
    macs: Count | None = None
    moved_bytes: Count | None = None


@dataclass(frozen=True)
class Accounting:
    """The owners of all cycles, as `umakit.tools.accounting.RunReport`."""

    rows: tuple[LayerRecord, ...]
    clock_cycles: Count | None
    unknown_layers: Count
    cpu_clock_hz: float | None
    cycles: Count | None
    parts: Parts | None
    cpu_sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scratchpad:
    """A memory of an accelerator, and its used bytes."""

    name: str
    used_bytes: Count


@dataclass(frozen=True)
class Memory:
    """The memory plan in bytes."""

    arena_bytes: Count
    constants_bytes: Count
    scratchpads: tuple[Scratchpad, ...]


@dataclass(frozen=True)
class Size:
    """Sizes measured by `--size`, in bytes; `compiler` is the compiler's command line."""

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
        inputs: description of the inputs of the measurement.
        accelerators: accelerators in order of priority.
        layers: a layer for each row except the row between layers.
        total_macs, offloaded_macs: multiply-accumulates of the network, and on accelerators.
        size: sizes; None if not measured.
        clock_cycles, moved_bytes: measured cycles and moved bytes of layers on accelerators; None
            if only the accounting has them.
        has_tilings: whether the report contains tilings; false for libraries.
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
    bounds: tuple[AcceleratorBounds, ...] = ()
    size: Size | None = None
    clock_cycles: Count | None = None
    moved_bytes: Count | None = None
    has_tilings: bool = True
    format: str = FORMAT
    version: int = VERSION

    @property
    def title(self) -> str:
        names = " + ".join(each.name for each in self.accelerators) or "the CPU"
        return f"{self.model} on {names}"

    @cached_property
    def steps(self) -> tuple[LayerRecord, ...]:
        """The layers and steps on the CPU in the order of execution."""
        rows = [row for row in self.accounting.rows if row.owner != "between layers"]
        return tuple(
            replace(
                row,
                predicted_cycles=layer.predicted_cycles,
                tiling="" if layer.tiled is None else layer.tiled.tiling,
            )
            for row, layer in zip(rows, self.layers, strict=True)
        )

    @property
    def between(self) -> LayerRecord | None:
        rows = self.accounting.rows
        return next((row for row in rows if row.owner == "between layers"), None)

    def as_text(self) -> str:
        """Return the report as the text of a file that `read_report` reads.

        Times are omitted: they differ in each run, and no limit refers to a time.
        """
        rows = [
            view(replace(row, seconds=None, device_seconds=None), SAVED)
            for row in self.accounting.rows
        ]
        kept = asdict(replace(self, accounting=replace(self.accounting, rows=())))
        kept["accounting"]["rows"] = rows
        kept["bounds"] = [
            view(each, "accelerator clock_cycles")
            | {"bounds": [view(bound, "name cycles compute memory") for bound in each.bounds]}
            for each in self.bounds
        ]
        first = {"format": self.format, "version": self.version}
        return json.dumps(first | kept, indent=1) + "\n"


SAVED = (
    "owner name where identity kind macs clock_cycles parts register_reads register_writes "
    "moved_bytes read_bytes written_bytes seconds device_seconds instructions device_instructions"
)
"""Figures of an owner of cycles in a saved report."""
