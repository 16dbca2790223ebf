# SPDX-License-Identifier: Apache-2.0
"""The aspects of a layer that a check covers, and the values of each aspect.

An aspect is a setting of the operator's drawing, or a group of settings: rows and columns of a
kernel, of strides and of a dilation, and the four sides of a padding. The values of an aspect are
the values of the drawing, and the values of the pattern's constraints with their neighbours.
Numbers of channels also have every residue of the array's sizes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from umakit.operators.drawing import Setting
from umakit.operators.drawings.windows import SIDES
from umakit.operators.offload.constraints import listed_paddings, listed_pairs
from umakit.operators.offload.pattern import OperatorPattern
from umakit.operators.offload.weighted import weight_layout
from umakit.registration.backend import Backend
from umakit.testing.check.cases import SEED
from umakit.testing.check.claims import Claim

Value = tuple[Setting, ...]
"""A value of an aspect: a value of each of the aspect's settings."""

MOST_RESIDUES = 64
"""Largest array size with all residues tried. For larger sizes, both ends are tried."""

FEW_ROWS = 5
"""Maximum number of rows and columns of kernels with all pairs tried."""

OWN_PADDINGS = (
    *((0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1), (1, 3, 0, 2)),
    *((1, 1, 1, 1), (0, 0, 1, 1), (1, 1, 0, 0)),
)
"""Paddings (top, left, bottom, right) that give each side each number, and usual paddings."""

TOGETHER: Mapping[str, tuple[str, ...]] = {
    "kernel": ("kernel_height", "kernel_width"),
    "window": ("window_height", "window_width"),
    "stride": ("stride_y", "stride_x"),
    "dilation": ("dilation_y", "dilation_x"),
    "padding": ("padding", *(f"pad_{side}" for side in SIDES)),
}
"""Aspects of several settings."""

LISTED: Mapping[str, str] = {
    "kernel": "kernels", "window": "windows", "stride": "strides", "dilation": "dilation",
}  # fmt: skip
"""The arguments of patterns that list pairs, by aspect."""

NAMED: Mapping[str, str] = {"dtype": "dtypes", "rounding": "rounding", "layout": "layouts"}
"""The arguments of patterns that list names, by aspect."""

EVERY: Mapping[str, str] = {"scales": "per_channel", "broadcast": "broadcast"}
"""The arguments of patterns that claim all values, by aspect."""

CHANNELS = frozenset(
    {"channels", "channels_per_group", "filters_per_group", "filters", "groups", "inputs",
     "outputs", "size", "units"}
)  # fmt: skip
"""Settings that are numbers of channels. An array cuts channels into blocks."""


@dataclass(frozen=True)
class Aspect:
    """One aspect of the layers of a claim.

    Attributes:
        values: values to try, the simplest first.
        claimed: values listed by a constraint of the pattern; a layer has to run with each.
        block: block size of the array for numbers of channels; 1 for other aspects.
    """

    name: str
    settings: tuple[str, ...]
    values: tuple[Value, ...]
    claimed: frozenset[Value] = frozenset()
    block: int = 1

    def of(self, settings: Mapping[str, Setting]) -> Value:
        """Return the value of the aspect in complete settings."""
        found = tuple(settings[name] for name in self.settings)
        if self.name == "padding" and found[0] != "own":
            return (found[0], *(0 for _ in found[1:]))
        return found

    def with_value(self, value: Value) -> dict[str, Setting]:
        return dict(zip(self.settings, value, strict=True))

    def text(self, value: Value) -> str:
        """Return a value in words: `3x3`, `own 0,1,2,3`, `16`."""
        if self.name == "padding":
            sides = ",".join(str(side) for side in value[1:])
            return f"own {sides}" if value[0] == "own" else str(value[0])
        if self.name == "scales":
            return "1 (of the tensor)" if value[0] == 1 else f"{value[0]} (one for each channel)"
        return "x".join(str(each) for each in value)

    def kind_of(self, value: Value) -> str:
        """Return the kind of a value; all pairs of kinds of two aspects are tried."""
        if len(value) == 2:
            rows, columns = (int(each) for each in value)
            if rows == columns:
                return "1x1" if rows == 1 else "square"
            return "more columns" if rows < columns else "more rows"
        if (
            self.name == "padding"
            and value[0] == "own"
            and not (any(value[1:3]) and any(value[3:]))
        ):
            return "own at the start" if any(value[1:3]) else "own at the end"
        if self.name == "padding" or not isinstance(value[0], int) or "zero_point" in self.name:
            return str(value[0])
        number = int(value[0])
        if number <= 1 or self.block == 1:
            return str(number) if number <= 1 else "several"
        if number % self.block == 0:
            return f"multiple of {self.block}"
        return f"below {self.block}" if number < self.block else f"above {self.block}"


def aspects_of(claim: Claim) -> list[Aspect]:
    """Return the aspects of a claim with a drawing."""
    assert claim.drawing is not None
    given = {name: list(values) for name, values in claim.drawing.settings.items()}
    numbers, blocks = _numbers(claim), block_sizes(claim)
    near = {n + step for n in numbers for step in (-1, 0, 1)} | {2 * n for n in numbers}
    values = {
        name: _with(
            found,
            (near if name in claim.drawing.sizes else numbers)
            | (_residues(blocks) if name in CHANNELS else set()),
        )
        for name, found in given.items()
    }
    together = {
        name: settings
        for name, settings in TOGETHER.items()
        if all(each in given for each in settings)
    }
    taken = {each for settings in together.values() for each in settings}
    block = min((size for size in blocks), default=8)
    single = [
        Aspect(
            name, (name,), tuple((each,) for each in found), _claimed_values(claim, name),
            block if name in CHANNELS else 1,
        )
        for name, found in values.items()
        if name not in taken and name != SEED
    ]  # fmt: skip
    pairs = [
        _paddings(claim, given) if name == "padding" else _pairs(claim, name, settings, values)
        for name, settings in together.items()
    ]
    return [*pairs, *single]


