# SPDX-License-Identifier: Apache-2.0
"""Several accelerators beside each other: by their order, or by cycles."""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from umakit.cli.main import run_command

import umakit
from umakit import pipeline
from umakit.backend.registry import find_backend
from umakit.errors import BuildError, LibraryError, MemoryPlanError
from umakit.memory.pools import parse_pool
from umakit.partition.choice import LayerCosts, TakenLayer, by_cycles
from umakit.partition.partitioner import Partitioned
from umakit.pipeline import ExportOptions, choose, partition_model
from umakit.pipeline.choose import Layers
from umakit.testing.example_networks import QuantizedNetwork
from umakit.tools.page import html, make_page
from umakit.tools.scaffold import new_backend

EXAMPLES = Path(__file__).parents[1] / "examples"
DIGITS = EXAMPLES / "digits" / "digits_int8.onnx"
VANILLA, STRAWBERRY, CHOCOLATE = (
    f"{name}_accelerator" for name in ("vanilla", "strawberry", "chocolate")
)
LANE_NPU, NOVA_NN = (str(EXAMPLES / name) for name in ("lane_npu", "nova_nn"))
BACKENDS = VANILLA, STRAWBERRY, CHOCOLATE, LANE_NPU, NOVA_NN


def chain(seed: int) -> Any:
    """A network of TensorFlow Lite's kind: a chain of integer layers."""
    random = np.random.default_rng(seed)
    size, channels = int(random.integers(4, 12)), int(random.choice([1, 3, 8, 16]))
    layout = str(random.choice(["NHWC", "NHWC", "NCHW"]))
    network = QuantizedNetwork(size, size, channels, layout=layout, seed=seed)
    for _ in range(int(random.integers(1, 5))):
        kind = random.choice(["conv", "conv", "depthwise", "residual"])
        if kind == "depthwise":
            network.conv2d(network.channels, 3, depthwise=True)
        else:
            kernel, stride = int(random.choice([1, 3])), int(random.choice([1, 1, 2]))
            same = kind == "residual"
            network.conv2d(
                network.channels if same else int(random.choice([4, 8, 20, 32])),
                kernel,
                1 if same else stride,
            )
            if same:
                network.residual()
    if random.integers(2):
        network.dense(int(random.integers(2, 12)))
    return network.model("chain").module


def mixed(seed: int, folder: Path) -> Path:
    """An ONNX network: a convolution of floats, which Vanilla takes, then convolutions of int8."""
    random = np.random.default_rng(seed)
    size, channels = int(random.integers(4, 10)), int(random.choice([2, 3, 8]))
    nodes: list[onnx.NodeProto] = []
    constants: list[onnx.TensorProto] = []

    def constant(values: Any, dtype: str) -> str:
        constants.append(numpy_helper.from_array(np.asarray(values, dtype), f"c{len(constants)}"))
        return f"c{len(constants) - 1}"

    def node(operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"{operator.lower()}{len(nodes)}"
        nodes.append(helper.make_node(operator, inputs, [name], name, **attributes))
        return name

    weights = random.normal(0, 0.3, (channels, 3, 3, 3))
    value = node("Conv", "x", constant(weights, "float32"), pads=[1, 1, 1, 1])
    value = node("QuantizeLinear", value, constant(0.02, "float32"), constant(3, "int8"))
    for _ in range(int(random.integers(1, 4))):
        filters = int(random.choice([4, 8, 20]))
        kernel = int(random.choice([1, 3]))
        pads = [kernel // 2] * 4
        value = node(
            "QLinearConv", value, constant(0.02, "float32"), constant(3, "int8"),
            constant(random.integers(-127, 128, (filters, channels, kernel, kernel)), "int8"),
            constant(random.uniform(0.001, 0.003, filters), "float32"),
            constant(np.zeros(filters), "int8"),
            constant(0.02, "float32"), constant(3, "int8"),
            constant(random.integers(-2000, 2000, filters), "int32"),
            pads=pads,
        )  # fmt: skip
        channels = filters
    shape = [1, channels, size, size]
    graph = helper.make_graph(
        nodes, "mixed",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, size, size])],
        [helper.make_tensor_value_info(value, TensorProto.INT8, shape)],
        constants,
    )  # fmt: skip
    path = folder / "mixed.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def drawn(seed: int, folder: Path) -> tuple[Any, list[str]]:
    """A random network, and two or three accelerators in a random order."""
    random = np.random.default_rng(seed)
    network = mixed(seed, folder) if seed % 3 == 0 else chain(seed)
    names = list(random.permutation(BACKENDS))[: int(random.integers(2, 4))]
    if seed % 3 == 0 and VANILLA not in names:
        names[0] = VANILLA
    return network, [str(name) for name in names]


