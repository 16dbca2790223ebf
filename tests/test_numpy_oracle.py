# SPDX-License-Identifier: Apache-2.0
"""Trained networks four ways: generated C, TVM's LLVM build, NumPy, and the float tolerance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from comparisons import inferences, llvm_outputs, sample, some
from numpy_fixed_point import (
    exponential,
    hyperbolic_tangent,
    logistic,
    quantize_multiplier,
    rescaled,
)
from numpy_onnx import numpy_onnx
from numpy_tflite import NumpyTflite
from tflite_networks import Array, trained_model

import umakit
from umakit import tvm_api
from umakit.testing.harness import AOTModel, compile_and_run

DIGITS = Path(__file__).parents[1] / "examples" / "digits"
MODELS = (
    "ad01_int8.tflite",
    "kws_ref_model.tflite",
    "pretrainedResnet.tflite",
    "pretrainedResnet_quant.tflite",
)
TOLERANCE = 1e-5
"""Tolerance of float networks, relative to the largest value of the output."""


def network_inputs(shape: tuple[int, ...], count: int) -> Array:
    """Uniform noise, extremes and smooth rows of int8, in turn."""
    random = np.random.default_rng(11)
    uniform = random.integers(-128, 128, (count, *shape))
    uniform[1::3] = random.choice([-128, 127], uniform[1::3].shape)
    walks = random.normal(0, 8, uniform[2::3].shape).cumsum(axis=-1)
    uniform[2::3] = np.clip(walks, -128, 127)
    return uniform.astype(np.int8)


@pytest.mark.optimized
@pytest.mark.soak
@pytest.mark.parametrize("name", some(MODELS, 2))
def test_trained_models_in_c_llvm_and_numpy(name: str, tmp_path: Path) -> None:
    path = trained_model(name)
    network = NumpyTflite.read(path.read_bytes())
    (specification,), (result,) = network.inputs, network.outputs
    inputs = network_inputs(specification.shape, inferences(100))
    if specification.real:
        inputs = inputs.astype(np.float32) + 128
    library = umakit.compile_model(path, [], tmp_path / "library")
    in_c = umakit.run_library(library.path, {specification.name: inputs}).outputs[result.name]
    in_llvm = llvm_outputs(path, {specification.name: inputs})[result.name]
    in_numpy = np.stack([network.run({specification.name: row})[result.name] for row in inputs])
    assert len(np.unique(in_numpy)) > 20
    for other in (in_llvm, in_numpy):
        assert in_c.dtype == other.dtype
        if specification.real:
            limit = TOLERANCE * np.abs(in_numpy).max()
            np.testing.assert_allclose(in_c, other, rtol=TOLERANCE, atol=limit)
        else:
            np.testing.assert_array_equal(in_c, other)


@pytest.mark.soak
def test_digits_in_c_llvm_and_numpy(tmp_path: Path) -> None:
    path = DIGITS / "digits_int8.onnx"
    with np.load(DIGITS / "held_out.npz") as archive:
        inputs = {"image": sample(archive["image"], 100)[:, None]}
    library = umakit.compile_model(path, [], tmp_path / "library")
    in_c = umakit.run_library(library.path, inputs).outputs["logits"]
    np.testing.assert_array_equal(in_c, numpy_onnx(onnx.load(path), inputs)["logits"])
    np.testing.assert_array_equal(in_c, llvm_outputs(path, inputs)["logits"])


@pytest.mark.parametrize("interface", ["c", "unpacked"])
def test_compile_and_run_compares_integer_networks_with_llvm(interface: str) -> None:
    with np.load(DIGITS / "held_out.npz") as archive:
        model = AOTModel(DIGITS / "digits_int8.onnx", {"image": archive["image"][3:4]})
    report = compile_and_run(model, interface_api=interface)
    assert report.expected_from == "TVM's LLVM build"
    assert report.largest_difference == 0


def test_llvm_runs_a_tuple_of_one_result() -> None:
    relax, builder = tvm_api.relax, tvm_api.relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(relax.Tuple([builder.emit(relax.op.nn.relu(x))]))
        builder.emit_func_output(result)
    data = np.array([[-1, 0, 1], [2, -3, 4]], np.float32)
    (output,) = compile_and_run(AOTModel(builder.get(), {"x": data})).outputs.values()
    np.testing.assert_array_equal(output, np.maximum(data, 0))


# --- the oracle itself, and real arithmetic --------------------------------------------------


def test_fixed_point_functions_are_near_the_real_ones() -> None:
    arguments = np.linspace(-15.9, 15.9, 4001)
    values = np.rint(arguments * 2**27).astype(np.int64)
    for function, real in ((logistic, 1 / (1 + np.exp(-arguments))),
                           (hyperbolic_tangent, np.tanh(arguments))):  # fmt: skip
        np.testing.assert_allclose(function(values, 4) / 2.0**31, real, atol=3e-7)
    negative = -np.abs(values)
    powers = exponential(negative, 4) / 2.0**31
    np.testing.assert_allclose(powers, np.exp(-np.abs(arguments)), atol=3e-7)


@pytest.mark.parametrize("factor", [0.75, 1 / 3, 1.9, 2.0**-20])
def test_products_are_within_one_of_the_real_ones(factor: float) -> None:
    values = np.arange(-100_000, 100_001)
    difference = rescaled(values, *quantize_multiplier(factor)) - values * factor
    assert np.abs(difference).max() < 0.751, "two roundings, the first one of twice as many steps"
