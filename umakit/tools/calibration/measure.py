# SPDX-License-Identifier: Apache-2.0
"""Measuring tiles: networks of layers run by the backend's driver, with timed commands.

The simulator's timeline has the times of each engine's actions. The description of the machine has
the commands and their order. Together they give the cycles of each command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from umakit.backend.base import UMABackend
from umakit.devices.execution import UnansweredError
from umakit.devices.run import CommandTimes, LayerProfile, run_library
from umakit.errors import BuildError, DeviceError, UmakitError
from umakit.files.staging import temporary_folder
from umakit.library.export import Library
from umakit.machine import Copy, Cost, Layer, Tiles, TileSizes, Tiling
from umakit.machine.commands import commands_of
from umakit.machine.description import Machine
from umakit.machine.planner import TilePlanner
from umakit.machine.tile_machine import Wrapped
from umakit.pipeline import ExportOptions, export_program, partition_model
from umakit.tools.calibration.tiles import Tile
from umakit.tools.failed_layer import with_layer
from umakit.tools.tuning.simulate import drawn_inputs, network_of_layers

LAYERS_PER_NETWORK = 40
"""Number of layers that are compiled and run at a time."""

MOST_COMMANDS = 512
"""Maximum number of commands of a layer that are recorded: devices have little memory."""

NOTHING_RECORDED = "nothing is recorded"
"""Why the commands of a layer cannot be told apart if the simulator reports none."""

Sizes = TileSizes | Copy


@dataclass(frozen=True)
class Timed:
    """A measured command.

    Attributes:
        sizes: the sizes that its cycles depend on.
        busy: cycles in which the command occupied its engine.
        tail: further cycles until its effect was complete; None if hidden by a wait for the end of
            the previous command.
    """

    stream: str
    sizes: Sizes
    busy: int
    tail: int | None


@dataclass(frozen=True)
class MeasuredTiles:
    """A measured layer.

    Attributes:
        clock_cycles: cycles of the layer; None if the simulator has no clock.
        commands: commands of the layer; empty if they cannot be told apart, or there are several
            buffers.
        accesses: register accesses of the layer; None if they are not counted.
    """

    tiles: Tiles
    clock_cycles: int | None
    commands: tuple[Timed, ...]
    accesses: int | None = None


@dataclass
class Measurement:
    """The results of a measurement.

    Attributes:
        refused: number of layers that the backend leaves to the CPU.
        failures: errors of layers that could not be compiled or run.
        mismatches: number of layers whose commands could not be told apart, by reason.
    """

    layers: list[MeasuredTiles] = field(default_factory=list)
    refused: int = 0
    failures: list[UmakitError] = field(default_factory=list)
    mismatches: dict[str, int] = field(default_factory=dict)


class _ByShape(Mapping[Layer, Tiling]):
    """Tilings by layer, whatever arrangement of weights and scales the backend chooses."""

    def __init__(self, tiles: Sequence[Tile]) -> None:
        self._tilings = {_shape(tile.layer): tile.tiling for tile in tiles}

    def __getitem__(self, layer: Layer) -> Tiling:
        return self._tilings[_shape(layer)]

    def __iter__(self) -> Iterator[Layer]:
        return iter(self._tilings)

    def __len__(self) -> int:
        return len(self._tilings)


def _shape(layer: Layer) -> Layer:
    return replace(layer, scales=0, stored_channels=0)


class _Numbered(Wrapped):
    """A machine in which the cycles of a command are the number of its sizes, from 1."""

    def __init__(self, planner: TilePlanner) -> None:
        super().__init__(planner.machine)
        self.jobs_by_step = True
        self.sizes: list[Sizes] = []

    def job(self, sizes: TileSizes) -> Cost:
        return self._number(sizes)

    def copy(self, copied: Copy) -> Cost:
        return self._number(copied)

    def _number(self, sizes: Sizes) -> Cost:
        self.sizes.append(sizes)
        return Cost(len(self.sizes), 0)


def measure(
    backend: UMABackend,
    tiles: Sequence[Tile],
    device: str,
    found: Measurement,
    tell: Callable[[int], None] = lambda count: None,
) -> None:
    """Compile and run layers, and add the measurements; `tell` gets the number of finished
    layers."""
    for batch in _batches(tiles):
        _measure_batch(backend, batch, device, found)
        tell(len(batch))


def _batches(tiles: Sequence[Tile]) -> Iterator[list[Tile]]:
    """Yield tiles in groups of layers that differ in shape."""
    left = list(tiles)
    while left:
        batch: dict[Layer, Tile] = {}
        rest = []
        for tile in left:
            shape = _shape(tile.layer)
            if shape in batch or len(batch) == LAYERS_PER_NETWORK:
                rest.append(tile)
            else:
                batch[shape] = tile
        yield list(batch.values())
        left = rest


def _measure_batch(
    backend: UMABackend, batch: Sequence[Tile], device: str, found: Measurement
) -> None:
    try:
        _run(backend, batch, device, found)
    except UnansweredError:
        raise  # each further layer may take as long
    except UmakitError as error:
        if len(batch) == 1 and isinstance(error, BuildError) and not found.layers:
            raise  # a compiler is missing, for example, and would be for all others
        if len(batch) == 1:
            found.failures.append(error)
            return
        half = len(batch) // 2
        _measure_batch(backend, batch[:half], device, found)
        _measure_batch(backend, batch[half:], device, found)


def _run(backend: UMABackend, batch: Sequence[Tile], device: str, found: Measurement) -> None:
    target = backend.target_name
    options = ExportOptions(tilings={target: _ByShape(batch)}, overlap="never", keep_layout=True)
    with temporary_folder("umakit-calibrate-") as temporary:
        dense = [tile.layer for tile in batch if tile.dense]
        module = network_of_layers([tile.layer for tile in batch], dense, batch[0].rounding)
        network, partitioned = partition_model(module, [backend], options=options)
        if all(row.where != target for row in partitioned.report.placements):
            found.refused += len(batch)
            return  # all layers would run on the CPU
        library = export_program(
            network.model, partitioned, [backend], temporary / "tiles", options
        )
        inputs = drawn_inputs(library.metadata["umakit"]["inputs"])
        try:
            ran = run_library(
                library.path, inputs, profile=True, record_commands=MOST_COMMANDS, device=device
            )
        except UnansweredError as error:
            failed = with_layer(error, library.path, inputs, device, None)
            raise _in_layer(backend, library, failed) from None
    for tiles, profile in zip(_tiles_of_calls(backend, library), ran.layers, strict=True):
        _add(backend, tiles, profile, found)


def _in_layer(backend: UMABackend, library: Library, error: DeviceError) -> UnansweredError:
    where = error.where
    if error.layer is not None:
        tiles = _tiles_of_calls(backend, library)[error.layer]
        where = words_of(tiles.layer) if tiles is not None else where
    return UnansweredError(error.what, where=where, fix=error.fix)


def words_of(layer: Layer) -> str:
    """Return a layer in words, such as `convolution 3x3, 22x22x24 to 20x20x48`."""
    kernel, data, result = (
        "x".join(map(str, sizes))
        for sizes in (
            layer.kernel,
            (*layer.input_size, layer.input_channels),
            (*layer.output_size, layer.output_channels),
        )
    )
    kind = layer.kind.value.replace("_", " ") + (" with a sum" if layer.adds else "")
    return f"{kind} {kernel}, {data} to {result}"


def _tiles_of_calls(backend: UMABackend, library: Library) -> list[Tiles | None]:
    program, planner, target = library.program, backend.tiling, backend.target_name
    assert program is not None and planner is not None  # compiled, for a backend that tiles
    found: list[Tiles | None] = []
    for call in program.calls:
        composite = program.kernels[call.kernel].composite if call.kernel else None
        if composite is None or call.target != target:
            found.append(None)
        else:
            found.append(planner.tiles_of(composite, program.planned[target].tilings))
    return found


def _add(
    backend: UMABackend, tiles: Tiles | None, profile: LayerProfile, found: Measurement
) -> None:
    planner = backend.tiling
    assert planner is not None
    if tiles is None:
        found.refused += 1
        return
    commands: tuple[Timed, ...] = ()
    reason = ""
    if tiles.tiling.buffers > 1:
        pass  # one engine may run commands of several streams in another order than the driver
    elif profile.commands_left_out:
        reason = "there are more commands than are recorded"
    else:
        try:
            commands = tuple(_timed(tiles, planner, profile.commands))
        except _Mismatch as error:
            reason = str(error)
    if reason:
        found.mismatches[reason] = found.mismatches.get(reason, 0) + 1
    reads, writes = profile.register_reads, profile.register_writes
    accesses = None if reads is None or writes is None else reads + writes
    found.layers.append(MeasuredTiles(tiles, profile.clock_cycles, commands, accesses))


class _Mismatch(Exception):
    """Recorded and described commands differ."""


def _timed(tiles: Tiles, planner: TilePlanner, recorded: Sequence[CommandTimes]) -> Iterator[Timed]:
    """Yield the timed commands of a layer; raise _Mismatch if they are not as described."""
    if not recorded:
        raise _Mismatch(NOTHING_RECORDED)
    machine = _Numbered(planner)
    described = commands_of(tiles, machine, planner.driver)
    names = _names_by_stream(planner.machine.machine, recorded)
    for name in dict.fromkeys(names[command.stream] for command in described):
        expected = [command for command in described if names[command.stream] == name]
        times = [each for each in recorded if each.stream == name]
        if len(expected) != len(times):
            there = ", ".join(sorted({each.stream for each in recorded}))
            raise _Mismatch(
                f"{name} ran {len(times)} commands, the description of the machine expects "
                f"{len(expected)}" + ("" if times else f"; the timeline has {there}")
            )
        before = -1
        for command, each in zip(expected, times, strict=True):
            tail = each.completion - each.busy_end if each.completion > before else None
            before = each.completion
            sizes = machine.sizes[command.busy - 1]
            yield Timed(command.stream, sizes, each.busy_end - each.start, tail)


def _names_by_stream(machine: Machine, recorded: Sequence[CommandTimes]) -> dict[str, str]:
    """Return the timeline's name for each stream.

    The name is that of the stream, or of its engine.
    """
    there = {each.stream for each in recorded}
    names = {}
    for engine in machine.engines:
        for stream in engine.streams:
            names[stream.name] = stream.name if stream.name in there else engine.name
    if not there & set(names.values()):
        raise _Mismatch(
            f"the timeline of the simulator has the engines {', '.join(sorted(there))}, the "
            f"description of the machine {', '.join(each.name for each in machine.engines)}"
        )
    return names