def total(library: Any, ran: Any) -> tuple[set[str], set[str], int]:
    """What a library has on accelerators, what of it has no cycles, and all cycles that are known.

    Each element of a transpose that the model has not counts as one.
    """
    program = library.program
    own = [
        (call, profile)
        for call, profile in zip(program.calls, ran.layers, strict=True)
        if call.target != "cpu"
    ]
    names = {row.name for row in library.report.placements if row.where != "cpu"}
    unknown = {
        library.report.placements[row].name
        for call, profile in own
        if profile.clock_cycles is None
        for row in call.rows
    }
    moved = sum(
        math.prod(row.shape)
        for row in library.report.placements
        if row.changes_layout and "moves nothing" not in row.reason
    )
    return names, unknown, moved + sum(profile.clock_cycles or 0 for _, profile in own)


def check(seed: int, folder: Path) -> str:
    """Compare the choice by cycles with all orders and with the CPU; say what was chosen."""
    network, names = drawn(seed, folder)
    arguments: dict[str, Any] = {"rounding": "tflm"} if isinstance(network, Path) else {}

    def made(backends: Sequence[str], place: str, choose: Any = "order") -> tuple[Any, Any]:
        library = umakit.compile_model(
            network, [find_backend(name) for name in backends], folder / place, name="net",
            options=ExportOptions(choose=choose), **arguments,
        )  # fmt: skip
        (view,) = library.metadata["umakit"]["inputs"]
        random = np.random.default_rng(seed)
        if view["dtype"] == "int8":
            data = random.integers(-128, 128, view["shape"]).astype(np.int8)
        else:
            data = random.normal(0, 1, view["shape"]).astype(view["dtype"])
        return library, umakit.run_library(library.path, {view["name"]: data}, profile=True)

    _, plain = made([], "cpu")
    chosen, ran = made(names, "chosen", "cycles")
    taken, unknown, cycles = total(chosen, ran)
    comparison = chosen.report.comparison
    assert comparison is not None
    orders = []
    for number, order in enumerate(itertools.permutations(names)):
        library, result = made(order, f"order{number}")
        orders.append((library, result, order))
    exceptions = []
    for library, result, order in [(chosen, ran, ("chosen",)), *orders]:
        for name, values in plain.outputs.items():
            np.testing.assert_array_equal(result.outputs[name], values, str((seed, order)))
        others, not_known, other = total(library, result)
        if (others, not_known) != (taken, unknown):
            exceptions.append(f"{order}: {other}, {len(others)} taken, {len(not_known)} unknown")
        else:
            assert cycles <= other, f"{seed} {names}: {cycles}, but {other} in order {order}"
    return f"{[Path(name).name for name in names]} {comparison}; not compared: {exceptions}"


@pytest.mark.skipif("UMAKIT_EXAMPLES" not in os.environ, reason="a sweep")
@pytest.mark.parametrize("seed", range(40))
def test_the_choice_is_never_worse_than_an_order(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path)


@pytest.mark.parametrize(("together", "taken"), [(250, 1), (150, 2), (200, 2)])
def test_what_is_taken_was_measured_as_a_whole(
    monkeypatch: pytest.MonkeyPatch, together: int, taken: int
) -> None:
    """A combination of the best layers may cost more than an order, which is then taken.

    Args:
        together: cycles of the combination; Strawberry alone takes 300, Chocolate 200.
        taken: index of what is taken; the combination is the last one.
    """
    costs = {(STRAWBERRY, 0): 100, (STRAWBERRY, 1): 200, (CHOCOLATE, 0): 150, (CHOCOLATE, 1): 50}

    def counted(partitioned: Partitioned, _: object) -> Layers:
        where = [row.where for row in partitioned.report.placements]
        found = [costs[name, number] for number, name in enumerate(where)]
        found = found if len(set(where)) == 1 else [together - 7, 7]
        rows = zip(where, partitioned.keys, found, strict=True)
        return Layers(
            tuple(TakenLayer(name, (key,), n, "measured") for name, key, n in rows if key)
        )

    monkeypatch.setattr(choose, "cycles_of_layers", counted)
    network = QuantizedNetwork(5, 5, 4).conv2d(8).conv2d(4).model().module
    backends = [find_backend(name) for name in (STRAWBERRY, CHOCOLATE)]
    _, partitioned = partition_model(network, backends, options=ExportOptions(choose="cycles"))
    comparison = partitioned.report.comparison
    assert comparison is not None
    assert [way.cost for way in comparison.ways] == [300, 200, together]
    assert comparison.taken == taken and comparison.saved == 300 - min(200, together)
    where = [row.where for row in partitioned.report.placements]
    first, second = (str(row.decision) for row in partitioned.report.placements)
    assert second.startswith("fewest cycles, measured: ")
    if taken == 1:
        assert where == [CHOCOLATE, CHOCOLATE]
        assert first.startswith(
            f"by order {CHOCOLATE}, {STRAWBERRY}, fewer cycles as a whole, measured: "
        )
        assert f"fewest cycles for each layer would take {together} cycles" in str(comparison)
    else:
        assert where == [STRAWBERRY, CHOCOLATE]
        assert first == f"fewest cycles, measured: {STRAWBERRY} 100, {CHOCOLATE} 150"


