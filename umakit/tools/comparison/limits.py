# SPDX-License-Identifier: Apache-2.0
"""Limits on figures of a report, such as `cycles > +2%`: syntax and checks.

A limit states a failure. Amounts are compared exactly, without rounding.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

from umakit.errors import InputError
from umakit.text.spelling import closest_or_all
from umakit.tools.columns import view
from umakit.tools.comparison.compare import Comparison
from umakit.tools.comparison.figures import (
    FIGURES,
    MEASURED,
    PREDICTED,
    TIMES,
    WAIT,
    Figure,
    wait_figure,
    waits_of,
)
from umakit.tools.comparison.lines import Change
from umakit.tools.comparison.saved import Report

Kind = Literal["figure", "change", "percent"]
"""Kind of an amount: a figure, a change, or a change in percent of A."""

FORM = re.compile(
    r"(?P<layer>layer\s+)?(?P<figure>[a-z][a-z0-9 +]*?)\s*(?P<sign><=|>=|<|>)\s*"
    r"(?P<change>[+-]?)(?P<amount>[0-9][0-9,_]{0,17}(\.[0-9]{1,9})?)\s*(?P<unit>%|k|m)?",
)
SIGNS: dict[str, Callable[[Fraction, Fraction], bool]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le,
}  # fmt: skip
UNITS = {"k": 1024, "m": 1024**2}
EXAMPLES = "'cycles > +2%', 'arena > 64K' or 'layer cycles > +10%'"


@dataclass(frozen=True)
class Limit:
    """A condition of a figure that counts as failure.

    Attributes:
        is_of_layers: whether the limit applies to each layer, and not to the network.
        sign: a key of `SIGNS`.
        kind: kind of `amount`.
        amount: amount in the figure's unit, or in percent.
        source: file of the limit; empty for the command line.
    """

    text: str
    figure: Figure
    is_of_layers: bool
    sign: str
    kind: Kind
    amount: Fraction
    source: str = ""

    @property
    def is_relative(self) -> bool:
        """Whether the limit needs a report to compare with."""
        return self.kind != "figure"

    def is_exceeded(self, change: Change) -> bool:
        """Whether a figure exceeds the limit; needed values have to be known."""
        assert change.b is not None
        reached, limit = Fraction(change.b), self.amount
        if self.is_relative:
            assert change.a is not None
            added = self.amount * abs(change.a) / 100 if self.kind == "percent" else self.amount
            limit = change.a + added
        return SIGNS[self.sign](reached, limit)


@dataclass(frozen=True)
class Excess:
    """A figure beyond a limit.

    Attributes:
        layer: key of the layer; None for the network.
        change: values of the figure; A's is None without a comparison.
    """

    figure: str
    layer: str | None
    change: Change
    sentence: str

    def as_json(self) -> dict[str, Any]:
        change = view(self.change, "a b change percent")
        return view(self, "figure layer") | change | view(self, "sentence")


@dataclass(frozen=True)
class CheckedLimit:
    """A limit, and its excesses."""

    limit: Limit
    excesses: tuple[Excess, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "limit": self.limit.text,
            "source": self.limit.source,
            "exceeded": bool(self.excesses),
            "exceeded_by": [each.as_json() for each in self.excesses],
        }


def parse_limit(text: str, source: str = "") -> Limit:
    """Parse a limit.

    The form is `[layer] FIGURE > AMOUNT`, or with `>=`, `<` or `<=`. An amount with a sign is a
    change from A to B, one with a sign and `%` a share of A. K and M are 1,024 and 1,048,576 bytes.

    Args:
        source: file of the limit, for messages.
    """
    shown = text if len(text) <= 80 else f"{text[:80]}..."
    match = FORM.fullmatch(_plain(text))
    if match is None:
        what = f"limit {shown!r} is not of the form FIGURE > AMOUNT"
        raise InputError(what, where=source, fix=f"write {EXAMPLES}")
    figure = _figure(match["figure"].strip(), source)
    amount = Fraction(match["amount"].replace(",", "").replace("_", ""))
    unit, sign = match["unit"], match["change"]
    if unit == "%" and not sign:
        what = f"limit {shown!r} has a share without a sign"
        raise InputError(what, where=source, fix="write +2% for two percent more than A")
    if unit in UNITS and figure.unit != "B":
        what = f"limit {shown!r}: K and M are of bytes, which {figure.name} are not"
        raise InputError(what, where=source, fix="write all digits")
    if match["layer"] and figure.of_step is None:
        of_layers = ", ".join(each.name for each in FIGURES if each.of_step is not None)
        what = f"limit {shown!r}: layers have no {figure.name}"
        raise InputError(what, where=source, fix=f"limit one of {of_layers}")
    kind: Kind = "percent" if unit == "%" else "change" if sign else "figure"
    amount *= UNITS.get(unit, 1) * (-1 if sign == "-" else 1)
    return Limit(text, figure, bool(match["layer"]), match["sign"], kind, amount, source)


def check_limits(
    limits: Sequence[Limit], report: Report, comparison: Comparison | None
) -> list[CheckedLimit]:
    """Return each limit with its excesses.

    An upper limit on a figure of accelerators alone is exceeded if a layer moved to the CPU from A
    to B, because the figure falls then. Relative limits of layers also apply to layers that only A
    has on an accelerator.

    Args:
        comparison: comparison of an earlier report with this report as B; None without one.
    """
    return [_checked(limit, report, comparison) for limit in limits]


def _checked(limit: Limit, report: Report, comparison: Comparison | None) -> CheckedLimit:
    if limit.is_relative and comparison is None:
        fix = 'add --compare A B, or name a saved report in the budget: report = "FILE"'
        raise InputError(f"the limit {limit.text!r} needs a report to compare with",
                         where=limit.source, fix=fix)  # fmt: skip
    found = comparison or Comparison(report, report)
    if limit.figure.name.startswith(WAIT):
        limit = _with_wait(limit, found)
    excesses = _of_layers(limit, found) if limit.is_of_layers else _of_network(limit, found)
    if comparison is None:
        excesses = [_alone(limit, each) for each in excesses]
    return CheckedLimit(limit, tuple(excesses))


def _with_wait(limit: Limit, comparison: Comparison) -> Limit:
    """Return a limit on a wait with the engine's name as in a report."""
    known = {_plain(each.name): each for each in waits_of(comparison.a, comparison.b)}
    if limit.figure.name not in known:
        fix = closest_or_all(limit.figure.name, list(known), "waits")
        what = f"limit {limit.text!r}: nothing has cycles of {limit.figure.name!r}"
        raise InputError(what, where=limit.source, fix=fix)
    return replace(limit, figure=known[limit.figure.name])


