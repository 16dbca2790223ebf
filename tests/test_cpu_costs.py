# SPDX-License-Identifier: Apache-2.0
"""Costs of CPUs: what kernels execute, what that costs, and what is made of it."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from networks import Graph, save
from tflite_networks import TfliteFile, trained_model
from umakit.cli.main import run_command

import umakit
from umakit import tvm_api
from umakit.cpu.description import OPERATIONS, CpuCosts, find_cpu
from umakit.devices import find_device
from umakit.devices.run import run_library
from umakit.errors import InputError
from umakit.library.metadata import load_metadata
from umakit.lower.executed import executed_operations
from umakit.partition.choice import Decision, LayerCosts, TakenLayer, by_cycles
from umakit.pipeline import ExportOptions, partition_model
from umakit.tools.accounting import account

DIGITS = Path(__file__).parents[1] / "examples/digits/digits_int8.onnx"
WITH_COSTS = ["cortex-m3", "cortex-m4", "cortex-m7", "cortex-m55", "rv32imac"]
STRAWBERRY, CHOCOLATE = "strawberry_accelerator", "chocolate_accelerator"


def own_cpu(folder: Path, base: str = "x86-64-v3", **costs: Any) -> str:
    """The file of a description in which each operation, and each function, costs 1."""
    functions = "nearbyintf nearbyint requantize_ort requantize_ort_constant add_and_clamp".split()
    lines = [f'base = "{base}"', 'name = "own"', "[costs]"]
    lines += [f"{name} = {json.dumps(value)}" for name, value in costs.items()]
    for title, names in (("operations", OPERATIONS), ("functions", functions)):
        lines += [f"[costs.{title}]", *(f"{name} = 1" for name in names)]
    path = folder / "own.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


def executed(model: Path, cpu: str, folder: Path) -> list[dict[str, float] | None]:
    """What the kernels of a network execute, in the order of its steps."""
    library = umakit.compile_model(model, [], folder / "out", options=ExportOptions(cpu=cpu))
    assert library.program is not None
    kernels = library.program.kernels
    return [executed_operations(kernels[call.kernel]) for call in library.program.calls]


# --- counts -------------------------------------------------------------------------------------


def convolution(size: tuple[int, int], channels: int, filters: int, kernel: int) -> bytes:
    """A convolution in int8, padded to the size of its input."""
    file, random = TfliteFile(), np.random.default_rng(2)
    x = file.tensor((1, *size, channels), scale=0.1, zero_point=3, name="x")
    shape = (filters, kernel, kernel, channels)
    weights = random.integers(-127, 128, shape).astype(np.int8)
    constants = [
        file.tensor(shape, scale=[0.01] * filters, data=weights),
        file.tensor([filters], "int32", scale=[0.001] * filters, data=np.zeros(filters, np.int32)),
    ]
    y = file.tensor((1, *size, filters), scale=1.0)
    file.operator("CONV_2D", [x, *constants], [y], "Conv2DOptions", Padding=0, StrideH=1, StrideW=1)
    return file.finish([x], [y])


@pytest.mark.parametrize("kernel", [1, 3, 4])
def test_copies_and_products_are_those_of_the_windows(kernel: int, tmp_path: Path) -> None:
    """Counted here one window after the other, padding left out."""
    rows, columns, channels, filters = 5, 7, 6, 10
    model = tmp_path / "one.tflite"
    model.write_bytes(convolution((rows, columns), channels, filters, kernel))
    (found,) = executed(model, "cortex-m4", tmp_path)
    assert found is not None
    before = (kernel - 1) // 2
    copied_groups = copied_rest = partial = 0
    starts = [2 * block for block in range(rows * columns // 2)] + [rows * columns - 2]
    positions = [start + place for start in starts for place in (0, 1)]
    for y, x in (divmod(position, columns) for position in positions):
        inside = [
            [0 <= start - before + k < size for k in range(kernel)]
            for start, size in ((y, rows), (x, columns))
        ]
        length = sum(inside[1]) * channels
        copied_groups += sum(inside[0]) * (length // 4)
        copied_rest += sum(inside[0]) * (length % 4)
        partial += not all(itertools.chain(*inside))
    elements = -(-kernel * kernel * channels // 4)
    assert found["copied_group"] == copied_groups
    assert found.get("copied_rest", 0) == copied_rest
    assert found.get("fill_call", 0) == partial + (2 if kernel * kernel * channels % 4 else 0)
    assert found["products_group"] == len(starts) * filters // 2 * elements
    assert found["plain_results_tflm"] == len(positions) * filters


def test_values_are_computed_once_where_they_do_not_change(tmp_path: Path) -> None:
    """A matrix product in float32: each weight is loaded once, each product computed once."""
    graph = Graph(seed=1)
    graph.output(graph.dense(graph.input("x", 1, 40), 40, 30))
    (found,) = executed(save(graph.model(), tmp_path), "cortex-m3", tmp_path)
    assert found is not None

    def total(*terms: str) -> float:
        return sum(found.get(term, 0) for term in terms)

    computed = total("float_product", "float_addition", "parallel_operation")
    assert computed == 2 * 30 * 40 + 30
    loads = total("load", "parallel_load")
    assert 30 * 40 + 40 <= loads <= 2 * 30 * 40 + 40 + 2 * 30  # and sums, which may stay
    assert total("turn", "parallel_turn") >= 40 and found["call"] == 1


@pytest.mark.parametrize("is_known", [True, False])
def test_turns_that_depend_on_data_make_a_kernel_uncountable(is_known: bool) -> None:
    tirx = tvm_api.tirx
    data = tirx.decl_buffer([20], "int32", "data")
    index, extent = tirx.Var("i", "int32"), tirx.IntImm("int32", 20)
    body = tirx.BufferStore(data, tirx.IntImm("int32", 7), [index])
    turns = extent if is_known else data[tirx.IntImm("int32", 0)]
    loop = tirx.For(index, tirx.IntImm("int32", 0), turns, tirx.ForKind.SERIAL, body)
    kernel: Any = SimpleNamespace(driver_calls=(), statements=[loop])
    counted = {"call": 1, "loop": 1, "turn": 20, "store": 20, "address": 20}
    assert executed_operations(kernel) == (counted if is_known else None)


# --- descriptions -------------------------------------------------------------------------------


def test_a_kernel_with_another_operation_has_no_known_cost() -> None:
    costs = CpuCosts(operations={"load": 2.0}, cycles_per_instruction=1.5)
    known = costs.of({"load": 10})
    assert (known.instructions, known.cycles) == (20, 30)
    for executed_by in (None, {"load": 10, "store": 1}, {"load": 1, "function.exp": 1}):
        unknown = costs.of(executed_by)
        assert (unknown.instructions, unknown.cycles) == (None, None)
    assert CpuCosts(operations={"load": 2.0}).of({"load": 10}).cycles is None
    in_cycles = CpuCosts(operations={"load": 2.0}, unit="cycles").of({"load": 10})
    assert (in_cycles.instructions, in_cycles.cycles) == (None, 20)


def test_a_description_may_be_that_of_another_cpu_with_changes(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        'base = "cortex-m4"\nname = "own"\n[costs]\nclock_mhz = 168\n[costs.operations]\nload = 9\n'
    )
    own, base = find_cpu(path), find_cpu("cortex-m4")
    assert own.costs is not None and base.costs is not None
    assert (own.name, own.flags, own.dot_products) == ("own", base.flags, "smlad")
    assert own.costs.operations == {**base.costs.operations, "load": 9}
    assert (own.costs.clock_mhz, own.costs.functions) == (168, base.costs.functions)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('base = "cortex-m5"', "base: there is no CPU 'cortex-m5'"),
        ("[costs.operations]\nlaod = 1", "costs.operations: 'laod' is no operation"),
        ("[costs.operations]\nload = -1", "costs.operations.load: "),
        ("[costs]\ncycles_per_instruction = 0", "costs.cycles_per_instruction: "),
        ('[costs]\nunit = "seconds"', "costs.unit: "),
    ],
)
def test_mistakes_in_descriptions_are_said(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(f"{text}\n" if text.startswith("base") else f'name = "own"\n{text}\n')
    with pytest.raises(InputError) as caught:
        find_cpu(path)
    assert said in str(caught.value)


# --- predictions --------------------------------------------------------------------------------


@pytest.mark.optimized
@pytest.mark.parametrize("cpu", WITH_COSTS)
def test_descriptions_predict_what_emulators_count(cpu: str, tmp_path: Path) -> None:
    device = "qemu-riscv32" if cpu == "rv32imac" else f"qemu-{cpu}"
    programs = [find_device(device).command, find_device(device).run[0]]
    if not all(map(shutil.which, programs)):
        pytest.skip(f"{device} is not installed")  # on CI `conftest.py` sees to it that it is
    model = trained_model("ad01_int8.tflite")
    library = umakit.compile_model(model, [], tmp_path / "out", options=ExportOptions(cpu=cpu))
    (view,) = library.metadata["umakit"]["inputs"]
    x = np.random.default_rng(3).integers(-60, 60, view["shape"]).astype(view["dtype"])
    ran = run_library(library.path, {view["name"]: x}, device=device, profile=True)
    described = load_metadata(library.path)["umakit"]["layers"]
    counted = np.array([layer.instructions for layer in ran.layers])
    predicted = np.array([layer["cpu_instructions"] for layer in described])
    assert predicted.sum() == pytest.approx(counted.sum(), rel=0.1)
    large = counted > 20_000
    np.testing.assert_allclose(predicted[large], counted[large], rtol=0.25)


# --- choice -------------------------------------------------------------------------------------


def decided(costs: LayerCosts, *order: str) -> Decision | None:
    return by_cycles(costs, order).get(("conv", 0))


def taken(target: str, cycles: int | None) -> TakenLayer:
    source = "unknown" if cycles is None else "predicted" if target == "cpu" else "measured"
    return TakenLayer(target, (("conv", 0),), cycles, source)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("a", "b", "cpu", "target", "said"),
    [
        (90, 100, 89, "cpu", "fewest cycles, clocks taken as equal: a 90 measured, b 100 measured, "
         "cpu 89 predicted"),
        (90, 100, 90, "a", "fewest cycles, by order of equal ones, clocks taken as equal"),
        (90, 80, 100, "b", "fewest cycles, clocks taken as equal"),
        (None, 80, 10, "b", "only one with known cycles; not compared with the CPU"),
        (90, 80, None, "b", "fewest cycles; unknown for the CPU"),
    ],
)  # fmt: skip
def test_the_cpu_keeps_what_it_does_in_fewer_cycles_than_all(
    a: int | None, b: int | None, cpu: int | None, target: str, said: str
) -> None:
    layers = (taken("a", a), taken("b", b), taken("cpu", cpu))
    found = decided(LayerCosts(layers), "a", "b")
    assert found is not None and found.target == target and said in str(found)
    without = decided(LayerCosts(layers[:2]), "a", "b")
    assert without is not None and "cpu" not in str(without).lower()


def test_clocks_are_taken_into_account_if_all_are_known() -> None:
    layers = (taken("a", 100), taken("cpu", 300))
    assert decided(LayerCosts(layers, clocks={"a": 50, "cpu": 200}), "a") == Decision(
        by_cycles(LayerCosts(layers), ["a"])["conv", 0].candidates,
        "least time at 50, 200 MHz",
        "cpu",
    )
    unknown = decided(LayerCosts(layers, clocks={"cpu": 200}), "a")
    assert unknown is not None and unknown.target == "a" and "taken as equal" in str(unknown)


def placed(cpu: str, *names: str) -> dict[str, tuple[str, str]]:
    """Where the operators of digits run and why, with the fewest cycles."""
    backends = [umakit.find_backend(name) for name in names]
    options = ExportOptions(choose="cycles", cpu=cpu)
    _, partitioned = partition_model(DIGITS, backends, options=options)
    rows = partitioned.report.placements
    return {row.name: (row.where, row.reason) for row in rows if not row.changes_layout}


def test_a_layer_stays_on_a_cpu_that_is_faster(tmp_path: Path) -> None:
    slow = placed(own_cpu(tmp_path, cycles_per_instruction=500), STRAWBERRY)
    offered = {"conv1", "conv2", "conv3_stride2", "conv4_1x1", "dense"}
    assert {name for name, (where, _) in slow.items() if where != "cpu"} == offered
    fast = placed(own_cpu(tmp_path, cycles_per_instruction=0.001), STRAWBERRY)
    assert {where for where, _ in fast.values()} == {"cpu"}
    assert "strawberry_accelerator 775 measured, cpu " in fast["conv1"][1]


# --- reports ------------------------------------------------------------------------------------


def library_of(cpu: str, backend: str, folder: Path) -> Path:
    options = ExportOptions(cpu=cpu, force=True)
    backends = [umakit.find_backend(backend)]
    return Path(umakit.compile_model(DIGITS, backends, folder / "out", options=options).path)


def test_profiles_have_predicted_cycles_of_the_cpu(tmp_path: Path) -> None:
    x = np.zeros((1, 1, 8, 8), "float32")
    cpu = own_cpu(tmp_path, base="generic", cycles_per_instruction=2, clock_mhz=100)
    library = library_of(cpu, CHOCOLATE, tmp_path)
    description = load_metadata(library)["umakit"]
    result = run_library(library, {"image": x}, profile=True)
    found = account(description, result)
    steps = {row.name: row for row in found.cpu_steps}
    for row in steps.values():
        assert row.predicted_instructions and row.cpu_cycles == 2 * row.predicted_instructions
        assert row.source == "predicted"
    assert found.cycles == (found.clock_cycles or 0) + sum(r.cycles or 0 for r in steps.values())
    assert "predicted, clocks taken as equal" in found.total_text
    assert found.as_json()["cpu_sources"] == ["predicted"]
    scaled = account(description, result, cpu_clock=1e9)
    assert {row.source for row in scaled.cpu_steps} == {"scaled"} and not scaled.clocks
    described = {**description, "backends": [{**b, "clock_mhz": 50.0} for b in
                                             description["backends"]]}  # fmt: skip
    halved = account(described, result)
    assert halved.cpu_cycles == pytest.approx((found.cpu_cycles or 0) / 2, abs=len(steps))
    assert "clocks of 100 and 50 MHz" in halved.total_text


def test_without_costs_the_cpu_stays_unknown(tmp_path: Path) -> None:
    library = library_of("generic", CHOCOLATE, tmp_path)
    description = load_metadata(library)["umakit"]
    result = run_library(library, {"image": np.zeros((1, 1, 8, 8), "float32")}, profile=True)
    found = account(description, result)
    assert found.cycles is None and found.cpu_cycles is None
    assert all(row.predicted_instructions is None for row in found.rows)
    assert "cpu_cycles" not in json.dumps(description)
    assert "unknown" in found.total_text


def test_the_table_and_the_trace_name_predictions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cpu = own_cpu(tmp_path, base="generic", cycles_per_instruction=2)
    library = library_of(cpu, CHOCOLATE, tmp_path)
    inputs, trace = tmp_path / "in.npz", tmp_path / "trace.json"
    np.savez(inputs, image=np.zeros((1, 1, 8, 8), "float32"))
    line = ["run", str(library), "-i", str(inputs), "--profile", "--trace", str(trace)]
    assert run_command(line) == 0
    text = capsys.readouterr().out
    assert "predicted instructions" in " ".join(text.split()) and " predicted" in text
    events = json.loads(trace.read_text())["traceEvents"]
    steps = [e for e in events if "predicted_cycles" in e.get("args", {}) and e["ph"] == "i"]
    assert steps and all(step["args"]["predicted_cycles"] > 0 for step in steps)


def test_reports_run_on_a_device_what_this_machine_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cpu = own_cpu(tmp_path, base="cortex-m4", cycles_per_instruction=2)
    inputs, path = {"image": np.zeros((1, 1, 8, 8), "float32")}, tmp_path / "in.npz"
    np.savez(path, **inputs)
    line = ["report", str(DIGITS), "-b", CHOCOLATE, "-i", str(path), "--cpu", cpu, "--json"]
    assert run_command(line) == 2
    assert "run it with --device qemu-cortex-m4" in " ".join(capsys.readouterr().err.split())
    assert run_command([*line, "--device", "qemu-cortex-m4"]) == 0
    page = json.loads(capsys.readouterr().out)
    library = library_of(cpu, CHOCOLATE, tmp_path)
    ran = run_library(library, inputs, profile=True, device="qemu-cortex-m4")
    on_host = library_of("generic", CHOCOLATE, tmp_path)
    simulated = run_library(on_host, inputs, profile=True)
    steps = page["accounting"]["rows"][: len(ran.layers)]  # behind them, what no layer owns
    for row, counted, clocked in zip(steps, ran.layers, simulated.layers, strict=True):
        if row["where"] == "cpu":
            assert row["cpu_cycles"] == pytest.approx(2 * counted.instructions, rel=0.05)
        else:
            assert row["clock_cycles"] == clocked.clock_cycles
