# SPDX-License-Identifier: Apache-2.0
"""The result of a check: counts for each operator, and failures with their cases."""

from __future__ import annotations

import itertools
import math
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from umakit.testing.check.cases import Case, LayerSettings
from umakit.testing.check.cover import Cover
from umakit.testing.check.plan import Orders
from umakit.testing.programs.report import ProgramReport
from umakit.testing.registers import RegisterReport

REGISTERS = "registers"
"""Name of register failures, in place of a pattern's name."""

PROGRAMS = "varied programs"
"""The same of failures of varied programs."""

MISTAKE = "correct the map, or the driver"
"""Advice for a driver that violates its map."""


@dataclass(frozen=True)
class Failure:
    """A failure of a check.

    Attributes:
        pattern: name of the affected pattern.
        what: description in a sentence: layer, shape, first wrong element.
        case: case that fails; None if no layer is involved.
        fix: advice; may be empty.
        options: options of `uma check` that repeat a failure without a layer; may be empty.
        layers: number of failing layers that the case stands for.
    """

    pattern: str
    what: str
    case: Case | None = None
    fix: str = ""
    options: str = ""
    layers: int = 1

    def as_json(self) -> dict[str, Any]:
        return {
            "operator": self.pattern,
            "what": self.what,
            "case": None if self.case is None else str(self.case),
            "layers": None if self.case is None else self.layers,
            "fix": self.fix,
        }


@dataclass
class Counts:
    """Numbers of cases of one claimed operator.

    Attributes:
        drawn: all cases.
        ran: cases that ran on the accelerator.
        refused: cases that the accelerator refused.
        failed: cases that failed.
        not_examined: failed cases that no printed failure stands for.
        not_run: cases without a result, because other cases of their library stop the run or do not
            compile.
        does_not_fit: layers that are too large for the memory of the device.
    """

    drawn: int = 0
    ran: int = 0
    refused: int = 0
    failed: int = 0
    not_examined: int = 0
    not_run: int = 0
    does_not_fit: int = 0


@dataclass
class PredictedCycles:
    """A comparison of predicted with simulated cycles.

    Attributes:
        worst: case, predicted and simulated cycles of the layer with the largest relative
            difference; None without a difference.
    """

    layers: int = 0
    exact: int = 0
    worst: tuple[Case, int, int] | None = None

    def add(self, case: Case, predicted: int, simulated: int) -> None:
        self.layers += 1
        if predicted == simulated:
            self.exact += 1
        elif self.worst is None or _off(predicted, simulated) > _off(*self.worst[1:]):
            self.worst = (case, predicted, simulated)

    def as_json(self) -> dict[str, Any]:
        worst = None
        if self.worst is not None:
            case, predicted, simulated = self.worst
            worst = {"case": str(case), "predicted": predicted, "simulated": simulated}
        return {"layers": self.layers, "exact": self.exact, "worst": worst}


def _off(predicted: int, simulated: int) -> float:
    return abs(predicted - simulated) / max(simulated, 1)


