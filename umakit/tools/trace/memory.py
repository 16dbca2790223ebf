# SPDX-License-Identifier: Apache-2.0
"""The bytes of each memory that are in use, by step of the program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def memory_use(memory: Mapping[str, Any], steps: int) -> dict[str, tuple[int, ...]]:
    """Return the bytes in use in each step, by the name of the memory.

    Tensors that take over the memory of others count once.

    Args:
        memory: the memory plan, as in `metadata.json`.
        steps: number of steps of the program.
    """
    pools = [*memory["pools"], *memory["scratchpads"]]
    return {pool["name"]: _used(pool["tensors"], steps) for pool in pools if pool["tensors"]}


def _used(tensors: Iterable[Mapping[str, Any]], steps: int) -> tuple[int, ...]:
    live: list[list[tuple[int, int]]] = [[] for _ in range(steps)]
    for tensor in tensors:
        first = int(tensor["offset_bytes"])
        place = (first, first + int(tensor["size_bytes"]))
        for step in range(max(tensor["first_layer"], 0), min(tensor["last_layer"] + 1, steps)):
            live[step].append(place)
    return tuple(_covered(places) for places in live)


def _covered(places: list[tuple[int, int]]) -> int:
    """Return how many bytes lie in at least one of the places."""
    total, end = 0, 0
    for first, last in sorted(places):
        total += max(0, last - max(first, end))
        end = max(end, last)
    return total
