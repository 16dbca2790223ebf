# SPDX-License-Identifier: Apache-2.0
"""The memory planners against exhaustive search, the validator against broken plans."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from umakit.errors import MemoryPlanError
from umakit.lower.driver_calls import DriverCall, DriverCallKind
from umakit.lower.in_place import in_place_inputs
from umakit.lower.kernels import Kernel
from umakit.memory.plan import MemoryPlan, PoolPlan
from umakit.memory.planners import PLANNERS
from umakit.memory.planning import plan_memory
from umakit.memory.pools import ALIGNMENT, MemoryPool
from umakit.memory.validator import validate_plan
from umakit.operators.kernels import loops
from umakit.program.program import Completion, KernelCall, Program, Role, Tensor
from umakit.tvm_api import tirx

# How much more than the optimum any planner may need for a handful of tensors.
FACTOR = 1.5

Step = tuple[Sequence[str], Sequence[str], Sequence[str]]
"""Names of the inputs, outputs and scratch tensors of a call."""


def program(
    sizes: dict[str, int],
    steps: Sequence[Step],
    roles: dict[str, Role] | None = None,
    in_place: dict[int, tuple[int, ...]] | None = None,
) -> Program:
    """A program over byte tensors.

    Args:
        sizes: bytes by tensor name.
        steps: the calls.
        roles: of tensors that are not intermediates.
        in_place: by step, which inputs its kernel may overwrite.
    """
    tensors = {
        name: Tensor(name, name, (size,), "uint8", (roles or {}).get(name, Role.INTERMEDIATE))
        for name, size in sizes.items()
    }
    calls, kernels = [], {}
    for number, (inputs, outputs, scratch) in enumerate(steps):
        name, where = f"kernel{number}", (in_place or {}).get(number, ())
        kernels[name] = Kernel(name, "cpu", (), (), (), (), False, in_place=where)
        used = (tuple(inputs), tuple(outputs), tuple(scratch))
        calls.append(KernelCall(name, *used, label=f"layer {number}", target="cpu", macs=0))
    return Program("test", tensors, {}, tuple(calls), kernels, (), ())


@st.composite
def programs(draw: st.DrawFn, most: int = 6) -> Program:
    """Up to `most` tensors, each written at some step and read at a later one, or scratch."""
    length = draw(st.integers(1, 6))
    sizes: dict[str, int] = {}
    steps: list[tuple[list[str], list[str], list[str]]] = [([], [], []) for _ in range(length)]
    for number in range(draw(st.integers(1, most))):
        name = f"t{number}"
        sizes[name] = draw(st.integers(1, 12)) * 16 - draw(st.integers(0, 15))
        first = draw(st.integers(0, length - 1))
        last = draw(st.integers(first, length - 1))
        if first == last:
            steps[first][2].append(name)
        else:
            steps[first][1].append(name)
            steps[last][0].append(name)
    return program(sizes, steps, {name: Role.SCRATCH for step in steps for name in step[2]})


def chain(sizes: Sequence[int]) -> Program:
    """Layers one after the other, each reading what the last one wrote."""
    names = [f"t{number}" for number in range(len(sizes))]
    steps: list[Step] = [((), (names[0],), ())]
    steps += [((a,), (b,), ()) for a, b in itertools.pairwise(names)]
    return program(dict(zip(names, sizes, strict=True)), steps)


def aligned(size: int, alignment: int = ALIGNMENT) -> int:
    return (size + alignment - 1) // alignment * alignment


def lifetimes(prog: Program) -> dict[str, tuple[int, int]]:
    """First and last step of each tensor."""
    steps: dict[str, list[int]] = {}
    for number, call in enumerate(prog.calls):
        for name in call.arguments:
            steps.setdefault(name, []).append(number)
    return {name: (min(numbers), max(numbers)) for name, numbers in steps.items()}


def conflicts(prog: Program) -> list[tuple[str, str]]:
    """Pairs of tensors that are alive at the same step."""
    alive = lifetimes(prog)
    return [
        (a, b)
        for a, b in itertools.combinations(alive, 2)
        if alive[a][0] <= alive[b][1] and alive[b][0] <= alive[a][1]
    ]


def live_set(prog: Program, alignment: int = 1) -> int:
    """The largest sum of sizes alive at one step."""
    alive = lifetimes(prog)
    return max(
        sum(
            aligned(prog.tensors[name].size, alignment)
            for name, (first, last) in alive.items()
            if first <= step <= last
        )
        for step in range(len(prog.calls))
    )


def optimum(prog: Program) -> int:
    """The smallest arena there is.

    Some optimal plan has every tensor at the bottom or on top of one that it conflicts with, so
    placing tensors in every order, each at the lowest place that is free, finds it.
    """
    alive = lifetimes(prog)
    neighbours: dict[str, set[str]] = {name: set() for name in alive}
    for a, b in conflicts(prog):
        neighbours[a].add(b)
        neighbours[b].add(a)
    best = sum(aligned(prog.tensors[name].size) for name in alive)
    for order in itertools.permutations(alive):
        ends: dict[str, tuple[int, int]] = {}
        for name in order:
            size, offset = aligned(prog.tensors[name].size), 0
            for start, end in sorted(ends[other] for other in neighbours[name] if other in ends):
                if offset + size <= start:
                    break
                offset = max(offset, end)
            ends[name] = (offset, offset + size)
            if offset + size >= best:
                break
        else:
            best = max(end for _, end in ends.values())
    return best


def one_pool(
    offsets: dict[str, int],
    size: int,
    bound: int,
    alignment: int = ALIGNMENT,
    shared: dict[str, str] | None = None,
) -> MemoryPlan:
    """A plan with a single pool."""
    pool = PoolPlan(MemoryPool("workspace", alignment=alignment), offsets, size)
    return MemoryPlan((pool,), bound, shared or {})


def offsets_of(plan: MemoryPlan) -> dict[str, int]:
    """Offsets in the plan's only pool."""
    (pool,) = plan.pools
    return pool.offsets


