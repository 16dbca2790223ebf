# SPDX-License-Identifier: Apache-2.0
"""What a backend says about its device on a board, in the README of a library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from umakit.machine.layer import Layer
    from umakit.machine.tiles import Tiles


@dataclass(frozen=True)
class DeviceUse:
    """What a library uses of an accelerator.

    Attributes:
        layers: sizes of its layers there; None for one that `Layer` cannot describe.
        tiles: of the layers that the planner cut, each size and tiling once.
        scratchpad_bytes: how much of the scratchpads the memory plan uses.
        sum_bytes: the most that a tile needs of `TileMachine.sum_bytes`; None if a layer is not cut
            by the planner.
        cycles: predicted cycles of the longest layer; None if a layer is not cut by the planner.
        macros: numbers that the driver's sources define, such as `#define NPU_TIMEOUT 100u`.
    """

    layers: tuple[Layer | None, ...] = ()
    tiles: tuple[Tiles, ...] = ()
    scratchpad_bytes: int = 0
    sum_bytes: int | None = None
    cycles: int | None = None
    macros: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class BoardNotes:
    """What the README of a library says about the device of a board, in Markdown.

    Attributes:
        device: what the device has to be, for the end of the section "NAME on hardware".
        time_limit: how long the driver waits, and how to change that, for the table of what a
            library needs; empty for what the kit says about a driver that defines
            `NAME_TIMEOUT_CYCLES`.
    """

    device: str = ""
    time_limit: str = ""
