# SPDX-License-Identifier: Apache-2.0
"""Kernels that are scheduled for a CPU with vectors: ONNX Runtime says what is right."""

from __future__ import annotations

import json
import math
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from comparisons import examples
from cpu_libraries import export, run_on_garbage
from cpus_here import VECTOR_CPUS, cpu_here
from hypothesis import given
from hypothesis import strategies as st
from networks import Graph, onnx_runtime, random_inputs
from strict import WARNINGS

import umakit
from umakit.cpu import description as cpus
from umakit.cpu.description import Cpu, cpu_names, find_cpu
from umakit.cpu.float_convolutions import channels_to_fill
from umakit.cpu.register_tiles import choose_tile, fused_tile
from umakit.devices import HOST
from umakit.devices.build import library_sources
from umakit.devices.cpus import cpu_flags
from umakit.errors import BuildError, InputError
from umakit.library.metadata import load_metadata

WITH_VECTORS = [name for name in cpu_names() if find_cpu(name).has_vectors]


@st.composite
def networks(draw: st.DrawFn) -> onnx.ModelProto:
    """Convolutions of all kinds with what follows them, and a dense layer."""
    size = st.integers
    graph = Graph(seed=draw(size(0, 2**16)))
    channels = draw(st.sampled_from([1, 3, 4, 8, 10, 16, 24]))
    height, width = draw(size(3, 14)), draw(size(3, 14))
    x = graph.input("input", draw(size(1, 2)), channels, height, width)
    for _ in range(draw(size(1, 3))):
        kind = draw(st.sampled_from(["plain", "pointwise", "depthwise", "groups"]))
        filters = draw(st.sampled_from([1, 4, 5, 8, 12, 16, 32, 40, 64]))
        group = 1
        if kind == "depthwise":
            group, filters = channels, channels * draw(size(1, 2))
        elif kind == "groups" and channels % 2 == 0 and filters % 2 == 0:
            group = 2
        kernel = (1, 1) if kind == "pointwise" else (draw(size(1, 3)), draw(size(1, 4)))
        pads = [draw(size(0, 2)) for _ in range(4)] if kind != "pointwise" else [0] * 4
        strides = [draw(size(1, 2)), draw(size(1, 3))]
        dilations = [draw(size(1, 2)), 1]
        shape = [
            (length + pads[axis] + pads[axis + 2] - dilations[axis] * (kernel[axis] - 1) - 1)
            // strides[axis] + 1
            for axis, length in enumerate((height, width))
        ]  # fmt: skip
        if min(shape) < 1:
            continue
        (height, width), channels = shape, filters
        x = graph.conv(
            x, filters, kernel, bias=draw(st.booleans()), group=group, pads=pads,
            strides=strides, dilations=dilations,
        )  # fmt: skip
        x = draw_tail(draw, graph, x)
        if draw(st.booleans()):
            x = graph.node("Add", graph.conv(x, channels, draw(st.sampled_from([1, 3]))), x)
    if draw(st.booleans()):
        x = graph.node("GlobalAveragePool", x)
        height = width = 1
    x = graph.dense(graph.node("Flatten", x), channels * height * width, draw(size(1, 40)))
    graph.output(x)
    return graph.model()


def draw_tail(draw: st.DrawFn, graph: Graph, x: str) -> str:
    """What follows a convolution."""
    tail = draw(st.sampled_from(["", "Relu", "add", "Sigmoid", "square", "Clip", "Max"]))
    if tail == "add":
        return graph.node("Add", x, graph.node("Relu", x))
    if tail == "square":
        return graph.node("Mul", x, x)
    if tail == "Clip":
        return graph.node("Clip", x, graph.constant(-0.5), graph.constant(1.5))
    if tail == "Max":
        return graph.node("Max", graph.node("Min", x, graph.node("Mul", x, x)), x)
    return graph.node(tail, x) if tail else x


