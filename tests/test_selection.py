# SPDX-License-Identifier: Apache-2.0
"""The choice of tests by their costs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import selection


def test_costs_are_those_of_tests() -> None:
    assert [name for name in selection.read_costs() if not selection.is_there(name)] == []


@dataclass(frozen=True)
class Item:
    """What `selection` reads of a test."""

    nodeid: str
    path: Path


def items_of(counts: dict[str, int]) -> list[Any]:
    return [
        Item(f"{name}[{number}]", Path(name.partition("::")[0]))
        for name, count in counts.items()
        for number in range(count)
    ]


def test_each_test_runs_with_one_of_ten_commits() -> None:
    limit = selection.MOST_SECONDS
    costs = {"a.py::long": selection.Cost(limit * 30), "a.py::many": selection.Cost(limit / 10)}
    items = items_of({"a.py::long": 1, "a.py::many": 40, "a.py::fast": 5})
    ran = [
        {item.nodeid for item in items}
        - {item.nodeid for item in selection.left_to_others(items, commit, costs)}
        for commit in range(500, 510)
    ]
    assert set.union(*ran) == {item.nodeid for item in items}
    assert [sum("long" in name for name in each) for each in ran].count(1) == 1
    assert {sum("many" in name for name in each) for each in ran} == {10}
    assert {sum("fast" in name for name in each) for each in ran} == {5}


def test_quick_runs_the_fastest_function_of_each_file_and_keeps_its_time() -> None:
    most = selection.QUICK_SECONDS
    costs = {
        "a.py::slow": selection.Cost(0.5, 0.4), "b.py::slower": selection.Cost(0.6),
        "b.py::slowest": selection.Cost(most), "c.py::slowest": selection.Cost(most),
    }  # fmt: skip
    items = items_of({**dict.fromkeys(costs, 3), **{f"d.py::{n}": 2 for n in range(3000)}})
    chosen = selection.quick(items, costs)
    names = {item.nodeid for item in chosen}
    assert len(names) == len(chosen) and all(name.endswith("[0]") for name in names)
    assert {"a.py::slow[0]", "b.py::slower[0]", "d.py::0[0]"} <= names
    assert not any("slowest" in name for name in names)
    spent = [costs.get(name[:-3], selection.Cost()).alone for name in names]
    assert most - 1 < sum(spent) <= most
