# SPDX-License-Identifier: Apache-2.0
"""Layers in parts that a callback of the caller computes: `--parallel-for`.

What is right is the library without parts, bit by bit: both run in one C program with threads. What
the proof of independent loops may say is enumerated here in Python.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from comparisons import examples
from cpus_here import cpu_here
from hypothesis import given
from hypothesis import strategies as st
from networks import Graph, save
from parallel_driver import run_both, split_library
from qdq import Qdq
from strict import WARNINGS
from tflite_networks import trained_model
from umakit.cli.main import run_command

import umakit
from umakit import tvm_api
from umakit.errors import LibraryError, MemoryPlanError
from umakit.library.options import MOST_PARTS, ExportOptions
from umakit.lower.parts import LoopProofs, Parts, scratch_step
from umakit.memory.pools import parse_pool
from umakit.operators.kernels.loops import buffer, loop, sequence

ROOT = Path(__file__).parents[1]
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
CPUS = ["generic", "x86-64-v3"]
tirx = tvm_api.tirx


def float_network(
    seed: int, height: int, width: int, channels: int, stride: int
) -> onnx.ModelProto:
    """Padded, strided, depthwise and pointwise convolutions, pools, a residual addition, a resized
    and concatenated image, a matrix product and a softmax."""
    graph = Graph("net", seed=seed)
    image = graph.input("input", 1, 3, height, width)
    start = graph.node("Relu", graph.conv(image, channels, 3, bias=True))
    x = graph.conv(start, channels, 3, group=0)
    x = graph.node("Sigmoid", graph.conv(x, channels, 1, bias=True))
    x = graph.node("Relu", graph.node("Add", x, start))
    pooled = graph.node("MaxPool", x, kernel_shape=[2, 2], strides=[stride, stride])
    same = graph.node("Concat", pooled, pooled, axis=1)
    graph.channels(same, 2 * channels)
    y = graph.conv(same, channels, (1, 3), pads=[0, 1, 0, 1], strides=[1, stride], bias=True)
    mean = graph.node("Flatten", graph.node("GlobalAveragePool", y))
    graph.output(graph.node("Softmax", graph.dense(mean, channels, 11)), y)
    return graph.model()


def integer_network(seed: int, height: int, width: int, channels: int, stride: int) -> Qdq:
    """Convolutions, one of groups and one depthwise, and an addition, in integers."""
    net = Qdq("int8" if seed % 2 else "uint8", seed)
    x, groups = net.input((1, channels, height, width), 0.05), 2 if channels % 2 == 0 else 1
    for group, filters, steps in ((groups, 2 * channels, 1), (2 * channels, 2 * channels, stride)):
        shape = (filters, (channels if group == groups else filters) // group, 3, 3)
        weights, scale = net.weights(shape, "int8", True)
        bias = net.bias(filters, np.float32(0.05) * scale)
        x = net.node("Conv", x, weights, bias, pads=[1] * 4, group=group, strides=[steps] * 2)
        x = net.dequantize(net.quantize(x, 0.05, 3), 0.05, 3, net.dtype)
    return net


sizes = st.tuples(
    st.integers(1, 2**20), st.integers(5, 13), st.integers(5, 13), st.sampled_from([3, 8, 16, 20]),
    st.integers(1, 2),
)  # fmt: skip


@pytest.mark.parametrize("cpu", CPUS)
@examples(2)
@given(sizes=sizes, parts=st.sampled_from([2, 3, 8]))
def test_float_networks_are_the_same_bit_by_bit(
    cpu: str, sizes: tuple[int, int, int, int, int], parts: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:  # fmt: skip
    folder = tmp_path_factory.mktemp("float")
    model = save(float_network(*sizes), folder, "net")
    library = split_library(model, folder, ExportOptions(cpu=cpu_here(cpu), parallel=parts))
    assert run_both(library, model) >= 6


@pytest.mark.parametrize("cpu", CPUS)
@examples(2)
@given(sizes=sizes, parts=st.sampled_from([2, 3, 8]))
def test_integer_networks_are_the_same_bit_by_bit(
    cpu: str, sizes: tuple[int, int, int, int, int], parts: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:  # fmt: skip
    folder = tmp_path_factory.mktemp("integers")
    net = integer_network(*sizes)
    model = save(net.model(net.nodes[-2].output[0]), folder, "net")
    library = split_library(model, folder, ExportOptions(cpu=cpu_here(cpu), parallel=parts))
    assert run_both(library, model) >= 2


@pytest.mark.parametrize(
    ("model", "cpu", "parts", "least"),
    [
        ("kws_ref_model.tflite", "generic", 3, 12),
        ("kws_ref_model.tflite", "x86-64-v3", 3, 10),
    ],
)
def test_trained_integer_networks_are_the_same_bit_by_bit(
    model: str, cpu: str, parts: int, least: int, tmp_path: Path
) -> None:
    path = trained_model(model)
    library = split_library(path, tmp_path, ExportOptions(cpu=cpu_here(cpu), parallel=parts))
    assert run_both(library, path) >= least


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("kind", ["float", "integer"])
def test_threads_do_not_race(kind: str, cpu: str, tmp_path: Path) -> None:
    """ThreadSanitizer sees every access of two threads that nothing orders."""
    net = integer_network(1, 7, 9, 8, 1)
    found = float_network(1, 7, 9, 8, 1)
    found = found if kind == "float" else net.model(net.nodes[-2].output[0])
    model = save(found, tmp_path, "net")
    library = split_library(model, tmp_path, ExportOptions(cpu=cpu_here(cpu), parallel=3))
    flags = ["-fsanitize=thread", "-fno-sanitize-recover=all"]
    assert run_both(library, model, flags, [3]) > 0


def test_addresses_stay_in_the_working_memory(tmp_path: Path) -> None:
    model = save(float_network(2, 8, 6, 16, 2), tmp_path, "net")
    library = split_library(model, tmp_path, ExportOptions(cpu=cpu_here("x86-64-v3"), parallel=8))
    assert run_both(library, model, ["-fsanitize=address,undefined"], [2]) > 0


# --- which loops are independent ------------------------------------------------------------------


def elements(terms: tuple[int, ...], extents: tuple[int, ...], turn: int, offset: int) -> set[int]:
    """Elements that a turn of the first loop accesses."""
    rest = itertools.product(*map(range, extents[1:]))
    return {
        offset + sum(t * v for t, v in zip(terms, (turn, *values), strict=True)) for values in rest
    }


accesses = st.tuples(
    st.tuples(*[st.sampled_from([0, 1, 2, 3, 4, 6, 12, 24])] * 3), st.integers(0, 30)
)


@given(extents=st.tuples(*[st.integers(2, 5)] * 3), stored=accesses, loaded=st.none() | accesses)
def test_no_loop_is_cut_whose_turns_meet(
    extents: tuple[int, int, int],
    stored: tuple[tuple[int, ...], int],
    loaded: tuple[tuple[int, ...], int] | None,
) -> None:
    data, output = buffer("data", [1], "int32"), buffer("output", [1000], "int32")
    variables = [tirx.Var(name, "int32") for name in "abc"]

    def index(access: tuple[tuple[int, ...], int]) -> tvm_api.PrimExpr:
        total = tirx.IntImm("int32", access[1])
        for term, variable in zip(access[0], variables, strict=True):
            total = total + variable * tirx.IntImm("int32", term)
        return total

    value = output[index(loaded)] if loaded else data[tirx.IntImm("int32", 0)]
    body = tirx.BufferStore(output, value, [index(stored)])
    for variable, extent in reversed([*zip(variables, extents, strict=True)]):
        bounds = (tirx.IntImm("int32", 0), tirx.IntImm("int32", extent))
        body = tirx.For(variable, *bounds, tirx.ForKind.SERIAL, body)
    found = [each.loops[0].loop_var for each in LoopProofs(body, [output]).find()]
    turns = range(extents[0])
    writes = [elements(stored[0], extents, turn, stored[1]) for turn in turns]
    reads = [elements(loaded[0], extents, turn, loaded[1]) if loaded else set() for turn in turns]
    apart = all(
        not writes[one] & (writes[other] | reads[other])
        for one, other in itertools.permutations(turns, 2)
    )
    if any(variable.same_as(variables[0]) for variable in found):
        assert apart
    if stored[0][0] > sum(t * (e - 1) for t, e in zip(stored[0][1:], extents[1:], strict=True)):
        assert loaded or found[0].same_as(variables[0])


def test_working_memory_of_a_turn_before_forbids_parts() -> None:
    """A sum that goes on, for example: its loop depends on the order."""
    data, output = buffer("data", [8], "int32"), buffer("output", [8], "int32")
    total, zero = tirx.decl_buffer([1], "int32", "total"), tirx.IntImm("int32", 0)

    def turn(i: tvm_api.PrimExpr) -> tvm_api.Stmt:
        added = tirx.BufferStore(total, total[zero] + data[i], [zero])
        return sequence(added, tirx.BufferStore(output, total[zero], [i]))

    allocated = [tirx.AllocBuffer(total), tirx.BufferStore(total, zero, [zero])]
    assert not LoopProofs(sequence(*allocated, loop("i", 8, turn)), [output]).find()
    inside = loop("i", 8, lambda i: sequence(*allocated, turn(i)))
    assert LoopProofs(inside, [output]).find()[0].turns == 8


@given(turns=st.integers(1, 100), together=st.integers(1, 2), most=st.integers(2, 9))
def test_ranges_are_all_turns_in_order_and_even(turns: int, together: int, most: int) -> None:
    together = min(together, turns)
    units = turns - together + 1
    ranges = Parts((), turns, together, min(most, units)).ranges()
    assert [turn for first, end in ranges for turn in range(first, end)] == [*range(turns)]
    sizes = [end - first for first, end in ranges]
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= together
    assert sizes[-1] >= together


def test_scratch_of_parts_lies_in_lines_of_its_own() -> None:
    assert [scratch_step(n, "float32") for n in (1, 16, 17)] == [16, 16, 32]
    assert scratch_step(65, "int8") == 128


# --- the interface --------------------------------------------------------------------------------


FAILING = """
#include "tvmgen_digits.h"
#include <stdio.h>
static int32_t gives_up(void *context, void (*body)(void *argument, int32_t part), void *argument,
                        int32_t parts)
{
    (void)context; (void)body; (void)argument;
    return parts <= TVMGEN_DIGITS_MOST_PARTS ? 7 : 0;
}
static float image[64], logits[10];
static _Alignas(64) uint8_t memory[TVMGEN_DIGITS_WORKSPACE_SIZE];
int main(void)
{
    struct tvmgen_digits_inputs inputs = {image};
    struct tvmgen_digits_outputs outputs = {logits};
    struct tvmgen_digits_workspace_pools pools = {memory, sizeof memory};
    struct tvmgen_digits_parallel parallel = {gives_up, NULL};
    int32_t status = tvmgen_digits_run_parallel(&inputs, &outputs, &pools, &parallel);
    printf("%d %s\\n", (int)status, tvmgen_digits_status_string(status));
    parallel.parallel_for = NULL;
    status = tvmgen_digits_run_parallel(&inputs, &outputs, &pools, &parallel);
    pools.workspace_size -= 1;
    printf("%d %d\\n", (int)status,
           (int)tvmgen_digits_run_parallel(&inputs, &outputs, &pools, &parallel));
    return 0;
}
"""


def test_a_callback_that_fails_ends_the_run(tmp_path: Path) -> None:
    options = ExportOptions(parallel=2)
    library = umakit.compile_model(DIGITS, [], tmp_path / "library", options=options)
    host = library.path / "codegen/host"
    (tmp_path / "main.c").write_text(FAILING, encoding="utf-8")
    sources = map(str, sorted((host / "src").glob("*.c")))
    command = [
        "gcc",
        "-std=c11",
        *WARNINGS,
        f"-I{host}/include",
        str(tmp_path / "main.c"),
        *sources,
    ]
    subprocess.run([*command, "-lm", "-o", str(tmp_path / "main")], check=True)
    said = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["-10 parallel_for did not compute all parts of a layer", "0 -2"]


def test_the_example_of_the_page_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "cpus.md").read_text(encoding="utf-8")
    (text,) = [each for each in re.findall("```c\n(.*?)```", page, re.S) if "run_parallel(" in each]
    library = umakit.compile_model(DIGITS, [], tmp_path / "l", options=ExportOptions(parallel=4))
    host = library.path / "codegen/host"
    (tmp_path / "main.c").write_text(text, encoding="utf-8")
    sources = map(str, sorted((host / "src").glob("*.c")))
    command = ["gcc", "-std=c11", *WARNINGS, "-fopenmp", f"-I{host}/include", "main.c", *sources]
    subprocess.run([*command, "-lm", "-o", "main"], cwd=tmp_path, check=True)
    said = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout
    assert said == "ok\n"


def test_metadata_says_which_layers_have_parts(tmp_path: Path) -> None:
    options = ExportOptions(parallel=3)
    library = umakit.compile_model(DIGITS, [], tmp_path / "library", options=options)
    section = library.metadata["umakit"]
    assert section["most_parts"] == 3
    parts = {each["name"]: each.get("parts") for each in section["layers"]}
    assert parts["conv2 + relu2"] == 3
    assert parts["dense"] is None  # too small
    plain = umakit.compile_model(DIGITS, [], tmp_path / "plain")
    assert "parts" not in json.dumps(plain.metadata)
    assert all(
        not re.search("parallel|PARTS", path.read_text(encoding="utf-8"))
        for path in (plain.path / "codegen/host").rglob("*.[ch]")
    )


def test_weights_in_a_blob_and_several_cpus_have_parts_too(tmp_path: Path) -> None:
    for name, options in (
        ("blob", ExportOptions(parallel=2, weights="blob")),
        ("several", ExportOptions(parallel=2, cpu="generic,x86-64-v3")),
    ):
        library = umakit.compile_model(DIGITS, [], tmp_path / name, options=options)
        for source in sorted((library.path / "codegen/host/src").glob("*.c")):
            line = ["gcc", "-std=c99", *WARNINGS, "-fsyntax-only", str(source)]
            subprocess.run(line, check=True)
        header = (library.path / "codegen/host/include/tvmgen_digits.h").read_text(encoding="utf-8")
        assert "tvmgen_digits_run_parallel(" in header


@pytest.mark.parametrize("parts", [1, -2, MOST_PARTS + 1])
def test_numbers_of_parts_that_are_refused(parts: int) -> None:
    with pytest.raises(LibraryError, match=f"{parts} parts of a kernel cannot run"):
        ExportOptions(parallel=parts)


def test_the_command_refuses_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compile", str(DIGITS), "-o", str(tmp_path / "library"), "--parallel-for", "1"]
    assert run_command(words) == 2
    assert "choose 2 to 64, or 0" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "library").exists()


def test_names_of_the_interface_are_taken(tmp_path: Path) -> None:
    graph = Graph("net")
    x = graph.conv(graph.input("parallel", 1, 3, 8, 8), 4, 3, name="run_parts")
    graph.output(graph.node("Relu", x, name="run_layers"))
    model = save(graph.model(), tmp_path, "net")
    library = split_library(model, tmp_path, ExportOptions(parallel=2))
    assert run_both(library, model) > 0
    with pytest.raises(MemoryPlanError, match="cannot be called"):
        options = ExportOptions(parallel=2, pools=(parse_pool("parallel=1M"),))
        umakit.compile_model(model, [], tmp_path / "pool", options=options)
