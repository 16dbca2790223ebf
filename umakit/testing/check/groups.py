# SPDX-License-Identifier: Apache-2.0
"""Groups of failures with a common value. One failure of each group is reduced and reported."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from umakit.testing.check.cases import Case
from umakit.testing.check.cover import Cover
from umakit.testing.check.report import Failure

LEAST_SHARE = 0.9
"""Minimum share of failing layers among layers with a value that forms a group."""


@dataclass(frozen=True)
class Group:
    """Failures of one pattern.

    Attributes:
        failures: the failures, single layers first.
        shared: the value that the failing layers share, in words; empty if there is none.
    """

    failures: tuple[Failure, ...]
    shared: str = ""


def groups_of(
    failures: Sequence[Failure], right: Sequence[Case], covers: Mapping[str, Cover]
) -> list[Group]:
    """Return the failures of each pattern in groups.

    A chain is omitted if one of its layers' patterns fails alone, because the chain's other layer
    reads the wrong result.

    Args:
        failures: failures of a check.
        right: cases without a failure.
        covers: coverage by name of the pattern.
    """
    alone = {each.pattern for each in failures if not _is_chain(each)}
    own: dict[str, list[Failure]] = {}
    for failure in sorted(failures, key=_is_chain):
        layers = failure.case.layers if failure.case is not None else ()
        if not (_is_chain(failure) and alone & {layer.pattern for layer in layers}):
            own.setdefault(failure.pattern, []).append(failure)
    found = []
    for pattern, wrong in own.items():
        passed = [case for case in right if case.pattern == pattern]
        found += _groups(wrong, passed, covers.get(pattern))
    return found


def _groups(failures: list[Failure], right: Sequence[Case], cover: Cover | None) -> list[Group]:
    found = []
    left = [each for each in failures if each.case is not None]
    without_case = [each for each in failures if each.case is None]
    if cover is not None and right:
        of_right = [_values(cover, case) for case in right]
        of_wrong = {id(each): _values(cover, each.case) for each in left if each.case is not None}
        while best := _shared(
            [of_wrong[id(each)] for each in left], list(of_wrong.values()), of_right
        ):
            mine = [each for each in left if best in of_wrong[id(each)]]
            left = [each for each in left if best not in of_wrong[id(each)]]
            wrong = sum(best in values for values in of_wrong.values())
            fits = sum(best in values for values in of_right)
            found.append(Group(tuple(mine), _words(best, wrong, fits, len(of_wrong) - wrong)))
    if left or without_case:
        found.append(Group((*left, *without_case)))
    return found


def _words(shared: str, wrong: int, right: int, others: int) -> str:
    share = f"all {wrong}" if not right else f"{wrong} of {wrong + right}"
    rest = ", and no other" if not others and not right else ""
    return f"{share} layers with {shared} fail{rest}"


def _shared(
    left: Sequence[set[str]], wrong: Sequence[set[str]], right: Sequence[set[str]]
) -> str | None:
    in_left, in_wrong, in_right = (Counter(itertools.chain(*each)) for each in (left, wrong, right))
    shared = [
        (count, value)
        for value, count in in_left.items()
        if count > 1 and in_wrong[value] >= LEAST_SHARE * (in_wrong[value] + in_right[value])
    ]
    return max(shared, key=lambda pair: (pair[0], -in_right[pair[1]]))[1] if shared else None


def _values(cover: Cover, case: Case) -> set[str]:
    """Return the values of a case's last layer in words; for pairs, also each number."""
    drawing = cover.search.claim.drawing
    assert drawing is not None
    complete = case.layers[-1].complete(drawing)
    found = set()
    for covered in cover.aspects:
        aspect, value = covered.aspect, covered.aspect.of(complete)
        found.add(f"{aspect.name} {aspect.text(value)}")
        if len(value) == 2:
            found |= {f"{aspect.name} {value[0]} in rows", f"{aspect.name} {value[1]} in columns"}
    return found


def _is_chain(failure: Failure) -> bool:
    return failure.case is not None and len(failure.case.layers) > 1
