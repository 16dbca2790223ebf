# SPDX-License-Identifier: Apache-2.0
"""Fast estimates and lower bounds of a tiling's cycles, without simulating its commands.

An estimate adds up the busy cycles of each engine. A sum takes few multiplications, because tiles
along an axis have at most three sizes: inner tiles and tiles at the edges. The tilings of a layer
share most of these sums, so the sums are cached. `umakit.machine.clock` is exact, but needs time
proportional to the number of tiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

from umakit.machine.commands import DriverCosts
from umakit.machine.costs import TENSORS, Copy, Cost, TileSizes
from umakit.machine.layer import Layer
from umakit.machine.space import SIZED, axis_extent, sizes_of, tiles_on
from umakit.machine.stalls import NEVER
from umakit.machine.systolic import Dataflow
from umakit.machine.tile_machine import TileMachine
from umakit.machine.tiles import (
    COLUMNS,
    IMAGES,
    INPUT_CHANNELS,
    OUTPUT_CHANNELS,
    ROWS,
    Tiles,
    Tiling,
)

_Ends = tuple[()] | tuple[bool, bool]


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimated cycles of a tiling."""

    bound: int
    cycles: int
    commands: int


@dataclass(frozen=True, slots=True)
class _Sum:
    """Sums over the jobs of the array, or over the transfers that copy each tile of a tensor once.

    Attributes:
        tail: least tail of a command.
        accesses: total register accesses to enqueue the commands.
        least_accesses: least register accesses to enqueue a command.
        first, last: busy cycles of the first and of the last command.
    """

    busy: int
    count: int
    tail: int
    tails: int
    accesses: int
    least_accesses: int
    first: int
    last: int


def _summed(commands: Sequence[tuple[Cost, int, int]]) -> _Sum:
    """Return the sums of commands: each has a cost, register accesses and a number of times."""
    busy = count = tails = issue = 0
    tail = least = NEVER
    for cost, accesses, times in commands:
        busy += times * cost.busy
        count += times
        tails += times * cost.tail
        issue += times * accesses
        if cost.tail < tail:
            tail = cost.tail
        if accesses < least:
            least = accesses
    ends = (commands[0][0].busy, commands[-1][0].busy) if commands else (0, 0)
    return _Sum(busy, count, tail, tails, issue, least, *ends)