@dataclass
class CheckReport:
    """The result of a check.

    Attributes:
        backend: name of the backend.
        seed: seed of the cases.
        operators: counts by name of the pattern.
        failures: failures in the order of discovery.
        seconds: processor time of the check, including compilers and simulators.
        cycles: comparison of predicted with simulated cycles; a difference is no failure.
        registers: comparison of the device's registers with their map; None if not done.
        programs: result of varied programs; None if none were wanted.
        covers: coverage by name of the pattern.
        orders: kinds of layers that have run directly after each other.
        unfinished: reason for missing layers of the plan, in two sentences without the last full
            stop; empty if all have run.
        needed: number of layers for every value and limit; 0 if none were drawn.
    """

    backend: str
    seed: int
    operators: dict[str, Counts] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0
    cycles: PredictedCycles = field(default_factory=PredictedCycles)
    registers: RegisterReport | None = None
    programs: ProgramReport | None = None
    covers: Mapping[str, Cover] = field(default_factory=dict)
    orders: Orders = field(default_factory=Orders)
    unfinished: str = ""
    needed: int = 0

    @property
    def passed(self) -> bool | None:
        """Whether all claims of the backend are right; None if not all claimed values have run."""
        if self.failures:
            return False
        return None if self.incomplete else True

    @property
    def verdict(self) -> str:
        """The verdict in one or two sentences: right, wrong or incomplete."""
        drawn, ran, failed, not_examined = (
            sum(getattr(each, name) for each in self.operators.values())
            for name in ("drawn", "ran", "failed", "not_examined")
        )
        if self.failures:
            count = len(self.failures)
            found = f"wrong: {self.backend} has {count} failure{'s' if count > 1 else ''}"
            found += f", in {failed:,} of {drawn:,} drawn cases" if failed else ""
            found += f" ({not_examined:,} not examined)" if not_examined else ""
            return f"{found}. {self.unfinished}." if self.unfinished else f"{found}."
        if self.unfinished:
            return f"incomplete: nothing is wrong in what ran, but {self.unfinished}."
        if self.incomplete:
            covered = [each for cover in self.covers.values() for each in cover.aspects]
            missing, known = (
                sum(len(getattr(each, name)) for each in covered)
                for name in ("missing", "accepted")
            )
            more = f" --draws {self.needed} runs each." if self.needed > drawn else ""
            return (
                f"incomplete: nothing is wrong in what ran, but {missing:,} of {known:,} values "
                f"have not run (--json names them).{more}"
            )
        if self.covers:
            return (
                f"{self.backend} computes right what its patterns accept "
                f"({ran:,} layers, every value, seed {self.seed})."
            )
        if self.operators or (self.registers is None and self.programs is None):
            return f"{self.backend} computes this right."
        return f"{self.backend} is right in what was compared."

    @property
    def incomplete(self) -> list[str]:
        """One sentence for each part of the check that has not run."""
        found = [self.unfinished] if self.unfinished else []
        for name, cover in self.covers.items():
            for covered in cover.aspects:
                if cover.has_any and covered.missing:
                    few = ", ".join(covered.aspect.text(value) for value in covered.missing)
                    found.append(f"{name}: no layer with {covered.aspect.name} {few} has run")
        return found

    @property
    def left_out(self) -> str:
        """Sentence about drawn layers that were not run, with the reason; empty if all were run."""
        counts = {name: each.not_run for name, each in self.operators.items() if each.not_run}
        if not counts:
            return ""
        drawn = sum(each.drawn for each in self.operators.values())
        names = ", ".join(f"{name} {count}" for name, count in counts.items())
        return (
            f"{sum(counts.values())} of {drawn} drawn layers were not run, because others of the"
            f" same library stop the run or do not compile: {names}"
        )

    def add_registers(self, found: RegisterReport) -> None:
        """Add the result of a register check, before other failures."""
        self.registers = found
        fix = f"change the device, or {found.map}"
        self.failures[:0] = [
            Failure(REGISTERS, each, fix="" if number else fix)
            for number, each in enumerate(found.differences)
        ]

    def add_programs(self, found: ProgramReport) -> None:
        self.programs = found
        if found.mistake:
            self.failures.append(Failure(PROGRAMS, found.mistake, None, MISTAKE))
        self.failures += [
            Failure(PROGRAMS, each.sentence, None, each.fix, each.options)
            for each in found.failures
        ]

    def as_json(self) -> dict[str, Any]:
        return {
            "backend": self.backend,
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            "passed": self.passed,
            "verdict": self.verdict,
            "registers": self.registers.as_json() if self.registers else None,
            "programs": self.programs.as_json() if self.programs else None,
            "operators": {name: vars(counts) for name, counts in self.operators.items()},
            "coverage": {name: cover.as_json() for name, cover in self.covers.items()},
            "orders": {"ran": len(self.orders.done), "possible": self.orders.possible},
            "incomplete": self.incomplete,
            "cycles": self.cycles.as_json() if self.cycles.layers else None,
            "failures": [failure.as_json() for failure in self.failures],
        }

    def as_junit(self) -> str:
        """Return the report as JUnit XML.

        There is a test case for the registers, for varied programs and for each claimed operator.
        """
        registers = [REGISTERS] if self.registers else []
        if self.programs is not None and not self.programs.not_run:
            registers.append(PROGRAMS)
        names = [*registers, *self.operators, *(each.pattern for each in self.failures)]
        suite = ElementTree.Element(
            "testsuite",
            name=f"uma check {self.backend}",
            tests=str(len(dict.fromkeys(names))),
            failures=str(len({each.pattern for each in self.failures})),
            time=f"{self.seconds:.1f}",
        )
        for name in dict.fromkeys(names):
            test = ElementTree.SubElement(suite, "testcase", classname=self.backend, name=name)
            found = [each for each in self.failures if each.pattern == name]
            if found:
                message = ElementTree.SubElement(test, "failure", message=found[0].what)
                message.text = "\n".join(
                    f"{each.what}\n{each.case or ''}\n{each.fix}".rstrip() for each in found
                )
            elif name in self.operators and self.operators[name].not_run:
                ElementTree.SubElement(test, "skipped", message=self.left_out)
            elif name in self.operators and self.incomplete:
                ElementTree.SubElement(test, "skipped", message="; ".join(self.incomplete))
        ElementTree.indent(suite)
        return ElementTree.tostring(suite, encoding="unicode") + "\n"