def block_sizes(claim: Claim) -> list[int]:
    """Return an accelerator's block sizes of channels: of its array and of its weights."""
    found = {*_array_sizes(claim.backend)}
    pattern = claim.pattern.predicate
    stored = getattr(pattern, "weight_layout", None)
    if isinstance(pattern, OperatorPattern) and isinstance(stored, str):
        axes = getattr(pattern.KIND, "AXES", "")
        found.update(weight_layout(stored, axes).blocks.values())
    return sorted(size for size in found if size > 1)


def _array_sizes(backend: Backend) -> set[int]:
    configuration = backend.configuration
    array, machine = configuration.array, configuration.machine
    found = {array.rows, array.columns}
    if machine is None:
        return found
    products = [machine.macs_per_cycle, machine.block_channels]
    names = {name for each in products for name in re.findall(r"[a-z_]\w*", str(each))}
    for given in (*(machine.figures.get(name) for name in names), machine.block_channels):
        if isinstance(given, int):
            found.add(given)
    return found


def _residues(blocks: Iterable[int]) -> set[int]:
    found = set()
    for size in blocks:
        ends = {1, size - 1, size, size + 1, 2 * size - 1, 2 * size, 2 * size + 1}
        found |= ends | set(range(1, size) if size <= MOST_RESIDUES else ())
    return found


def _claimed_values(claim: Claim, name: str) -> frozenset[Value]:
    assert claim.drawing is not None
    values, limit = claim.drawing.settings[name], _argument(claim, "batch")
    if name == "batch" and limit is not None:
        return frozenset({(1,), (int(limit),)})
    if name in EVERY and _argument(claim, EVERY[name]):
        return frozenset((each,) for each in values)
    listed = _argument(claim, NAMED.get(name, ""))
    names = [listed] if isinstance(listed, str) else list(listed or ())
    return frozenset((each,) for each in names if each in values)


def _argument(claim: Claim, name: str) -> Any:
    """Return an argument of a claim's pattern; None without it, and for patterns of TVM."""
    pattern = claim.pattern.predicate
    return getattr(pattern, name, None) if isinstance(pattern, OperatorPattern) else None


def _pairs(
    claim: Claim, name: str, settings: tuple[str, ...], values: Mapping[str, list[Setting]]
) -> Aspect:
    listed = _argument(claim, LISTED[name])
    claimed = [] if listed is None else listed_pairs(listed, name)
    rows, columns = ([int(each) for each in values[part]] for part in settings)
    few = [
        pair
        for pair in itertools.product(rows, columns)
        if max(pair) <= FEW_ROWS or (pair[0] == pair[1] and pair[0] <= MOST_RESIDUES)
    ]
    if claimed:
        # Each listed pair and its neighbours; unlisted neighbours are refused.
        few = [
            pair for pair in few if min(abs(pair[0] - r) + abs(pair[1] - c) for r, c in claimed) < 2
        ]
    return Aspect(name, settings, tuple(dict.fromkeys((*claimed, *few))), frozenset(claimed))


def _paddings(claim: Claim, given: Mapping[str, list[Setting]]) -> Aspect:
    listed = _argument(claim, "padding")
    claimed = [_padding(each) for each in listed_paddings(listed)] if listed is not None else []
    names = [(str(each), 0, 0, 0, 0) for each in given["padding"] if each != "own"]
    own = [("own", *sides) for sides in OWN_PADDINGS]
    found = dict.fromkeys((*names, *claimed, *own))
    return Aspect("padding", TOGETHER["padding"], tuple(found), frozenset(claimed))


def _padding(item: Any) -> Value:
    if isinstance(item, str):
        return (item, 0, 0, 0, 0)
    return ("own", *((item,) * 4 if isinstance(item, int) else item))


def _with(values: list[Setting], numbers: Iterable[int]) -> list[Setting]:
    if not all(isinstance(value, int) for value in values) or any(int(v) < 1 for v in values):
        return values
    return [*values, *(n for n in sorted(set(numbers)) if n > 0 and n not in values)]


def _numbers(claim: Claim) -> set[int]:
    """Return all numbers in the fields of a pattern, also within texts such as `O/16 HWI`."""
    found: set[int] = set()

    def read(value: object) -> None:
        if isinstance(value, bool):
            return
        if isinstance(value, int) and 0 < value < 1024:
            found.add(value)
        elif isinstance(value, str):
            found.update(int(text) for text in re.findall(r"\b\d+", value))
        elif isinstance(value, (list, tuple, set, frozenset)):
            for each in value:
                read(each)

    predicate = claim.pattern.predicate
    if isinstance(predicate, OperatorPattern):
        for item in fields(predicate):
            if item.name not in ("name", "dtypes"):
                read(getattr(predicate, item.name))
        predicate = predicate.predicate
    read(getattr(getattr(predicate, "__code__", None), "co_consts", ()))
    return found
