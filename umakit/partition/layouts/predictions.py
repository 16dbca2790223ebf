# SPDX-License-Identifier: Apache-2.0
"""Cycles of layers on accelerators with a cost model, before anything is lowered."""

from __future__ import annotations

from typing import Any

from umakit import tvm_api
from umakit.machine.planner import prediction_of
from umakit.operators.offload.pattern import OperatorPattern
from umakit.registration.backend import Backend
from umakit.registration.registered import Pattern


class Predictions:
    """Cycles of matches by the calls that they consist of; `note` is for `Refusals.on_match`."""

    def __init__(self) -> None:
        self._cycles: dict[Any, int] = {}

    def note(
        self, backend: Backend, pattern: Pattern, context: tvm_api.PatternCheckContext
    ) -> None:
        """Note the cycles of a match, if the backend cuts it into tiles."""
        planner, predicate = backend.tiling, pattern.predicate
        if planner is None or not isinstance(predicate, OperatorPattern):
            return
        try:
            tiles = planner.tiles_of(predicate.composite_in(context), {})
            cycles = prediction_of(planner, tiles).cycles
        except Exception:  # whatever a team's planner raises, its backend takes the layer
            return
        for call in (context.matched_expr, *context.matched_bindings.values()):
            self._cycles[call] = cycles

    def of(self, call: tvm_api.Expr) -> int:
        """Return the cycles of the match that a call belongs to; 0 if they are not known."""
        return self._cycles.get(call, 0)
