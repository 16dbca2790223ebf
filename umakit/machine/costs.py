# SPDX-License-Identifier: Apache-2.0
"""Cycles of individual commands, equal to those of the simulated `systolic_array`.

A command occupies its engine for `busy` cycles and is complete `tail` cycles later. With
pipelined engines the next command starts in the tail of the one before.
"""

from __future__ import annotations

from dataclasses import dataclass

from umakit.errors import InputError
from umakit.machine.hardware import Hardware
from umakit.machine.systolic import Dataflow, Product, SystolicArray, systolic_cycles


@dataclass(frozen=True, slots=True)
class Cost:
    """Cycles of a command.

    Attributes:
        busy: cycles in which its engine can take no other command.
        tail: cycles after these until its effect is complete.
        macs: multiply-accumulates of a job of the array.
    """

    busy: int
    tail: int
    macs: int = 0

    @property
    def cycles(self) -> int:
        """The cycles from the start of the command to its completion."""
        return self.busy + self.tail


def array_cost(
    hardware: Hardware, dataflow: Dataflow, product: Product, *, depthwise: bool = False
) -> Cost:
    """Return the cost of a convolution, a dense layer, or a tile of one.

    Args:
        product: m = positions of the result, n = output channels and k = kernel rows * kernel
            columns * input channels, or kernel rows * kernel columns of a depthwise convolution.
        depthwise: whether each channel has its own input.

    Raises:
        InputError: the hardware does not support the dataflow or depthwise convolutions.
    """
    if dataflow not in hardware.dataflows:
        names = ", ".join(each.value for each in hardware.dataflows)
        raise InputError(f"the array cannot be {dataflow.value}", fix=f"choose {names}")
    if depthwise and not hardware.depthwise:
        raise InputError("the array has no depthwise mode", fix="set depthwise = true in [array]")
    if depthwise and dataflow is Dataflow.INPUT_STATIONARY:
        raise InputError(
            "depthwise convolutions cannot be input_stationary: each input meets one weight only",
            fix="choose another dataflow",
        )
    found = systolic_cycles(
        product,
        SystolicArray(
            hardware.rows,
            hardware.columns,
            dataflow,
            hardware.drain_cycles,
            hardware.preload,
            hardware.pack_columns,
            hardware.preload_rows,
        ),
    )
    return Cost(found.cycles - found.tail_cycles, found.tail_cycles, found.macs)


def pool_cost(hardware: Hardware, positions: int, window: int, channels: int) -> Cost:
    """Return the cost of a pooling layer, or a tile of one.

    Args:
        positions: rows * columns of the result.
        window: kernel rows * kernel columns.

    Raises:
        InputError: the hardware has no pooling stage.
    """
    if not hardware.pooling_lanes:
        raise InputError("there is no pooling stage", fix="set pooling_lanes in [array]")
    return Cost(positions * window * -(-channels // hardware.pooling_lanes), 0)


def transfer_cost(hardware: Hardware, planes: int, rows: int, row_bytes: int) -> Cost:
    """Return the cost of a transfer between the bus and the scratchpad.

    Args:
        planes: number of planes of `rows` rows, each of `row_bytes` contiguous bytes.
    """
    row_cycles = -(-row_bytes // hardware.bytes_per_cycle)
    if hardware.outstanding:
        return Cost(planes * rows * row_cycles, hardware.latency_cycles)
    bursts = -(-row_bytes // (hardware.burst_bytes or row_bytes))
    return Cost(planes * rows * (bursts * hardware.latency_cycles + row_cycles), 0)
