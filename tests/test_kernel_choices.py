# SPDX-License-Identifier: Apache-2.0
"""Choices of the rules for kernels on a CPU: ONNX Runtime and NumPy say what any of them yields."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from comparisons import examples
from cpu_libraries import export_with, run_on_garbage
from cpus_here import VECTOR_CPUS, cpu_here
from hypothesis import given
from hypothesis import strategies as st
from networks import Graph, onnx_runtime, random_inputs
from numpy_onnx import numpy_onnx
from qdq import Qdq

from umakit.cpu.choice_candidates import (
    ConvolutionSizes,
    convolution_candidates,
    product_candidates,
)
from umakit.cpu.description import Cpu, cpu_names, find_cpu
from umakit.cpu.dot_kernels import dot_candidates
from umakit.cpu.kernel_choices import Choice, Chosen, KernelKey
from umakit.cpu.register_tiles import vector_lanes
from umakit.operators.kernels.dot_forms import FORMS

WITH_VECTORS = [find_cpu(name) for name in cpu_names() if find_cpu(name).has_vectors]
WITH_DOT_PRODUCTS = [name for name in cpu_names() if find_cpu(name).dot_products]


def any_of(data: st.DataObject, made: Mapping[KernelKey, Chosen]) -> dict[KernelKey, Choice]:
    """A choice for each kernel, which is seldom the rule's own."""
    return {key: data.draw(st.sampled_from(each.candidates)) for key, each in made.items()}


@st.composite
def convolutions(draw: st.DrawFn) -> onnx.ModelProto:
    """A convolution with what follows it, then a depthwise, a pointwise one, and a product."""
    graph = Graph(seed=draw(st.integers(0, 99)))
    channels, filters = draw(st.sampled_from([(3, 16), (32, 24), (64, 32), (12, 28)]))
    height, width = draw(st.integers(3, 12)), draw(st.integers(3, 20))
    x = graph.input("input", 1, channels, height, width)
    pads = draw(st.sampled_from([[0, 0, 0, 0], [1, 1, 1, 1], [0, 2, 1, 0]]))
    x = graph.conv(x, filters, 3, bias=True, pads=pads, strides=[1, draw(st.integers(1, 2))])
    x = graph.node("Relu", x)
    x = graph.conv(x, filters, draw(st.sampled_from([1, 3])), group=0, bias=True)
    last = draw(st.sampled_from([8, 32, 48]))
    x = graph.node("Relu", graph.conv(x, last, 1, bias=True))
    x = graph.node("Flatten", graph.node("GlobalAveragePool", x))
    graph.output(graph.dense(x, last, draw(st.sampled_from([10, 64]))))
    return graph.model()


