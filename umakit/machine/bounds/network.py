# SPDX-License-Identifier: Apache-2.0
"""Lower bounds of the cycles of all layers of a network that one accelerator runs.

The bound of a network holds for every schedule of its offloaded layers: fused, in any order, with
any tensors kept in the accelerator. Each multiply-accumulate takes its share of a cycle of all
cells. Each byte that only the outside has (inputs, weights, bias, multipliers, shifts) has to cross
the bus at least once, and so has each byte that the outside reads, and the bus takes so many in a
cycle. The two may overlap entirely, so the larger one is the bound (the roofline of S. Williams et
al., CACM 52(4), 2009, for a whole network). The bytes are the first reads and the last writes of
the red-blue pebble game (J. Hong and H. Kung, STOC 1981). All further moves of the game depend on
the size of the fast memory; `spilled_bytes` counts their bytes.

Steps on the CPU take no part: their results are inputs here, and their operands outputs.

**Bytes that cannot stay in an accelerator between layers** (`spilled_bytes`). This bound holds for
schedules that compute layer after layer in the program's order: all jobs of a layer come after all
jobs of the previous layer. Schedules that fuse layers may beat this bound; no schedule beats
`network_bound` without these bytes.

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
from dataclasses import dataclass, field

from umakit.machine.bounds import CycleBound, Limits, bound_of


@dataclass(frozen=True)
class Read:
    """A tensor that a step reads.

    Attributes:
        bytes: bytes that the step needs at least; 0 if unknown.
        role: one of `umakit.machine.costs.TENSORS`; empty if unknown.
    """

    tensor: str
    size: int
    bytes: int
    role: str = "data"


@dataclass(frozen=True)
class Step:
    """A step of a program.

    Attributes:
        macs: multiply-accumulates, including padding.
        reads: operands that earlier steps computed, and inputs of the network.
        writes: bytes of each result, by name.
        weights, parameters: the fewest bytes of weights, and of bias, multipliers and shifts, that
            the step has to read.
        constants: bytes of each constant with these weights and parameters, by name; several steps
            may share a constant.
    """

    name: str
    where: str
    macs: int
    reads: tuple[Read, ...] = ()
    writes: Mapping[str, int] = field(default_factory=dict)
    weights: int = 0
    parameters: int = 0
    constants: Mapping[str, int] = field(default_factory=dict)


def network_bound(
    steps: Sequence[Step], outputs: frozenset[str], where: str, limits: Limits, spilled: int = 0
) -> CycleBound:
    """Return the bound of the layers that one accelerator runs, with `spilled_bytes` on its bus."""
    macs = sum(step.macs for step in steps if step.where == where)
    return bound_of(macs, compulsory_bytes(steps, outputs, where), limits, spilled)


def compulsory_bytes(steps: Sequence[Step], outputs: frozenset[str], where: str) -> dict[str, int]:
    """Return the bytes that every schedule moves to and from an accelerator, by role.

    Roles are the names of `umakit.machine.costs.TENSORS`, and the empty role for tensors read in
    several roles and for constants that several layers share.

    An input counts with the bytes of the layer that needs the most of the input, since all layers
    together need at least these bytes. A constant counts once: a layer that needs n bytes, s of
    them at most in constants that an earlier layer read, adds n - s.
    """
    moved: dict[str, int] = {}
    made = {name for step in steps if step.where == where for name in step.writes}
    inputs: dict[str, tuple[int, set[str]]] = {}
    seen: set[str] = set()
    for step in steps:
        if step.where != where:
            continue
        for read in step.reads:
            if read.tensor not in made:
                most, roles = inputs.get(read.tensor, (0, set()))
                inputs[read.tensor] = max(most, read.bytes), roles | {read.role}
        shared = sum(size for name, size in step.constants.items() if name in seen)
        seen.update(step.constants)
        if shared:
            _add(moved, "", max(0, step.weights + step.parameters - shared))
        else:
            _add(moved, "weights", step.weights)
            _add(moved, "parameters", step.parameters)
    for most, roles in inputs.values():
        _add(moved, roles.pop() if len(roles) == 1 else "", most)
    for size in leaving(steps, outputs, where).values():
        _add(moved, "result", size)
    return moved


def leaving(steps: Sequence[Step], outputs: frozenset[str], where: str) -> dict[str, int]:
    """Return the bytes of each tensor that an accelerator computes for the outside: outputs of the
    network, and operands of steps elsewhere."""
    read = {each.tensor for step in steps if step.where != where for each in step.reads} | outputs
    return {
        name: size
        for step in steps
        if step.where == where
        for name, size in step.writes.items()
        if name in read
    }


def _add(moved: dict[str, int], role: str, count: int) -> None:
    if count:
        moved[role] = moved.get(role, 0) + count


@dataclass(frozen=True)
class LiveTensor:
    """A tensor whose bytes can be in an accelerator from one layer to another.

    Attributes:
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