# --- the rule, against brute force ---------------------------------------------------------------

LAYERS = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.sets(st.integers(0, 3), min_size=1, max_size=2),
        st.one_of(st.none(), st.integers(1, 5)),
    ),
    max_size=8,
)


@given(LAYERS, st.permutations("abc"))
@settings(deadline=None)
def test_the_rule(drawn: list[tuple[str, set[int], int | None]], order: list[str]) -> None:
    """Each question goes to the least known cost, of equal ones to the first in order."""
    seen: set[tuple[str, int]] = set()
    taken_layers: list[TakenLayer] = []
    for target, numbers, cycles in drawn:  # an accelerator takes an operator once
        free = {number for number in numbers if (target, number) not in seen}
        if free:
            seen |= {(target, number) for number in free}
            keys = tuple((f"n{number}", 0) for number in sorted(free))
            source: Any = "unknown" if cycles is None else "measured"
            taken_layers.append(TakenLayer(target, keys, cycles, source))
    on_cpu = {(f"n{number}", 0): number + 1 for number in range(4)}
    decisions = by_cycles(LayerCosts(tuple(taken_layers), on_cpu), order)
    for start in on_cpu:
        group = {start}
        for _ in taken_layers:
            for layer in taken_layers:
                if group & set(layer.operators):
                    group |= set(layer.operators)
        own_costs: dict[str, float] = {}
        for target in order:
            own = [each for each in taken_layers if each.target == target]
            taken = [each for each in own if each.operators[0] in group]
            covered = {key for each in taken for key in each.operators}
            if taken:
                known = [each.cycles for each in taken if each.cycles is not None]
                cost = sum(known) + sum(on_cpu[key] for key in group - covered)
                own_costs[target] = cost if len(known) == len(taken) else math.inf
        if len(own_costs) < 2:
            assert start not in decisions
            continue
        best = min(own_costs, key=lambda name: own_costs[name])
        covers = any(start in each.operators for each in taken_layers if each.target == best)
        assert (start in decisions) == covers
        if covers:
            decision = decisions[start]
            assert decision.target == best
            assert [each.target for each in decision.candidates] == list(own_costs)
            assert decision.decided.startswith("by order") == (min(own_costs.values()) == math.inf)


# --- commands ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def by_order(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[Any]]:
    """Digits on three accelerators, two of them in a user's folder, and these backends."""
    folder = tmp_path_factory.mktemp("own")
    own = [new_backend(f"{name}_npu", folder, name).folder for name in ("strawberry", "chocolate")]
    backends = [find_backend(str(each)) for each in (*own, LANE_NPU)]
    _, partitioned = partition_model(DIGITS, backends)
    return partitioned.report, backends


def test_by_order_the_first_one_takes_what_it_can(by_order: tuple[Any, list[Any]]) -> None:
    report, _ = by_order
    where = {row.name: row.where for row in report.placements if row.where != "cpu"}
    assert where.pop("pool1") == "chocolate_npu"
    assert set(where.values()) == {"strawberry_npu"} and len(where) == 5
    rows = {row["name"]: row for row in report.with_decisions_as_json()}
    assert rows["conv2"]["decided"] == "by order"
    assert [each["where"] for each in rows["conv2"]["candidates"]] == [
        "strawberry_npu", "chocolate_npu", "lane_npu",
    ]  # fmt: skip
    assert "decided" not in rows["pool1"] and "decided" not in rows["flatten"]