def _plain(text: str) -> str:
    """Return a text in lower case, with one blank before each word."""
    return re.sub(r"[\s_-]+(?=[a-z])", " ", text.strip().lower())


def _of_network(limit: Limit, comparison: Comparison) -> list[Excess]:
    compared = comparison.compared(limit.figure)
    moved = [line.key for line in comparison.moved_to_cpu]
    if compared.b is None or (limit.is_relative and compared.unknown):
        raise _unknown(limit, compared.unknown if limit.is_relative else limit.figure.unknown[0])
    if _is_hidden(limit) and moved:
        return [_excess(limit, None, compared, moved)]
    return [_excess(limit, None, compared)] if limit.is_exceeded(compared) else []


def _of_layers(limit: Limit, comparison: Comparison) -> list[Excess]:
    excesses = []
    for line in comparison.lines:
        change = line.of(limit.figure)
        if not line.b or (limit.is_relative and not line.a):
            continue
        if _is_hidden(limit) and line.move == "to the CPU":
            excesses.append(_excess(limit, line.key, change, [line.key]))
            continue
        if _is_hidden(limit) and limit.is_relative and line.move == "from the CPU":
            continue
        if change.b is None or (limit.is_relative and change.a is None):
            raise _unknown(limit, f"layer {line.key}: {limit.figure.unknown[0]}")
        if limit.is_exceeded(change):
            excesses.append(_excess(limit, line.key, change))
    return excesses


def _is_hidden(limit: Limit) -> bool:
    """Whether moving a layer to the CPU would seem to help to keep a limit."""
    return limit.figure.only_accelerators and limit.sign in (">", ">=")


def _excess(limit: Limit, layer: str | None, change: Change, moved: Sequence[str] = ()) -> Excess:
    """Return the excess of a limit, also of one hidden by layers that moved to the CPU."""
    name = limit.figure.name if layer is None else f"{limit.figure.name} of {layer}"
    if moved:
        who = ", ".join(moved) if layer is None else "it"
        name += f": {who} moved to the CPU, which this figure does not count"
    sentence = f"{name}: {_known(change.a)} in A"
    if layer is None or not moved:
        sentence += f", {_known(change.b)} in B"
    if change.change is not None and not moved:
        share = _share(limit, change)
        sentence += f", {change.change:+,}{share}"
    return Excess(limit.figure.name, layer, change, f"{sentence}; the limit is {limit.text!r}")


def _share(limit: Limit, change: Change) -> str:
    """Return a change as a share of A, with enough digits to show the excess."""
    if change.change is None or not change.a:
        return ""
    exact = Fraction(100 * change.change, change.a)
    for digits in range(2, 12):
        text = f"{float(exact):+,.{digits}f}"
        shown = Fraction(text.replace(",", ""))
        if limit.kind != "percent" or SIGNS[limit.sign](shown, limit.amount):
            return f" ({text} %)"
    return ""


def _known(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _alone(limit: Limit, excess: Excess) -> Excess:
    name = excess.figure if excess.layer is None else f"{excess.figure} of {excess.layer}"
    sentence = f"{name}: {excess.change.b:,}; the limit is {limit.text!r}"
    return Excess(excess.figure, excess.layer, Change(None, excess.change.b), sentence)


def _unknown(limit: Limit, why: str) -> InputError:
    what = f"the limit {limit.text!r} is of a figure that is not known: {why}"
    return InputError(what, where=limit.source, fix=limit.figure.unknown[1])


def _figure(name: str, source: str) -> Figure:
    if name.startswith(WAIT):
        return wait_figure(name.removeprefix(WAIT))
    names = {figure.name: figure for figure in FIGURES}
    if name in names:
        return names[name]
    if name in [figure.name for figure in TIMES]:
        what = f"a limit on {name} would hold or not by what else the machine does"
        fix = "limit 'driver instructions', which --device qemu-cortex-m4 counts, or 'cpu steps'"
        raise InputError(what, where=source, fix=fix)
    fix = closest_or_all(name, list(names), "figures")
    raise InputError(f"there is no figure {name!r} to limit", where=source, fix=fix)


def todays_limits(report: Report) -> Iterator[str]:
    """Yield limits that a report keeps: sizes unchanged, cycles with some margin."""
    cycles = next((each for each in (MEASURED, PREDICTED) if each.of(report) is not None), None)
    if cycles is not None:
        yield f"{cycles.name} > +2%"
        yield f"layer {cycles.name} > +10%"
    sizes = ("bytes", "cpu steps", "arena", "constants", "scratchpad", "code", "stack")
    named = {figure.name: figure for figure in FIGURES}
    for name in sizes:
        value = named[name].of(report)
        if value is not None:
            yield f"{name} > {value}"
    yield f"offloaded macs < {report.offloaded_macs}"
