# SPDX-License-Identifier: Apache-2.0
"""Which tests `make test` and `make quick` run, by the processor time that tests take.

`make test` spends at most `MOST_SECONDS` on a function: of a longer one each commit runs other
parameters, or it runs with some commits only. After `MOST_COMMITS` commits all have run.
`make quick` runs functions with their first parameters, the fastest of each file first.
"""

from __future__ import annotations

import math
import subprocess
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

COSTS = Path(__file__).with_name("costs.txt")
"""Functions that take longer than `NOTED_SECONDS`: processor time with one set of parameters, and
that of fixtures which they share with others. A run with --update-costs writes what it measured."""

NOTED_SECONDS = 0.1

MOST_SECONDS = 4.0
"""Processor time of a function in a commit, however many parameters it has."""

MOST_COMMITS = 10
"""Each test runs at least with one of so many commits in a row."""

QUICK_SECONDS = 60.0
"""Processor time of `make quick`, without starting workers and importing tests."""

QUICK_FILE_SECONDS = 1.0
"""Processor time of the fastest function of a file up to which that runs in any case."""


@dataclass(frozen=True)
class Cost:
    """Processor time of a function, in seconds.

    Attributes:
        own: with one set of parameters.
        shared: of fixtures that it shares with other functions.
    """

    own: float = NOTED_SECONDS / 4
    shared: float = 0.0

    @property
    def alone(self) -> float:
        return self.own + self.shared


def function_of(item: pytest.Item) -> str:
    """Return the name of a test without its parameters."""
    return item.nodeid.split("[")[0]


def read_costs() -> dict[str, Cost]:
    lines = COSTS.read_text(encoding="utf-8").splitlines() if COSTS.exists() else []
    return {name: Cost(float(own), float(shared)) for name, own, shared in map(str.split, lines)}


def write_costs(measured: Mapping[str, Cost]) -> None:
    """Write what was measured, and the earlier costs of other functions that there still are."""
    costs = {name: each for name, each in read_costs().items() if is_there(name)} | {**measured}
    lines = [
        f"{name} {each.own:.2f} {each.shared:.2f}\n"
        for name, each in sorted(costs.items())
        if each.alone > NOTED_SECONDS
    ]
    COSTS.write_text("".join(lines), encoding="utf-8")


def is_there(name: str) -> bool:
    """Whether a file of tests defines a function."""
    file, _, function = name.partition("::")
    path = COSTS.parents[1] / file
    return path.exists() and f"def {function}(" in path.read_text(encoding="utf-8")


def commit_number() -> int:
    """Return the number of commits up to this one; where git does not know all, any number."""
    found = _git("rev-list", "--count", "HEAD")
    if _git("rev-parse", "--is-shallow-repository") == "true":
        return int(_git("rev-parse", "--short=7", "HEAD"), 16)
    return int(found or 0)


def _git(*words: str) -> str:
    line = ["git", "-C", str(Path(__file__).parent), *words]
    try:
        return subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def left_to_others(
    items: Sequence[pytest.Item], commit: int, costs: Mapping[str, Cost]
) -> list[pytest.Item]:
    """Return the tests of long functions that other commits run."""
    by_function: dict[str, list[pytest.Item]] = {}
    for item in items:
        by_function.setdefault(function_of(item), []).append(item)
    left = []
    for name, found in by_function.items():
        cycle = cycle_of(costs[name], len(found)) if name in costs else 1
        first = commit + zlib.crc32(name.encode())  # not all long ones with the same commit
        left += [item for number, item in enumerate(found) if (first + number) % cycle]
    return left


def cycle_of(cost: Cost, count: int) -> int:
    """Return in how many commits a function with so many sets of parameters runs with all."""
    return min(MOST_COMMITS, max(1, math.ceil(cost.own * count / MOST_SECONDS)))


def quick(items: Sequence[pytest.Item], costs: Mapping[str, Cost]) -> list[pytest.Item]:
    """Return the first test of each fast function, in their order."""
    first: dict[str, pytest.Item] = {}
    for item in items:
        first.setdefault(function_of(item), item)

    def cost(item: pytest.Item) -> float:
        return costs.get(function_of(item), Cost()).alone

    files, chosen, spent = set(), set(), 0.0
    by_cost = sorted(first.values(), key=cost)
    for item in by_cost:
        if item.path not in files and cost(item) <= QUICK_FILE_SECONDS:
            files.add(item.path)
            chosen.add(item)
            spent += cost(item)
    for item in by_cost:
        if item not in chosen and spent + cost(item) <= QUICK_SECONDS:
            chosen.add(item)
            spent += cost(item)
    return [item for item in first.values() if item in chosen]