@examples(8)
@given(model=networks(), cpu=st.sampled_from(VECTOR_CPUS))
def test_networks_are_those_of_onnx_runtime(
    model: onnx.ModelProto, cpu: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("cpu")
    inputs = random_inputs(model)
    expected = onnx_runtime(model, inputs)
    found = run_on_garbage(export(model, cpu_here(cpu), folder), inputs)
    for name, array in expected.items():
        scale = max(1.0, float(np.abs(array).max()))
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-5 * scale)


@examples(6)
@given(
    shape=st.tuples(*[st.sampled_from([1, 2, 5, 8, 12, 16, 24])] * 4),
    transposed=st.tuples(st.booleans(), st.booleans()), cpu=st.sampled_from(VECTOR_CPUS),
)  # fmt: skip
def test_products_of_matrices_that_are_computed(
    shape: tuple[int, int, int, int],
    transposed: tuple[bool, bool],
    cpu: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    batch, rows, depth, columns = shape
    graph = Graph(seed=sum(shape))
    sides = []
    for name, size, is_transposed in zip(
        ("a", "b"), ((rows, depth), (depth, columns)), transposed, strict=True
    ):
        given_size = size[::-1] if is_transposed else size
        x = graph.node("Relu", graph.input(name, batch, *given_size))
        sides.append(graph.node("Transpose", x, perm=[0, 2, 1]) if is_transposed else x)
    graph.output(graph.node("Relu", graph.node("MatMul", *sides)))
    model = graph.model()
    inputs = random_inputs(model)
    found = run_on_garbage(export(model, cpu_here(cpu), tmp_path_factory.mktemp("cpu")), inputs)
    for name, array in onnx_runtime(model, inputs).items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("tail", "cpu"), [*zip(["Relu", "Clip", "Max"], VECTOR_CPUS, strict=True)])
