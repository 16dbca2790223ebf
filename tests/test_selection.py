# SPDX-License-Identifier: Apache-2.0
"""The choice of tests by their costs."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
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
    most = selection.TEST_SECONDS
    costs = {"a.py::long": selection.Cost(most), "a.py::many": selection.Cost(most / 20)}
    items = items_of({"a.py::long": 1, "a.py::many": 40, "a.py::fast": 5})
    ran = [
        {item.nodeid for item in items}
        - {item.nodeid for item in selection.left_to_others(items, commit, costs)}
        for commit in range(500, 510)
    ]
    assert set.union(*ran) == {item.nodeid for item in items}
    assert 1 <= sum("a.py::long[0]" in each for each in ran) <= 5
    many = [sum("many" in name for name in each) for each in ran]
    assert max(many) - min(many) <= 1 and max(many) <= 10
    assert {sum("fast" in name for name in each) for each in ran} == {5}


def test_commits_keep_their_time_whatever_tests_cost() -> None:
    for seed in range(20):
        random = Random(seed)
        names = [f"a.py::{number}" for number in range(500)]
        costs = {name: selection.Cost(random.lognormvariate(-1, 1.2)) for name in names}
        costs[names[0]] = selection.Cost(0.0, 3.0)  # all of it is a fixture's
        counts = {name: random.choice((1, 1, 1, 2, 5, 30)) for name in names}
        cycles = selection.cycles_of(counts, costs)
        per_commit = [counts[name] * costs[name].own / cycles[name] for name in names]
        assert 0.8 * selection.TEST_SECONDS <= sum(per_commit) <= selection.TEST_SECONDS
        longest = max(counts, key=lambda name: counts[name] * costs[name].own)
        assert cycles[longest] == max(cycles.values())
    # A test that is chosen alone, and whose time is that of a fixture.
    assert selection.cycles_of({names[0]: 1}, costs) == {names[0]: 1}


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


@pytest.mark.parametrize("package", ["torch", "torchao"])
def test_every_file_of_tests_is_collected_without_an_optional_package(package: str) -> None:
    folder = Path(__file__).parent
    files = [path for path in folder.glob("test_*.py") if package in path.read_text()]
    assert files
    collect = (
        f"import sys; sys.modules[{package!r}] = None; import pytest; "
        "sys.exit(pytest.main(['--collect-only', '-q', '-p', 'no:cacheprovider', *sys.argv[1:]]))"
    )
    command = [sys.executable, "-c", collect, *map(str, files)]
    environment = {name: text for name, text in os.environ.items() if name != "UMAKIT_CI"}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=folder.parent, env=environment
    )
    assert done.returncode == 0, done.stdout[-2000:]
