# SPDX-License-Identifier: Apache-2.0
"""Schedules for vectors on drawn shapes: ONNX Runtime and NumPy say what is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from comparisons import examples
from cpu_libraries import export, run_on_garbage
from cpus_here import VECTOR_CPUS, cpu_here
from hypothesis import given
from hypothesis import strategies as st
from networks import Graph, normal, onnx_runtime, random_inputs

from umakit.cpu.register_tiles import Tile, row_cost, step_cost
from umakit.cpu.weight_tiles import WeightTiles
from umakit.library.metadata import load_metadata

cpus = st.sampled_from(VECTOR_CPUS)


def assert_equals_onnx_runtime(model: onnx.ModelProto, folder: Path, cpu: str) -> Path:
    """Export a network for a CPU, compare what it yields, and return the library."""
    inputs = random_inputs(model)
    library = export(model, cpu_here(cpu), folder)
    found = run_on_garbage(library, inputs)
    for name, array in onnx_runtime(model, inputs).items():
        scale = max(1.0, float(np.abs(array).max()))
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-5 * scale)
    return library


@examples(8)
@given(
    size=st.tuples(st.integers(3, 17), st.integers(3, 31)),
    channels=st.sampled_from([64, 96, 144, 160]), filters=st.sampled_from([8, 24, 32, 72, 96]),
    kernel=st.sampled_from([(3, 3), (1, 5), (5, 3), (2, 2)]),
    pads=st.lists(st.integers(0, 2), min_size=4, max_size=4),
    strides=st.tuples(st.integers(1, 2), st.integers(1, 2)), adds=st.booleans(), cpu=cpus,
)  # fmt: skip
def test_convolutions_whose_weights_are_cut_into_blocks(
    size: tuple[int, int],
    channels: int,
    filters: int,
    kernel: tuple[int, int],
    pads: list[int],
    strides: tuple[int, int],
    adds: bool,
    cpu: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    if any(size[n] + pads[n] + pads[n + 2] < kernel[n] for n in range(2)):
        return
    graph = Graph(seed=sum(size))
    x = graph.input("input", 1, channels, *size)
    x = graph.conv(x, filters, kernel, bias=True, pads=pads, strides=list(strides))
    graph.output(graph.node("Add", x, graph.node("Relu", x)) if adds else graph.node("Relu", x))
    assert_equals_onnx_runtime(graph.model(), tmp_path_factory.mktemp("blocks"), cpu)


@pytest.mark.parametrize(
    ("cpu", "channels", "filters", "layout"),
    [
        ("x86-64-v3", 64, 64, "OIHW32i16o"), ("x86-64-v3", 16, 32, "OHWI16o"),
        ("x86-64-v4", 64, 64, "HWIO"), ("x86-64-v4", 16, 128, "OHWI64o"),
        ("cortex-a76", 64, 64, "OIHW32i16o"), ("cortex-a76", 16, 32, "OHWI16o"),
    ],
)  # fmt: skip
def test_large_weights_lie_in_blocks(
    cpu: str, channels: int, filters: int, layout: str, tmp_path: Path
) -> None:
    """With AVX-512 a tile has up to 64 channels, and weights of one tile stay as they are."""
    graph = Graph(seed=2)
    x = graph.input("input", 1, channels, 12, 12)
    graph.output(graph.node("Relu", graph.conv(x, filters, bias=True)))
    library = assert_equals_onnx_runtime(graph.model(), tmp_path, cpu)
    (source,) = library.rglob("tvmgen_net.c")
    assert f"layout {layout}" in source.read_text("utf-8").replace("\n *     ", " ")


@examples(6)
@given(
    channels=st.sampled_from([1, 3, 4]), filters=st.sampled_from([8, 24, 64]),
    kernel=st.integers(2, 7), stride=st.integers(1, 2), width=st.integers(15, 40),
    cpu=cpus,
)  # fmt: skip
def test_first_convolutions(
    channels: int,
    filters: int,
    kernel: int,
    stride: int,
    width: int,
    cpu: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    graph = Graph(seed=channels)
    x = graph.input("input", 1, channels, 9, width)
    graph.output(graph.conv(x, filters, kernel, bias=True, strides=[stride, stride]))
    assert_equals_onnx_runtime(graph.model(), tmp_path_factory.mktemp("first"), cpu)


@examples(6)
@given(
    channels=st.sampled_from([8, 12, 16, 40]), kernel=st.tuples(*[st.integers(1, 5)] * 2),
    pads=st.lists(st.integers(0, 3), min_size=4, max_size=4),
    strides=st.tuples(st.integers(1, 2), st.integers(1, 3)),
    size=st.tuples(st.integers(5, 20), st.integers(5, 30)), cpu=cpus,
)  # fmt: skip
def test_depthwise_convolutions(
    channels: int,
    kernel: tuple[int, int],
    pads: list[int],
    strides: tuple[int, int],
    size: tuple[int, int],
    cpu: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    graph = Graph(seed=channels)
    x = graph.input("input", 1, channels, *size)
    x = graph.conv(x, channels, kernel, bias=True, group=0, pads=pads, strides=list(strides))
    graph.output(graph.node("Relu", x))
    assert_equals_onnx_runtime(graph.model(), tmp_path_factory.mktemp("depthwise"), cpu)


@pytest.mark.parametrize("cpu", VECTOR_CPUS)
def test_scratch_is_about_that_of_c_for_any_compiler(cpu: str, tmp_path: Path) -> None:
    graph = Graph(seed=3)
    x = graph.input("input", 1, 64, 28, 28)
    for _ in range(3):
        x = graph.node("Relu", graph.conv(x, 64, bias=True))
    graph.output(x)
    arenas = [
        load_metadata(export(graph.model(), each, tmp_path))["umakit"]["memory"]["arena_bytes"]
        for each in (cpu, "generic")
    ]
    # The data and the result of a layer are alive: an eighth of both is the limit of its scratch.
    assert arenas[0] <= arenas[1] + 2 * 4 * 64 * 28 * 28 / 8


@given(
    rows=st.integers(1, 3), columns=st.integers(1, 3), blocks=st.integers(1, 3),
    inputs=st.integers(1, 4), tiles=st.integers(1, 3), channels=st.sampled_from([4, 8]),
)  # fmt: skip
def test_weights_are_stored_as_they_are_read(
    rows: int, columns: int, blocks: int, inputs: int, tiles: int, channels: int
) -> None:
    weights = normal(rows, columns, blocks * inputs, tiles * channels, seed=rows)
    tiles = [WeightTiles("HWIO", channels), WeightTiles("HWIO", channels, inputs)]
    whole, cut = (each.stored(weights) for each in tiles)
    channels_first = WeightTiles("OIHW", channels)
    third = channels_first.stored(weights.transpose(3, 2, 0, 1))
    for row, column, i, o in np.ndindex(*weights.shape):
        tile, channel = divmod(o, channels)
        block, number = divmod(i, inputs)
        assert whole[tile, row, column, i, channel] == weights[row, column, i, o]
        assert cut[tile, block, row, column, number, channel] == weights[row, column, i, o]
        assert third[tile, i, row, column, channel] == weights[row, column, i, o]
    names = [each.layout for each in (*tiles, channels_first)]
    assert names == [f"OHWI{channels}o", f"OIHW{inputs}i{channels}o", f"OIHW{channels}o"]


@given(row=st.integers(1, 200), positions=st.integers(1, 16), vectors=st.integers(1, 4))
def test_cost_of_a_row_is_that_of_its_tiles(row: int, positions: int, vectors: int) -> None:
    rest = list(range(row))
    tiles = [rest[n : n + positions] for n in range(0, row, positions)]
    expected = sum(step_cost(len(tile), vectors) for tile in tiles) / vectors
    assert row_cost(row, Tile(positions, vectors, 1)) == pytest.approx(expected)


@examples(6)
@given(
    channels=st.sampled_from([1, 3, 16, 20]), filters=st.sampled_from([16, 32, 48]),
    kernel=st.tuples(*[st.integers(1, 4)] * 2), width=st.integers(4, 24),
    pads=st.lists(st.integers(0, 2), min_size=4, max_size=4), stride=st.integers(1, 2),
    adds=st.booleans(),
)  # fmt: skip
def test_plain_loops_over_tiles_of_channels(
    channels: int,
    filters: int,
    kernel: tuple[int, int],
    width: int,
    pads: list[int],
    stride: int,
    adds: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    graph = Graph(seed=channels)
    x = graph.input("input", 2, channels, 6, width)
    x = graph.conv(x, filters, kernel, bias=True, pads=pads, strides=[stride, stride])
    graph.output(graph.node("Add", x, graph.node("Relu", x)) if adds else graph.node("Relu", x))
    folder = tmp_path_factory.mktemp("generic")
    assert_equals_onnx_runtime(graph.model(), folder, "generic")


def test_plain_loops_yield_nan_where_a_sum_has_one(tmp_path: Path) -> None:
    graph = Graph(seed=11)
    graph.output(graph.conv(graph.input("input", 1, 16, 5, 8), 16, bias=True))
    model = graph.model()
    inputs = random_inputs(model)
    inputs["input"][0, 3, 2, 4] = np.nan
    (found,) = run_on_garbage(export(model, "generic", tmp_path), inputs).values()
    expected = np.zeros((5, 8), bool)
    expected[1:4, 3:6] = True
    np.testing.assert_array_equal(np.isnan(found[0]), np.broadcast_to(expected, (16, 5, 8)))
    (source,) = tmp_path.rglob("tvmgen_net.c")
    assert "float sums[32]" in source.read_text("utf-8")


@pytest.mark.parametrize("cpu", VECTOR_CPUS)
def test_the_last_tile_of_a_row_has_code_of_its_own(cpu: str, tmp_path: Path) -> None:
    graph = Graph(seed=12)  # tiles have 3 positions, with AVX-512 10, and no row is a multiple
    x = graph.conv(graph.input("input", 1, 16, 6, 29), 32, bias=True)
    graph.output(graph.node("Relu", x))
    library = assert_equals_onnx_runtime(graph.model(), tmp_path, cpu)
    (source,) = library.rglob("tvmgen_net.c")
    text = source.read_text("utf-8").partition("conv0_kernel(")[2].partition("\n}\n")[0]
    assert text.count("float sums[") == 2
    sums = [part.partition("for (int32_t ax")[0] for part in text.split("float sums[")[1:]]
    assert not any("if (" in part for part in sums)
