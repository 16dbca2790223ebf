# SPDX-License-Identifier: Apache-2.0
"""Reduction of failing cases, with failures made up: what is found is as simple as it can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from umakit.backend.registry import find_backend
from umakit.operators.drawing import NotDrawable
from umakit.testing.check import isolation
from umakit.testing.check.cases import SEED, Case, LayerSettings, read_case
from umakit.testing.check.claims import Claim, accepts, claims_of
from umakit.testing.check.drawing import Walk
from umakit.testing.check.isolation import STOPPED, bond, is_same_cause, shrunk
from umakit.testing.check.report import Failure, Group, groups_of

ROUNDS = 8
"""Libraries that a reduction may build."""


@pytest.fixture(scope="module")
def claims() -> dict[str, Claim]:
    return {claim.name: claim for claim in claims_of(find_backend("strawberry_accelerator"))}


def reduced(
    case: Case, claims: dict[str, Claim], is_wrong: Callable[[dict[str, object]], bool]
) -> tuple[LayerSettings, list[int]]:
    """What a failure is reduced to if layers of some settings are wrong, and sizes of groups."""
    drawing = claims[case.pattern].drawing
    assert drawing is not None
    groups = []

    def fails(cases: Sequence[Case]) -> dict[str, Failure]:
        groups.append(len(cases))
        return {
            str(each): Failure(each.pattern, "is wrong", each)
            for each in cases
            if is_wrong(dict(each.layers[0].complete(drawing)))
        }

    found = shrunk(Failure(case.pattern, "is wrong", case), claims, fails, 60.0).case
    assert found is not None
    (layer,) = found.layers
    return layer, groups


@given(seed=st.integers(0, 1000), data=st.data())
def test_two_conditions_are_found_alone(
    seed: int, data: st.DataObject, claims: dict[str, Claim]
) -> None:
    """A bug that needs two settings: without any other setting that is left there is no layer."""
    claim = claims["qconv2d"]
    walk = Walk(claim, np.random.default_rng(seed))
    layer = next(layer for layer, accepted in iter(walk.draw, None) if accepted)
    names = data.draw(st.lists(st.sampled_from(list(layer.settings)), max_size=2))
    needed = {name: layer.settings[name] for name in names if name != SEED}
    found, groups = reduced(Case((layer,)), claims, lambda each: needed.items() <= each.items())
    assert len(groups) <= ROUNDS
    assert needed.items() <= found.settings.items()
    for name in found.settings.keys() - needed.keys() - {SEED}:
        settings = {key: value for key, value in found.settings.items() if key != name}
        assert not is_accepted(Case((LayerSettings(claim.name, settings),)), claims)


def is_accepted(case: Case, claims: dict[str, Claim]) -> bool:
    try:
        return accepts(case, claims)
    except NotDrawable:
        return False


@pytest.mark.parametrize("text, least", [
    ("qconv2d height=32720 seed=1", {"height": 2}),
    ("qdense rows=8192 seed=1", {"rows": 3}),
    ("qdepthwise groups=16 height=12 width=20 clip=low seed=1", {"height": 2, "groups": 2}),
])  # fmt: skip
def test_large_sizes_become_small_ones(
    text: str, least: dict[str, int], claims: dict[str, Claim]
) -> None:
    found, groups = reduced(
        read_case(text), claims, lambda each: all(each[n] >= v for n, v in least.items())
    )
    assert {name: value for name, value in found.settings.items() if name != "seed"} == least
    assert len(groups) <= ROUNDS


def test_a_case_after_others_keeps_only_the_layer_that_it_needs(claims: dict[str, Claim]) -> None:
    text = (
        "qdense inputs=9 clip=low seed=2 followed by "
        "qconv2d height=9 width=7 channels_per_group=5 kernel_height=3 seed=7 followed by "
        "qdense rows=4 inputs=21 outputs=12 input_zero_point=-3 seed=3"
    )

    def is_wrong(case: Case) -> bool:
        settings = [
            layer.complete(drawing)
            for each in (*case.before, case)
            for layer in each.layers
            if (drawing := claims[layer.pattern].drawing) is not None
        ]
        after = [each.get("kernel_height") == 3 for each in settings[:-1]]
        return any(after) and int(settings[-1]["outputs"]) >= 2

    def fails(cases: Sequence[Case]) -> dict[str, Failure]:
        return {str(each): Failure("qdense", "", each) for each in cases if is_wrong(each)}

    found = shrunk(Failure("qdense", "", read_case(text)), claims, fails, 60.0).case
    wanted = "qconv2d height=3 kernel_height=3 seed=7 followed by qdense outputs=2 seed=3"
    assert found == read_case(wanted)


def test_a_reduction_that_ends_early_says_so(claims: dict[str, Claim]) -> None:
    failure = Failure("qconv2d", "is wrong", read_case("qconv2d height=9 seed=1"))
    assert shrunk(failure, claims, lambda cases: {}, seconds=-1.0).fix == STOPPED


def test_chains_blame_only_operators_of_which_no_layer_fails_alone() -> None:
    texts = ["qconv2d seed=1", "qconv2d seed=2 then qdense seed=3", "a seed=1 then b seed=2"]
    texts += ["c seed=4 then b seed=5", "qdense seed=4 then qconv2d seed=5"]
    cases = [read_case(text) for text in texts]
    found = groups_of([Failure(case.pattern, "is wrong", case) for case in cases], [], {})
    assert [[str(each.case) for each in group.failures] for group in found] == [
        [texts[0]], texts[2:4],
    ]  # fmt: skip


K3 = "qconv2d of 1x4: element [0] of the result is 3 instead of 4, 1 of 2 are wrong; all 3 fail"
K5 = "qconv2d of 1x2x9: element [1, 7] of the result is -1 instead of 5, 1 of 9 are wrong"
STOPS = "qconv2d of 1x4: the run stopped with status 3"


@pytest.mark.parametrize(
    ("left", "right", "is_same"),
    [
        ((K3, "batch=3 seed=1"), (K5, "batch=3 seed=2"), True),
        ((K3, "batch=3 seed=1"), (K5, "batch=3 scales=0 seed=2"), True),
        ((K3, "batch=3 seed=1"), (STOPS, "batch=3 seed=2"), False),
        ((K3, "batch=3 seed=1"), (K5, "scales=0 seed=1"), False),
        ((K3, "kernel_height=3 seed=1"), (K5, "kernel_height=5 seed=1"), False),
        ((K3, "kernel_height=3 seed=1"), (K5, "kernel_height=5 input_zero_point=1"), False),
        ((K3, "height=300 kernel_height=3"), (K5, "kernel_height=3 input_zero_point=1"), False),
        ((K3, "seed=1"), (K5, "batch=3 seed=1"), False),
        ((K3, "batch=3 then qconv2d seed=1"), (K5, "batch=3 seed=1"), False),
        ((K3, "batch=3 followed by qconv2d seed=1"), (K5, "batch=3 seed=1"), False),
    ],
)
def test_failures_have_one_cause_if_one_layer_has_all_values_of_the_other(
    left: tuple[str, str], right: tuple[str, str], is_same: bool
) -> None:
    one, two = (
        Failure("qconv2d", what, read_case(f"qconv2d {case}")) for what, case in (left, right)
    )
    assert is_same_cause(one, two) == is_same_cause(two, one) == is_same
    assert not is_same_cause(one, replace(two, pattern="qconv2d_add"))


@pytest.mark.parametrize(
    ("layer", "of_group", "shared", "wanted"),
    [
        ("qdense inputs=9 rows=2 seed=1", True, "", 3),
        ("qdense inputs=9 seed=5", True, "all 4 layers with inputs 9 fail", 2),
        ("qdense inputs=9 seed=5", True, "", 0),
        ("qdense inputs=9 seed=1", False, "all 4 layers with inputs 9 fail", 0),
        ("qdense outputs=3 clip=low scales=0 seed=5", False, "", 1),
        ("qdense outputs=9 clip=low seed=5", False, "", 1),
        ("qdense outputs=2 clip=low seed=5", False, "", 0),
        ("qdense outputs=3 clip=high seed=5", False, "", 0),
        ("qconv2d seed=1 then qdense outputs=4 clip=low seed=5", False, "", 1),
    ],
)
def test_a_failing_layer_belongs_to_a_case_by_its_origin_its_group_or_its_values(
    layer: str, of_group: bool, shared: str, wanted: int, claims: dict[str, Claim]
) -> None:
    what = "qdense of 1x2: element [0, 1] of the result 1x2 is 7 instead of 8, 1 of 2 are wrong"
    found = Failure("qdense", what, read_case("qdense outputs=3 clip=low seed=1"))
    failure = Failure("qdense", what.replace("7", "-1"), read_case(layer))
    drawing = claims["qdense"].drawing
    assert drawing is not None
    group = Group((failure,), shared) if of_group else None
    assert bond(failure, found, group, drawing) == wanted
    stops = replace(failure, what="qdense of 1x2: the run stopped with status 3")
    assert bond(stops, found, group, drawing) == (wanted if wanted > 1 else 0)


def test_a_reduction_tells_every_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([0.0, 1.0, 2.5, 2.5, 3.0, 4.6, 4.6])
    monkeypatch.setattr(isolation.time, "monotonic", lambda: next(seconds))
    told: list[str] = []
    note = isolation._progress_of(told.append)
    for count in (1, 16, 60, 3):
        note(count)
    assert told == ["17 layers tried", "80 layers tried"]
