# SPDX-License-Identifier: Apache-2.0
"""Comparison of single TensorFlow Lite operators: C, LLVM, NumPy and TensorFlow Lite Micro."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import numpy as np
from comparisons import examples, llvm_outputs, llvm_takes_part
from hypothesis import strategies as st
from numpy_tflite import knows, numpy_tflite
from tflite_networks import Array, TfliteFile, tflite_micro

import umakit
from umakit.devices import build

EXAMPLES = examples(6)
INFERENCES = 6

channels = st.sampled_from([1, 2, 3, 5, 8, 16, 65])
sizes = st.integers(1, 9)
kernels = st.integers(1, 4)
strides = st.integers(1, 3)
zero_points = st.integers(-128, 127)
scales = st.floats(1e-3, 4.0)
paddings = st.sampled_from([0, 1])
"""SAME, VALID."""
activations = st.sampled_from([0, 0, 1, 2, 3])
"""None, ReLU, ReLU_N1_TO_1, ReLU6."""
seeds = st.integers(0, 2**32 - 1)
ties = st.integers(3, 127).flatmap(
    lambda n: st.integers(n // 2, n - 1).map(lambda k: (2 * n) / (2 * k + 1))
)
"""Ratios of scales at which products lie between two integers, where the last bit matters."""


def random_integers(shape: tuple[int, ...], seed: int, dtype: str = "int8") -> Array:
    """Several inputs: extremes and noise."""
    random, limits = np.random.default_rng(seed), np.iinfo(dtype)
    inputs = random.integers(limits.min, limits.max + 1, (INFERENCES, *shape)).astype(dtype)
    inputs[0], inputs[1] = limits.min, limits.max
    inputs[2] = random.choice([limits.min, limits.max], shape)
    return inputs


def assert_exact(
    file: bytes,
    shape: tuple[int, ...],
    seed: int = 0,
    *,
    inputs: Array | None = None,
    dtype: str = "int8",
    floats: bool = False,
    flags: Sequence[str] | None = None,
    expected: Array | None = None,
) -> Array:
    """Compile a model with one input `x`; C, LLVM and NumPy equal TFLM, bit by bit.

    Args:
        file: the model.
        shape: of the input.
        seed: of random inputs.
        inputs: several inputs instead.
        dtype: of the input.
        floats: whether the model asks for floating point.
        flags: of the C compiler; default: those of the test, see conftest.py.
        expected: outputs of another oracle than TensorFlow Lite Micro.

    Returns:
        The outputs.
    """
    inputs = random_integers(shape, seed, dtype) if inputs is None else inputs
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "single.tflite"
        path.write_bytes(file)
        if expected is None:
            expected = tflite_micro(file, inputs)
            if knows(file):
                np.testing.assert_array_equal(numpy_tflite(file, inputs), expected, "NumPy")
        library = umakit.compile_model(path, [], Path(folder) / "library")
        with mock.patch.object(build, "FLAGS", tuple(flags or build.FLAGS)):
            result = umakit.run_library(library.path, {"x": inputs})
        by_llvm = llvm_outputs(path, {"x": inputs}) if llvm_takes_part(file) else {}
        sources = list((library.path / "codegen/host").rglob("*.[ch]"))
        text = "".join(source.read_text(encoding="utf-8") for source in sources)
        assert sources and (floats or not re.search(r"\b(float|double)\b", text))
    (output,) = result.outputs.values()
    assert output.dtype == expected.dtype
    np.testing.assert_array_equal(output, expected, "C")
    for values in by_llvm.values():
        np.testing.assert_array_equal(values, expected, "LLVM")
    return output


def weights_and_bias(
    file: TfliteFile,
    shape: tuple[int, ...],
    outputs: int,
    axis: int,
    data_scale: float,
    seed: int,
    per_channel: bool,
    dtype: str = "int32",
) -> tuple[list[int], float]:
    """Constant weights and bias, and the largest scale of their products."""
    random = np.random.default_rng(seed)
    count = outputs if per_channel else 1
    weight_scales = np.exp(random.uniform(-6, -1, count)).astype(np.float32)
    weights = file.tensor(
        shape, scale=weight_scales, axis=axis if per_channel and count > 1 else 0,
        data=random.integers(-127, 128, shape).astype(np.int8), name="weights",
    )  # fmt: skip
    product = np.float32(data_scale) * weight_scales
    bias = file.tensor(
        [outputs], dtype, scale=product, axis=axis if seed % 2 else 0,  # as older converters do
        data=random.integers(-(2**14), 2**14, outputs).astype(dtype), name="bias",
    )  # fmt: skip
    return [weights, bias], float(product.max())