def test_scratchpads_of_one_name_are_several_memories(
    by_order: tuple[Any, list[Any]], tmp_path: Path
) -> None:
    """Two accelerators whose scratchpads are called alike give right results together."""
    _, backends = by_order
    library = umakit.compile_model(DIGITS, backends, tmp_path / "library")
    pools = {each["name"]: each for each in library.metadata["umakit"]["memory"]["scratchpads"]}
    assert set(pools) == {"strawberry_npu_scratchpad", "chocolate_npu_scratchpad"}
    assert all(each["used_bytes"] for each in pools.values())
    inputs = {"image": np.random.default_rng(3).random((5, 1, 1, 8, 8), np.float32)}
    ran = umakit.run_library(library.path, inputs)
    plain = umakit.compile_model(DIGITS, [], tmp_path / "cpu")
    wanted = umakit.run_library(plain.path, inputs)
    np.testing.assert_array_equal(ran.outputs["logits"], wanted.outputs["logits"])
    smaller = ExportOptions(pools=(parse_pool("strawberry_npu_scratchpad=32K"),))
    library = umakit.compile_model(DIGITS, backends, tmp_path / "smaller", options=smaller)
    sizes = [each["size_bytes"] for each in library.metadata["umakit"]["memory"]["scratchpads"]]
    assert sorted(sizes) == [32768, 131072]
    only = ExportOptions(pools=smaller.pools, choose="cycles")  # which Chocolate takes whole
    library = umakit.compile_model(DIGITS, backends[:2], tmp_path / "one", options=only)
    (pool,) = library.metadata["umakit"]["memory"]["scratchpads"]
    assert (pool["name"], pool["size_bytes"]) == ("scratchpad", 131072)
    assert all(
        each["name"] == "workspace" for each in library.metadata["umakit"]["memory"]["pools"]
    )
    ambiguous = ExportOptions(pools=(parse_pool("scratchpad=32K"),))
    with pytest.raises(MemoryPlanError, match="write strawberry_npu_scratchpad or chocolate_npu"):
        umakit.compile_model(DIGITS, backends, tmp_path / "ambiguous", options=ambiguous)


def test_uma_partition_says_how_it_was_decided(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["partition", str(DIGITS), "-b", STRAWBERRY, "-b", CHOCOLATE, "--choose", "cycles"]
    assert run_command([*command, "--json"]) == 0
    output, error = capsys.readouterr()
    assert "saves" in error
    rows = {row["name"]: row for row in json.loads(output)}
    for row in rows.values():
        if "decided" in row:
            assert row["decided"] == "fewest cycles" and row["where"] == CHOCOLATE
            first, second = row["candidates"]
            assert (first["where"], second["where"]) == (STRAWBERRY, CHOCOLATE)
            assert first["cycles"] > second["cycles"] > 0
            assert first["source"] == second["source"] == "measured"
    assert "decided" in rows["conv2"] and "decided" not in rows["pool1"]


def test_the_page_shows_what_was_saved() -> None:
    backends = [find_backend(name) for name in (STRAWBERRY, CHOCOLATE)]
    network = QuantizedNetwork(5, 5, 4).conv2d(8).model().module
    page = make_page(network, backends, options=ExportOptions(choose="cycles"))
    choice = page.as_json()["choice"]
    given, best = choice["ways"]
    assert choice["taken"] == best["name"] and best["cycles"] == page.clock_cycles
    assert choice["saved_cycles"] == given["cost"] - best["cost"] > 0
    text = html(page)
    share = 100 * choice["saved_cycles"] / given["cost"]
    assert f"saves {choice['saved_cycles']:,} cycles ({share:.1f} %)" in text
    assert f"{given['cycles']:,}" in text and "fewest cycles, measured: " in text


def test_unknown_cycles_do_not_win(tmp_path: Path) -> None:
    network = QuantizedNetwork(5, 5, 4).conv2d(8).model().module
    backends = [find_backend(name) for name in (NOVA_NN, LANE_NPU)]
    _, partitioned = partition_model(network, backends, options=ExportOptions(choose="cycles"))
    (row,) = partitioned.report.placements
    assert row.where == "lane_npu" and row.decision is not None
    assert str(row.decision).startswith("only one with known cycles: nova_nn unknown, lane_npu ")
    assert "not comparable" in str(partitioned.report.comparison)


def test_cycles_are_predicted_where_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a device that answers on this machine, the cost model says what layers cost."""

    def no_compiler(*_: Any, **__: Any) -> None:
        raise BuildError("there is no C compiler")

    network = QuantizedNetwork(5, 5, 4).conv2d(8).model().module
    backends = [find_backend(name) for name in (STRAWBERRY, LANE_NPU, CHOCOLATE)]
    monkeypatch.setattr(pipeline, "run_library", no_compiler)
    _, partitioned = partition_model(network, backends, options=ExportOptions(choose="cycles"))
    (row,) = partitioned.report.placements
    assert row.decision is not None
    sources = {each.target: each.source for each in row.decision.candidates}
    assert sources == {STRAWBERRY: "unknown", "lane_npu": "predicted", CHOCOLATE: "predicted"}
    assert row.where == CHOCOLATE and "of those that are known" in row.decision.decided


def test_what_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(LibraryError, match="cannot be chosen by 'size'"):
        ExportOptions(choose="size")  # type: ignore[arg-type]
    assert run_command(["partition", str(DIGITS), "-b", STRAWBERRY, "--choose", "size"]) == 2
    assert "choose order or cycles" in capsys.readouterr().err