LEAST_SHARE = 0.9
"""Minimum share of failing layers among layers with a value that forms a group."""

LEAST_FAILING, MOST_CHANCE = 3, 0.05
"""Evidence for a value that failing layers share: at least so many of them, and at most this
probability that any of the values is shared as well if the failing layers are random ones."""


@dataclass(frozen=True)
class Group:
    """Failures of one pattern.

    Attributes:
        failures: the failures, single layers first.
        shared: the value that the failing layers share, in words; empty without evidence.
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
        right: cases without a failure.
    """
    alone = {each.pattern for each in failures if len(_layers(each)) == 1}
    own: dict[str, list[Failure]] = {}
    for failure in sorted(failures, key=lambda each: len(_layers(each)) > 1):
        layers = _layers(failure)
        if len(layers) == 1 or not alone & {layer.pattern for layer in layers}:
            own.setdefault(failure.pattern, []).append(failure)
    found = []
    for pattern, wrong in own.items():
        passed = [case for case in right if case.pattern == pattern]
        found += _groups(wrong, passed, covers.get(pattern))
    return found


def _layers(failure: Failure) -> tuple[LayerSettings, ...]:
    assert failure.case is not None
    return failure.case.layers


def _groups(left: list[Failure], right: Sequence[Case], cover: Cover | None) -> list[Group]:
    found = []
    if cover is not None and right:
        of_right = [_values(cover, case) for case in right]
        of_wrong = [_values(cover, each.case) for each in left if each.case is not None]
        pairs = list(zip(left, of_wrong, strict=True))
        while best := _shared([values for _, values in pairs], of_wrong, of_right):
            mine = tuple(each for each, values in pairs if best in values)
            pairs = [pair for pair in pairs if best not in pair[1]]
            found.append(Group(mine, _words(best, of_wrong, of_right)))
        left = [each for each, _ in pairs]
    return [*found, Group(tuple(left))] if left else found


def _words(shared: str, of_wrong: Sequence[set[str]], of_right: Sequence[set[str]]) -> str:
    """Return a sentence about a value that failing layers share; empty without evidence."""
    wrong, right = (sum(shared in values for values in each) for each in (of_wrong, of_right))
    # Of all layers, as many random ones as failed: how many of them have the value?
    failing, others = len(of_wrong), len(of_right)
    chance = sum(
        math.comb(failing, count) * math.comb(others, wrong + right - count)
        for count in range(wrong, min(wrong + right, failing) + 1)
    ) / math.comb(failing + others, wrong + right)
    tried = len(set().union(*of_wrong, *of_right))
    if wrong < LEAST_FAILING or chance * tried > MOST_CHANCE:
        return ""
    share = f"all {wrong}" if not right else f"{wrong} of {wrong + right}"
    rest = ", and no other" if wrong == failing and not right else ""
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
    best = max(shared, key=lambda pair: (pair[0], -in_right[pair[1]], pair[1]), default=None)
    return best and best[1]


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
