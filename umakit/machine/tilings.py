# SPDX-License-Identifier: Apache-2.0
"""Given tilings and the cut layers of a compilation.

A backend's TIR pass asks its planner for the tiling of a layer. Pass and planner are the same
objects in every compilation, so the tilings of one compilation cannot be stored in them. The
lowering stage puts the tilings into a context variable (`contextvars`, PEP 567) while a backend's
passes run, and `TilePlanner.tiles_of` reads the variable. Each thread has its own value: concurrent
compilations with different tilings do not see each other's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from umakit.machine.layer import Layer
from umakit.machine.tiles import Tiling


@dataclass(frozen=True)
class PlannedLayers:
    """The layers that a planner cut in one compilation.

    Attributes:
        tilings: given tilings; other layers get the default.
        layers: the cut layers, in the order of the backend's passes, once per prim func.
    """

    tilings: Mapping[Layer, Tiling] = field(default_factory=dict)
    layers: list[Layer] = field(default_factory=list)

    @property
    def tuned(self) -> list[Layer]:
        """The layers that were cut by a given tiling."""
        return [layer for layer in self.layers if layer in self.tilings]


_current: ContextVar[Mapping[object, PlannedLayers]] = ContextVar("umakit_planned_layers")


@contextmanager
def planning(planned: Mapping[object, PlannedLayers]) -> Iterator[None]:
    """Set the tilings of planners for passes in this block.

    The lowering stage does this; passes only ask `TilePlanner.tiles_of`.

    Args:
        planned: by planner; `tilings` are read by `TilePlanner.tiles_of`, which appends to
            `layers`.
    """
    token = _current.set(planned)
    try:
        yield
    finally:
        _current.reset(token)


def planned_by(planner: object) -> PlannedLayers | None:
    """Return the tilings of the current compilation for a planner; None outside a compilation."""
    return _current.get({}).get(planner)
