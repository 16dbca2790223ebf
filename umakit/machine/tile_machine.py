# SPDX-License-Identifier: Apache-2.0
"""The interface of machines that compute layers tile by tile.

A subclass describes the memories of tiles, the engines that copy them, the tile sizes that the
hardware accepts, and the costs of jobs and copies. Space, commands, estimate, bound and prediction
are functions of this description. `Hardware`, the systolic array, is one subclass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property

from umakit.errors import AcceleratorConfigError, short_path
from umakit.machine.costs import TENSORS, Copy, Cost, Figure, TileSizes, costs, flat
from umakit.machine.description import Does, Engine, Machine, Memory
from umakit.machine.energy import JobCounts
from umakit.machine.layer import Layer
from umakit.machine.requirements import Job
from umakit.machine.systolic import ArrayBound, ArrayWork, Dataflow

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


def _results(sizes: TileSizes) -> int:
    return sizes.positions * sizes.output_channels


class TileMachine(ABC):
    """A machine that computes layers tile by tile.

    Subclasses set attributes that differ from the defaults.

    Attributes:
        memories: by tensor of `TENSORS`, the name of the memory of its tiles; other tensors lie in
            the first memory of the machine.
        streams: by tensor, the name of the stream of its copies, and by kind of layer (`max_pool`,
            ...: `Kind.value`), the stream of its jobs. Other tensors belong to the machine's first
            stream that loads, the result to the first that stores, jobs to the first that computes.
        units: by axis (`rows`, `columns`, `output_channels`, `input_channels`), the unit of tile
            sizes: sizes are multiples of the unit. The last tile along an axis is the rest, and may
            be smaller.
        whole_units: axes along which the last tile has to be a multiple of the unit too; other
            layers are refused.
        limits: by axis, the largest size of a tile.
        most_positions: largest number of rows and of columns of a tile's data and result, by the
            bits of registers; 0 for any.
        block_channels: output channels in a block of weights; tiles have whole blocks.
        dataflows: dataflows that a job may select.
        sum_bytes: size of the memory of partial sums kept from one job to the next, apart from the
            machine's memories; 0 for no such memory: input channels are then not cut.
        sums_in_result: whether partial sums are kept in the tile of the result instead.
        jobs_by_step: whether the cost of a job depends on `TileSizes.first` and `last`, the jobs
            that begin and finish sums.
        alignment: required alignment of the addresses of copies on the bus, in bytes.
        macs_per_cycle: largest number of multiply-accumulates in a cycle, for the bound; a
            subclass has to set it.
        bytes_per_cycle: largest number of bytes that all engines together copy in a cycle, for the
            bound; a subclass has to set it.
        engine_bytes_per_cycle: by name of an engine, the largest number of bytes that this engine
            alone copies in a cycle, for the bound; engines may be left out.
        other_costs: the reason why costs are not those of folds of a systolic array; empty if they
            are.
    """

    memories: Mapping[str, str] = {}
    streams: Mapping[str, str] = {}
    units: Mapping[str, int] = {}
    whole_units: tuple[str, ...] = ()
    limits: Mapping[str, int] = {}
    most_positions: int = 0
    block_channels: int = 1
    dataflows: tuple[Dataflow, ...] = (Dataflow.OUTPUT_STATIONARY,)
    sum_bytes: int = 0
    sums_in_result: bool = False
    jobs_by_step: bool = False
    alignment: int = 1
    macs_per_cycle: int = 0
    bytes_per_cycle: int = 0
    engine_bytes_per_cycle: Mapping[str, int] = {}
    other_costs: str = "costs are formulas, not those of folds of an [array]"

    @property
    @abstractmethod
    def machine(self) -> Machine:
        """The memories, engines and queues."""

    @abstractmethod
    def job(self, sizes: TileSizes) -> Cost:
        """Return the cycles of a job."""

    @abstractmethod
    def copy(self, copied: Copy) -> Cost:
        """Return the cycles of a copy into or out of a memory."""

    def footprint(self, tensor: str, sizes: TileSizes, covered: tuple[int, int]) -> int:
        """Return the bytes that the largest tile of a tensor takes in its memory.

        Args:
            tensor: one of `TENSORS`.
            sizes: sizes of the largest tile.
            covered: height and width of the data inside its windows, without padding.

        By default, tiles have no gaps except the padding of the innermost axis to rows of the
        memory; weights fill whole blocks.
        """
        row = self.row_bytes_of(tensor)
        lines, size = self._lines(tensor, sizes, covered)
        return lines * -(-size // row) * row

    def refusal(self, layer: Layer) -> str:
        """Return the reason why the machine does not compute a layer; empty if it may."""
        return ""

    def sums(self, sizes: TileSizes, steps: int) -> int:
        """Return the bytes of `sum_bytes` that a tile takes.

        Args:
            sizes: sizes of the largest tile.
            steps: number of jobs that compute a tile, each from a part of the input channels.
        """
        kept = steps > 1 and not self.sums_in_result
        return SUM_BYTES * sizes.positions * sizes.output_channels if kept else 0

    # --- answers of a systolic array --------------------------------------------------------------

    def array_works(self, layer: Layer) -> list[ArrayWork]:
        """Return the least work of a layer in each dataflow of a systolic array that can compute
        the layer; none for a machine whose costs are not those of folds, see `other_costs`."""
        return []

    def array_bound(self, layer: Layer) -> ArrayBound | None:
        """Return the lower bound of a layer's cycles on a systolic array; None without works."""
        return None

    def job_counts(self, layer: Layer, dataflow: Dataflow, job: Job) -> JobCounts | None:
        """Return the counts of a job, all of whose numbers are integers; None if unknown."""
        return None

    # --- derived answers ------------------------------------------------------------------------

    def tile_bytes(
        self, tensor: str, sizes: TileSizes, covered: tuple[int, int], steps: int
    ) -> int:
        """Return `footprint`, checked against the bytes that copies and jobs put into a tile.

        Sums in a tile of the result get their room, unless an overridden footprint is smaller.

        Raises:
            AcceleratorConfigError: the footprint is too small, so that tiles would overlap.
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
        """Return `sums`, checked against the bytes of the sums that a tile keeps.

        Raises:
            AcceleratorConfigError: `sums` is too small.
        """
        found = self.sums(sizes, steps)
        needed = TileMachine.sums(self, sizes, steps)
        if found < needed:
            raise self._too_small("sums", found, needed, sizes, is_sum=True)
        return found

    def _states(self, name: str) -> bool:
        """Whether the subclass overrides `footprint`, or `sums` for the name `sums`."""
        kits, own = (TileMachine.sums, type(self).sums) if name == "sums" else (
            TileMachine.footprint, type(self).footprint
        )  # fmt: skip
        return own is not kits

    def _lines(self, tensor: str, sizes: TileSizes, covered: tuple[int, int]) -> tuple[int, int]:
        """Return the number of contiguous parts of a tile and the bytes of each part."""
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

    def _least(self, tensor: str, sizes: TileSizes, covered: tuple[int, int]) -> int:
        """Return the least bytes of a tile that a job reads or writes."""
        if tensor in ("addend", "result"):
            return _results(sizes)
        if tensor != "data":
            lines, size = self._lines(tensor, sizes, covered)
            return lines * size
        layer = sizes.layer
        # Copies may leave out rows and columns between windows.
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
        return {name: self.machine.memory(self.memory_of(name)) for name in TENSORS}

    def memory_of(self, tensor: str) -> str:
        """Return the name of the memory of a tensor's tiles."""
        return self.memories.get(tensor) or self.machine.memories[0].name

    def stream_of(self, tensor: str) -> str:
        """Return the name of the stream of a tensor's copies.

        Raises:
            AcceleratorConfigError: no stream of the machine loads or stores.
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
        """Return the alignment of the tiles of a tensor, in bytes."""
        return self._placed[tensor].tile_alignment

    def row_bytes_of(self, tensor: str) -> int:
        """Return the size of a row of the memory of a tensor's tiles, in bytes."""
        return self._placed[tensor].row_bytes

    def unit(self, axis: str) -> int:
        """Return the unit of tile sizes along an axis."""
        return self.units.get(axis, 1)

    def figures(self) -> dict[str, Figure]:
        """Return the figures that identify the machine, by name, for records of tilings."""
        plain: dict[str, Figure] = {}
        for name in PLAIN:
            plain.update(flat(name, getattr(self, name)))
        for part in ("memories", "engines", "queues"):
            plain.update(flat(f"machine.{part}", getattr(self.machine, part)))
        return {**plain, **costs(self)}


