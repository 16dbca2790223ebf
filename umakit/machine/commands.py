# SPDX-License-Identifier: Apache-2.0
"""The device commands of a tiled layer, with their cycles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from umakit.machine.costs import Copy, Cost, TileSizes
from umakit.machine.description import Command
from umakit.machine.requirements import Job, Transfer
from umakit.machine.tile_machine import TileMachine
from umakit.machine.tiles import Position, Tiles


@dataclass(frozen=True)
class DriverCosts:
    """Numbers of register accesses of a driver's calls; each takes a cycle of the device's clock.

    Attributes:
        begin, configure, finish: accesses of the calls that a driver makes once per layer.
        configure_add: accesses of `configure` for a layer that adds a second tensor.
        transfer, job: accesses to enqueue a transfer or a job, unless its `Cost` has `accesses`.
        check: accesses to read the status of a command; with a queue `finish` includes these.
    """

    begin: int
    configure: int
    configure_add: int
    transfer: int
    job: int
    check: int
    finish: int

    def accesses_of(self, cost: Cost, tensor: str = "") -> int:
        """Return the accesses to enqueue a command: a copy of a tensor, or a job without one."""
        if cost.accesses is not None:
            return cost.accesses
        return self.transfer if tensor else self.job


def commands_of(
    tiles: Tiles, machine: TileMachine, driver: DriverCosts, *, with_constants: bool = True
) -> list[Command]:
    """Return the commands of a layer in the order in which its driver enqueues them; without
    constants, weights and parameters are in the scratchpad already."""
    return list(_Commands(tiles, machine, driver, with_constants).all())


@dataclass(frozen=True, slots=True)
class CommandDetails:
    """The effect of a command of a tiled layer.

    Attributes:
        does: `load`, `store` or `compute`.
        tensor: the tensor that is copied: `data`, `weights`, `parameters`, `addend` or `result`;
            empty for a job of the array.
        moved_bytes: bytes over the bus; 0 for a job.
        place: offset of the first byte in the tensor's buffer; for a job, in the result's buffer.
        tensor_offset: offset in bytes of the first byte in the tensor; None for a job, and for
            parameters, which are several tensors.
        tile: index of the tile along each cut axis; empty for parameters.
    """

    does: str
    tensor: str
    moved_bytes: int
    place: int
    tensor_offset: int | None
    tile: dict[str, int]


def command_details(
    tiles: Tiles, machine: TileMachine, driver: DriverCosts
) -> list[CommandDetails]:
    """Return the effect of each command of `commands_of`, in the same order."""
    described = _Described(tiles, machine, driver)
    for _ in described.all():
        pass
    return described.details


class _Commands:
    """Generates commands by iterating over the tiles like the generated code."""

    def __init__(
        self,
        tiles: Tiles,
        machine: TileMachine,
        driver: DriverCosts,
        with_constants: bool = True,
    ) -> None:
        self._constants = with_constants
        self._tiles = tiles
        self._machine = machine
        self._driver = driver
        self._memories = {name: machine.memory_of(name) for name in tiles.buffers}
        self._streams = {name: machine.stream_of(name) for name in tiles.buffers}
        self._job_stream = machine.stream_of_jobs(tiles.layer)
        self._starts: dict[str, int] = {}
        used = {memory.name: 0 for memory in machine.machine.memories}
        for name, buffer in tiles.buffers.items():
            self._starts[name] = used[self._memories[name]]
            used[self._memories[name]] += buffer.size
        # Few sizes and places are different from each other.
        self._masks: dict[tuple[str, int, int], int] = {}
        self._copies: dict[Copy, Cost] = {}
        self._jobs: dict[tuple[int, ...], Cost] = {}

    def all(self) -> Iterator[Command]:
        commands = self._tiles_in_order()
        first = next(commands)
        yield replace(first, issue=first.issue + self._driver.begin)
        if self._machine.machine.has_queues:
            yield from commands
            return
        for command in commands:  # after the end of the previous command
            yield replace(command, issue=command.issue + self._driver.check)

    def _tiles_in_order(self) -> Iterator[Command]:
        tiles = self._tiles
        loaded = ("data", "weights", "addend") if self._constants else ("data", "addend")
        loads = [name for name in loaded if name in tiles.buffers]
        depths = {name: tiles.depth(name) for name in (*loads, "result")}
        loads.sort(key=lambda name: depths[name])  # outer loops first
        loops = [range(tiles.extents[axis]) for axis in tiles.loops]
        ends = tuple(len(loop) - 1 for loop in loops)
        position: dict[str, int] = dict.fromkeys(tiles.extents, 0)
        for at in product(*loops):
            position.update(zip(tiles.loops, at, strict=True))
            for name in loads:
                if not any(at[depths[name] :]):
                    yield self._copy(name, position)
            if not any(at):
                yield from self._common(position)
            else:
                yield self._job(position)
            if at[depths["result"] :] == ends[depths["result"] :]:
                yield self._copy("result", position)

    def _common(self, position: Position) -> Iterator[Command]:
        """Yield the loads of the parameters and the first job, with the accesses of `configure`
        added."""
        layer, driver = self._tiles.layer, self._driver
        configure = driver.configure + (driver.configure_add if layer.adds else 0)
        for command in (*self._parameters(), self._job(position)):
            yield replace(command, issue=command.issue + configure)
            configure = 0

    def _banks(self, buffer: str, place: int, size: int = 0) -> int:
        """Return the bit mask of the banks of a tile, or of its first `size` bytes."""
        size = size or self._tiles.buffers[buffer].tile_bytes
        key = (buffer, place, size)
        if key not in self._masks:
            start = self._starts[buffer] + place
            self._masks[key] = self._machine.machine.banks(self._memories[buffer], start, size)
        return self._masks[key]

    def _transfer(self, tensor: str, moved: Transfer, banks: int) -> Command:
        copied = Copy(tensor, moved.planes, moved.rows, moved.row_bytes)
        cost = self._copies.get(copied)
        if cost is None:
            cost = self._copies[copied] = self._machine.copy(copied)
        reads, writes = (banks, 0) if tensor == "result" else (0, banks)
        accesses = self._driver.accesses_of(cost, tensor)
        return Command(self._streams[tensor], cost.busy, cost.tail, reads, writes, accesses)

    def _parameters(self) -> Iterator[Command]:
        place = 0
        for size in self._tiles.layer.parameter_sizes if self._constants else ():
            banks = self._banks("parameters", place, size)
            yield self._transfer("parameters", Transfer(0, place, 1, 1, size, 0, 0), banks)
            place += size

    def _copy(self, name: str, position: Position) -> Command:
        moved = self._tiles.copy(name, position)
        return self._transfer(name, moved, self._banks(name, moved.place))

    def _job(self, position: Position) -> Command:
        tiles, job = self._tiles, self._tiles.job(position)
        reads = self._banks("data", job.data)
        if not tiles.layer.is_pool:
            reads |= self._banks("weights", job.weights)
        if not tiles.layer.is_pool and not job.continues:
            reads |= self._banks("parameters", job.bias, 4 * job.output_channels)
        if not tiles.layer.is_pool and not job.keeps:
            reads |= self._banks("parameters", job.multipliers, 4 * job.scales)
            reads |= self._banks("parameters", job.shifts, job.scales)
        if tiles.layer.adds and not job.keeps:
            reads |= self._banks("addend", job.addend)
        result, writes = self._banks("result", job.result), 0
        if self._machine.sums_in_result and job.continues:
            reads |= result
        if self._machine.sums_in_result or not job.keeps:
            writes = result
        cost = self._cost_of(job)
        accesses = self._driver.accesses_of(cost)
        return Command(self._job_stream, cost.busy, cost.tail, reads, writes, accesses)

    def _cost_of(self, job: Job) -> Cost:
        channels = (job.output_channels, job.input_channels)
        ends = (not job.continues, not job.keeps) if self._machine.jobs_by_step else ()
        key = (*job.output_size, *channels, *ends)
        if key not in self._jobs:
            layer, dataflow = self._tiles.layer, self._tiles.tiling.dataflow
            self._jobs[key] = self._machine.job(TileSizes(layer, dataflow, *key))
        return self._jobs[key]


class _Described(_Commands):
    """Generates commands and notes the effect of each command."""

    def __init__(self, tiles: Tiles, machine: TileMachine, driver: DriverCosts) -> None:
        super().__init__(tiles, machine, driver)
        self.details: list[CommandDetails] = []
        self._tile: dict[str, int] = {}

    def _transfer(self, tensor: str, moved: Transfer, banks: int) -> Command:
        self.details.append(
            CommandDetails(
                does="store" if tensor == "result" else "load",
                tensor=tensor,
                moved_bytes=int(moved.planes) * int(moved.rows) * int(moved.row_bytes),
                place=int(moved.place),
                tensor_offset=None if tensor == "parameters" else int(moved.offset),
                tile={} if tensor == "parameters" else dict(self._tile),
            )
        )
        return super()._transfer(tensor, moved, banks)

    def _copy(self, name: str, position: Position) -> Command:
        self._tile = self._cut(position)
        return super()._copy(name, position)

    def _job(self, position: Position) -> Command:
        place = int(self._tiles.job(position).result)
        self.details.append(CommandDetails("compute", "", 0, place, None, self._cut(position)))
        return super()._job(position)

    def _cut(self, position: Position) -> dict[str, int]:
        return {axis: int(position[axis]) for axis in self._tiles.loops}


def moved_bytes(tiles: Tiles) -> int:
    """Return the bytes that a layer moves over the bus in both directions together."""
    total = 0
    position: dict[str, int] = dict.fromkeys(tiles.extents, 0)
    for name in tiles.buffers:
        if name == "parameters":
            total += tiles.layer.parameters_bytes
            continue
        loops = tiles.loops[: tiles.depth(name)]
        for at in product(*(range(tiles.extents[axis]) for axis in loops)):
            position.update(zip(loops, at, strict=True))
            moved = tiles.copy(name, position)
            total += moved.planes * moved.rows * moved.row_bytes
    return total
