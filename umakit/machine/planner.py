# SPDX-License-Identifier: Apache-2.0
"""The tile planner: the check of a layer, its tiling, and the predicted cycles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from threading import get_ident
from typing import Self

from umakit.errors import AcceleratorConfigError, BackendError
from umakit.machine.accelerator_config import AcceleratorConfig
from umakit.machine.bounds import Bound, layer_bound
from umakit.machine.calibration import Calibrated, Calibration
from umakit.machine.clock import Run, run
from umakit.machine.commands import DriverCosts, commands_of
from umakit.machine.configured import ConfiguredMachine
from umakit.machine.estimate import Estimates
from umakit.machine.hardware import Hardware
from umakit.machine.layer import Kind, Layer
from umakit.machine.selection import Candidate, best_tilings, search_space, some_tiling_fits
from umakit.machine.space import SIZED, axis_unit, misfit, refusal, tiles_on
from umakit.machine.stated_bytes import check_operands, check_order_of_weights
from umakit.machine.tile_machine import TileMachine, WithoutQueues
from umakit.machine.tiles import (
    AXES,
    BUFFERS,
    COLUMNS,
    INPUT_CHANNELS,
    OUTPUT_CHANNELS,
    ROWS,
    Tiles,
    Tiling,
)
from umakit.patterns import Composite

COST_MODEL = 1
"""Version of the default tilings and of the cost model; incremented when either changes."""

FINALISTS = 12
"""Maximum number of candidates for the default tiling that are simulated exactly."""

FINALISTS_COMMANDS = 2_000
"""Maximum total number of commands of the candidates that are simulated exactly.

