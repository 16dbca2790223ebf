# SPDX-License-Identifier: Apache-2.0
"""The plans of tiled layers, and the bounds of layers and network, from a compiled program."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from umakit.backend.base import UMABackend
from umakit.machine import Prediction, TilePlanner, Tiles
from umakit.machine.bounds import CycleBound, Limits, fill_cycles, limits_of
from umakit.machine.bounds.losses import losses_of
from umakit.machine.bounds.network import Step, network_bound, spilled_bytes
from umakit.machine.commands import moved_bytes
from umakit.machine.tiles import AXES, INPUT_CHANNELS
from umakit.program.program import Program
from umakit.tools.columns import known_sum
from umakit.tools.page.engines import Engines
from umakit.tools.program_steps import is_unknown, known_bytes, steps_of
from umakit.tools.record import AcceleratorBounds, LayerRecord, NamedBound, Spent, TiledLayer


def tiled_layer(
    planner: TilePlanner, tiles: Tiles, prediction: Prediction, simulated: int | None
) -> TiledLayer:
    """Return the plan, the prediction and the bounds of a layer; None if a bound is unknown.

    Args:
        simulated: simulated cycles; None if not measured.
    """
    machine, layer, run = planner.machine, tiles.layer, prediction.run
    finish, unknown = planner.driver.finish, {}
    found = TiledLayer(
        tiling=_describe_tiling(tiles),
        dataflow="" if layer.is_pool else tiles.tiling.dataflow.value,
        tiles=_result_tiles(tiles),
        double_buffered=any(buffer.tiles > 1 for buffer in tiles.buffers.values()),
        predicted_cycles=prediction.cycles,
        compute_bound=prediction.bound.compute,
        memory_bound=prediction.bound.memory,
        spent=None,
    )
    array = machine.array_bound(layer)
    least = min((work.busy for work in machine.array_works(layer)), default=None)
    if array is None:
        unknown["array"] = machine.other_costs
    if run is None or prediction.cycles != run.cycles + finish:
        unknown["losses"] = "the planner predicts cycles in a way of its own"
        return replace(found, array=array, unknown=unknown)
    again = moved_bytes(tiles) - layer.stored_bytes
    losses = losses_of(
        run, prediction.bound, finish, least_array=least, fill=fill_cycles(machine, layer),
        bytes_again=again, width=machine.bytes_per_cycle, simulated=simulated,
    )  # fmt: skip
    if losses is None:
        unknown["losses"] = "commands take fewer cycles than its peak and widths allow"
    cycles = run.breakdown
    spent = Spent(
        full_array=found.compute_bound,
        partial_array=cycles.compute - found.compute_bound,
        drain=cycles.drain,
        loads=cycles.load,
        stores=cycles.store,
        driver=cycles.driver + finish,  # when everything is done, the driver closes the layer
    )
    waits = cycles.streams if Engines.of(planner.described) else {}
    return replace(found, spent=spent, waits=waits, array=array, losses=losses, unknown=unknown)


def _result_tiles(tiles: Tiles) -> int:
    return math.prod(n for axis, n in tiles.extents.items() if axis != INPUT_CHANNELS)


def _describe_tiling(tiles: Tiles) -> str:
    """Describe a tiling, outer loop first.

    For example `output stationary; 8 tiles of 16 of 32 output channels x 4 of 16 rows; weights
    loaded once; 4 buffers`.
    """
    tiling, layer = tiles.tiling, tiles.layer
    sizes = {
        "output_channels": (tiling.output_channels, layer.output_channels),
        "rows": (tiling.rows, layer.output_size[0]),
        "columns": (tiling.columns, layer.output_size[1]),
    }
    cut = [axis for axis in tiles.loops if axis in AXES]
    parts = [f"{sizes[axis][0]:,} of {sizes[axis][1]:,} {axis.replace('_', ' ')}" for axis in cut]
    count = _result_tiles(tiles)
    clauses = [] if layer.is_pool else [tiling.dataflow.value.replace("_", " ")]
    if parts:
        clauses.append(f"{count:,} tiles of {' x '.join(parts)}")
    else:
        clauses.append("in one piece" if count == 1 else f"image by image, {count:,} of them")
    steps = tiles.extents[INPUT_CHANNELS]
    if steps > 1:
        clauses.append(f"{steps:,} steps of {tiling.input_channels:,} input channels")
    stays = [name for name in ("data", "weights") if _stays(tiles, name)]
    if count * steps > 1 and stays:
        clauses.append(f"{' and '.join(stays)} loaded once")
    if count * steps > 1:
        clauses.append(f"{tiling.buffers} buffers" if tiling.buffers > 1 else "one buffer")
    return "; ".join(clauses)


def _stays(tiles: Tiles, name: str) -> bool:
    """Whether tiles of a tensor are loaded once, although several result tiles need them."""
    if name not in tiles.buffers:
        return False
    own = math.prod(tiles.extents[axis] for axis in tiles.loops if axis in tiles.axes_of(name))
    everything = math.prod(tiles.extents[axis] for axis in tiles.loops)
    return tiles.copies(name) == own < everything


def accelerator_bounds(
    program: Program,
    total_macs: int,
    backends: Sequence[UMABackend],
    layers: Sequence[LayerRecord],
) -> tuple[AcceleratorBounds, ...]:
    """Return the bounds of each accelerator that runs layers of a program.

    Args:
        total_macs: multiply-accumulates of the whole network.
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
    known = None if layer.tiled is None else layer.tiled.array
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
