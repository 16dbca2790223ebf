# SPDX-License-Identifier: Apache-2.0
"""NaN, infinities and zeros through whole networks of every format, and what NumPy makes of them.

The oracle is NumPy, with windows by brute force: ONNX Runtime's max pools depend on where in a
window a NaN lies. PyTorch's networks are compared with torch, which has the same semantics.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import pytest
from comparisons import SANITIZED, examples
from hypothesis import given
from hypothesis import strategies as st
from networks import Graph, save
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator
from tflite_networks import TfliteFile

import umakit
from umakit import tvm_api
from umakit.devices import build
from umakit.errors import DeviceError, ModelError
from umakit.testing.differences import compare
from umakit.testing.harness import AOTModel, compile_and_run

Array = npt.NDArray[Any]
relax = tvm_api.relax
op = relax.op

SPECIAL = [
    np.nan, np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-40, 3.4028235e38, -3.4028235e38,
    1.0, -1.0, 0.5, -2.5, 6.0, 7.0, 100.0,
]  # fmt: skip
INFERENCES = 3
STRICT = (*SANITIZED, "-fsanitize=float-cast-overflow")
"""Flags with which undefined behaviour, including that of float conversions, is an error."""


def special(shape: Sequence[int], seed: int) -> Array:
    """Several inferences of random numbers, a third of them special values."""
    random = np.random.default_rng(seed)
    values = random.normal(0, 2, (INFERENCES, *shape))
    chosen = random.choice(SPECIAL, values.shape)
    result: Array = np.where(random.random(values.shape) < 0.35, chosen, values).astype("float32")
    result[-1].reshape(-1)[:-1] = -np.inf  # windows of nothing else
    return result


def assert_equal(outputs: dict[str, Array], wanted: dict[str, Array]) -> None:
    """Equal up to rounding, with NaN and infinities at the same places."""
    for name, expected in wanted.items():
        got = outputs[name].reshape(expected.shape)
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=1e-6, err_msg=name)


def compiled(source: Any, folder: Path, inputs: dict[str, Array]) -> dict[str, Array]:
    """Outputs of a network on the CPU, compiled with sanitizers."""
    library = umakit.compile_model(source, [], folder / "library")
    with mock.patch.object(build, "FLAGS", STRICT):
        return umakit.run_library(library.path, inputs).outputs


# --- NumPy --------------------------------------------------------------------------------------


def max_pool(
    x: Array, window: Sequence[int], strides: Sequence[int], pads: Sequence[int],
    dilations: Sequence[int],
) -> Array:  # fmt: skip
    """Of [N, C, ...], window by window; pads are of the starts and then of the ends."""
    rank = len(window)
    border = [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)]
    padded = np.pad(x, border, constant_values=-np.inf)
    sizes = [
        (padded.shape[2 + i] - (window[i] - 1) * dilations[i] - 1) // strides[i] + 1
        for i in range(rank)
    ]
    result = np.zeros((*x.shape[:2], *sizes), x.dtype)
    for place in itertools.product(*map(range, sizes)):
        part = tuple(
            slice(i * s, i * s + (k - 1) * d + 1, d)
            for i, s, k, d in zip(place, strides, window, dilations, strict=True)
        )
        axes = tuple(range(2, 2 + rank))
        result[(slice(None), slice(None), *place)] = padded[(..., *part)].max(axis=axes)
    return result


def softmax(x: Array) -> Array:
    exponentials: Array = np.exp(x - x.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def elu(x: Array) -> Array:
    return np.where(x > 0, x, np.exp(np.minimum(x, 0)) - 1)


UNARY: dict[str, tuple[dict[str, Any], Callable[[Array], Array]]] = {
    "Relu": ({}, lambda x: np.maximum(x, 0)),
    "LeakyRelu": ({"alpha": 0.25}, lambda x: np.where(x > 0, x, x * np.float32(0.25))),
    "HardSigmoid": ({}, lambda x: np.clip(x * np.float32(0.2) + np.float32(0.5), 0, 1)),
    "HardSwish": ({}, lambda x: x * np.clip(x / 6 + np.float32(0.5), 0, 1)),
    "Elu": ({}, elu),
    "ThresholdedRelu": ({"alpha": 0.5}, lambda x: np.where(x > 0.5, x, 0)),
    "Sign": ({}, np.sign),
    "Abs": ({}, np.abs),
    "Sigmoid": ({}, lambda x: 1 / (1 + np.exp(-x))),
    "Tanh": ({}, np.tanh),
    "Exp": ({}, np.exp),
    "Sqrt": ({}, np.sqrt),
    "Softplus": ({}, lambda x: np.logaddexp(0, x)),
    "Softmax": ({"axis": -1}, softmax),
    "Floor": ({}, np.floor),
}


# --- ONNX ---------------------------------------------------------------------------------------


@examples(4)
@given(st.integers(1, 3), st.data(), st.integers(0, 2**32 - 1))
def test_onnx_pools_and_reductions(
    tmp_path_factory: pytest.TempPathFactory, rank: int, data: st.DataObject, seed: int
) -> None:
    draw, each = data.draw, {"min_size": rank, "max_size": rank}
    window = draw(st.lists(st.integers(1, 3), **each))
    strides = draw(st.lists(st.integers(1, 2), **each))
    dilations = draw(st.lists(st.integers(1, 2), **each))
    pads = [draw(st.integers(0, k - 1)) for k in (*window, *window)]
    sizes = [draw(st.integers((k - 1) * d + 1, 6)) for k, d in zip(window, dilations, strict=True)]
    shape = (1, draw(st.integers(1, 3)), *sizes)
    axis = draw(st.integers(0, rank + 1))
    graph = Graph()
    x = graph.input("x", *shape)
    results = [
        graph.node(
            "MaxPool", x, name="pool", kernel_shape=window, strides=strides, dilations=dilations,
            pads=pads,
        ),
        graph.node("GlobalMaxPool", x, name="global_pool"),
        graph.node("ReduceMax", x, name="largest", axes=[axis], keepdims=draw(st.integers(0, 1))),
        graph.node("ReduceMin", x, name="smallest", keepdims=0),
        graph.node("ArgMax", x, name="largest_at", axis=axis),
        graph.node("ArgMin", x, name="smallest_at", axis=axis, keepdims=0),
    ]  # fmt: skip
    graph.output(*results)
    values = special(shape, seed)
    folder = tmp_path_factory.mktemp("pools")
    outputs = compiled(save(graph.model(), folder), folder, {"x": values})
    spatial = tuple(range(3, rank + 3))
    pooled = [max_pool(v, window, strides, pads, dilations) for v in values]
    assert_equal(outputs, {
        "pool": np.stack(pooled),
        "global_pool": values.max(axis=spatial, keepdims=True),
        "largest": values.max(axis=axis + 1, keepdims=len(outputs["largest"].shape) == rank + 3),
        "smallest": values.min(axis=tuple(range(1, rank + 3))),
        "largest_at": values.argmax(axis=axis + 1, keepdims=True),
        "smallest_at": values.argmin(axis=axis + 1),
    })  # fmt: skip


@pytest.mark.parametrize("seed", [1])
def test_onnx_operators_of_elements(seed: int, tmp_path: Path) -> None:
    shape = (1, 2, 3, 5)
    graph = Graph()
    x, y = graph.input("x", *shape), graph.input("y", *shape)
    low, high = graph.input("low"), graph.input("high")
    number = graph.constant
    for operator, (attributes, _) in UNARY.items():
        graph.output(graph.node(operator, x, name=operator, **attributes))
    slopes = np.array([0.5, 0.0], "float32").reshape(2, 1, 1)
    twice = graph.node("Add", x, x)
    graph.output(
        graph.node("Max", x, y, number([0.25]), name="max"),
        graph.node("Min", x, y, name="min"),
        graph.node("Min", number(1.0), x, name="min_of_a_number"),
        graph.node("Max", x, number(np.nan), name="max_of_nan"),
        graph.node("Clip", x, number(-1.0), number(1.5), name="clip"),
        graph.node("Clip", x, "", number(np.inf), name="clip_at_infinity"),
        graph.node("Clip", x, number(np.nan), number(1.0), name="clip_at_nan"),
        graph.node("Clip", x, low, high, name="clip_at_data"),
        graph.node("PRelu", x, number(slopes), name="prelu"),
        graph.node("LeakyRelu", x, name="leaky_by_0", alpha=0.0),
        graph.node("Mul", x, number(0.0), name="times_0"),
        graph.node("Div", number(0.0), x, name="0_over"),
        graph.node("Div", x, y, name="over"),
        graph.node("Pow", x, y, name="pow"),
        graph.node("Sub", twice, twice, name="less_itself"),
        graph.node("Sub", graph.node("Add", x, number(1e8)), number(1e8), name="rounded"),
        graph.node("Not", graph.node("Less", x, y), name="not_less"),
        graph.node("Equal", twice, twice, name="same"),
    )
    values, others = special(shape, seed), special(shape, seed + 1)
    bounds = np.array([-1, np.nan, -np.inf], "float32"), np.array([2, 1, np.nan], "float32")
    inputs = {"x": values, "y": others, "low": bounds[0], "high": bounds[1]}
    outputs = compiled(save(graph.model(), tmp_path), tmp_path, inputs)
    a, b, one = values, others, np.float32
    low_, high_ = (v.reshape(-1, 1, 1, 1, 1) for v in bounds)
    with np.errstate(all="ignore"):
        wanted = {name: function(a) for name, (_, function) in UNARY.items()}
        wanted |= {
            "max": np.maximum(np.maximum(a, b), one(0.25)),
            "min": np.minimum(a, b),
            "min_of_a_number": np.minimum(a, 1),
            "max_of_nan": np.full_like(a, np.nan),
            "clip": np.clip(a, -1, 1.5),
            "clip_at_infinity": a,
            "clip_at_nan": np.full_like(a, np.nan),
            "clip_at_data": np.minimum(np.maximum(a, low_), high_),
            "prelu": np.where(a > 0, a, a * slopes),
            "leaky_by_0": np.where(a > 0, a, a * 0),
            "times_0": a * one(0),
            "0_over": one(0) / a,
            "over": a / b,
            "pow": np.power(a, b),
            "less_itself": (a + a) - (a + a),
            "rounded": (a + one(1e8)) - one(1e8),
            "not_less": ~(a < b),
            "same": (a + a) == (a + a),
        }
        assert_equal(outputs, wanted)


def test_constants_are_folded_as_they_are_computed(tmp_path: Path) -> None:
    """What TVM folds by compiling it has the same NaN."""
    a = special((1, 2, 4, 4), 7)[0]
    graph = Graph()
    x, constant = graph.input("x", 1, 2, 4, 4), graph.constant(a)
    root = graph.node("Sqrt", constant)
    folded = {
        "relu": graph.node("Relu", constant), "relu_of_root": graph.node("Relu", root),
        "max": graph.node("Max", constant, graph.constant(a[..., ::-1])),
        "clip": graph.node("Clip", constant, graph.constant(-1.0), graph.constant(1.0)),
        "times_0": graph.node("Mul", constant, graph.constant(0.0)),
        "sign": graph.node("Sign", constant),
        "largest": graph.node("ReduceMax", constant, axes=[3]),
        "pool": graph.node("MaxPool", constant, kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    }  # fmt: skip
    for name, value in folded.items():
        graph.output(graph.node("Add", x, value, name=name))
    zero = np.zeros((1, 2, 4, 4), "float32")
    outputs = compiled(save(graph.model(), tmp_path), tmp_path, {"x": zero})
    with np.errstate(all="ignore"):
        assert_equal(outputs, {
            "relu": np.maximum(a, 0), "relu_of_root": np.maximum(np.sqrt(a), 0),
            "max": np.maximum(a, a[..., ::-1]), "clip": np.clip(a, -1, 1), "times_0": a * 0,
            "sign": np.sign(a), "largest": zero + a.max(axis=3, keepdims=True),
            "pool": max_pool(a, [3, 3], [1, 1], [1, 1, 1, 1], [1, 1]),
        })  # fmt: skip


def test_zeros_keep_the_sign_that_sums_give_them(tmp_path: Path) -> None:
    """x + 0 is no x: -0.0 + 0.0 is 0.0 (IEEE 754-2019, 6.3)."""
    graph = Graph()
    x = graph.input("x", 3)
    zero, minus_zero = graph.constant(0.0), graph.constant(-0.0)
    nodes = {
        "sum": ("Add", x, zero), "sum_of": ("Add", zero, x), "sum_minus": ("Add", x, minus_zero),
        "less": ("Sub", x, zero), "less_minus": ("Sub", x, minus_zero), "from": ("Sub", zero, x),
    }  # fmt: skip
    for name, (operator, *operands) in nodes.items():
        graph.output(graph.node(operator, *operands, name=name))
    a = np.array([-0.0, 0.0, 2.0], "float32")
    outputs = compiled(save(graph.model(), tmp_path), tmp_path, {"x": a})
    o = np.float32(0)
    wanted = {
        "sum": a + o, "sum_of": o + a, "sum_minus": a + -o,
        "less": a - o, "less_minus": a - -o, "from": o - a,
    }  # fmt: skip
    assert {n: v.tobytes() for n, v in outputs.items()} == {
        n: v.tobytes() for n, v in wanted.items()
    }


@pytest.mark.parametrize("dtype", ["INT8", "UINT8", "INT32", "INT64"])
def test_integers_divided_at_run_time(dtype: str, tmp_path: Path) -> None:
    """By 0 it is 0, as in NumPy; the lowest number by -1 wraps around."""
    kind = np.dtype(dtype.lower())
    limits = np.iinfo(kind)
    tensors = [limits.min, limits.max, 7, 0, 100, 5], [-1 if limits.min else 0, 0, -2, 0, 3, 1]
    a, b = (np.array(values).astype(kind) for values in tensors)
    graph = Graph()
    x, y = (graph.input(name, 6, dtype=getattr(TensorProto, dtype)) for name in "ab")
    graph.output(
        graph.node("Div", x, y, name="quotient"),
        graph.node("Mod", x, y, name="floor_mod"),
        graph.node("Mod", x, y, name="mod", fmod=1),
        graph.node("Neg" if limits.min else "Identity", x, name="negative"),
        graph.node("Abs", x, name="absolute"),
    )
    outputs = compiled(save(graph.model(), tmp_path), tmp_path, {"a": a, "b": b})
    with np.errstate(all="ignore"):
        mod = np.fmod(a, b)
        exact = np.where(b == 0, 0, (a - mod) // np.where(b == 0, 1, b))
        wanted = {"quotient": exact.astype(kind), "floor_mod": np.mod(a, b), "mod": mod}
        wanted |= {"negative": -a if limits.min else a, "absolute": np.abs(a)}
    for name, expected in wanted.items():
        np.testing.assert_array_equal(outputs[name], expected, err_msg=name)


@pytest.mark.parametrize("rounding", ["tflm", "ort"])
def test_quantizing_nan_and_infinities(rounding: str, tmp_path: Path) -> None:
    """Infinities are the limits; NaN is the integer that 0 becomes."""
    graph = Graph()
    x, scale = graph.input("x", 1, 6), graph.constant(0.1)
    zero_point = graph.constant(3, "int8")
    q = graph.node("QuantizeLinear", x, scale, zero_point)
    graph.output(graph.node("DequantizeLinear", q, scale, zero_point, name="y"))
    path = save(graph.model(), tmp_path)
    library = umakit.compile_model(path, [], tmp_path / "library", rounding=rounding)
    values = np.array([[np.nan, np.inf, -np.inf, 3e38, 0.5, -0.0]], "float32")
    with mock.patch.object(build, "FLAGS", STRICT):
        got = umakit.run_library(library.path, {"x": values}).outputs["y"]
    np.testing.assert_allclose(got[0, 1:], [12.4, -13.1, 12.4, 0.5, 0.0], rtol=1e-6)
    assert got[0, 0] in (np.float32(0.0), np.float32(-0.3))


# --- TensorFlow Lite ----------------------------------------------------------------------------


def test_tflite_operators(tmp_path: Path) -> None:
    shape, pooled = (1, 5, 4, 3), (1, 3, 4, 3)
    file = TfliteFile()
    x = file.tensor(shape, "float32", name="x")
    slopes = np.array([0.5, 0.0, -1.0], "float32").reshape(1, 1, 3)
    constant = special((3,), 3)[0]

    def add(name: str, code: str, options: str = "", *constants: Array, **fields: Any) -> int:
        result = fields.pop("result", shape)
        others = [file.tensor(c.shape, str(c.dtype), data=c, name="constant") for c in constants]
        y = file.tensor(result, fields.pop("dtype", "float32"), name=name)
        file.operator(code, [x, *others], [y], options, **fields)
        return y

    window = {"StrideH": 2, "StrideW": 1, "FilterHeight": 3, "FilterWidth": 2}
    results = [
        add("relu", "RELU"), add("relu6", "RELU6"), add("hard_swish", "HARD_SWISH"),
        add("elu", "ELU"), add("prelu", "PRELU", "", slopes),
        add("leaky", "LEAKY_RELU", "LeakyReluOptions", Alpha=0.5),
        add("maximum", "MAXIMUM", "MaximumMinimumOptions", constant),
        add("minimum", "MINIMUM", "MaximumMinimumOptions", constant),
        add("pool", "MAX_POOL_2D", "Pool2DOptions", **window, result=pooled),
        add("pool_relu", "MAX_POOL_2D", "Pool2DOptions", **window, FusedActivationFunction=1,
            result=pooled),
        add("sum_relu_n1_to_1", "ADD", "AddOptions", np.ones(3, "float32"),
            FusedActivationFunction=2),
        add("softmax", "SOFTMAX", "SoftmaxOptions", Beta=1.0),
        add("largest_at", "ARG_MAX", "ArgMaxOptions", np.array(3, "int32"), result=shape[:3],
            dtype="int32", OutputType=2),
    ]  # fmt: skip
    path = tmp_path / "special.tflite"
    path.write_bytes(file.finish([x], results))
    values = special(shape, 5)
    outputs = compiled(path, tmp_path, {"x": values})
    images = values.reshape(-1, *shape[1:]).transpose(0, 3, 1, 2)
    pool = max_pool(images, [3, 2], [2, 1], [1, 0, 1, 1], [1, 1]).transpose(0, 2, 3, 1)
    pool = pool.reshape(-1, *pooled)
    with np.errstate(all="ignore"):
        assert_equal(outputs, {
            "relu": np.maximum(values, 0), "relu6": np.clip(values, 0, 6),
            "hard_swish": values * np.clip(values + 3, 0, 6) / 6, "elu": elu(values),
            "prelu": np.where(values > 0, values, values * slopes),
            "leaky": np.where(values > 0, values, values * np.float32(0.5)),
            "maximum": np.maximum(values, constant), "minimum": np.minimum(values, constant),
            "pool": pool, "pool_relu": np.maximum(pool, 0),
            "sum_relu_n1_to_1": np.clip(values + 1, -1, 1), "softmax": softmax(values),
            "largest_at": values.argmax(axis=-1),
        })  # fmt: skip


# --- PyTorch ------------------------------------------------------------------------------------


def test_torch_operators(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="needs torch: pip install 'umakit[torch]'")
    F = torch.nn.functional

    class Everything(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, y: Any) -> Any:
            rows = x[0]
            return (
                F.relu(x), F.relu6(x), F.hardtanh(x, -0.5, 2.0), x.clamp(min=0.5),
                x.clamp(max=math.nan), torch.maximum(x, y), torch.minimum(x, y), x.amax((1, 3)),
                x.amin(2), F.max_pool1d(rows, 3, 2, 1), F.max_pool2d(x, 3, 1, 1, 2),
                x.argmax(3), x.argmin(1), F.leaky_relu(x, 0.3),
                F.hardswish(x), F.hardsigmoid(x), F.elu(x), F.softmax(x, 3),
                (x * 2) - (x * 2), x * 0.0, torch.isnan(x * 2), ~(x + 1 < y + 1),
                torch.sign(x),
            )  # fmt: skip

    shape = (1, 3, 6, 5)
    values, others = special(shape, 11), special(shape, 12)
    examples_of = torch.from_numpy(values[0]), torch.from_numpy(others[0])
    program = torch.export.export(Everything().eval(), examples_of)
    outputs = compiled(
        program, tmp_path, dict(zip(program.graph_signature.user_inputs, (values, others),
                                    strict=True))
    )  # fmt: skip
    for inference in range(INFERENCES):
        arguments = (torch.from_numpy(v[inference]) for v in (values, others))
        wanted = Everything()(*arguments)
        for number, (got, expected) in enumerate(zip(outputs.values(), wanted, strict=True)):
            np.testing.assert_allclose(
                got[inference], expected.numpy(), rtol=2e-5, atol=1e-6, err_msg=str(number)
            )


# --- Relax --------------------------------------------------------------------------------------


def relax_module(shape: Sequence[int], dtype: str, function: Callable[[Any], list[Any]]) -> Any:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            values = [builder.normalize(value) for value in function(x)]
            results = builder.emit_output(relax.Tuple([builder.emit(value) for value in values]))
        builder.emit_func_output(results)
    return builder.get()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_relax_modules_and_tvms_own_build_agree(dtype: str, tmp_path: Path) -> None:
    """NaN for NaN: TVM's LLVM build is what `uma diff` compares with."""
    shape = (1, 5, 4, 3)
    module = relax_module(shape, dtype, lambda x: [
        op.nn.relu(x), op.clip(x, -1.0, 2.0), op.nn.max_pool2d(x, (2, 3), (1, 2), (1, 1),
                                                               layout="NHWC"),
        op.max(x, [1, 3]), op.min(x, None, True), op.maximum(x, relax.const(1.5, dtype)),
        op.argmax(x, 1), op.argmin(x, 2, True), op.sign(x), op.multiply(x, relax.const(0.0, dtype)),
        op.astype(x, "int8"), op.astype(x, "uint16"), op.astype(x, "int64"),
    ])  # fmt: skip
    values = special(shape, 21)[0].astype(dtype)
    report = compile_and_run(AOTModel(module, {"x": values}), test_dir=tmp_path)
    outputs = list(report.outputs.values())
    images = values.transpose(0, 3, 1, 2)
    pool = max_pool(images, [2, 3], [1, 2], [1, 1, 1, 1], [1, 1]).transpose(0, 2, 3, 1)
    with np.errstate(all="ignore"):
        wanted = [
            np.maximum(values, 0), np.clip(values, -1, 2), pool, values.max((1, 3)),
            values.min(keepdims=True), np.maximum(values, 1.5), values.argmax(1),
            values.argmin(2, keepdims=True), np.sign(values), values * 0,
            *(saturated(values, target) for target in ("int8", "uint16", "int64")),
        ]  # fmt: skip
    for got, expected in zip(outputs, wanted, strict=True):
        np.testing.assert_array_equal(got, expected)


