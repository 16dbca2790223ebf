# SPDX-License-Identifier: Apache-2.0
"""What a library demands of the registers of its systolic arrays, for the README of an export."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from umakit.machine.accelerator_config import ArraySection
from umakit.machine.layer import Kind, Layer
from umakit.machine.space import accumulator_bytes
from umakit.machine.tiles import Tiles
from umakit.operators.offload.composite import Composite
from umakit.program.descriptions import tiles_of
from umakit.program.program import Program
from umakit.registration.backend import Backend


@dataclass(frozen=True)
class Requirements:
    """Contents of constant registers that a library was compiled for.

    Attributes:
        columns: ARRAY_COLUMNS, exactly.
        major: VERSION's field MAJOR, exactly; None if the driver does not define what it accepts.
        least_minor: minimum of VERSION's field MINOR; None if the driver accepts any.
        scratchpad_bytes: minimum of SCRATCHPAD_BYTES: as much as the memory plan uses.
        accumulator_bytes: ACCUMULATOR_BYTES that are enough; 0 if no layer needs any.
        dma_alignment: a multiple of DMA_ALIGNMENT.
        features: names of fields of FEATURES.
        are_exact: whether layers use all of the features; if not, at most these.
        most_cycles: predicted cycles of the longest layer; 0 if there is no prediction.
    """

    columns: int
    major: int | None
    least_minor: int | None
    scratchpad_bytes: int
    accumulator_bytes: int
    dma_alignment: int
    features: str
    are_exact: bool
    most_cycles: int


def device_requirements(
    names: Iterable[str],
    program: Program,
    backends: Mapping[str, Backend],
    metadata: Mapping[str, Any],
) -> dict[str, Requirements]:
    """Return what the devices of backends have to be.

    Args:
        names: backends whose device is a systolic array.
        program: the program of the library.
        backends: all backends of the library, by name.
        metadata: content of `metadata.json`, of which the use of scratchpads is read.
    """
    scratchpads = metadata["umakit"]["memory"]["scratchpads"]
    return {name: _of_systolic_array(name, program, backends[name], scratchpads) for name in names}


def _of_systolic_array(
    name: str, program: Program, backend: Backend, scratchpads: Iterable[Mapping[str, Any]]
) -> Requirements:
    array, planner = backend.configuration.array, backend.tiling
    used = [
        pool["used_bytes"]
        for pool in scratchpads
        if pool["reachable_by"] is None or name in pool["reachable_by"]
    ]
    composites = [
        program.kernels[call.kernel].composite
        for call in program.calls
        if call.kernel and call.target == name
    ]
    layers = [layer for each in composites if (layer := _layer(each)) is not None]
    found = [tiles for each in composites if (tiles := tiles_of(program, each, backend))]
    cut = list({(tiles.layer, tiles.tiling): tiles for tiles in found}.values())
    are_exact = len(layers) == len(composites)
    accumulators, cycles = array.accumulator_bytes, 0
    if planner is not None and len(found) == len(composites):
        sums = (accumulator_bytes(t, planner.hardware) for t in cut if not t.layer.is_pool)
        accumulators = max(sums, default=0)
        cycles = max((planner.predict(tiles).cycles for tiles in cut), default=0)
    return Requirements(
        array.columns,
        _number(backend, "SUPPORTED_MAJOR_VERSION"),
        _number(backend, "LEAST_MINOR_VERSION"),
        max(used, default=0),
        accumulators,
        backend.configuration.dma.alignment,
        ", ".join(_features(array, layers, cut) if are_exact else _all_features(array)),
        are_exact,
        cycles,
    )


def _layer(composite: Composite | None) -> Layer | None:
    """Return the sizes of a layer; None if it is of no kind that the array is known to compute."""
    try:
        return None if composite is None else Layer.of(composite)
    except TypeError:
        return None


def _features(array: ArraySection, layers: Iterable[Layer], cut: Iterable[Tiles]) -> list[str]:
    """Return the fields of FEATURES that the commands of layers use.

    A layer that is cut into tiles has a dataflow of its own, others have the default one. Pools do
    not use the array.
    """
    kinds = {layer.kind for layer in layers}
    flows = {tiles.tiling.dataflow.value for tiles in cut if not tiles.layer.is_pool}
    if not flows and kinds & {Kind.CONVOLUTION, Kind.DEPTHWISE}:
        flows = {array.dataflow}
    names = [flow.upper() for flow in array.allowed_dataflows if flow in flows]
    names += ["DEPTHWISE"] if Kind.DEPTHWISE in kinds and array.depthwise else []
    return names + (["POOLING"] if kinds & {Kind.MAX_POOL, Kind.AVERAGE_POOL} else [])


def _all_features(array: ArraySection) -> list[str]:
    features = [dataflow.upper() for dataflow in array.allowed_dataflows]
    features += ["DEPTHWISE"] if array.depthwise else []
    return features + (["POOLING"] if array.pooling_lanes else [])


def _number(backend: Backend, macro: str) -> int | None:
    """Return the value of a macro that the driver defines; None if it does not."""
    for source in backend.driver.sources:
        text = (backend.folder / source).read_text(encoding="utf-8")
        if found := re.search(rf"^#define {macro} (\d+)u?\b", text, re.MULTILINE):
            return int(found[1])
    return None
