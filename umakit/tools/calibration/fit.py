# SPDX-License-Identifier: Apache-2.0
"""Fitting a sum of terms to measured cycles.

A term is a coefficient times counts, `max(ceil_div(size, part), least)`, at most one of each size.
The coefficients minimize the squares of relative deviations. Parts are searched one size at a time
until no other part is better, then two sizes at a time. If the sum is exact for every tile,
coefficients are rounded to whole numbers where the sum stays exact, and unneeded terms are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from math import log

import numpy as np
import numpy.typing as npt

from umakit.machine.calibration import Count, Formula, Term

Sizes = Mapping[str, int]
Counts = dict[str, tuple[Count, ...]]
"""The counts of each size that terms may have."""

Floats = npt.NDArray[np.float64]

JOB_SIZES: tuple[tuple[str, ...], ...] = (
    ("described",),
    ("macs",),
    ("m", "n", "k"),
    ("rows", "columns", "n", "k"),
    ("m", "n", "window", "input_channels"),
    ("rows", "columns", "n", "window", "input_channels"),
    ("described", "m", "n", "k"),
    ("m", "n", "k", "first", "last"),
    ("described", "first", "last"),
)
"""Sizes that the cycles of a job are fitted with, the simplest first."""

COPY_SIZES: tuple[tuple[str, ...], ...] = (
    ("described",),
    ("lines", "row_bytes"),
    ("lines", "bytes"),
    ("planes", "rows", "row_bytes"),
    ("described", "lines", "row_bytes"),
)
"""The same for copies."""

PARTS = (*range(1, 33), 36, 40, 48, 56, 64, 80, 96, 112, 128, 192, 256, 512, 1024)
"""Parts that are tried, besides the figures of the machine."""

LIKELY = (1, 2, 4, 8, 16, 32, 64)
"""Parts and least counts that are tried for two sizes at a time."""

ROUNDS = 4
"""Maximum number of times that the part of each size is looked for."""

MOST_SECOND_COUNTS = 2
"""Maximum number of sizes that have two counts."""

BETTER = 0.9
"""A more complicated fit is taken if its deviation is below this fraction of the simpler fit's."""

CLOSE = 1e-6
"""Relative deviation of a sum that is right, by the precision of floating point."""

FEW_TERMS = 3
"""The search for simpler formulas ends once a formula of this many terms is exact."""

TILES_PER_TERM = 2
"""Least number of tiles for each coefficient."""

STEPS = (1, 2, 4, 8, 16, 32, 64)
"""Denominators of coefficients that are tried."""


@dataclass(frozen=True)
class _Fit:
    counts: Counts
    deviation: float
    is_exact: bool = False


def fitted(
    samples: Sequence[tuple[Sizes, int]],
    choices: Sequence[tuple[str, ...]],
    figures: Sequence[int] = (),
) -> Formula:
    """Return the simplest formula among the best fits; `choices` of sizes begin with the
    simplest."""
    cycles = {each for _, each in samples}
    if len(cycles) == 1:
        return Formula((Term(cycles.pop()),))
    parts = sorted({*PARTS, *(each for each in figures if each > 0)})
    best: tuple[tuple[bool, float], Formula] | None = None
    for names in choices:
        search = _Search(samples, names, parts)
        search.run()
        formula, deviation = search.formula()
        terms = len(formula.terms)
        # Bayesian information criterion: each coefficient has a price. An exact fit with few
        # coefficients is no accident; one with many may be, if tiles vary too little.
        score = len(samples) * log(deviation) + terms * log(len(samples))
        key = not search.found.is_exact, float(terms) if search.found.is_exact else score
        if search.found.is_exact and terms <= FEW_TERMS:
            return formula
        if best is None or key < best[0]:
            best = key, formula
    assert best is not None
    return best[1]


