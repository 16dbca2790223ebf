# SPDX-License-Identifier: Apache-2.0
"""What a backend asks about tiles: whether a layer can be cut to fit, and how it is cut."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from umakit.patterns import Composite
from umakit.tiling.bound import Bound, lower_bound
from umakit.tiling.choose import channel_unit, estimate, misfit, tiles_on, tilings
from umakit.tiling.clock import Run, run
from umakit.tiling.commands import DriverCosts, commands_of
from umakit.tiling.hardware import Hardware
from umakit.tiling.layer import Layer
from umakit.tiling.tiles import AXES, COLUMNS, INPUT_CHANNELS, Tiles, Tiling

FINALISTS = 4
"""Of the default's candidates, how many are run on the clock."""

MOST_COMMANDS = 20_000
"""A default with more is not run on the clock, which would take seconds."""


@dataclass(frozen=True)
class Prediction:
    """What a tiled layer will cost.

    Attributes:
        cycles: from the first access of a register to the last.
        run: commands on the clock.
        bound: what no tiling can beat.
    """

    cycles: int
    run: Run
    bound: Bound


class TilePlanner:
    """Cuts layers into tiles for an accelerator.

    Args:
        hardware: its figures.
        driver: what its driver's calls cost.
    """

    def __init__(self, hardware: Hardware, driver: DriverCosts) -> None:
        self.hardware = hardware
        self.driver = driver
        self._tuned: Mapping[Layer, Tiling] = MappingProxyType({})
        self._defaults: dict[Layer, Tiling | None] = {}

    def use(self, tuned: Mapping[Layer, Tiling]) -> None:
        """Prefer these tilings to the defaults from now on."""
        self._tuned = MappingProxyType(dict(tuned))

    def judge(self, known: Composite) -> bool | str:
        """A predicate for `umakit.patterns`: whether the layer can be cut into tiles that fit."""
        layer = Layer.of(known)
        if self.hardware.alignment > 1:
            return (
                "tiles start at any byte, the DMA engine copies from multiples of "
                f"{self.hardware.alignment}"
            )
        for axis, name in enumerate(("rows", "columns")):
            if _sees_padding_only(layer, axis):
                return f"a window sees {name} of the padding only"
        if self.default(layer) is None:
            return misfit(self._tiles(layer, self._smallest(layer)), self.hardware)
        return True

    def tiles_of(self, known: Composite) -> Tiles:
        """How a layer that `judge` accepted is cut.

        Raises:
            ValueError: it cannot be cut to fit.
        """
        layer = Layer.of(known)
        tiling = self._tuned.get(layer) or self.default(layer)
        if tiling is None:
            raise ValueError("the layer does not fit in any way")
        return self._tiles(layer, tiling)

    def default(self, layer: Layer) -> Tiling | None:
        """A good tiling, found by the estimate and settled by the clock; None if none fits."""
        if layer not in self._defaults:
            self._defaults[layer] = self._choose(layer)
        return self._defaults[layer]

    def predict(self, tiles: Tiles) -> Prediction:
        """What a tiling costs on the simulated device."""
        commands = commands_of(tiles, self.hardware, self.driver)
        layer, ran = tiles.layer, run(commands, self.hardware)
        bound = lower_bound(self.hardware, layer.macs, layer.compulsory_bytes)
        return Prediction(ran.cycles + self.driver.finish, ran, bound)

    def _tiles(self, layer: Layer, tiling: Tiling) -> Tiles:
        return tiles_on(layer, tiling, self.hardware)

    def _choose(self, layer: Layer) -> Tiling | None:
        for buffers in (2, 1):
            found = {
                tiling: estimate(self._tiles(layer, tiling), self.hardware, self.driver)
                for tiling in self._few(layer, buffers)
            }
            best = sorted(found, key=lambda tiling: found[tiling])[:FINALISTS]
            if best:
                return min(best, key=lambda tiling: self._settle(layer, tiling))
        return None

    def _settle(self, layer: Layer, tiling: Tiling) -> int:
        tiles = self._tiles(layer, tiling)
        commands = commands_of(tiles, self.hardware, self.driver)
        if len(commands) > MOST_COMMANDS:
            return estimate(tiles, self.hardware, self.driver)
        return run(commands, self.hardware).cycles

    def _few(self, layer: Layer, buffers: int) -> Iterator[Tiling]:
        """Part of the space that holds good tilings: as few axes cut as fit needs."""
        for whole in ((COLUMNS, INPUT_CHANNELS), (COLUMNS,), (INPUT_CHANNELS,), ()):
            found = False
            for tiling in tilings(layer, self.hardware, buffers, whole):
                found = True
                yield tiling
            if found:
                return

    def _smallest(self, layer: Layer) -> Tiling:
        unit = channel_unit(layer, self.hardware)
        return Tiling(self.hardware.dataflows[0], 1, 1, unit, 1, AXES, 1)


def _sees_padding_only(layer: Layer, axis: int) -> bool:
    """Whether the first or last window along an axis sees no input."""
    window = (layer.kernel[axis] - 1) * layer.dilation[axis] + 1
    last = (layer.output_size[axis] - 1) * layer.strides[axis] - layer.padding[axis]
    return layer.padding[axis] >= window or last >= layer.input_size[axis]