def assert_sound(prog: Program, plan: MemoryPlan) -> None:
    """Every tensor in one pool, inside it, aligned, disjoint from those alive at the same time."""
    alive = lifetimes(prog)
    homes = {name: pool for pool in plan.pools for name in pool.offsets}
    assert sum(len(pool.offsets) for pool in plan.pools) == len(alive)
    assert set(homes) == set(alive)
    ends = {}
    for name, home in homes.items():
        assert home.offsets[name] >= 0 == home.offsets[name] % home.pool.alignment
        ends[name] = home.offsets[name] + prog.tensors[name].size
        assert ends[name] <= home.size
        assert home.size % home.pool.alignment == 0
        assert home.pool.size is None or home.size <= home.pool.size
    for a, b in conflicts(prog):
        first, second = homes[a], homes[b]
        assert first is not second or ends[a] <= first.offsets[b] or ends[b] <= first.offsets[a], (
            a,
            b,
        )
    validate_plan(prog, plan)


# --- planners -----------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(programs())
def test_the_default_plan_is_the_smallest_there_is(prog: Program) -> None:
    plan = plan_memory(prog)
    assert_sound(prog, plan)
    assert plan.live_set_bound == live_set(prog)
    assert plan.arena_size == optimum(prog) >= live_set(prog, ALIGNMENT)


@pytest.mark.parametrize("planner", PLANNERS)
@settings(max_examples=30, deadline=None)
@given(prog=programs())
def test_every_planner_is_sound_and_close_to_the_optimum(planner: str, prog: Program) -> None:
    plan = plan_memory(prog, planner=planner)
    assert_sound(prog, plan)
    assert optimum(prog) <= plan.arena_size <= FACTOR * optimum(prog)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 4000), min_size=2, max_size=25))
def test_a_chain_of_layers_needs_no_more_than_its_live_set(sizes: list[int]) -> None:
    plan = plan_memory(chain(sizes))
    assert plan.arena_size == max(aligned(a) + aligned(b) for a, b in itertools.pairwise(sizes))


