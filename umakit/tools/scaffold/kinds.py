# SPDX-License-Identifier: Apache-2.0
"""The kinds of backends that `uma new --kind` writes, one entry each."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from umakit import sim
from umakit.tools.scaffold.answers import DEFAULTS, OPERATORS, Answers, Kind
from umakit.tools.scaffold.layer.values import layer_files, layer_values

MOST_BANKS = 16
LEAST_BANKS = 6
"""With fewer banks, not every tensor of a layer has one; 1 is a scratchpad without banks."""

ALIGNMENT = 16
"""Tiles begin at multiples of so many bytes, unless accel.toml says otherwise: banks do, too."""

LEAST_SUMS = 4096


def tiles_values(answers: Answers, name: str) -> Mapping[str, object]:
    """Return the further values of a backend of the kind `tiles`.

    `banks` of the scratchpad; `sum_bytes` of the array; `identity`, hexadecimal digits of the ID
    register; `has_images`, whether an operator has a layout.
    """
    banks = [
        count
        for count in range(LEAST_BANKS, MOST_BANKS + 1)
        if answers.scratchpad % (count * ALIGNMENT) == 0
    ]
    return {
        "banks": max(banks, default=1),
        "sum_bytes": max(LEAST_SUMS, answers.scratchpad // 16 * 4),
        "identity": f"{zlib.crc32(name.encode()):08X}",
        "has_images": answers.operators != ("dense",),
    }


HEADERS = ("include/umakit/reference.h", sim.ARITHMETIC_HEADER)


def library_files(answers: Answers, name: str) -> dict[str, str]:
    """Return headers that complete the stand-in library, as in a vendor's library."""
    folder = sim.source_directory()
    return {f"kernels/{path}": (folder / path).read_text(encoding="utf-8") for path in HEADERS}


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
