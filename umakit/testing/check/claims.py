# SPDX-License-Identifier: Apache-2.0
"""The claims of a backend: one claim for each registered pattern."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from umakit.errors import InputError
from umakit.operators import registry
from umakit.operators.drawing import Drawing, Drawn, NotDrawable, Tensor
from umakit.operators.drawings.relax import drawing_of
from umakit.operators.offload.matching import NotReadable
from umakit.operators.offload.pattern import OperatorPattern
from umakit.partition.partitioner import partition
from umakit.partition.report import CPU
from umakit.registration.backend import Backend
from umakit.registration.code import answer_of
from umakit.registration.registered import Pattern
from umakit.testing.check.cases import Case, LayerSettings


@dataclass(frozen=True)
class Claim:
    """A registered pattern of a backend; `drawing` is None if its layers cannot be drawn."""

    name: str
    pattern: Pattern
    drawing: Drawing | None
    backend: Backend

    @property
    def how_to_draw(self) -> str:
        """Advice on making layers drawable, with file and line."""
        return (
            f"in {self.pattern.place}, give _register_pattern({self.name!r}, ...) the argument "
            "drawing=patterns.drawn(LAYER, SETTING=(FIRST, ANOTHER)), see docs/check.md; or give a "
            "network that has the operator to uma diff"
        )

    @property
    def undrawn(self) -> str:
        """Sentence for a claim whose layers cannot be drawn."""
        return f"layers of {self.name} cannot be drawn"

    def layer(self, settings: LayerSettings, data: Tensor | None = None) -> Drawn:
        """Return a layer, which reads the previous layer's result in a chain; as `layers_of`."""
        assert self.drawing is not None
        if data is not None and not data.shape:
            raise NotDrawable("a tensor without axes")
        random = np.random.default_rng(settings.seed)
        complete = settings.complete(self.drawing)
        try:
            return self.drawing.build(complete, data, random)
        except (ValueError, ZeroDivisionError, OverflowError) as error:
            raise NotDrawable(str(error)) from None

    def judged(self, drawn: Drawn) -> tuple[bool | str, int]:
        """Return whether the claim accepts a layer, or the reason of a refusal, and a number.

        The number is that of violated constraints of the pattern. The predicate does not count as
        a constraint, and a pattern of TVM has none.
        """
        pattern, module = self.pattern.predicate, drawn.module()
        if not isinstance(pattern, OperatorPattern):
            found = partition(module, [self.backend], keep_layout=True).report.placements
            refused = [row.reason or "no pattern matches" for row in found if row.where == CPU]
            return (refused[0] if refused else True), 0
        match = pattern.match_of(module["main"])
        if match is None:
            return "no pattern matches", 1
        try:
            layer = pattern.composite_of(match)
        except NotReadable as reason:
            return str(reason), 1
        answer = answer_of(self.backend, self.pattern, lambda: pattern.accepts(layer))
        return answer, 0 if answer is True else len(pattern.broken(layer))


def claims_of(backend: Backend) -> list[Claim]:
    """Return the claims of a backend, in registration order."""
    return [Claim(each.name, each, _drawing(each), backend) for each in backend.patterns]


def _drawing(pattern: Pattern) -> Drawing | None:
    if pattern.drawing is not None:
        return pattern.drawing
    if not isinstance(pattern.predicate, OperatorPattern):
        return drawing_of(pattern.alternatives)
    kind, name = type(pattern.predicate), pattern.predicate.OPERATOR.operator
    operators = {operator.name: operator for operator in registry.operators()}
    own = (operator for operator in operators.values() if kind in operator.patterns)
    operator = next(own, operators.get(name))
    return None if operator is None else operator.drawing


def layers_of(case: Case, claims: dict[str, Claim]) -> list[Drawn]:
    """Return the layers of a case, each reading the previous layer's result.

    Raises:
        NotDrawable: no layers can have these settings.
    """
    found: list[Drawn] = []
    for settings in case.layers:
        data = found[-1].result if found else None
        found.append(claims[settings.pattern].layer(settings, data))
    return found


def accepts(case: Case, claims: dict[str, Claim]) -> bool:
    """Return whether the patterns accept all layers of a case; as `layers_of`."""
    return not refusal_of(case, claims)


def refusal_of(case: Case, claims: dict[str, Claim]) -> str:
    """Return a pattern's reason for refusing a layer of a case, or no text; as `layers_of`."""
    data = None
    for settings in case.layers:
        claim = claims[settings.pattern]
        if claim.drawing is None:
            raise InputError(claim.undrawn, fix=claim.how_to_draw)
        drawn = claim.layer(settings, data)
        answer, _ = claim.judged(drawn)
        if answer is not True:
            return answer or f"the predicate of {settings.pattern} returns False"
        data = drawn.result
    return ""
