# SPDX-License-Identifier: Apache-2.0
"""Facts that schedules of tiled kernels pass to later stages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field

from umakit import tvm_api
from umakit.lower.weight_tiles import WeightTiles

FACTS = "umakit.kernel_facts"
"""Attribute of a prim func that was scheduled in tiles: its `Facts` as text."""


@dataclass(frozen=True)
class Facts:
    """Facts of a prim func with a tiled schedule, for later stages.

    Attributes:
        register_bytes: most bytes of an array of sums that becomes a local variable.
        packed: storage of packed weights, by the number of the parameter.
        layouts: layouts of weights that legalization reordered, by the number of the parameter.
    """

    register_bytes: int = 0
    packed: Mapping[int, WeightTiles] = field(default_factory=dict)
    layouts: Mapping[int, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        tiles = [(number, astuple(each)) for number, each in self.packed.items()]
        return json.dumps([self.register_bytes, tiles, list(self.layouts.items())])

    @classmethod
    def of(cls, function: tvm_api.PrimFunc) -> Facts:
        """Return the facts of a prim func; empty for functions without facts."""
        text = tvm_api.function_attribute(function, FACTS)
        if text is None:
            return cls()
        register_bytes, tiles, layouts = json.loads(str(text))
        packed = {number: WeightTiles(*each) for number, each in tiles}
        return cls(register_bytes, packed, dict(layouts))
