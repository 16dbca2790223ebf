# SPDX-License-Identifier: Apache-2.0
"""Several memories: who goes where, what does not fit, and how it is said."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from execution import onnx_runtime, vanilla
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import Graph, save
from test_memory import assert_sound, chain, element_wise, optimum, program, programs

import umakit
from umakit.devices.run import run_library
from umakit.devices.unpacked import run_unpacked
from umakit.errors import AcceleratorConfigError, MemoryPlanError
from umakit.machine.accelerator_config import load_accelerator_config
from umakit.memory.plan import MemoryPlan, PoolPlan
from umakit.memory.planners import PLANNERS
from umakit.memory.planning import plan_memory
from umakit.memory.pools import MemoryPool, memory_pools, parse_pool
from umakit.memory.validator import validate_plan
from umakit.program.program import Program
from umakit.tools.scaffold import new_backend

NPU = "npu"


def on_targets(prog: Program, targets: list[str]) -> Program:
    """The program with its steps spread over targets."""
    calls = tuple(
        replace(call, target=targets[number % len(targets)])
        for number, call in enumerate(prog.calls)
    )
    return replace(prog, calls=calls)


def homes(plan: MemoryPlan) -> dict[str, str]:
    """Name of the pool by tensor."""
    return {name: pool.pool.name for pool in plan.pools for name in pool.offsets}


# --- where tensors go ---------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(
    programs(5),
    st.lists(st.sampled_from(["cpu", NPU]), min_size=1, max_size=4),
    st.lists(st.sampled_from([32, 96, 192, 400]), min_size=1, max_size=2),
    st.sampled_from([16, 64]),
)
def test_every_plan_keeps_to_sizes_alignments_and_reach(
    prog: Program, targets: list[str], sizes: list[int], alignment: int
) -> None:
    prog = on_targets(prog, targets)
    pools = [
        MemoryPool("local", sizes[0], alignment, frozenset([NPU])),
        *(MemoryPool(f"sram{i}", size) for i, size in enumerate(sizes[1:])),
        MemoryPool("dram"),
    ]
    plan = plan_memory(prog, pools)
    assert_sound(prog, plan)
    users: dict[str, set[str]] = {}
    for call in prog.calls:
        for name in call.arguments:
            users.setdefault(name, set()).add(call.target)
    for name, home in homes(plan).items():
        assert home != "local" or users[name] == {NPU}


@settings(max_examples=60, deadline=None)
@given(programs(4), st.integers(1, 12), st.integers(1, 12))
def test_what_fits_somehow_is_not_refused(prog: Program, first: int, second: int) -> None:
    """Against every way to spread the tensors over two pools."""
    pools = [MemoryPool("a", 16 * first), MemoryPool("b", 16 * second)]
    try:
        assert_sound(prog, plan_memory(prog, pools))
        refused = False
    except MemoryPlanError:
        refused = True
    names = list(prog.tensors)
    fits = any(
        optimum_of(prog, [n for n, here in zip(names, split, strict=True) if here]) <= 16 * first
        and optimum_of(prog, [n for n, here in zip(names, split, strict=True) if not here])
        <= 16 * second
        for split in itertools.product([True, False], repeat=len(names))
    )
    assert refused == (not fits)


def optimum_of(prog: Program, names: list[str]) -> int:
    """The smallest arena for some of a program's tensors."""
    if not names:
        return 0

    def only(arguments: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in arguments if name in names)

    calls = tuple(
        replace(c, inputs=only(c.inputs), outputs=only(c.outputs), scratch=only(c.scratch))
        for c in prog.calls
    )
    return optimum(replace(prog, tensors={n: prog.tensors[n] for n in names}, calls=calls))


def test_the_first_pool_with_room_wins() -> None:
    plan = plan_memory(chain([64, 64, 64]), [MemoryPool("fast", 128), MemoryPool("slow")])
    assert set(homes(plan).values()) == {"fast"}
    assert [pool.pool.name for pool in plan.pools] == ["fast"], "an unused pool is nobody's burden"


def test_the_largest_tensor_of_the_fullest_step_makes_room() -> None:
    plan = plan_memory(chain([64, 256, 32]), [MemoryPool("fast", 128), MemoryPool("slow")])
    assert homes(plan) == {"t0": "fast", "t1": "slow", "t2": "fast"}


def test_a_smaller_tensor_moves_where_the_largest_would_not_fit() -> None:
    plan = plan_memory(chain([96, 80]), [MemoryPool("fast", 96), MemoryPool("slow", 80)])
    assert homes(plan) == {"t0": "fast", "t1": "slow"}


def test_a_tensor_goes_where_all_its_users_reach() -> None:
    prog = on_targets(chain([64, 64, 64, 64]), ["cpu", NPU, NPU, "cpu"])
    local = MemoryPool("local", 1024, 16, frozenset([NPU]))
    plan = plan_memory(prog, [local, MemoryPool("shared")])
    # t1 goes from one layer of the accelerator to the next, the others meet the CPU.
    assert homes(plan) == {"t0": "shared", "t1": "local", "t2": "shared", "t3": "shared"}


