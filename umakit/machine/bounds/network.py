# SPDX-License-Identifier: Apache-2.0
"""Lower bounds of the cycles of all layers of a network that one accelerator runs.

The bound of a network holds for every schedule of its offloaded layers: fused, in any order, with
any tensors kept in the accelerator. Each multiply-accumulate takes its share of a cycle of all
cells. Each byte that only the outside has (inputs, weights, bias, multipliers, shifts) has to cross
the bus at least once, and so has each byte that the outside reads, and the bus takes so many in a
cycle. The two may overlap entirely, so the larger one is the bound (the roofline of S. Williams et
al., CACM 52(4), 2009, for a whole network). The bytes are the first reads and the last writes of
the red-blue pebble game (J. Hong and H. Kung, STOC 1981). All further moves of the game depend on
the size of the fast memory; `scratchpad.py` adds their bytes.

Steps on the CPU take no part: their results are inputs here, and their operands outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from umakit.machine.bounds.limits import Limits


@dataclass(frozen=True)
class Read:
    """A tensor that a step reads.

    Attributes:
        size: bytes of the whole tensor.
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
        name: name for users.
        where: the CPU or the accelerator that runs the step.
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


@dataclass(frozen=True)
class CycleBound:
    """A lower bound of cycles.

    Attributes:
        compute: cycles of the multiply-accumulates; None if the multiply-accumulates per cycle are
            unknown.
        memory: cycles of the bytes; None if the bytes, or the bytes per cycle, are unknown.
        bytes: bytes that cross the bus at least; None if unknown.
        unknown: a clause for each part that is None, with the reason.
    """

    compute: int | None
    memory: int | None
    bytes: int | None
    unknown: tuple[str, ...] = ()

    @property
    def cycles(self) -> int | None:
        """The larger known part; None if both are unknown."""
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
        limits: speeds and sizes of the accelerator.
        spilled: bytes on the bus beyond the compulsory bytes, from `spilled_bytes`.
    """
    macs = sum(step.macs for step in steps if step.where == where)
    return bound_of(macs, compulsory_bytes(steps, outputs, where), limits, spilled)


def bound_of(macs: int, moved: Mapping[str, int], limits: Limits, others: int = 0) -> CycleBound:
    """Return the bound of multiply-accumulates and of bytes that have to cross the bus.

    Args:
        moved: bytes by role, from `compulsory_bytes`.
        limits: speeds and sizes of the accelerator.
        others: further bytes, copied by an unknown engine.
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
