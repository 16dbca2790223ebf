# SPDX-License-Identifier: Apache-2.0
"""Bytes of activations that cannot stay in an accelerator between layers.

The bound holds for schedules that compute layer after layer in the program's order: all jobs of a
layer come after all jobs of the previous layer. Schedules that fuse layers may beat this bound; no
schedule beats the bound without a scratchpad in `network.py`.

The argument is the red-blue pebble game (J. Hong and H. Kung, STOC 1981) with a red pebble for each
byte of the scratchpad. It counts the pebbles at a boundary, the moment between the last job of a
layer and the first job of the next layer:

1. A byte is live at a boundary if a later layer needs the byte and the accelerator held it before:
   computed, or loaded for an earlier layer. With L live bytes at a boundary and S bytes of
   scratchpad, at least L - S live bytes lie in main memory alone.
2. Each of these bytes has to be loaded between this boundary and the end of the layer that needs
   the byte next. This load comes on top of the loads that every schedule has, as the byte was
   loaded or computed before.
3. A byte computed by the accelerator also needs a store. Every schedule has this store if the
   outside reads the tensor; otherwise the store is additional. So a byte costs one or two copies,
   and the cheapest L - S live bytes are a bound of the bus traffic for a boundary.
4. Two boundaries without a common live tensor have different copies, so their bounds add up. The
   set of such boundaries with the largest sum gives the result. As a tensor is live over an
   interval of boundaries, one pass over the boundaries finds the largest sum.

The bound ignores the time within a layer, where operands, result and weights need room at once, and
tiles: both only add bytes. Accumulator memories hold no tensors of the network and do not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from umakit.machine.bounds.network import Step, leaving


@dataclass(frozen=True)
class LiveTensor:
    """A tensor whose bytes can be in an accelerator from one layer to another.

    Attributes:
        size: bytes of the whole tensor.
        first: number of the accelerator's layer that computes the tensor, or loads the tensor
            first.
        is_computed: whether the accelerator computes the tensor; else the tensor comes from
            outside.
        uses: by number of a reading layer, the bytes that the layer needs.
        copies: bus bytes for each byte that leaves and comes back: 1 if main memory has the byte
            anyway, else 2.
    """

    size: int
    first: int
    is_computed: bool
    uses: Mapping[int, int]
    copies: int

    def bytes_at(self, boundary: int) -> int:
        """Return the least number of bytes that are live between a layer and the next.

        A live byte of an outside tensor was loaded before and is needed again. Two layers that need
        m and n bytes of a tensor share at least m + n - size of these bytes.
        """
        later = max((count for layer, count in self.uses.items() if layer > boundary), default=0)
        if boundary < self.first:
            return 0
        if self.is_computed:
            return min(later, self.size)
        before = max(count for layer, count in self.uses.items() if layer <= boundary)
        return max(0, before + later - self.size)


def spilled_bytes(
    steps: Sequence[Step], outputs: frozenset[str], where: str, scratchpad: int
) -> int:
    """Return the fewest bus bytes for activations that do not fit into a scratchpad.

    These bytes come on top of `compulsory_bytes`.

    Args:
        steps: all steps of the program, in order.
        outputs: names of the tensors that are outputs of the network.
        where: the accelerator.
        scratchpad: bytes of the accelerator's memories for activations.
    """
    own = [step for step in steps if step.where == where]
    tensors = _live_tensors(own, leaving(steps, outputs, where))
    best = [0]  # the largest sum over the boundaries before each boundary
    for boundary in range(len(own) - 1):
        live = [(each, each.bytes_at(boundary)) for each in tensors]
        live = [(each, count) for each, count in live if count]
        missing = sum(count for _, count in live) - scratchpad
        cost = 0
        for copies in (1, 2):
            away = min(max(0, missing), sum(n for each, n in live if each.copies == copies))
            cost, missing = cost + copies * away, missing - away
        apart = min((each.first for each, _ in live), default=boundary)
        best.append(max(best[boundary], cost + best[apart]))
    return best[-1]


def _live_tensors(own: Sequence[Step], stored: Mapping[str, int]) -> list[LiveTensor]:
    made = {name: number for number, step in enumerate(own) for name in step.writes}
    sizes = {read.tensor: read.size for step in own for read in step.reads}
    uses: dict[str, dict[int, int]] = {}
    for number, step in enumerate(own):
        for read in step.reads:
            of_tensor = uses.setdefault(read.tensor, {})
            of_tensor[number] = max(of_tensor.get(number, 0), read.bytes)
    return [
        LiveTensor(
            size=sizes[name],
            first=made.get(name, min(layers)),
            is_computed=name in made,
            uses=layers,
            copies=2 if name in made and name not in stored else 1,
        )
        for name, layers in uses.items()
    ]
