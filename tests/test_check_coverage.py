# SPDX-License-Identifier: Apache-2.0
"""What `uma check` draws: each value that a pattern accepts, and in which order."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparisons import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from umakit.cli.main import run_command

from umakit import find_backend, patterns
from umakit.errors import BackendError
from umakit.testing import check_backend
from umakit.testing.check.cases import Case, LayerSettings, read_case
from umakit.testing.check.claims import Claim, claims_of
from umakit.testing.check.cover import Cover
from umakit.testing.check.drawing import Walk
from umakit.testing.check.plan import Plan, in_sequence, kinds_of
from umakit.testing.check.report import Failure, groups_of

MOST_LAYERS = 300
ACCEL = '[accelerator]\nname = "npu"\n\n[array]\nrows = 6\ncolumns = 4\n'
BACKEND = """
from umakit import UMABackend

class Npu(UMABackend):
    @property
    def target_name(self):
        return "npu"
"""

Registered = Callable[[Any], Claim]


@pytest.fixture(scope="module")
def registered(tmp_path_factory: pytest.TempPathFactory) -> Registered:
    """Make the claim of a pattern, on an array of 6 x 4."""
    folder = tmp_path_factory.mktemp("claims") / "npu"
    folder.mkdir()
    (folder / "accel.toml").write_text(ACCEL)
    (folder / "backend.py").write_text(BACKEND)
    kind = type(find_backend(str(folder)))

    def make(pattern: Any) -> Claim:
        backend = kind()
        backend._register_pattern(*pattern)
        (claim,) = claims_of(backend)
        return claim

    return make


def fields_of(claim: Claim, layer: LayerSettings) -> Any:
    """The parameters of a layer, as a predicate of the backend gets them."""
    pattern: Any = claim.pattern.predicate
    match = pattern.match_of(claim.layer(layer).module()["main"])
    return pattern.composite_of(match)


def same_padding(layer: Any) -> tuple[int, ...]:
    """TensorFlow's padding (top, left, bottom, right), by its formula."""
    sides = []
    for size, taps, stride, step in zip(
        (layer.height, layer.width), layer.kernel, layer.strides, layer.dilation, strict=True
    ):
        total = max((-(-size // stride) - 1) * stride + (taps - 1) * step + 1 - size, 0)
        sides.append((total // 2, total - total // 2))
    (top, bottom), (left, right) = sides
    return top, left, bottom, right


SIZE = st.integers(1, 7)
PAIRS = st.lists(SIZE | st.tuples(SIZE, SIZE), min_size=1, max_size=3)
SIDES = st.tuples(*[st.integers(0, 2)] * 4)
NAMED = st.sampled_from(["valid", "same"])
PREDICATES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "": (lambda layer: True, ""),
    "square": (lambda layer: layer.kernel[0] == layer.kernel[1], "only square kernels"),
    "narrow": (lambda layer: layer.width <= 9, "nine columns"),
    "few": (lambda layer: layer.input_channels <= 20, "twenty channels"),
    "even": (lambda layer: layer.output_channels % 2 == 0, "an even number of channels"),
    "alike": (lambda layer: layer.strides[0] == layer.strides[1], "one stride"),
    "same": (lambda layer: layer.padding == same_padding(layer), "padding that keeps the size"),
}


@settings(examples(10))
@given(data=st.data())
def test_each_value_that_the_constraints_list_is_drawn(
    data: st.DataObject, registered: Registered
) -> None:
    """A sweep over constraints. What a layer has is read from its parameters, not its settings."""
    kind = data.draw(st.sampled_from([patterns.qconv2d, patterns.qdepthwise]))
    holds, said = PREDICATES[data.draw(st.sampled_from(sorted(PREDICATES)))]
    kernels, strides = data.draw(PAIRS), data.draw(PAIRS)
    dilation = data.draw(st.sampled_from([1, 2, [1, 2], None]))
    padding = data.draw(st.none() | st.lists(NAMED | SIDES, min_size=1, max_size=3))
    layouts = data.draw(st.sampled_from(["NHWC", "NCHW", ("NHWC", "NCHW")]))
    dtypes = data.draw(st.sampled_from(["int8", "uint8", ("int8", "int16")]))
    batch = data.draw(st.sampled_from([1, 3, None]))
    multiple = data.draw(st.sampled_from([None, 2, 3]))
    assume(said != "only square kernels" or any(is_square(each) for each in kernels))
    assume(said != "one stride" or any(is_square(each) for each in strides))
    assume("padding" not in said or padding is None or "same" in padding)
    try:
        pattern = kind(
            kernels=kernels, strides=strides, dilation=dilation, padding=padding, layouts=layouts,
            dtypes=dtypes, batch=batch, channel_multiple=multiple,
            predicate=lambda layer: holds(layer) or said,
        )  # fmt: skip
    except BackendError:
        assume(False)
    claim = registered(pattern)
    cover = Cover(claim, np.random.default_rng(1))
    layers = list(cover.each_value())
    assert len(layers) <= MOST_LAYERS
    drawn = [fields_of(claim, layer) for layer in layers]
    assert all(holds(each) for each in drawn)
    pairs = [(n, n) if isinstance(n, int) else n for n in kernels]
    for kernel in pairs:
        reached = any(each.kernel == kernel for each in drawn)
        assert reached or said == "only square kernels", kernel
        assert reached or any(kernel in found for found in refused_by_predicate(cover, "kernel"))
    for stride in [(n, n) if isinstance(n, int) else n for n in strides]:
        reached = any(each.strides == stride for each in drawn)
        assert reached or said == "one stride", stride
    for item in padding or ():
        wanted = {"valid": (0, 0, 0, 0)}.get(item, item) if isinstance(item, str) else item
        reached = wanted == "same" or any(each.padding == wanted for each in drawn)
        assert reached or "padding" in said, wanted
    assert {each.data_layout for each in drawn} == set(listed(layouts))
    assert {each.data_dtype for each in drawn} == set(listed(dtypes))
    assert batch is None or {each.batch for each in drawn} >= {1, batch}
    assert {each.scales > 1 for each in drawn} == {False, True}
    if multiple is None and not said:
        # The array of 6 x 4 cuts channels into blocks of 6 and of 4.
        for block in (4, 6):
            assert {each.output_channels % block for each in drawn} == set(range(block))
            assert {each.input_channels % block for each in drawn} == set(range(block))


def is_square(pair: int | tuple[int, int]) -> bool:
    return isinstance(pair, int) or pair[0] == pair[1]


def listed(value: Any) -> tuple[Any, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def refused_by_predicate(cover: Cover, name: str) -> list[list[Any]]:
    (covered,) = [each for each in cover.aspects if each.aspect.name == name]
    return [list(covered.by_predicate)]


def test_a_value_that_no_layer_can_have_is_a_failure_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Multipliers of int8 layers have 31 bits, so that no layer of int8 is accepted."""
    folder = tmp_path / "npu"
    folder.mkdir()
    register = (
        'patterns.qconv2d(dtypes=("int8", "int16"), multiplier_dtype="int16", kernels=[1, 3])'
    )
    (folder / "accel.toml").write_text(ACCEL)
    (folder / "backend.py").write_text(
        BACKEND.replace("UMABackend\n", "UMABackend, patterns\n", 1)
        + f"    def __init__(self):\n        super().__init__()\n"
        f"        self._register_pattern(*{register})\n"
    )
    assert run_command(["check", str(folder), "--draws", "2"]) == 1
    assert (
        "dtype int8 of qconv2d never ran: a constraint lists it, and each"
        in capsys.readouterr().out
    )


def test_time_that_was_over_leaves_a_check_incomplete(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["check", "vanilla_accelerator", "--seconds", "0.1", "--jobs", "1", "--json"]
    assert run_command(words) == 3
    report = json.loads(capsys.readouterr().out)
    assert report["passed"] is None and not report["failures"]
    over = report["incomplete"][0]
    assert over.startswith("0.1 s of processor time were over after 20 of")
    begun = re.search(r"layers \((\d+) s with begun work\)\. --seconds \d+ runs about all", over)
    assert begun and int(begun[1]) == round(report["seconds"]) > 0
    assert report["verdict"] == f"incomplete: nothing is wrong in what ran, but {over}."
    refused = report["coverage"]["conv2d"]["aspects"]["stride"]["refused"]
    assert refused["2x2"] == "stride 2x2: the array steps by 1x1"


def test_equal_seeds_plan_equal_layers_and_pairs_are_a_covering_array() -> None:
    backend = find_backend("strawberry_accelerator")
    plans = [
        Plan({each.name: each for each in claims_of(backend)}, ["qdense"], seed)
        for seed in (3, 3, 4)
    ]
    drawn = [[each for batch in plan.batches() for each in batch] for plan in plans]
    texts = [[str(case) for case, _ in cases] for cases in drawn]
    assert texts[0] == texts[1] != texts[2] and len(texts[0]) == 1000
    cover = plans[0].covers["qdense"]
    names = [covered.aspect for covered in cover.aspects if len(covered.aspect.values) > 1]
    drawing = cover.search.claim.drawing
    assert drawing is not None
    complete = [case.layers[-1].complete(drawing) for case, accepted in drawn[0] if accepted]
    for first, second in itertools.combinations(names, 2):
        found = {
            (first.kind_of(first.of(each)), second.kind_of(second.of(each))) for each in complete
        }
        alone = [{pair[side] for pair in found} for side in (0, 1)]
        # The rounding of TensorFlow Lite has no scales that saturate.
        excluded = {first.name, second.name} == {"rounding", "scale"}
        assert len(found) == len(alone[0]) * len(alone[1]) - excluded, (first.name, second.name)


def test_each_kind_of_kernel_has_own_paddings_in_a_plain_layer(registered: Registered) -> None:
    cover = Cover(registered(patterns.qconv2d(groups=None)), np.random.default_rng(0))
    list(cover.each_value())
    plain = {(k, side) for k in ("1x1", "square", "more rows", "more columns") for side in (0, 1)}
    kernels = next(each.aspect for each in cover.aspects if each.aspect.name == "kernel")
    drawing = cover.search.claim.drawing
    assert drawing is not None
    for layer in itertools.islice(cover.each_pair(), 12):
        given = layer.complete(drawing)
        pads = [int(given[f"pad_{side}"]) for side in ("top", "left", "bottom", "right")]
        for side in (0, 1):  # the start, the end
            if any(pads[2 * side : 2 * side + 2]) and not any(pads[2 - 2 * side : 4 - 2 * side]):
                plain.discard((kernels.kind_of(kernels.of(given)), side))
        assert all(given[name] == 1 for name in ("groups", "stride_y", "stride_x", "dilation_y"))
    assert not plain


def test_layers_at_a_limit_have_several_results(registered: Registered) -> None:
    """One result may saturate, so that nobody sees what an accumulator lost."""
    claim = registered(patterns.qconv2d(predicate=lambda layer: layer.input_channels <= 255))
    walk = Walk(claim, np.random.default_rng(0))
    largest = [layer.settings for layer, accepted in walk.limits() if accepted]
    largest = [each for each in largest if int(each.get("channels_per_group", 0)) >= 254]
    assert len(largest) == 3
    for each in largest:
        assert all(each[name] == 3 for name in ("height", "width", "filters_per_group")), each


def test_layers_follow_each_other_in_every_order() -> None:
    claims = {each.name: each for each in claims_of(find_backend("strawberry_accelerator"))}
    random = np.random.default_rng(5)
    walks = [Walk(claim, random) for claim in claims.values()]
    cases = [(Case((walks[n % 3].draw()[0],)), True) for n in range(100)]
    kinds = kinds_of([case for case, _ in in_sequence(cases, claims)], claims)
    assert len(set(itertools.pairwise(kinds))) == 36
    assert sorted(str(case) for case, _ in cases) == sorted(
        str(case) for case, _ in in_sequence(cases, claims)
    )


def test_a_case_behind_another_is_read_back() -> None:
    text = "qdense inputs=9 seed=2 followed by qconv2d height=5 seed=7 then qdense outputs=3"
    case = read_case(text)
    assert str(case) == text and len(case.layers) == 2 and len(case.before) == 1


def test_failures_are_grouped_by_the_value_that_they_share(registered: Registered) -> None:
    cover = Cover(
        registered(patterns.qconv2d(dilation=None, groups=None)), np.random.default_rng(0)
    )
    walk = Walk(cover.search.claim, np.random.default_rng(1), cover.search)
    cases = [Case((layer,)) for layer, accepted in (walk.draw() for _ in range(300)) if accepted]
    drawing = cover.search.claim.drawing
    assert drawing is not None

    def is_wrong(case: Case) -> bool:
        layer = case.layers[0].complete(drawing)
        return layer["kernel_height"] == 3 or layer["stride_y"] == 3

    wrong = [Failure("qconv2d", "is wrong", case) for case in cases if is_wrong(case)]
    groups = groups_of(wrong, [case for case in cases if not is_wrong(case)], {"qconv2d": cover})
    said = " ".join(group.shared for group in groups)
    assert (
        "layers with kernel 3 in rows fail" in said and "layers with stride 3 in rows fail" in said
    )
    assert "no other" not in said, "each group has failures that the other one lacks"


@pytest.mark.parametrize(
    "layers, failing, is_said", [(12, 2, False), (12, 4, False), (100, 2, False), (100, 8, True)]
)
def test_a_value_that_a_few_layers_share_by_chance_is_not_said(
    layers: int, failing: int, is_said: bool, registered: Registered
) -> None:
    """Of few layers, some values belong to failing layers alone, whatever the reason is."""
    cover = Cover(registered(patterns.qdense()), np.random.default_rng(0))
    walk = Walk(cover.search.claim, np.random.default_rng(1), cover.search)
    drawn = (Case((layer,)) for layer, accepted in iter(walk.draw, None) if accepted)
    cases = list(itertools.islice(drawn, layers - failing))
    cases = [case for case in cases if case.layers[0].settings.get("outputs") != 11]
    wrong = [
        Failure("qdense", "is wrong", read_case(f"qdense outputs=11 inputs={n} seed={n}"))
        for n in range(2, 2 + failing)
    ]
    groups = groups_of(wrong, cases, {"qdense": cover})
    assert sum(len(group.failures) for group in groups) == failing
    assert [group.shared for group in groups if group.shared] == (
        [f"all {failing} layers with outputs 11 fail, and no other"] if is_said else []
    )


def test_report_has_what_ran_with_each_value() -> None:
    report = check_backend(find_backend("vanilla_accelerator"), seed=2, draws=30)
    ran = report.covers["conv2d"].as_json()["aspects"]["kernel"]["ran"]
    assert ran and sum(ran.values()) == report.operators["conv2d"].ran
