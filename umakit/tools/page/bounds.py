# SPDX-License-Identifier: Apache-2.0
"""The bounds of a network and of its layers, from a compiled program and its backends."""

from __future__ import annotations

from collections.abc import Sequence

from umakit.backend.base import UMABackend
from umakit.machine import Prediction, TilePlanner, Tiles
from umakit.machine.bounds import CycleBound, Limits, fill_cycles, limits_of
from umakit.machine.bounds.losses import losses_of
from umakit.machine.bounds.network import Step, network_bound, spilled_bytes
from umakit.machine.commands import moved_bytes
from umakit.machine.hardware import array_bound, array_of, works_of
from umakit.program.program import Program
from umakit.tools.columns import known_sum
from umakit.tools.program_steps import is_unknown, known_bytes, steps_of
from umakit.tools.record import AcceleratorBounds, LayerBounds, LayerRecord, NamedBound


def layer_bounds(
    planner: TilePlanner, tiles: Tiles, prediction: Prediction, simulated: int | None
) -> LayerBounds:
    """Return the further bounds of a tiled layer, and its losses.

    Args:
        planner: the planner that cut the layer.
        tiles: tiles of the layer.
        prediction: the planner's prediction for the tiles.
        simulated: simulated cycles; None if not measured.
    """
    machine, layer, unknown = planner.machine, tiles.layer, {}
    array = least = None
    cells = array_of(machine)
    if machine.other_costs:
        unknown["array"] = machine.other_costs
    elif cells is not None:
        array = array_bound(cells, layer)
        least = min(work.busy for work in works_of(cells, layer))
    run, finish = prediction.run, planner.driver.finish
    if run is None or prediction.cycles != run.cycles + finish:
        unknown["losses"] = "the planner predicts cycles in a way of its own"
        return LayerBounds(array, None, unknown)
    again = moved_bytes(tiles) - layer.stored_bytes
    losses = losses_of(
        run, prediction.bound, finish, least_array=least, fill=fill_cycles(machine, layer),
        bytes_again=again, width=machine.bytes_per_cycle, simulated=simulated,
    )  # fmt: skip
    if losses is None:
        unknown["losses"] = "commands take fewer cycles than its peak and widths allow"
    return LayerBounds(array, losses, unknown)


def accelerator_bounds(
    program: Program,
    total_macs: int,
    backends: Sequence[UMABackend],
    layers: Sequence[LayerRecord],
) -> tuple[AcceleratorBounds, ...]:
    """Return the bounds of each accelerator that runs layers of a program.

    Args:
        total_macs: multiply-accumulates of the whole network.
        backends: backends of the program.
        layers: layers on accelerators.
    """
    steps = steps_of(program)
    outputs = frozenset(program.outputs)
    found = []
    for backend in backends:
        name, planner = backend.target_name, backend.tiling
        own = [layer for layer in layers if layer.where == name]
        if not own or backend.configuration.is_library:
            continue
        described = None if planner is None else planner.described
        limits = limits_of(backend.configuration, described)
        cycles = known_sum([layer.clock_cycles for layer in own])
        found.append(
            AcceleratorBounds(
                name,
                len(own),
                sum(step.macs for step in steps if step.where == name),
                total_macs,
                cycles,
                tuple(_bounds(steps, outputs, name, limits, own, cycles)),
                tuple(s.name for s in steps if s.where == name and is_unknown(s)),
            )
        )
    return tuple(found)


def _bounds(
    steps: Sequence[Step],
    outputs: frozenset[str],
    where: str,
    limits: Limits,
    layers: Sequence[LayerRecord],
    cycles: int | None,
) -> list[NamedBound]:
    whole = known_bytes(network_bound(steps, outputs, where, limits), steps, where)
    room = limits.scratchpad_bytes
    if room is None:
        why = limits.unknown.get("scratchpad_bytes", "not described")
        kept = CycleBound(None, None, None, (f"scratchpad_bytes: {why}",))
    else:
        spilled = spilled_bytes(steps, outputs, where, room)
        kept = known_bytes(network_bound(steps, outputs, where, limits, spilled), steps, where)
    return [
        _named("network", "network", whole, cycles),
        _named("scratchpad", "network, layer after layer", kept, cycles),
        _summed("layers", "sum of layers", [layer.bound for layer in layers], cycles),
        _summed(
            "arrays", "sum of layers on the array", [_array(layer) for layer in layers], cycles
        ),
    ]


def _array(layer: LayerRecord) -> int | None:
    known = None if layer.tiled is None or layer.tiled.bounds is None else layer.tiled.bounds.array
    return None if known is None else known.cycles


def _named(name: str, title: str, bound: CycleBound, cycles: int | None) -> NamedBound:
    return NamedBound(
        name, title, bound.cycles, bound.compute, bound.memory, bound.bytes,
        _ratio(cycles, bound.cycles), bound.unknown,
    )  # fmt: skip


def _summed(name: str, title: str, bounds: Sequence[int | None], cycles: int | None) -> NamedBound:
    total, missing = known_sum(bounds), bounds.count(None)
    unknown = (f"{title}: {missing} of {len(bounds)} layers have none",) if missing else ()
    return NamedBound(name, title, total, None, None, None, _ratio(cycles, total), unknown)


def _ratio(cycles: int | None, bound: int | None) -> float | None:
    return cycles / bound if cycles is not None and bound else None
