# SPDX-License-Identifier: Apache-2.0
"""Reduction of failures in large libraries to the simplest cases that fail alone."""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from umakit.errors import UmakitError
from umakit.files.processes import is_of_limit, processor_seconds
from umakit.operators.drawing import Drawing, Drawn, NotDrawable, Setting
from umakit.testing.check.cases import SEED, Case, LayerSettings
from umakit.testing.check.claims import Claim, accepts, layers_of
from umakit.testing.check.report import Failure, Group
from umakit.testing.check.session import Session

NEAR, FURTHER = 3, 12
"""Number of preceding cases tried one by one with a failing case, and number of libraries in which
the search for a preceding case continues."""

FAILING = 3
"""Number of failures of a group to try alone; the first that fails alone is reduced."""

CONFIRMED = 8
"""Number of cases of a library to try in libraries of their own."""

Tell = Callable[[str], None]


def reduced(
    group: Group,
    behind: Callable[[Case], Sequence[Case]],
    session: Session,
    seconds: float,
    tell: Tell,
) -> Failure:
    """Return a failure of a group, reduced; `behind` gives the cases before one, nearest last."""
    session.note = _progress_of(tell)
    for failure in group.failures[:FAILING]:
        assert failure.case is not None
        alone = fails_alone(session, failure.case)
        if alone is not None:
            found = shrunk(alone, session.claims, session.failing, seconds)
            assert found.case is not None
            return _with_group(found if fails_alone(session, found.case) else alone, group)
    found = _behind(group.failures[0], behind, session)
    if found.case is not None and found.case.before:
        return said_behind(
            shrunk(found, session.claims, lambda cases: _first_alone(session, cases), seconds)
        )
    return _with_group(found, group)


def _progress_of(tell: Tell) -> Callable[[int], None]:
    tried, told = 0, time.monotonic()

    def note(count: int) -> None:
        nonlocal tried, told
        tried += count
        if time.monotonic() - told >= 2.0:
            told = time.monotonic()
            tell(f"{tried} layers tried")

    return note


def _first_alone(session: Session, cases: Sequence[Case]) -> dict[str, Failure]:
    """Return the failure of the first case that also fails in a library of its own.

    In a common library, a case may fail because of the cases that precede its own `before`.
    """
    together = session.failing(cases)
    for case in [each for each in cases if str(each) in together][:CONFIRMED]:
        found = fails_alone(session, case)
        if found is not None:
            return {str(case): found}
    return {}


def fails_alone(session: Session, case: Case) -> Failure | None:
    """Return the failure of a case in a library of the case and its `before` alone."""
    batch = [(each, True) for each in (*case.before, replace(case, before=()))]
    try:
        failures = session.batch_of(batch)[1]
    except UmakitError as error:
        return Failure(case.pattern, str(error), case)
    last = [each for each in failures if each.case is batch[-1][0]]
    return replace(last[0], case=case) if last else None


def _with_group(failure: Failure, group: Group) -> Failure:
    if not group.shared:
        return failure
    return replace(failure, what=f"{failure.what}; {group.shared}")


def _behind(
    failure: Failure, behind: Callable[[Case], Sequence[Case]], session: Session
) -> Failure:
    case = failure.case
    assert case is not None
    before = list(behind(case))
    for other in before[: -NEAR - 1 : -1]:
        found = fails_alone(session, replace(case, before=(other,)))
        if found is not None:
            return found
    found = fails_alone(session, replace(case, before=tuple(before))) if before else None
    if found is None:
        return replace(
            failure,
            what=f"{failure.what}; alone the layer is right, and behind the layers before it, too",
            fix="the same --seed shows it again: it depends on more than these layers",
        )
    for _ in range(FURTHER):
        assert found.case is not None
        kept = found.case.before
        half = len(kept) // 2
        parts = (kept[half:], kept[:half]) if half else ()
        for part in parts:
            less = fails_alone(session, replace(case, before=part))
            if less is not None:
                found = less
                break
        else:
            break
    return found


def is_same_cause(left: Failure, right: Failure) -> bool:
    """Whether two reduced failures have one cause.

    They do if they fail in the same way, and one layer has all values of the other layer. Layers
    with other values of the same settings prove nothing: two kernels may have two bugs.
    """
    cases = [each.case for each in (left, right) if each.case and not each.case.before]
    if len(cases) < 2 or any(len(each.layers) > 1 for each in cases) or _kind(left) != _kind(right):
        return False
    few, many = sorted(({*each.layers[0].settings.items()} for each in cases), key=len)
    few = {(name, value) for name, value in few if name != SEED}
    return left.pattern == right.pattern and bool(few) and few <= many