class Wrapped(TileMachine):
    """A wrapper of another machine; subclasses change some answers. A systolic array's answers are
    not passed on, because subclasses change its costs."""

    def __init__(self, other: TileMachine) -> None:
        self.other = other
        for name in (*PLAIN, *FOLLOWED):
            setattr(self, name, getattr(other, name))

    @property
    def machine(self) -> Machine:
        return self.other.machine

    def job(self, sizes: TileSizes) -> Cost:
        return self.other.job(sizes)

    def copy(self, copied: Copy) -> Cost:
        return self.other.copy(copied)

    def figures(self) -> dict[str, Figure]:
        return self.other.figures()


FOLLOWED = (
    "most_positions", "engine_bytes_per_cycle", "footprint", "tile_bytes", "kept_bytes", "refusal",
    "sums", "memory_of", "stream_of", "stream_of_jobs",
)  # fmt: skip
"""Attributes and methods, beside `PLAIN`, that a `Wrapped` machine has from the other machine."""


class WithoutQueues(Wrapped):
    """A wrapped machine whose driver waits for the end of each command."""

    def __init__(self, other: TileMachine) -> None:
        super().__init__(other)
        self._machine = other.machine.without_queues()

    @property
    def machine(self) -> Machine:
        """The wrapped machine's description, without queues."""
        return self._machine