class Estimates:
    """Estimates of the tilings of one layer."""

    def __init__(self, layer: Layer, hardware: TileMachine, driver: DriverCosts) -> None:
        self.layer = self._layer = layer
        self._hardware = hardware
        self._driver = driver
        self._costs: dict[tuple[Dataflow | int, ...], tuple[Cost, int]] = {}
        self._moves: dict[tuple[str | int, ...], _Sum] = {}
        self._extents = {axis: axis_extent(layer, axis) for axis in SIZED}
        self._engines = {name: hardware.engine_of(name).name for name in TENSORS}

    def bound(self, cut: Tiling) -> int:
        """Return a lower bound of a tiling's cycles that holds for any order of its loops.

        The array waits for the first tile, computes, and the last tile has to be stored. Each tile
        crosses the bus at least once.
        """
        jobs, moves = self._jobs(cut), self._all_moves(cut)
        return self._driver.begin + max(
            self._way_in(cut, jobs) + jobs.busy + jobs.tail + self._way_out(cut),
            self._first_accesses(moves)
            + self._longest({name: move.busy for name, move in moves.items()}, moves["result"].tail)
            + self._driver.finish,
        )

    def of(self, tiles: Tiles) -> Estimate:
        """Return the estimate of a tiling."""
        driver, tiling = self._driver, tiles.tiling
        jobs, moves = self._jobs(tiling), self._all_moves(tiling)
        again = {name: _repeats(tiles, name) for name in moves}
        copied = {name: again[name] * moves[name].busy for name in moves}
        transfers = self._parameters.count + sum(again[n] * moves[n].count for n in moves)
        commands = jobs.count + transfers
        issue = driver.begin + self._configure
        issue += self._parameters.accesses + sum(again[n] * moves[n].accesses for n in moves)
        issue += jobs.accesses
        tail, way_out = moves["result"].tail, self._way_out(tiling)
        if not self._hardware.machine.has_queues:
            issue += (commands - 1) * driver.check
            cycles = issue + jobs.busy + jobs.tails + sum(copied.values()) + self._parameters.busy
            cycles += self._parameters.tails + sum(again[n] * moves[n].tails for n in moves)
            return Estimate(cycles + driver.finish, cycles + driver.finish, commands)
        way_in = driver.begin + self._way_in(tiling, jobs)
        last = jobs.tail + way_out
        bound = max(
            way_in + jobs.busy + last,
            driver.begin
            + self._first_accesses(moves)
            + self._longest(copied, tail)
            + driver.finish,
            issue + way_out,
        )
        steps = self._steps(tiles, jobs, moves)
        return Estimate(bound, max(bound, way_in + steps + last), commands)

    def _longest(self, copied: Mapping[str, int], tail: int) -> int:
        """Return the busy cycles of the engine that copies longest.

        Args:
            tail: tail of the copies of the result, the last copies of their engine.
        """
        engines = dict.fromkeys(self._engines.values(), 0)
        for name, cycles in copied.items():
            engines[self._engines[name]] += cycles
        engines[self._engines["parameters"]] += self._parameters.busy
        engines[self._engines["result"]] += tail
        return max(engines.values())

    def _steps(self, tiles: Tiles, jobs: _Sum, moves: dict[str, _Sum]) -> int:
        """Return the cycles of all jobs if each job waits for the transfers during the previous
        job.

        An iteration of a loop copies the tensors whose tiles depend on this loop or on an inner
        loop. With n buffers the copies for a job can start when the n-th previous job has ended and
        its result is stored.
        """
        job = jobs.busy / jobs.count
        one = {name: move.busy / move.count for name, move in moves.items()}
        depths = {name: tiles.depth(name) for name in moves}
        cycles, before = job, 1
        for number, axis in enumerate(tiles.loops):
            steps, before = before * (tiles.extents[axis] - 1), before * tiles.extents[axis]
            by_engine: dict[str, float] = {}
            for name, depth in depths.items():
                if depth > number:
                    engine = self._engines[name]
                    by_engine[engine] = by_engine.get(engine, 0) + one[name]
            copies = max(by_engine.values(), default=0)
            if copies:
                copies += jobs.tail + moves["result"].tail
            buffers = tiles.tiling.buffers
            if buffers == 1:
                cycles += steps * (job + copies)
            elif number == len(tiles.loops) - 1:  # one of n jobs is late, or each a part
                cycles += steps * max(job, (job + copies) / buffers)
            else:
                cycles += steps * max(job, copies / (buffers - 1))
        return int(cycles)

    @cached_property
    def _configure(self) -> int:
        return self._driver.configure + (self._driver.configure_add if self._layer.adds else 0)

    @cached_property
    def _names(self) -> tuple[str, ...]:
        weights = () if self._layer.is_pool else ("weights",)
        return ("data", *weights, *(("addend",) if self._layer.adds else ()), "result")

    def _all_moves(self, tiling: Tiling) -> dict[str, _Sum]:
        return {name: self._tiles_of(tiling, name) for name in self._names}

    def _first_accesses(self, moves: Mapping[str, _Sum]) -> int:
        """Return the least register accesses before the first copy."""
        return min(move.least_accesses for name, move in moves.items() if name != "result")

    def _way_in(self, tiling: Tiling, jobs: _Sum) -> int:
        """Return the cycles until the array can start: first loads and register accesses."""
        loads = {n: self._tiles_of(tiling, n) for n in self._names if n != "result"}
        enqueued = sum(load.least_accesses for load in loads.values()) + self._parameters.accesses
        enqueued += self._configure + jobs.least_accesses
        loaded: dict[str, int] = {}
        tails: dict[str, int] = {}
        for name, load in loads.items():
            engine = self._engines[name]
            loaded[engine] = loaded.get(engine, 0) + load.first
            tails[engine] = min(tails.get(engine, load.tail), load.tail)
        engine = self._engines["parameters"]
        loaded[engine] = loaded.get(engine, 0) + self._parameters.busy
        last = max(cycles + tails.get(engine, 0) for engine, cycles in loaded.items())
        return max(enqueued, self._first_accesses(loads) + last)

    def _way_out(self, tiling: Tiling) -> int:
        result = self._tiles_of(tiling, "result")
        return result.last + result.tail + self._driver.finish

    def _parts(self, tiling: Tiling) -> Iterator[tuple[tuple[int, int, int, int], _Ends, int]]:
        """Yield each job size with the number of such jobs.

        A size is rows, columns, output channels and input channels, and, if the cost depends on it,
        whether the job begins and finishes sums.
        """
        layer, sizes = self._layer, sizes_of(tiling)
        kinds: list[list[tuple[Any, ...]]] = []
        for axis in (ROWS, COLUMNS, OUTPUT_CHANNELS, INPUT_CHANNELS):
            extent, size = self._extents[axis], min(sizes[axis], self._extents[axis])
            if axis == INPUT_CHANNELS and layer.per_channel:
                kinds.append([(0, 1)])  # the channels of the output channels
                continue
            if axis == INPUT_CHANNELS and self._hardware.jobs_by_step:
                kinds.append(_steps(extent, size))
                continue
            full, rest = divmod(extent, size)
            kinds.append([(size, full), (rest, 1)] if rest else [(size, full)])
        for rows, columns, outputs, inputs in product(*kinds):
            times = rows[1] * columns[1] * outputs[1] * inputs[1]
            size = outputs[0] // layer.multiplier if layer.per_channel else inputs[0]
            yield (rows[0], columns[0], outputs[0], size), inputs[2:], times

    def _jobs(self, tiling: Tiling) -> _Sum:
        found, images = [], self._layer.images
        for sizes, ends, times in self._parts(tiling):
            key = (tiling.dataflow, *sizes, *ends)
            known = self._costs.get(key)
            if known is None:
                cost = self._hardware.job(TileSizes(self._layer, tiling.dataflow, *sizes, *ends))
                known = self._costs[key] = cost, self._driver.accesses_of(cost)
            found.append((*known, images * times))
        return _summed(found)

    def _tiles_of(self, tiling: Tiling, name: str) -> _Sum:
        key: tuple[str | int, ...] = (name, tiling.rows, tiling.columns, tiling.output_channels)
        if name == "weights":
            key = (name, tiling.output_channels, tiling.input_channels)
        elif name == "data":
            channels = self._layer.per_channel
            inputs = tiling.output_channels if channels else tiling.input_channels
            key = (name, tiling.rows, tiling.columns, inputs)
        if key not in self._moves:
            self._moves[key] = self._sum(tiles_on(self._layer, tiling, self._hardware), name)
        return self._moves[key]

    def _sum(self, tiles: Tiles, name: str) -> _Sum:
        found = []
        for position, times in _kinds(tiles, tiles.axes_of(name)):
            moved = tiles.copy(name, position)
            cost = self._hardware.copy(Copy(name, moved.planes, moved.rows, moved.row_bytes))
            found.append((cost, self._driver.accesses_of(cost, name), times))
        return _summed(found)

    @cached_property
    def _parameters(self) -> _Sum:
        sizes = self._layer.parameter_sizes
        costs = [self._hardware.copy(Copy("parameters", 1, 1, size)) for size in sizes]
        return _summed([(c, self._driver.accesses_of(c, "parameters"), 1) for c in costs])


