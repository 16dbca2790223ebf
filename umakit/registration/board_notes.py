# SPDX-License-Identifier: Apache-2.0
"""The notes of a backend on its device on a board, in the README of a library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from umakit.machine.layer import Layer
    from umakit.machine.tiles import Tiles


@dataclass(frozen=True)
class DeviceUse:
    """A library's use of an accelerator.

    Attributes:
        layers: sizes of the layers on the accelerator; None for a layer that `Layer` cannot
            describe.
        tiles: tiles of the planner's layers, each size and tiling once.
        scratchpad_bytes: bytes of the scratchpads in the memory plan.
        sum_bytes: largest use of `TileMachine.sum_bytes` by a tile; None if the planner does not
            cut all layers.
        cycles: predicted cycles of the longest layer; None if the planner does not cut all layers.
        macros: numbers defined in the driver's sources, such as `#define NPU_TIMEOUT 100u`.
    """

    layers: tuple[Layer | None, ...] = ()
    tiles: tuple[Tiles, ...] = ()
    scratchpad_bytes: int = 0
    sum_bytes: int | None = None
    cycles: int | None = None
    macros: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class BoardNotes:
    """Notes on the device of a board for the README of a library, in Markdown.

    Attributes:
        device: requirements of the device, for the end of the section "NAME on hardware".
        time_limit: the driver's time limit and the way to change it, for the table of requirements;
            empty for the kit's text on drivers that define `NAME_TIMEOUT_CYCLES`.
    """

    device: str = ""
    time_limit: str = ""