def bond(failure: Failure, found: Failure, group: Group | None, drawing: Drawing) -> int:
    """Return how surely a failing layer belongs to a printed failure; 0 if it does not.

    3 if the printed case was reduced from the layer; 2 if the layer is in the reduced group, whose
    shared value has evidence; 1 if the layer fails in the same way and has all values of the
    printed case, or larger sizes.

    Args:
        group: the layer's group; None if the printed failure was not reduced from this group.
    """
    assert failure.case is not None and found.case is not None
    seeds, all_seeds = ({each.seed for each in c.layers} for c in (found.case, failure.case))
    if group is not None and seeds <= all_seeds:
        return 3
    if group is not None and group.shared:
        return 2
    if found.pattern != failure.pattern or found.case.before or len(found.case.layers) > 1:
        return 0
    settings = failure.case.layers[-1].complete(drawing)
    return _kind(found) == _kind(failure) and all(
        settings[name] == value
        or (name in drawing.sizes and int(settings[name]) > int(value) > int(values[0]))
        for name, values in drawing.settings.items()
        if (value := found.case.layers[0].settings.get(name)) is not None
    )


def _kind(failure: Failure) -> str:
    return re.sub(r"^.*? of [^:]*: |\[.*?\]|-?\d+", "", failure.what.partition(";")[0])


def said_behind(failure: Failure) -> Failure:
    """Return a failure with a sentence that the case fails only after other cases."""
    assert failure.case is not None
    first = ", ".join(case.pattern for case in failure.case.before)
    return replace(
        failure,
        what=f"{failure.what}; alone the layer is right, and it is wrong directly after the {first}"
        " of this case",
        fix=failure.fix or "look for what the driver or the device keeps from the layer before",
    )


# Reduction of a case that fails: as few layers and settings as possible, and small ones.
#
# Delta debugging (A. Zeller, R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input",
# 2002) by rounds: many simpler cases are branches of one library. Each round tries layers with all
# but one setting at their simplest values, smaller settings one by one, and the failing changes of
# the previous round together. Cheap layers come first, so that a failure that needs no large layer
# is not searched among large ones.

ROUNDS, CANDIDATES = 20, 60

WORK = 2_000_000
"""Multiplications and elements of cases that run together; a case with more runs alone."""

STOPPED = "the time ended before this was as simple as possible: more --seconds reduce it"

Fails = Callable[[Sequence[Case]], "dict[str, Failure]"]
"""Function from accepted cases to failures, by the text of the case. With several cases, the time
limit of a layer is lower than with a single case."""


def shrunk(failure: Failure, claims: dict[str, Claim], fails: Fails, seconds: float) -> Failure:
    """Return the failure of the simplest failing case that is found in processor `seconds`."""
    best = _simplest(failure, claims, fails, seconds)
    assert best.case is not None
    is_hasty = is_of_limit(best.what) and best.case != failure.case
    if is_hasty and not fails([best.case]):
        return failure  # the case only needs more time than a reduction allows
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
            others = case.layers[:position], case.layers[position + 1 :]
            yield replace(case, layers=(*others[0], changed, *others[1]))
    for place, other in enumerate(case.before):
        earlier, later = case.before[:place], case.before[place + 1 :]
        if earlier or later:
            yield replace(case, before=(*earlier, *later))
        for each in simpler(other, claims):
            yield replace(case, before=(*earlier, each, *later))


def _nearly_first(layer: LayerSettings, drawing: Drawing) -> Iterator[LayerSettings]:
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
            yield replace(layer, settings={**layer.settings, name: other}).reduced(drawing)


def _simpler_values(value: Setting, first: Setting) -> list[Setting]:
    """Return the first value and, for integers, values at doubling distances from it."""
    if not isinstance(value, int) or not isinstance(first, int):
        return [first]
    step, distance = (1 if value > first else -1), abs(value - first)
    near = [first + step * (1 << bit) for bit in range((distance - 1).bit_length())]
    return list(dict.fromkeys([first, *near, value - step]))


def _cheap_first(
    candidates: Sequence[Case], claims: dict[str, Claim], limit: tuple[float, ...]
) -> Iterator[list[Case]]:
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
    elements = sum(math.prod(tensor.shape) for layer in layers for tensor in layer.inputs)
    return sum(layer.macs for layer in layers) + elements


def _together(before: Case, failing: Sequence[Case]) -> list[Case]:
    same = [case for case in failing if _lengths(case) == _lengths(before)]
    found = []
    for count in (len(same), len(same) // 2):
        merged = before
        for case in reversed(same[:count]):  # of two changes of a setting, keep the cheap one
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
    """Return the layers of the cases before a case, and of the case; as `layers_of`."""
    return [layer for each in (*case.before, case) for layer in layers_of(each, claims)]


def _cost(case: Case, layers: Sequence[Drawn]) -> tuple[float, ...]:
    """Return a sort key that is smaller for simpler cases."""
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
