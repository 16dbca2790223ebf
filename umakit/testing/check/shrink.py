# SPDX-License-Identifier: Apache-2.0
"""Reduction of a case that fails: as few layers and settings as possible, and small ones.

Delta debugging (A. Zeller, R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input",
2002) by rounds: many simpler cases are branches of one library. Each round tries layers with all
but one setting at their simplest values, smaller settings one by one, and what failed in the round
before together; cheap layers first, so that a failure that needs no large layer is not looked for
among large ones.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from umakit.files.processes import is_of_limit
from umakit.files.processor_time import processor_seconds
from umakit.operators.drawing import Drawing, Drawn, NotDrawable, Setting
from umakit.testing.check.cases import SEED, Case, LayerSettings
from umakit.testing.check.claims import Claim, accepts, layers_of
from umakit.testing.check.report import Failure

ROUNDS, CANDIDATES = 20, 60

WORK = 2_000_000
"""Multiplications and elements of cases that run together; a case with more of them runs alone."""

STOPPED = "the time ended before this was as simple as possible: more --seconds reduce it"

Fails = Callable[[Sequence[Case]], "dict[str, Failure]"]
"""(cases that the patterns accept) -> failures by the text of the case. Layers of several cases may
use less time than that of a single one."""


def shrunk(failure: Failure, claims: dict[str, Claim], fails: Fails, seconds: float) -> Failure:
    """Return the failure of the simplest case that was found to fail.

    Args:
        failure: with a case.
        claims: by name of the pattern.
        fails: runs cases.
        seconds: of processor time, after which no more cases run; the failure then says that it
            may be simpler.
    """
    best = _simplest(failure, claims, fails, seconds)
    assert best.case is not None
    is_hasty = is_of_limit(best.what) and best.case != failure.case
    if is_hasty and not fails([best.case]):
        return failure  # the case only needs more time than those of a reduction have
    return best


def _simplest(failure: Failure, claims: dict[str, Claim], fails: Fails, seconds: float) -> Failure:
    end = processor_seconds() + seconds
    best, together = failure, []  # type: tuple[Failure, list[Case]]
    for _ in range(ROUNDS):
        assert best.case is not None
        candidates = [*together, *simpler(best.case, claims)]
        found, failing = {}, []  # type: tuple[dict[str, Failure], list[Case]]
        limit = _cost(best.case, _every_layer(best.case, claims))
        for cases in _cheap_first(candidates, claims, limit):
            if processor_seconds() > end:
                return best if best.fix else replace(best, fix=STOPPED)
            found = fails(cases)
            failing = [case for case in cases if str(case) in found]
            if failing:
                break
        if not failing:
            break
        chosen = min(failing, key=lambda case: _cost(case, _every_layer(case, claims)))
        together = _together(best.case, failing)
        best = found[str(chosen)]
    return best


def simpler(case: Case, claims: dict[str, Claim]) -> Iterator[Case]:
    """Yield cases with one layer less, or with simpler settings of one layer."""
    if len(case.layers) > 1:
        yield from (replace(case, layers=(layer,)) for layer in case.layers)
    for position, layer in enumerate(case.layers):
        drawing = claims[layer.pattern].drawing
        assert drawing is not None
        for changed in (*_nearly_first(layer, drawing), *_simpler_settings(layer, drawing)):
            yield _with(case, position, changed)
    for place, other in enumerate(case.before):
        earlier, later = case.before[:place], case.before[place + 1 :]
        if earlier or later:
            yield replace(case, before=(*earlier, *later))
        for each in simpler(other, claims):
            yield replace(case, before=(*earlier, each, *later))


def _nearly_first(layer: LayerSettings, drawing: Drawing) -> Iterator[LayerSettings]:
    """Yield the layer with all settings at their first values, and with all but one of them."""
    seed = {name: value for name, value in layer.settings.items() if name == SEED}
    yield replace(layer, settings=seed)
    for name, value in layer.settings.items():
        if name != SEED:
            yield replace(layer, settings={name: value, **seed})
    large = {name: drawing.settings[name][0] for name in drawing.sizes if name in layer.settings}
    if large:
        yield replace(layer, settings={**layer.settings, **large}).reduced(drawing)


def _simpler_settings(layer: LayerSettings, drawing: Drawing) -> Iterator[LayerSettings]:
    for name, value in layer.settings.items():
        if name == SEED:
            continue
        for other in _simpler_values(value, drawing.settings[name][0]):
            yield _set(layer, drawing, name, other)


def _simpler_values(value: Setting, first: Setting) -> list[Setting]:
    """Return the first value and, of integers, those at doubling distances from it."""
    if not isinstance(value, int) or not isinstance(first, int):
        return [first]
    step, distance = (1 if value > first else -1), abs(value - first)
    near = [first + step * (1 << bit) for bit in range((distance - 1).bit_length())]
    return list(dict.fromkeys([first, *near, value - step]))


def _cheap_first(
    candidates: Sequence[Case], claims: dict[str, Claim], limit: tuple[float, ...]
) -> Iterator[list[Case]]:
    """Yield simpler cases that the patterns accept, in groups that run together."""
    works = []
    for case in {str(case): case for case in candidates}.values():
        with contextlib.suppress(NotDrawable):
            layers = _every_layer(case, claims)
            if _cost(case, layers) < limit:
                works.append((_work(layers), case))
    group: list[Case] = []
    left = WORK
    for work, case in sorted(works, key=lambda pair: pair[0]):
        if not all(accepts(each, claims) for each in (*case.before, case)):
            continue
        if group and (len(group) == CANDIDATES or work > left):
            yield group
            group, left = [], WORK
        group.append(case)
        left -= work
    if group:
        yield group


def _work(layers: Sequence[Drawn]) -> int:
    """Return the multiplications and input elements of layers."""
    elements = sum(math.prod(tensor.shape) for layer in layers for tensor in layer.inputs)
    return sum(layer.macs for layer in layers) + elements


def _set(layer: LayerSettings, drawing: Drawing, name: str, value: Setting) -> LayerSettings:
    return replace(layer, settings={**layer.settings, name: value}).reduced(drawing)


def _with(case: Case, position: int, layer: LayerSettings) -> Case:
    layers = list(case.layers)
    layers[position] = layer
    return replace(case, layers=tuple(layers))


def _together(before: Case, failing: Sequence[Case]) -> list[Case]:
    """Return cases with several of the changes at once that failed one by one."""
    same = [case for case in failing if _lengths(case) == _lengths(before)]
    found = []
    for count in (len(same), len(same) // 2):
        merged = before
        for case in reversed(same[:count]):  # of two changes of a setting, the cheap one is kept
            merged = _merged_case(merged, before, case)
        found.append(merged)
    return found


def _lengths(case: Case) -> list[int]:
    return [len(each.layers) for each in (*case.before, case)]


def _merged_case(found: Case, before: Case, changed: Case) -> Case:
    layers = zip(found.layers, before.layers, changed.layers, strict=True)
    cases = zip(found.before, before.before, changed.before, strict=True)
    return Case(
        tuple(_merged(*each) for each in layers), tuple(_merged_case(*each) for each in cases)
    )


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


def _every_layer(case: Case, claims: dict[str, Claim]) -> list[Drawn]:
    """Return the layers of the cases before a case, and of the case.

    Raises:
        NotDrawable: there are no such layers.
    """
    return [layer for each in (*case.before, case) for layer in layers_of(each, claims)]


def _cost(case: Case, layers: Sequence[Drawn]) -> tuple[float, ...]:
    """Return numbers that are smaller for simpler cases.

    Args:
        case: the case.
        layers: the layers of the cases before the case, and of the case.
    """
    settings = [
        value
        for each in (*case.before, case)
        for layer in each.layers
        for value in layer.settings.values()
    ]
    return (
        len(layers),
        len(settings),
        sum(layer.macs for layer in layers),
        sum(abs(value) for value in settings if isinstance(value, int)),
    )
