# SPDX-License-Identifier: Apache-2.0
"""Lower bounds of the cycles of all layers of a network that one accelerator runs.

The bound of a network holds for every schedule of its offloaded layers: fused, in any order, with
any tensors kept in the accelerator. Each multiply-accumulate takes its share of a cycle of all
cells. Each byte that only the outside has (inputs, weights, bias, multipliers, shifts) has to cross
the bus at least once, and so has each byte that the outside reads, and the bus takes so many in a
cycle. The two may overlap entirely, so the larger one is the bound (the roofline of S. Williams et
al., CACM 52(4), 2009, for a whole network). The bytes are what the first reads and the last
writes of the red-blue pebble game move (J. Hong and H. Kung, STOC 1981): all else that a game moves
depends on the size of the fast memory, which is what `scratchpad.py` adds.

What an accelerator does not run takes no part: a tensor that a step on the CPU computes is an input
here, and one that it reads an output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from umakit.machine.bounds.limits import Limits


@dataclass(frozen=True)
class Read:
    """A tensor that a step reads.

    Attributes:
        tensor: its name.
        size: all its bytes.
        bytes: number of them that the step cannot do without; 0 if nothing is known.
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
        name: its name for users.
        where: what runs it.
        macs: its multiply-accumulates, those on padding included.
        reads: tensors that earlier steps computed, and inputs of the network.
        writes: bytes of each tensor that it computes, by name.
        weights, parameters: the fewest bytes of its weights, and of bias, multipliers and shifts,
            that it has to read.
        constants: bytes of each constant that these lie in, by name: several steps may share one.
    """

    name: str
    where: str
    macs: int
    reads: tuple[Read, ...] = ()
    writes: Mapping[str, int] = field(default_factory=dict)
    weights: int = 0
    parameters: int = 0
    constants: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class CycleBound:
    """A lower bound of cycles.

    Attributes:
        compute: cycles of the multiply-accumulates; None if their number in a cycle is unknown.
        memory: cycles of the bytes; None if their number in a cycle, or which bytes, is unknown.
        bytes: bytes that cross the bus at least; None if unknown.
        unknown: why parts of it are None, a clause each.
    """

    compute: int | None
    memory: int | None
    bytes: int | None
    unknown: tuple[str, ...] = ()

    @property
    def cycles(self) -> int | None:
        """The larger part that is known; None if none is."""
        known = [part for part in (self.compute, self.memory) if part is not None]
        return max(known, default=None)


def network_bound(
    steps: Sequence[Step], outputs: frozenset[str], where: str, limits: Limits, spilled: int = 0
) -> CycleBound:
    """Return the bound of the layers that one accelerator runs.

    Args:
        steps: all steps of the program, in order.
        outputs: names of the tensors that are outputs of the network.
        where: the accelerator.
        limits: what its description says.
        spilled: bytes that cross the bus beyond those that every schedule moves, from
            `spilled_bytes`.
    """
    macs = sum(step.macs for step in steps if step.where == where)
    return bound_of(macs, compulsory_bytes(steps, outputs, where), limits, spilled)


def bound_of(macs: int, moved: Mapping[str, int], limits: Limits, others: int = 0) -> CycleBound:
    """Return the bound of work and of bytes that have to cross the bus.

    Args:
        macs: multiply-accumulates.
        moved: bytes by role, as of `compulsory_bytes`.
        limits: what the accelerator's description says.
        others: further bytes, of which it is not known which engine copies them.
    """
    total = sum(moved.values()) + others
    peak, width = limits.macs_per_cycle, limits.bytes_per_cycle
    unknown = tuple(
        f"{name}: {limits.unknown.get(name, 'not described')}"
        for name in ("macs_per_cycle", "bytes_per_cycle")
        if getattr(limits, name) is None
    )
    memory = None
    if width is not None:
        memory = -(-total // width)
        for engine in limits.engines:
            alone = sum(count for role, count in moved.items() if role in engine.copies)
            memory = max(memory, -(-alone // engine.bytes_per_cycle))
    return CycleBound(None if peak is None else -(-macs // peak), memory, total, unknown)


def compulsory_bytes(steps: Sequence[Step], outputs: frozenset[str], where: str) -> dict[str, int]:
    """Return the bytes that every schedule moves to and from an accelerator, by role.

    Roles are those of `umakit.machine.costs.TENSORS`, and the empty one of tensors that are read in
    several roles, or of constants that several layers share.

    An input counts with the bytes that the layer needs that needs most of it, as all of them
    together need at least those. A constant that an earlier layer has read counts once: a layer
    that needs n bytes, s of them at most in constants that were read already, adds n - s.
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
    network, and what steps elsewhere read."""
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