@examples(4)
@given(model=convolutions(), name=st.sampled_from(VECTOR_CPUS), data=st.data())
def test_any_choice_yields_what_onnx_runtime_yields(
    model: onnx.ModelProto,
    name: str,
    data: st.DataObject,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder, inputs, cpu = tmp_path_factory.mktemp("choices"), random_inputs(model), cpu_here(name)
    program = export_with(model, cpu, folder, {}).program
    assert program is not None and len(program.choices.made) >= 3
    chosen = any_of(data, program.choices.made)
    library = export_with(model, cpu, folder, chosen)
    assert library.program is not None
    found = library.program.choices
    assert {key: each.choice for key, each in found.made.items()} == chosen
    assert not found.unknown and not found.refused
    outputs = run_on_garbage(library.path, inputs)
    for name, array in onnx_runtime(model, inputs).items():
        scale = max(1.0, float(np.abs(array).max()))
        np.testing.assert_allclose(outputs[name], array, rtol=1e-5, atol=1e-5 * scale)


@examples(3)
@given(
    size=st.tuples(st.integers(3, 6), st.integers(3, 6)), channels=st.sampled_from([1, 3, 16]),
    filters=st.sampled_from([5, 40, 300]), seed=st.integers(0, 99), data=st.data(),
    name=st.sampled_from(WITH_DOT_PRODUCTS),
)  # fmt: skip
def test_any_choice_for_integers_is_exact(
    size: tuple[int, int],
    channels: int,
    filters: int,
    seed: int,
    data: st.DataObject,
    name: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    graph = Qdq("int8", seed)
    x = graph.input([1, channels, *size], 0.03)
    weights, scales = graph.weights([filters, channels, 3, 3], "int8", False)
    y = graph.node("Conv", x, weights, graph.bias(filters, np.float32(0.03) * scales))
    model = graph.model(graph.quantize(y, float(scales.max()) * 5))
    folder, inputs, cpu = tmp_path_factory.mktemp("integers"), graph.samples(4.0), cpu_here(name)
    program = export_with(model, cpu, folder, {}).program
    assert program is not None
    (key,) = program.choices.made
    library = export_with(model, cpu, folder, any_of(data, program.choices.made))
    assert key.dtype == "int8" and key.weights == (filters, 3, 3, channels)
    first = {name: values[:1] for name, values in inputs.items()}
    outputs = run_on_garbage(library.path, {name: values[0] for name, values in first.items()})
    for name, array in numpy_onnx(model, first).items():
        np.testing.assert_array_equal(outputs[name], array[0])


@given(
    rows=st.integers(1, 60), row=st.integers(1, 60), channels=st.integers(1, 40),
    inputs=st.integers(1, 512), kernel=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    stride=st.integers(1, 2), is_padded=st.booleans(), is_depthwise=st.booleans(),
    cpu=st.sampled_from(WITH_VECTORS),
)  # fmt: skip
def test_choices_fit_registers_and_scratch(
    rows: int,
    row: int,
    channels: int,
    inputs: int,
    kernel: tuple[int, int],
    stride: int,
    is_padded: bool,
    is_depthwise: bool,
    cpu: Cpu,
) -> None:
    channels *= 4
    padded = None
    data = [1, (rows - 1) * stride + kernel[0], (row - 1) * stride + kernel[1], inputs]
    if is_padded:
        padded = tuple(data)
    bytes_ = 4 * (data[1] * data[2] * inputs + rows * row * channels)
    sizes = ConvolutionSizes(rows, row, channels, inputs, kernel, padded, bytes_, is_depthwise)
    found = convolution_candidates(sizes, cpu)
    lanes = vector_lanes(cpu, channels)
    assert found and len(found) == len(set(found))
    for choice in found:
        vectors, rest = divmod(choice.channels, lanes)
        assert rest == 0 and channels % choice.channels == 0 and rows % choice.rows == 0
        assert choice.positions * vectors <= cpu.vector_registers
        assert 1 <= choice.positions <= max(row, rows * row if sizes.is_pointwise else 0)
        if choice.inputs:
            assert inputs % choice.inputs == 0 and channels % choice.group == 0
            assert choice.group % choice.channels == 0
            sums = 4 * choice.rows * row * choice.group
            assert sizes.padded_bytes(choice.rows, choice.inputs) + sums <= sizes.scratch_bytes
        else:
            assert sizes.padded_bytes(choice.rows) <= sizes.scratch_bytes
    products = product_candidates(rows, channels, cpu)
    assert products and len(products) == len(set(products))
    assert all(channels % each.channels == 0 for each in products)


@given(
    form=st.sampled_from(list(FORMS.values())), positions=st.integers(1, 99),
    outputs=st.integers(1, 999),
)  # fmt: skip
def test_choices_for_integers_need_no_more_scratch(form, positions, outputs) -> None:  # type: ignore[no-untyped-def]
    own, *others = dot_candidates(form, positions, outputs)
    assert own.positions == min(form.positions, positions)
    for choice in others:
        assert 1 <= choice.positions <= own.positions and choice.channels % form.channels == 0
        assert 0 < choice.channels <= own.channels and choice != own


def test_a_key_tells_kernels_apart() -> None:
    keys = [
        KernelKey("conv2d", "float32", (1, 8, 8, 4), (3, 3, 4, 8), (1, 8, 8, 8), (2, 2)),
        KernelKey("conv2d", "float32", (1, 8, 8, 4), (3, 3, 4, 8), (1, 8, 8, 8), (2, 2), (1, 2)),
        KernelKey("conv2d", "int8", (1, 8, 8, 4), (3, 3, 4, 8), (1, 8, 8, 8), (2, 2)),
        KernelKey(
            "conv2d", "float32", (1, 8, 8, 4), (3, 3, 4, 8), (1, 8, 8, 8), (2, 2), (1, 1), (2, 2)
        ),
        KernelKey(
            "conv2d", "float32", (1, 8, 8, 4), (3, 3, 4, 8), (1, 8, 8, 8), (2, 2), follows=("add",)
        ),
    ]
    assert len({key.text for key in keys}) == len(keys)
    assert keys[1].text == (
        "conv2d float32 1x8x8x4 by 3x3x4x8 to 1x8x8x8, padding 2x2, strides 1x2"
    )


def test_strides_and_dilation_are_in_the_key(tmp_path: Path) -> None:
    graph = Graph(seed=2)
    x = graph.input("input", 1, 8, 16, 20)
    pads = [2, 4, 2, 4]
    graph.output(graph.conv(x, 16, 3, bias=True, pads=pads, strides=[1, 2], dilations=[2, 4]))
    program = export_with(graph.model(), "x86-64-v3", tmp_path, {}).program
    assert program is not None
    (key,) = program.choices.made
    assert (key.strides, key.dilation, key.padding) == ((1, 2), (2, 4), (4, 8))
    assert (key.data, key.weights, key.result) == (
        (1, 16, 20, 8), (3, 3, 8, 16), (1, 16, 10, 16),
    )  # fmt: skip
