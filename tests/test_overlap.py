# SPDX-License-Identifier: Apache-2.0
"""The CPU works while an accelerator does: where it may, what it costs, and that results stay."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from comparisons import examples
from hypothesis import given
from hypothesis import strategies as st
from qdq import Qdq
from umakit.cli.main import run_command

from umakit import compile_model, run_library
from umakit.backend.registry import find_backend
from umakit.errors import MemoryPlanError
from umakit.frontend import import_model
from umakit.library.export import Library
from umakit.lower import lower
from umakit.memory.planning import plan_memory
from umakit.memory.pools import memory_pools
from umakit.memory.validator import validate_plan
from umakit.partition.partitioner import partition
from umakit.pipeline import ExportOptions
from umakit.program.building import build_program
from umakit.program.overlap import overlap_with_cpu
from umakit.program.program import Program
from umakit.quantized import quantize_to_integers

CHOCOLATE = "chocolate_accelerator"


class Branches:
    """A network of branches over one input, each a chain of convolutions and sigmoids."""

    def __init__(self, seed: int) -> None:
        self.q = Qdq("int8", seed)
        self.x = self.q.input((1, 3, 6, 5), 0.05)

    def chain(self, x: str, steps: str) -> str:
        """`c` for a convolution, which the accelerator takes, `s` for a sigmoid, which stays."""
        q = self.q
        for step in steps:
            if step == "s":
                y = q.node("Sigmoid", x)
                scale, zero = 1 / 256, -128
            else:
                weights, scales = q.weights((3, 3, 3, 3), "int8", True)
                y = q.node("Conv", x, weights, q.bias(3, scales * 0.05), pads=[1, 1, 1, 1])
                scale, zero = 0.05, q.zero_point()
            x = q.dequantize(q.quantize(y, scale, zero), scale, zero, "int8")
        return x

    def save(self, chains: list[str], path: Path) -> dict[str, Any]:
        """The model with its branches one behind the other; returns inputs."""
        q = self.q
        ends = [self.chain(self.x, steps) for steps in chains]
        joined = q.node("Concat", *ends, axis=1)
        output = q.dequantize(q.quantize(joined, 0.05), 0.05, 0, "int8")
        onnx.save(q.model(output), path)
        return q.samples(3.0)


def c_of(library: Library) -> str:
    (source,) = (library.path / "codegen" / "host" / "src").glob("tvmgen_network.c")
    return source.read_text(encoding="utf-8")


def compiled(chains: list[str], folder: Path, seed: int = 0) -> tuple[Library, Library, Any]:
    path = folder / "network.onnx"
    inputs = Branches(seed).save(chains, path)
    options = ExportOptions(overlap="always")
    accelerated = compile_model(
        path, [find_backend(CHOCOLATE)], folder / "library", options=options
    )
    return accelerated, compile_model(path, [], folder / "cpu"), inputs


def assert_same(accelerated: Library, plain: Library, inputs: Any) -> None:
    expected = run_library(plain.path, inputs).outputs
    for profile in (False, True):
        for name, values in run_library(accelerated.path, inputs, profile=profile).outputs.items():
            np.testing.assert_array_equal(values, expected[name])


def test_the_cpu_works_beside_the_accelerator(tmp_path: Path) -> None:
    accelerated, plain, inputs = compiled(["c", "ss"], tmp_path)
    text = c_of(accelerated)
    run = text[text.index("run_layers(") :]
    started, waited = run.index("WAIT_AT_ONCE("), run.index("WAIT_NOW(")
    # Both sigmoids, on the CPU, are between the start and the wait.
    assert len(re.findall(r"/\* \d+: .*\(cpu\)", run[started:waited])) == 2
    assert_same(accelerated, plain, inputs)


def test_steps_change_places_to_run_beside_each_other(tmp_path: Path) -> None:
    accelerated, plain, inputs = compiled(["s", "c"], tmp_path)
    run = c_of(accelerated).partition("run_layers(")[2]
    begin, end = run.index("WAIT_AT_ONCE("), run.index("WAIT_NOW(")
    assert "(cpu)" in run[begin:end]
    assert_same(accelerated, plain, inputs)


def test_the_command_line_asks_for_it(tmp_path: Path) -> None:
    path = tmp_path / "network.onnx"
    Branches(0).save(["c", "ss"], path)
    arguments = ["compile", str(path), "-b", CHOCOLATE, "-o", str(tmp_path / "library")]
    assert run_command([*arguments, "--overlap", "sometimes"]) == 2
    assert not (tmp_path / "library").exists()
    assert run_command([*arguments, "--overlap", "always"]) == 0
    (source,) = (tmp_path / "library" / "codegen" / "host" / "src").glob("tvmgen_network.c")
    assert "WAIT_NOW(" in source.read_text(encoding="utf-8")


def test_it_costs_no_memory_unless_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "network.onnx"
    Branches(0).save(["c", "ss"], path)
    sizes = {}
    for when in ("never", "free", "always"):
        options = ExportOptions(overlap=when)  # type: ignore[arg-type]
        library = compile_model(path, [find_backend(CHOCOLATE)], tmp_path / when, options=options)
        sizes[when] = library.metadata["umakit"]["memory"]["arena_bytes"]
    assert sizes["free"] == sizes["never"] < sizes["always"]


def test_what_needs_the_result_waits(tmp_path: Path) -> None:
    accelerated, plain, inputs = compiled(["cs"], tmp_path)
    assert "WAIT" not in c_of(accelerated)
    assert_same(accelerated, plain, inputs)


@examples(4)
@given(
    chains=st.lists(st.text("cs", min_size=1, max_size=3), min_size=2, max_size=3),
    seed=st.integers(0, 1000),
)
def test_any_branches_are_exact(
    chains: list[str], seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert_same(*compiled(chains, tmp_path_factory.mktemp("branches"), seed))


def program_of(chains: list[str], folder: Path) -> Program:
    path = folder / "network.onnx"
    Branches(0).save(chains, path)
    model = quantize_to_integers(import_model(path))
    backends = [find_backend(CHOCOLATE)]
    partitioned = partition(model.module, backends)
    pools = memory_pools(backends, ())
    reserved = ExportOptions().reserved_names(pools)
    return build_program(model, lower(partitioned, backends), partitioned.report, reserved)


def test_memory_of_a_running_layer_is_not_given_away(tmp_path: Path) -> None:
    backends = {CHOCOLATE: find_backend(CHOCOLATE)}
    program = overlap_with_cpu(program_of(["c", "ss"], tmp_path), backends, "always")
    (step,) = (number for number, call in enumerate(program.calls) if call.overlapped)
    assert program.calls[step].overlapped == 2
    pools = memory_pools(list(backends.values()), ())
    validate_plan(program, plan_memory(program, pools))
    # A plan that was made without knowing of it may give the memory away.
    unaware = tuple(replace(call, completion=None) for call in program.calls)
    careless = replace(plan_memory(replace(program, calls=unaware), pools), shared={})
    running, beside = program.calls[step].outputs[0], program.calls[step + 2].outputs[0]
    (home,) = (pool for pool in careless.pools if running in pool.offsets)
    home.offsets[beside] = home.offsets[running]
    with pytest.raises(MemoryPlanError, match="belong to"):
        validate_plan(program, careless)


def test_a_step_that_may_fail_does_not_run_beside_the_accelerator(tmp_path: Path) -> None:
    program, backends = program_of(["c", "ss"], tmp_path), {CHOCOLATE: find_backend(CHOCOLATE)}
    kernels = {name: replace(each, returns_status=True) for name, each in program.kernels.items()}
    failing = overlap_with_cpu(replace(program, kernels=kernels), backends, "always")
    assert not any(call.overlapped for call in failing.calls)
