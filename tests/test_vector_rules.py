# SPDX-License-Identifier: Apache-2.0
"""Reductions, pools, transposes and functions in vectors: NumPy says what is right."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from comparisons import SANITIZED, examples
from cpu_libraries import export, run_on_garbage
from cpus_here import VECTOR_CPUS, cpu_here
from hypothesis import Phase, given
from hypothesis import strategies as st
from networks import Array, Graph, normal

import umakit
from umakit.cpu.description import find_cpu
from umakit.devices import build
from umakit.library.metadata import load_metadata

SPECIAL = [math.nan, math.inf, -math.inf, -0.0, 1e-42, 3e37, -3e37]
LANES = {cpu: find_cpu(cpu).float_lanes for cpu in VECTOR_CPUS}
Oracle = Callable[[Array], Array]


def assert_equal(found: Array, wanted: Array) -> None:
    """Within 1e-5 of the largest finite number, with NaN and infinities at the same places."""
    assert found.shape == wanted.shape
    finite = np.isfinite(wanted) & (np.abs(wanted) < np.finfo("float32").max)
    scale = max(1.0, float(np.abs(wanted[finite]).max(initial=0.0)))
    with np.errstate(over="ignore"):
        wanted = wanted.astype("float32")
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * scale)


def assert_is_right(
    graph: Graph, wanted: dict[str, Array], inputs: dict[str, Array], cpu: str, folder: Path
) -> Path:
    """Export a network, compare what it yields in a workspace of NaN, and return the library."""
    graph.output(*wanted)
    library = export(graph.model(), cpu_here(cpu), folder)
    found = run_on_garbage(library, inputs)
    for name, array in wanted.items():
        assert_equal(found[name], array)
    return library


def softmax(x: Array, axis: int) -> Array:
    """In float64."""
    exponentials = np.exp(x - x.max(axis, keepdims=True))
    return exponentials / exponentials.sum(axis, keepdims=True)


def spoiled(values: Array, draw: Sequence[tuple[int, float]]) -> Array:
    """Values, some of which are special."""
    changed = values.copy()
    for place, value in draw:
        changed.flat[place % changed.size] = value
    return changed


few_places = st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from(SPECIAL[:5])), max_size=2)
places = st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from(SPECIAL)), max_size=3)
cpus = st.sampled_from(VECTOR_CPUS)


@examples(6, phases=[Phase.generate])
@given(
    shape=st.lists(st.integers(1, 7), min_size=1, max_size=3),
    last=st.sampled_from([1, 5, -1, -2, 40, 67, 130]), data=st.data(), special=places, cpu=cpus,
)  # fmt: skip
def test_reductions_over_any_axes(
    shape: list[int],
    last: int,
    data: st.DataObject,
    special: list[tuple[int, float]],
    cpu: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    last = {-1: LANES[cpu], -2: 2 * LANES[cpu] + 3}.get(last, last)
    shape = [*shape, last]
    axes = sorted(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    axis = data.draw(st.integers(0, len(shape) - 1))
    graph, x = Graph(), spoiled(normal(*shape, seed=last) * 3, special)
    name, wide = graph.input("input", *shape), x.astype("float64")
    wanted = {}
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        of_axes: dict[str, Oracle] = {"Max": np.max, "Min": np.min, "Mean": np.mean}  # type: ignore[dict-item]
        for operator, oracle in of_axes.items():
            result = graph.node(f"Reduce{operator}", name, axes=axes)
            wanted[result] = oracle(wide, axis=tuple(axes), keepdims=True)  # type: ignore[call-arg]
        result = graph.node("ReduceSum", name, graph.constant(axes, "int64"), keepdims=0)
        wanted[graph.node("Relu", result)] = np.maximum(wide.sum(tuple(axes)), 0)
        wanted[graph.node("Softmax", name, axis=axis)] = softmax(wide, axis)
        shifted = wide - wide.max(axis, keepdims=True)
        logarithm = np.log(np.exp(shifted).sum(axis, keepdims=True))
        wanted[graph.node("LogSoftmax", name, axis=axis)] = shifted - logarithm
    assert_is_right(graph, wanted, {"input": x}, cpu, tmp_path_factory.mktemp("reductions"))


@examples(4, phases=[Phase.generate])
@given(
    shape=st.lists(st.integers(1, 20), min_size=3, max_size=3), rows=st.integers(1, 5),
    order=st.permutations(range(4)), special=places, cpu=cpus,
)  # fmt: skip
def test_normalizations_transposes_and_chains(
    shape: list[int],
    rows: int,
    order: list[int],
    special: list[tuple[int, float]],
    cpu: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    shape = [rows, *shape]
    graph, x = Graph(), spoiled(normal(*shape, seed=rows), special)
    name, wide = graph.input("input", *shape), x.astype("float64")
    scale, shift = normal(shape[-1], seed=1), normal(shape[-1], seed=2)
    constants = graph.constant(scale), graph.constant(shift)
    wanted = {graph.node("Transpose", name, perm=order): x.transpose(order)}
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        deviations = wide - wide.mean(-1, keepdims=True)
        divisor = np.sqrt((deviations**2).mean(-1, keepdims=True) + 1e-2)
        normalized = graph.node("LayerNormalization", name, *constants, epsilon=1e-2)
        if np.abs(x[np.isfinite(x)]).max(initial=0.0) < 1e6:  # whose squares do not overflow
            wanted[normalized] = deviations / divisor * scale + shift
        scaled = np.abs(wide * scale + wide)
        node = graph.node("Add", graph.node("Mul", name, constants[0]), name)
        node = graph.node("Clip", graph.node("Abs", node), graph.constant(0.5), graph.constant(2))
        wanted[node] = np.minimum(np.maximum(scaled, 0.5), 2)
        wanted[graph.node("Sigmoid", name)] = 1 / (1 + np.exp(-wide))
    assert_is_right(graph, wanted, {"input": x}, cpu, tmp_path_factory.mktemp("chains"))


def windows(x: Array, kernel: Sequence[int], strides: Sequence[int], dilation: int) -> Array:
    """All windows of images in NCHW, as the last two axes."""
    reach = [(size - 1) * dilation + 1 for size in kernel]
    found = np.lib.stride_tricks.sliding_window_view(x, reach, axis=(2, 3))
    return found[:, :, :: strides[0], :: strides[1], ::dilation, ::dilation]


def largest_of_ceiled_windows(
    padded: Array, kernel: Sequence[int], strides: Sequence[int], ends: Sequence[int]
) -> Array | None:
    """Extremes of all windows, the last of which may begin inside of the data and end behind it.

    None if a last one begins in the padding at an end.
    """
    sizes = padded.shape[2:]
    more = [(kernel[n] - sizes[n]) % strides[n] for n in range(2)]
    last = [sizes[n] + more[n] - kernel[n] for n in range(2)]
    if any(last[n] < 0 or last[n] >= sizes[n] - ends[n] for n in range(2)):
        return None
    border = [(0, 0), (0, 0), (0, more[0]), (0, more[1])]
    wider = np.pad(padded, border, constant_values=-math.inf)
    found: Array = windows(wider, kernel, strides, 1).max((-2, -1))
    return found


@examples(8, phases=[Phase.generate])
@given(
    size=st.tuples(st.integers(4, 12), st.integers(4, 12)),
    channels=st.sampled_from([(0, 3), (1, 0), (1, 3), (2, 0), (12, 0)]), cpu=cpus,
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 4)), dilation=st.integers(1, 2),
    pads=st.lists(st.integers(0, 1), min_size=4, max_size=4), batch=st.integers(1, 2),
    strides=st.tuples(st.integers(1, 2), st.integers(1, 3)), counts=st.booleans(),
    first=st.sampled_from([False, False, True]), special=few_places, ceil=st.booleans(),
)  # fmt: skip
def test_pools(
    size: tuple[int, int],
    channels: tuple[int, int],
    cpu: str,
    kernel: tuple[int, int],
    dilation: int,
    pads: list[int],
    batch: int,
    strides: tuple[int, int],
    counts: bool,
    first: bool,
    special: list[tuple[int, float]],
    ceil: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """In NHWC, the layout of convolutions, or in NCHW; channels are some vectors and a tail."""
    vectors, tail = channels
    filters = vectors * LANES[cpu] + tail
    reach = [(n - 1) * dilation + 1 for n in kernel]
    pads = [min(pad, kernel[n % 2] - 1) for n, pad in enumerate(pads)]
    if any(size[n] + pads[n] + pads[n + 2] < reach[n] for n in range(2)):
        return
    graph, x = Graph(), spoiled(normal(batch, 3, *size, seed=filters), special)
    name, wide = graph.input("input", *x.shape), x.astype("float64")
    if not first:
        weights = normal(filters, 3, 1, 1, seed=filters)
        name = graph.node("Conv", name, graph.constant(weights))
        with np.errstate(invalid="ignore"):
            wide = np.einsum("nihw,oi->nohw", wide, weights[:, :, 0, 0].astype("float64"))
    border = [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])]
    shared = {"kernel_shape": list(kernel), "pads": pads, "strides": list(strides)}
    padded = np.pad(wide, border, constant_values=-math.inf)
    largest = windows(padded, kernel, strides, dilation).max((-2, -1))
    wanted = {graph.node("MaxPool", name, dilations=[dilation] * 2, **shared): largest}
    ceiled = largest_of_ceiled_windows(padded, kernel, strides, pads[2:]) if ceil else None
    if ceiled is not None:
        wanted[graph.node("MaxPool", name, ceil_mode=1, **shared)] = ceiled
    if all(size[n] + pads[n] + pads[n + 2] >= kernel[n] for n in range(2)):
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sums = windows(np.pad(wide, border), kernel, strides, 1).sum((-2, -1))
            inside = windows(np.pad(np.ones_like(wide), border), kernel, strides, 1).sum((-2, -1))
            mean = sums / (math.prod(kernel) if counts else inside)
        node = graph.node("AveragePool", name, count_include_pad=int(counts), **shared)
        wanted[graph.node("Relu", node)] = np.maximum(mean, 0)
    with np.errstate(all="ignore"):
        wanted[graph.node("GlobalAveragePool", name)] = wide.mean((2, 3), keepdims=True)
    assert_is_right(graph, wanted, {"input": x}, cpu, tmp_path_factory.mktemp("pools"))


def units(found: Array, wanted: Array) -> float:
    """The largest difference in units of the last place, of what is right in float64."""
    with np.errstate(over="ignore"):
        rounded = wanted.astype("float32")
    finite = np.isfinite(rounded)
    unit = np.spacing(np.abs(np.where(finite, rounded, 1.0))).astype("float64")
    return float((np.abs(found[finite].astype("float64") - wanted[finite]) / unit[finite]).max())


@pytest.mark.parametrize("cpu", VECTOR_CPUS)
def test_functions_of_vectors(cpu: str, tmp_path: Path) -> None:
    """Off by a few units in the last place, and special values as in the functions of C."""
    special = [*SPECIAL, 0.0, 1e-45, -1e-45, 88.72283, 88.72284, -87.4, -103.9, -104.1, 9.0, -20.0]
    spread = np.ldexp(normal(9000, seed=3), np.random.default_rng(4).integers(-30, 6, 9000))
    x = np.concatenate([special, np.linspace(-105, 90, 9001), np.linspace(-6, 6, 9001), spread])
    lanes = LANES[cpu]
    x = np.resize(x, len(x) // lanes * lanes).astype("float32")  # without a tail
    graph, wide = Graph(), x.astype("float64")
    name = graph.input("input", x.size)
    with np.errstate(all="ignore"):
        right = {
            "Exp": (np.exp(wide), 1.5), "Sigmoid": (1 / (1 + np.exp(-wide)), 3),
            "Tanh": (np.tanh(wide), 3), "Erf": (np.vectorize(math.erf)(wide), 3),
        }  # fmt: skip
        rounded = {each: wanted.astype("float32") for each, (wanted, _) in right.items()}
    graph.output(*(graph.node(each, name, name=each) for each in right))
    library = export(graph.model(), cpu_here(cpu), tmp_path)
    found = run_on_garbage(library, {"input": x})
    for each, (wanted, most) in right.items():
        np.testing.assert_array_equal(np.isnan(found[each]), np.isnan(wanted), each)
        is_infinite = np.isinf(rounded[each])
        np.testing.assert_array_equal(found[each][is_infinite], rounded[each][is_infinite], each)
        is_zero = wanted == 0
        np.testing.assert_array_equal(np.signbit(found[each][is_zero]), np.signbit(wanted[is_zero]))
        # The logistic function of C is 0 where the exponential overflows.
        is_exact = (x > -87) if each == "Sigmoid" else np.full(x.shape, True)
        assert units(found[each][is_exact], wanted[is_exact]) <= most, each
        assert np.abs(found[each][np.isfinite(found[each])]).max() <= 1 or each == "Exp"
    (source,) = library.rglob("tvmgen_net.c")
    text = source.read_text("utf-8")
    assert all(f"= {each}_float32x{lanes}(" in text for each in ("exp", "tanh", "erf"))
    assert "expf(" not in text


@pytest.mark.parametrize("cpu", VECTOR_CPUS)
def test_nothing_is_read_or_written_outside_of_tensors(cpu: str, tmp_path: Path) -> None:
    graph = Graph(seed=5)
    x = graph.input("input", 2, 19, 9, 11)
    y = graph.conv(x, 19, 1)
    y = graph.node("MaxPool", y, kernel_shape=[3, 2], pads=[1, 1, 1, 0], strides=[2, 1])
    z = graph.node("Transpose", graph.node("Tanh", x), perm=[0, 2, 3, 1])
    z = graph.node("Softmax", graph.node("Mul", z, graph.node("ReduceMax", z, axes=[-1])), axis=-1)
    graph.output(y, graph.node("ReduceMean", z, axes=[1, 3]), z)
    inputs = {"input": normal(2, 19, 9, 11, seed=6)}
    library = export(graph.model(), cpu_here(cpu), tmp_path)
    with mock.patch.object(build, "FLAGS", SANITIZED):
        found = umakit.run_library(library, inputs).outputs
    for name, array in run_on_garbage(library, inputs).items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cpu", VECTOR_CPUS)
def test_a_kernel_with_a_tail_overwrites_its_input(cpu: str, tmp_path: Path) -> None:
    graph = Graph(seed=8)
    x = graph.node("MatMul", graph.input("input", 7, 5), graph.random(5, 301))
    largest = graph.node("ReduceMax", x, axes=[1])
    x = graph.node("Sigmoid", x)
    ends = [graph.node(f"Reduce{each}", x, axes=[0]) for each in ("Mean", "Max")]
    graph.output(largest, *ends)
    library = export(graph.model(), cpu, tmp_path)
    arena = load_metadata(library)["umakit"]["memory"]["arena_bytes"]
    assert arena < 1.5 * 4 * 7 * 301