@pytest.mark.parametrize("count", [20, 50, 600])
def test_a_long_chain_of_layers_needs_no_more_than_its_live_set(count: int) -> None:
    sizes = [int(size) for size in np.random.default_rng(9).integers(1, 100_000, count)]
    prog = chain(sizes)
    plan = plan_memory(prog)
    validate_plan(prog, plan)
    assert plan.arena_size == live_set(prog, ALIGNMENT)


@pytest.mark.parametrize("planner", PLANNERS)
def test_a_plan_does_not_depend_on_how_fast_the_machine_is(
    planner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal networks give equal bytes, whatever else runs in the process."""
    prog = chain([16, 32, 16, 16, 32, 16])
    fast = plan_memory(prog, planner=planner)
    ticks = itertools.count(step=1000)
    with monkeypatch.context() as slow:
        for clock in ("monotonic", "perf_counter", "process_time", "time"):
            slow.setattr(time, clock, lambda: next(ticks))
        assert plan_memory(prog, planner=planner) == fast


@pytest.mark.parametrize("planner", PLANNERS)
def test_planning_twice_gives_the_same_plan(planner: str) -> None:
    prog = chain([16, 32, 16, 16, 32, 16, 48, 16, 80])
    assert plan_memory(prog, planner=planner) == plan_memory(prog, planner=planner)


def test_only_intermediates_and_scratch_get_a_place() -> None:
    roles = {"x": Role.INPUT, "w": Role.CONSTANT, "s": Role.SCRATCH, "y": Role.OUTPUT}
    sizes = {"x": 100, "w": 100, "t": 17, "s": 33, "y": 100}
    prog = program(sizes, [(("x", "w"), ("t",), ("s",)), (("t",), ("y",), ())], roles)
    plan = plan_memory(prog)
    assert set(offsets_of(plan)) == {"t", "s"}
    assert (plan.live_set_bound, plan.arena_size) == (17 + 33, 32 + 48)


def test_a_program_without_intermediates_needs_no_arena() -> None:
    prog = program({"x": 4, "y": 4}, [(("x",), ("y",), ())], {"x": Role.INPUT, "y": Role.OUTPUT})
    plan = plan_memory(prog)
    validate_plan(prog, plan)
    assert (offsets_of(plan), plan.arena_size, plan.live_set_bound) == ({}, 0, 0)


@pytest.mark.parametrize("alignment", [1, 4, 64])
def test_another_alignment_is_kept(alignment: int) -> None:
    prog = program({"a": 5, "b": 7, "c": 3}, [((), ("a", "b"), ()), (("a", "b"), ("c",), ())])
    plan = plan_memory(prog, [MemoryPool("sram", alignment=alignment)])
    assert_sound(prog, plan)
    assert plan.arena_size == sum(aligned(size, alignment) for size in (5, 7, 3))


@pytest.mark.parametrize("alignment", [0, -16, 3, 24])
def test_an_alignment_that_is_no_power_of_two_is_refused(alignment: int) -> None:
    with pytest.raises(MemoryPlanError, match=f"alignment {alignment} is not a power of two"):
        plan_memory(chain([1, 2]), [MemoryPool("sram", alignment=alignment)])


def test_an_unknown_planner_is_refused() -> None:
    with pytest.raises(MemoryPlanError, match="no memory planner 'magic'; choose from optimal"):
        plan_memory(chain([1, 2]), planner="magic")


# --- outputs that take over an input's memory ---------------------------------------------------


def element_wise(count: int, *, size: int = 64) -> Program:
    """A chain of equal tensors whose layers may all overwrite their input."""
    prog = chain([size] * count)
    kernels = {name: replace(kernel, in_place=(0,)) for name, kernel in prog.kernels.items()}
    kernels["kernel0"] = replace(kernels["kernel0"], in_place=())
    return replace(prog, kernels=kernels)


def test_a_chain_of_element_wise_layers_lives_in_one_place() -> None:
    prog = element_wise(5)
    plan = plan_memory(prog)
    validate_plan(prog, plan)
    assert set(offsets_of(plan).values()) == {0}
    assert plan.shared == {"t1": "t0", "t2": "t1", "t3": "t2", "t4": "t3"}
    assert (plan.arena_size, plan.live_set_bound) == (64, 128)


NOT_OVER = {
    "is read again later": program(
        {"a": 16, "b": 16}, [((), ("a",), ()), (("a",), ("b",), ()), (("a", "b"), (), ())]
    ),
    "has another size": program({"a": 16, "b": 32}, [((), ("a",), ()), (("a",), ("b",), ())]),
    "is read twice by the call": program(
        {"a": 16, "b": 16}, [((), ("a",), ()), (("a", "a"), ("b",), ())]
    ),
    "has a rival": program(
        {"a": 16, "b": 16, "c": 16}, [((), ("a",), ()), (("a",), ("b", "c"), ())]
    ),
    "is the caller's": program({"a": 16, "b": 16}, [(("a",), ("b",), ())], {"a": Role.INPUT}),
    "is a constant": program({"a": 16, "b": 16}, [(("a",), ("b",), ())], {"a": Role.CONSTANT}),
}


@pytest.mark.parametrize("why", NOT_OVER)
def test_an_input_is_not_taken_over_if_it(why: str) -> None:
    prog = NOT_OVER[why]
    kernels = {
        name: replace(kernel, in_place=tuple(range(len(call.inputs))))
        for call, (name, kernel) in zip(prog.calls, prog.kernels.items(), strict=True)
    }
    prog = replace(prog, kernels=kernels)
    plan = plan_memory(prog)
    validate_plan(prog, plan)
    assert plan.shared == {}


@pytest.mark.parametrize("reads_more", [False, True])
def test_a_kernel_keeps_an_input_that_it_reads_elsewhere_too(reads_more: bool) -> None:
    x, y = (loops.buffer(name, [4], "int32") for name in "xy")
    sums, total = loops.accumulators(1), loops.int32(0)

    def element(i: Any) -> Any:
        add = loops.loop("j", 4, lambda j: loops.add_element_to(sums, total, x[j]))
        store = tirx.BufferStore(y, loops.total_of(sums, total) + x[i], [i])
        return loops.sequence(loops.set_to(sums, total, total), *([add] * reads_more), store)

    body = loops.sequence(tirx.AllocBuffer(sums), loops.loop("i", 4, element))
    assert in_place_inputs(body, [x], y) == (() if reads_more else (0,))


@settings(max_examples=100, deadline=None)
@given(programs(), st.lists(st.booleans(), min_size=12, max_size=12))
def test_plans_with_takeovers_pass_the_validator(prog: Program, may: list[bool]) -> None:
    sizes = {name: replace(tensor, shape=(48,)) for name, tensor in prog.tensors.items()}
    kernels = {
        name: replace(
            kernel, in_place=tuple(i for i in range(len(call.inputs)) if may[(number + i) % 12])
        )
        for number, (call, (name, kernel)) in enumerate(
            zip(prog.calls, prog.kernels.items(), strict=True)
        )
    }
    prog = replace(prog, tensors=sizes, kernels=kernels)
    plan = plan_memory(prog)
    validate_plan(prog, plan)
    assert plan.arena_size <= optimum(prog)


# --- the validator ------------------------------------------------------------------------------

# a and b are alive together, b and c too, a and c are not.
CHAIN = program(
    {"a": 64, "b": 32, "c": 64, "s": 16},
    [((), ("a",), ()), (("a",), ("b",), ("s",)), (("b",), ("c",), ()), (("c",), (), ())],
    {"s": Role.SCRATCH},
)
SOUND = one_pool({"a": 0, "b": 64, "c": 0, "s": 96}, 112, 112, 16)


def test_the_validator_accepts_a_sound_plan() -> None:
    validate_plan(CHAIN, SOUND)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"b": 48}, r"tensor [ab]: some of its bytes belong to [ab] at step 1 \(layer 1\)"),
        ({"b": 0}, r"tensor [ab]: some of its bytes belong to"),
        ({"s": 64}, r"tensor [bs]: some of its bytes belong to"),
        ({"s": 48}, r"tensor [as]: some of its bytes belong to"),
        ({"c": 32}, r"tensor [bc]: some of its bytes belong to [bc] at step 2 \(layer 2\)"),
        ({"s": 112}, "tensor s: bytes 112 to 128 are outside the arena of 112"),
        ({"a": -16}, "tensor a: bytes -16 to 48 are outside the arena"),
        ({"s": 100}, "tensor s: bytes 100 to 116 are outside"),
        ({"b": 72}, "tensor b: offset 72 is not a multiple of 16"),
        ({"c": None}, "tensor c: has no offset"),
        ({"s": None}, "tensor s: has no offset"),
    ],
)
def test_the_validator_refuses_a_broken_plan(changed: dict[str, int | None], message: str) -> None:
    offsets = {**offsets_of(SOUND), **changed}
    broken = one_pool({name: at for name, at in offsets.items() if at is not None}, 112, 112)
    with pytest.raises(MemoryPlanError, match=message):
        validate_plan(CHAIN, broken)


def test_the_validator_sees_a_tensor_that_is_overwritten_between_two_reads() -> None:
    prog = program(
        {"a": 16, "b": 16, "c": 16},
        [((), ("a",), ()), (("a",), ("b",), ()), (("b",), ("c",), ()), (("a", "c"), (), ())],
    )
    validate_plan(prog, one_pool({"a": 0, "b": 16, "c": 32}, 48, 48, 16))
    with pytest.raises(MemoryPlanError, match="tensor a: some of its bytes belong to c at step 3"):
        validate_plan(prog, one_pool({"a": 0, "b": 16, "c": 0}, 48, 48, 16))


def test_the_validator_keeps_the_inputs_of_a_running_layer() -> None:
    """A layer reads `a` while the next step, which runs beside it, writes `c`."""
    steps = [((), ("a",), ()), (("a",), ("b",), ()), ((), ("c",), ()), (("b", "c"), (), ())]
    prog = program(dict.fromkeys("abc", 16), steps)
    plan = one_pool({"a": 0, "b": 16, "c": 0}, 32, 32, 16)
    validate_plan(prog, plan)
    finish = DriverCall("finish", DriverCallKind.FINISH, ())
    first, layer, *rest = prog.calls
    running = replace(layer, completion=Completion(finish, after=1))
    with pytest.raises(MemoryPlanError, match="tensor a: some of its bytes belong to c"):
        validate_plan(replace(prog, calls=(first, running, *rest)), plan)


def test_the_validator_sees_a_read_before_the_first_write() -> None:
    prog = program({"a": 16, "b": 16}, [(("a",), ("b",), ()), ((), ("a",), ()), (("b",), (), ())])
    with pytest.raises(MemoryPlanError, match="tensor a: some of its bytes belong to nobody"):
        validate_plan(prog, one_pool({"a": 0, "b": 16}, 32, 32, 16))


@settings(max_examples=100, deadline=None)
@given(programs(), st.data())
def test_the_validator_refuses_any_overlap_of_tensors_that_are_read(
    prog: Program, data: st.DataObject
) -> None:
    """Moving a tensor onto one that it conflicts with is seen, wherever it is moved."""
    pairs = conflicts(prog)
    if not pairs:
        return
    plan = plan_memory(prog)
    moved, other = data.draw(st.sampled_from([*pairs, *((b, a) for a, b in pairs)]))
    offset = offsets_of(plan)[other]
    room = max(plan.arena_size, offset + prog.tensors[moved].size)
    broken = one_pool({**offsets_of(plan), moved: offset}, room, plan.live_set_bound)
    with pytest.raises(MemoryPlanError):
        validate_plan(prog, broken)


def test_the_validator_refuses_a_takeover_that_the_kernel_does_not_allow() -> None:
    prog = chain([64, 64])
    with pytest.raises(MemoryPlanError, match="tensor t0: some of its bytes belong to t1"):
        validate_plan(prog, one_pool({"t0": 0, "t1": 0}, 64, 128, 16, {"t1": "t0"}))


@pytest.mark.parametrize(
    ("offsets", "shared"),
    [
        # The kernel would get two `restrict` pointers to the same memory.
        ({"t0": 0, "t1": 0}, {}),
        # The kernel would get one pointer, and read the input where it is not.
        ({"t0": 0, "t1": 64}, {"t1": "t0"}),
    ],
    ids=["unannounced", "apart"],
)
def test_the_validator_refuses_a_takeover_that_is_not_what_the_plan_says(
    offsets: dict[str, int], shared: dict[str, str]
) -> None:
    prog = element_wise(2)
    validate_plan(prog, one_pool({"t0": 0, "t1": 0}, 64, 128, 16, {"t1": "t0"}))
    with pytest.raises(MemoryPlanError):
        validate_plan(prog, one_pool(offsets, 128, 128, 16, shared))


# --- the validator against a replay of each byte ------------------------------------------------


def refusal_byte_by_byte(prog: Program, plan: MemoryPlan) -> str:
    """What is wrong with a plan of one pool, by a list with the owner of each byte; or nothing."""
    (pool,) = plan.pools
    offsets, owners = pool.offsets, ["nobody"] * pool.size
    numbers = {name: number for number, name in enumerate(prog.tensors)}

    def check(name: str, step: int) -> str:
        at = offsets[name]
        strangers = set(owners[at : at + prog.tensors[name].size]) - {name}
        if not strangers:
            return ""
        thief = min(strangers, key=lambda other: numbers.get(other, -1))
        return f"tensor {name}: some of its bytes belong to {thief} at step {step} (layer {step})"

    for step, call in enumerate(prog.calls):
        for name in call.inputs:
            if wrong := check(name, step):
                return wrong
        for name in (*call.outputs, *call.scratch):
            owners[offsets[name] : offsets[name] + prog.tensors[name].size] = [name] * (
                prog.tensors[name].size
            )
        for name in call.arguments:
            if wrong := check(name, step):
                return wrong
    return ""


@settings(max_examples=300, deadline=None)
@given(programs(), st.data())
def test_the_validator_says_what_a_replay_of_each_byte_says(
    prog: Program, data: st.DataObject
) -> None:
    """For sound plans and for plans in which each tensor lies anywhere."""
    offsets = dict(offsets_of(plan_memory(prog)))
    for name in data.draw(st.sets(st.sampled_from(sorted(offsets)))):
        offsets[name] = data.draw(st.integers(0, 200))
    room = max((at + prog.tensors[name].size for name, at in offsets.items()), default=0)
    plan = one_pool(offsets, room, room, 1)
    wanted = refusal_byte_by_byte(prog, plan)
    try:
        validate_plan(prog, plan)
        said = ""
    except MemoryPlanError as error:
        said = str(error)
    assert said == wanted


def test_arenas_of_any_size_are_planned_and_checked() -> None:
    large = 2**40
    prog = program(
        {"a": large, "b": 3, "c": large},
        [((), ("a",), ()), (("a",), ("b",), ()), (("a", "b"), ("c",), ()), (("c",), (), ())],
    )
    plan = plan_memory(prog)
    assert plan.arena_size == 2 * large + ALIGNMENT
    validate_plan(prog, plan)
    last = {**offsets_of(plan), "c": offsets_of(plan)["a"] + large - ALIGNMENT}
    with pytest.raises(MemoryPlanError, match="tensor a: some of its bytes belong to c at step 2"):
        validate_plan(prog, one_pool(last, 3 * large, large))


def test_an_arena_that_c_cannot_address_is_refused() -> None:
    with pytest.raises(MemoryPlanError, match=r"workspace: the network needs .* a C object can"):
        plan_memory(chain([2**62, 2**62]))
