# SPDX-License-Identifier: Apache-2.0
"""The numbers of an accelerator that decide what a tile costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from umakit.errors import AcceleratorConfigError
from umakit.machine.accelerator_config import AcceleratorConfig
from umakit.machine.systolic import Dataflow


@dataclass(frozen=True)
class Hardware:
    """A systolic array with a banked scratchpad, a DMA engine and a command queue.

    What is left out is switched off: the defaults are those of `accel.toml`.

    Attributes:
        rows, columns: of the array.
        scratchpad_bytes: of all banks together.
        scratchpad_banks: of equal size; each serves the array or the DMA engine at a time.
        dataflows: what a job may choose from.
        drain_cycles: to move the results of a fold out of the array.
        preload: whether the next fold's, and the next job's, operands enter while one computes.
        preload_rows: of an operand that stays, how many enter in a cycle with preload.
        pack_columns: whether few channels share the columns among groups of positions.
        depthwise: whether each column can have an input of its own.
        pooling_lanes: channels that the pooling stage takes in a cycle; 0 for none.
        accumulator_bytes: of the accumulator, whose partial sums several jobs add to; 0 for none.
        bytes_per_cycle: of the DMA engine.
        latency_cycles: before the first byte of a burst.
        burst_bytes: at most, of a burst; 0 makes each row one.
        outstanding: whether requests are issued ahead, so that a transfer pays the latency once
            and the next one may start meanwhile.
        alignment: of addresses and strides, in bytes.
        command_queue: entries; 0 for none, the driver then starts one command after the other.
        completion: how the driver learns that a command has ended.
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
        """Multiply-accumulate units of the array, each of which does one operation a cycle."""
        return self.rows * self.columns

    @property
    def bank_bytes(self) -> int:
        """Bytes of one bank of the scratchpad."""
        return self.scratchpad_bytes // self.scratchpad_banks

    @classmethod
    def of(cls, config: AcceleratorConfig) -> Hardware:
        """The numbers in an `accel.toml`.

        Raises:
            AcceleratorConfigError: it has not exactly one scratchpad.
        """
        array, dma, device = config.array, config.dma, config.device
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
