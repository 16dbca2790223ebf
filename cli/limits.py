# SPDX-License-Identifier: Apache-2.0
"""`--fail-if`, `--budget`, `--write-budget` and `--size` of `uma report`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from umakit.cli.console import say

from umakit.errors import InputError

if TYPE_CHECKING:
    from umakit.tools.comparison.compare import Comparison
    from umakit.tools.comparison.limits import CheckedLimit, Limit
    from umakit.tools.comparison.saved import Report

FailIfOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-if",
        help='A limit, such as "arena > 64K", or relative to A "cycles > +2%" and "layer cycles > '
        '+10%"; exit code 1 beyond it; repeat it for several.',
        show_default=False,
    ),
]
BudgetOption = Annotated[
    Path | None,
    typer.Option(
        "--budget",
        help="A file (TOML) of such limits, and of the saved report that they are relative to.",
        show_default=False,
    ),
]
WriteBudgetOption = Annotated[
    Path | None,
    typer.Option(
        "--write-budget",
        help="Where to write a budget from today's figures, with the report beside it; in a budget "
        "that exists the amounts without a sign are written anew.",
        show_default=False,
    ),
]
SizeOption = Annotated[
    bool,
    typer.Option("--size", help="Also measure code and stack, as `uma size` does on this machine."),
]


@dataclass
class Checks:
    """The limits of a report, and the report to compare with.

    Attributes:
        earlier: the saved report of a budget; None without one.
        read: files that the limits were read from.
        checked: checked limits with their excesses; empty before `check_limits`.
    """

    limits: list[Limit]
    earlier: Report | None = None
    read: list[Path] = field(default_factory=list)
    checked: list[CheckedLimit] = field(default_factory=list)

    def check_limits(self, figures: Mapping[str, Any]) -> None:
        """Check the limits against a report.

        Args:
            figures: the report as JSON.
        """
        if not self.limits:
            return
        from umakit.tools.comparison.compare import Comparison
        from umakit.tools.comparison.limits import check_limits
        from umakit.tools.comparison.reading import report_of

        report = report_of(figures)
        comparison = None if self.earlier is None else Comparison(self.earlier, report)
        self.checked = check_limits(self.limits, report, comparison)

    def check_comparison(self, comparison: Comparison) -> None:
        """Check the limits against B of a comparison."""
        from umakit.tools.comparison.limits import check_limits

        self.checked = check_limits(self.limits, comparison.b, comparison)

    def as_json(self) -> dict[str, Any]:
        """Return the limits and their excesses; nothing without limits."""
        if not self.limits:
            return {}
        kept = not any(each.excesses for each in self.checked)
        return {"within_limits": kept, "limits": [each.as_json() for each in self.checked]}

    def said(self, as_json: bool) -> int:
        """Print a sentence for each figure beyond a limit, and return the exit code."""
        excesses = [excess for each in self.checked for excess in each.excesses]
        for excess in excesses:
            say(f"beyond a limit: {excess.sentence}", error=as_json)
        if self.limits and not excesses and not as_json:
            count = len(self.limits)
            say("within the limit" if count == 1 else f"within all {count:,} limits")
        return 1 if excesses else 0


def read_checks(fail_if: list[str] | None, budget: Path | None, *, compares: bool) -> Checks:
    """Return the limits of the command line and of a budget.

    Args:
        compares: whether a given A replaces the budget's report.
    """
    if not fail_if and budget is None:
        return Checks([])
    from umakit.tools.comparison.budget import read_budget
    from umakit.tools.comparison.limits import parse_limit
    from umakit.tools.comparison.reading import read_report

    checks = Checks([parse_limit(text) for text in fail_if or []])
    if budget is None:
        return checks
    found = read_budget(budget)
    checks.limits += found.limits
    checks.read.append(budget)
    if found.report is not None and not compares:
        checks.read.append(found.report)
        checks.earlier = read_report(found.report)
    return checks


def check_options(
    model: Path | None,
    compare: object,
    budget: Path | None,
    write_budget: Path | None,
    trace: Path | None,
) -> None:
    if model is None and compare is None:
        raise InputError("MODEL is missing", fix="name a model, or two reports: --compare A B")
    for name, value in {"--write-budget": write_budget, "--trace": trace}.items():
        if compare is not None and value is not None:
            raise InputError(f"{name} is of one network, and --compare has two",
                             fix=f"leave {name} out, or report the network alone")  # fmt: skip
    if budget is not None and write_budget is not None:
        raise InputError("a budget is either checked or written",
                         fix="leave --budget or --write-budget out")  # fmt: skip


def size_text(size: Mapping[str, Any]) -> str:
    """Return a line with the sizes from `--size`."""
    stack = "unknown" if size["stack_bytes"] is None else f"{size['stack_bytes']:,} B"
    return (
        f"code {size['text_bytes']:,} B, variables {size['static_bytes']:,} B, stack {stack}, "
        f"compiled with {size['compiler']}"
    )
