# SPDX-License-Identifier: Apache-2.0
"""Which older commands each command of a list has to wait for."""

from __future__ import annotations

from collections.abc import Sequence

from umakit.machine.description import Command, Machine, Stream


def dependencies_of(commands: Sequence[Command], machine: Machine) -> list[tuple[int, ...]]:
    """Return the newest older command of each stream that each command conflicts with.

    It is enough to wait for these, because the commands of a stream end in order. They are in the
    order of `Machine.streams`.
    """
    banks = _banks_of(commands, machine)
    count = max((bank for each in banks.values() for bank in each), default=-1) + 1
    tables = {stream.name: _Table(count) for stream in machine.streams}
    others = {
        stream.name: [
            tables[other.name].seen_by(_is_same(machine, stream, other))
            for other in machine.streams
        ]
        for stream in machine.streams
    }
    exclusive = machine.exclusive_banks
    ranges = _Ranges(machine)
    result = []
    for index, command in enumerate(commands):
        writes, reads = banks[command.writes], banks[command.reads]
        found = []
        for if_writes, if_reads in others[command.stream]:
            newest = -1
            for bank in writes:
                if if_writes[bank] > newest:
                    newest = if_writes[bank]
            for bank in reads:
                if if_reads[bank] > newest:
                    newest = if_reads[bank]
            found.append(newest)
        tables[command.stream].add(index, reads, writes, banks[command.reads & exclusive])
        if command.bus is not None:
            found = ranges.add(index, command.stream, command.bus, found)
        result.append(tuple([each for each in found if each >= 0]))
    return result


class _Table:
    """The newest command of a stream that accesses each bank in some way."""

    def __init__(self, banks: int) -> None:
        self._touched, self._read, self._written, self._kept = ([-1] * banks for _ in range(4))

    def seen_by(self, is_same_engine: bool) -> tuple[list[int], list[int]]:
        """Return the newest commands that one of another stream has to wait for.

        Returns:
            By bank, those for a command that writes it, and for one that reads it.
        """
        if is_same_engine:
            return self._read, self._written
        return self._touched, self._kept

    def add(
        self, index: int, reads: Sequence[int], writes: Sequence[int], kept: Sequence[int]
    ) -> None:
        """Note a command.

        Args:
            reads, writes: its banks.
            kept: those of `reads` that other engines cannot read meanwhile.
        """
        for bank in reads:
            self._touched[bank] = self._read[bank] = index
        for bank in kept:
            self._kept[bank] = index
        for bank in writes:
            self._touched[bank] = self._written[bank] = self._kept[bank] = index


class _Ranges:
    """The bytes on the bus that transfers access."""

    def __init__(self, machine: Machine) -> None:
        self._added: list[list[tuple[int, int, int]]] = [[] for _ in machine.streams]
        self._numbers = {each.name: number for number, each in enumerate(machine.streams)}
        # Loads only read; what stores of one engine write, they write in order.
        self._conflicts = {
            stream.name: [
                number
                for number, other in enumerate(machine.streams)
                if stream.does != other.does
                or (stream.does != "load" and not _is_same(machine, stream, other))
            ]
            for stream in machine.streams
        }

    def add(self, index: int, stream: str, bus: tuple[int, int], found: list[int]) -> list[int]:
        """Note a transfer; return what it has to wait for, by number of the stream."""
        found = list(found)
        for number in self._conflicts[stream]:
            for other, first, end in reversed(self._added[number]):
                if first < bus[1] and bus[0] < end:
                    found[number] = max(found[number], other)
                    break
        self._added[self._numbers[stream]].append((index, *bus))
        return found


def _is_same(machine: Machine, stream: Stream, other: Stream) -> bool:
    """Whether two streams are of one engine."""
    return any(stream in each.streams and other in each.streams for each in machine.engines)


def _banks_of(commands: Sequence[Command], machine: Machine) -> dict[int, list[int]]:
    """Return the banks of each mask of commands, and of its part of exclusive banks.

    Of banks that all masks have together or not at all, one stands for the others.
    """
    exclusive = machine.exclusive_banks
    masks: dict[int, None] = {}
    for command in commands:
        for mask in (command.reads, command.writes, command.reads & exclusive):
            masks[mask] = None
    groups: list[int] = []
    for mask in masks:
        groups = [part for each in groups for part in (each & mask, each & ~mask) if part] + (
            [rest] if (rest := mask & ~sum(groups)) else []
        )
    return {mask: [n for n, each in enumerate(groups) if each & mask] for mask in masks}
