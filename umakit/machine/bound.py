# SPDX-License-Identifier: Apache-2.0
"""Lower bounds of a layer's cycles that hold for all tilings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from umakit.machine.layer import Layer
from umakit.machine.tile_machine import TileMachine


@dataclass(frozen=True, slots=True)
class Bound:
    """Lower bounds of a layer's cycles.

    Attributes:
        compute: cycles at the largest number of multiply-accumulates in a cycle.
        memory: cycles to move the compulsory bytes, without any latency.
    """

    compute: int
    memory: int

    @property
    def cycles(self) -> int:
        """The larger bound, since compute and transfers may overlap entirely."""
        return max(self.compute, self.memory)


def lower_bound(hardware: TileMachine, macs: int, compulsory_bytes: int) -> Bound:
    """Compute the bounds of the roofline model (S. Williams et al., CACM 52(4), 2009).

    Args:
        hardware: parameters of the accelerator.
        macs: multiply-accumulates of the layer, including those on padding.
        compulsory_bytes: bytes that have to cross the bus: inputs, weights and results, each once.
    """
    compute, memory = hardware.macs_per_cycle, hardware.bytes_per_cycle
    return Bound(-(-macs // compute), -(-compulsory_bytes // memory))


def layer_bound(hardware: TileMachine, layer: Layer) -> Bound:
    """Return the bounds of a layer. The memory bound includes the bound of each engine that copies.

    An engine is busy for at least ceil(bytes of the engine's tensors / bytes per cycle of the
    engine).
    """
    return Bound(
        lower_bound(hardware, layer.macs, 0).compute, _memory_bound(hardware, layer.compulsory)
    )


def fill_cycles(hardware: TileMachine, layer: Layer) -> int:
    """Return the bus cycles of the padding of blocks of weights, above the memory bound."""
    stored = _memory_bound(hardware, layer.stored)
    return stored - _memory_bound(hardware, layer.compulsory)


def _memory_bound(hardware: TileMachine, moved: Mapping[str, int]) -> int:
    memory = lower_bound(hardware, 0, sum(moved.values())).memory
    for name, width in hardware.engine_bytes_per_cycle.items():
        copied = [
            count
            for tensor, count in moved.items()
            if count and hardware.engine_of(tensor).name == name
        ]
        memory = max(memory, -(-sum(copied) // width))
    return memory