With more commands the simulation would take too long, and the estimate, whose error is the time of
a few commands, is good enough.
"""


SHORT_QUEUE = 4
"""A tile takes four commands; with a shorter queue the driver cannot enqueue a tile ahead."""


@dataclass(frozen=True)
class Prediction:
    """Predicted cycles of a tiled layer.

    Attributes:
        cycles: cycles from the first register access to the last access, at least 1.
        run: the simulated run of the layer's commands; None if the cycles have another source.
        bound: lower bounds for all tilings.

    Raises:
        BackendError: the cycles are not a positive integer.
    """

    cycles: int
    run: Run | None
    bound: Bound

    def __post_init__(self) -> None:
        if not isinstance(self.cycles, int) or self.cycles < 1:
            raise BackendError(
                f"a planner predicted {self.cycles!r} cycles",
                fix="let its predict return a Prediction with a positive int",
            )


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


class TilePlanner:
    """Cuts layers into tiles for an accelerator.

    A backend's passes hold the planner, and compilations in several threads share both. So the
    planner keeps the tilings of a compilation by thread.

    Args:
        hardware: the accelerator: a `Hardware`, or a machine of the backend's own.
        driver: register accesses of the driver's calls.
        most_buffers: maximum number of buffers per tensor in default tilings; 1 disables double
            buffering.
    """

    def __init__(
        self, hardware: TileMachine, driver: DriverCosts, most_buffers: int = BUFFERS[-1]
    ) -> None:
        for name in ("macs_per_cycle", "bytes_per_cycle"):
            if getattr(hardware, name) < 1:
                raise BackendError(
                    f"{type(hardware).__name__} has no {name}",
                    fix="set it: bounds and rooflines are computed from it",
                )
        for name in ("units", "whole_units", "limits"):
            for axis in getattr(hardware, name):
                if axis not in SIZED:
                    raise BackendError(
                        f"{type(hardware).__name__} has {name} of {axis}, which is no axis",
                        fix=f"axes are {', '.join(SIZED)}",
                    )
        self.machine = hardware
        self.driver = driver
        self.most_buffers = most_buffers
        self._defaults: dict[Layer, Tiling | None] = {}
        self._estimates: Estimates | None = None
        self._planned: dict[int, PlannedLayers] = {}

    @classmethod
    def of(
        cls,
        configuration: AcceleratorConfig,
        driver: DriverCosts | None = None,
        most_buffers: int = BUFFERS[-1],
    ) -> Self:
        """Return a planner for the machine that an `accel.toml` describes.

        Args:
            configuration: the file, `UMABackend.configuration`.
            driver: register accesses of the driver's calls; default: `[machine.driver]`.
            most_buffers: as in the class.

        Raises:
            AcceleratorConfigError: the section `[machine]` is missing, and so is `driver` or an
                array with one scratchpad.
        """
        if configuration.machine is not None:
            machine = ConfiguredMachine(configuration)
            return cls(machine, driver or machine.driver, most_buffers)
        if driver is None:
            raise AcceleratorConfigError(
                "there is no section [machine]",
                where=configuration.accelerator.name,
                fix="describe the machine in accel.toml, or give the planner its DriverCosts",
            )
        return cls(Hardware.of(configuration), driver, most_buffers)

    @property
    def hardware(self) -> Hardware:
        """The parameters of the systolic array.

        Raises:
            BackendError: the accelerator is another machine; see the attribute `machine`.
        """
        array = self.described
        if not isinstance(array, Hardware):
            raise BackendError(
                f"a planner for {type(array).__name__} has no Hardware",
                fix="use its attribute machine",
            )
        return array

    @property
    def described(self) -> TileMachine:
        """The machine with the costs of the backend's description, even if measured costs are in
        use."""
        return self.machine.other if isinstance(self.machine, Calibrated) else self.machine

    @property
    def calibration(self) -> Calibration | None:
        """The measured costs in use; None with the costs of the backend's description."""
        return self.machine.calibration if isinstance(self.machine, Calibrated) else None

    @contextmanager
    def planning(self, planned: PlannedLayers) -> Iterator[None]:
        """Let `tiles_of` cut by given tilings, and note the layers, in a block of this thread."""
        thread = get_ident()
        before = self._planned.get(thread)
        self._planned[thread] = planned
        try:
            yield
        finally:
            if before is None:
                del self._planned[thread]
            else:
                self._planned[thread] = before

    def calibrate(self, calibration: Calibration | None) -> None:
        """Predict from measured costs; with None, from the backend's description."""
        described = self.described
        self.machine = described if calibration is None else Calibrated(described, calibration)
        self._defaults.clear()
        self._estimates = None

    def accepts(self, composite: Composite) -> bool | str:
        """Check whether a layer can be cut into tiles that fit; a predicate for `umakit.patterns`.

        Returns:
            True, or the reason of the refusal, as a sentence for the user.

        Raises:
            TypeError: layers of this kind cannot be cut into tiles.
            BackendError: the pattern or the machine states other bytes than copies move.
        """
        layer = Layer.of(composite)
        groups = getattr(composite, "groups", 1)
        if groups > 1 and layer.kind is Kind.CONVOLUTION:
            return f"{groups} groups: tiles are of one group, or of a depthwise convolution"
        check_operands(composite, layer, self.machine)
        if self.machine.alignment > 1:
            return (
                "tiles start at any byte, the DMA engine copies from multiples of "
                f"{self.machine.alignment}"
            )
        for axis, name in enumerate(("rows", "columns")):
            if _sees_padding_only(layer, axis):
                return f"a window sees {name} of the padding only"
        refused = refusal(layer, self.machine)
        if refused:
            return refused
        return True if self._can_be_cut(layer) else self._too_large(layer)

    def _can_be_cut(self, layer: Layer) -> bool:
        """Whether the layer has a default tiling; the kit's own default is not searched for."""
        is_kits = getattr(self.default, "__func__", None) is TilePlanner.default
        if not is_kits:
            return self.default(layer) is not None
        return some_tiling_fits(layer, self.machine, self.most_buffers)

    def tiles_of(
        self, composite: Composite, tilings: Mapping[Layer, Tiling] | None = None
    ) -> Tiles:
        """Return the tiles of an accepted layer.

        Args:
            composite: parameters of the layer.
            tilings: tilings by layer, which replace the defaults; None for the tilings of the
                current compilation.

        Raises:
            ValueError: no tiling of the layer fits.
            BackendError: the weights of the pattern have another order than tiles cut them in.
        """
        layer = Layer.of(composite)
        if tilings is None:
            planned = self._planned.get(get_ident()) or PlannedLayers()
            planned.layers.append(layer)
            tilings = planned.tilings
        tiling = tilings.get(layer) or self.default(layer)
        if tiling is None:
            raise ValueError("the layer does not fit in any way")
        tiles = self._tiles(layer, tiling)
        check_order_of_weights(composite, tiles, self.machine)
        return tiles

    def default(self, layer: Layer) -> Tiling | None:
        """Return the default tiling by estimate and simulation; None if no tiling fits."""
        if layer not in self._defaults:
            refused = refusal(layer, self.machine)
            self._defaults[layer] = None if refused else self._selected(layer)
        return self._defaults[layer]

    def predict(self, tiles: Tiles) -> Prediction:
        """Predict the cycles of a tiling on the simulated device, with the layer's lower bounds.

        A planner may override this method. Default tilings, tuning, records and reports then use
        the overridden predictions. The kit's estimate still proposes the tilings to predict, but
        excludes none. If the cycles do not come from `Prediction.run`, reports do not explain the
        array's stalls.
        """
        commands = commands_of(tiles, self.machine, self.driver)
        ran = run(commands, self.machine.machine)
        bound = layer_bound(self.machine, tiles.layer)
        return Prediction(ran.cycles + self.driver.finish, ran, bound)

    def estimate(self, tiles: Tiles) -> int:
        """Estimate the cycles of a tiling without simulating its commands.

        A planner may override this method. Default tilings and tuning then propose tilings by the
        overridden estimate, of all tilings of nearly equal parts: the kit's bounds exclude none.
        """
        estimates = self._estimates
        if estimates is None or estimates.layer != tiles.layer:
            estimates = self._estimates = Estimates(tiles.layer, self.machine, self.driver)
        return estimates.of(tiles).cycles

    @property
    def own_estimate(self) -> Callable[[Tiles], int] | None:
        """The method `estimate` if it is overridden."""
        is_kits = getattr(self.estimate, "__func__", None) is TilePlanner.estimate
        return None if is_kits else partial(estimate_of, self)

    @property
    def has_own_predictions(self) -> bool:
        """Whether `predict` is overridden, so that bounds by the kit's cost model do not hold."""
        return getattr(self.predict, "__func__", None) is not TilePlanner.predict

    def _tiles(self, layer: Layer, tiling: Tiling) -> Tiles:
        return tiles_on(layer, tiling, self.machine)

    def _selected(self, layer: Layer) -> Tiling | None:
        """Return the best tiling by the estimate.

        With a short queue little overlaps, so the best tiling without a queue may be better.
        """
        machine = self.machine
        tiling = self._best_on(machine, layer)
        entries = min(queue.entries for queue in machine.machine.queues)
        if tiling is None or not 0 < entries < SHORT_QUEUE or self.own_estimate is not None:
            return tiling
        other = self._best_on(WithoutQueues(machine), layer)
        cut = [each for each in (tiling, other) if each is not None]
        return min(cut, key=lambda each: prediction_of(self, self._tiles(layer, each)).cycles)

    def _best_on(self, hardware: TileMachine, layer: Layer) -> Tiling | None:
        """Return the best tiling. Several buffers are preferred, and whole rows with the fewest
        transfers, if they fit."""
        several = tuple(count for count in BUFFERS[1:] if count <= self.most_buffers)
        for buffers in (several, BUFFERS[:1]):
            for uncut in ((COLUMNS,), ()):
                found: list[Candidate] = []
                for count in buffers:
                    space = search_space(layer, hardware, count, uncut)
                    found += best_tilings(
                        space, layer, hardware, self.driver, FINALISTS, estimate=self.own_estimate
                    ).candidates
                if found:
                    return self._settled(layer, sorted(found))
        return None

    def _settled(self, layer: Layer, found: list[Candidate]) -> Tiling:
        """Return the candidate with the fewest simulated cycles."""
        commands, best, least = 0, found[0].tiling, None
        for each in found:
            commands += each.commands
            if commands > FINALISTS_COMMANDS:
                break
            cycles = prediction_of(self, self._tiles(layer, each.tiling)).cycles
            if least is None or cycles < least:
                best, least = each.tiling, cycles
        return best

    def _too_large(self, layer: Layer) -> str:
        """Return the reason why no tiling of a layer fits: the misfit of the smallest tiling.

        Without memory for partial sums, the smallest tiling has all input channels.
        """
        smallest = self._smallest(layer)
        if not (self.machine.sum_bytes or self.machine.sums_in_result):
            uncut = replace(smallest, input_channels=layer.input_channels)
            if found := misfit(self._tiles(layer, uncut), self.machine):
                return (
                    f"its smallest tile {found}, and input channels cannot be cut: there is "
                    "neither sum_bytes nor sums_in_result"
                    if smallest != uncut and not layer.per_channel
                    else found
                )
        return misfit(self._tiles(layer, smallest), self.machine)

    def _smallest(self, layer: Layer) -> Tiling:
        unit = {axis: axis_unit(layer, self.machine, axis) for axis in SIZED}
        rows, columns = unit[ROWS], unit[COLUMNS]
        inputs, outputs = unit[INPUT_CHANNELS], unit[OUTPUT_CHANNELS]
        return Tiling(self.machine.dataflows[0], rows, columns, outputs, inputs, AXES, 1)


def estimate_of(planner: TilePlanner, tiles: Tiles) -> int:
    """Return a planner's estimate for a tiling."""
    found = planner.estimate(tiles)
    if not isinstance(found, int) or found < 1:
        raise BackendError(
            f"estimate of {type(planner).__name__} returned {found!r}",
            fix="let it return a positive int",
        )
    return found


def prediction_of(planner: TilePlanner, tiles: Tiles) -> Prediction:
    """Return a planner's prediction for a tiling."""
    found = planner.predict(tiles)
    if not isinstance(found, Prediction):
        raise BackendError(
            f"predict of {type(planner).__name__} returned {type(found).__name__}",
            fix="let it return an umakit.machine.Prediction",
        )
    return found


def _sees_padding_only(layer: Layer, axis: int) -> bool:
    """Whether the first or last window along an axis sees no input."""
    window = (layer.kernel[axis] - 1) * layer.dilation[axis] + 1
    last = (layer.output_size[axis] - 1) * layer.strides[axis] - layer.padding[axis]
    return layer.padding[axis] >= window or last >= layer.input_size[axis]