def _steps(extent: int, size: int) -> list[tuple[int, int, bool, bool]]:
    """Return size and number of the first, inner and last steps over input channels, with flags for
    beginning and finishing sums. A single step does both."""
    count, last = -(-extent // size), (extent - 1) % size + 1
    if count == 1:
        return [(extent, 1, True, True)]
    between = [(size, count - 2, False, False)] if count > 2 else []
    return [(size, 1, True, False), *between, (last, 1, False, True)]


def _repeats(tiles: Tiles, name: str) -> int:
    """Return the number of copies of each tile of a tensor."""
    own = tiles.axes_of(name)
    loops = tiles.loops[: tiles.depth(name)]
    return prod(tiles.extents[axis] for axis in loops if axis not in own)


def _kinds(tiles: Tiles, axes: tuple[str, ...]) -> Iterator[tuple[dict[str, int], int]]:
    """Yield one tile of each size with the number of such tiles, in order of position."""
    for chosen in product(*(_ends(tiles.extents[axis], axis) for axis in axes)):
        position: dict[str, int] = dict.fromkeys(tiles.extents, 0)
        for axis, (number, _) in zip(axes, chosen, strict=True):
            position[axis] = number
        yield position, prod(times for _, times in chosen)


def _ends(extent: int, axis: str) -> list[tuple[int, int]]:
    """Return representative tile numbers along an axis, each with the number of tiles it stands
    for."""
    if axis == IMAGES:
        return [(0, extent)]
    if axis in (ROWS, COLUMNS) and extent > 2:
        return [(0, 1), (1, extent - 2), (extent - 1, 1)]
    return [(0, extent - 1), (extent - 1, 1)] if extent > 1 else [(0, 1)]
