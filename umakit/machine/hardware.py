# SPDX-License-Identifier: Apache-2.0
"""The parameters of an accelerator that determine the cycles of a tile."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from umakit.errors import AcceleratorConfigError
from umakit.machine.accelerator_config import AcceleratorConfig
from umakit.machine.description import Engine, Machine, Memory, Queue, Stream
from umakit.machine.systolic import Dataflow


@dataclass(frozen=True)
class Hardware:
    """A systolic array with a banked scratchpad, a DMA engine and a command queue.

    Optional features are off by default; the defaults are those of `accel.toml`.

    Attributes:
        rows, columns: dimensions of the array in cells.
        scratchpad_bytes: total size of all banks.
        scratchpad_banks: number of banks of equal size; each serves either the array or the DMA
            engine at a time.
        dataflows: dataflows that a job may select.
        drain_cycles: cycles to move the results of a fold out of the array.
        preload: whether operands of the next fold and of the next job enter during computation.
        preload_rows: rows of the stationary operand that enter per cycle with preload.
        pack_columns: whether few output channels are computed for several groups of positions at
            a time.
        depthwise: whether each column can have its own input.
        pooling_lanes: channels that the pooling stage takes per cycle; 0 for no pooling stage.
        accumulator_bytes: size of the accumulator memory, in which several jobs add up partial
            sums; 0 for none.
        bytes_per_cycle: bandwidth of the DMA engine.
        latency_cycles: cycles before the first byte of a burst.
        burst_bytes: maximum size of a burst; with 0 each row is one burst.
        outstanding: whether requests are issued ahead, so that a transfer pays the latency once
            and the next one may start meanwhile.
        alignment: required alignment of addresses and strides, in bytes.
        command_queue: number of queue entries; without a queue (0) the driver starts a command
            after the previous one has ended.
        completion: how the driver detects that a command has ended.
    """

    rows: int
    columns: int
    scratchpad_bytes: int
    scratchpad_banks: int = 1
    dataflows: tuple[Dataflow, ...] = (Dataflow.OUTPUT_STATIONARY,)
    drain_cycles: int = 0
    preload: bool = False
    preload_rows: int = 1
    pack_columns: bool = False
    depthwise: bool = False
    pooling_lanes: int = 0
    accumulator_bytes: int = 0
    bytes_per_cycle: int = 4
    latency_cycles: int = 0
    burst_bytes: int = 0
    outstanding: bool = False
    alignment: int = 1
    command_queue: int = 0
    completion: Literal["interrupt", "polling"] = "interrupt"

    @property
    def cells(self) -> int:
        """The number of multiply-accumulate units, each of which does one operation per cycle."""
        return self.rows * self.columns

    @property
    def bank_bytes(self) -> int:
        """The size of one bank of the scratchpad in bytes."""
        return self.scratchpad_bytes // self.scratchpad_banks

    @cached_property
    def machine(self) -> Machine:
        """The array and the DMA engine as a machine, with the streams array, load and store."""
        transfers = (Stream("load", "load"), Stream("store", "store"))
        return Machine(
            (Memory("scratchpad", self.scratchpad_bytes, self.scratchpad_banks),),
            (
                Engine("array", (Stream("array", "compute"),), "commands", 1 + self.preload),
                Engine("dma", transfers, "commands", 1 + self.outstanding),
            ),
            (Queue("commands", self.command_queue, self.completion),),
        )

    @classmethod
    def of(cls, config: AcceleratorConfig) -> Hardware:
        """Take the parameters from an `accel.toml`.

        Raises:
            AcceleratorConfigError: the file declares no array, or not exactly one scratchpad.
        """
        array, dma, device = config.array, config.dma, config.device
        if not config.has_array:
            raise AcceleratorConfigError(
                "tiles need an [array]",
                where=config.accelerator.name,
                fix="add its rows and columns, or cut the layers without umakit's planner",
            )
        if len(config.scratchpads) != 1:
            raise AcceleratorConfigError(
                f"tiles need one scratchpad, not {len(config.scratchpads)}",
                where=config.accelerator.name,
                fix='add a [[memory]] with address = "offset"',
            )
        (scratchpad,) = config.scratchpads
        assert scratchpad.size is not None  # a scratchpad has one, the configuration checks that
        return cls(
            rows=array.rows,
            columns=array.columns,
            scratchpad_bytes=scratchpad.size,
            scratchpad_banks=scratchpad.banks,
            dataflows=tuple(map(Dataflow, array.allowed_dataflows)),
            drain_cycles=array.drain_cycles,
            preload=array.preload,
            preload_rows=array.preload_rows,
            pack_columns=array.pack_columns,
            depthwise=array.depthwise,
            pooling_lanes=array.pooling_lanes,
            accumulator_bytes=array.accumulator_bytes,
            bytes_per_cycle=dma.bytes_per_cycle,
            latency_cycles=dma.latency_cycles,
            burst_bytes=dma.burst_bytes,
            outstanding=dma.outstanding,
            alignment=dma.alignment,
            command_queue=device.command_queue,
            completion=device.completion,
        )