def saturated(values: Array, dtype: str) -> Array:
    limits = np.iinfo(dtype)
    low, high = int(limits.min), int(limits.max)

    def one(value: float) -> int:
        if math.isnan(value):
            return 0
        return max(low, min(high, int(value))) if math.isfinite(value) else [low, high][value > 0]

    flat = [one(float(value)) for value in values.reshape(-1)]
    return np.array(flat, dtype).reshape(values.shape)


@pytest.mark.parametrize("operator", ["divide", "floor_divide", "mod", "floor_mod"])
def test_a_constant_divisor_of_0_is_refused(operator: str, tmp_path: Path) -> None:
    divisor = relax.const(np.array([2, 0, 1], "int32"))
    module = relax_module((3,), "int32", lambda x: [getattr(op, operator)(x, divisor)])
    with pytest.raises(ModelError, match=rf"operator {operator} .* by a constant 0"):
        umakit.compile_model(module, [], tmp_path / "library")
    assert not (tmp_path / "library").exists()


def test_integers_of_relax_modules_divided_and_shifted(tmp_path: Path) -> None:
    a = np.array([-(2**31), 2**31 - 1, -7, 7, 5, 1], "int32")
    b = np.array([-1, 0, 2, -2, 40, 31], "int32")

    def function(x: Any) -> list[Any]:
        left, right = (op.squeeze(part, [0]) for part in (op.strided_slice(x, [0], [i], [i + 1])
                                                          for i in (0, 1)))  # fmt: skip
        kinds = (op.floor_divide, op.floor_mod, op.left_shift, op.right_shift)
        return [kind(left, right) for kind in kinds]

    module = relax_module((2, 6), "int32", function)
    inputs = {"x": np.stack([a, b])}
    report = compile_and_run(AOTModel(module, inputs), test_dir=tmp_path)
    with np.errstate(all="ignore"):
        inside = (b >= 0) & (b < 32)
        amount = np.where(inside, b, 31)
        wanted = [
            np.floor_divide(a, b), np.mod(a, b), np.where(inside, a << amount, 0), a >> amount
        ]  # fmt: skip
    for got, expected in zip(report.outputs.values(), wanted, strict=True):
        np.testing.assert_array_equal(got, expected)


