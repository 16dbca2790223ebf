# SPDX-License-Identifier: Apache-2.0
"""Which tests `make test` and `make quick` run, by the processor time that tests take.

`make test` spends `TEST_SECONDS`. So there is a limit for each function: one that takes longer runs
with some of its parameters, or with some commits only. Each commit chooses others; after
`MOST_COMMITS` commits all have run. `make quick` runs functions with their first parameters, the
fastest of each file first.
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

TEST_SECONDS = 1000.0
"""Processor time of the Python tests of `make test`, without starting and importing them."""

MOST_COMMITS = 10
"""Each test runs at least with one of so many commits in a row."""

QUICK_SECONDS = 75.0
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

    own: float = 0.06
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
    """Return the number of this commit; where git does not know all before it, any number.

    A merge counts as one commit, so that branches of ten commits do not leave tests out.
    """
    found = _git("rev-list", "--count", "--first-parent", "HEAD")
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
    cycles = cycles_of({name: len(found) for name, found in by_function.items()}, costs)
    left = []
    for name, found in by_function.items():
        first = commit + zlib.crc32(name.encode())  # not all long ones with the same commit
        left += [item for number, item in enumerate(found) if (first + number) % cycles[name]]
    return left


def cycles_of(counts: Mapping[str, int], costs: Mapping[str, Cost]) -> dict[str, int]:
    """Return in how many commits each function runs with all of its sets of parameters.

    Args:
        counts: the number of these sets of each function.
        costs: their costs; functions that are not there run with all sets.
    """
    whole = {name: costs.get(name, Cost()).own * count for name, count in counts.items()}
    limit = max([NOTED_SECONDS, *whole.values()])
    while True:
        cycles = {
            name: min(MOST_COMMITS, max(1, math.ceil(seconds / limit))) if name in costs else 1
            for name, seconds in whole.items()
        }
        spent = sum(seconds / cycles[name] for name, seconds in whole.items())
        if spent <= TEST_SECONDS or limit <= NOTED_SECONDS:
            return cycles
        limit *= 0.95


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
