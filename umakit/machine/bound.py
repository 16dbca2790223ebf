# SPDX-License-Identifier: Apache-2.0
"""Lower bounds of a layer's cycles that hold for all tilings."""

from __future__ import annotations

from dataclasses import dataclass

from umakit.machine.hardware import Hardware


@dataclass(frozen=True, slots=True)
class Bound:
    """Lower bounds of a layer's cycles.

    Attributes:
        compute: cycles if every cell of the array did an operation in every cycle.
        memory: cycles to move the compulsory bytes, without any latency.
    """

    compute: int
    memory: int

    @property
    def cycles(self) -> int:
        """The larger bound, since compute and transfers may overlap entirely."""
        return max(self.compute, self.memory)


def lower_bound(hardware: Hardware, macs: int, compulsory_bytes: int) -> Bound:
    """Compute the bounds of the roofline model (S. Williams et al., CACM 52(4), 2009).

    Args:
        hardware: parameters of the accelerator.
        macs: multiply-accumulates of the layer, including those on padding.
        compulsory_bytes: bytes that have to cross the bus: inputs, weights and results, each once.
    """
    return Bound(-(-macs // hardware.cells), -(-compulsory_bytes // hardware.bytes_per_cycle))
