# SPDX-License-Identifier: Apache-2.0
"""What a library demands of the registers of its systolic arrays, for the README of an export."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from umakit.registration.backend import Backend


@dataclass(frozen=True)
class Requirements:
    """Contents of constant registers that a library was compiled for.

    Attributes:
        columns: ARRAY_COLUMNS, exactly.
        scratchpad_bytes: minimum of SCRATCHPAD_BYTES: as much as the memory plan uses.
        accumulator_bytes: ACCUMULATOR_BYTES that are enough; 0 if there are none.
        dma_alignment: a multiple of DMA_ALIGNMENT.
        features: names of fields of FEATURES, of which layers may use any.
    """

    columns: int
    scratchpad_bytes: int
    accumulator_bytes: int
    dma_alignment: int
    features: str


def device_requirements(
    names: Iterable[str], backends: Mapping[str, Backend], metadata: Mapping[str, Any]
) -> dict[str, Requirements]:
    """Return what the devices of backends have to be.

    Args:
        names: backends whose device is a systolic array.
        backends: all backends of the library, by name.
        metadata: content of `metadata.json`, of which the use of scratchpads is read.
    """
    scratchpads = metadata["umakit"]["memory"]["scratchpads"]
    return {name: _of_systolic_array(name, backends[name], scratchpads) for name in names}


def _of_systolic_array(
    name: str, backend: Backend, scratchpads: Iterable[Mapping[str, Any]]
) -> Requirements:
    array = backend.configuration.array
    used = [
        pool["used_bytes"]
        for pool in scratchpads
        if pool["reachable_by"] is None or name in pool["reachable_by"]
    ]
    features = [dataflow.upper() for dataflow in array.allowed_dataflows]
    features += ["DEPTHWISE"] if array.depthwise else []
    features += ["POOLING"] if array.pooling_lanes else []
    return Requirements(
        array.columns,
        max(used, default=0),
        array.accumulator_bytes,
        backend.configuration.dma.alignment,
        ", ".join(features),
    )
