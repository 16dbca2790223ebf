# SPDX-License-Identifier: Apache-2.0
"""The figures of a machine by name; records of tilings hold for a machine of the same figures.

Costs are Python functions or formulas. The results for some sizes identify a function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Protocol

from umakit.machine.costs import TENSORS, Copy, Cost, TileSizes
from umakit.machine.layer import Kind, Layer
from umakit.machine.systolic import Dataflow

Figure = int | str


class Asked(Protocol):
    """The functions of a `TileMachine`."""

    dataflows: tuple[Dataflow, ...]

    def job(self, sizes: TileSizes) -> Cost:
        """Return the cycles of a job."""
        ...

    def copy(self, copied: Copy) -> Cost:
        """Return the cycles of a copy."""
        ...

    def sums(self, sizes: TileSizes, steps: int) -> int:
        """Return the bytes of sums."""
        ...

    def footprint(self, tensor: str, sizes: TileSizes, covered: tuple[int, int]) -> int:
        """Return the bytes of a tile."""
        ...


LAYERS = {
    kind: Layer(
        kind, 1, (19, 21), (17, 19), 48, 48, (3, 3), stored_channels=48,
        scales=48 if kind in (Kind.CONVOLUTION, Kind.DEPTHWISE) else 0,
    )
    for kind in Kind
}  # fmt: skip
"""Layers whose tiles are requested."""

TILES = ((1, 1, 16, 16), (3, 19, 32, 48), (17, 19, 48, 16))
"""Rows, columns, output and input channels of these tiles."""

COPIES = ((1, 1, 16), (1, 7, 133), (5, 3, 1024))
"""Planes, rows and bytes per row of the copies that are asked for."""


def flat(name: str, value: Any) -> Iterator[tuple[str, Figure]]:
    """Yield the numbers and texts in a value, each with its dotted name.

    Parts of a machine appear with their own name instead of a number.
    """
    if isinstance(value, Enum):
        yield name, str(value.value)
    elif is_dataclass(value):
        for field in fields(value):
            if field.name != "name":
                yield from flat(f"{name}.{field.name}", getattr(value, field.name))
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from flat(f"{name}.{key}", each)
    elif isinstance(value, (tuple, list)) and all(map(is_dataclass, value)):
        for each in value:
            yield from flat(f"{name}.{getattr(each, 'name', '')}", each)
    elif isinstance(value, (tuple, list)):
        yield name, ", ".join(str(getattr(each, "value", each)) for each in value)
    else:
        yield name, value if isinstance(value, int) and not isinstance(value, bool) else str(value)


def costs(machine: Asked) -> dict[str, Figure]:
    """Return the results of a machine's functions for some sizes, by name of function and sizes."""
    found: dict[str, Figure] = {}
    for kind, layer in LAYERS.items():
        for dataflow in machine.dataflows:
            for tile in TILES:
                sizes = TileSizes(layer, dataflow, *tile)
                covered = (sizes.rows + 2, sizes.columns + 2)
                name = f"{kind.value}.{'x'.join(map(str, tile))}.{dataflow.value}"
                found[f"job.{name}"] = _text(machine.job, sizes)
                bytes_ = [_text(machine.footprint, each, sizes, covered) for each in TENSORS]
                found[f"bytes.{name}"] = ", ".join([*bytes_, _text(machine.sums, sizes, 3)])
    for tensor in TENSORS:
        for copied in COPIES:
            name = f"copy.{tensor}.{'x'.join(map(str, copied))}"
            found[name] = _text(machine.copy, Copy(tensor, *copied))
    return found


def _text(function: Callable[..., Any], *arguments: Any) -> str:
    try:
        answer = function(*arguments)
    except Exception:  # a backend's function may raise anything
        return "refused"
    if isinstance(answer, Cost):
        return ", ".join(map(str, (answer.busy, answer.tail, answer.accesses)))
    return str(answer)
