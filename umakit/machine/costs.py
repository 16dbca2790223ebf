# SPDX-License-Identifier: Apache-2.0
"""The cost of a command, and the sizes behind the cost."""

from __future__ import annotations

from dataclasses import dataclass

from umakit.machine.layer import Layer
from umakit.machine.systolic import Dataflow, Product

TENSORS = ("data", "weights", "parameters", "addend", "result")
"""Tensors whose tiles lie in memories; `parameters` are bias, multipliers and shifts."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Cycles of a command.

    Attributes:
        busy: cycles in which the engine can take no other command, at least 1.
        tail: cycles after the busy cycles until the effect is complete.
        macs: multiply-accumulates of a job of the array.
        accesses: register accesses to enqueue the command; None for the accesses of `DriverCosts`.
    """

    busy: int
    tail: int
    macs: int = 0
    accesses: int | None = None

    @property
    def cycles(self) -> int:
        """The cycles from the start of the command to its completion."""
        return self.busy + self.tail


@dataclass(frozen=True, slots=True)
class TileSizes:
    """The sizes of a tile, or of the part of a tile that one job computes.

    Attributes:
        dataflow: dataflow of the job.
        rows, columns: height and width of the result.
        output_channels: channels of the result.
        input_channels: channels of the data.
        first, last: whether the job is the first or the last job of a tile whose input channels are
            cut. Only machines with `jobs_by_step` get these flags.
    """

    layer: Layer
    dataflow: Dataflow
    rows: int
    columns: int
    output_channels: int
    input_channels: int
    first: bool = True
    last: bool = True

    @property
    def positions(self) -> int:
        """The number of positions of the result."""
        return self.rows * self.columns

    @property
    def product(self) -> Product:
        """The matrix product: m positions, n output channels, and k products for each result."""
        layer = self.layer
        inputs = 1 if layer.per_channel else self.input_channels
        return Product(self.positions, self.output_channels, layer.window * inputs)


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a tile between the bus and its memory.

    Attributes:
        tensor: one of `TENSORS`; bias, multipliers and shifts are three copies of `parameters`.
        planes, rows, row_bytes: number of planes, of rows per plane and of contiguous bytes per row
            in the tensor.
    """

    tensor: str
    planes: int
    rows: int
    row_bytes: int
