# SPDX-License-Identifier: Apache-2.0
"""Reduction of a case that fails: as few layers and settings as possible, and small ones.

Delta debugging (A. Zeller, R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input",
2002) by rounds: all simpler cases of a round are branches of one library.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from umakit.operators.drawing import Drawing, NotDrawable, Setting
from umakit.testing.check.cases import SEED, Case, LayerSettings
from umakit.testing.check.claims import Claim, accepts, layers_of
from umakit.testing.check.report import Failure

ROUNDS, CANDIDATES = 20, 60

STOPPED = "the time ended before this was as simple as possible: more --seconds reduce it"

Fails = Callable[[Sequence[Case]], "dict[str, Failure]"]
"""(cases that the patterns accept) -> failures by the text of the case."""


def shrunk(failure: Failure, claims: dict[str, Claim], fails: Fails, seconds: float) -> Failure:
    """Return the failure of the simplest case that was found to fail.

    Args:
        failure: with a case.
        claims: by name of the pattern.
        fails: runs cases.
        seconds: after which no further round begins; the failure then says that it may be simpler.
    """
    end = time.monotonic() + seconds
    best, together = failure, []  # type: tuple[Failure, list[Case]]
    for _ in range(ROUNDS):
        assert best.case is not None
        if time.monotonic() > end:
            return best if best.fix else replace(best, fix=STOPPED)
        candidates = [*together, *simpler(best.case, claims)]
        limit = _cost(best.case, claims)
        accepted = [case for case in candidates if _is_simpler(case, claims, limit)]
        found = fails(accepted[:CANDIDATES])
        failing = [case for case in accepted if str(case) in found]
        if not failing:
            break
        chosen = min(failing, key=lambda case: _cost(case, claims))
        together = _together(best.case, failing)
        best = found[str(chosen)]
    return best


def simpler(case: Case, claims: dict[str, Claim]) -> Iterator[Case]:
    """Yield cases with one layer less, or with one setting that is simpler."""
    if len(case.layers) > 1:
        yield from (Case((layer,)) for layer in case.layers)
    for position, layer in enumerate(case.layers):
        drawing = claims[layer.pattern].drawing
        assert drawing is not None
        for changed in _simpler_settings(layer, drawing):
            yield _with(case, position, changed)


def _simpler_settings(layer: LayerSettings, drawing: Drawing) -> Iterator[LayerSettings]:
    for name, value in layer.settings.items():
        if name == SEED:
            continue
        first = drawing.settings[name][0]
        values: list[Setting] = [first]
        if isinstance(value, int) and isinstance(first, int):
            step = 1 if value > first else -1
            values += [(value + first) // 2, value - step]
        for other in dict.fromkeys(values):
            if other != value:
                yield _set(layer, drawing, name, other)


def _set(layer: LayerSettings, drawing: Drawing, name: str, value: Setting) -> LayerSettings:
    return replace(layer, settings={**layer.settings, name: value}).reduced(drawing)


def _with(case: Case, position: int, layer: LayerSettings) -> Case:
    layers = list(case.layers)
    layers[position] = layer
    return Case(tuple(layers))


def _together(before: Case, failing: Sequence[Case]) -> list[Case]:
    """Return cases with several of the changes at once that failed one by one."""
    same = [case for case in failing if len(case.layers) == len(before.layers)]
    found = []
    for count in (len(same), len(same) // 2):
        layers = list(before.layers)
        for case in same[:count]:
            for position, layer in enumerate(case.layers):
                layers[position] = _merged(layers[position], before.layers[position], layer)
        found.append(Case(tuple(layers)))
    return found


def _merged(found: LayerSettings, before: LayerSettings, changed: LayerSettings) -> LayerSettings:
    settings = dict(found.settings)
    for name, value in before.settings.items():
        if changed.settings.get(name) == value:
            continue
        if name in changed.settings:
            settings[name] = changed.settings[name]
        else:
            settings.pop(name, None)
    return replace(found, settings=settings)


def _is_simpler(case: Case, claims: dict[str, Claim], limit: tuple[float, ...]) -> bool:
    try:
        return _cost(case, claims) < limit and accepts(case, claims)
    except NotDrawable:
        return False


def _cost(case: Case, claims: dict[str, Claim]) -> tuple[float, ...]:
    """Return what is smaller for simpler cases."""
    layers = layers_of(case, claims)
    settings = [value for layer in case.layers for value in layer.settings.values()]
    return (
        len(layers),
        len(settings),
        sum(layer.macs for layer in layers),
        sum(abs(value) for value in settings if isinstance(value, int)),
    )
