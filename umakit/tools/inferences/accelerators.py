# SPDX-License-Identifier: Apache-2.0
"""Bounds of several inferences on an accelerator, and weights that could stay in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from umakit.backend.base import UMABackend
from umakit.machine import Tiles
from umakit.machine.bounds import limits_of
from umakit.machine.bounds.inferences import (
    InferencesBound,
    inferences_bound,
    layers_that_fit,
    memory_bytes,
    units_of,
)
from umakit.machine.bounds.network import Step
from umakit.machine.clock import run
from umakit.machine.commands import command_details, commands_of, moved_bytes
from umakit.machine.planner import prediction_of
from umakit.memory.plan import MemoryPlan
from umakit.program.descriptions import tiles_of
from umakit.program.program import KernelCall, Program, Role
from umakit.tools.columns import known_sum, view
from umakit.tools.program_steps import known_bytes, steps_of

CONSTANTS = ("weights", "parameters")
"""Tensors of a tiled layer that are constants of the network."""


@dataclass(frozen=True)
class Scratchpad:
    """A memory of an accelerator, as a memory plan uses it.

    Attributes:
        size: size in bytes; None if not described.
        used: bytes that the plan uses at any time.
        alignment: alignment of tensors in bytes.
        targets: accelerators with access; None for all.
    """

    name: str
    size: int | None
    used: int
    alignment: int
    targets: frozenset[str] | None

    @classmethod
    def of_plan(cls, plan: MemoryPlan) -> tuple[Scratchpad, ...]:
        return tuple(
            cls(each.pool.name, each.pool.size, each.size, each.pool.alignment,
                each.pool.reachable_by)
            for each in plan.pools if each.pool.by_offset
        )  # fmt: skip

    @classmethod
    def of_library(cls, memory: Mapping[str, Any]) -> tuple[Scratchpad, ...]:
        """Return the scratchpads of a library, from `memory` of its metadata."""
        return tuple(
            cls(
                each["name"], each["size_bytes"], each["used_bytes"], each["alignment_bytes"],
                None if each["reachable_by"] is None else frozenset(each["reachable_by"]),
            )
            for each in memory["scratchpads"]
        )  # fmt: skip


@dataclass(frozen=True)
class KeptWeights:
    """Weights, bias, multipliers and shifts that could stay in a scratchpad between inferences.

    They are constants of the library, in the layout of the accelerator. Constants that could stay
    lie where the present plan has no tensor at any time; all other tensors keep their places.

    Attributes:
        stored_bytes: bytes of all constants that the accelerator's layers read.
        room_bytes: bytes of the scratchpad that the plan leaves free; None if unknown.
        alignment_bytes: alignment of each place, such as the size of a bank; None if unknown.
        layers: names of the layers whose constants could stay. Of all sets that fit into the room,
            with all constants of a layer or none, this set saves the most loads. None if unknown.
        could_stay_bytes: bytes of their constants; None if unknown.
        taken_bytes: bytes of the room for these constants with their alignment; None if unknown.
        loaded_bytes: bytes of constants that an inference loads, in the present tilings; None if a
            layer is not cut into tiles.
        saved_bytes: share of `loaded_bytes` that a later inference would not load; None if unknown.
        steady_cycles: predicted cycles of a later inference with these constants kept, that is,
            with the commands of the present tilings without these loads; None if unknown.
        unknown: reasons for figures that are None, a clause each.
    """

    stored_bytes: int
    room_bytes: int | None
    alignment_bytes: int | None
    layers: tuple[str, ...] | None
    could_stay_bytes: int | None
    taken_bytes: int | None
    loaded_bytes: int | None
    saved_bytes: int | None
    steady_cycles: int | None
    unknown: tuple[str, ...]


@dataclass(frozen=True)
class AcceleratorInferences:
    """Bounds of the layers that an accelerator runs, for several inferences.

    Attributes:
        nothing_stays: bounds if each inference finds the accelerator empty.
        weights_stay: bounds if its memories keep their content between inferences.
    """

    accelerator: str
    nothing_stays: InferencesBound
    weights_stay: InferencesBound
    weights: KeptWeights

    def as_json(self) -> dict[str, Any]:
        bounds = {"nothing_stays": self.nothing_stays, "weights_stay": self.weights_stay}
        return {
            "accelerator": self.accelerator,
            "bounds": {
                name: {
                    part: view(getattr(bound, part), "cycles bytes unknown")
                    for part in ("first", "steady", "all")
                }
                for name, bound in bounds.items()
            },
            "weights": {
                **vars(self.weights),
                "layers": None if self.weights.layers is None else list(self.weights.layers),
                "unknown": list(self.weights.unknown),
            },
        }


def accelerator_inferences(
    program: Program,
    scratchpads: Sequence[Scratchpad],
    backends: Sequence[UMABackend],
    count: int,
) -> tuple[AcceleratorInferences, ...]:
    """Return the bounds of each accelerator that runs layers of a program.

    Args:
        scratchpads: scratchpads of the build, with their use by the memory plan.
        count: number of inferences, at least 1.
    """
    steps, outputs = steps_of(program), frozenset(program.outputs)
    found = []
    for backend in backends:
        name, planner = backend.target_name, backend.tiling
        calls = [call for call in program.calls if call.target == name]
        if not calls or backend.configuration.is_library:
            continue
        machine = None if planner is None else planner.described
        limits = limits_of(backend.configuration, machine)
        kept = memory_bytes(limits, machine)
        found.append(
            AcceleratorInferences(
                name,
                _known(inferences_bound(steps, outputs, name, limits, count, 0), steps, name),
                _known(inferences_bound(steps, outputs, name, limits, count, kept), steps, name),
                _kept_weights(program, scratchpads, backend, calls),
            )
        )
    return tuple(found)


def _known(bound: InferencesBound, steps: Sequence[Step], where: str) -> InferencesBound:
    """Return bounds without bytes if the needed bytes of a layer are unknown."""
    parts = (bound.first, bound.steady, bound.all)
    return InferencesBound(*(known_bytes(part, steps, where) for part in parts))


def predicted_bytes(program: Program, backends: Sequence[UMABackend]) -> list[int | None]:
    """Return the bytes that the cost model of each step's backend predicts.

    Returns:
        Bytes in the order of the steps; None on the CPU, and for layers that are not cut into
        tiles.
    """
    planners = {backend.target_name: backend for backend in backends}
    found: list[int | None] = []
    for call in program.calls:
        backend = planners.get(call.target)
        tiles = None if backend is None else _tiles(program, call, backend)
        found.append(None if tiles is None else moved_bytes(tiles))
    return found


def _tiles(program: Program, call: KernelCall, backend: UMABackend) -> Tiles | None:
    composite = program.kernels[call.kernel].composite if call.kernel else None
    return tiles_of(program, composite, backend)


def _kept_weights(
    program: Program,
    scratchpads: Sequence[Scratchpad],
    backend: UMABackend,
    calls: Sequence[KernelCall],
) -> KeptWeights:
    constants = [_constants(program, call) for call in calls]
    stored = sum({name: size for each in constants for name, size in each.items()}.values())
    loads = [
        _loaded(program, call, backend) if own else 0
        for call, own in zip(calls, constants, strict=True)
    ]
    loaded = known_sum(loads)
    unknown = [] if loaded is not None else ["loaded bytes: not all layers are cut into tiles"]
    pool, why = _scratchpad_of_constants(scratchpads, backend)
    if pool is None or pool.size is None:
        unknown.append(f"room: {why or 'the size of the scratchpad is not described'}")
        return KeptWeights(stored, None, None, None, None, None, loaded, None, None, tuple(unknown))
    room = pool.size - pool.used
    places = {
        number: _places(list(own.values()), is_tiled=loads[number] is not None)
        for number, own in enumerate(constants)
        if own
    }
    worth = {
        number: sum(sizes) if (count := loads[number]) is None else count
        for number, sizes in places.items()
    }
    kept = layers_that_fit(places, worth, room, pool.alignment)
    taken = units_of({number: places[number] for number in kept}, pool.alignment)
    staying = {name: size for number in kept for name, size in constants[number].items()}
    saved = None if loaded is None else sum(loads[number] or 0 for number in kept)
    cycles = known_sum(
        _cycles(program, call, backend, keeps=number in kept) for number, call in enumerate(calls)
    )
    if cycles is None and loaded is not None:
        unknown.append("steady cycles: the planner predicts cycles in a way of its own")
    return KeptWeights(
        stored, room, pool.alignment, tuple(calls[number].label for number in sorted(kept)),
        sum(staying.values()), pool.alignment * sum(taken.values()), loaded, saved, cycles,
        tuple(unknown),
    )  # fmt: skip


def _constants(program: Program, call: KernelCall) -> dict[str, int]:
    operands = (tensor for tensor, _ in program.operands_of(call))
    return {each.name: each.size for each in operands if each.role is Role.CONSTANT}


def _places(sizes: Sequence[int], *, is_tiled: bool) -> tuple[int, ...]:
    """Return the bytes of each place that a layer's constants need.

    Tiled layers have one place for weights, their first constant, and one for bias, multipliers and
    shifts together. Other layers have one place for each constant.
    """
    return (sizes[0], sum(sizes[1:])) if is_tiled else tuple(sizes)


def _loaded(program: Program, call: KernelCall, backend: UMABackend) -> int | None:
    tiles, planner = _tiles(program, call, backend), backend.tiling
    if tiles is None or planner is None:
        return None
    details = command_details(tiles, planner.machine, planner.driver)
    return sum(each.moved_bytes for each in details if each.tensor in CONSTANTS)


def _cycles(program: Program, call: KernelCall, backend: UMABackend, *, keeps: bool) -> int | None:
    """Return the predicted cycles of a layer; None if its prediction is not by commands.

    Args:
        keeps: whether the constants are in their places when the layer begins.
    """
    tiles, planner = _tiles(program, call, backend), backend.tiling
    if tiles is None or planner is None:
        return None
    prediction = prediction_of(planner, tiles)
    ran, finish = prediction.run, planner.driver.finish
    if not keeps:
        return prediction.cycles
    if ran is None or prediction.cycles != ran.cycles + finish:
        return None
    commands = commands_of(tiles, planner.machine, planner.driver, with_constants=False)
    return run(commands, planner.machine.machine).cycles + finish


def _scratchpad_of_constants(
    scratchpads: Sequence[Scratchpad], backend: UMABackend
) -> tuple[Scratchpad | None, str]:
    """Return the scratchpad for constants; None with the reason if unknown."""
    own = [
        each for each in scratchpads if each.targets is None or backend.target_name in each.targets
    ]
    machine = None if backend.tiling is None else backend.tiling.described
    if machine is not None and len({machine.memory_of(name) for name in CONSTANTS}) > 1:
        return None, "weights and parameters lie in different memories"
    if len(own) > 1 and machine is not None:
        own = [each for each in own if each.name == machine.memory_of(CONSTANTS[0])]
    if len(own) != 1:
        return None, "several memories, none of weights" if own else "no scratchpad is used"
    return own[0], ""