# --- comparisons with a reference ---------------------------------------------------------------


def test_nan_equals_nan_and_nothing_else() -> None:
    nan, inf = np.nan, np.inf
    wanted = np.array([nan, inf, -inf, 1.0], "float32")
    assert compare(wanted.copy(), wanted).agrees
    for place, value in [(0, 0.0), (0, inf), (1, nan), (1, -inf), (1, 3e38), (3, nan)]:
        got = wanted.copy()
        got[place] = value
        difference = compare(got, wanted)
        assert (difference.differing, difference.first) == (1, (place,))
        assert difference.largest == inf


def test_a_reference_with_nan_is_told_from_a_number(tmp_path: Path) -> None:
    module = relax_module((3,), "float32", lambda x: [op.nn.relu(x)])
    x = np.array([1.0, np.nan, -1.0], "float32")
    right = {"output": np.array([1.0, np.nan, 0.0], "float32")}
    names = list(compile_and_run(AOTModel(module, {"x": x}), test_dir=tmp_path).outputs)
    right = {names[0]: right["output"]}
    compile_and_run(AOTModel(module, {"x": x}, right), test_dir=tmp_path)
    wrong = {names[0]: np.array([1.0, 0.0, 0.0], "float32")}
    with pytest.raises(DeviceError, match=r"is nan instead of 0\.0 at \[1\]"):
        compile_and_run(AOTModel(module, {"x": x}, wrong), test_dir=tmp_path)


@pytest.mark.parametrize("name", ["Elu", "LeakyRelu", "PRelu"])
def test_minus_zero_keeps_its_sign(name: str, tmp_path: Path) -> None:
    """These are x from 0 on, and the reference of ONNX says so."""
    graph, fields = Graph(seed=1), {} if name == "PRelu" else {"alpha": 0.25}
    slope = [graph.constant(np.float32(0.25).reshape(1))] if name == "PRelu" else []
    graph.output(graph.node(name, graph.input("x", 1, 4), *slope, **fields))
    model, x = graph.model(), np.array([[0.0, -0.0, -1.0, 2.0]], "float32")
    (got,) = compiled(save(model, tmp_path), tmp_path, {"x": x[None]}).values()
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    assert_equal({"y": got}, {"y": wanted})
    np.testing.assert_array_equal(np.signbit(got[0]), np.signbit(wanted))
    np.testing.assert_array_equal(np.signbit(wanted), np.signbit(x))
