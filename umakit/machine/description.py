# SPDX-License-Identifier: Apache-2.0
"""The description of a machine: its memories, engines, queues, and the commands that engines take.

The clock, the explanation of idle cycles and the placement of tiles are functions of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

from umakit.errors import AcceleratorConfigError

Does = Literal["compute", "load", "store"]
"""Action of a command: compute, or copy into or out of a memory of the machine."""

Completion = Literal["interrupt", "polling", "stall"]
"""Mechanism by which a driver waits for a free queue slot."""


@dataclass(frozen=True)
class Memory:
    """A memory of the accelerator that holds tiles.

    Attributes:
        size: bytes of all banks together.
        banks: number of banks of equal size.
        exclusive: whether a bank serves one engine at a time; else engines that only read a bank
            may share the bank. Conflicts are found by banks: describe a memory without banks, whose
            parts engines can use at the same time, as many banks that are not exclusive.
        row_bytes: size of a row in bytes; contiguous parts of a tile are padded to whole rows.
        alignment: bytes; tiles start at multiples of the alignment; None for the size of a bank.
            Tiles that share a bank conflict as if they were one tile.
    """

    name: str
    size: int
    banks: int = 1
    exclusive: bool = True
    row_bytes: int = 1
    alignment: int | None = None

    def __post_init__(self) -> None:
        if self.size < 1 or self.banks < 1 or self.size % self.banks:
            raise _refusal(f"memory {self.name}: {self.size} B are not {self.banks} equal banks")
        if self.row_bytes < 1:
            raise _refusal(f"memory {self.name} has rows of {self.row_bytes} B")
        if self.tile_alignment < 1:
            raise _refusal(f"memory {self.name} has an alignment of {self.alignment} B")

    @property
    def bank_bytes(self) -> int:
        """The size of one bank in bytes."""
        return self.size // self.banks

    @property
    def tile_alignment(self) -> int:
        """The alignment of tiles in bytes."""
        return self.bank_bytes if self.alignment is None else self.alignment


@dataclass(frozen=True)
class Queue:
    """A queue of commands of one or several engines.

    Attributes:
        entries: most waiting and running commands; 0 if the driver starts a command after the
            previous command has ended, which then holds for all queues of the machine.
        completion: action of a driver that knows of no free entry. "interrupt": clear the interrupt
            and read the number of free entries, a cycle each; if no entry is free, wait for the end
            of a command of this queue and do both again. "polling": read the number of free entries
            in every cycle. "stall": the enqueueing access lasts until an entry is free.
        in_order: whether the commands of all engines of the queue start in the order of the
            enqueueing: a command that cannot start holds up all commands behind it. Else each
            engine takes its own commands from the queue, past commands of other engines.
    """

    name: str
    entries: int
    completion: Completion = "interrupt"
    in_order: bool = False

    def __post_init__(self) -> None:
        if self.entries < 0:
            raise _refusal(f"queue {self.name} has {self.entries} entries")
        if self.completion not in get_args(Completion):
            names = ", ".join(get_args(Completion))
            raise _refusal(f"queue {self.name}: {self.completion} is not one of {names}")


@dataclass(frozen=True)
class Stream:
    """Commands that start in the order in which the driver enqueues them.

    Attributes:
        name: name of the stream; each command names its stream.
        does: `load`, `store` or `compute`.
    """

    name: str
    does: Does

    def __post_init__(self) -> None:
        if self.does not in get_args(Does):
            raise _refusal(f"stream {self.name} does {self.does}, not compute, load or store")


@dataclass(frozen=True)
class Engine:
    """An engine, which runs one command after the other.

    Attributes:
        streams: streams of the engine; of two commands that could start, the older command starts.
        queue: name of the queue of the engine's commands.
        depth: most commands in the engine at a time. One command occupies the engine, the others
            are in their tail: with 1 a command starts after the end of the previous command, with 2
            in the tail of the previous command. Commands end in the order of their starts.
        in_order: whether commands of all streams start in the order of the enqueueing.
    """

    name: str
    streams: tuple[Stream, ...]
    queue: str
    depth: int = 1
    in_order: bool = False

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise _refusal(f"engine {self.name} holds {self.depth} commands")


@dataclass(frozen=True)
class Machine:
    """An accelerator for cost models.

    The driver enqueues commands one after the other, a cycle for each access of a register. A
    command starts when it is the oldest of its stream (of its engine or queue if `in_order`), the
    engine is free for the command, and no older running command conflicts with it. Two commands
    conflict if one writes a bank that the other accesses, unless both only write the bank and run
    on one engine. Commands of different engines also conflict if they share an exclusive bank.

    Attributes:
        memories: memories that hold tiles.
        engines: engines. `Run.breakdown` explains the idle cycles of the first computing stream.
        queues: the engines' queues.

    Raises:
        AcceleratorConfigError: names do not agree, or no stream computes.
    """

    memories: tuple[Memory, ...]
    engines: tuple[Engine, ...]
    queues: tuple[Queue, ...]

    def __post_init__(self) -> None:
        for kind, names in {
            "memories": [each.name for each in self.memories],
            "engines": [each.name for each in self.engines],
            "queues": [each.name for each in self.queues],
            "streams": [each.name for each in self.streams],
        }.items():
            twice = _repeated(names)
            if twice:
                raise _refusal(f"two {kind} are called {twice}")
        known = {each.name for each in self.queues}
        for engine in self.engines:
            if engine.queue not in known:
                raise _refusal(f"engine {engine.name} waits in {engine.queue}, which is no queue")
        if not any(each.does == "compute" for each in self.streams):
            raise _refusal("no stream computes")
        if len({each.entries == 0 for each in self.queues}) > 1:
            raise _refusal("queues with and without entries do not go together")

    @property
    def streams(self) -> tuple[Stream, ...]:
        """The streams of all engines, in their order."""
        return tuple(stream for engine in self.engines for stream in engine.streams)

    @cached_property
    def explained(self) -> str:
        """The name of the stream whose idle cycles are explained."""
        return next(each.name for each in self.streams if each.does == "compute")

    def first_stream(self, does: Does) -> str:
        """Return the name of the first stream that loads, stores or computes.

        Raises:
            AcceleratorConfigError: no stream does.
        """
        for stream in self.streams:
            if stream.does == does:
                return stream.name
        raise _refusal(f"no stream is one of {does}s")

    def engine_of(self, stream: str) -> Engine:
        """Return the engine that serves a stream.

        Raises:
            AcceleratorConfigError: no engine serves the stream.
        """
        for engine in self.engines:
            if any(each.name == stream for each in engine.streams):
                return engine
        raise _refusal(f"no engine serves the stream {stream}")

    def without_queues(self) -> Machine:
        """Return the machine with a driver that waits for the end of each command."""
        queues = tuple(replace(queue, entries=0) for queue in self.queues)
        return replace(self, queues=queues)

    @property
    def has_queues(self) -> bool:
        """Whether commands wait in queues; else each command starts after the end of the previous
        one."""
        return any(each.entries for each in self.queues)

    @cached_property
    def first_banks(self) -> dict[str, int]:
        """The number of each memory's first bank; the banks of all memories are numbered through.

        Masks of `Command.reads` and `Command.writes` have one bit per bank.
        """
        first, found = 0, {}
        for memory in self.memories:
            found[memory.name] = first
            first += memory.banks
        return found

    @cached_property
    def exclusive_banks(self) -> int:
        """The bit mask of all banks that serve one engine at a time."""
        return sum(
            ((1 << memory.banks) - 1) << self.first_banks[memory.name]
            for memory in self.memories
            if memory.exclusive
        )

    def memory(self, name: str) -> Memory:
        """Return the memory of a name.

        Raises:
            AcceleratorConfigError: there is no memory of the name.
        """
        for memory in self.memories:
            if memory.name == name:
                return memory
        raise _refusal(f"there is no memory {name}")

    def banks(self, memory: str, start: int, size: int) -> int:
        """Return the bit mask of the banks of some bytes of a memory.

        Args:
            memory: name of the memory.
            start: offset of the first byte.
            size: number of bytes, at least 1.
        """
        bank_bytes = self.memory(memory).bank_bytes
        first, last = start // bank_bytes, (start + size - 1) // bank_bytes
        return ((1 << (last - first + 1)) - 1) << (self.first_banks[memory] + first)


@dataclass(frozen=True, slots=True)
class Command:
    """A command that the driver enqueues.

    Attributes:
        stream: name of the command's stream.
        busy: cycles that the command occupies the engine, at least 1.
        tail: cycles after the busy cycles until the effect is complete.
        reads: bit mask of the read banks, see `Machine.first_banks`.
        writes: bit mask of the written banks.
        issue: register accesses to enqueue the command, at least 1.
        bus: first and end address of a load's or store's bytes on the bus, if transfers in the
            other direction, or stores of other engines, may access the same bytes.
    """

    stream: str
    busy: int
    tail: int
    reads: int
    writes: int
    issue: int = 1
    bus: tuple[int, int] | None = None


def _repeated(names: Iterable[str]) -> str:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return ""


def _refusal(message: str) -> AcceleratorConfigError:
    return AcceleratorConfigError(
        message, where="description of the machine", fix="correct the Machine of the backend"
    )
