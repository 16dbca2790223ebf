# SPDX-License-Identifier: Apache-2.0
"""The cost of a command, and the sizes behind the cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, Protocol

from umakit.machine.layer import Kind, Layer
from umakit.machine.systolic import Dataflow, Product

TENSORS = ("data", "weights", "parameters", "addend", "result")
"""Tensors whose tiles lie in memories; `parameters` are bias, multipliers and shifts."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Cycles of a command.

    Attributes:
        busy: cycles in which the engine can take no other command, at least 1.
        tail: cycles after the busy cycles until the effect is complete.
        macs: multiply-accumulates of a job of the array.
        accesses: register accesses to enqueue the command; None for the accesses of `DriverCosts`.
    """

    busy: int
    tail: int
    macs: int = 0
    accesses: int | None = None

    @property
    def cycles(self) -> int:
        """The cycles from the start of the command to its completion."""
        return self.busy + self.tail


@dataclass(frozen=True, slots=True)
class TileSizes:
    """The sizes of a tile, or of the part of a tile that one job computes.

    Attributes:
        dataflow: dataflow of the job.
        rows, columns: height and width of the result.
        output_channels: channels of the result.
        input_channels: channels of the data.
        first, last: whether the job is the first or the last job of a tile whose input channels are
            cut. Only machines with `jobs_by_step` get these flags.
    """

    layer: Layer
    dataflow: Dataflow
    rows: int
    columns: int
    output_channels: int
    input_channels: int
    first: bool = True
    last: bool = True

    @property
    def positions(self) -> int:
        """The number of positions of the result."""
        return self.rows * self.columns

    @property
    def product(self) -> Product:
        """The matrix product: m positions, n output channels, and k products for each result."""
        layer = self.layer
        inputs = 1 if layer.per_channel else self.input_channels
        return Product(self.positions, self.output_channels, layer.window * inputs)


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a tile between the bus and its memory.

    Attributes:
        tensor: one of `TENSORS`; bias, multipliers and shifts are three copies of `parameters`.
        planes, rows, row_bytes: number of planes, of rows per plane and of contiguous bytes per row
            in the tensor.
    """

    tensor: str
    planes: int
    rows: int
    row_bytes: int


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