class _Search:
    def __init__(
        self, samples: Sequence[tuple[Sizes, int]], names: Sequence[str], parts: Sequence[int]
    ) -> None:
        self._samples = samples
        self._cycles = np.array([cycles for _, cycles in samples], np.float64)
        self._weights = 1 / np.maximum(self._cycles, 1)
        self._sizes = {
            name: np.array([sizes[name] for sizes, _ in samples], np.int64) for name in names
        }
        self._parts = parts
        self._columns: dict[tuple[Count, ...], Floats] = {}
        varying = [name for name, values in self._sizes.items() if len(set(values.tolist())) > 1]
        self.found = self._tried({name: (Count(name),) for name in varying})  # type: ignore[arg-type]

    def run(self) -> None:
        """Look for the counts of each size, of two sizes, and for second counts of a size."""
        self._refine()
        self._take_best(self._other_pairs(), 1 - 1e-9)
        self._refine()
        for _ in range(MOST_SECOND_COUNTS):
            before = self.found
            self._take_best(self._second_counts(), BETTER)
            if self.found is before:
                return
            self._refine()

    def _refine(self) -> None:
        for _ in range(ROUNDS):
            before = self.found
            for name in tuple(before.counts):
                if name != "described":
                    self._take_best(self._other_counts(name), 1 - 1e-9)
            if self.found is before or self.found.is_exact:
                return

    def _take_best(self, candidates: Iterator[Counts], ratio: float) -> None:
        if self.found.is_exact:
            return
        best, limit = self.found, self.found.deviation * ratio
        for counts in candidates:
            fit = self._tried(counts)
            if fit.deviation < min(best.deviation, limit):
                best = fit
        self.found = best

    def _other_counts(self, name: str) -> Iterator[Counts]:
        sizes = self._sizes[name]
        largest = int(sizes.max())
        for number, count in enumerate(self.found.counts[name]):
            for part in self._parts:
                if part < largest:
                    yield self._with(name, number, replace(count, part=part, least=0))
            for part in {1, count.part}:
                found = -(-sizes // part)
                for least in sorted({*found.tolist(), *self._parts}):
                    if int(found.min()) < least < int(found.max()):
                        yield self._with(name, number, replace(count, part=part, least=least))

    def _other_pairs(self) -> Iterator[Counts]:
        names = [name for name in self.found.counts if name != "described"]
        for one, other in combinations(names, 2):
            for first, second in product(self._likely(one), self._likely(other)):
                yield {**self.found.counts, one: (first,), other: (second,)}

    def _likely(self, name: str) -> list[Count]:
        size, largest = self.found.counts[name][0].size, int(self._sizes[name].max())
        parts = [Count(size, part) for part in LIKELY if part < largest]
        return parts + [Count(size, 1, least) for least in LIKELY[1:] if least < largest]

    def _second_counts(self) -> Iterator[Counts]:
        for name, counts in self.found.counts.items():
            if len(counts) == 1 and name != "described":
                for part in self._parts:
                    if part < int(self._sizes[name].max()) and part != counts[0].part:
                        yield {**self.found.counts, name: (*counts, Count(counts[0].size, part))}

    def _with(self, name: str, number: int, count: Count) -> Counts:
        counts = list(self.found.counts[name])
        counts[number] = count
        return {**self.found.counts, name: tuple(counts)}

    # --- coefficients -----------------------------------------------------------------------------

    def _column(self, counts: tuple[Count, ...]) -> Floats:
        """Return the product of counts for each sample, cached: candidates share most counts."""
        if counts not in self._columns:
            if len(counts) == 1:
                (count,) = counts
                sizes = self._sizes[count.size]
                column = np.maximum(-(-sizes // count.part), count.least).astype(np.float64)
            else:
                column = np.ones(len(self._cycles))
                for count in counts:
                    column = column * self._column((count,))
            self._columns[counts] = column
        return self._columns[counts]

    def _matrix(self, terms: Sequence[tuple[Count, ...]]) -> Floats:
        return np.stack([self._column(each) for each in terms], axis=1)

    def _tried(self, counts: Counts) -> _Fit:
        terms = list(_products(counts))
        if len(terms) * TILES_PER_TERM > len(self._cycles):
            return _Fit(counts, float("inf"))
        columns = self._matrix(terms)
        relative = self._relative(columns, self._least_squares(columns))
        rms = float(np.sqrt(np.mean(relative**2)))
        return _Fit(counts, max(rms, 1e-12), bool(np.abs(relative).max() < CLOSE))

    def _solved(self, terms: Sequence[tuple[Count, ...]]) -> Floats:
        return self._least_squares(self._matrix(terms))

    def _deviations(self, terms: Sequence[tuple[Count, ...]], coefficients: Floats) -> Floats:
        return self._relative(self._matrix(terms), coefficients)

    def _least_squares(self, columns: Floats) -> Floats:
        scaled = columns * self._weights[:, None]
        norms = np.linalg.norm(scaled, axis=0)
        found = np.linalg.lstsq(scaled / norms, self._cycles * self._weights, rcond=1e-10)[0]
        coefficients: Floats = found / norms
        return coefficients

    def _relative(self, columns: Floats, coefficients: Floats) -> Floats:
        relative: Floats = (columns @ coefficients - self._cycles) * self._weights
        return relative

    def formula(self) -> tuple[Formula, float]:
        """Return the best formula without unneeded terms, and its relative error.

        The error is the root mean square of the relative deviations.
        """
        everything = list(_products(self.found.counts))
        chosen = [self._needed(everything)]
        # Forward selection may end with fewer terms than backward elimination.
        added = self._added(everything)
        if added:
            chosen.append(self._needed(added))
        fewest = min(chosen, key=len)
        terms = sorted(fewest, key=everything.index)
        coefficients = self._whole(terms, self._solved(terms))
        found = Formula(
            tuple(
                Term(cycles, term)
                for cycles, term in zip(coefficients, terms, strict=True)
                if cycles
            )
        )
        return found, self._rms(terms)

    def _rms(self, terms: Sequence[tuple[Count, ...]]) -> float:
        relative = self._deviations(terms, self._solved(terms))
        return max(float(np.sqrt(np.mean(relative**2))), 1e-12)

    def _is_good(self, terms: Sequence[tuple[Count, ...]]) -> bool:
        if not terms:
            return False
        if self.found.is_exact:
            return bool(np.abs(self._deviations(terms, self._solved(terms))).max() < CLOSE)
        return self._rms(terms) < 1.01 * self.found.deviation

    def _needed(self, terms: Sequence[tuple[Count, ...]]) -> list[tuple[Count, ...]]:
        """Eliminate terms one by one, those with most counts first."""
        left = list(terms)
        for term in sorted(terms, key=len, reverse=True):
            fewer = [each for each in left if each is not term]
            if self._is_good(fewer):
                left = fewer
        return left

    def _added(self, terms: Sequence[tuple[Count, ...]]) -> list[tuple[Count, ...]]:
        """Select terms one by one, each time the best one."""
        chosen: list[tuple[Count, ...]] = []
        left = list(terms)
        while left:
            best = min(left, key=lambda term: self._rms([*chosen, term]))
            chosen.append(best)
            left = [each for each in left if each is not best]
            if self._is_good(chosen):
                return chosen
        return []

    def _whole(self, terms: Sequence[tuple[Count, ...]], coefficients: Floats) -> list[int | float]:
        """Return coefficients as whole numbers or simple fractions if the sum stays exact."""
        for step in STEPS if self.found.is_exact else ():
            rounded = np.round(coefficients * step) / step
            if np.abs(self._deviations(terms, rounded)).max() < CLOSE:
                return [_number(float(each)) for each in rounded]
        return [_number(float(f"{each:.6g}")) for each in coefficients]


def _number(value: float) -> int | float:
    return int(value) if value.is_integer() else value


def _products(counts: Counts) -> Iterator[tuple[Count, ...]]:
    """Yield all products of at most one count of each size, the constant first."""
    for chosen in product(*((None, *each) for each in counts.values())):
        yield tuple(count for count in chosen if count is not None)
