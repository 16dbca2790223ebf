# SPDX-License-Identifier: Apache-2.0
"""Bugs of data/*_bugs.toml are found by `uma check`; all of them by `make soak-bugs`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from planted_bugs import LISTS, Bug, all_bugs, unmodified

from umakit import find_backend
from umakit.testing import check_layer

BUGS = all_bugs("planted")
EVERY = all_bugs(*LISTS)
SHOWN = [bug for bug in EVERY if bug.case]


def test_every_bug_is_one_edit_of_a_file_and_all_kinds_are_there() -> None:
    assert {bug.name: bug.occurrences for bug in EVERY if bug.occurrences != 1} == {}
    assert len({bug.name for bug in EVERY}) == len(EVERY)
    assert [sum(bug.list == each for bug in EVERY) for each in LISTS] == [46, 30, 30]
    assert len({bug.kind for bug in BUGS}) == 13
    assert len({bug.backend for bug in BUGS}) == 5


@pytest.mark.parametrize("bug", SHOWN, ids=[bug.name for bug in SHOWN])
def test_a_planted_bug_is_named_by_operator_shape_and_element(bug: Bug, tmp_path: Path) -> None:
    assert check_layer(find_backend(str(unmodified(bug.backend))), bug.case).passed
    report = check_layer(find_backend(str(bug.planted(tmp_path))), bug.case)
    failure = report.failures[0]
    assert failure.pattern in bug.operators
    assert re.match(rf"{failure.pattern} of [\dx]+( and [\dx]+)?: ", failure.what)
    assert re.search(r"element \[[\d, ]+\] of the result [\dx]+ ", failure.what)
