# SPDX-License-Identifier: Apache-2.0
"""The device commands of a tiled layer, with the cycles of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

from umakit.machine.clock import Command
from umakit.machine.costs import Cost, array_cost, pool_cost, transfer_cost
from umakit.machine.hardware import Hardware
from umakit.machine.layer import Kind, Layer
from umakit.machine.requirements import Transfer
from umakit.machine.systolic import Dataflow, Product
from umakit.machine.tiles import Position, Tiles


@dataclass(frozen=True)
class DriverCosts:
    """Numbers of register accesses of a driver's calls; each takes a cycle of the device's clock.

    Attributes:
        begin, configure, finish: accesses of these calls, each made once per layer.
        configure_add: accesses of `configure` for a layer that adds a second tensor.
        transfer, job: accesses to enqueue a transfer or a job.
        check: accesses to read the status of a command; with a queue that is part of `finish`.
    """

    begin: int
    configure: int
    configure_add: int
    transfer: int
    job: int
    check: int
    finish: int


def job_cost(
    hardware: Hardware,
    layer: Layer,
    dataflow: Dataflow,
    output_size: tuple[int, int],
    channels: tuple[int, int],
) -> Cost:
    """Return the cycles of a job of the array or of the pooling stage.

    Args:
        output_size: height and width of the tile.
        channels: numbers of input and output channels of the tile.
    """
    positions, (inputs, outputs) = output_size[0] * output_size[1], channels
    if layer.is_pool:
        return pool_cost(hardware, positions, layer.window, outputs)
    size = Product(positions, outputs, layer.window * (1 if layer.per_channel else inputs))
    return array_cost(hardware, dataflow, size, depthwise=layer.kind is Kind.DEPTHWISE)


def commands_of(tiles: Tiles, hardware: Hardware, driver: DriverCosts) -> list[Command]:
    """Return all commands of a layer in the order in which its driver enqueues them."""
    return list(_Commands(tiles, hardware, driver).all())


class _Commands:
    """Generates commands by iterating over the tiles like the generated code."""

    def __init__(self, tiles: Tiles, hardware: Hardware, driver: DriverCosts) -> None:
        self._tiles = tiles
        self._hardware = hardware
        self._driver = driver
        self._transfer_costs: dict[tuple[int, int, int], Cost] = {}
        self._job_costs: dict[tuple[tuple[int, int], int, int], Cost] = {}
        self._starts: dict[str, int] = {}
        start = 0
        for name, buffer in tiles.buffers.items():
            self._starts[name] = start
            start += buffer.size

    def all(self) -> Iterator[Command]:
        commands = self._tiles_in_order()
        first = next(commands)
        yield replace(first, issue=first.issue + self._driver.begin)
        if self._hardware.command_queue:
            yield from commands
            return
        for command in commands:  # after the end of the one before
            yield replace(command, issue=command.issue + self._driver.check)

    def _tiles_in_order(self) -> Iterator[Command]:
        tiles = self._tiles
        loads = [name for name in ("data", "weights", "addend") if name in tiles.buffers]
        depths = {name: tiles.depth(name) for name in (*loads, "result")}
        loads.sort(key=lambda name: depths[name])  # of an outer loop: before those of inner ones
        loops = [range(tiles.extents[axis]) for axis in tiles.loops]
        ends = tuple(len(loop) - 1 for loop in loops)
        position: dict[str, int] = dict.fromkeys(tiles.extents, 0)
        for at in product(*loops):
            position.update(zip(tiles.loops, at, strict=True))
            for name in loads:
                if not any(at[depths[name] :]):
                    yield self._load(name, position)
            if not any(at):
                yield from self._common(position)
            else:
                yield self._job(position)
            if at[depths["result"] :] == ends[depths["result"] :]:
                yield self._store(position)

    def _common(self, position: Position) -> Iterator[Command]:
        """Yield the loads of the parameters and the first job, with the accesses of `configure`."""
        layer, driver = self._tiles.layer, self._driver
        configure = driver.configure + (driver.configure_add if layer.adds else 0)
        for command in (*self._parameters(), self._job(position)):
            yield replace(command, issue=command.issue + configure)
            configure = 0

    def _banks(self, buffer: str, place: int) -> int:
        """Return the bit mask of the banks that a tile occupies."""
        size = self._hardware.bank_bytes
        count = self._tiles.buffers[buffer].tile_bytes // size
        return ((1 << count) - 1) << ((self._starts[buffer] + place) // size)

    def _parameter_banks(self, place: int, size: int) -> int:
        """Return the bit mask of the banks that a part of the parameters occupies."""
        start = self._starts["parameters"] + place
        first, last = (at // self._hardware.bank_bytes for at in (start, start + size - 1))
        return ((1 << (last - first + 1)) - 1) << first

    def _transfer(self, stream: Literal["load", "store"], moved: Transfer, banks: int) -> Command:
        shape = (moved.planes, moved.rows, moved.row_bytes)
        if shape not in self._transfer_costs:
            self._transfer_costs[shape] = transfer_cost(self._hardware, *shape)
        cost = self._transfer_costs[shape]
        reads, writes = (0, banks) if stream == "load" else (banks, 0)
        return Command(stream, cost.busy, cost.tail, reads, writes, self._driver.transfer)

    def _parameters(self) -> Iterator[Command]:
        layer = self._tiles.layer
        if layer.is_pool:
            return
        place = 0
        for size in (4 * layer.stored_channels, 4 * layer.stored_scales, layer.stored_scales):
            banks = self._parameter_banks(place, size)
            yield self._transfer("load", Transfer(0, place, 1, 1, size, 0, 0), banks)
            place += size

    def _load(self, name: str, position: Position) -> Command:
        moved = self._tiles.load(name, position)
        return self._transfer("load", moved, self._banks(name, moved.place))

    def _store(self, position: Position) -> Command:
        moved = self._tiles.store(position)
        return self._transfer("store", moved, self._banks("result", moved.place))

    def _job(self, position: Position) -> Command:
        tiles, job = self._tiles, self._tiles.job(position)
        size = (job.output_size, job.input_channels, job.output_channels)
        if size not in self._job_costs:
            self._job_costs[size] = job_cost(
                self._hardware, tiles.layer, tiles.tiling.dataflow, size[0], size[1:]
            )
        cost = self._job_costs[size]
        reads = self._banks("data", job.data)
        if not tiles.layer.is_pool:
            reads |= self._banks("weights", job.weights)
        if not tiles.layer.is_pool and not job.continues:
            reads |= self._parameter_banks(job.bias, 4 * job.output_channels)
        if not tiles.layer.is_pool and not job.keeps:
            reads |= self._parameter_banks(job.multipliers, 4 * job.scales)
            reads |= self._parameter_banks(job.shifts, job.scales)
        if tiles.layer.adds and not job.keeps:
            reads |= self._banks("addend", job.addend)
        writes = 0 if job.keeps else self._banks("result", job.result)
        return Command("array", cost.busy, cost.tail, reads, writes, self._driver.job)


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
            moved = tiles.store(position) if name == "result" else tiles.load(name, position)
            total += moved.planes * moved.rows * moved.row_bytes
    return total