def test_nan_and_infinities_are_as_in_scalar_code(tail: str, cpu: str, tmp_path: Path) -> None:
    graph = Graph(seed=4)
    x = graph.conv(graph.input("input", 1, 8, 6, 6), 16, bias=True)
    if tail == "Max":
        x = graph.node("Max", graph.node("Min", x, graph.node("Mul", x, x)), x)
    elif tail == "Clip":
        x = graph.node("Clip", x, graph.constant(-0.5), graph.constant(1.5))
    else:
        x = graph.node("Relu", x)
    graph.output(x)
    model = graph.model()
    inputs = random_inputs(model)
    inputs["input"][0, 2, 3, 3], inputs["input"][0, 5, 0, 0] = np.nan, np.inf
    found = [
        run_on_garbage(export(model, each, tmp_path), inputs) for each in (cpu_here(cpu), "generic")
    ]
    for name, array in found[1].items():
        assert np.isnan(array).any()
        np.testing.assert_array_equal(np.isnan(found[0][name]), np.isnan(array))
        np.testing.assert_allclose(found[0][name], array, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("name", WITH_VECTORS)
def test_c_is_clean_and_says_how_to_compile_it(name: str, compiler: str, tmp_path: Path) -> None:
    cpu = find_cpu(name)
    graph = Graph(seed=5)
    x = graph.conv(graph.input("input", 1, 4, 9, 9), 16, bias=True)
    x = graph.node("Relu", graph.conv(x, 16, group=0))
    graph.output(graph.dense(graph.node("Flatten", x), 16 * 81, 10))
    library = export(graph.model(), name, tmp_path)
    sources = [str(path) for path in library_sources(library) if path.suffix == ".c"]
    target = ["--target=aarch64-linux-gnu"] if cpu.architecture == "aarch64" else []
    if target and compiler == "gcc":
        compiler, target = "aarch64-linux-gnu-gcc", []
    line = [compiler, *target, "-std=c99", "-O1", *WARNINGS, "-fsyntax-only"]
    if compiler == "clang" and target:
        line += ["-isystem", "/usr/aarch64-linux-gnu/include"]
    try:
        right = subprocess.run([*line, *cpu.flags, *sources], capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip(f"{compiler} is not installed")
    assert (right.returncode, right.stderr) == (0, "")
    wrong = subprocess.run([*line, *sources], capture_output=True, text=True, check=False)
    if cpu.architecture == "x86-64":  # NEON is in every 64-bit Arm
        assert wrong.returncode and f"this C is for {name}: compile it with" in wrong.stderr


@pytest.mark.parametrize("cpu", VECTOR_CPUS)
def test_kernels_use_vectors_and_keep_sums_out_of_memory(cpu: str, tmp_path: Path) -> None:
    graph = Graph(seed=6)
    x = graph.input("input", 1, 16, 8, 8)
    graph.output(graph.node("Relu", graph.conv(x, 32, bias=True)))
    library = export(graph.model(), cpu, tmp_path)
    (text,) = [p.read_text("utf-8") for p in library_sources(library) if p.name == "tvmgen_net.c"]
    assert f"float32x{find_cpu(cpu).float_lanes}" in text
    assert "float sums[" in text  # a local array
    operators = load_metadata(library)["umakit"]["operators"]
    assert [each["operator"] for each in operators] == [
        "permute_dims", "nn.conv2d", "add", "nn.relu", "permute_dims",
    ]  # fmt: skip


def test_a_library_for_another_machine_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = Graph(seed=7)
    graph.output(graph.node("Relu", graph.input("input", 1, 4)))
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    library = export(graph.model(), "cortex-a76", tmp_path)
    with pytest.raises(BuildError, match="the library is for cortex-a76: this machine is x86-64"):
        cpu_flags(library, HOST)
    information = tmp_path / "cpuinfo"
    information.write_text("flags\t\t: fpu sse2\n", encoding="ascii")
    monkeypatch.setattr(cpus, "CPU_INFORMATION", information)
    assert find_cpu("x86-64-v3").missing_here() == "this machine has no avx2, fma, bmi2, f16c"
    assert find_cpu("native").name == "generic"


@pytest.mark.parametrize(
    ("machine", "features", "native"),
    [
        ("x86_64", "sse2 avx2 fma bmi2", "generic"),
        ("x86_64", "sse2 avx2 fma bmi2 f16c avx512f", "x86-64-v3"),
        ("AMD64", "avx2 fma bmi2 f16c avx512f avx512vl avx512bw avx512dq", "x86-64-v4"),
        (
            "x86_64", "avx2 fma bmi2 f16c avx512f avx512vl avx512bw avx512dq avx512_vnni",
            "x86-64-v4-vnni",
        ),
        ("aarch64", "fp asimd asimddp", "cortex-a76"),
        ("arm64", "fp", "generic"),
        ("ppc64le", "", "generic"),
    ],
)  # fmt: skip
def test_native_is_the_widest_cpu_whose_features_linux_lists(
    machine: str, features: str, native: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    information = tmp_path / "cpuinfo"
    information.write_text(f"processor : 0\nflags : {features}\n", encoding="ascii")
    monkeypatch.setattr(cpus, "CPU_INFORMATION", information)
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert find_cpu("native").name == native


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "x"\nvector_bytes = 24\nvector_registers = 4', "is no power of two"),
        ('name = "x"\nvector_bytes = 32', "go together"),
        ('name = "x"\nflags = ["-o/etc/passwd"]', "flags.0"),
        (
            'name = "x"\nvector_byte = 3',
            "toml:2: vector_byte: there is no such key; remove it, or wr",
        ),
        (
            'name = "x"\nvector_bytes = "16"\nvector_registers = 8',
            "toml:2: vector_bytes: .* integer",
        ),
        ('base = "cortex-m4"\n[costs.operations]\nload = true', "toml:3: costs.operations.load: "),
        ("name = ", "mine.toml: is no TOML"),
    ],
)
def test_mistakes_in_descriptions(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        find_cpu(path)


def test_a_description_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('name = "mine"\nvector_bytes = 16\nvector_registers = 8\n', encoding="utf-8")
    graph = Graph(seed=8)
    graph.output(graph.conv(graph.input("input", 1, 3, 5, 5), 8))
    library = export(graph.model(), str(path), tmp_path)
    assert "float32x4" in next(iter(library.rglob("tvmgen_net.c"))).read_text("utf-8")


def test_unknown_cpus_are_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="there is no CPU 'z80'") as error:
        umakit.ExportOptions(cpu="z80")
    assert ", ".join((*cpu_names(), "native")) in error.value.fix
    assert cpu_names()[0] == "generic" and {"cortex-m55", "rv64gcv"} < set(cpu_names())


@given(
    rows=st.integers(1, 30), positions=st.integers(1, 300), channels=st.integers(1, 300),
    lanes=st.sampled_from([4, 8, 16]), registers=st.sampled_from([8, 16, 32]),
)  # fmt: skip
def test_tiles_fit_registers_and_fill_vectors(
    rows: int, positions: int, channels: int, lanes: int, registers: int
) -> None:
    cpu = Cpu(name="x", vector_bytes=4 * lanes, vector_registers=registers)
    tile = choose_tile(cpu, positions, channels)
    for each in (tile, fused_tile(cpu, tile, rows, positions, channels)):
        assert channels % each.channels == each.channels % each.lanes == 0 and each.lanes <= lanes
        vectors = each.channels // each.lanes
        assert each.positions * vectors + vectors + 1 <= registers or each.positions == 1
        within = positions % each.positions == 0 or each.positions % positions == 0
        assert each == tile or (within and rows * positions % each.positions == 0)


def test_descriptions_are_listed_in_help_and_metadata(tmp_path: Path) -> None:
    graph = Graph(seed=9)
    graph.output(graph.node("Relu", graph.input("input", 1, 4)))
    generic = load_metadata(export(graph.model(), "generic", tmp_path))["umakit"]
    assert "cpu" not in generic  # exports for any CPU are as they were
    named: dict[str, Any] = load_metadata(export(graph.model(), "x86-64-v3", tmp_path))["umakit"]
    assert named["cpu"]["name"] == "x86-64-v3"
    assert json.loads(json.dumps(named["cpu"]["flags"])) == list(find_cpu("x86-64-v3").flags)


@given(channels=st.integers(1, 500), lanes=st.sampled_from([4, 8, 16]))
def test_channels_are_filled_where_that_needs_fewer_vectors(channels: int, lanes: int) -> None:
    filled = channels_to_fill(channels, lanes)
    narrower = max(n for n in (1, 2, 4, 8, 16) if n <= lanes and channels % n == 0)
    assert channels <= filled < channels + lanes
    if filled == channels:
        assert channels // narrower <= -(-channels // lanes)
    else:
        assert filled % lanes == 0 and filled // lanes < channels // narrower


@pytest.mark.parametrize("cpu", VECTOR_CPUS)
def test_filled_weights_keep_their_name_and_are_zeros(cpu: str, tmp_path: Path) -> None:
    lanes = find_cpu(cpu).float_lanes
    graph = Graph(seed=10)
    x = graph.conv(graph.input("input", 1, 3, 7, 7), lanes + lanes // 2, bias=True)
    graph.output(graph.node("Relu", x))
    library = export(graph.model(), cpu, tmp_path)
    (text,) = [p.read_text("utf-8") for p in library_sources(library) if p.name == "tvmgen_net.c"]
    (shape,) = re.findall(r"weights  float32\[([\d, ]*)\]", text)
    assert math.prod(map(int, shape.split(", "))) == 27 * 2 * lanes
    assert f"output   float32[1, 7, 7, {lanes + lanes // 2}]" in text
