# SPDX-License-Identifier: Apache-2.0
"""What no tiling of a layer can beat, whatever it overlaps."""

from __future__ import annotations

from dataclasses import dataclass

from umakit.machine.hardware import Hardware


@dataclass(frozen=True, slots=True)
class Bound:
    """Lower bounds of a layer's cycles.

    Attributes:
        compute: with every cell of the array at work in every cycle.
        memory: to move the bytes that have to be moved, without any latency.
    """

    compute: int
    memory: int

    @property
    def cycles(self) -> int:
        """The larger one: compute and transfers may overlap entirely."""
        return max(self.compute, self.memory)


def lower_bound(hardware: Hardware, macs: int, compulsory_bytes: int) -> Bound:
    """Bounds as in the roofline model (S. Williams et al., CACM 52(4), 2009).

    Args:
        macs: multiply-accumulates of the layer; padding counts as work.
        compulsory_bytes: that have to cross the bus: inputs, weights and results, each once.
    """
    return Bound(-(-macs // hardware.cells), -(-compulsory_bytes // hardware.bytes_per_cycle))
