# SPDX-License-Identifier: Apache-2.0
"""Figures of one owner of cycles. Cycles are integers, and each cycle is in one part only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from umakit.text.identities import LayerIdentity

Owner = Literal["layer", "cpu step", "between layers"]
"""Owners of cycles: a layer on an accelerator, a step on the CPU, or the run function, which calls
layers and steps in turn."""

Source = Literal["measured", "scaled", "counted", "predicted", "unknown"]
"""Sources of cycles: a simulator's clock; host time times `--cpu-clock`; instructions counted by an
emulator times the cycles of an instruction in the CPU's description; the costs in the description;
or none."""


@dataclass(frozen=True)
class Parts:
    """The cycles of an accelerator's clock in a row, by the state of its engines.

    Attributes:
        computing: a compute engine is at work.
        waits: no compute engine is at work, and others are, by their names: `load`, or `load +
            store` for both; `copies` if unknown.
        registers: no engine is at work, and the driver accesses registers. Only for umakit's
            simulators, on which an access takes a cycle.
        idle: no engine is at work, for an unknown reason.
        undivided: the states of the engines are unknown.
    """

    computing: int = 0
    waits: Mapping[str, int] = field(default_factory=dict)
    registers: int = 0
    idle: int = 0
    undivided: int = 0

    @property
    def cycles(self) -> int:
        named = self.computing + self.registers + self.idle + self.undivided
        return named + sum(self.waits.values())

    def named(self) -> dict[str, int]:
        """Return all parts by name, waits as `waits: load`."""
        return {
            "computing": self.computing,
            **{f"waits: {name}": cycles for name, cycles in self.waits.items()},
            "registers": self.registers,
            "idle": self.idle,
            "undivided": self.undivided,
        }

    def as_json(self) -> dict[str, Any]:
        """Return all parts by name."""
        return {
            "computing": self.computing,
            "waits": dict(self.waits),
            "registers": self.registers,
            "idle": self.idle,
            "undivided": self.undivided,
        }

    @classmethod
    def total(cls, parts: Iterable[Parts]) -> Parts:
        found, waits = list(parts), Counter[str]()
        for each in found:
            waits.update(each.waits)
        return cls(
            sum(each.computing for each in found),
            dict(waits),
            sum(each.registers for each in found),
            sum(each.idle for each in found),
            sum(each.undivided for each in found),
        )


@dataclass(frozen=True)
class Row:
    """Figures of one owner in an inference; None for unknown figures.

    Attributes:
        owner: kind of the owner.
        name: name of the layer, as in all tables.
        where: `cpu` or the backend.
        identity: operators of the model in the layer; None between layers.
        kind: work of a CPU step: its operators such as `quantize`, or `copy` or `layout change`;
            empty for others.
        macs: multiply-accumulates.
        clock_cycles: cycles of the accelerators' clocks in the row, the sum of `parts`; for a CPU
            step the cycles that passed meanwhile, mostly 0.
        parts: `clock_cycles` by the state of the engines.
        cpu_cycles: cycles of a CPU step, without `clock_cycles`: host time times `--cpu-clock`,
            else counted instructions times the cycles of an instruction, else the prediction from
            the CPU's description; None without any of them.
        cpu_source: source of `cpu_cycles`.
        register_reads, register_writes: accesses of the driver to registers, also while engines are
            at work.
        moved_bytes: bytes that the accelerator moved over the bus.
        read_bytes, written_bytes: sizes of the tensors that a CPU step reads, including constants,
            and writes; None for other rows.
        seconds: processor time of the machine that ran the row, including a simulator.
        instructions: instructions of an emulated CPU, including a simulator.
        device_seconds, device_instructions: share of calls of `umakit/device.h`, that is, of the
            simulator; None if not measured.
        predicted_instructions: instructions of a CPU step, by the costs of the CPU's description.
    """

    owner: Owner
    name: str
    where: str
    identity: LayerIdentity | None
    kind: str
    macs: int
    clock_cycles: int | None
    parts: Parts | None
    cpu_cycles: int | None = None
    cpu_source: Source = "unknown"
    register_reads: int | None = None
    register_writes: int | None = None
    moved_bytes: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
    seconds: float | None = None
    instructions: int | None = None
    device_seconds: float | None = None
    device_instructions: int | None = None
    predicted_instructions: int | None = None

    @property
    def cycles(self) -> int | None:
        """All cycles of the row; None for a CPU step with unknown cycles."""
        if self.owner == "cpu step":
            return None if self.cpu_cycles is None else self.cpu_cycles + (self.clock_cycles or 0)
        return self.clock_cycles

    @property
    def source(self) -> Source:
        if self.cycles is None:
            return "unknown"
        return self.cpu_source if self.owner == "cpu step" else "measured"

    def as_json(self) -> dict[str, Any]:
        return {
            "owner": self.owner,
            "name": self.name,
            "where": self.where,
            "identity": None if self.identity is None else self.identity.as_json(),
            "kind": self.kind,
            "macs": self.macs,
            "cycles": self.cycles,
            "source": self.source,
            "clock_cycles": self.clock_cycles,
            "parts": None if self.parts is None else self.parts.as_json(),
            "cpu_cycles": self.cpu_cycles,
            "cpu_source": self.cpu_source if self.owner == "cpu step" else None,
            "register_reads": self.register_reads,
            "register_writes": self.register_writes,
            "moved_bytes": self.moved_bytes,
            "read_bytes": self.read_bytes,
            "written_bytes": self.written_bytes,
            "seconds": self.seconds,
            "device_seconds": self.device_seconds,
            "instructions": self.instructions,
            "device_instructions": self.device_instructions,
            "predicted_instructions": self.predicted_instructions,
        }
