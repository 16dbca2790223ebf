# SPDX-License-Identifier: Apache-2.0
"""Rules for float convolutions of all kinds on drawn shapes: ONNX Runtime says what is right, and
without a rule a kernel for any CPU yields the same bits."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
import pytest
from comparisons import SANITIZED, examples
from cpu_libraries import export, run_on_garbage
from cpus_here import VECTOR_CPUS, cpu_here
from hypothesis import given
from hypothesis import strategies as st
from networks import Array, Graph, normal, onnx_runtime, random_inputs
from strict import WARNINGS

import umakit
from umakit.cpu import plain_tiles, transposed_convolutions
from umakit.devices import HOST, build
from umakit.devices.cpus import cpu_flags
from umakit.lower import cpu as lowering

cpus = st.sampled_from(["generic", *VECTOR_CPUS])
Attributes = Mapping[str, Any]


def convolution(
    operator: str,
    shape: tuple[int, ...],
    weights: tuple[int, ...],
    outputs: int,
    attributes: Attributes,
) -> onnx.ModelProto | None:
    """A convolution with bias and ReLU; None if its window is larger than its data."""
    graph = Graph(seed=sum(shape) + sum(weights))
    x = graph.input("input", *shape)
    constants = [graph.constant(normal(*weights, seed=3)), graph.constant(normal(outputs, seed=4))]
    x = graph.node(operator, x, *constants, kernel_shape=list(weights[2:]), **attributes)
    graph.output(graph.node("Relu", x))
    pads, steps = attributes["pads"], attributes["dilations"]
    rank = len(shape) - 2
    sizes = zip(shape[2:], pads[:rank], pads[rank:], weights[2:], steps, strict=True)
    if operator == "Conv":
        fits = all(size + a + b > (k - 1) * d for size, a, b, k, d in sizes)
    else:
        more, strides = attributes["output_padding"], attributes["strides"]
        each = zip(sizes, more, strides, strict=True)
        fits = all((n - 1) * s - a - b + (k - 1) * d + 1 + o > 0 for (n, a, b, k, d), o, s in each)
    return graph.model() if fits else None


def compare(model: onnx.ModelProto, cpu: str, folder: Path) -> Path:
    """Compare a library in a workspace of NaN, and one with sanitizers, with ONNX Runtime."""
    inputs = random_inputs(model)
    library = export(model, cpu_here(cpu), folder)
    found = run_on_garbage(library, inputs)
    ((name, expected),) = onnx_runtime(model, inputs).items()
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-5 * scale)
    if cpu == "generic":
        np.testing.assert_array_equal(without_rules(model, inputs, folder)[name], found[name])
    return library


def without_rules(
    model: onnx.ModelProto, inputs: Mapping[str, Array], folder: Path
) -> dict[str, Array]:
    """Outputs of kernels that have the schedule of every kernel for any CPU."""
    no_rule = {"schedule_plain_tiles": lambda *_: None}
    nothing = mock.Mock(rules=dict)
    plain = {"transposed_convolutions": nothing, "signal_rules": dict, **no_rule}
    with mock.patch.multiple(lowering, **plain):
        return run_on_garbage(export(model, "generic", folder / "plain"), inputs)


@st.composite
def layers(draw: st.DrawFn, operator: str, rank: int) -> onnx.ModelProto | None:
    """A convolution of some groups, channels, strides, dilations and paddings."""
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    inputs, outputs = (
        groups * draw(st.sampled_from(sizes)) for sizes in ((1, 3, 8), (1, 5, 8, 14, 20, 33, 48))
    )
    per_direction = [
        {
            "size": draw(st.integers(2, 9 if n == 0 and rank == 2 else 34)),
            "kernel": draw(st.integers(1, 4)),
            "stride": draw(st.integers(1, 3)),
            "dilation": draw(st.sampled_from([1, 1, 2])),
            "pads": (draw(st.integers(0, 2)), draw(st.integers(0, 2))),
        }
        for n in range(rank)
    ]
    attributes = {
        "strides": [each["stride"] for each in per_direction],
        "dilations": [each["dilation"] for each in per_direction],
        "pads": [each["pads"][side] for side in (0, 1) for each in per_direction],
        "group": groups,
    }
    if operator == "ConvTranspose":
        most = [max(each["stride"], each["dilation"]) - 1 for each in per_direction]
        attributes["output_padding"] = [draw(st.integers(0, n)) for n in most]
    kernel = tuple(each["kernel"] for each in per_direction)
    channels = (outputs, inputs) if operator == "Conv" else (inputs, outputs)
    shape = (draw(st.integers(1, 2)), inputs, *(each["size"] for each in per_direction))
    weights = (channels[0], channels[1] // groups, *kernel)
    return convolution(operator, shape, weights, outputs, attributes)


@examples(12)
@given(model=layers("Conv", 2), cpu=cpus)
def test_convolutions_of_any_channels_and_groups(
    model: onnx.ModelProto | None, cpu: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if model is not None:
        compare(model, cpu, tmp_path_factory.mktemp("groups"))


@examples(6)
@given(model=layers("Conv", 1), cpu=cpus)
def test_convolutions_of_signals(
    model: onnx.ModelProto | None, cpu: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if model is not None:
        compare(model, cpu, tmp_path_factory.mktemp("signals"))


@examples(8)
@given(model=layers("ConvTranspose", 2), cpu=cpus)
def test_transposed_convolutions(
    model: onnx.ModelProto | None, cpu: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if model is not None:
        compare(model, cpu, tmp_path_factory.mktemp("transposed"))


@examples(4)
@given(model=layers("ConvTranspose", 1), cpu=cpus)
def test_transposed_convolutions_of_signals(
    model: onnx.ModelProto | None, cpu: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if model is not None:
        compare(model, cpu, tmp_path_factory.mktemp("transposed_signals"))


@examples(8)
@given(
    channels=st.sampled_from([1, 3, 8, 12]), repeats=st.integers(1, 3),
    kernel=st.tuples(*[st.integers(1, 6)] * 2), size=st.tuples(*[st.integers(3, 18)] * 2),
    stride=st.integers(1, 2), dilation=st.integers(1, 2),
    pads=st.lists(st.integers(0, 2), min_size=4, max_size=4), cpu=cpus,
)  # fmt: skip
def test_depthwise_convolutions_with_several_results(
    channels: int, repeats: int, kernel: tuple[int, int], size: tuple[int, int], stride: int,
    dilation: int, pads: list[int], cpu: str, tmp_path_factory: pytest.TempPathFactory,
) -> None:  # fmt: skip
    attributes = {"strides": [stride] * 2, "dilations": [dilation] * 2, "pads": pads}
    outputs = channels * repeats
    model = convolution(
        "Conv", (1, channels, *size), (outputs, 1, *kernel), outputs,
        {**attributes, "group": channels},
    )  # fmt: skip
    if model is not None:
        compare(model, cpu, tmp_path_factory.mktemp("depthwise"))


def assert_clean(library: Path) -> None:
    """Check that compilers have nothing to say about a network's C."""
    host = library / "codegen/host"
    (source,) = host.rglob("tvmgen_net.c")
    flags = ["-std=c99", *WARNINGS, "-fsyntax-only", f"-I{host / 'include'}"]
    flags += cpu_flags(library, HOST)
    for compiler in ("gcc", "clang"):
        command = [compiler, *flags, str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr


FIXED = {
    "unequal_tiles": ("Conv", (1, 8, 5, 13), (20, 8, 3, 3), 20, {}),
    "by_columns": ("Conv", (1, 8, 5, 53), (6, 8, 3, 3), 6, {}),
    "groups": ("Conv", (2, 12, 5, 7), (48, 4, 3, 3), 48, {"group": 3}),
    "depthwise": ("Conv", (1, 12, 7, 9), (24, 1, 3, 3), 24, {"group": 12}),
    "signal": ("Conv", (1, 8, 40), (20, 8, 3), 20, {}),
    "transposed": ("ConvTranspose", (1, 12, 5, 9), (12, 10, 3, 3), 20,
                   {"group": 2, "strides": [2, 2], "output_padding": [1, 0]}),
}  # fmt: skip


@pytest.mark.parametrize("cpu", ["generic", *VECTOR_CPUS])
@pytest.mark.parametrize("kind", FIXED)
def test_accesses_stay_inside_of_arrays(kind: str, cpu: str, tmp_path: Path) -> None:
    operator, shape, weights, outputs, attributes = FIXED[kind]
    rank = len(shape) - 2
    usual = {"pads": [1] * 2 * rank, "dilations": [1] * rank, "strides": [1] * rank}
    model = convolution(operator, shape, weights, outputs, {**usual, **attributes})
    assert model is not None
    inputs = random_inputs(model)
    library = export(model, cpu_here(cpu), tmp_path)
    assert_clean(library)
    with mock.patch.object(build, "FLAGS", SANITIZED):
        result = umakit.run_library(library, {name: rows[None] for name, rows in inputs.items()})
    ((name, expected),) = onnx_runtime(model, inputs).items()
    found = result.outputs[name].reshape(expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


SUMS = {
    "unequal_tiles": "float sums[",
    "by_columns": "float sums[",
    "groups": "float sums[",
    "depthwise": "float sum = 0.0f",
    "signal": "float sums[40]",
    "transposed": "float sums_of_phase_1_1[",
}


@pytest.mark.parametrize("kind", FIXED)
def test_sums_are_local_variables(kind: str, tmp_path: Path) -> None:
    operator, shape, weights, outputs, attributes = FIXED[kind]
    rank = len(shape) - 2
    usual = {"pads": [1] * 2 * rank, "dilations": [1] * rank, "strides": [1] * rank}
    model = convolution(operator, shape, weights, outputs, {**usual, **attributes})
    assert model is not None
    (source,) = export(model, "generic", tmp_path).rglob("tvmgen_net.c")
    text = source.read_text("utf-8").partition("_kernel(")[2].partition("\n}\n")[0]
    assert SUMS[kind] in text
    if kind != "transposed":  # of which a result with an odd number of columns has one
        assert "if (" not in text, "the last tile of a row has conditions"


@given(
    size=st.integers(1, 6), taps=st.integers(1, 6), stride=st.integers(1, 4),
    dilation=st.integers(1, 3), before=st.integers(0, 4), behind=st.integers(-2, 4),
)  # fmt: skip
def test_phases_meet_what_a_transposed_convolution_meets(
    size: int, taps: int, stride: int, dilation: int, before: int, behind: int
) -> None:
    result = (size - 1) * stride + (taps - 1) * dilation + 1 - before - behind
    if result < 1:
        return
    direction = transposed_convolutions.Direction(size, taps, stride, dilation, before, result)
    pairs = {(stride * y + dilation * k - before, y, k) for y in range(size) for k in range(taps)}
    zeros, more = direction.padding
    found = set()
    for phase in range(stride):
        for position in range(direction.positions):
            for number, tap in enumerate(direction.taps_of(phase)):
                element = position + direction.offset(phase) + number * direction.step
                assert -zeros <= element < size + more
                found.add((stride * position + phase, element, tap))
    inside = {each for each in found if each[0] < result and 0 <= each[1] < size}
    assert inside == {each for each in pairs if 0 <= each[0] < result}


@given(channels=st.integers(1, 300), row=st.integers(1, 100), is_dense=st.booleans())
def test_tiles_divide_channels_and_are_small(channels: int, row: int, is_dense: bool) -> None:
    whole = plain_tiles.choose_whole_tile(channels, row)
    assert channels % whole.channels == 0 and row % whole.columns == 0
    unrolled = plain_tiles.choose_unrolled_tile(channels, row)
    if unrolled:
        assert channels % unrolled.channels == 0 and unrolled.columns <= row
        assert 4 <= unrolled.channels * unrolled.columns <= 16
    tile = plain_tiles.choose_plain_tile(channels, row, is_dense)
    for each in (whole, tile) if tile else (whole,):
        assert channels % each.channels == 0 and each.columns <= row
        assert each.channels * each.columns <= plain_tiles.MOST_SUMS
    if tile:
        assert is_dense or not tile.by_columns
        lanes = tile.columns if tile.by_columns else tile.channels
        assert plain_tiles.FEWEST_LANES <= lanes <= plain_tiles.MOST_LANES