def test_no_memory_is_taken_over_across_a_border() -> None:
    """The output may overwrite its input only where all users of both reach."""
    prog = on_targets(element_wise(3), ["cpu", NPU, NPU])
    pools = [
        MemoryPool("local", reachable_by=frozenset([NPU])),
        MemoryPool("shared"),
    ]
    together = plan_memory(prog, pools)
    validate_plan(prog, together)
    apart = plan_memory(
        on_targets(element_wise(2), ["cpu"]), [MemoryPool("ram", reachable_by=frozenset(["cpu"]))]
    )
    assert apart.shared == {"t1": "t0"}


def test_a_tensor_that_no_memory_serves_is_named() -> None:
    prog = on_targets(chain([64, 64]), ["cpu", NPU])
    pools = [
        MemoryPool("local", reachable_by=frozenset([NPU])),
        MemoryPool("ram", reachable_by=frozenset(["cpu"])),
    ]
    with pytest.raises(
        MemoryPlanError, match="tensor t0: no memory pool is within reach of cpu and npu"
    ):
        plan_memory(prog, pools)


def test_too_little_memory_is_said_with_bytes_and_tensors() -> None:
    with pytest.raises(MemoryPlanError) as caught:
        plan_memory(chain([100_000, 65_536, 16]), [MemoryPool("sram", 98_304)])
    assert str(caught.value) == (
        "memory pool sram: has 98,304 B, the network needs 165,536 B of it: 67,232 B too much; "
        "alive together are t0 100,000 B, t1 65,536 B; give it more room, or a second pool "
        "(--pool NAME=BYTES)"
    )


# --- the validator ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pools", "message"),
    [
        ((PoolPlan(MemoryPool("a", 64), {"t0": 0, "t1": 64}, 128),), "128 B are planned, there"),
        (
            (
                PoolPlan(MemoryPool("a"), {"t0": 0, "t1": 64}, 128),
                PoolPlan(MemoryPool("b"), {"t0": 0}, 64),
            ),
            "tensor t0: lies in two memory pools",
        ),
        (
            (PoolPlan(MemoryPool("a", reachable_by=frozenset([NPU])), {"t0": 0, "t1": 64}, 128),),
            r"tensor t0: lies in memory pool a, out of reach of cpu \(layer 0\)",
        ),
        (
            (
                PoolPlan(MemoryPool("a"), {"t0": 0}, 64),
                PoolPlan(MemoryPool("b", alignment=64), {"t1": 16}, 128),
            ),
            "tensor t1: offset 16 is not a multiple of 64",
        ),
    ],
)
def test_the_validator_refuses(pools: tuple[PoolPlan, ...], message: str) -> None:
    with pytest.raises(MemoryPlanError, match=message):
        validate_plan(chain([64, 64]), MemoryPlan(pools, 128))


# --- what users write ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "pool"),
    [
        ("sram", MemoryPool("sram")),
        ("sram=4096", MemoryPool("sram", 4096)),
        ("sram=96K", MemoryPool("sram", 96 * 1024)),
        ("sram=2M,align=64", MemoryPool("sram", 2 << 20, 64)),
        ("sram,align=32", MemoryPool("sram", None, 32)),
    ],
)
def test_a_pool_is_written_like_this(text: str, pool: MemoryPool) -> None:
    assert parse_pool(text) == pool


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sram=", "cannot be read"),
        ("sram=-4", "cannot be read"),
        ("sram=1.5K", "cannot be read"),
        ("sram=4G", "cannot be read"),
        ("=4096", "cannot be read"),
        ("sram=0", "a size of 0 B"),
        ("sram=4096,align=24", "alignment 24 is not a power of two"),
        ("sram=4096,align=0", "alignment 0 is not a power of two"),
        ("SRAM=4096", "cannot be called 'SRAM'"),
        ("int=4096", "cannot be called 'int'"),
    ],
)
def test_a_pool_that_makes_no_sense_is_refused(text: str, message: str) -> None:
    with pytest.raises(MemoryPlanError, match=message):
        parse_pool(text)


