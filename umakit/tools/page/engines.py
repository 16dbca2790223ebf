# SPDX-License-Identifier: Apache-2.0
"""Names of the engines of a machine described by a backend, for texts about its cycles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from umakit.machine import Hardware, TileMachine
from umakit.machine.costs import TENSORS


def joined(names: Sequence[str]) -> str:
    """Return names as a list in a sentence: `a, b and c`."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


@dataclass(frozen=True)
class Engines:
    """The engines of a machine.

    Attributes:
        computing: name of the engine whose idle cycles are explained.
        copying: name of the copying engine, by tensor.
        streams: stream of the copies, by tensor.
    """

    computing: str
    copying: Mapping[str, str]
    streams: Mapping[str, str]

    @classmethod
    def of(cls, described: TileMachine) -> Engines | None:
        """Return the engines of a machine; None for umakit's systolic array.

        Args:
            described: the machine as described by the backend, without measured costs.
        """
        if isinstance(described, Hardware):
            return None
        machine = described.machine
        return cls(
            machine.engine_of(machine.explained).name,
            {tensor: described.engine_of(tensor).name for tensor in TENSORS},
            {tensor: described.stream_of(tensor) for tensor in TENSORS},
        )

    @property
    def copies(self) -> str:
        """The names of the copying engines, as a list in a sentence."""
        return joined(list(dict.fromkeys(self.copying.values())))

    def awaited(self, waits: Mapping[str, int], tensors: Sequence[str]) -> tuple[str, str, int]:
        """Return the engine with the longest wait, its copied tensors as a list, and the cycles.

        Args:
            waits: cycles in which the computing engine waited, by stream.
        """
        streams = {self.streams[each] for each in tensors}
        longest = max(sorted(streams), key=lambda stream: waits.get(stream, 0))
        copied = [each for each in tensors if self.streams[each] == longest]
        return self.copying[copied[0]], joined(copied), waits.get(longest, 0)
