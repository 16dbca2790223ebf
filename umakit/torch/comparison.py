# SPDX-License-Identifier: Apache-2.0
"""Offloaded networks compared with PyTorch alone: numbers and times."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from umakit.torch.offers import copied
from umakit.torch.placements import text_table


@dataclass(frozen=True)
class TensorDifference:
    """A result of an offloaded network compared with PyTorch's result.

    Attributes:
        where: a part of the network, run on PyTorch's inputs; or `whole network`.
        output: index among the results of the part.
        dtype: dtype of the elements.
        shape: extents of the tensor.
        largest: largest absolute difference of an element; for integers in LSB.
        elements: number of elements that differ.
        magnitude: largest absolute value of an element in PyTorch's result.
    """

    where: str
    output: int
    dtype: str
    shape: tuple[int, ...]
    largest: float
    elements: int
    magnitude: float


@dataclass(frozen=True)
class Comparison:
    """An offloaded network compared with PyTorch. `print` writes it as tables.

    Attributes:
        differences: a row for each result of each part and of the whole network.
        eager_seconds, offloaded_seconds: shortest seconds a call, measured in alternation;
        accelerators are simulated.
    """

    differences: tuple[TensorDifference, ...]
    eager_seconds: float
    offloaded_seconds: float

    def __str__(self) -> str:
        rows = [
            ("" if each.output else each.where, f"{each.dtype}{list(each.shape)}",
             _difference(each), f"{each.elements:,}")
            for each in self.differences
        ]  # fmt: skip
        right = ("largest difference", "elements that differ")
        table = text_table(("where", "result", *right), rows, right=right)
        ratio = self.offloaded_seconds / self.eager_seconds
        return (
            f"{table}\na call takes {1000 * self.offloaded_seconds:.3g} ms, accelerators "
            f"simulated; PyTorch alone {1000 * self.eager_seconds:.3g} ms: {ratio:.2f} times"
        )


def _difference(row: TensorDifference) -> str:
    return f"{row.largest:.2g}" if row.dtype.startswith("float") else f"{row.largest:.0f} LSB"


def compare(
    network: Callable[..., Any],
    eager: Callable[..., Any],
    parts: Mapping[str, tuple[Any, Sequence[Any]]],
    arguments: tuple[Any, ...],
    keywords: Mapping[str, Any],
    repeats: int,
) -> Comparison:
    """Compare a network with PyTorch: each part, a region with its input values, and the whole."""

    def timed(function: Callable[..., Any]) -> tuple[Any, float]:
        own, named = copied((arguments, dict(keywords)))
        start = time.perf_counter()
        return function(*own, **named), time.perf_counter() - start

    rows = [
        row
        for name, (region, values) in parts.items()
        for row in differences(name, region(*values), region.graph(*values))
    ]
    rows += differences("whole network", timed(network)[0], timed(eager)[0])
    times = [(timed(eager)[1], timed(network)[1]) for _ in range(max(1, repeats))]
    return Comparison(tuple(rows), *map(min, zip(*times, strict=True)))


def differences(where: str, found: Any, wanted: Any) -> list[TensorDifference]:
    """Return the differences of the tensors in two nested results, element by element."""
    rows = []
    pairs = zip(pytree.tree_leaves(found), pytree.tree_leaves(wanted), strict=True)
    for number, (one, other) in enumerate(pairs):
        if not isinstance(one, torch.Tensor):
            continue
        apart = (one.to(torch.float64) - other.to(torch.float64)).abs()
        same = (one == other) | (one.isnan() & other.isnan())
        apart = torch.where(same, torch.zeros_like(apart), apart)
        dtype = str(one.dtype).removeprefix("torch.")
        largest = float(apart.max()) if apart.numel() else 0.0
        count = int((~same).sum())
        magnitude = float(other.to(torch.float64).abs().max()) if other.numel() else 0.0
        rows.append(
            TensorDifference(where, number, dtype, tuple(one.shape), largest, count, magnitude)
        )
    return rows
