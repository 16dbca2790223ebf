# SPDX-License-Identifier: Apache-2.0
"""Lower bounds of several inferences of a network on one accelerator, one after the other.

Inputs and outputs cross the bus in each inference. Weights, bias, multipliers and shifts are the
same in all inferences: constants that lie in memories of the accelerator when one inference ends
need not be loaded for the next. Between two inferences these memories hold S bytes, so of W bytes
of weights at least W - S are loaded again: N inferences move W + (N - 1) * (W - S) bytes of them,
and never less than W. A machine that keeps nothing between inferences has S = 0.

The bound holds for schedules that end an inference before they begin the next one, as the calls of
an exported library do; a schedule that computes several inferences layer by layer may beat it, if
W > S. Registers of an array and memories of sums hold no tensors, and do not count in S.

`layers_that_fit` answers another question, for an existing schedule: the layers whose constants fit
into the memory that the schedule never uses. Only the loads of these constants change then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from umakit.machine.bounds import CycleBound, Limits, bound_of
from umakit.machine.bounds.network import Step, compulsory_bytes
from umakit.machine.costs import TENSORS
from umakit.machine.tile_machine import TileMachine

MOST_UNITS = 65_536
"""Maximum number of units into which the search for a fitting choice divides the room."""


@dataclass(frozen=True)
class InferencesBound:
    """Lower bounds of inferences one after the other.

    Attributes:
        first: bound of an inference that starts with nothing in the accelerator.
        all: bound of all inferences together. The bound may be below the sum of the others: an
            inference may copy while another inference computes.
    """

    first: CycleBound
    steady: CycleBound
    all: CycleBound


def inferences_bound(
    steps: Sequence[Step],
    outputs: frozenset[str],
    where: str,
    limits: Limits,
    count: int,
    kept: int | None,
) -> InferencesBound:
    """Return the bounds of the layers that one accelerator runs, for several inferences.

    Args:
        kept: bytes of the accelerator's memories that keep weights from one inference to the next;
            0 for none, None if unknown. Bytes of later inferences are unknown then.
    """
    macs = sum(step.macs for step in steps if step.where == where)
    every = compulsory_bytes(steps, outputs, where)
    own = [step for step in steps if step.where == where]
    constants = compulsory_bytes(
        [replace(step, reads=(), writes={}) for step in own], frozenset(), where
    )
    activations = {role: size - constants.get(role, 0) for role, size in every.items()}
    first = bound_of(macs, every, limits)
    if kept is None:
        return InferencesBound(
            first, _without_bytes(macs, limits), _without_bytes(count * macs, limits)
        )
    again = max(0, sum(constants.values()) - kept)
    if kept == 0:
        steady = first
        whole = bound_of(count * macs, {k: count * size for k, size in every.items()}, limits)
        return InferencesBound(first, steady, whole)
    steady = bound_of(macs, activations, limits, again)
    moved = {role: count * size + constants.get(role, 0) for role, size in activations.items()}
    whole = bound_of(count * macs, moved, limits, (count - 1) * again)
    return InferencesBound(first, steady, whole)


def _without_bytes(macs: int, limits: Limits) -> CycleBound:
    bound = bound_of(macs, {}, limits)
    why = limits.unknown.get("scratchpad_bytes", "not described")
    return CycleBound(bound.compute, None, None, (*bound.unknown, f"bytes that stay: {why}"))


def memory_bytes(limits: Limits, machine: TileMachine | None) -> int | None:
    """Return the bytes of all memories of an accelerator that hold tensors; None if unknown."""
    if machine is None:
        return limits.scratchpad_bytes
    held = {machine.memory_of(tensor) for tensor in TENSORS}
    return sum(each.size for each in machine.machine.memories if each.name in held)


def layers_that_fit(
    places: Mapping[int, Sequence[int]], worth: Mapping[int, int], room: int, alignment: int
) -> frozenset[int]:
    """Choose layers whose constants fit into a memory and save the most loaded bytes together.

    The choice is the knapsack problem (S. Martello and P. Toth, Knapsack Problems, 1990, section
    2.6), solved by dynamic programming over the room in units of the alignment. Rooms of more than
    `MOST_UNITS` units are divided into larger units: the chosen layers fit, but may not be the best
    ones.

    Args:
        places: by layer, the bytes of each place for constants.
        worth: by layer, the bytes that need not be loaded if the constants of the layer fit.
        alignment: bytes, at least 1; each place starts at a multiple of the alignment.
    """
    unit = alignment * max(1, -(-(room // alignment) // MOST_UNITS))
    units = max(0, room) // unit
    needed = units_of(places, unit)
    if sum(needed.values()) <= units:
        return frozenset(needed)
    layers = [layer for layer, count in needed.items() if count <= units]
    best = np.zeros(units + 1, np.int64)
    is_better = np.zeros((len(layers), units + 1), bool)
    for number, layer in enumerate(layers):
        count = needed[layer]
        with_it = best[: units + 1 - count] + worth[layer]
        is_better[number, count:] = with_it > best[count:]
        best[count:] = np.maximum(best[count:], with_it)
    chosen, left = set(), units
    for number in reversed(range(len(layers))):
        if is_better[number, left]:
            chosen.add(layers[number])
            left -= needed[layers[number]]
    return frozenset(chosen)


def units_of(places: Mapping[int, Sequence[int]], unit: int) -> dict[int, int]:
    """Return by layer the number of units that its places take; each place starts at a unit."""
    return {
        layer: sum(-(-size // unit) for size in sizes) for layer, sizes in sorted(places.items())
    }
