# SPDX-License-Identifier: Apache-2.0
"""What `uma check` prints about what it has tried, and about what it has not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from umakit.cli.console import say

if TYPE_CHECKING:
    from umakit.testing.check import CheckReport
    from umakit.testing.check.cover import Cover, Covered

MOST_LINES = 8
"""Sentences about what has not been tried that are printed; --json has all."""


def print_coverage(report: CheckReport, values: bool) -> None:
    """Print what of each pattern has run, and the values that its predicate refuses.

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
    """Print what has not been tried, and how to try it."""
    sentences = report.incomplete
    say(f"incomplete: nothing is wrong in what ran, but {sentences[0]}")
    for sentence in sentences[1:MOST_LINES]:
        say(f"  {sentence}")
    if len(sentences) > MOST_LINES:
        say(f"  and {len(sentences) - MOST_LINES} more, which --json lists")
    if not report.unfinished and report.needed:
        say(f"  --draws {report.needed} has a layer with each")


def _summary(cover: Cover) -> str:
    ran = sum(len(covered.ran) for covered in cover.aspects)
    missing = sum(len(covered.missing) for covered in cover.aspects)
    of = f"{ran} of {ran + missing}" if missing else f"all {ran}"
    pairs = f"{len(cover.ran_pairs):,} pairs of kinds of values"
    array = f", of which {cover.rows} layers are a covering array" if cover.rows is not None else ""
    every = f" within {cover.singles} layers" if cover.singles is not None and not missing else ""
    return f"{of} values of {len(cover.aspects)} aspects ran{every}; {pairs} ran{array}"


def _counts(covered: Covered) -> str:
    return ", ".join(
        f"{covered.aspect.text(value)} {covered.ran[value]}"
        for value in covered.aspect.values
        if covered.ran[value]
    )


def _refused(covered: Covered) -> str:
    """Return the values of an aspect that the predicate refuses, with the reason of the first."""
    texts = "; ".join(covered.aspect.text(value) for value in covered.by_predicate)
    reason = next(iter(covered.by_predicate.values()))
    return f"refused by the predicate: {covered.aspect.name} {texts} ({reason})"