def test_a_requested_pool_gives_a_declared_one_another_size(tmp_path: Path) -> None:
    backend = backend_with_memory(
        tmp_path,
        '[[memory]]\nname = "scratchpad"\nsize = 65536\nalignment = 64\n'
        'reachable_by = ["accelerator"]\n',
    )
    reach = frozenset(["npu_with_memory"])
    declared, default = memory_pools([backend])
    assert declared == MemoryPool("scratchpad", 65536, 64, reach)
    assert default == MemoryPool("workspace"), "the CPU needs memory too"
    smaller, ram = memory_pools([backend], [parse_pool("scratchpad=1K"), parse_pool("ram=4K")])
    assert smaller == MemoryPool("scratchpad", 1024, 64, reach)
    assert ram == MemoryPool("ram", 4096)
    with pytest.raises(MemoryPlanError, match="ram is given twice"):
        memory_pools([], [parse_pool("ram"), parse_pool("ram=4K")])


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ('name = "s"\nsize = 0', "memory.0.size"),
        ('name = "s"\nalignment = 12', "memory.0.alignment: 12 is not a power of two"),
        ('name = "s"\nreachable_by = []', "memory.0.reachable_by"),
        ('name = "s"\nreachable_by = ["dsp"]', "memory.0.reachable_by.0"),
        ('name = "S"', "memory.0.name"),
        ("size = 64", "memory.0.name"),
    ],
)
def test_a_wrong_memory_section_is_named(section: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "accel.toml"
    path.write_text(
        f'[accelerator]\nname = "n"\n[array]\nrows = 1\ncolumns = 1\n[[memory]]\n{section}\n',
        encoding="utf-8",
    )
    with pytest.raises(AcceleratorConfigError, match=message):
        load_accelerator_config(path)


# --- whole libraries ----------------------------------------------------------------------------


def backend_with_memory(folder: Path, section: str) -> umakit.UMABackend:
    """A fresh Vanilla with a memory of its own in `accel.toml`."""
    written = new_backend("npu_with_memory", folder, "vanilla").folder
    config = written / "accel.toml"
    config.write_text(config.read_text(encoding="utf-8") + section, encoding="utf-8")
    return umakit.find_backend(written)


def two_convolutions() -> onnx.ModelProto:
    """Two convolutions in a row, which Vanilla takes, and a layer for the CPU."""
    graph = Graph()
    x = graph.conv(graph.input("x", 1, 3, 12, 10), 4, 3)
    graph.output(graph.node("Relu", graph.conv(x, 4, 3)))
    return graph.model()


@pytest.mark.parametrize("weights", ["c", "blob"])
def test_a_network_runs_in_several_memories(weights: str, tmp_path: Path) -> None:
    backend = backend_with_memory(
        tmp_path, '[[memory]]\nname = "scratchpad"\nsize = 4096\nreachable_by = ["accelerator"]\n'
    )
    model = save(two_convolutions(), tmp_path)
    options = umakit.ExportOptions(
        pools=(MemoryPool("fast", 2000, 32), MemoryPool("slow")),
        weights="blob" if weights == "blob" else "c",
    )
    library = umakit.compile_model(model, [backend], tmp_path / "library", options=options)
    memory = library.metadata["umakit"]["memory"]
    assert [pool["name"] for pool in memory["pools"]] == ["scratchpad", "fast"]
    inputs = {"x": np.random.default_rng(3).normal(size=(1, 3, 12, 10)).astype("float32")}
    (expected,) = onnx_runtime(two_convolutions(), inputs).values()
    for run in (run_library, run_unpacked):
        result = run(library.path, inputs)
        outputs = result if isinstance(result, dict) else result.outputs
        np.testing.assert_allclose(next(iter(outputs.values())), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("planner", PLANNERS)
def test_each_planner_can_be_chosen(planner: str, tmp_path: Path) -> None:
    model = save(two_convolutions(), tmp_path)
    options = umakit.ExportOptions(planner=planner)
    library = umakit.compile_model(model, [vanilla()], tmp_path / planner, options=options)
    assert library.metadata["umakit"]["memory"]["planner"] == planner


def test_over_budget_leaves_nothing_behind(tmp_path: Path) -> None:
    options = umakit.ExportOptions(pools=(MemoryPool("sram", 1024),))
    with pytest.raises(MemoryPlanError, match="memory pool sram: has 1,024 B, the network needs"):
        umakit.compile_model(
            save(two_convolutions(), tmp_path), [vanilla()], tmp_path / "library", options=options
        )
    assert not (tmp_path / "library").exists()


def test_the_metadata_lists_what_lies_where(tmp_path: Path) -> None:
    options = umakit.ExportOptions(pools=(MemoryPool("fast", 2000), MemoryPool("slow")))
    library = umakit.compile_model(
        save(two_convolutions(), tmp_path), [vanilla()], tmp_path / "library", options=options
    )
    description = library.metadata["umakit"]
    memory, layers = description["memory"], description["layers"]
    assert memory["arena_bytes"] == sum(pool["used_bytes"] for pool in memory["pools"])
    tensors = [tensor for pool in memory["pools"] for tensor in pool["tensors"]]
    for step, layer in enumerate(layers):
        alive = [t for t in tensors if t["first_layer"] <= step <= t["last_layer"]]
        names = {tensor["c_name"] for tensor in alive}
        counted = [t for t in alive if t["takes_over"] not in names]
        assert layer["arena_bytes"] == sum(tensor["size_bytes"] for tensor in counted)
    (module,) = library.metadata["modules"].values()
    functions = module["memory"]["functions"]
    assert functions["main"][0]["workspace_pools"] == {
        pool["name"]: pool["used_bytes"] for pool in memory["pools"]
    }
    assert {f["function_name"] for f in functions["operator_functions"]} == {
        layer["function"] for layer in layers if layer["function"]
    }
    assert module["style"] == "full-model" and module["target"] == ["c", "vanilla_accelerator"]


def test_a_program_that_needs_nothing_still_has_a_pool() -> None:
    prog = program({}, [((), (), ())])
    plan = plan_memory(prog, [MemoryPool("fast", 64), MemoryPool("ram")])
    assert [(pool.pool.name, pool.size) for pool in plan.pools] == [("ram", 0)]
