# SPDX-License-Identifier: Apache-2.0
"""What cutting layers into tiles asks of a machine.

A subclass says where the tiles of each tensor lie, what copies them, which sizes the hardware takes
and what a job and a copy cost. Space, commands, estimate, bound and prediction are functions of it.
`Hardware`, the systolic array, is one subclass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property

from umakit.errors import AcceleratorConfigError, short_path
from umakit.machine.costs import TENSORS, Copy, Cost, TileSizes
from umakit.machine.description import Does, Engine, Machine, Memory
from umakit.machine.figures import Figure, costs, flat
from umakit.machine.layer import Layer
from umakit.machine.systolic import Dataflow

SUM_BYTES = 4
"""Size of an int32 sum in bytes."""


PLAIN = (
    "memories",
    "streams",
    "units",
    "whole_units",
    "limits",
    "block_channels",
    "dataflows",
    "sum_bytes",
    "sums_in_result",
    "jobs_by_step",
    "alignment",
    "macs_per_cycle",
    "bytes_per_cycle",
)
"""Attributes of a `TileMachine` that are plain data."""


class Placement:
    """How many bytes tiles take.

    Attributes:
        block_channels: output channels in a block of weights.
    """

    block_channels: int = 1

    def tile_alignment_of(self, tensor: str) -> int:
        """Return the number of bytes that the tiles of a tensor start at multiples of."""
        return 1

    def row_bytes_of(self, tensor: str) -> int:
        """Return the size of a row of the memory of a tensor's tiles, in bytes."""
        return 1

    def footprint(self, tensor: str, sizes: TileSizes, covered: tuple[int, int]) -> int:
        """Return the bytes that the largest tile of a tensor takes in its memory.

        Args:
            tensor: one of `TENSORS`.
            sizes: of the largest tile.
            covered: height and width of the data that its windows cover, without padding.

        The default is that of tiles without gaps but those that pad the innermost axis to rows of
        the memory; weights fill whole blocks.
        """
        row = self.row_bytes_of(tensor)
        lines, size = self._lines(tensor, sizes, covered)
        return lines * -(-size // row) * row

    def tile_bytes(
        self, tensor: str, sizes: TileSizes, covered: tuple[int, int], steps: int
    ) -> int:
        """Return `footprint`.

        Args:
            tensor, sizes, covered: as of `footprint`.
            steps: number of jobs that compute a tile.
        """
        return self.footprint(tensor, sizes, covered)

    def _lines(self, tensor: str, sizes: TileSizes, covered: tuple[int, int]) -> tuple[int, int]:
        """Return the number of contiguous parts of a tile and the bytes of each."""
        layer = sizes.layer
        if tensor == "parameters":
            return 1, layer.parameters_bytes
        if tensor == "weights" and layer.per_channel:
            return layer.window, sizes.output_channels
        if tensor == "weights":
            blocks = -(-sizes.output_channels // self.block_channels)
            return blocks * layer.window * sizes.input_channels, self.block_channels
        height, width, channels = sizes.rows, sizes.columns, sizes.output_channels
        if tensor == "data":
            (height, width), channels = covered, sizes.input_channels
        if layer.channels_first:
            return channels * height, width
        return height * width, channels


def _results(sizes: TileSizes) -> int:
    return sizes.positions * sizes.output_channels


class OneMemory(Placement):
    """A memory of all tensors, in which tiles have no gaps."""

    def __init__(self, block_channels: int, bank_bytes: int) -> None:
        self.block_channels = block_channels
        self._bank_bytes = bank_bytes

    def tile_alignment_of(self, tensor: str) -> int:
        """Return the size of a bank in bytes."""
        return self._bank_bytes


class TileMachine(Placement, ABC):
    """A machine that computes layers tile by tile.

    Subclasses set the attributes that differ from the defaults.

    Attributes:
        memories: by tensor of `TENSORS`, the name of the memory that its tiles lie in; tensors that
            are not named lie in the first memory of the machine.
        streams: by tensor, the name of the stream of its copies, and by kind of layer (`max_pool`,
            ...: `Kind.value`) that of its jobs; tensors that are not named belong to the machine's
            first stream that loads, the result to the first that stores, jobs to the first that
            computes.
        units: by axis (`rows`, `columns`, `output_channels`, `input_channels`), what sizes of tiles
            are multiples of. The last tile along an axis is what is left, and may be smaller.
        whole_units: axes along which the last tile has to be a multiple of the unit too; layers
            where it would not be are refused.
        limits: by axis, the largest size of a tile.
        most_positions: largest number of rows and of columns of the data and of the result of a
            tile, as registers have bits for; 0 for any.
        block_channels: output channels in a block of weights; tiles have whole blocks.
        dataflows: dataflows that a job may select.
        sum_bytes: size of the memory of sums that one job keeps for the next, which is none of the
            machine's memories; 0 for none, so that input channels are not cut.
        sums_in_result: whether such sums are kept in the tile of the result instead.
        jobs_by_step: whether the cost of a job depends on `TileSizes.first` and `last`, because
            sums are begun or finished there.
        alignment: required alignment of the addresses of copies on the bus, in bytes.
        macs_per_cycle: largest number of multiply-accumulates in a cycle, for the bound; a
            subclass has to set it.
        bytes_per_cycle: largest number of bytes that all engines together copy in a cycle, for the
            bound; a subclass has to set it.
        engine_bytes_per_cycle: by name of an engine, the largest number of bytes that it alone
            copies in a cycle, for the bound; engines may be left out.
    """

    memories: Mapping[str, str] = {}
    streams: Mapping[str, str] = {}
    units: Mapping[str, int] = {}
    whole_units: tuple[str, ...] = ()
    limits: Mapping[str, int] = {}
    most_positions: int = 0
    dataflows: tuple[Dataflow, ...] = (Dataflow.OUTPUT_STATIONARY,)
    sum_bytes: int = 0
    sums_in_result: bool = False
    jobs_by_step: bool = False
    alignment: int = 1
    macs_per_cycle: int = 0
    bytes_per_cycle: int = 0
    engine_bytes_per_cycle: Mapping[str, int] = {}

    @property
    @abstractmethod
    def machine(self) -> Machine:
        """Its memories, engines and queues."""

    @abstractmethod
    def job(self, sizes: TileSizes) -> Cost:
        """Return the cycles of a job."""

    @abstractmethod
    def copy(self, copied: Copy) -> Cost:
        """Return the cycles of a copy into or out of a memory."""

    def refusal(self, layer: Layer) -> str:
        """Return the reason why the machine computes no layer of some sizes; empty if it may."""
        return ""

    def sums(self, sizes: TileSizes, steps: int) -> int:
        """Return the bytes of `sum_bytes` that a tile takes.

        Args:
            sizes: of the largest tile.
            steps: number of jobs that compute a tile, each from a part of the input channels.
        """
        kept = steps > 1 and not self.sums_in_result
        return SUM_BYTES * sizes.positions * sizes.output_channels if kept else 0

    # --- what follows from these ------------------------------------------------------------------

    def tile_bytes(
        self, tensor: str, sizes: TileSizes, covered: tuple[int, int], steps: int
    ) -> int:
        """Return `footprint`, compared with the bytes that copies and jobs put into a tile.

        Sums in a tile of the result have room, unless a footprint of the machine's own says less.

        Raises:
            AcceleratorConfigError: the footprint is smaller, so that tiles would overlap.
        """
        found = self.footprint(tensor, sizes, covered)
        is_sum = tensor == "result" and self.sums_in_result and steps > 1
        needed = SUM_BYTES * _results(sizes) if is_sum else self._least(tensor, sizes, covered)
        if is_sum and not self._states(tensor):
            return max(found, needed)
        if found < needed:
            raise self._too_small(tensor, found, needed, sizes, is_sum=is_sum)
        return found

    def kept_bytes(self, sizes: TileSizes, steps: int) -> int:
        """Return `sums`, compared with the bytes of the sums that a tile keeps.

        Raises:
            AcceleratorConfigError: there are more sums than that.
        """
        found = self.sums(sizes, steps)
        needed = TileMachine.sums(self, sizes, steps)
        if found < needed:
            raise self._too_small("sums", found, needed, sizes, is_sum=True)
        return found

    def _states(self, name: str) -> bool:
        """Whether the machine itself says what a tensor, or sums, of a tile take."""
        kits, own = (TileMachine.sums, type(self).sums) if name == "sums" else (
            TileMachine.footprint, type(self).footprint
        )  # fmt: skip
        return own is not kits

    def _least(self, tensor: str, sizes: TileSizes, covered: tuple[int, int]) -> int:
        """Return the bytes of a tile that a job reads or writes, at least."""
        if tensor in ("addend", "result"):
            return _results(sizes)
        if tensor != "data":
            lines, size = self._lines(tensor, sizes, covered)
            return lines * size
        layer = sizes.layer
        # Copies may leave out what lies between windows.
        taken = [
            min(all_, results if stride > kernel or dilation > 1 else all_)
            for all_, results, stride, kernel, dilation in zip(
                covered, (sizes.rows, sizes.columns), layer.strides, layer.kernel, layer.dilation,
                strict=True,
            )
        ]  # fmt: skip
        return taken[0] * taken[1] * sizes.input_channels

    def _too_small(
        self, name: str, found: int, needed: int, sizes: TileSizes, *, is_sum: bool
    ) -> AcceleratorConfigError:
        """Return the error of a footprint that holds less than is put there."""
        code = (type(self).sums if name == "sums" else type(self).footprint).__code__
        what = "int32 sums" if is_sum else "what is copied"
        return AcceleratorConfigError(
            f"{name} of a tile take {found:,} B, and {what} {needed:,} B, "
            f"for {sizes.rows} x {sizes.columns} results of {sizes.output_channels} channels",
            where=f"{short_path(code.co_filename)}:{code.co_firstlineno}",
            fix=f"return at least {needed:,} for these sizes",
        )

    @cached_property
    def _placed(self) -> dict[str, Memory]:
        """The memory of each tensor's tiles."""
        return {name: self.machine.memory(self.memory_of(name)) for name in TENSORS}

    def memory_of(self, tensor: str) -> str:
        """Return the name of the memory that the tiles of a tensor lie in."""
        return self.memories.get(tensor) or self.machine.memories[0].name

    def stream_of(self, tensor: str) -> str:
        """Return the name of the stream of a tensor's copies.

        Raises:
            AcceleratorConfigError: no stream of the machine does that.
        """
        does: Does = "store" if tensor == "result" else "load"
        return self.streams.get(tensor) or self.machine.first_stream(does)

    def stream_of_jobs(self, layer: Layer) -> str:
        """Return the name of the stream of a layer's jobs."""
        return self.streams.get(layer.kind.value) or self.machine.explained

    def engine_of(self, tensor: str) -> Engine:
        """Return the engine of a tensor's copies."""
        return self.machine.engine_of(self.stream_of(tensor))

    def tile_alignment_of(self, tensor: str) -> int:
        """Return the number of bytes that the tiles of a tensor start at multiples of."""
        return self._placed[tensor].tile_alignment

    def row_bytes_of(self, tensor: str) -> int:
        """Return the size of a row of the memory of a tensor's tiles, in bytes."""
        return self._placed[tensor].row_bytes

    def unit(self, axis: str) -> int:
        """Return what sizes of tiles along an axis are multiples of."""
        return self.units.get(axis, 1)

    def figures(self) -> dict[str, Figure]:
        """Return what identifies the machine, by name, for records: tilings of one are not those
        of another."""
        plain: dict[str, Figure] = {}
        for name in PLAIN:
            plain.update(flat(name, getattr(self, name)))
        for part in ("memories", "engines", "queues"):
            plain.update(flat(f"machine.{part}", getattr(self.machine, part)))
        return {**plain, **costs(self)}


class Wrapped(TileMachine):
    """Another machine, of which subclasses change some answers."""

    def __init__(self, other: TileMachine) -> None:
        self.other = other
        for name in PLAIN:
            setattr(self, name, getattr(other, name))
        self.engine_bytes_per_cycle = other.engine_bytes_per_cycle
        self.most_positions = other.most_positions

    @property
    def machine(self) -> Machine:
        """The other machine's memories, engines and queues."""
        return self.other.machine

    def job(self, sizes: TileSizes) -> Cost:
        """Return the cycles of a job."""
        return self.other.job(sizes)

    def copy(self, copied: Copy) -> Cost:
        """Return the cycles of a copy."""
        return self.other.copy(copied)

    def footprint(self, tensor: str, sizes: TileSizes, covered: tuple[int, int]) -> int:
        """Return the bytes of a tile."""
        return self.other.footprint(tensor, sizes, covered)

    def tile_bytes(
        self, tensor: str, sizes: TileSizes, covered: tuple[int, int], steps: int
    ) -> int:
        """Return the bytes of a tile, compared with what is put there."""
        return self.other.tile_bytes(tensor, sizes, covered, steps)

    def kept_bytes(self, sizes: TileSizes, steps: int) -> int:
        """Return the bytes of sums of a tile, compared with those that a tile keeps."""
        return self.other.kept_bytes(sizes, steps)

    def refusal(self, layer: Layer) -> str:
        """Return the other machine's reason."""
        return self.other.refusal(layer)

    def sums(self, sizes: TileSizes, steps: int) -> int:
        """Return the bytes of sums of a tile."""
        return self.other.sums(sizes, steps)

    def memory_of(self, tensor: str) -> str:
        """Return the name of the memory of a tensor's tiles."""
        return self.other.memory_of(tensor)

    def stream_of(self, tensor: str) -> str:
        """Return the name of the stream of a tensor's copies."""
        return self.other.stream_of(tensor)

    def stream_of_jobs(self, layer: Layer) -> str:
        """Return the name of the stream of a layer's jobs."""
        return self.other.stream_of_jobs(layer)

    def figures(self) -> dict[str, Figure]:
        """Return what identifies the other machine."""
        return self.other.figures()


class WithoutQueues(Wrapped):
    """Another machine, whose driver waits for the end of each command."""

    def __init__(self, other: TileMachine) -> None:
        super().__init__(other)
        self._machine = other.machine.without_queues()

    @property
    def machine(self) -> Machine:
        """The other machine's, without queues."""
        return self._machine
