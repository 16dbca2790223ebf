# SPDX-License-Identifier: Apache-2.0
"""The coverage that `uma check` prints: values that ran, and values that have not run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from umakit.cli.console import say

if TYPE_CHECKING:
    from umakit.testing.check import CheckReport
    from umakit.testing.check.aspects import Value
    from umakit.testing.check.cover import Cover, Covered

MOST_LINES = 8
"""Maximum number of printed sentences about values that have not run; --json has all."""


def print_coverage(report: CheckReport, values: bool) -> None:
    """Print the coverage of each pattern, and the values that its predicate refuses.

    Args:
        report: the report.
        values: whether to print how many layers ran with each value.
    """
    for name, cover in report.covers.items():
        if not cover.has_any:
            continue
        say(f"{name}: {_summary(cover)}")
        for covered in cover.aspects:
            if values:
                say(f"  {covered.aspect.name}: {_counts(covered)}")
            if covered.by_predicate:
                say(f"  {_refused(covered)}")
    if report.covers and report.orders.possible:
        done, possible = len(report.orders.done), report.orders.possible
        pairs = f"{done} of {possible} pairs of kinds of layers"
        say(f"orders: {pairs} ran one directly behind the other")


def print_incomplete(report: CheckReport) -> None:
    """Print the values that have not run, and how to run them."""
    sentences = report.incomplete
    say(f"incomplete: nothing is wrong in what ran, but {sentences[0]}")
    for sentence in sentences[1:MOST_LINES]:
        say(f"  {sentence}")
    if len(sentences) > MOST_LINES:
        say(f"  and {len(sentences) - MOST_LINES} more, which --json lists")
    if not report.unfinished and report.needed:
        say(f"  --draws {report.needed} draws a layer with each value of all patterns")


def _summary(cover: Cover) -> str:
    known = sum(len(covered.accepted) for covered in cover.aspects)
    missing = sum(len(covered.missing) for covered in cover.aspects)
    of = f"{known - missing} of {known}" if missing else f"all {known}"
    found, rows = cover.pairs, cover.pairs.rows
    pairs = f"{len(found.ran):,} pairs of kinds of values ran"
    array = "" if rows is None else f", of which {rows} layers are a covering array"
    has_all = cover.singles is not None and not missing
    every = f" in its first {cover.singles} layers" if has_all else ""
    return f"{of} values of {len(cover.aspects)} aspects ran{every}; {pairs}{array}"


def _counts(covered: Covered) -> str:
    return ", ".join(
        f"{covered.aspect.text(value)} {covered.ran[value]}"
        for value in sorted(covered.ran, key=_in_order)
    )


def _in_order(value: Value) -> tuple[tuple[bool, Any], ...]:
    """Return a key that sorts numbers by size, and words, in front of numbers, by letters."""
    return tuple((isinstance(each, int), each) for each in value)


def _refused(covered: Covered) -> str:
    """Return the values of an aspect that the predicate refuses, with the reason of the first."""
    texts = "; ".join(covered.aspect.text(value) for value in covered.by_predicate)
    reason = next(iter(covered.by_predicate.values()))
    return f"refused by the predicate: {covered.aspect.name} {texts} ({reason})"
