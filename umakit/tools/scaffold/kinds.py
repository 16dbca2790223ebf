# SPDX-License-Identifier: Apache-2.0
"""The kinds of backends that `uma new --kind` writes, one entry each."""

from __future__ import annotations

from umakit.tools.scaffold.answers import DEFAULTS, OPERATORS, Kind
from umakit.tools.scaffold.layer.values import layer_files, layer_values
from umakit.tools.scaffold.library import library_files
from umakit.tools.scaffold.tiles import tiles_values


def flags(*names: str, **defaults: str) -> dict[str, str]:
    """Return flags with their usual defaults, or with the given ones."""
    return {name: defaults.get(name, DEFAULTS[name]) for name in names}


ALL_BUT_FUSED = tuple(name for name in OPERATORS if name != "conv2d_add")

KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            name="library",
            summary="C functions that a vendor wrote for the CPU or for a core with its own driver",
            operators=ALL_BUT_FUSED,
            flags=flags("operators", "layout", "rounding"),
            page="docs/kernel-library.md",
            files=library_files,
        ),
        Kind(
            name="layer",
            summary="an engine that computes a whole layer, told by registers or a descriptor",
            operators=ALL_BUT_FUSED,
            flags=flags("operators", "layout", "rounding", "array", "simulator", "registers"),
            page="docs/new-layer.md",
            values=layer_values,
            files=layer_files,
        ),
        Kind(
            name="tiles",
            summary="an array with a scratchpad, for which layers are cut into tiles",
            operators=("conv2d", "depthwise", "conv2d_add", "dense"),
            flags=flags("operators", "layout", "rounding", "array", "scratchpad", "simulator"),
            page="docs/new-tiles.md",
            values=tiles_values,
        ),
    )
}
