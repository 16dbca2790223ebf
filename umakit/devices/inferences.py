# SPDX-License-Identifier: Apache-2.0
"""Separate measurements of consecutive inferences in one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from umakit.devices.device import Device
from umakit.devices.profiles import InferenceProfile, LayerProfile, profiles_of
from umakit.errors import LibraryError

MEMORIES = "memories"
"""Key of the accesses to memories in the report of a layer."""

MOST_INFERENCES = 10_000
"""Maximum number of inferences that are told apart: each prints a line for each layer."""

Profiles = tuple[tuple[LayerProfile, ...], InferenceProfile]
"""Measurements of each layer and of the whole inference."""


@dataclass(frozen=True)
class Spread:
    """The range of a figure over several inferences; both ends are None if unknown."""

    least: int | None
    highest: int | None

    @property
    def equal(self) -> bool:
        """Whether the figure is known and equal in all inferences."""
        return self.least is not None and self.least == self.highest

    @classmethod
    def of(cls, values: Sequence[int | None]) -> Spread:
        """Return the spread of values; unknown without values, or if a value is unknown."""
        known = [value for value in values if value is not None]
        if not known or len(known) < len(values):
            return cls(None, None)
        return cls(min(known), max(known))


@dataclass(frozen=True)
class Measured:
    """Measurements of some of the inferences.

    Attributes:
        layers: mean measurements of each layer.
        whole: mean measurements of an inference from begin to end.
        clock_cycles: spread of the clock cycles of an inference.
        moved_bytes: spread of the bytes moved by all layers on accelerators.
        layer_cycles, layer_bytes: spread of clock cycles and of moved bytes, by layer.
    """

    layers: tuple[LayerProfile, ...]
    whole: InferenceProfile
    clock_cycles: Spread
    moved_bytes: Spread
    layer_cycles: tuple[Spread, ...]
    layer_bytes: tuple[Spread, ...]


@dataclass(frozen=True)
class Inferences:
    """Measurements of several inferences.

    Attributes:
        count: number of inferences.
        first: the first inference.
        later: all later inferences; None if there are none.
        clock_cycles, moved_bytes: figures of each inference in order; None if unknown.
    """

    count: int
    first: Measured
    later: Measured | None
    clock_cycles: tuple[int | None, ...]
    moved_bytes: tuple[int | None, ...]


def inferences_of(
    device: Device,
    description: Mapping[str, Any],
    report: Mapping[str, Any],
    lines: Sequence[str],
) -> Inferences:
    """Return the measurements of the first inference and of all later inferences.

    Args:
        lines: all lines, with sums after each inference.

    Raises:
        LibraryError: the program of an older version of umakit prints no sums.
    """
    singles = _single_reports(description, report, lines)
    each = [profiles_of(device, description, single, 1, ()) for single in singles]

    def measured(numbers: slice) -> Measured:
        mean = profiles_of(
            device, description, _sum(singles[numbers]), len(singles[numbers]), lines
        )
        return _measured(mean, each[numbers])

    return Inferences(
        len(singles),
        measured(slice(1)),
        measured(slice(1, None)) if singles[1:] else None,
        tuple(whole.clock_cycles for _, whole in each),
        tuple(_moved_bytes(layers) for layers, _ in each),
    )


def _single_reports(
    description: Mapping[str, Any], report: Mapping[str, Any], lines: Sequence[str]
) -> list[dict[str, Any]]:
    """Return one report for each inference, as if the inference had run alone."""
    layers = report["layers"]
    # Memory accesses are counted over all inferences.
    names = [name for name in layers[0] if name != MEMORIES] if layers else []
    sums = [list(map(int, line.split()[2:])) for line in lines if line.startswith("sum ")]
    wholes = [int(line.split()[1]) for line in lines if line.startswith("whole ")]
    runs = sum(line.startswith("run ") for line in lines)
    if len(sums) != runs * len(layers):
        raise LibraryError(
            f"{description['name']}: its program tells inferences only together",
            fix="export the library again with this version of umakit",
        )
    before, whole_before, found = [[0] * len(names) for _ in layers], 0, []
    for number in range(runs):
        now = sums[number * len(layers) : (number + 1) * len(layers)]
        single: dict[str, Any] = {
            "layers": [
                {name: new - old for name, new, old in zip(names, *pair, strict=True)}
                for pair in zip(now, before, strict=True)
            ],
            "unknown": report.get("unknown", {}),
        }
        if wholes:
            single["inference"] = {"clock_cycles": wholes[number] - whole_before}
            whole_before = wholes[number]
        before = now
        found.append(single)
    return _without_lost(found)


def _without_lost(singles: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return reports; drop the figures of inferences if a device lost its counter."""
    if any(single.get("inference", {}).get("clock_cycles", 0) < 0 for single in singles):
        for single in singles:
            del single["inference"]
    for layers in zip(*(single["layers"] for single in singles), strict=True):
        for name in {name for layer in layers for name, value in layer.items() if value < 0}:
            for layer in layers:
                del layer[name]
    return singles


def _measured(mean: Profiles, each: Sequence[Profiles]) -> Measured:
    layers, whole = mean

    def spreads(figure: str) -> tuple[Spread, ...]:
        return tuple(
            Spread.of([getattr(profiles[index], figure) for profiles, _ in each])
            for index in range(len(layers))
        )

    return Measured(
        layers,
        whole,
        Spread.of([one.clock_cycles for _, one in each]),
        Spread.of([_moved_bytes(profiles) for profiles, _ in each]),
        spreads("clock_cycles"),
        spreads("moved_bytes"),
    )


def _moved_bytes(layers: Sequence[LayerProfile]) -> int | None:
    """Return the bytes moved by all accelerators; None without any, or if one did not count."""
    moved = [layer.moved_bytes for layer in layers if layer.where != "cpu"]
    known = [count for count in moved if count is not None]
    return sum(known) if moved and len(known) == len(moved) else None


def _sum(singles: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    total = dict(singles[0])
    total["layers"] = [
        {name: sum(layer[name] for layer in layers) for name in layers[0]}
        for layers in zip(*(single["layers"] for single in singles), strict=True)
    ]
    if "inference" in total:
        cycles = sum(single["inference"]["clock_cycles"] for single in singles)
        total["inference"] = {"clock_cycles": cycles}
    return total
